"""The parameter blocks of the decode kernels, packed: twins of ``sparse_decode_params.cuh`` and of ``schedule.cu``.

A `Block` is packed once for a shape; a call then writes its addresses and the scale and nothing else.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

_VIEW = "3Q3q4i"
_DECODE = struct.Struct(f"<Q3q{_VIEW}{_VIEW}7Qf3i3Q")
_SCHEDULE = struct.Struct("<4Q6iQ")
_APPEND = struct.Struct("<5Q4q4i")

DECODE_BYTES = _DECODE.size

# The 8-byte word in which each address lies.
Q, KV, INDICES, LENGTHS, EXTRA_KV, EXTRA_INDICES, EXTRA_LENGTHS = 0, 4, 5, 6, 12, 13, 14
SINK, RECORDS, NUM_SPLITS, OUT, LSE, OUT_PARTIAL, LSE_PARTIAL = range(20, 27)
PLANNED_LENGTHS, VERDICT, NOTICE = 29, 30, 31
OPTIONAL = (LENGTHS, EXTRA_KV, EXTRA_INDICES, EXTRA_LENGTHS, SINK)
INPUTS = (Q, KV, INDICES, *OPTIONAL)
"""The words of `DecodeTensors`, in order."""
RESULTS = (RECORDS, NUM_SPLITS, PLANNED_LENGTHS, OUT, LSE, OUT_PARTIAL, LSE_PARTIAL, VERDICT)
"""The words of the metadata, and of what is written."""
SCALE = 54  # the 4-byte word of scale_log2

LOG2E = math.log2(math.e)


@dataclass(frozen=True)
class View:
    """The numbers of a cache with its lists: strides (of kv in bytes, of indices in elements), sizes."""

    page_stride: int
    index_stride_b: int
    index_stride_s: int
    page: int
    slots: int
    topk: int


NO_VIEW = View(0, 0, 0, 1, 0, 0)


class Block:
    """One `SparseDecodeParams` of C: ``words[Q] = q.data_ptr()`` and so on, then the bytes at ``address``."""

    def __init__(
        self,
        *,
        b: int,
        s_q: int,
        h_q: int,
        q_strides: tuple[int, int, int] = (0, 0, 0),
        cache: View = NO_VIEW,
        extra: View = NO_VIEW,
    ) -> None:
        self._memory = bytearray(DECODE_BYTES)
        numbers = [
            (v.page_stride, v.index_stride_b, v.index_stride_s, v.page, v.slots, v.topk, 0) for v in (cache, extra)
        ]
        none = (0, 0, 0)
        _DECODE.pack_into(
            self._memory, 0, 0, *q_strides, *none, *numbers[0], *none, *numbers[1], *(0,) * 7, 0.0, b, s_q, h_q, *none
        )
        self.address = ctypes.addressof((ctypes.c_char * DECODE_BYTES).from_buffer(self._memory))
        self.words = memoryview(self._memory).cast("Q")
        self._floats = memoryview(self._memory).cast("f")

    def scale(self, softmax_scale: float) -> None:
        """Set the factor of q·k, in natural units."""
        self._floats[SCALE] = softmax_scale * LOG2E

    def __bytes__(self) -> bytes:
        return bytes(self._memory)


def schedule_block(
    lengths: int,
    extra_lengths: int,
    buffer: int,
    *,
    topk: int,
    extra_topk: int,
    b: int,
    parts: int,
    overhead: int,
) -> bytes:
    """`ScheduleParams` of C, for lists of slots. The first three are addresses; ``buffer`` is a `Metadata`'s."""
    num_splits = buffer + 32 * parts
    planned = num_splits + 4 * (b + 1)
    return _SCHEDULE.pack(lengths, extra_lengths, buffer, num_splits, topk, extra_topk, b, parts, overhead, 0, planned)


def append_block(
    addresses: Sequence[int], problems: int, kv: Tensor, nope: Tensor, rope: Tensor, slots: Tensor
) -> bytes:
    """`AppendParams` of C. ``addresses``: of kv, nope, rope, slots; ``problems``: of the two counts."""
    pages, page = kv.shape[:2]
    size = slots.element_size()
    strides = (kv.stride(0), 2 * nope.stride(0), 2 * rope.stride(0), size * slots.stride(0))
    return _APPEND.pack(*addresses, problems, *strides, page, pages * page, len(slots), size)
