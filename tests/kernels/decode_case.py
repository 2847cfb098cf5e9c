"""One call of the sparse-decode kernels on the emulator: parameters packed, launched, combined."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from functools import cache as remember
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mlacademy import attention, cache, gpu, schedule
from mlacademy.ops import plan as launches
from mlacademy.ops.plan import DECODE_SHARED_BYTES, DECODE_THREADS, FEW_HEADS_SHARED_BYTES

FOLDER = Path(__file__).parents[2] / "kernels" / "cuda" / "decode"
SCALE = 0.1352  # DeepSeek-V3.2's

# p is rounded to bfloat16 (relative 2^-9) and so is the output; q·k is exact to float32 sums. The errors of 512 outputs
# are independent, so the norm's stays below 2^-9 · sqrt(2), plus the accumulator's truncation, 2^-10 at most here.
TOLERANCE = 2**-9 * 2**0.5 + 2**-10


@remember
def kernel(name: str) -> gpu.Kernel:
    if name.startswith("sparse_decode_few_heads"):
        source = "sparse_decode_few_heads.cu"
    else:
        source = f"{name}.cu" if name.startswith("combine") else "sparse_decode.cu"
    return gpu.compile(FOLDER / source)[name]


@dataclass
class Lists:
    """A cache with the lists of slots to read from it."""

    kv: torch.Tensor
    indices: torch.Tensor
    lengths: torch.Tensor | None = None


def random_lists(
    layout: Any, *, b: int, s_q: int, topk: int, page: int, pages: int, seed: int, holes: float = 0.1, size: float = 0.5
) -> Lists:
    """A filled cache and random lists with holes; slots that no list names hold NaN codes, scales and bfloat16.

    Latents are ``size`` times normal ones; all that one lane of each quad has in its accumulators are zeros.
    """
    generator = torch.Generator().manual_seed(seed)
    slots = pages * page
    kv = cache.new_cache(layout, pages, page)
    indices = torch.randint(0, slots - 1, (b, s_q, topk), generator=generator, dtype=torch.int32)
    indices[torch.rand(indices.shape, generator=generator) < holes] = -1
    latents = torch.randn(slots, layout.d_nope + layout.d_rope, generator=generator) * size
    latents[:, 2:512:8] = latents[:, 3:512:8] = 0.0
    cache.append(kv, torch.arange(slots), latents[:, : layout.d_nope], latents[:, layout.d_nope :], layout)
    unused = sorted(set(range(slots)) - set(indices.flatten().tolist()))
    flat = kv.view(torch.uint8)
    for slot in unused:
        which, offset = divmod(slot, page)
        for start, stop in layout.fields(page, offset).values():
            flat[which].view(-1)[start:stop] = 0xFF
    return Lists(kv, indices)


def decode(
    q: torch.Tensor,
    main: Lists,
    layout: Any,
    *,
    scale: float,
    extra: Lists | None = None,
    sink: torch.Tensor | None = None,
    sms: int = 132,
    few_heads: bool = False,
    **options: Any,
) -> tuple[np.ndarray, np.ndarray]:
    """out [b, s_q, h_q, 512] float32 and lse [b, s_q, h_q] of both kernels; few_heads: of those for up to 32 heads."""
    b, s_q, h_q, _ = q.shape
    device = gpu.Device("emulator", arch="sm_90a", **options)
    kept: list[Any] = []

    def at(tensor: Any, name: str) -> int:
        if tensor is None:
            return 0
        kept.append(tensor)
        return device.address(tensor, name)

    def view(lists: Lists | None, name: str) -> bytes:
        if lists is None:
            return struct.pack("<3Q3q4i", 0, 0, 0, 0, 0, 0, 1, 0, 0, 0)
        page = lists.kv.shape[1]
        topk = lists.indices.shape[2]
        addresses = (at(lists.kv, name), at(lists.indices, f"{name}_indices"), at(lists.lengths, f"{name}_lengths"))
        strides = (lists.kv.stride(0), s_q * topk, topk)
        return struct.pack("<3Q3q4i", *addresses, *strides, page, lists.kv.shape[0] * page, topk, 0)

    lengths = schedule.effective_lengths(
        b,
        main.indices.shape[2],
        topk_length=main.lengths,
        extra_topk=None if extra is None else extra.indices.shape[2],
        extra_topk_length=None if extra is None else extra.lengths,
    )
    parts = schedule.num_sm_parts(sms, s_q=s_q, h_q=max(h_q, 64))
    plan = schedule.schedule(lengths, parts)
    slots = int(plan.num_splits[-1])
    out = np.full((b, s_q, h_q, 512), 0x7FC0, np.uint16)
    lse = np.full((b, s_q, h_q), np.nan, np.float32)
    heads = h_q if few_heads else max(h_q, launches.BLOCK_HEADS)  # of whose kernel the partial results are
    partial_bytes = launches.partial_bytes(slots=slots, s_q=s_q, h_q=heads)
    partial = np.full(partial_bytes // 4, np.nan, np.float32)
    partial_lse = np.full((slots, s_q, h_q), np.nan, np.float32)
    params = struct.pack("<Q3q", at(q, "q"), *q.stride()[:3]) + view(main, "kv") + view(extra, "extra_kv")
    params += struct.pack(
        "<7Qf3i3Q",
        at(sink, "sink"),
        at(np.ascontiguousarray(plan.records()), "records"),
        at(plan.num_splits.astype(np.int32), "num_splits"),
        at(out, "out"),
        at(lse, "lse"),
        at(partial, "out_partial"),
        at(partial_lse, "lse_partial"),
        scale * math.log2(math.e),
        b,
        s_q,
        h_q,
        *(0, 0, 0),  # no lengths to compare
    )
    ctas = max(h_q // 64, 1)
    name, smem_bytes = f"sparse_decode_{layout.name.lower().replace('.', '')}", DECODE_SHARED_BYTES[layout.name]
    if few_heads:
        width = 16 if h_q <= 16 else 32
        name = f"{name.replace('decode', 'decode_few_heads')}_{width}"
        smem_bytes = FEW_HEADS_SHARED_BYTES[width][layout.name]
    elif ctas == 2:
        name += "_pair"
    launch = gpu.LaunchPlan(grid=(ctas, s_q, parts), block=DECODE_THREADS, cluster=ctas, smem_bytes=smem_bytes)
    device.launch(kernel(name), launch, [params])
    if few_heads:
        device.launch(kernel("combine"), gpu.LaunchPlan(grid=(min(h_q, 8), s_q, b), block=256), [params])
    else:
        merge = launches.combine_tiles_launch(b=b, s_q=s_q, h_q=h_q, slots=slots)
        device.launch(merge.compiled(), merge.plan, [params])
    return torch.from_numpy(out.view(np.int16)).view(torch.bfloat16).float().numpy(), lse


def queries(b: int, s_q: int, heads: int, layout: Any, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(b, s_q, heads, layout.d_qk, generator=generator) * 0.5).to(torch.bfloat16)


def check(
    q: torch.Tensor,
    main: Lists,
    layout: Any,
    extra: Lists | None = None,
    sink: torch.Tensor | None = None,
    **options: Any,
) -> None:
    """The decoded result against the float64 oracle's: no NaN, the lse of every row, the norm of the outputs."""
    out, lse = decode(q, main, layout, scale=SCALE, extra=extra, sink=sink, **options)
    expected, expected_lse = attention.sparse_decode(
        q,
        main.kv,
        main.indices,
        layout=layout,
        softmax_scale=SCALE,
        topk_length=main.lengths,
        extra_cache=None if extra is None else extra.kv,
        extra_indices=None if extra is None else extra.indices,
        extra_topk_length=None if extra is None else extra.lengths,
        attn_sink=sink,
    )
    want, want_lse = expected.double().numpy(), expected_lse.transpose(1, 2).double().numpy()
    assert not np.isnan(out).any()
    finite = np.isfinite(want_lse)
    np.testing.assert_array_equal(lse[~finite], want_lse[~finite])
    np.testing.assert_allclose(lse[finite], want_lse[finite], atol=2e-6, rtol=2e-6)  # float32 sums of ≤ 2^10 terms
    scale = np.linalg.norm(want)
    assert np.linalg.norm(out - want) <= TOLERANCE * scale + 1e-12
    assert (out[want_lse == np.inf] == 0).all()
