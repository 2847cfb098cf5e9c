"""The operators as torch knows them: ``torch.ops.mlacademy.*``, with fake tensors for `torch.compile`.

They are defined by ``torch.library``'s define and impl: a call costs about half of what the ``custom_op`` decorator's
does. Each has one implementation, which looks where its tensors are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mlacademy import cache
from mlacademy.ops import arguments, cuda, emulated, plan, reference
from mlacademy.ops.arguments import DecodeTensors
from mlacademy.ops.metadata import buffer_size

_library: Any = torch.library.Library("mlacademy", "DEF")  # type: ignore[no-untyped-call]

_SCHEMAS = (
    "schedule(Tensor? topk_length, Tensor? extra_topk_length, int b, int topk, int extra_topk, int parts, *, "
    "Device device) -> Tensor",
    "sparse_decode(Tensor q, Tensor kv_cache, Tensor indices, Tensor? topk_length, Tensor? extra_kv_cache, "
    "Tensor? extra_indices, Tensor? extra_topk_length, Tensor? attn_sink, Tensor? metadata, str layout, "
    "float softmax_scale) -> (Tensor, Tensor)",
    "combine(Tensor out_partial, Tensor lse_partial_log2, Tensor num_splits, Tensor? attn_sink) -> (Tensor, Tensor)",
    "cache_append(Tensor(a!) kv_cache, Tensor slots, Tensor nope, Tensor rope, str layout) -> ()",
)


def schedule(
    topk_length: Tensor | None,
    extra_topk_length: Tensor | None,
    b: int,
    topk: int,
    extra_topk: int,
    parts: int,
    *,
    device: torch.device,
) -> Tensor:
    """The buffer of a `Metadata`."""
    numbers = (b, topk, extra_topk, parts, plan.OVERHEAD, topk_length, extra_topk_length)
    if device.type == "cuda":
        return cuda.make_schedule(*numbers, device)
    run = emulated.active()
    return reference.make_schedule(*numbers) if run is None else emulated.make_schedule(run, *numbers)


def schedule_fake(
    topk_length: Tensor | None,
    extra_topk_length: Tensor | None,
    b: int,
    topk: int,
    extra_topk: int,
    parts: int,
    *,
    device: torch.device,
) -> Tensor:
    return torch.empty(buffer_size(b, parts), dtype=torch.int32, device=device)


def sparse_decode(
    q: Tensor,
    kv_cache: Tensor,
    indices: Tensor,
    topk_length: Tensor | None,
    extra_kv_cache: Tensor | None,
    extra_indices: Tensor | None,
    extra_topk_length: Tensor | None,
    attn_sink: Tensor | None,
    metadata: Tensor | None,
    layout: str,
    softmax_scale: float,
) -> tuple[Tensor, Tensor]:
    """out [b, s_q, h_q, 512] bfloat16, lse [b, h_q, s_q] float32."""
    if q.is_cuda:
        lists = (topk_length, extra_kv_cache, extra_indices, extra_topk_length)
        return cuda.sparse_decode(q, kv_cache, indices, *lists, attn_sink, metadata, layout, softmax_scale)
    tensors = DecodeTensors(
        q, kv_cache, indices, topk_length, extra_kv_cache, extra_indices, extra_topk_length, attn_sink
    )
    shape = arguments.decode_shape(cache.layout(layout), tensors)
    if metadata is not None:
        arguments.check_metadata(metadata, q, shape.b)
    run = emulated.active()
    if run is None:
        return reference.sparse_decode(shape, tensors, softmax_scale, metadata)
    if metadata is None:
        parts = plan.partitions(plan.H200_SMS, s_q=shape.s_q, h_q=shape.h_q)
        metadata = schedule(
            topk_length, extra_topk_length, shape.b, shape.topk, shape.extra_topk, parts, device=q.device
        )
    return emulated.sparse_decode(run, shape, tensors, softmax_scale, metadata)


def sparse_decode_fake(
    q: Tensor,
    kv_cache: Tensor,
    indices: Tensor,
    topk_length: Tensor | None,
    extra_kv_cache: Tensor | None,
    extra_indices: Tensor | None,
    extra_topk_length: Tensor | None,
    attn_sink: Tensor | None,
    metadata: Tensor | None,
    layout: str,
    softmax_scale: float,
) -> tuple[Tensor, Tensor]:
    arguments.together(
        q=q,
        kv_cache=kv_cache,
        indices=indices,
        topk_length=topk_length,
        extra_kv_cache=extra_kv_cache,
        extra_indices=extra_indices,
        extra_topk_length=extra_topk_length,
        attn_sink=attn_sink,
        metadata=metadata,
    )
    b, s_q, h_q, _ = q.shape
    return _outputs(q, b, s_q, h_q)


def combine(
    out_partial: Tensor, lse_partial_log2: Tensor, num_splits: Tensor, attn_sink: Tensor | None
) -> tuple[Tensor, Tensor]:
    """out [b, s_q, h_q, 512] bfloat16, lse [b, h_q, s_q] float32."""
    arguments.check_combine(out_partial, lse_partial_log2, num_splits, attn_sink)
    tensors = (out_partial, lse_partial_log2, num_splits, attn_sink)
    if out_partial.is_cuda:
        return cuda.combine(*tensors)
    run = emulated.active()
    return reference.combine(*tensors) if run is None else emulated.combine(run, *tensors)


def combine_fake(
    out_partial: Tensor, lse_partial_log2: Tensor, num_splits: Tensor, attn_sink: Tensor | None
) -> tuple[Tensor, Tensor]:
    arguments.together(
        out_partial=out_partial, lse_partial_log2=lse_partial_log2, num_splits=num_splits, attn_sink=attn_sink
    )
    _, s_q, h_q, _ = out_partial.shape
    return _outputs(out_partial, num_splits.shape[0] - 1, s_q, h_q)


def cache_append(kv_cache: Tensor, slots: Tensor, nope: Tensor, rope: Tensor, layout: str) -> None:
    """Writes into ``kv_cache``."""
    chosen = cache.layout(layout)
    arguments.check_append(kv_cache, slots, nope, rope, chosen)
    if len(slots) == 0:
        return
    run = emulated.active()
    if kv_cache.is_cuda:
        cuda.cache_append(kv_cache, slots, nope, rope, layout)
    elif run is None:
        reference.cache_append(kv_cache, slots, nope, rope, chosen)
    else:
        emulated.cache_append(run, kv_cache, slots, nope, rope, chosen)


def cache_append_fake(kv_cache: Tensor, slots: Tensor, nope: Tensor, rope: Tensor, layout: str) -> None:
    arguments.together(kv_cache=kv_cache, slots=slots, nope=nope, rope=rope)


def _outputs(like: Tensor, b: int, s_q: int, h_q: int) -> tuple[Tensor, Tensor]:
    """Empty outputs with the strides that every implementation gives them."""
    out = torch.empty((b, s_q, h_q, 512), dtype=torch.bfloat16, device=like.device)
    lse = torch.empty_strided((b, h_q, s_q), (s_q * h_q, 1, h_q), dtype=torch.float32, device=like.device)
    return out, lse


def _register() -> None:
    real: tuple[Callable[..., Any], ...] = (schedule, sparse_decode, combine, cache_append)
    fake: tuple[Callable[..., Any], ...] = (schedule_fake, sparse_decode_fake, combine_fake, cache_append_fake)
    for schema, implementation, stand_in in zip(_SCHEMAS, real, fake, strict=True):
        name = schema.split("(")[0]
        _library.define(schema)
        _library.impl(name, implementation, "CompositeExplicitAutograd")
        torch.library.register_fake(f"mlacademy::{name}", stand_in, lib=_library)


_register()
