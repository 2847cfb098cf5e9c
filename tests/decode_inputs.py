"""Random arguments of a sparse decode, and how far two of its results may be apart."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mlacademy import cache, ops

SCALE = 0.1352  # DeepSeek-V3.2's


def random_cache(layout: cache.CacheLayout, pages: int, page: int, named: Tensor, seed: int) -> Tensor:
    """A cache whose slots that ``named`` does not name hold NaN: codes, scales and RoPE are all 0xFF bytes."""
    generator = torch.Generator().manual_seed(seed)
    slots = pages * page
    kv = cache.new_cache(layout, pages, page)
    latents = torch.randn(slots, layout.d_qk, generator=generator) * 0.5
    cache.append(kv, torch.arange(slots), latents[:, : layout.d_nope], latents[:, layout.d_nope :], layout)
    used = set(named.flatten().tolist())
    for slot in range(slots):
        if slot not in used:
            which, offset = divmod(slot, page)
            flat = kv.as_strided((pages, page * layout.bytes_per_token), (kv.stride(0), 1))
            for start, stop in layout.fields(page, offset).values():
                flat[which, start:stop] = 0xFF
    return kv


def random_lists(b: int, s_q: int, topk: int, slots: int, seed: int, holes: float = 0.1) -> Tensor:
    """int32 [b, s_q, topk] with holes; the last slot is never named."""
    generator = torch.Generator().manual_seed(seed)
    indices = torch.randint(0, slots - 1, (b, s_q, topk), generator=generator, dtype=torch.int32)
    indices[torch.rand(indices.shape, generator=generator) < holes] = -1
    return indices


@dataclass
class Inputs:
    """The arguments of `ops.sparse_decode`; ``options`` are those that may be left out."""

    layout: cache.CacheLayout
    q: Tensor
    kv_cache: Tensor
    indices: Tensor
    options: dict[str, Any] = field(default_factory=dict)

    def decode(self, **changed: Any) -> tuple[Tensor, Tensor]:
        arguments = {"layout": self.layout, "softmax_scale": SCALE, **self.options, **changed}
        return ops.sparse_decode(self.q, self.kv_cache, self.indices, **arguments)

    @staticmethod
    def compare(out: Tensor, lse: Tensor, exact: Tensor, exact_lse: Tensor) -> None:
        """A kernel's result against the oracle's (rounded to bfloat16 itself).

        p is rounded to bfloat16 (relative 2^-9), and both outputs are; the errors of 512 outputs are independent, so
        the norm's stays below 2^-9 · sqrt(3), plus the accumulator's truncation, 2^-10 at most here.
        """
        assert out.shape == exact.shape
        assert lse.shape == exact_lse.shape
        empty = exact_lse == torch.inf
        np.testing.assert_array_equal((lse == torch.inf).numpy(), empty.numpy())
        np.testing.assert_allclose(lse[~empty].numpy(), exact_lse[~empty].numpy(), atol=2e-6, rtol=2e-6)
        assert (out.transpose(1, 2)[empty] == 0).all()
        difference = (out.double() - exact.double()).norm()
        assert difference <= (2**-9 * 3**0.5 + 2**-10) * exact.double().norm() + 1e-12


def decode_inputs(
    layout: cache.CacheLayout,
    *,
    b: int = 2,
    s_q: int = 1,
    h_q: int = 64,
    topk: int = 128,
    page: int = 64,
    pages: int = 4,
    seed: int = 0,
    **options: Any,
) -> Inputs:
    generator = torch.Generator().manual_seed(seed)
    q = (torch.randn(b, s_q, h_q, layout.d_qk, generator=generator) * 0.5).bfloat16()
    indices = random_lists(b, s_q, topk, pages * page, seed + 1)
    return Inputs(layout, q, random_cache(layout, pages, page, indices, seed + 2), indices, options)
