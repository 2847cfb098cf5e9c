"""Tensor maps: every rule by name, and the emulator's record read back field by field."""

from __future__ import annotations

import math
import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mlacademy.gpu import Im2colMap, TensorMap, map_record
from mlacademy.gpu.tensor_map import ELEMENT_TYPES, SWIZZLES


def aligned(nbytes: int, alignment: int = 64) -> np.ndarray:
    """``nbytes`` zero bytes at a multiple of ``alignment``."""
    room = np.zeros(nbytes + alignment, np.uint8)
    start = -room.ctypes.data % alignment
    return room[start : start + nbytes]


def fields(**changed: Any) -> dict[str, Any]:
    """A legal map of 64 rows of 64 float16, with some fields changed."""
    good = {"tensor": aligned(64 * 128), "dtype": "float16", "dims": (64, 64), "strides": (128,), "box": (64, 8)}
    return good | changed


CUBE = {"dims": (16, 8, 8), "strides": (32, 256), "box": (16, 8, 8)}


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"dtype": "float8"}, "dtype must be one of uint8, .*; got 'float8'"),
        ({"swizzle": "16B"}, "swizzle must be one of none, 32B, 64B, 128B, .*; got '16B'"),
        ({"interleave": "64B"}, "interleave must be one of none, 16B, 32B; got '64B'"),
        ({"l2_promotion": "32B"}, "l2_promotion must be one of none, 64B, 128B, 256B; got '32B'"),
        ({"oob_fill": "inf"}, "oob_fill must be one of zeros, nan; got 'inf'"),
        ({"dims": (), "strides": (), "box": ()}, "dims must have 1 to 5 axes, got 0"),
        ({"dims": (1,) * 6, "strides": (16,) * 5, "box": (1,) * 6}, "dims must have 1 to 5 axes, got 6"),
        ({"interleave": "16B"}, "dims must have 3 to 5 axes with interleave 16B, got 2"),
        ({"strides": (2, 128)}, r"strides must have 1 entries for 2 axes \(axis 0 is dense and has none\), got 2"),
        ({"box": (64,)}, "box must have 2 entries for 2 axes, got 1"),
        ({"element_strides": (1,)}, "element_strides must have 2 entries for 2 axes, got 1"),
        ({"dims": (64, 0)}, r"dims\[1\] must be 1 to 2\^32 elements, got 0"),
        ({"dims": (64, 2**32 + 1)}, r"dims\[1\] must be 1 to 2\^32 elements, got 4,294,967,297"),
        ({"box": (64, 0)}, r"box\[1\] must be 1 to 256 elements, got 0"),
        ({"box": (64, 257)}, r"box\[1\] must be 1 to 256 elements, got 257. Copy it in several boxes."),
        ({"element_strides": (1, 9)}, r"element_strides\[1\] must be 1 to 8, got 9"),
        ({"element_strides": (1, 0)}, r"element_strides\[1\] must be 1 to 8, got 0"),
        ({"dtype": "16u4_align8b", "dims": (63, 8)}, r"dims\[0\] must be a multiple of 2 for 16u4_align8b, got 63"),
        ({"dtype": "16u4_align16b", "dims": (64, 8)}, r"dims\[0\] must be a multiple of 128 for 16u4_align16b"),
        ({"tensor": aligned(64 * 128 + 8)[8:]}, r"address must be a multiple of 16, got .* \(8 beyond one\)"),
        ({"strides": (130,)}, r"strides\[0\] .* multiple of 16 below 2\^40, got 130. Pad its rows to 144 bytes."),
        ({"strides": (1 << 40,), "dims": (64, 1)}, r"strides\[0\] .* must be a multiple of 16 below 2\^40"),
        ({**CUBE, "interleave": "32B", "swizzle": "32B", "strides": (48, 256)}, "multiple of 32 .* interleave 32B"),
        ({"dims": (64, 65)}, "must stay inside the tensor: they reach 8,320 bytes .* ends after 8,192"),
        ({"box": (4, 8)}, r"box\[0\] must span a multiple of 16 bytes: 4 elements of float16 are 8 bytes"),
        ({"dtype": "16u4_align16b", "dims": (128, 4), "box": (64, 4)}, r"box\[0\] must be 128 elements for 16u4"),
        ({"box": (64, 8), "swizzle": "64B"}, r"at most 64 bytes with swizzle 64B, got 128 bytes .*Copy 32 elements"),
        ({"box": (128, 8), "dims": (128, 8), "swizzle": "128B_ATOM_32B"}, "most 128 bytes with swizzle 128B_ATOM_32B"),
        ({**CUBE, "interleave": "32B"}, "swizzle must be 32B with interleave 32B, got none"),
        (
            {"dtype": "16u6_align16b", "dims": (128, 4), "strides": (96,), "box": (128, 4), "swizzle": "64B"},
            "swizzle must be none, 128B, 128B_ATOM_32B or 128B_ATOM_64B for 16u6_align16b, got 64B",
        ),
        (
            {"dtype": "16u4_align16b", "dims": (128, 4), "strides": (64,), "box": (128, 4), "swizzle": "128B_ATOM_64B"},
            "swizzle must be none, 128B or 128B_ATOM_32B for 16u4_align16b",
        ),
        ({"dtype": "uint16", "oob_fill": "nan"}, "oob_fill must be zeros for uint16: only floating-point"),
    ],
)  # fmt: skip
def test_broken_rule_is_named(changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        TensorMap(**fields(**changed))


PIXELS = {"dims": (16, 8, 8, 2), "strides": (32, 256, 2048), "box": (16, 64)}


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"dims": (16, 8), "strides": (32,)}, "dims must have 3 to 5 axes for im2col, got 2"),
        ({"box": (16, 64, 1)}, "box must have 2 entries for 4 axes, got 3"),
        ({"box": (16, 1025)}, r"box\[1\] must be 1 to 1024 elements, got 1,025"),
        ({"box": (512, 1)}, r"box\[0\] must be 1 to 256 elements, got 512"),
        ({"lower_corner": (0,)}, "lower_corner must have 2 entries for 4 axes, got 1"),
        ({"upper_corner": (0, 128)}, r"upper_corner\[1\] must be -128 to 127 for 4 axes, got 128"),
        ({"lower_corner": (-129, 0)}, r"lower_corner\[0\] must be -128 to 127 for 4 axes, got -129"),
    ],
)
def test_broken_rule_of_im2col_is_named(changed: dict[str, Any], sentence: str) -> None:
    about = {"tensor": aligned(4096), "dtype": "float16", "lower_corner": (0, 0), "upper_corner": (0, 0)} | PIXELS
    assert Im2colMap(**about).box_bytes == 16 * 64 * 2
    with pytest.raises(ValueError, match=sentence):
        Im2colMap(**about | changed)


def test_record_of_im2col_holds_its_corners() -> None:
    corners = {"lower_corner": (-1, 2), "upper_corner": (-3, 4)}
    record = map_record.encode(Im2colMap(aligned(4096), "float16", **PIXELS, **corners), 0x1000)
    place = documented_fields()
    assert record[place["mode"][0]] == 1
    start = place["lower_corner"][0]
    assert np.frombuffer(record[start : start + 12], np.int16).tolist() == [-1, 2, 0, -3, 4, 0]
    start = place["box_dim"][0]
    assert np.frombuffer(record[start : start + 10], np.uint16).tolist() == [16, 64, 1, 1, 1]


def test_sub_byte_addresses_are_multiples_of_32() -> None:
    packed = {"dtype": "16u4_align16b", "dims": (128, 4), "strides": (64,), "box": (128, 4)}
    TensorMap(**fields(**packed))
    with pytest.raises(ValueError, match="multiple of 32 for 16u4_align16b"):
        TensorMap(**fields(**packed, tensor=aligned(512 + 16)[16:]))


def test_map_of_something_else_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="tensor must be a NumPy array or a torch tensor, got list"):
        TensorMap.of([[1.0]], box=(1, 1))


@pytest.mark.parametrize("make", [np.zeros, torch.zeros])
def test_map_of_a_tensor_turns_the_axes_round(make: Any) -> None:
    tensor_map = TensorMap.of(make((5, 6, 64)), box=(1, 2, 4), element_strides=(1, 2, 1))
    size = 8 if make is np.zeros else 4
    assert tensor_map.dims == (64, 6, 5)
    assert tensor_map.strides == (64 * size, 6 * 64 * size)
    assert tensor_map.box == (4, 2, 1)
    assert tensor_map.element_strides == (1, 2, 1)


def test_view_keeps_its_strides_and_its_type() -> None:
    cache = torch.zeros(10, 64, 656, dtype=torch.uint8)
    tensor_map = TensorMap.of(cache[:, :, :512], box=(1, 64, 128))
    assert (tensor_map.dtype, tensor_map.dims, tensor_map.strides) == ("uint8", (512, 64, 10), (656, 64 * 656))


def test_transposed_tensor_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the innermost axis must be dense: .* 4 bytes wide and 256 bytes apart"):
        TensorMap.of(np.zeros((32, 64), np.float32).T, box=(8, 8))


def test_box_must_have_the_tensors_axes() -> None:
    with pytest.raises(ValueError, match="one entry an axis: the tensor has 2, box has 1"):
        TensorMap.of(np.zeros((8, 8)), box=(8,))


@pytest.mark.parametrize(
    ("tensor", "name"),
    [
        (np.zeros((8, 64), ml_dtypes.bfloat16), "bfloat16"),
        (np.zeros((8, 64), ml_dtypes.float8_e4m3fn), "uint8"),
        (torch.zeros(8, 64, dtype=torch.bfloat16), "bfloat16"),
        (torch.zeros(8, 64, dtype=torch.float8_e4m3fn), "uint8"),
        (torch.zeros(8, 64, dtype=torch.int16), "uint16"),
    ],
)
def test_element_type_follows_the_tensor(tensor: Any, name: str) -> None:
    assert TensorMap.of(tensor, box=(8, 16)).dtype == name


def test_bytes_of_a_box_count_taken_elements() -> None:
    assert TensorMap(**fields(box=(64, 8))).box_bytes == 64 * 8 * 2
    assert TensorMap(**fields(box=(64, 7), element_strides=(8, 3))).box_bytes == 64 * 3 * 2  # axis 0 has no stride
    packed = {"dtype": "16u4_align8b", "dims": (64, 4), "strides": (32,), "box": (32, 4)}
    assert TensorMap(**fields(**packed)).box_bytes == 64


def documented_fields() -> dict[str, tuple[int, int]]:
    """The table of `map_record`'s documentation: first word of the field → (offset, bytes)."""
    rows = re.findall(r"^(\d+)\s+(\d+)\s+([\w ]+)", map_record.__doc__ or "", flags=re.MULTILINE)
    return {name.split()[0]: (int(offset), int(size)) for offset, size, name in rows}


def test_documented_fields_tile_the_record() -> None:
    rows = re.findall(r"^(\d+)\s+(\d+)\s", map_record.__doc__ or "", flags=re.MULTILINE)
    end = 0
    for offset, size in rows:
        assert int(offset) == end
        end += int(size)
    assert end == map_record.SIZE == 128


@given(st.data())
def test_record_holds_every_field_where_it_is_documented(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 5))
    inner = 16 * data.draw(st.integers(1, 8))
    dims = (inner, *(data.draw(st.integers(1, 3)) for _ in range(rank - 1)))
    strides = tuple(2 * inner * math.prod(dims[1 : 1 + axis]) for axis in range(rank - 1))
    box = (8, *(data.draw(st.integers(1, 256)) for _ in range(rank - 1)))
    steps = tuple(data.draw(st.integers(1, 8)) for _ in range(rank))
    swizzle = data.draw(st.sampled_from(sorted(SWIZZLES)))
    dtype = data.draw(st.sampled_from(["uint16", "float16", "bfloat16"]))
    tensor_map = TensorMap(aligned(2 * math.prod(dims)), dtype, dims, strides, box, steps, swizzle=swizzle)
    address = 16 * data.draw(st.integers(0, (1 << 60) - 1))
    record = map_record.encode(tensor_map, address)
    assert len(record) == 128

    def number(offset: int, size: int) -> int:
        return int.from_bytes(record[offset : offset + size], "little")

    place = documented_fields()
    assert record[:8] == b"MLATMAP1"
    assert number(*place["global_address"]) == address
    assert number(*place["rank"]) == rank - 1
    assert number(*place["elemtype"]) == {"uint16": 1, "float16": 6, "bfloat16": 10}[dtype]
    mode, atomicity = number(*place["swizzle_mode"]), number(*place["swizzle_atomicity"])
    span = "none" if mode == 0 else f"{16 << mode}B"
    assert swizzle == span + ["", "_ATOM_32B", "_ATOM_32B_FLIP_8B", "_ATOM_64B"][atomicity]
    for axis in range(5):
        used = axis < rank
        assert number(place["global_dim"][0] + 4 * axis, 4) == (dims[axis] if used else 1)
        assert number(place["box_dim"][0] + 2 * axis, 2) == (box[axis] if used else 1)
        assert number(place["element_stride"][0] + axis, 1) == (steps[axis] if used else 1)
    for axis in range(4):
        assert number(place["global_stride"][0] + 8 * axis, 8) == (strides[axis] if axis < rank - 1 else 0)


def test_largest_dimension_is_written_as_zero() -> None:
    tensor_map = TensorMap(**fields(dims=(64, 2**32), strides=(0,)))
    assert map_record.encode(tensor_map, 0)[28:32] == bytes(4)


def test_replace_codes_are_those_of_the_ptx_isa() -> None:
    codes = [ELEMENT_TYPES[name].ptx_code for name in ("float32", "float32_ftz", "float64", "bfloat16", "tfloat32")]
    assert codes == [7, 8, 9, 10, 11]
