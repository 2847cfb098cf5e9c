"""Latent attention in its two forms, naive multi-head and absorbed, from the hidden state to the output.

Both read the same cache: a latent of 512 values and one rotary key of 64 a token (sizes of DeepSeek-V3.2 throughout).

* **Naive** (used for prefill): up-project every cached latent to 128 keys and 128 values, then ordinary attention.
* **Absorbed** (used for decode): move the key's up-projection into the query and the value's behind the softmax. The
  cache is never expanded; attention becomes 128 queries over one shared key of 576 whose first 512 values are V.

They are equal by associativity: ``q · (W c) = (Wᵀ q) · c`` and ``Σ p (W c) = W (Σ p c)``. Left out on purpose: the
lightning indexer (every visible token is attended) and quantisation. Source: DeepSeek-V3.2-Exp, ``inference/model.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from mlacademy.config import MLAConfig
from mlacademy.mla.rope import Pairing, rope, rope_frequencies


@dataclass(frozen=True)
class MLAWeights:
    """The matrices of one layer, each written as ``[out, in]``; names of the public model code in brackets.

    ``q_down`` [wq_a] ``[1536, 7168]`` and ``q_norm`` ``[1536]`` are ``None`` when the model has no query compression;
    ``q_up`` [wq_b] ``[128, 192, 1536]``, of each head's 192 rows the last 64 are turned by RoPE;
    ``kv_down`` [wkv_a] ``[576, 7168]``, ``kv_norm`` ``[512]``;
    ``k_up`` ``[128, 128, 512]`` and ``v_up`` ``[128, 128, 512]`` are the two halves of [wkv_b];
    ``out`` [wo] ``[7168, 128, 128]``.
    """

    config: MLAConfig
    q_down: torch.Tensor | None
    q_norm: torch.Tensor | None
    q_up: torch.Tensor
    kv_down: torch.Tensor
    kv_norm: torch.Tensor
    k_up: torch.Tensor
    v_up: torch.Tensor
    out: torch.Tensor

    @property
    def pairing(self) -> Pairing:
        """Which values RoPE pairs; DeepSeek's attention pairs neighbours."""
        return "interleaved" if self.config.rope_interleave else "half"


@dataclass(frozen=True)
class LatentKV:
    """What MLA caches of ``s_kv`` tokens: ``latent`` ``[b, s_kv, 512]`` (normalised), ``rope_key`` ``[b, s_kv, 64]``
    (already turned), and the ``positions`` ``[b, s_kv]`` they were turned by."""

    latent: torch.Tensor
    rope_key: torch.Tensor
    positions: torch.Tensor

    @property
    def joined(self) -> torch.Tensor:
        """Latent and rotary key side by side, ``[b, s_kv, 576]``: the key of the absorbed form."""
        return torch.cat([self.latent, self.rope_key], dim=-1)


def random_weights(config: MLAConfig, seed: int, dtype: torch.dtype = torch.float64) -> MLAWeights:
    """Weights of the model's shapes with variance ``1 / in``, so that activations keep the size of the hidden state.

    The norms' weights lie in [0.5, 1.5). The same seed gives the same weights. DeepSeek-V3.2's layer has 187 million
    values: 1.5 GB in float64.
    """
    generator = torch.Generator().manual_seed(seed)

    def matrix(*shape: int, inputs: int) -> torch.Tensor:
        bound = (3.0 / inputs) ** 0.5
        return torch.empty(shape, dtype=dtype).uniform_(-bound, bound, generator=generator)

    def norm(width: int) -> torch.Tensor:
        return torch.empty(width, dtype=dtype).uniform_(0.5, 1.5, generator=generator)

    h, rank, query_rank = config.num_attention_heads, config.kv_lora_rank, config.q_lora_rank
    query_inputs = config.hidden_size if query_rank is None else query_rank
    return MLAWeights(
        config=config,
        q_down=None if query_rank is None else matrix(query_rank, config.hidden_size, inputs=config.hidden_size),
        q_norm=None if query_rank is None else norm(query_rank),
        q_up=matrix(h, config.qk_head_dim, query_inputs, inputs=query_inputs),
        kv_down=matrix(config.d_qk, config.hidden_size, inputs=config.hidden_size),
        kv_norm=norm(rank),
        k_up=matrix(h, config.qk_nope_head_dim, rank, inputs=rank),
        v_up=matrix(h, config.v_head_dim, rank, inputs=rank),
        out=matrix(config.hidden_size, h, config.v_head_dim, inputs=h * config.v_head_dim),
    )


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """``x / sqrt(mean(x²) + eps) · weight`` over the last dimension ``[..., d]``."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def compress(hidden: torch.Tensor, weights: MLAWeights, positions: torch.Tensor) -> LatentKV:
    """Hidden states ``[b, s, 7168]`` at ``positions`` ``[b, s]`` to what the cache stores of them.

    The latent is normalised before it is stored; the 64 values of the rotary key are turned, not normalised.
    Raises ``TypeError`` for a dtype that is not the weights', ``ValueError`` for shapes that do not fit.
    """
    _check_hidden(hidden, weights, positions)
    config = weights.config
    both = hidden @ weights.kv_down.T
    latent = rms_norm(both[..., : config.kv_lora_rank], weights.kv_norm, config.rms_norm_eps)
    turned = rope(
        both[..., config.kv_lora_rank :], positions, frequencies=rope_frequencies(config), pairing=weights.pairing
    )
    return LatentKV(latent, turned, positions)


def queries(hidden: torch.Tensor, weights: MLAWeights, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Hidden states ``[b, s_q, 7168]`` to ``(q_nope [b, s_q, 128, 128], q_rope [b, s_q, 128, 64])``, q_rope turned.

    Raises as :func:`compress`.
    """
    _check_hidden(hidden, weights, positions)
    config = weights.config
    x = hidden
    if weights.q_down is not None and weights.q_norm is not None:
        x = rms_norm(x @ weights.q_down.T, weights.q_norm, config.rms_norm_eps)
    q = (x @ weights.q_up.flatten(0, 1).T).reshape(*x.shape[:2], *weights.q_up.shape[:2])
    q_nope, q_rope = q[..., : config.qk_nope_head_dim], q[..., config.qk_nope_head_dim :]
    turned = rope(q_rope, positions.unsqueeze(-1), frequencies=rope_frequencies(config), pairing=weights.pairing)
    return q_nope, turned


def absorb(q_nope: torch.Tensor, weights: MLAWeights) -> torch.Tensor:
    """Multiply each head's query ``[b, s_q, 128, 128]`` by its own key up-projection: ``[b, s_q, 128, 512]``."""
    return torch.einsum("bshd,hdc->bshc", q_nope, weights.k_up)


def naive_heads(
    q_nope: torch.Tensor,
    q_rope: torch.Tensor,
    kv: LatentKV,
    weights: MLAWeights,
    positions: torch.Tensor,
    *,
    softmax_scale: float | None = None,
) -> torch.Tensor:
    """Ordinary multi-head attention over keys and values expanded from the cache: ``[b, s_q, 128, 128]``.

    A query at position p sees the keys at positions ≤ p; one that sees none gives 0. ``softmax_scale`` defaults to the
    model's, :attr:`MLAConfig.softmax_scale`.
    """
    k_nope = torch.einsum("btc,hdc->bthd", kv.latent, weights.k_up)
    rope_key = kv.rope_key.unsqueeze(2).expand(-1, -1, weights.config.num_attention_heads, -1)
    k = torch.cat([k_nope, rope_key], dim=-1)
    v = torch.einsum("btc,hdc->bthd", kv.latent, weights.v_up)
    q = torch.cat([q_nope, q_rope], dim=-1)
    scores = torch.einsum("bshd,bthd->bhst", q, k)
    p = _softmax(scores, kv, weights, positions, softmax_scale)
    return torch.einsum("bhst,bthd->bshd", p, v)


def absorbed_heads(
    q_nope: torch.Tensor,
    q_rope: torch.Tensor,
    kv: LatentKV,
    weights: MLAWeights,
    positions: torch.Tensor,
    *,
    softmax_scale: float | None = None,
) -> torch.Tensor:
    """The same result as :func:`naive_heads` without expanding the cache: ``[b, s_q, 128, 128]``.

    All 128 heads share one key of 576 values and, as value, its first 512.
    """
    q = torch.cat([absorb(q_nope, weights), q_rope], dim=-1)
    scores = torch.einsum("bshc,btc->bhst", q, kv.joined)
    p = _softmax(scores, kv, weights, positions, softmax_scale)
    mixed_latent = torch.einsum("bhst,btc->bshc", p, kv.latent)
    return torch.einsum("bshc,hdc->bshd", mixed_latent, weights.v_up)


def naive_attention(
    hidden: torch.Tensor,
    kv: LatentKV,
    weights: MLAWeights,
    positions: torch.Tensor,
    *,
    softmax_scale: float | None = None,
) -> torch.Tensor:
    """The whole layer in the naive form: hidden states ``[b, s_q, 7168]`` to the layer's output, same shape.

    ``positions`` ``[b, s_q]`` are those of ``hidden``; ``kv`` must already hold every token to attend to, the new ones
    included. Raises as :func:`compress`.
    """
    heads = naive_heads(*queries(hidden, weights, positions), kv, weights, positions, softmax_scale=softmax_scale)
    return heads.flatten(2) @ weights.out.flatten(1).T


def absorbed_attention(
    hidden: torch.Tensor,
    kv: LatentKV,
    weights: MLAWeights,
    positions: torch.Tensor,
    *,
    softmax_scale: float | None = None,
) -> torch.Tensor:
    """The whole layer in the absorbed form; arguments and result as :func:`naive_attention`."""
    heads = absorbed_heads(*queries(hidden, weights, positions), kv, weights, positions, softmax_scale=softmax_scale)
    return heads.flatten(2) @ weights.out.flatten(1).T


def _softmax(
    scores: torch.Tensor, kv: LatentKV, weights: MLAWeights, positions: torch.Tensor, softmax_scale: float | None
) -> torch.Tensor:
    scale = weights.config.softmax_scale if softmax_scale is None else softmax_scale
    visible = kv.positions.unsqueeze(1) <= positions.unsqueeze(2)  # [b, s_q, s_kv]
    masked = (scores * scale).masked_fill(~visible.unsqueeze(1), float("-inf"))
    p = torch.softmax(masked, dim=-1)
    return p.masked_fill(~visible.any(-1)[:, None, :, None], 0.0)


def _check_hidden(hidden: torch.Tensor, weights: MLAWeights, positions: torch.Tensor) -> None:
    if hidden.dtype != weights.kv_down.dtype:
        raise TypeError(f"hidden must have the weights' dtype {weights.kv_down.dtype}: got {hidden.dtype}")
    if hidden.dim() != 3 or hidden.shape[-1] != weights.config.hidden_size:
        raise ValueError(f"hidden must have shape [b, s, {weights.config.hidden_size}]: got {tuple(hidden.shape)}")
    if positions.shape != hidden.shape[:2]:
        raise ValueError(
            f"positions must have shape {tuple(hidden.shape[:2])}, one a token: got {tuple(positions.shape)}"
        )
