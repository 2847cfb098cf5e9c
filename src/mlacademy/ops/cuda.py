"""CUDA tensors: the compiled kernels in torch's current stream.

Nothing here waits for the GPU or reads its memory, and all memory is torch's, so a call may be captured in a CUDA
graph. What shapes decide is decided once: a `Prepared` holds the parameter block and the launches of one combination of
shapes, strides, dtypes and devices. A further call writes addresses into that block and launches.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

import torch
from torch import Tensor

from mlacademy import cache
from mlacademy.gpu.cuda_device import CudaDevice
from mlacademy.ops import arguments, notices, params, plan
from mlacademy.ops.arguments import DecodeTensors
from mlacademy.ops.metadata import Metadata, buffer_size

_MOST_PREPARED = 4096  # combinations; then they are made anew

# Undocumented, but what torch's own generated code calls: a tenth of the time of `torch.cuda.current_stream`.
_current_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)
_current_device: Any = getattr(torch._C, "_cuda_getDevice", None)


@functools.cache
def device_of(index: int) -> CudaDevice:
    """GPU number ``index``. Raises ``RuntimeError`` where there are no kernels for it."""
    plan.architecture(torch.cuda.get_device_capability(index), torch.cuda.get_device_name(index))
    return CudaDevice(index=index)


class Prepared:
    """One combination of shapes on one GPU, checked: its parameter block, its launches, the sizes of its memory."""

    def __init__(self, layout: str, tensors: DecodeTensors, buffer: Tensor, checked: bool) -> None:
        chosen = cache.layout(layout)
        shape = arguments.decode_shape(chosen, tensors)
        arguments.check_metadata(buffer, tensors.q, shape.b)
        made = Metadata.of(buffer, shape.b)
        rows, slots = shape.s_q * shape.h_q, shape.b + made.parts
        self.device = tensors.q.device
        self.index = int(self.device.index)
        self.out_shape = (shape.b, shape.s_q, shape.h_q, chosen.d_v)
        self.lse_shape, self.lse_strides = (shape.b, shape.h_q, shape.s_q), (rows, 1, shape.h_q)
        self.lse_partial_at = slots * rows * chosen.d_v * 4
        self.verdict_at = self.lse_partial_at + slots * rows * 4
        self.num_splits_at, self.lengths_at = made.num_splits_at, made.lengths_at
        self.compares = shape.has_lengths or shape.has_extra_lengths
        given = zip(params.INPUTS, tensors, strict=True)
        self.inputs = [(word, place) for place, (word, tensor) in enumerate(given) if tensor is not None]
        self.block = shape.block()
        self.block.words[params.NOTICE] = notices.words(self.device).data_ptr()
        self.lock = threading.Lock()
        device = device_of(self.index)
        launches = plan.decode_launches(
            layout, b=shape.b, s_q=shape.s_q, h_q=shape.h_q, parts=made.parts, checked=checked
        )
        with torch.cuda.device(self.index):
            self.launches = [device.prepare(one.compiled(), one.plan, self.block.address) for one in launches]

    def run(self, tensors: tuple[Tensor | None, ...], buffer: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        """Launch everything."""
        if _current_device() != self.index:
            with torch.cuda.device(self.index):
                return self.run(tensors, buffer, scale)
        out = torch.empty(self.out_shape, dtype=torch.bfloat16, device=self.device)
        lse = torch.empty_strided(self.lse_shape, self.lse_strides, dtype=torch.float32, device=self.device)
        scratch = torch.empty(self.verdict_at + 4, dtype=torch.uint8, device=self.device)
        partial, start, words = scratch.data_ptr(), buffer.data_ptr(), self.block.words
        with self.lock:
            for word, place in self.inputs:
                words[word] = tensors[place].data_ptr()  # type: ignore[union-attr]
            if (words[params.Q] | words[params.KV] | words[params.EXTRA_KV]) & 15:
                arguments.check_addresses(DecodeTensors(*tensors))  # type: ignore[arg-type]
            words[params.RECORDS], words[params.NUM_SPLITS] = start, start + self.num_splits_at
            words[params.OUT], words[params.LSE] = out.data_ptr(), lse.data_ptr()
            words[params.OUT_PARTIAL], words[params.LSE_PARTIAL] = partial, partial + self.lse_partial_at
            if self.compares:
                words[params.PLANNED_LENGTHS] = start + self.lengths_at
                words[params.VERDICT] = partial + self.verdict_at
            self.block.scale(scale)
            stream = _current_stream(self.index)
            for launch in self.launches:
                launch(stream)
        return out, lse


_prepared: dict[tuple[Any, ...], Prepared] = {}


def sparse_decode(
    q: Tensor,
    kv_cache: Tensor,
    indices: Tensor,
    topk_length: Tensor | None,
    extra_kv_cache: Tensor | None,
    extra_indices: Tensor | None,
    extra_topk_length: Tensor | None,
    attn_sink: Tensor | None,
    buffer: Tensor | None,
    layout: str,
    scale: float,
    lists: tuple[Any, ...] | None = None,
) -> tuple[Tensor, Tensor]:
    """Decode; ``buffer`` is a `Metadata`'s, ``lists`` what it was made for where that is known."""
    tensors = (q, kv_cache, indices, topk_length, extra_kv_cache, extra_indices, extra_topk_length, attn_sink)
    if buffer is None:
        buffer = _schedule_for(layout, DecodeTensors(*tensors))
    key = (
        *(q.shape, q.stride(), q.dtype, q.get_device()),
        *(kv_cache.shape, kv_cache.stride(), kv_cache.dtype, kv_cache.get_device()),
        *(indices.shape, indices.stride(), indices.dtype, indices.get_device()),
        None if topk_length is None else _form(topk_length),
        None if extra_kv_cache is None else _form(extra_kv_cache),
        None if extra_indices is None else _form(extra_indices),
        None if extra_topk_length is None else _form(extra_topk_length),
        None if attn_sink is None else _form(attn_sink),
        *(buffer.shape, buffer.get_device(), lists, layout, notices.is_checked()),
    )
    found = _prepared.get(key)
    if found is None:
        given = DecodeTensors(*tensors)
        found = Prepared(layout, given, buffer, notices.is_checked())
        if lists is not None:
            arguments.check_lists(lists, given)
        if len(_prepared) >= _MOST_PREPARED:
            _prepared.clear()
        _prepared[key] = found
    return found.run(tensors, buffer, scale)


def _form(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.get_device()


def _schedule_for(layout: str, tensors: DecodeTensors) -> Tensor:
    shape = arguments.decode_shape(cache.layout(layout), tensors)
    parts = plan.partitions(device_of(tensors.q.device.index).sms, s_q=shape.s_q, h_q=shape.h_q)
    lengths = (tensors.topk_length, tensors.extra_topk_length)
    return make_schedule(shape.b, shape.topk, shape.extra_topk, parts, plan.OVERHEAD, *lengths, tensors.q.device)


def make_schedule(
    b: int,
    topk: int,
    extra_topk: int,
    parts: int,
    overhead: int,
    lengths: Tensor | None,
    extra_lengths: Tensor | None,
    device: torch.device,
) -> Tensor:
    """The buffer of a `Metadata`, by the ``schedule`` kernel."""
    notices.words(device)
    buffer = torch.empty(buffer_size(b, parts), dtype=torch.int32, device=device)
    block = params.schedule_block(
        _address(lengths),
        _address(extra_lengths),
        buffer.data_ptr(),
        topk=topk,
        extra_topk=extra_topk,
        b=b,
        parts=parts,
        overhead=overhead,
    )
    _launch(plan.schedule_launch(b, parts), block, device)
    return buffer


def combine(
    out_partial: Tensor, lse_partial_log2: Tensor, num_splits: Tensor, attn_sink: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The ``combine`` kernel alone, for every request."""
    device = out_partial.device
    b, (_, s_q, h_q, d_v) = len(num_splits) - 1, out_partial.shape
    out = torch.empty((b, s_q, h_q, d_v), dtype=torch.bfloat16, device=device)
    lse = torch.empty_strided((b, h_q, s_q), (s_q * h_q, 1, h_q), dtype=torch.float32, device=device)
    block = params.Block(b=b, s_q=s_q, h_q=h_q)
    for word, tensor in (
        (params.NUM_SPLITS, num_splits),
        (params.OUT, out),
        (params.LSE, lse),
        (params.OUT_PARTIAL, out_partial),
        (params.LSE_PARTIAL, lse_partial_log2),
        (params.SINK, attn_sink),
    ):
        block.words[word] = _address(tensor)
    _launch(plan.combine_launch(b=b, s_q=s_q, h_q=h_q, slots=len(out_partial)), bytes(block), device)
    return out, lse


def cache_append(kv_cache: Tensor, slots: Tensor, nope: Tensor, rope: Tensor, layout: str) -> None:
    """The ``cache_append`` kernel."""
    device = kv_cache.device
    problems = notices.words(device).data_ptr() + notices.APPEND_PROBLEMS_AT
    addresses = [tensor.data_ptr() for tensor in (kv_cache, nope, rope, slots)]
    block = params.append_block(addresses, problems, kv_cache, nope, rope, slots)
    _launch(plan.append_launch(layout, len(slots)), block, device)


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _launch(launch: plan.Launch, block: bytes, device: torch.device) -> None:
    with torch.cuda.device(device):
        device_of(int(device.index)).launch(launch.compiled(), launch.plan, [block])
