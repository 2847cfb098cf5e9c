"""`Metadata`: the schedule of a decode step, in one buffer on the device that will use it.

An int32 buffer holds, one after the other, the records [parts, 8], the prefix sums num_splits [b + 1], and the lengths
that the schedule was made for, [2, b] (those of the lists, then those of the extra lists; 0 where there are none). The
decode kernel compares these lengths with the ones it is given.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

RECORD = 8  # int32 of a partition's record


def buffer_size(b: int, parts: int) -> int:
    """Elements of the buffer."""
    return RECORD * parts + b + 1 + 2 * b


def parts_of(size: int, b: int) -> int:
    """Partitions of a buffer of ``size`` elements for ``b`` requests."""
    return (size - 3 * b - 1) // RECORD


@dataclass(frozen=True, eq=False)
class Metadata:
    """What `schedule` returns; may serve every decode whose lengths are the same.

    Attributes:
        b, topk, extra_topk: of the lists that it was made for; ``extra_topk`` is 0 without extra lists.
        has_lengths, has_extra_lengths: whether lengths were given.
        parts: partitions.
        buffer: all of it, int32, on the device.
        made_for: the lists that it fits, the first five.
    """

    b: int
    topk: int
    extra_topk: int
    has_lengths: bool
    has_extra_lengths: bool
    parts: int
    buffer: Tensor
    made_for: tuple[int, int, int, bool, bool] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        made_for = (self.b, self.topk, self.extra_topk, self.has_lengths, self.has_extra_lengths)
        object.__setattr__(self, "made_for", made_for)

    @classmethod
    def of(cls, buffer: Tensor, b: int) -> Metadata:
        """The reading of a buffer alone, where nobody asks for the lists."""
        return cls(b, 0, 0, False, False, parts_of(buffer.numel(), b), buffer)

    @property
    def num_splits_at(self) -> int:
        """Where the prefix sums begin, in bytes."""
        return 4 * RECORD * self.parts

    @property
    def lengths_at(self) -> int:
        """Where the lengths begin, in bytes."""
        return self.num_splits_at + 4 * (self.b + 1)

    @property
    def records(self) -> Tensor:
        """[parts, 8], the fields of `schedule.RECORD_FIELDS`."""
        return self.buffer[: RECORD * self.parts].view(self.parts, RECORD)

    @property
    def num_splits(self) -> Tensor:
        """[b + 1]: request r owns the slots num_splits[r] … num_splits[r + 1] − 1 of the partial results."""
        start = RECORD * self.parts
        return self.buffer[start : start + self.b + 1]

    @property
    def lengths(self) -> Tensor:
        """[2, b]: the lengths that the schedule was made for."""
        return self.buffer[RECORD * self.parts + self.b + 1 :].view(2, self.b)
