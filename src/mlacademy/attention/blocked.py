"""Sparse decode the way the kernel does it: FP8 in, blocks of 64, base 2, bf16 weights, splits, combine.

Same arguments and results as the float64 oracle, other arithmetic. Per segment (one partition's share of one request):

1. gather 64 tokens, FP8 → bf16; scores q·k summed in float32; −inf at holes;
2. running max in log2 units from −1e30, `2^(x − max)`, running sum in float32 (`softmax.online_softmax`);
3. the weights rounded to bf16, times the bf16 values, summed in float32.

Then a request that was not split takes its sink and is done, and a split one is merged by `softmax.combine`.

What it does not imitate: the order of additions inside a tensor-core product, and the special function unit's `ex2`.
Source: FlashMLA at commit 9241ae3, the SM90 sparse FP8 decode and combine kernels, read for facts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor

from mlacademy.attention import checks
from mlacademy.attention.checks import Source
from mlacademy.cache import CacheLayout, gather
from mlacademy.schedule import BLOCK, Schedule, Segment, effective_lengths
from mlacademy.softmax import apply_sink, combine, online_softmax

_BATCH_TOKENS = 16_384  # tokens gathered at a time, 38 MB in float32: enough to keep the matrix products busy


def sparse_decode_blocked(
    q: Tensor,
    cache: Tensor,
    indices: Tensor,
    *,
    layout: CacheLayout,
    softmax_scale: float,
    topk_length: Tensor | None = None,
    extra_cache: Tensor | None = None,
    extra_indices: Tensor | None = None,
    extra_topk_length: Tensor | None = None,
    attn_sink: Tensor | None = None,
    schedule: Schedule | None = None,
    out_dtype: torch.dtype = torch.float32,
    kernel_limits: bool = False,
) -> tuple[Tensor, Tensor]:
    """Attend as `sparse_decode` does, in float32 and in the kernel's order of work.

    Args: as `mlacademy.attention.sparse_decode`, and
        q: bfloat16, as the kernel reads it.
        indices, extra_indices: rows of a multiple of 64 entries (`sparse.pad_indices`).
        schedule: how the blocks are cut over partitions, made from this call's `schedule.effective_lengths`; None
            walks each request in one piece. A fixed schedule gives the same bits every time; another one may differ in
            the last bits, because sums are then taken in another order.
        out_dtype: float32, or bfloat16 to round `out` once at the end as the kernel does.
    Returns: out [b, s_q, h_q, d_v] in `out_dtype`, lse float32 [b, h_q, s_q], natural log, a transposed view.
    Raises: TypeError or ValueError naming the argument, also for a schedule made from other lengths.
    """
    if isinstance(q, Tensor) and q.dtype != torch.bfloat16:
        raise TypeError(f"q must be bfloat16, as the kernel reads it: got {q.dtype}. Convert it with q.bfloat16()")
    if out_dtype not in (torch.float32, torch.bfloat16):
        raise ValueError(f"out_dtype must be torch.float32 or torch.bfloat16: got {out_dtype}")
    main, extra = checks.sparse_sources(
        q,
        cache,
        indices,
        layout=layout,
        softmax_scale=softmax_scale,
        topk_length=topk_length,
        extra_cache=extra_cache,
        extra_indices=extra_indices,
        extra_topk_length=extra_topk_length,
        attn_sink=attn_sink,
        kernel_limits=kernel_limits,
    )
    checks.multiple_of_block("indices", indices)
    if extra_indices is not None:
        checks.multiple_of_block("extra_indices", extra_indices)

    b, s_q, h_q, _ = q.shape
    joined = _Joined(main, extra, layout)
    out = torch.empty(b, s_q, h_q, layout.d_v, dtype=torch.float32)
    lse = torch.empty(b, s_q, h_q, dtype=torch.float32)
    sink = None if attn_sink is None else attn_sink.float()
    pieces: dict[int, list[tuple[Tensor, Tensor]]] = defaultdict(list)
    for segments in _equal_batches(_segments(joined, schedule), s_q):
        rows = torch.tensor([segment.request for segment in segments])
        k, valid = joined.load(segments)
        scores = q[rows].float() @ k.transpose(-1, -2)
        part = online_softmax(
            scores, k[..., : layout.d_v], scale=softmax_scale, block=BLOCK, valid=valid[:, :, None], round_s=True
        )
        for i, segment in enumerate(segments):
            r = segment.request
            if segment.split is None:
                lse[r] = part.lse[i]
                out[r] = part.out[i] if sink is None else apply_sink(part.out[i], part.lse[i], sink)
            else:
                pieces[r].append((part.out[i], part.lse_log2[i]))
    for r, partials in pieces.items():
        outs, lse_log2 = zip(*partials, strict=True)
        out[r], lse[r] = combine(torch.stack(outs), torch.stack(lse_log2), sink)
    return out.to(out_dtype), lse.transpose(1, 2)


class _Joined:
    """Each request's main list, rounded up to whole blocks, followed by its extra list, read block by block."""

    def __init__(self, main: Source, extra: Source | None, layout: CacheLayout) -> None:
        self.main, self.extra, self.layout = main, extra, layout
        self.lengths = effective_lengths(
            main.slots.shape[0],
            main.topk,
            topk_length=main.lengths.numpy(),
            extra_topk=None if extra is None else extra.topk,
            extra_topk_length=None if extra is None else extra.lengths.numpy(),
        )
        if extra is None:
            self.main_slots, self.extra_slots = main.slots, None
            return
        # Both lists on one axis, each with holes where the other has its say.
        b, s_q, _ = main.slots.shape
        width = main.topk + extra.topk
        self.main_slots = torch.full((b, s_q, width), -1, dtype=main.slots.dtype)
        self.extra_slots = torch.full((b, s_q, width), -1, dtype=extra.slots.dtype)
        for r, length in enumerate(main.lengths.tolist()):
            start = -(-max(length, 1) // BLOCK) * BLOCK
            self.main_slots[r, :, :start] = main.slots[r, :, :start]
            self.extra_slots[r, :, start : start + extra.topk] = extra.slots[r]

    def load(self, segments: list[Segment]) -> tuple[Tensor, Tensor]:
        """Keys float32 [segments, s_q, n, d_qk], rounded to bf16, and validity [segments, s_q, n]; equal lengths n."""
        slots = _cut(self.main_slots, segments)
        k = gather(self.main.cache, slots, self.layout)
        valid = slots != -1
        if self.extra is not None and self.extra_slots is not None:
            extra_slots = _cut(self.extra_slots, segments)
            k = k + gather(self.extra.cache, extra_slots, self.layout)  # a place is a hole, and so zero, in one of both
            valid |= extra_slots != -1
        return k.bfloat16().float(), valid


def _cut(slots: Tensor, segments: list[Segment]) -> Tensor:
    """The segments' share of `slots` [b, s_q, n], stacked: [segments, s_q, blocks · 64]."""
    return torch.stack([slots[s.request, :, s.begin_block * BLOCK : s.end_block * BLOCK] for s in segments])


def _segments(joined: _Joined, schedule: Schedule | None) -> tuple[Segment, ...]:
    if schedule is None:
        return tuple(Segment(r, r, 0, -(-n // BLOCK), None) for r, n in enumerate(joined.lengths.tolist()))
    if not isinstance(schedule, Schedule):
        raise TypeError(f"schedule must be a schedule.Schedule or None: got {type(schedule).__name__}")
    if schedule.block != BLOCK:
        raise ValueError(f"schedule must be made for blocks of {BLOCK}: got blocks of {schedule.block}")
    if schedule.lengths.tolist() != joined.lengths.tolist():
        raise ValueError(
            f"schedule was made for lengths {schedule.lengths.tolist()}, this call has {joined.lengths.tolist()}. "
            "A schedule holds for one set of lengths: make it again when topk_length changes"
        )
    return schedule.segments()


def _equal_batches(segments: Iterable[Segment], s_q: int) -> Iterable[list[Segment]]:
    """Segments of the same number of blocks, a few at a time, so that one matrix product serves several."""
    by_blocks: dict[int, list[Segment]] = defaultdict(list)
    for segment in segments:
        by_blocks[segment.blocks].append(segment)
    for blocks, group in by_blocks.items():
        size = max(_BATCH_TOKENS // (blocks * BLOCK * s_q), 1)
        for start in range(0, len(group), size):
            yield group[start : start + size]
