"""Synthetic inputs of `decode_step`: random, of realistic size, with something worth finding.

Purely random keys would make every token equally relevant, and no selection could be good. So each request has one
hidden direction u in the 576-dimensional key space, and each token a relevance r ~ N(0, 1):

    key = noise + 8·r·u         query of a head = a·u + noise         a chosen so that logits spread by about 3

The indexer sees keys through a fixed random projection to 128 dimensions, as a learned one would: it finds the relevant
tokens by another way than attention does, and not perfectly. These are not a model's activations; what transfers is
the arithmetic (sizes, bytes, rounding errors), not the share of the softmax that is kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mlacademy.config import MLAConfig

_SIGNAL = 8.0  # length of the relevant part of a key for r = 1; the noise has length √576 = 24
_SPREAD = 3.0  # standard deviation of the scaled logits that the relevant part makes
_QUERY_NOISE = 0.15


@dataclass(frozen=True)
class Request:
    """One request's tensors, float32 unless said otherwise.

    keys [n, d_qk]: latent (V) then RoPE part. q bf16 [h_q, d_qk]. index_keys [n, d], index_q [heads, d], and
    index_weights [heads]: the lightning indexer's inputs.
    """

    keys: Tensor
    q: Tensor
    index_keys: Tensor
    index_q: Tensor
    index_weights: Tensor


def make_request(config: MLAConfig, tokens: int, generator: torch.Generator) -> Request:
    """Random tensors for one request of `tokens` cached tokens; the same generator state gives the same request."""
    heads, d = config.index_n_heads, config.index_head_dim
    if heads is None or d is None:
        raise ValueError("config must describe an indexer (index_n_heads, index_head_dim): both are None")

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    direction = torch.nn.functional.normalize(normal(config.d_qk), dim=0)
    keys = normal(tokens, config.d_qk)
    keys += _SIGNAL * normal(tokens, 1) * direction
    gain = _SPREAD / (config.softmax_scale * _SIGNAL) * (1 + 0.2 * normal(config.num_attention_heads, 1))
    q = gain * direction + _QUERY_NOISE * normal(config.num_attention_heads, config.d_qk)

    projection = torch.linalg.qr(normal(config.d_qk, d)).Q  # orthonormal columns: noise stays of unit size
    seen = torch.nn.functional.normalize(direction @ projection, dim=0)
    return Request(
        keys=keys,
        q=q.bfloat16(),
        index_keys=keys @ projection,
        index_q=seen + 0.02 * normal(heads, d),
        index_weights=normal(heads).abs() / heads,
    )
