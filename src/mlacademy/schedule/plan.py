"""The scheduler's result: one record per partition, the prefix sum of splits, and what a kernel reads out of them.

Source of the record and its reading: FlashMLA, commit 9241ae3, ``get_decoding_sched_meta.cu`` and the decode kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mlacademy.schedule.checks import Int64Array, whole, whole_row
from mlacademy.schedule.cost import Cost, CostModel, cost_of
from mlacademy.schedule.kernels import BLOCK
from mlacademy.schedule.walk import fast_walk

Int32Array = npt.NDArray[np.int32]

RECORD_FIELDS = (
    "begin_req",
    "end_req",
    "begin_block",
    "end_block",
    "begin_split",
    "is_first_req_splitted",
    "is_last_req_splitted",
    "padding",
)
"""The eight int32 of a record, in memory order (32 bytes)."""


class Partition(NamedTuple):
    """One record. ``end_req`` is inclusive, ``end_block`` exclusive; ``begin_split`` counts within ``begin_req``.

    The flags say whether the first and the last request of the partition are shared with another partition; where both
    are the same request, both flags carry the same value. An idle partition has ``begin_req == b``.
    """

    begin_req: int
    end_req: int
    begin_block: int
    end_block: int
    begin_split: int
    is_first_req_splitted: bool
    is_last_req_splitted: bool
    padding: int

    @property
    def idle(self) -> bool:
        """True when the partition has no work: its first request lies after its last one."""
        return self.begin_req > self.end_req


class Segment(NamedTuple):
    """Blocks ``[begin_block, end_block)`` of one request in one partition: one turn of the kernel's outer loop.

    split: the row of the scratch buffers where the partial result goes, or None when the request is not split and the
    final result is written at once. An empty segment (dense, length 0) has ``begin_block == end_block == 0``.
    """

    partition: int
    request: int
    begin_block: int
    end_block: int
    split: int | None

    @property
    def blocks(self) -> int:
        """Blocks read."""
        return self.end_block - self.begin_block


def read_record(
    partition: int, record: Sequence[int], lengths: Sequence[int], num_splits: Sequence[int], *, block: int = BLOCK
) -> tuple[Segment, ...]:
    """Segments of one partition, read the way the main kernel reads them.

    >>> read_record(1, (0, 0, 1, 2, 1, 1, 1, 0), [128, 128], [0, 2, 4])
    (Segment(partition=1, request=0, begin_block=1, end_block=2, split=1),)

    record: the eight numbers in the order of ``RECORD_FIELDS``. lengths ``[b]``, num_splits ``[b + 1]``: what the
    kernel finds beside the record. A request between the first and the last is whole, so its end comes from its
    length. The record is trusted, as in the kernel: one made for other lengths gives wrong segments, not an error.
    """
    begin_req, end_req, begin_block, end_block, begin_split, first_split, last_split, _ = record
    segments = []
    for request in range(begin_req, end_req + 1):
        is_first, is_last = request == begin_req, request == end_req
        begin = begin_block if is_first else 0
        end = end_block if is_last else -(-lengths[request] // block)
        shared = first_split if is_first else last_split if is_last else False
        slot = num_splits[request] + (begin_split if is_first else 0)
        segments.append(Segment(partition, request, begin, end, slot if shared else None))
    return tuple(segments)


class Schedule:
    """An immutable schedule, made by :func:`schedule`.

    lengths ``[b]`` (int64, tokens or indices), num_blocks ``[b]`` (int64; a length of 0 still counts one), num_splits
    ``[b + 1]`` (int32 prefix sum: request ``r`` owns the split slots ``num_splits[r]`` to ``num_splits[r + 1] - 1``);
    all read-only arrays. overhead, payload: in blocks. parts: partitions. block: tokens per block.
    """

    def __init__(
        self, lengths: Int64Array, num_blocks: Int64Array, parts: int, overhead: int, block: int, payload: int
    ) -> None:
        self.lengths = lengths
        self.num_blocks = num_blocks
        self.parts = parts
        self.overhead = overhead
        self.block = block
        self.payload = payload
        starts = np.concatenate(([0], np.cumsum(num_blocks + overhead)))
        self._rows, slices = fast_walk(lengths.tolist(), num_blocks.tolist(), starts.tolist(), parts, overhead)
        splits = 1 + np.bincount(np.asarray(slices, dtype=np.int64), minlength=lengths.size)
        self.num_splits: Int32Array = np.concatenate(([0], np.cumsum(splits))).astype(np.int32)
        for array in (self.lengths, self.num_blocks, self.num_splits):
            array.flags.writeable = False

    @property
    def b(self) -> int:
        """Number of requests."""
        return self.lengths.size

    @cached_property
    def partitions(self) -> tuple[Partition, ...]:
        """One :class:`Partition` per record, idle ones included."""
        return tuple(
            Partition(*row[:5], is_first_req_splitted=bool(row[5]), is_last_req_splitted=bool(row[6]), padding=row[7])
            for row in self._rows
        )

    def records(self) -> Int32Array:
        """A fresh int32 array ``[parts, 8]``, columns in the order of ``RECORD_FIELDS``: what the kernel gets."""
        return np.array(self._rows, dtype=np.int32)

    def with_records(self, records: npt.ArrayLike, num_splits: npt.ArrayLike) -> Schedule:
        """The schedule of the same lengths as somebody else cut them, a kernel say; what comes is trusted.

        records ``[parts, 8]``, num_splits ``[b + 1]``, integers.
        """
        rows, splits = np.array(records, dtype=np.int32), np.array(num_splits, dtype=np.int32)
        if rows.shape != (self.parts, len(RECORD_FIELDS)) or splits.shape != (self.b + 1,):
            raise ValueError(
                f"records and num_splits must be [{self.parts}, {len(RECORD_FIELDS)}] and [{self.b + 1}] for this "
                f"schedule, got {list(rows.shape)} and {list(splits.shape)}"
            )
        other = Schedule.__new__(Schedule)
        for name in ("lengths", "num_blocks", "parts", "overhead", "block", "payload"):
            setattr(other, name, getattr(self, name))
        other._rows, other.num_splits = [tuple(row) for row in rows.tolist()], splits
        splits.flags.writeable = False
        return other

    @cached_property
    def _segments(self) -> tuple[Segment, ...]:
        lengths, num_splits = self.lengths.tolist(), self.num_splits.tolist()
        rows = enumerate(self._rows)
        return tuple(s for p, row in rows for s in read_record(p, row, lengths, num_splits, block=self.block))

    def segments(self) -> tuple[Segment, ...]:
        """All segments in order, one per partition and request it touches; idle partitions have none."""
        return self._segments

    @cached_property
    def used(self) -> int:
        """Partitions that have work."""
        return sum(row[0] < self.b for row in self._rows)

    @property
    def idle(self) -> int:
        """Partitions without work; they come last."""
        return self.parts - self.used

    @property
    def splits(self) -> Int32Array:
        """Int32 ``[b]``: in how many pieces each request is cut; 1 means it is not split."""
        return np.diff(self.num_splits)

    @property
    def split_requests(self) -> int:
        """Requests in more than one piece; the combine kernel has work for these alone."""
        return int(np.count_nonzero(self.splits > 1))

    def scratch_bytes(self, *, s_q: int = 1, h_q: int = 128, d_v: int = 512) -> int:
        """Bytes set aside for partial results: ``b + parts`` rows of float32 outputs and log-sum-exps.

        A cut adds one piece, and there is at most one cut at the end of each partition, so ``b + parts`` rows always
        suffice; a launch may not depend on how many are used. Row: ``[s_q, h_q, d_v]`` plus ``[s_q, h_q]``, 4 B each.
        """
        row = whole("s_q", s_q, 1) * whole("h_q", h_q, 1) * (whole("d_v", d_v, 1) + 1)
        return (self.b + self.parts) * row * 4

    def cost(self, model: CostModel | None = None) -> Cost:
        """What this schedule costs under ``model`` (default: one block costs 1, a segment costs ``overhead``)."""
        blocks = -(-self.lengths // self.block)
        return cost_of(self.segments(), blocks, self.parts, self.overhead, model or CostModel())

    def __str__(self) -> str:
        pieces = int(self.splits[self.splits > 1].sum())
        split = f"{self.split_requests} of them split into {pieces} pieces" if pieces else "none of them split"
        return (
            f"{self.b} requests, {int(self.num_blocks.sum())} blocks of {self.block}, {split}; "
            f"{self.parts} partitions with payload {self.payload}: {self.used} used, {self.idle} idle"
        )

    def __repr__(self) -> str:
        return f"<Schedule: {self}>"

    def _key(self) -> tuple[Any, ...]:
        return (self.lengths.tobytes(), self.parts, self.overhead, self.block)

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, Schedule) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())


def schedule(lengths: Any, parts: int, *, overhead: int = 5, block: int = BLOCK) -> Schedule:
    """Cut ``lengths`` ``[b]`` (tokens or indices per request) into ``parts`` partitions.

    >>> plan = schedule([2048, 100, 1, 1024], 66)
    >>> plan.payload, plan.used, plan.num_splits.tolist()
    (7, 26, [0, 16, 17, 18, 26])

    parts: from :func:`num_sm_parts`. overhead: fixed cost of a request in a partition, in blocks (``KERNELS``). block:
    tokens per block. Lengths of 0 are allowed (dense decode) and cost one block. No limit on ``b`` here; the kernel
    takes at most ``MAX_BATCH``. Raises ``ValueError`` or ``TypeError`` naming the argument.
    """
    row = whole_row("lengths", lengths)
    parts, overhead, block = whole("parts", parts, 1), whole("overhead", overhead, 0), whole("block", block, 1)
    num_blocks = np.maximum(row - 1, 0) // block + 1
    total = int(num_blocks.sum()) + overhead * row.size
    return Schedule(row, num_blocks, parts, overhead, block, payload=-(-total // parts) + overhead)
