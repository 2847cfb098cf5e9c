"""FlashMLA's decode calls over our kernels: change the import, keep the code.

>>> from mlacademy.compat import flash_mla                                                  # doctest: +SKIP
>>> metadata, _ = flash_mla.get_mla_metadata()                                              # doctest: +SKIP
>>> out, lse = flash_mla.flash_mla_with_kvcache(                                            # doctest: +SKIP
...     q, k_cache, None, None, 512, metadata, is_fp8_kvcache=True, indices=indices)

Arguments, defaults, shapes and results are those of FlashMLA at commit 9241ae3, for sparse decode on Hopper. What is
wider here: 1 to 128 query heads, lengths and a second cache for both layouts, CPU tensors (`mlacademy.ops` says how
they are computed). What is stricter: where lengths change under a metadata that was made for others, the outputs are
NaN and `mlacademy.ops.check` raises. Wrong arguments raise ``ValueError`` or ``TypeError``. Dense decode is left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import Any

from torch import Tensor

from mlacademy import ops
from mlacademy.cache import MODEL1, V32

_LAYOUTS = {V32.d_qk: V32.name, MODEL1.d_qk: MODEL1.name}


@dataclass
class FlashMLASchedMeta:
    """A schedule that the first call makes and later ones use again.

    Attributes:
        have_initialized: whether a call has made it.
        config: the shapes and flags of that call; others are refused.
        tile_scheduler_metadata: int32 [partitions, 8], or None.
        num_splits: int32 [b + 1], or None.
    """

    @dataclass(frozen=True)
    class Config:
        """What must stay the same from call to call, beside the values of the lengths."""

        b: int
        s_q: int
        h_q: int
        page_block_size: int
        h_k: int
        causal: bool
        is_fp8_kvcache: bool
        topk: int | None
        extra_page_block_size: int | None
        extra_topk: int | None

    have_initialized: bool = False
    config: Config | None = None
    tile_scheduler_metadata: Tensor | None = None
    num_splits: Tensor | None = None
    _made: ops.Metadata | None = field(default=None, repr=False)
    _seen: tuple[Any, ...] = field(default=(), repr=False)
    _layout: str = field(default="", repr=False)


def get_mla_metadata(*args: Any, **kwargs: Any) -> tuple[FlashMLASchedMeta, None]:
    """An empty schedule, for `flash_mla_with_kvcache` to fill; all arguments are ignored, the second result is None."""
    return FlashMLASchedMeta(), None


def flash_mla_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    block_table: Tensor | None,
    cache_seqlens: Tensor | None,
    head_dim_v: int,
    tile_scheduler_metadata: FlashMLASchedMeta,
    num_splits: None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    is_fp8_kvcache: bool = False,
    indices: Tensor | None = None,
    attn_sink: Tensor | None = None,
    extra_k_cache: Tensor | None = None,
    extra_indices_in_kvcache: Tensor | None = None,
    topk_length: Tensor | None = None,
    extra_topk_length: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Sparse decode; see `mlacademy.ops.sparse_decode` for what the tensors hold.

    Args:
        q: bfloat16 [b, s_q, h_q, 576 (V3.2) or 512 (MODEL1)]: the width says which layout the caches have.
        k_cache, extra_k_cache: bytes [num_blocks, page, 1, 656 or 584].
        block_table, cache_seqlens: for dense decode, not looked at.
        head_dim_v: 512. num_splits: None.
        tile_scheduler_metadata: of `get_mla_metadata`; filled at the first call.
        softmax_scale: by default ``q.shape[-1] ** -0.5``.
        causal: False. is_fp8_kvcache: True.
        indices, extra_indices_in_kvcache: int32 [b, s_q, topk] physical slots, −1 is a hole.
        attn_sink: float32 [h_q]. topk_length, extra_topk_length: int32 [b].
    Returns: out bfloat16 [b, s_q, h_q, 512], lse float32 [b, h_q, s_q], natural log.
    """
    schedule, tensors = tile_scheduler_metadata, (q, k_cache, indices, extra_k_cache, extra_indices_in_kvcache)
    flags = (head_dim_v, num_splits, causal, is_fp8_kvcache)
    seen = (*map(_shape, tensors), flags)
    known = schedule.__class__ is FlashMLASchedMeta and schedule._seen == seen
    if not known:
        config = _config(schedule, flags, tensors)
    metadata = schedule._made
    try:
        if metadata is None:
            metadata = _schedule(tensors, topk_length, extra_topk_length)
        out, lse = ops.sparse_decode(
            q,
            k_cache,
            indices,  # type: ignore[arg-type]
            layout=schedule._layout if known else _LAYOUTS[q.shape[-1]],
            softmax_scale=softmax_scale,
            topk_length=topk_length,
            extra_kv_cache=extra_k_cache,
            extra_indices=extra_indices_in_kvcache,
            extra_topk_length=extra_topk_length,
            attn_sink=attn_sink,
            metadata=metadata,
        )
    except (TypeError, ValueError) as error:
        raise type(error)(_in_these_names(str(error))) from None
    if not known:
        schedule.have_initialized, schedule.config = True, config
        schedule.tile_scheduler_metadata, schedule.num_splits = metadata.records, metadata.num_splits
        schedule._made, schedule._seen, schedule._layout = metadata, seen, _LAYOUTS[q.shape[-1]]
    return out, lse


def _shape(tensor: Any) -> Any:
    return None if tensor is None else getattr(tensor, "shape", None)


def _config(schedule: FlashMLASchedMeta, flags: tuple[Any, ...], tensors: tuple[Any, ...]) -> FlashMLASchedMeta.Config:
    """The call's configuration; ``TypeError`` or ``ValueError`` where there is none, or the schedule has another."""
    head_dim_v, num_splits, causal, is_fp8_kvcache = flags
    q, k_cache, indices, extra_k_cache, extra_indices = tensors
    if not isinstance(schedule, FlashMLASchedMeta):
        raise TypeError(f"tile_scheduler_metadata must come from get_mla_metadata(), got {type(schedule).__name__}")
    if num_splits is not None:
        raise ValueError("num_splits must be None, the schedule holds it: pass what get_mla_metadata() returns second")
    if indices is None:
        raise NotImplementedError("indices must be given: dense decode (indices=None) is not part of this module")
    if causal:
        raise ValueError("causal must be False for sparse decode: the index lists say what each query row sees")
    if not is_fp8_kvcache:
        raise ValueError("is_fp8_kvcache must be True for sparse decode: its caches hold FP8")
    for name, tensor, rank in (
        ("q", q, 4),
        ("k_cache", k_cache, 4),
        ("indices", indices, 3),
        ("extra_k_cache", extra_k_cache, 4),
        ("extra_indices_in_kvcache", extra_indices, 3),
    ):
        if tensor is None and name.startswith("extra"):
            continue
        if not isinstance(tensor, Tensor) or tensor.dim() != rank:
            got = list(tensor.shape) if isinstance(tensor, Tensor) else type(tensor).__name__
            raise ValueError(f"{name} must be a torch tensor of {rank} axes, got {got}")
        if name != "k_cache" and name != "extra_k_cache" and 0 in tensor.shape:
            raise ValueError(f"{name} must not be empty, got the shape {list(tensor.shape)}")
    if q.shape[-1] not in _LAYOUTS:
        raise ValueError(f"q must have 576 numbers a head (V3.2) or 512 (MODEL1), got {q.shape[-1]}")
    if head_dim_v != V32.d_v:
        raise ValueError(f"head_dim_v must be {V32.d_v}, got {head_dim_v}")
    b, s_q, h_q = q.shape[:3]
    page, h_k = k_cache.shape[1:3]
    config = FlashMLASchedMeta.Config(
        b,
        s_q,
        h_q,
        page,
        h_k,
        causal,
        is_fp8_kvcache,
        indices.shape[-1],
        None if extra_k_cache is None else extra_k_cache.shape[1],
        None if extra_indices is None else extra_indices.shape[-1],
    )
    if schedule.config is not None and schedule.config != config:
        raise ValueError(_difference(schedule.config, config))
    return config


def _difference(made_for: FlashMLASchedMeta.Config, got: FlashMLASchedMeta.Config) -> str:
    name, one, other = next(
        (entry.name, getattr(made_for, entry.name), getattr(got, entry.name))
        for entry in fields(got)
        if getattr(made_for, entry.name) != getattr(got, entry.name)
    )
    return (
        f"tile_scheduler_metadata was made for {name} = {one}, this call has {name} = {other}: "
        "use one of get_mla_metadata() for each combination of shapes"
    )


def _schedule(tensors: tuple[Any, ...], topk_length: Tensor | None, extra_topk_length: Tensor | None) -> ops.Metadata:
    q, _, indices, _, extra_indices = tensors
    return ops.schedule(
        q.shape[0],
        indices.shape[-1],
        s_q=q.shape[1],
        h_q=q.shape[2],
        topk_length=topk_length,
        extra_topk=None if extra_indices is None else extra_indices.shape[-1],
        extra_topk_length=extra_topk_length,
        device=q.device,
    )


def _in_these_names(sentence: str) -> str:
    """A sentence of `mlacademy.ops` with this module's names of the arguments."""
    for ours, theirs in (
        ("kv_cache", "k_cache"),
        ("extra_kv_cache", "extra_k_cache"),
        ("extra_indices", "extra_indices_in_kvcache"),
        ("extra_topk", "extra_indices_in_kvcache"),
        ("metadata", "tile_scheduler_metadata"),
        (r"ops\.schedule", "get_mla_metadata()"),
    ):
        sentence = re.sub(rf"\b{ours}\b", theirs, sentence)
    return sentence
