"""Where wgmma finds its operands and puts its result: descriptors, and the addresses that they mean.

All addresses are bytes in shared memory. A tile is ``[rows, depth]``: rows of A (or columns of B, which are rows of its
transpose) by K. K-major means that neighbours along K are neighbours in memory; MN-major that neighbours along the
other axis are. Sources: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions": matrix descriptor format, shared
memory matrix layout.

>>> hex(Descriptor(start=1024, leading=16, stride=1024, swizzle="128B").bits)
'0x4000004000010040'
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mlacademy.gpu.fragments import ROWS, WARPGROUP, fragment
from mlacademy.gpu.shared_memory import swizzle

Ints = NDArray[np.int64]
Major = Literal["K", "MN"]

SWIZZLE_CODES = {"none": 0, "128B": 1, "64B": 2, "32B": 3}
"""Bits 62 and 63 of a descriptor. A tensor map numbers the same swizzles differently."""
SPANS = {"none": 16, "32B": 32, "64B": 64, "128B": 128}
"""Bytes of a row within which a swizzle permutes pieces of 16."""
_FIELD = (1 << 14) - 1
_REACH = 1 << 18


@dataclass(frozen=True)
class Descriptor:
    """The 64 bits that tell wgmma where a tile lies; sizes in bytes, multiples of 16 below 2^18.

    Attributes:
        start: address of the tile, or of a slice inside it.
        leading: K-major without swizzle: from one 16-byte column of K to the next; MN-major with swizzle: from one
            span of rows to the next. Not used K-major with swizzle.
        stride: K-major: from one group of 8 rows to the next; MN-major with swizzle: from 8 steps of K to the next.
        base: 0 where the swizzle pattern starts at a multiple of its repeat.
        swizzle: ``none``, ``32B``, ``64B`` or ``128B``.

    Raises ``ValueError`` naming the field.
    """

    start: int
    leading: int = 16
    stride: int = 1024
    base: int = 0
    swizzle: str = "none"

    def __post_init__(self) -> None:
        if self.swizzle not in SWIZZLE_CODES:
            raise ValueError(f"swizzle must be one of {', '.join(SWIZZLE_CODES)}, got {self.swizzle!r}")
        for name in ("start", "leading", "stride"):
            value = getattr(self, name)
            if value % 16 or not 0 <= value < _REACH:
                raise ValueError(
                    f"{name} must be a multiple of 16 from 0 to 262,128, got {value:,}: its field counts units of "
                    "16 bytes in 14 bits"
                )
        if not 0 <= self.base < 8:
            raise ValueError(f"base must be 0 to 7, got {self.base}")

    @property
    def bits(self) -> int:
        """The 64 bits: start 0-13, leading 16-29, stride 32-45, base 49-51, swizzle 62-63."""
        fields = self.start >> 4 | self.leading >> 4 << 16 | self.stride >> 4 << 32
        return fields | self.base << 49 | SWIZZLE_CODES[self.swizzle] << 62

    @classmethod
    def from_bits(cls, bits: int) -> Descriptor:
        """Read the fields out of 64 bits. Raises ``ValueError`` where a bit outside them is set."""
        start, leading, stride = (bits >> shift & _FIELD for shift in (0, 16, 32))
        names = {code: name for name, code in SWIZZLE_CODES.items()}
        found = cls(start << 4, leading << 4, stride << 4, bits >> 49 & 7, names[bits >> 62 & 3])
        if found.bits != bits:
            raise ValueError(f"bits outside the five fields must be 0, got 0x{bits ^ found.bits:x} of 0x{bits:016x}")
        return found

    def advanced(self, nbytes: int) -> Descriptor:
        """The same tile ``nbytes`` further in."""
        return replace(self, start=self.start + nbytes)


def addresses(descriptor: Descriptor, rows: int, depth: int, *, element_bytes: int = 2, major: Major = "K") -> Ints:
    """Address of each element of a tile, int64 [rows, depth], as wgmma computes it from ``descriptor``.

    Raises ``ValueError`` for another ``major``, and where rows or depth do not fill whole core matrices.
    """
    pieces = 16 // element_bytes
    if major not in ("K", "MN"):
        raise ValueError(f'major must be "K" or "MN", got {major!r}')
    whole_rows, whole_depth = (8, pieces) if major == "K" else (pieces, 8)
    if rows % whole_rows or depth % whole_depth:
        raise ValueError(
            f"a {major}-major tile of {element_bytes}-byte elements has a multiple of {whole_rows} rows and of "
            f"{whole_depth} along K, got {rows} x {depth}"
        )
    mn, k = np.arange(rows)[:, None], np.arange(depth)[None, :]
    span, stride, leading = SPANS[descriptor.swizzle], descriptor.stride, descriptor.leading
    if major == "K":
        byte = k * element_bytes
        groups = byte if descriptor.swizzle != "none" else byte // 16 * leading + byte % 16
        offset = mn % 8 * span + mn // 8 * stride + groups
    else:
        together = span // element_bytes
        along, across = (stride, leading) if descriptor.swizzle == "none" else (leading, stride)
        offset = mn % together * element_bytes + mn // together * along + k % 8 * span + k // 8 * across
    found: Ints = np.asarray(swizzle(descriptor.start + offset, descriptor.swizzle), np.int64) % _REACH
    return found


def write_tile(image: NDArray[np.uint8], tile: NDArray[Any], descriptor: Descriptor, *, major: Major = "K") -> None:
    """Store ``tile`` [rows, depth] of 1-, 2- or 4-byte codes in ``image``, the bytes of shared memory, in place."""
    size = tile.dtype.itemsize
    where = addresses(descriptor, *tile.shape, element_bytes=size, major=major)
    _fits(where, size, image)
    raw = np.ascontiguousarray(tile).view(np.uint8).reshape(*tile.shape, size)
    for byte in range(size):
        image[where + byte] = raw[..., byte]


def read_tile(
    image: NDArray[np.uint8], shape: tuple[int, int], dtype: Any, descriptor: Descriptor, *, major: Major = "K"
) -> NDArray[Any]:
    """The tile that wgmma would read: the inverse of `write_tile`."""
    size = np.dtype(dtype).itemsize
    where = addresses(descriptor, *shape, element_bytes=size, major=major)
    _fits(where, size, image)
    found: NDArray[Any] = np.ascontiguousarray(image[where[..., None] + np.arange(size)]).view(dtype)[..., 0]
    return found


def matrix_of(registers: NDArray[Any]) -> NDArray[Any]:
    """D [64, n] from the registers of a warpgroup [128, n / 2]."""
    threads, count = registers.shape
    if threads != WARPGROUP:
        raise ValueError(f"registers must be [128, n / 2], one line a thread; got {threads} lines")
    held = fragment("D", n=2 * count)
    matrix = np.empty((ROWS, 2 * count), registers.dtype)
    for thread, values in enumerate(registers):
        for index, value in enumerate(values):
            matrix[held.element(thread, index)] = value
    return matrix


def _fits(where: Ints, size: int, image: NDArray[np.uint8]) -> None:
    last = int(where.max()) + size
    if last > image.size:
        raise ValueError(f"the descriptor reaches byte {last:,}, the image ends after {image.size:,}")
