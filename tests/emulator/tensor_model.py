"""Tensor copies element by element, from their description alone: nothing here is shared with the emulator.

A box is an array of bytes [elements of the box, outermost axis first, bytes of an element]; shared memory is a flat
array of bytes. Swizzles are told as "chunk c of line l is at chunk c ^ f(l)".
"""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlacademy.gpu.tensor_map import Im2colMap, TensorMap

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
NAN = bytes.fromhex("f77f")  # of 16 bits, repeated for wider types


def swizzled(mode: str, address: int) -> int:
    """Where the byte that lies at ``address`` without a swizzle lies with it."""
    line = address // 128
    if mode == "none":
        return address
    if mode in ("32B", "64B", "128B"):
        chunks = {"32B": 2, "64B": 4, "128B": 8}[mode]  # of 16 bytes, in a row of the pattern
        row, chunk = address // (16 * chunks), address // 16 % chunks
        return (row * chunks + (chunk ^ (line % chunks))) * 16 + address % 16
    if mode == "128B_ATOM_64B":
        return line * 128 + (address // 64 % 2 ^ line % 2) * 64 + address % 64
    place = line * 128 + (address // 32 % 4 ^ line % 4) * 32 + address % 32
    if mode == "128B_ATOM_32B_FLIP_8B" and line % 2:
        return place + (8 if place % 16 < 8 else -8)
    return place


@dataclass(frozen=True)
class Copy:
    """One tensor copy: the map, the coordinates (innermost first) and the box's offset in shared memory."""

    tensor_map: TensorMap
    at: tuple[int, ...]
    offset: int

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return self.tensor_map.element.bits // 8

    @property
    def box_bytes(self) -> int:
        """Bytes that a load reports."""
        return self.tensor_map.box_bytes

    def taken(self, *, units: bool = False) -> list[tuple[tuple[int, ...], int, int | None]]:
        """Per element of the box: its coordinates, its byte in shared memory, its byte in the tensor (if inside).

        With ``units`` a row goes on to the end of the 16 bytes that hold its last element, as stores write it.
        """
        it = self.tensor_map
        steps = (1, *it.element_strides[1:])
        sizes = (-(-it.dims[0] * self.size // 16) * 16 // self.size if units else it.dims[0], *it.dims[1:])
        axes = [range(0, size, step) for size, step in zip(it.box, steps, strict=True)]
        pitch = PITCH.get(it.swizzle, 128) if it.swizzle != "none" else it.box[0] * self.size
        elements = []
        for number, index in enumerate(itertools.product(*reversed(axes))):
            coordinates = tuple(c + k for c, k in zip(self.at, reversed(index), strict=True))
            inside = all(0 <= c < size for c, size in zip(coordinates, sizes, strict=True))
            row, column = divmod(number, it.box[0])
            place = swizzled(it.swizzle, self.offset + row * pitch + column * self.size)
            byte = coordinates[0] * self.size + sum(c * s for c, s in zip(coordinates[1:], it.strides, strict=True))
            elements.append((coordinates, place, byte if inside else None))
        return elements

    def load(self, tensor: Bytes, shared: Bytes) -> None:
        """What a load does to shared memory."""
        fill = NAN * (self.size // 2) if self.tensor_map.oob_fill == "nan" else bytes(self.size)
        for _, place, byte in self.taken():
            data = np.frombuffer(fill, np.uint8) if byte is None else self.loaded(tensor[byte : byte + self.size])
            shared[place : place + self.size] = data

    def loaded(self, element: Bytes) -> Bytes:
        """An element as it arrives: tf32 types round to 10 bits of mantissa, ties to even."""
        if not self.tensor_map.dtype.startswith("tfloat32"):
            return element
        bits = int(element.view(np.uint32)[0])
        nan = bits & 0x7FFFFFFF > 0x7F800000
        kept, rest = divmod(bits, 0x2000)
        rounded = 0x7FFFE000 if nan else (kept + (rest > 0x1000 or (rest == 0x1000 and kept % 2 == 1))) * 0x2000
        return np.array([rounded], np.uint32).view(np.uint8)

    def store(self, tensor: Bytes, shared: Bytes) -> None:
        """What a store does to the tensor."""
        for _, place, byte in self.taken(units=True):
            if byte is not None:
                tensor[byte : byte + self.size] = shared[place : place + self.size]


@dataclass(frozen=True)
class Im2colCopy(Copy):
    """A copy in im2col mode, with the instruction's offsets along the axes of space."""

    offsets: tuple[int, ...]

    def taken(self, *, units: bool = False) -> list[tuple[tuple[int, ...], int, int | None]]:
        it = self.tensor_map
        assert isinstance(it, Im2colMap)
        space = it.rank - 2
        channels = -(-it.dims[0] * self.size // 16) * 16 // self.size if units else it.dims[0]
        pitch = it.box[0] * self.size if it.swizzle == "none" else PITCH.get(it.swizzle, 128)
        pixel, elements = list(self.at[1:]), []
        for number in range(it.box[1]):
            place = [p + offset for p, offset in zip(pixel, (*self.offsets, 0), strict=True)]
            inside = all(0 <= p < size for p, size in zip(place, it.dims[1:], strict=True))
            start = sum(p * stride for p, stride in zip(place, it.strides, strict=True))
            for k in range(it.box[0]):
                channel = self.at[0] + k
                byte = start + channel * self.size if inside and 0 <= channel < channels else None
                there = swizzled(it.swizzle, self.offset + number * pitch + k * self.size)
                elements.append(((channel, *place), there, byte))
            for axis in range(space):  # to the next pixel
                pixel[axis] += it.element_strides[axis + 1]
                if pixel[axis] <= it.dims[axis + 1] - 1 + it.upper_corner[axis]:
                    break
                pixel[axis] = it.lower_corner[axis]
            else:
                pixel[space] += 1
        return elements


@dataclass(frozen=True)
class RowsCopy(Copy):
    """A copy of four rows of a two-dimensional tensor: at = (column, row 0, …, row 3), box = (columns, 1)."""

    @property
    def box_bytes(self) -> int:
        return 4 * self.tensor_map.box_bytes

    def taken(self, *, units: bool = False) -> list[tuple[tuple[int, ...], int, int | None]]:
        pitch = self.tensor_map.box[0] * self.size
        if self.tensor_map.swizzle != "none":
            pitch = PITCH.get(self.tensor_map.swizzle, 128)
        elements = []
        for number, row in enumerate(self.at[1:]):
            one = Copy(self.tensor_map, (self.at[0], row), 0)
            for column, (coordinates, _, byte) in enumerate(one.taken(units=units)):
                place = self.offset + number * pitch + column * self.size
                elements.append((coordinates, swizzled(self.tensor_map.swizzle, place), byte))
        return elements


def random_im2col(
    chooser: random.Random, *, store: bool = False, modes: tuple[str, ...] = ("none", "32B")
) -> Im2colCopy:
    """A legal copy of at most 32 pixels of small images, often partly outside of them."""
    dtype = chooser.choice(["float32", "uint8", "bfloat16", "uint64"])
    size = SIZES[dtype]
    rank, swizzle = chooser.randint(3, 5), chooser.choice(modes)
    row = 32 if swizzle == "32B" else 16 * chooser.randint(1, 4)
    dims = [chooser.randint(1, 3 * row // size), *(chooser.randint(2, 6) for _ in range(rank - 2))]
    dims.append(chooser.randint(1, 3))
    lower = [chooser.randint(0 if store else -2, 1) for _ in range(rank - 2)]
    upper = [chooser.randint(low - extent + 1, 1) for low, extent in zip(lower, dims[1:], strict=False)]
    upper = [max(up, -2) for up in upper]
    strides = [-(-dims[0] * size // 16) * 16]
    for extent in dims[1:-1]:
        strides.append(strides[-1] * extent + 16 * chooser.randint(0, 1))
    steps = [1, *(chooser.choice([1, 1, 1, 2]) for _ in range(rank - 2)), 1]
    first = [chooser.randint(low, max(low, n - 1 + up)) for low, n, up in zip(lower, dims[1:], upper, strict=False)]
    at = [16 // size * chooser.randint(0, 2), *first, chooser.randint(0, dims[-1])]
    tensor_map = Im2colMap(
        aligned(strides[-1] * dims[-1] + 128),
        dtype,
        tuple(dims),
        tuple(strides),
        (row // size, chooser.randint(1, 32)),
        tuple(steps),
        swizzle=swizzle,
        lower_corner=tuple(lower),
        upper_corner=tuple(upper),
    )
    offsets = tuple(0 if store else chooser.randint(0, 2) for _ in lower)
    return Im2colCopy(tensor_map, tuple(at), 128 * chooser.randint(0, 9), offsets)


SIZES = {"uint8": 1, "uint16": 2, "float16": 2, "bfloat16": 2, "int32": 4, "float32": 4, "uint64": 8, "float64": 8}
SIZES |= {"uint32": 4, "int64": 8, "float32_ftz": 4, "tfloat32": 4, "tfloat32_ftz": 4}
PLAIN = tuple(SIZES)[:8]
PITCH = {"32B": 32, "64B": 64}  # of rows in shared memory under a swizzle; otherwise 128


MODES = ("none", "32B", "64B", "128B")
ATOMS = ("128B_ATOM_32B", "128B_ATOM_64B", "128B_ATOM_32B_FLIP_8B")


def random_copy(
    chooser: random.Random,
    *,
    modes: tuple[str, ...] = MODES + ATOMS,
    store: bool = False,
    dtypes: tuple[str, ...] = PLAIN,
    narrow: bool = False,
    inner_steps: bool = False,
) -> Copy:
    """A legal copy of at most 4 KiB from or to a tensor with padded strides; often partly or wholly outside of it.

    ``narrow``: rows of the box shorter than the swizzle's span. ``inner_steps``: an element stride of axis 0.
    """
    dtype = chooser.choice(dtypes)
    size = SIZES[dtype]
    rank = chooser.randint(1, 5)
    swizzle = chooser.choice([mode for mode in modes if not (store and "FLIP" in mode)])
    span = 256 if swizzle == "none" else PITCH.get(swizzle, 128)
    row = 16 * chooser.randint(1, span // 16) if narrow or swizzle == "none" else span
    box = [row // size]
    steps = [1] * rank
    if inner_steps:
        steps[0] = chooser.choice([1, 2, 4])
    for axis in range(1, rank):
        steps[axis] = chooser.choice([1, 1, 1, 2, 3])
        room = 4096 // (
            (row if swizzle == "none" else span)
            * math.prod(-(-b // s) for b, s in zip(box[1:], steps[1:], strict=False))
        )
        box.append(chooser.randint(1, max(1, min(room, 9))) if room > 0 else 1)
    dims = [chooser.randint(1, 2 * box[0]), *(chooser.randint(1, 6) for _ in range(rank - 1))]
    strides, reach = [], dims[0] * size
    for axis in range(1, rank):
        stride = -(-reach // 16) * 16 + 16 * chooser.randint(0, 2)
        strides.append(stride)
        reach = stride * dims[axis]
    least = 0 if store else -1
    unit = 16 // size
    at = [unit * chooser.randint(least * 3, dims[0] // unit + 1)]
    at += [chooser.randint(least * 4, dims[axis] + 1) for axis in range(1, rank)]
    floating = "float" in dtype
    tensor_map = TensorMap(
        aligned(reach + 16 * 8),
        dtype,
        tuple(dims),
        tuple(strides),
        tuple(box),
        tuple(steps),
        swizzle=swizzle,
        oob_fill=chooser.choice(["zeros", "nan"]) if floating else "zeros",
    )
    return Copy(tensor_map, tuple(at), 128 * chooser.randint(0, 9))


def aligned(nbytes: int) -> Bytes:
    """Zero bytes at a multiple of 64."""
    room = np.zeros(nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + nbytes]
