"""CUDA tensors: the compiled kernels in torch's current stream.

Nothing here waits for the GPU or reads its memory, and all memory is torch's, so a call may be captured in a CUDA
graph. What shapes decide is decided once: a `Prepared` holds the parameter block and the launches of one combination of
shapes, strides, dtypes and devices. A further call writes addresses into that block and launches; `sparse_decode` is
written for the host's time, which is why it spells out what loops could say.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mlacademy import cache
from mlacademy._native import core
from mlacademy.gpu.cuda_device import CudaDevice
from mlacademy.gpu.prepared import PreparedLaunch, launch_address
from mlacademy.ops import arguments, notices, params, plan, torch_internals
from mlacademy.ops.arguments import DecodeTensors
from mlacademy.ops.metadata import Metadata, buffer_size

Repeat = Callable[..., tuple[Tensor, Tensor] | None]

_MOST_PREPARED = 4096  # combinations; then they are made anew
_BFLOAT16, _FLOAT32 = torch.bfloat16, torch.float32
_Q, _KV, _INDICES, _RECORDS, _NUM_SPLITS = params.Q, params.KV, params.INDICES, params.RECORDS, params.NUM_SPLITS
_OUT, _LSE, _OUT_PARTIAL, _LSE_PARTIAL = params.OUT, params.LSE, params.OUT_PARTIAL, params.LSE_PARTIAL


@functools.cache
def device_of(index: int) -> CudaDevice:
    """GPU number ``index``. Raises ``RuntimeError`` where there are no kernels for it."""
    plan.architecture(torch.cuda.get_device_capability(index), torch.cuda.get_device_name(index))
    return CudaDevice(index=index)


class Launcher:
    """One kernel on one GPU that is launched often, each time with a parameter block of its own."""

    def __init__(self, launch: plan.Launch, size: int, index: int) -> None:
        self._buffer = bytearray(size)
        self._lock = threading.Lock()
        self._index = index
        address = ctypes.addressof((ctypes.c_char * size).from_buffer(self._buffer))
        with torch.cuda.device(index):
            self._prepared = device_of(index).prepare(launch.compiled(), launch.plan, address)

    def __call__(self, block: bytes) -> None:
        """Launch in the current stream; the GPU is the current one."""
        with self._lock:
            self._buffer[:] = block
            self._prepared(torch_internals.current_stream(self._index))


_launcher = functools.lru_cache(maxsize=1024)(Launcher)


def _refused(launches: list[PreparedLaunch], launch: int, status: int) -> None:
    launches[launch].refuse(status)


def _never(*tensors: Tensor) -> bool:
    return False


def _nothing(*arguments: Any) -> None:
    return None


class Prepared:
    """One combination of shapes on one GPU, checked: its parameter block, its launches, the sizes of its memory."""

    def __init__(
        self,
        layout: str,
        tensors: DecodeTensors,
        buffer: Tensor | None,
        checked: bool,
        lists: tuple[Any, ...] | None,
    ) -> None:
        chosen = cache.layout(layout)
        self.shape = shape = arguments.decode_shape(chosen, tensors)
        if lists is not None:
            arguments.check_lists(lists, tensors)
        self.called_for = (layout, lists, checked)
        self.given = [tensor is not None for tensor in tensors]
        compared = [tensor for tensor in (*tensors, buffer) if tensor is not None]
        self.fits: Callable[..., bool] = _never if buffer is None else torch_internals.same_forms(*compared)
        self.device = tensors.q.device
        self.index = tensors.q.get_device()
        device = device_of(self.index)
        if buffer is None:
            parts = plan.partitions(device.sms, s_q=shape.s_q, h_q=shape.h_q)
        else:
            arguments.check_metadata(buffer, tensors.q, shape.b)
            parts = Metadata.of(buffer, shape.b).parts
        self.parts = parts
        rows, slots = shape.s_q * shape.h_q, shape.slots(parts)
        self.out_shape = (shape.b, shape.s_q, shape.h_q, chosen.d_v)
        self.out_strides = (rows * chosen.d_v, shape.h_q * chosen.d_v, chosen.d_v, 1)
        self.lse_shape, self.lse_strides = (shape.b, shape.h_q, shape.s_q), (rows, 1, shape.h_q)
        self.lse_partial_at = plan.partial_bytes(slots=slots, s_q=shape.s_q, h_q=shape.h_q)
        self.verdict_at = self.lse_partial_at + slots * rows * 4
        self.scratch_bytes = self.verdict_at + 4 if slots else 0
        self.num_splits_at = 32 * parts
        self.lengths_at = self.num_splits_at + 4 * (shape.b + 1)
        self.compares = shape.has_lengths or shape.has_extra_lengths
        self.block = shape.block()
        self.words = self.block.words
        self.words[params.NOTICE] = notices.words(self.device).data_ptr()
        self.scale = 0.0
        self.lock = threading.Lock()
        launches = shape.launches(parts, checked)
        with torch.cuda.device(self.index):
            self.launches = [device.prepare(one.compiled(), one.plan, self.block.address) for one in launches]
        self.again = None if buffer is None else self._native()

    def _native(self) -> Repeat | None:
        """The call in the native module; None where there is none.

        It does what `sparse_decode` does below, with the same arguments, for tensors that `fits` knows in the current
        GPU. It answers None where anything is different, an address is odd, or somebody else would see the call.
        """
        make = getattr(core(), "decode_call", None)  # a module that was built before it has none either
        if make is None:
            return None
        layout, lists, checked = self.called_for
        call: Repeat = make(
            called_for=(layout, lists, checked, self.given),
            max_scale=arguments.MAX_SCALE,
            functions=(
                self.fits,
                *torch_internals.ACTIVE,
                notices.is_checked,
                torch_internals.data_ptr,
                torch_internals.empty,
                torch_internals.allocate,
                torch_internals.release,
                torch_internals.current_stream,
                torch_internals.current_device,
                functools.partial(_refused, self.launches),
            ),
            launch_kernel=launch_address(),
            launches=[launch.record for launch in self.launches],
            block=bytes(self.block),
            inputs=params.INPUTS,
            places=params.RESULTS,
            offsets=(self.num_splits_at, self.lengths_at, self.lse_partial_at, self.verdict_at),
            scale_word=params.SCALE,
            compares=self.compares,
            index=self.index,
            scratch_bytes=self.scratch_bytes,
            out=(self.out_shape, self.out_strides, _BFLOAT16),
            lse=(self.lse_shape, self.lse_strides, _FLOAT32),
        )
        return call

    def schedule(self, lengths: Tensor | None, extra_lengths: Tensor | None) -> Tensor:
        """The buffer of a `Metadata` for this call alone."""
        shape = self.shape
        numbers = (shape.b, shape.topk, shape.extra_topk, self.parts, plan.OVERHEAD)
        return make_schedule(*numbers, lengths, extra_lengths, self.device)


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
    global _latest, repeat
    optional = topk_length, extra_kv_cache, extra_indices, extra_topk_length, attn_sink
    given = q, kv_cache, indices, *optional, buffer, layout, scale, lists
    done = repeat(*given)
    if done is not None:
        return done
    plain = buffer is not None and topk_length is None and extra_kv_cache is None and attn_sink is None
    plain = plain and extra_indices is None and extra_topk_length is None
    call, found = (layout, lists, notices.is_checked()), _latest
    if found is None or not plain or found.called_for != call or not found.fits(q, kv_cache, indices, buffer):
        found = _find(DecodeTensors(q, kv_cache, indices, *optional), buffer, *call)
        if plain:
            _latest = found
    if found.again is not None:
        repeat = found.again
        done = repeat(*given)
        if done is not None:
            return done
    index = found.index
    if torch_internals.current_device() != index:
        with torch.cuda.device(index):
            return sparse_decode(q, kv_cache, indices, *optional, buffer, layout, scale, lists)
    if buffer is None:
        buffer = found.schedule(topk_length, extra_topk_length)
    out = torch_internals.empty(found.out_shape, found.out_strides, _BFLOAT16)
    lse = torch_internals.empty(found.lse_shape, found.lse_strides, _FLOAT32)
    q_at, kv_at, metadata_at = q.data_ptr(), kv_cache.data_ptr(), buffer.data_ptr()
    if (q_at | kv_at) & 15:
        arguments.check_addresses(q=q, kv_cache=kv_cache)
    stream = torch_internals.current_stream(index)
    scratch = torch_internals.allocate(found.scratch_bytes, stream) if found.scratch_bytes else 0
    try:
        with found.lock:
            words = found.words
            words[_Q] = q_at
            words[_KV] = kv_at
            words[_INDICES] = indices.data_ptr()
            words[_RECORDS] = metadata_at
            words[_NUM_SPLITS] = metadata_at + found.num_splits_at
            words[_OUT] = out.data_ptr()
            words[_LSE] = lse.data_ptr()
            words[_OUT_PARTIAL] = scratch
            words[_LSE_PARTIAL] = scratch + found.lse_partial_at
            if not plain:
                _write_optional(found, optional, metadata_at, scratch)
            if scale != found.scale:
                found.block.scale(scale)
                found.scale = scale
            for launch in found.launches:
                launch(stream)
    finally:
        if scratch:
            torch_internals.release(scratch)  # torch gives it to later work of this stream alone
    return out, lse


def _write_optional(found: Prepared, optional: tuple[Any, ...], metadata_at: int, scratch: int) -> None:
    """The addresses of lengths, of a second cache and of a sink."""
    words = found.words
    for word, tensor in zip(params.OPTIONAL, optional, strict=True):
        words[word] = _address(tensor)
    if words[params.EXTRA_KV] & 15:
        arguments.check_addresses(extra_kv_cache=optional[1])
    if found.compares:
        words[params.PLANNED_LENGTHS] = metadata_at + found.lengths_at
        words[params.VERDICT] = scratch + found.verdict_at


_prepared: dict[tuple[Any, ...], Prepared] = {}
_latest: Prepared | None = None  # of a call without options; most calls are like the one before
repeat: Repeat = _nothing
"""The latest call with metadata, natively: the arguments of `sparse_decode`, None where another call is needed."""


def _find(
    tensors: DecodeTensors, buffer: Tensor | None, layout: str, lists: tuple[Any, ...] | None, checked: bool
) -> Prepared:
    """What was prepared for tensors of these forms, or is now."""
    forms = (None if tensor is None else torch_internals.form(tensor) for tensor in (*tensors, buffer))
    key = (*forms, layout, lists, checked)
    found = _prepared.get(key)
    if found is None:
        found = Prepared(layout, tensors, buffer, checked, lists)
        if len(_prepared) >= _MOST_PREPARED:
            _prepared.clear()
        _prepared[key] = found
    return found


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
    b, (slots, s_q, h_q, d_v) = len(num_splits) - 1, out_partial.shape
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
    _launch(plan.combine_launch(b=b, s_q=s_q, h_q=h_q, slots=slots), bytes(block), device)
    return out, lse


def cache_append(kv_cache: Tensor, slots: Tensor, nope: Tensor, rope: Tensor, layout: str) -> None:
    """The ``cache_append`` kernel."""
    arguments.check_addresses(kv_cache=kv_cache, nope=nope, rope=rope)
    device = kv_cache.device
    problems = notices.words(device).data_ptr() + notices.APPEND_PROBLEMS_AT
    addresses = [tensor.data_ptr() for tensor in (kv_cache, nope, rope, slots)]
    block = params.append_block(addresses, problems, kv_cache, nope, rope, slots)
    _launch(plan.append_launch(layout, len(slots)), block, device)


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _launch(launch: plan.Launch, block: bytes, device: torch.device) -> None:
    index = int(device.index)
    launcher = _launcher(launch, len(block), index)
    if torch_internals.current_device() == index:
        launcher(block)
    else:
        with torch.cuda.device(index):
            launcher(block)
