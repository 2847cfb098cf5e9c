"""Shared memory as addresses: where a swizzle puts a byte, and how many passes the banks need to serve a warp.

A swizzle is an exclusive or on the *absolute* byte address in shared memory, so a tile that does not start at a
multiple of the pattern's repeat starts in the middle of the pattern (CUDA Driver API, ``CUtensorMapSwizzle``; PTX ISA
9.0, "Swizzling modes").
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

BANKS, BANK_BYTES, LINE_BYTES = 32, 4, 128
CHUNK_BYTES = 16
GROUP_BANKS = CHUNK_BYTES // BANK_BYTES  # four neighbouring banks hold one chunk
WARP = 32


@dataclass(frozen=True)
class Swizzle:
    """One mode: address bits ``mask`` are flipped by the bits ``shift`` places above; the pattern repeats in bytes."""

    shift: int
    mask: int
    repeat_bytes: int
    span_bytes: int | None

    def __call__(self, address: Any) -> Any:
        """Return the address where the byte of linear address `address` lies; integers and NumPy arrays alike."""
        return address ^ ((address >> self.shift) & self.mask)


SWIZZLES = {
    "none": Swizzle(0, 0, LINE_BYTES, None),
    "32B": Swizzle(3, 0b001_0000, 256, 32),
    "64B": Swizzle(3, 0b011_0000, 512, 64),
    "128B": Swizzle(3, 0b111_0000, 1024, 128),
    "128B_ATOM_32B": Swizzle(2, 0b110_0000, 1024, 128),
    "128B_ATOM_64B": Swizzle(1, 0b100_0000, 1024, 128),
}
"""Modes under the names that `TensorMap` takes; ``span_bytes`` is the row of a tensor copy's box in that mode.

``128B_ATOM_32B_FLIP_8B`` is absent: it also swaps halves of chunks, which no address of a whole chunk shows.
"""


def swizzle(address: Any, mode: str) -> Any:
    """Return where the byte of linear shared-memory address `address` lies under a swizzle mode.

    Args:
        address: bytes, absolute in the CTA's shared window; an integer or an integer NumPy array.
        mode: a key of `SWIZZLES`.

    Raises:
        ValueError: an unknown mode.

    >>> [swizzle(row * 128, "128B") // 16 % 8 for row in range(8)]  # chunk 0 of eight rows: eight bank groups
    [0, 1, 2, 3, 4, 5, 6, 7]
    """
    return swizzle_mode(mode)(address)


def swizzle_mode(mode: str) -> Swizzle:
    """Return the mode of that name; raise `ValueError` for an unknown one."""
    if mode not in SWIZZLES:
        raise ValueError(f"mode must be one of {', '.join(SWIZZLES)}: it is {mode!r}")
    return SWIZZLES[mode]


@dataclass(frozen=True)
class BankConflicts:
    """What one access of a warp costs.

    Attributes:
        passes: passes that the banks need, one a cycle.
        groups: passes without any conflict, one for each group of lanes that is served together.
        words: `[32]`, the different words that each bank must deliver, over the whole access.
    """

    passes: int
    groups: int
    words: tuple[int, ...]

    @property
    def conflicts(self) -> int:
        """Turns lost: 0 for an access without conflict."""
        return self.passes - self.groups

    @property
    def ways(self) -> int:
        """The n of "an n-way bank conflict": the most passes that one group needs on average, rounded up."""
        return -(-self.passes // max(self.groups, 1))


def bank_conflicts(addresses: Iterable[int | None], access_bytes: int = 4) -> BankConflicts:
    """Count the passes that shared memory needs to serve one access of a warp.

    The rule: 32 banks of 4 bytes; bank = address / 4 mod 32. Lanes are served in groups that ask for 128 bytes at most:
    all 32 lanes for accesses up to 4 bytes, half-warps for 8 bytes, quarter-warps (8 lanes) for 16 bytes. A bank
    delivers one word a pass; lanes that want the same word share it. A group takes as many passes as its busiest bank
    has different words. Stores count the same. (CUDA C++ Programming Guide, "Shared memory"; the split of wide accesses
    is what the profilers' wavefront counters show. Left out: hardware may merge groups that want the same words.)

    Args:
        addresses: byte address of each lane in lane order, at most 32; `None` for a lane that takes no part.
        access_bytes: 1, 2, 4, 8 or 16; every address is a multiple of it.

    Raises:
        ValueError: another size, more than 32 lanes, a negative or misaligned address.

    >>> bank_conflicts(range(0, 128, 4)).conflicts, bank_conflicts(range(0, 4096, 128)).passes
    (0, 32)
    """
    if access_bytes not in (1, 2, 4, 8, 16):
        raise ValueError(f"access_bytes must be 1, 2, 4, 8 or 16: it is {access_bytes}")
    lanes = [None if address is None else operator.index(address) for address in addresses]
    if len(lanes) > WARP:
        raise ValueError(f"addresses must be those of one warp, 32 lanes at most: there are {len(lanes)}")
    for lane, address in enumerate(lanes):
        if address is not None and (address < 0 or address % access_bytes):
            raise ValueError(f"addresses must be multiples of {access_bytes} from 0 on: lane {lane} has {address}")
    together = min(WARP, LINE_BYTES // access_bytes)
    passes = groups = 0
    total = np.zeros(BANKS, np.int64)
    for first in range(0, len(lanes), together):
        words = {
            word
            for address in lanes[first : first + together]
            if address is not None
            for word in range(address // BANK_BYTES, (address + access_bytes - 1) // BANK_BYTES + 1)
        }
        if words:
            load = np.bincount([word % BANKS for word in words], minlength=BANKS)
            passes, groups, total = passes + int(load.max()), groups + 1, total + load
    return BankConflicts(passes, groups, tuple(int(n) for n in total))
