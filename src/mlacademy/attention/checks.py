"""What the attention functions refuse, and the sentence each refusal says.

Two levels. *Always*: shapes, dtypes, ranges, pairs that belong together. *On request* (`kernel_limits=True`): what the
public GPU kernels refuse on top, although the mathematics would be fine: head counts other than 64 and 128, index
lists that are not a multiple of 64, queries that are not bf16.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mlacademy.cache import CacheLayout
from mlacademy.sparse import SLOT_MULTIPLE, check_slots

KERNEL_HEADS = (64, 128)
"""Query heads a sparse kernel takes; callers with fewer pad them."""

CACHE_DTYPES = (torch.uint8, torch.int8, torch.float8_e4m3fn)
"""How the bytes of an FP8 cache may be typed; all three mean the same bytes."""


@dataclass(frozen=True)
class Source:
    """One paged cache and the list that points into it, checked.

    `cache` is uint8 [num_pages, page, 1, bytes]; `slots` int [b, s_q, topk] holds −1 at every place that does not count
    (holes, and everything at or beyond the length), so whatever stood there is gone; `lengths` int64 [b].
    """

    cache: Tensor
    slots: Tensor
    lengths: Tensor

    @property
    def topk(self) -> int:
        return self.slots.shape[-1]


def sparse_sources(
    q: Tensor,
    cache: Tensor,
    indices: Tensor,
    *,
    layout: CacheLayout,
    softmax_scale: float,
    topk_length: Tensor | None,
    extra_cache: Tensor | None,
    extra_indices: Tensor | None,
    extra_topk_length: Tensor | None,
    attn_sink: Tensor | None,
    kernel_limits: bool,
) -> tuple[Source, Source | None]:
    """Check every argument of a sparse decode; return the main and the extra source."""
    if not isinstance(layout, CacheLayout):
        raise TypeError(f"layout must be a CacheLayout such as cache.V32 or cache.MODEL1: got {type(layout).__name__}")
    query(q, layout.d_qk, "[b, s_q, h_q, d_qk]", 4)
    scale(softmax_scale)
    sink(attn_sink, q.shape[2])
    if (extra_cache is None) != (extra_indices is None):
        given, missing = ("extra_cache", "extra_indices") if extra_indices is None else ("extra_indices", "extra_cache")
        raise ValueError(f"extra_cache and extra_indices belong together: {given} was given without {missing}")
    if extra_topk_length is not None and extra_indices is None:
        raise ValueError("extra_topk_length was given without extra_indices: there is no list to shorten")
    main = _source(q, cache, indices, topk_length, layout, "")
    extra = None
    if extra_cache is not None and extra_indices is not None:
        extra = _source(q, extra_cache, extra_indices, extra_topk_length, layout, "extra_")
    if kernel_limits:
        _kernel_limits(q, indices, extra_indices, attn_sink)
    return main, extra


def query(q: Tensor, d_qk: int, axes: str, rank: int) -> None:
    """`q` is a floating tensor of `rank` axes whose last is `d_qk`; no axis is empty."""
    floating("q", q)
    if q.dim() != rank:
        raise ValueError(f"q must be {axes}: got {list(q.shape)}")
    if q.shape[-1] != d_qk:
        raise ValueError(f"q must have d_qk = {d_qk} numbers a head here: got {q.shape[-1]}")
    if 0 in q.shape:
        raise ValueError(f"q must not be empty: got {list(q.shape)}")


def scale(softmax_scale: float) -> None:
    if isinstance(softmax_scale, bool) or not isinstance(softmax_scale, int | float):
        raise TypeError(f"softmax_scale must be a number: got {type(softmax_scale).__name__}")
    if not (math.isfinite(softmax_scale) and softmax_scale > 0):
        raise ValueError(
            f"softmax_scale must be finite and above 0: got {softmax_scale}. DeepSeek-V3.2's is config.softmax_scale"
        )


def sink(attn_sink: Tensor | None, h_q: int) -> None:
    """`attn_sink` is [h_q] in natural-log units; ±inf are meaningful, NaN is not."""
    if attn_sink is None:
        return
    floating("attn_sink", attn_sink)
    if attn_sink.shape != (h_q,):
        raise ValueError(f"attn_sink must have one logit a head, [{h_q}]: got {list(attn_sink.shape)}")
    if bool(torch.isnan(attn_sink).any()):
        raise ValueError("attn_sink must not be NaN. −inf means no sink for that head")


def floating(name: str, tensor: Tensor) -> None:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a torch tensor: got {type(tensor).__name__}")
    if not tensor.is_floating_point() or tensor.element_size() == 1:
        raise TypeError(f"{name} must be bfloat16, float16, float32 or float64: got {tensor.dtype}")


def integer(name: str, tensor: Tensor, shape: tuple[int, ...], axes: str) -> None:
    """`tensor` is int32 or int64 of exactly `shape`; `axes` names the axes in the message."""
    if not isinstance(tensor, Tensor) or tensor.dtype not in (torch.int32, torch.int64):
        kind = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
        raise TypeError(f"{name} must be an int32 tensor (int64 is taken too): got {kind}")
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} must be {axes} = {list(shape)}: got {list(tensor.shape)}")


def _source(
    q: Tensor, cache: Tensor, indices: Tensor, lengths: Tensor | None, layout: CacheLayout, prefix: str
) -> Source:
    b, s_q = q.shape[:2]
    name = f"{prefix}cache"
    if not isinstance(cache, Tensor) or cache.dtype not in CACHE_DTYPES:
        kind = cache.dtype if isinstance(cache, Tensor) else type(cache).__name__
        raise TypeError(f"{name} must hold bytes (uint8, int8 or float8_e4m3fn): got {kind}")
    if cache.dim() != 4 or cache.shape[3] != layout.bytes_per_token:
        raise ValueError(
            f"{name} must be [num_pages, page, 1, {layout.bytes_per_token}] for {layout.name}: got {list(cache.shape)}"
        )
    if cache.shape[2] != 1:
        raise ValueError(f"{name} must have one KV head, all query heads share it: axis 2 is {cache.shape[2]}")
    if not isinstance(indices, Tensor) or indices.dim() != 3 or indices.shape[2] < 1:
        got = list(indices.shape) if isinstance(indices, Tensor) else type(indices).__name__
        raise ValueError(f"{prefix}indices must be [b, s_q, topk] with topk ≥ 1: got {got}")
    topk = indices.shape[2]
    integer(f"{prefix}indices", indices, (b, s_q, topk), "[b, s_q, topk]")
    length_name = f"{prefix}topk_length"
    if lengths is None:
        lengths = torch.full((b,), topk, dtype=torch.int64)
    else:
        integer(length_name, lengths, (b,), "[b]")
        outside = (lengths < 0) | (lengths > topk)
        if bool(outside.any()):
            bad = int(lengths[outside][0])
            raise ValueError(f"{length_name} must lie in 0 … {topk} (the width of {prefix}indices): got {bad}")
    valid = check_slots(indices, cache.shape[0] * cache.shape[1], lengths, name=f"{prefix}indices")
    return Source(cache.view(torch.uint8), indices.masked_fill(~valid, -1), lengths.to(torch.int64))


def _kernel_limits(q: Tensor, indices: Tensor, extra_indices: Tensor | None, attn_sink: Tensor | None) -> None:
    if q.dtype != torch.bfloat16:
        raise TypeError(f"q must be bfloat16 for the kernels: got {q.dtype}. Convert it with q.bfloat16()")
    if q.shape[2] not in KERNEL_HEADS:
        raise ValueError(f"h_q must be 64 or 128 for the kernels: got {q.shape[2]}. Pad the heads with zeros")
    for name, lists in (("indices", indices), ("extra_indices", extra_indices)):
        if lists is None:
            continue
        multiple_of_block(name, lists)
        if lists.dtype != torch.int32:
            raise TypeError(f"{name} must be int32 for the kernels: got {lists.dtype}")
    if attn_sink is not None and attn_sink.dtype != torch.float32:
        raise TypeError(f"attn_sink must be float32 for the kernels: got {attn_sink.dtype}")


def multiple_of_block(name: str, lists: Tensor) -> None:
    if lists.shape[-1] % SLOT_MULTIPLE:
        raise ValueError(
            f"{name} must have a multiple of {SLOT_MULTIPLE} entries a row: got {lists.shape[-1]}. "
            "sparse.pad_indices appends the holes"
        )
