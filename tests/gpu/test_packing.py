"""Arguments into the parameter buffer: what fits, and how each misfit is named."""

from __future__ import annotations

import struct

import numpy as np
import pytest
import torch

from mlacademy.gpu import Kernel, Module, TensorMap
from mlacademy.gpu.packing import pack
from mlacademy.gpu.tensors import TensorView

HEAD = ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k("


class Recorder:
    """Stands for a device: answers with the host address, and notes what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    def locate(self, view: TensorView, name: str) -> int:
        self.asked.append((name, view.nbytes))
        return view.address

    def encode(self, tensor_map: TensorMap, name: str) -> bytes:
        self.asked.append((name, 128))
        return bytes(range(128))


def kernel(*params: str, source: str = "") -> Kernel:
    named = [param if "[" in param else f"{param} p{index}" for index, param in enumerate(params)]
    lines = ",".join(f".param {param}" for param in named)
    return Module(f"{HEAD}{lines})\n{{ ret; }}", source=source)["k"]


def packed(param: str, value: object, source: str = "") -> bytes:
    return pack(kernel(param, source=source), (value,), Recorder())


@pytest.mark.parametrize(
    ("param", "value", "expected"),
    [
        (".u32", 7, struct.pack("<I", 7)),
        (".u32", -7, struct.pack("<i", -7)),  # PTX writes int and unsigned alike
        (".u8", True, b"\1"),
        (".u16", np.int16(-2), struct.pack("<h", -2)),
        (".s64", -(2**63), struct.pack("<q", -(2**63))),
        (".u64", 2**64 - 1, b"\xff" * 8),
        (".u64", None, bytes(8)),
        (".f32", 1.5, struct.pack("<f", 1.5)),
        (".f32", 3, struct.pack("<f", 3.0)),
        (".f64", np.float32(0.1), struct.pack("<d", float(np.float32(0.1)))),
        (".align 4 .b8 p[12]", b"twelve bytes", b"twelve bytes"),
        (".align 2 .b8 p[2]", np.float16(1.0), b"\x00\x3c"),
    ],
)
def test_value_is_packed_as_the_parameter_wants_it(param: str, value: object, expected: bytes) -> None:
    assert packed(param, value) == expected


def test_arguments_lie_at_the_offsets_of_their_parameters() -> None:
    array = np.zeros(3, np.float32)
    buffer = pack(kernel(".u8", ".u64", ".f32"), (1, array, 2.0), Recorder())
    assert buffer == struct.pack("<B7xQf", 1, array.ctypes.data, 2.0)


@pytest.mark.parametrize("tensor", [np.zeros((4, 6), np.float32)[1:, ::2], torch.zeros(4, 6)[1:, ::2]])
def test_tensor_becomes_the_address_of_its_first_element(tensor: object) -> None:
    recorder = Recorder()
    buffer = pack(kernel(".u64"), (tensor,), recorder)
    address = tensor.ctypes.data if isinstance(tensor, np.ndarray) else tensor.data_ptr()  # type: ignore[attr-defined]
    assert buffer == struct.pack("<Q", address)
    assert recorder.asked == [("argument 0", (2 * 6 + 4 + 1) * 4)]  # from the first to the last element


def test_tensor_map_fills_a_blob() -> None:
    tensor_map = TensorMap.of(np.zeros((8, 8), np.float32), box=(8, 8))
    recorder = Recorder()
    assert pack(kernel(".align 64 .b8 p[128]"), (tensor_map,), recorder) == bytes(range(128))
    assert recorder.asked == [("argument 0", 128)]


def test_wrong_number_of_arguments_lists_the_parameters() -> None:
    source = "__global__ void k(const float* x, int n);"
    with pytest.raises(TypeError, match=r"k takes 2 arguments \(float\* x, int n\), got 1"):
        pack(kernel(".u64", ".u32", source=source), (1,), Recorder())


MAP = TensorMap.of(np.zeros((8, 8), np.float32), box=(8, 8))


@pytest.mark.parametrize(
    ("param", "c", "value", "sentence"),
    [
        (".u32", "int x", 1.5, "x is a int, got float 1.5"),
        (".u32", "int x", "7", "x is a int, got str '7'"),
        (".u32", "int x", np.zeros(3), "x is a int, got a float64 tensor"),
        (".u32", "int x", torch.tensor(3), r"x is a int, got a int64 tensor. Take its value with .item\(\)"),
        (".f32", "float x", "1", "x is a float, got str"),
        (".u64", "float* x", 1.0, r"x is a pointer to float, got float 1.0. Give a tensor, an address, or None"),
        (".u64", "float* x", np.zeros(3), "x is a pointer to float, got a tensor of float64; float32 is what it reads"),
        (".u64", "int* x", np.zeros(3, np.int64), "its elements are 8 bytes wide, the kernel's 4"),
        (".u64", "int64_t x", np.zeros(3), "x is a int64_t, got a float64 tensor"),
        (".u64", "float* x", MAP, "x is a pointer to float, not a tensor map of 128 bytes"),
        (".align 8 .b8 p[128]", "CUtensorMap x", MAP, "x must be aligned to 64 bytes to hold a tensor map, it is to 8"),
        (".align 64 .b8 p[128]", "CUtensorMap x", np.zeros(3), "give a TensorMap or bytes, got a float64 tensor"),
        (".align 8 .b8 p[16]", "Pair x", 5, "x is a blob of 16 bytes: give bytes, got int"),
    ],
)  # fmt: skip
def test_wrong_kind_is_named(param: str, c: str, value: object, sentence: str) -> None:
    with pytest.raises(TypeError, match=sentence):
        packed(param, value, f"__global__ void k({c});")


@pytest.mark.parametrize(
    ("param", "c", "value", "sentence"),
    [
        (".u32", "int x", 2**31, "x is a int and holds -2,147,483,648 to 2,147,483,647, got 2,147,483,648"),
        (".u32", "uint32_t x", -1, "x is a uint32_t and holds 0 to 4,294,967,295, got -1"),
        (".u32", "Unknown x", 2**32, "x is a Unknown and holds -2,147,483,648 to 4,294,967,295, got 4,294,967,296"),
        (".s16", "Unknown x", 2**15, "holds -32,768 to 32,767"),
        (".u8", "bool x", 2, "x is a bool and holds 0 to 1, got 2"),
        (".f32", "float x", 1e39, r"x is a float and cannot hold 1e\+39"),
        (".align 8 .b8 p[16]", "Pair x", b"short", "x is a blob of 16 bytes, got 5 bytes"),
    ],
)
def test_value_that_does_not_fit_is_named(param: str, c: str, value: object, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        packed(param, value, f"__global__ void k({c});")


@pytest.mark.parametrize(
    ("c", "dtype"),
    [("uint8_t* x", np.float32), ("void* x", np.float64), ("unsigned* x", np.int32), ("uint16_t* x", np.float16)],
)
def test_pointers_to_bytes_and_bits_take_any_tensor_of_the_width(c: str, dtype: type) -> None:
    assert len(packed(".u64", np.zeros(3, dtype), f"__global__ void k({c});")) == 8


def test_torch_dtypes_are_compared_by_name() -> None:
    source = "__global__ void k(const __nv_bfloat16* x);"
    packed(".u64", torch.zeros(3, dtype=torch.bfloat16), source)
    with pytest.raises(TypeError, match="got a tensor of float16; bfloat16 is what it reads"):
        packed(".u64", torch.zeros(3, dtype=torch.float16), source)
