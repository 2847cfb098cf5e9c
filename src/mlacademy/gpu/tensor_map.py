"""Tensor maps: how the TMA unit is told about a tensor and the box that it copies from or to it.

`TensorMap` checks every rule of ``cuTensorMapEncodeTiled`` (CUDA Driver API, "Tensor Map Object Management") and
says which one is broken; the driver answers ``CUDA_ERROR_INVALID_VALUE`` to all of them. One map serves both devices:
a GPU gets the driver's 128 opaque bytes, the emulator the plain record of `mlacademy.gpu.map_record`.

The order of axes is the hardware's: index 0 is the innermost axis, as in the coordinates of ``cp.async.bulk.tensor``.
`TensorMap.of` takes a tensor and a box in the tensor's own order, outermost first, and turns them round.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from mlacademy.gpu.tensors import view_of


@dataclass(frozen=True)
class ElementType:
    """One element type of a tensor map: its name here, the driver's code, the code of ``tensormap.replace``."""

    name: str
    driver_code: int
    ptx_code: int
    bits: int
    is_float: bool = False
    alignment: int = 16


ELEMENT_TYPES = {
    kind.name: kind
    for kind in (
        ElementType("uint8", 0, 0, 8),
        ElementType("uint16", 1, 1, 16),
        ElementType("uint32", 2, 2, 32),
        ElementType("int32", 3, 3, 32),
        ElementType("uint64", 4, 4, 64),
        ElementType("int64", 5, 5, 64),
        ElementType("float16", 6, 6, 16, is_float=True),
        ElementType("float32", 7, 7, 32, is_float=True),
        ElementType("float64", 8, 9, 64, is_float=True),
        ElementType("bfloat16", 9, 10, 16, is_float=True),
        ElementType("float32_ftz", 10, 8, 32, is_float=True),
        ElementType("tfloat32", 11, 11, 32, is_float=True),
        ElementType("tfloat32_ftz", 12, 12, 32, is_float=True),
        ElementType("16u4_align8b", 13, 13, 4),
        ElementType("16u4_align16b", 14, 14, 4, alignment=32),
        ElementType("16u6_align16b", 15, 15, 6, alignment=32),
    )
}

_SAME_BYTES = {
    "bool": "uint8",
    "int8": "uint8",
    "int16": "uint16",
    "float8_e4m3fn": "uint8",
    "float8_e5m2": "uint8",
    "float8_e8m0fnu": "uint8",
}
"""Types that the hardware has no code for, and the one whose bytes it copies instead."""

SWIZZLES = {
    "none": 0,
    "32B": 1,
    "64B": 2,
    "128B": 3,
    "128B_ATOM_32B": 4,
    "128B_ATOM_32B_FLIP_8B": 5,
    "128B_ATOM_64B": 6,
}
INTERLEAVES = {"none": 0, "16B": 1, "32B": 2}
L2_PROMOTIONS = {"none": 0, "64B": 1, "128B": 2, "256B": 3}
OOB_FILLS = {"zeros": 0, "nan": 1}

MAX_STRIDE = 1 << 40
MAX_DIM = 1 << 32
MAX_BOX = 256
MAX_PIXELS = 1024
MAX_ELEMENT_STRIDE = 8


@dataclass(frozen=True)
class TensorMap:
    """A tensor as the TMA unit sees it, and the box of one copy; index 0 of every tuple is the innermost axis.

    Attributes:
        tensor: the NumPy array or torch tensor whose first element is the map's origin.
        dtype: an element type of `ELEMENT_TYPES`; only its size, and for reductions its kind, matter to a copy.
        dims: elements of the tensor along each axis, 1 to 5 axes. Beyond them a load is filled and a store is clipped.
        strides: bytes between neighbours of axis 1, 2, …; axis 0 is dense, so there is one entry fewer than axes.
        box: elements of the tensor that one copy spans along each axis.
        element_strides: take every n-th element of the box along an axis.
        swizzle, interleave, l2_promotion, oob_fill: a key of `SWIZZLES`, `INTERLEAVES`, `L2_PROMOTIONS`, `OOB_FILLS`.
        name: what messages call the tensor.

    Raises ``ValueError`` for a value that breaks a rule, ``TypeError`` where ``tensor`` is none.

    >>> import numpy as np
    >>> TensorMap.of(np.zeros((128, 64), np.float16), box=(8, 64), swizzle="128B").dims
    (64, 128)
    """

    tensor: Any = field(repr=False, compare=False)
    dtype: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...] = ()
    swizzle: str = "none"
    interleave: str = "none"
    l2_promotion: str = "none"
    oob_fill: str = "zeros"
    name: str = ""

    def __post_init__(self) -> None:
        for axis_values in ("dims", "strides", "box", "element_strides", "lower_corner", "upper_corner"):
            if hasattr(self, axis_values):
                object.__setattr__(self, axis_values, tuple(getattr(self, axis_values)))
        if not self.element_strides:
            object.__setattr__(self, "element_strides", (1,) * len(self.dims))
        check(self)

    @classmethod
    def of(cls, tensor: Any, box: tuple[int, ...], *, dtype: str | None = None, **fields: Any) -> TensorMap:
        """The map of a whole tensor; ``box`` has one entry an axis, in the tensor's order (outermost first).

        ``dtype`` defaults to the tensor's; types the hardware does not know, such as FP8, travel as bytes of the
        same size. The other fields of `TensorMap` may be given by name, ``element_strides`` in the tensor's order too.
        """
        view = view_of(tensor)
        if len(box) != len(view.shape):
            raise ValueError(f"box must have one entry an axis: the tensor has {len(view.shape)}, box has {len(box)}")
        if view.strides and view.strides[-1] != view.itemsize and view.shape[-1] > 1:
            raise ValueError(
                f"the innermost axis must be dense: its elements are {view.itemsize} bytes wide and "
                f"{view.strides[-1]} bytes apart. Is the tensor transposed?"
            )
        if "element_strides" in fields:
            fields["element_strides"] = tuple(reversed(fields["element_strides"]))
        return cls(
            tensor,
            dtype or _SAME_BYTES.get(view.dtype, view.dtype),
            dims=tuple(reversed(view.shape)),
            strides=tuple(reversed(view.strides[:-1])),
            box=tuple(reversed(box)),
            **fields,
        )

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.dims)

    @property
    def element(self) -> ElementType:
        """The element type's codes and size."""
        return ELEMENT_TYPES[self.dtype]

    @property
    def box_bytes(self) -> int:
        """Bytes that one whole box brings to shared memory: what the mbarrier must expect.

        >>> import numpy as np
        >>> TensorMap.of(np.zeros((128, 64), np.float16), box=(8, 64)).box_bytes
        1024
        """
        first = 1 if self.interleave == "none" else self.element_strides[0]  # TMA has no stride along the dense axis
        steps = (first, *self.element_strides[1:])
        counts = [-(-size // step) for size, step in zip(self.box, steps, strict=True)]
        return math.prod(counts) * self.element.bits // 8

    def __repr__(self) -> str:
        axes = " × ".join(str(size) for size in reversed(self.dims))
        box = " × ".join(str(size) for size in reversed(self.box))
        called = f" of {self.name}" if self.name else ""
        return f"<TensorMap{called}: {self.dtype} {axes}, box {box}, swizzle {self.swizzle}>"


@dataclass(frozen=True, repr=False)
class Im2colMap(TensorMap):
    """Images as the im2col mode of TMA sees them: axis 0 are channels, the last one images, those between space.

    A copy walks over ``box[1]`` pixels from its coordinates on, innermost axis first and within a bounding box, and
    takes ``box[0]`` channels of each; the instruction adds offsets to every pixel's place.

    Attributes:
        box: channels of a pixel (1 to 256), pixels of a copy (1 to 1024).
        lower_corner: where the bounding box begins along each axis of space.
        upper_corner: where it ends: the last pixel is at size − 1 + upper_corner.

    Raises ``ValueError`` for a value that breaks a rule of ``cuTensorMapEncodeIm2col``.
    """

    lower_corner: tuple[int, ...] = ()
    upper_corner: tuple[int, ...] = ()

    @property
    def box_bytes(self) -> int:
        return self.box[0] * self.box[1] * self.element.bits // 8


def check(tensor_map: TensorMap) -> None:
    """Raise ``ValueError`` for the first rule of the driver's encoding that the map breaks."""
    _check_names(tensor_map)
    _check_axes(tensor_map)
    _check_memory(tensor_map)
    _check_box(tensor_map)
    _check_swizzle(tensor_map)


def _check_names(it: TensorMap) -> None:
    for argument, allowed in (
        ("dtype", ELEMENT_TYPES),
        ("swizzle", SWIZZLES),
        ("interleave", INTERLEAVES),
        ("l2_promotion", L2_PROMOTIONS),
        ("oob_fill", OOB_FILLS),
    ):
        value = getattr(it, argument)
        if value not in allowed:
            raise ValueError(f"{argument} must be one of {', '.join(allowed)}; got {value!r}")


def _check_axes(it: TensorMap) -> None:
    im2col = isinstance(it, Im2colMap)
    lowest = 3 if it.interleave != "none" or im2col else 1
    if not lowest <= it.rank <= 5:
        because = " for im2col" if im2col else f" with interleave {it.interleave}" if lowest == 3 else ""
        raise ValueError(f"dims must have {lowest} to 5 axes{because}, got {it.rank}")
    entries = [("strides", it.rank - 1), ("box", 2 if im2col else it.rank), ("element_strides", it.rank)]
    if im2col:
        entries += [("lower_corner", it.rank - 2), ("upper_corner", it.rank - 2)]
    for argument, wanted in entries:
        values = getattr(it, argument)
        if len(values) != wanted:
            why = " (axis 0 is dense and has none)" if argument == "strides" else ""
            raise ValueError(
                f"{argument} must have {wanted} entries for {it.rank} axes{why}, got {len(values)}: {values}"
            )
    for axis, size in enumerate(it.dims):
        if not 1 <= size <= MAX_DIM:
            raise ValueError(f"dims[{axis}] must be 1 to 2^32 elements, got {size:,}")
    for axis, size in enumerate(it.box):
        most = MAX_PIXELS if im2col and axis == 1 else MAX_BOX
        if not 1 <= size <= most:
            raise ValueError(f"box[{axis}] must be 1 to {most} elements, got {size:,}. Copy it in several boxes.")
    for axis, step in enumerate(it.element_strides):
        if not 1 <= step <= MAX_ELEMENT_STRIDE:
            raise ValueError(f"element_strides[{axis}] must be 1 to 8, got {step}")
    if isinstance(it, Im2colMap):
        bound = 1 << {3: 15, 4: 7, 5: 4}[it.rank]
        for name, corner in (("lower_corner", it.lower_corner), ("upper_corner", it.upper_corner)):
            for axis, offset in enumerate(corner):
                if not -bound <= offset < bound:
                    raise ValueError(f"{name}[{axis}] must be {-bound} to {bound - 1} for {it.rank} axes, got {offset}")
    multiple = {"16u4_align8b": 2, "16u4_align16b": 128, "16u6_align16b": 128}.get(it.dtype, 1)
    if it.dims[0] % multiple:
        raise ValueError(f"dims[0] must be a multiple of {multiple} for {it.dtype}, got {it.dims[0]}")


def _alignment(it: TensorMap) -> tuple[int, str]:
    if it.interleave == "32B":
        return 32, " with interleave 32B"
    return it.element.alignment, f" for {it.dtype}" if it.element.alignment != 16 else ""


def _check_memory(it: TensorMap) -> None:
    view = view_of(it.tensor)
    multiple, because = _alignment(it)
    if view.address % multiple:
        raise ValueError(
            f"the tensor's address must be a multiple of {multiple}{because}, got 0x{view.address:x} "
            f"({view.address % multiple} beyond one). Does the map start inside a row?"
        )
    for index, stride in enumerate(it.strides):
        if stride % multiple or not 0 <= stride < MAX_STRIDE:
            hint = f" Pad its rows to {-(-stride // multiple) * multiple} bytes." if 0 < stride < MAX_STRIDE else ""
            raise ValueError(
                f"strides[{index}] (bytes, of axis {index + 1}) must be a multiple of {multiple} below 2^40{because}, "
                f"got {stride:,}.{hint}"
            )
    if it.interleave != "none":
        return
    reach = -(-it.dims[0] * it.element.bits // 8)
    reach += sum((size - 1) * stride for size, stride in zip(it.dims[1:], it.strides, strict=True))
    available = view.span[1] - view.address
    if reach > available:
        raise ValueError(
            f"dims and strides must stay inside the tensor: they reach {reach:,} bytes from its first element, "
            f"the tensor ends after {available:,}"
        )


def _check_box(it: TensorMap) -> None:
    if it.dtype in ("16u4_align16b", "16u6_align16b"):
        if it.box[0] != 128:
            raise ValueError(f"box[0] must be 128 elements for {it.dtype}, got {it.box[0]}")
        return
    row_bits = it.box[0] * it.element.bits
    if it.interleave == "none" and row_bits % 128:
        raise ValueError(
            f"box[0] must span a multiple of 16 bytes: {it.box[0]} elements of {it.dtype} are {row_bits / 8:g} bytes"
        )


def _check_swizzle(it: TensorMap) -> None:
    if it.dtype == "16u6_align16b" and it.interleave != "none":
        raise ValueError(f"interleave must be none for {it.dtype}, got {it.interleave}")
    if it.interleave == "32B" and it.swizzle != "32B":
        raise ValueError(f"swizzle must be 32B with interleave 32B, got {it.swizzle}")
    if it.dtype in ("16u4_align16b", "16u6_align16b"):
        if it.swizzle not in ("none", "128B", "128B_ATOM_32B", "128B_ATOM_64B"):
            raise ValueError(
                f"swizzle must be none, 128B, 128B_ATOM_32B or 128B_ATOM_64B for {it.dtype}, got {it.swizzle}"
            )
        if it.swizzle == "128B_ATOM_64B" and it.dtype == "16u4_align16b":
            raise ValueError("swizzle must be none, 128B or 128B_ATOM_32B for 16u4_align16b, got 128B_ATOM_64B")
    elif it.swizzle != "none" and it.interleave == "none":
        span = int(it.swizzle.split("B")[0])
        row_bytes = it.box[0] * it.element.bits // 8
        if row_bytes > span:
            raise ValueError(
                f"box[0] must span at most {span} bytes with swizzle {it.swizzle}, got {row_bytes} bytes "
                f"({it.box[0]} elements of {it.dtype}). Copy {span * 8 // it.element.bits} elements at a time."
            )
    if it.oob_fill == "nan" and not it.element.is_float:
        raise ValueError(f"oob_fill must be zeros for {it.dtype}: only floating-point types have a NaN")
