"""What the kernels of chapter 08's exercises have in common: bf16 matrices of small integers, as boxes to copy from.

Products and sums of such integers are exact in the tensor core, so that every answer has one right result.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlacademy.gpu.wgmma import Descriptor, Major, read_tile, write_tile
from mlacademy.grading import Box

Matrix = NDArray[np.float32]


def whole(rng: np.random.Generator, rows: int, columns: int, largest: int = 4) -> Matrix:
    """A matrix [rows, columns] of integers from -largest to largest, hardly ever symmetric."""
    return rng.integers(-largest, largest + 1, (rows, columns)).astype(np.float32)


def tiles(matrix: Matrix) -> Box:
    """The matrix as bf16 in global memory, to be copied in boxes of 64 × 64 with swizzle 128B."""
    return Box(_codes(matrix), (64, 64), {"dtype": "bfloat16", "swizzle": "128B"})


def product(a: Any, b: Any) -> Matrix:
    """a [m, k] times b [n, k] transposed."""
    result: Matrix = np.asarray(a, np.float32) @ np.asarray(b, np.float32).T
    return result


def slices(
    tile: Matrix, *, stride: int = 1024, step: int = 32, swizzle: str = "128B", major: Major = "K"
) -> list[Matrix]:
    """What wgmma reads as the four slices of a tile [64, 64] that lies in rows of 128 bytes with swizzle 128B, if its
    descriptors say what is given here: [64, 16] each. Raises ``ValueError`` where it would read beyond the tile."""
    image = np.zeros(8192, np.uint8)
    write_tile(image, _codes(tile), Descriptor(0, stride=1024, swizzle="128B"))
    starts = range(0, 4 * step, step) if step else [0] * 4
    told = [Descriptor(start, 16 if major == "K" else 1024, stride, swizzle=swizzle) for start in starts]
    return [_values(read_tile(image, (64, 16), np.uint16, one, major=major)) for one in told]


def misread(a: Matrix, b: Matrix, *, stride: int = 1024, step: int = 32, swizzle: str = "128B") -> Matrix:
    """The product of two tiles [64, 64] whose descriptors are wrong in the same way."""
    pairs = zip(*(slices(tile, stride=stride, step=step, swizzle=swizzle) for tile in (a, b)), strict=True)
    total: Matrix = sum((product(*pair) for pair in pairs), np.zeros((64, 64), np.float32))
    return total


def _codes(matrix: Matrix) -> NDArray[np.uint16]:
    return (np.ascontiguousarray(matrix).view(np.uint32) >> 16).astype(np.uint16)


def _values(codes: NDArray[np.uint16]) -> Matrix:
    return (codes.astype(np.uint32) << 16).view(np.float32)
