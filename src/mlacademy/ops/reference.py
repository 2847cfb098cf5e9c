"""The operators on CPU tensors: the float64 oracles, with the rounding of the results that the kernels' have."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mlacademy import attention, cache, schedule, softmax
from mlacademy.ops import arguments, notices
from mlacademy.ops.arguments import DecodeShape, DecodeTensors
from mlacademy.ops.metadata import Metadata


def sparse_decode(
    shape: DecodeShape, tensors: DecodeTensors, scale: float, metadata: Tensor | None
) -> tuple[Tensor, Tensor]:
    """`attention.sparse_decode`, its results rounded."""
    out = torch.empty(shape.b, shape.s_q, shape.h_q, shape.layout.d_v, dtype=torch.bfloat16)
    lse = torch.empty(shape.b, shape.s_q, shape.h_q, dtype=torch.float32).transpose(1, 2)
    if metadata is not None and _changed(shape, metadata, tensors.topk_length, tensors.extra_topk_length):
        return out.fill_(math.nan), lse.fill_(math.nan)
    if not notices.is_checked():
        tensors = _forgiven(shape, tensors)
    exact, exact_lse = attention.sparse_decode(
        tensors.q,
        tensors.kv_cache,
        tensors.indices,
        layout=shape.layout,
        softmax_scale=scale,
        topk_length=tensors.topk_length,
        extra_cache=tensors.extra_kv_cache,
        extra_indices=tensors.extra_indices,
        extra_topk_length=tensors.extra_topk_length,
        attn_sink=tensors.attn_sink,
    )
    return out.copy_(exact), lse.copy_(exact_lse)


def _forgiven(shape: DecodeShape, tensors: DecodeTensors) -> DecodeTensors:
    """What is out of range becomes a hole, or the whole list."""
    extra = tensors.extra_indices
    return tensors._replace(
        indices=_holes(tensors.indices, shape.cache.slots),
        topk_length=_within(tensors.topk_length, shape.topk),
        extra_indices=None if extra is None else _holes(extra, shape.extra.slots),
        extra_topk_length=_within(tensors.extra_topk_length, shape.extra_topk),
    )


def _holes(indices: Tensor, slots: int) -> Tensor:
    return indices.masked_fill((indices < 0) | (indices >= slots), -1)


def _within(lengths: Tensor | None, topk: int) -> Tensor | None:
    return None if lengths is None else lengths.clamp(0, topk)


def _changed(shape: DecodeShape, metadata: Tensor, lengths: Tensor | None, extra_lengths: Tensor | None) -> bool:
    planned = Metadata.of(metadata, shape.b).lengths
    for extra, given in enumerate((lengths, extra_lengths)):
        if given is None or torch.equal(given, planned[extra]):
            continue
        request = int((given != planned[extra]).nonzero()[0])
        values = {"value": int(given[request]), "expected": int(planned[extra, request])}
        notices.tell(given.device, notices.CHANGED_LENGTH, request=request, extra=bool(extra), **values)
        return True
    return False


def make_schedule(
    b: int, topk: int, extra_topk: int, parts: int, overhead: int, lengths: Tensor | None, extra_lengths: Tensor | None
) -> Tensor:
    """The buffer of a `Metadata`, by `mlacademy.schedule`."""
    effective = schedule.effective_lengths(
        b,
        topk,
        topk_length=_within(lengths, topk),
        extra_topk=extra_topk or None,
        extra_topk_length=_within(extra_lengths, extra_topk),
    )
    made = schedule.schedule(effective, parts, overhead=overhead)
    none = torch.zeros(b, dtype=torch.int32)
    pieces = [torch.from_numpy(made.records()).flatten(), torch.tensor(made.num_splits)]
    return torch.cat([*pieces, *(none if given is None else given for given in (lengths, extra_lengths))])


def combine(
    out_partial: Tensor, lse_partial_log2: Tensor, num_splits: Tensor, attn_sink: Tensor | None
) -> tuple[Tensor, Tensor]:
    """`softmax.combine`, request by request, in float64."""
    arguments.check_splits(num_splits, len(out_partial))
    bounds = num_splits.tolist()
    b, (_, s_q, h_q, d_v) = len(bounds) - 1, out_partial.shape
    out = torch.empty(b, s_q, h_q, d_v, dtype=torch.bfloat16)
    lse = torch.empty(b, s_q, h_q, dtype=torch.float32)
    for request in range(b):
        own = slice(bounds[request], bounds[request + 1])
        sink = None if attn_sink is None else attn_sink.double()
        out[request], lse[request] = softmax.combine(out_partial[own].double(), lse_partial_log2[own].double(), sink)
    return out, lse.transpose(1, 2)


def cache_append(kv_cache: Tensor, slots: Tensor, nope: Tensor, rope: Tensor, layout: cache.CacheLayout) -> None:
    """`cache.append` of the tokens whose slot is not −1."""
    there = slots != -1
    cache.append(kv_cache, slots[there], nope[there], rope[there], layout)
