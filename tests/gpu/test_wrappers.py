"""What the header layer's wrappers do, on every device, against NumPy; all answers are exact."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from mlacademy import gpu
from mlacademy.fp8 import decode_e4m3
from mlacademy.gpu import Device, Kernel, LaunchPlan, TensorMap

pytestmark = pytest.mark.usefixtures("compiler")
FOLDER = Path(__file__).parent


def kernel(feature: str, name: str) -> Kernel:
    """A kernel of ``wrappers_<feature>.cu``."""
    return gpu.compile(FOLDER / f"wrappers_{feature}.cu")[name]


def poison(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return np.full(shape, 0xABABABAB, np.uint32).view(dtype)[tuple(slice(size) for size in shape)].copy()


def test_multicast_brings_both_halves_to_both_ctas(device: Device) -> None:
    tensor = np.random.default_rng(1).standard_normal((32, 32)).astype(np.float32)
    out = poison(8, 8, 32)
    device.launch(kernel("tma", "multicast"), LaunchPlan(8, 32, cluster=2), (TensorMap.of(tensor, box=(4, 32)), out))
    assert np.array_equal(out, tensor.reshape(4, 8, 32).repeat(2, axis=0))


def test_bulk_multicast_brings_one_block_to_both_ctas(device: Device) -> None:
    words = np.arange(48, dtype=np.uint32)
    out = poison(6, 16, dtype=np.uint32)
    device.launch(kernel("cluster", "bulk_multicast"), LaunchPlan(6, 32, cluster=2), (words, out))
    assert np.array_equal(out, words.reshape(3, 16).repeat(2, axis=0))


def test_neighbours_reach_into_each_others_shared_memory(device: Device) -> None:
    out = poison(4, 32, dtype=np.uint32)
    untouched = out[:, 23:].copy()
    device.launch(kernel("cluster", "neighbours"), LaunchPlan(4, 32, cluster=4), (out,))
    sender = (np.arange(4)[:, None] - 1) % 4
    assert np.array_equal(out[:, :16], 1000 * sender + np.arange(16))
    assert np.array_equal(out[:, 16:20], sender + np.arange(4))
    assert np.array_equal(out[:, 20:23], np.hstack([7 * sender, 100 + sender, 11 * sender]))
    assert np.array_equal(out[:, 23:], untouched)


@pytest.mark.parametrize(("c0", "c1"), [(0, 0), (8, 5), (-4, -3), (-8, 18), (40, 14), (64, 0), (-32, 20)])
def test_box_is_filled_with_zeros_outside_of_the_tensor(device: Device, c0: int, c1: int) -> None:
    tensor = np.random.default_rng(2).standard_normal((20, 64)).astype(np.float32)
    out = poison(8, 32)
    device.launch(kernel("tma", "load_box"), LaunchPlan(1, 32), (TensorMap.of(tensor, box=(8, 32)), out, c0, c1))
    around = np.zeros((20 + 64, 64 + 128), np.float32)
    around[32:52, 64:128] = tensor
    assert np.array_equal(out, around[32 + c1 : 40 + c1, 64 + c0 : 96 + c0])


@pytest.mark.parametrize(("c0", "c1"), [(0, 0), (8, 5), (40, 14), (64, 20)])
def test_boxes_are_stored_clipped_and_added(device: Device, c0: int, c1: int) -> None:
    rng = np.random.default_rng(2)
    tensor = rng.integers(-9, 9, (20, 64)).astype(np.float32)
    stored, sums = np.full_like(tensor, 77), np.full_like(tensor, 1000)
    maps = [TensorMap.of(one, box=(8, 32)) for one in (tensor, stored, sums)]
    device.launch(kernel("tma", "store_and_reduce"), LaunchPlan(1, 32), (*maps, c0, c1))
    expected_stored, expected_sums = np.full_like(tensor, 77), np.full_like(tensor, 1000)
    box = np.s_[c1 : c1 + 8, c0 : c0 + 32]
    expected_stored[box] = tensor[box] + 1
    expected_sums[box] += 2 * (tensor[box] + 1)
    assert np.array_equal(stored, expected_stored)
    assert np.array_equal(sums, expected_sums)


def test_named_barrier_hands_over_between_warpgroups(device: Device) -> None:
    values = np.random.default_rng(3).integers(-100, 100, 128).astype(np.int32)
    out = poison(2, 128, dtype=np.int32)
    device.launch(kernel("warp", "hand_over"), LaunchPlan(1, 384), (values, out))
    assert np.array_equal(out, values[::-1] + np.array([[1], [2]]))


def test_matrices_go_to_fragments_and_back(device: Device) -> None:
    values = np.random.default_rng(4).integers(0, 1 << 16, (4, 8, 8)).astype(np.uint16)
    fragments, copies = poison(32, 4, dtype=np.uint32), np.zeros(257, np.uint16)
    turned = np.zeros((4, 8, 8), np.uint16)
    device.launch(kernel("warp", "matrices"), LaunchPlan(1, 32), (values, fragments, copies, turned))
    pairs = values.view(np.uint32).reshape(4, 32)  # matrix, row 8 x 4 pairs: lane = 4 row + pair
    assert np.array_equal(fragments, pairs.T)
    assert np.array_equal(copies[:256].reshape(4, 8, 8), values)
    assert np.array_equal(turned, values.transpose(0, 2, 1))
    assert copies[256] == 1


def test_narrowing_rounds_to_nearest_even_and_saturates(device: Device) -> None:
    rng = np.random.default_rng(5)
    # Every exponent that the narrow formats reach and some beyond, ties and their neighbours, both signs.
    codes = np.concatenate([np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32)] * 2)
    ties = (codes[:-1] + codes[1:]) / 2
    random = rng.standard_normal(4000).astype(np.float32) * np.exp2(rng.integers(-30, 20, 4000)).astype(np.float32)
    edges = np.float32([0.0, -0.0, np.inf, -np.inf, 448, 464, 465, 57344, 61440, 1e-30, 3.4e38, 65504, 65520])
    values = np.concatenate([codes, ties, np.nextafter(ties, np.float32(9)), random, edges])
    values = values[~np.isnan(values)]
    values = values[: values.size // 2 * 2]
    pairs = values.size // 2
    outs = {name: np.zeros(pairs, np.uint16 if name.startswith("e") else np.uint32) for name in
            ("bf16", "f16", "e4m3", "e5m2", "tf32")}  # fmt: skip
    device.launch(kernel("convert", "narrow"), LaunchPlan(-(-pairs // 128), 128), (values, *outs.values(), pairs))
    with np.errstate(over="ignore"):
        assert np.array_equal(outs["bf16"].view(np.uint16), values.astype(ml_dtypes.bfloat16).view(np.uint16))
        assert np.array_equal(outs["f16"].view(np.uint16), values.astype(np.float16).view(np.uint16))
    for name, dtype, largest in (("e4m3", ml_dtypes.float8_e4m3fn, 448), ("e5m2", ml_dtypes.float8_e5m2, 57344)):
        expected = np.clip(values, -largest, largest).astype(dtype).view(np.uint8)
        assert np.array_equal(outs[name].view(np.uint8), expected), name
    low = values[::2].view(np.uint32)
    rounded = np.where(np.isinf(values[::2]), low, (low + 0x1000) & 0xFFFFE000)  # ties away from zero
    finite = np.abs(values[::2]) < 3e38
    assert np.array_equal(outs["tf32"][finite], rounded[finite])


def test_widening_is_exact_for_every_code(device: Device) -> None:
    codes = np.arange(256, dtype=np.uint8)
    e4m3, e5m2, bf16 = poison(256), poison(256), poison(128)
    device.launch(kernel("convert", "widen"), LaunchPlan(1, 128), (codes.view(np.uint16), e4m3, e5m2, bf16))
    assert np.array_equal(e4m3, decode_e4m3(codes), equal_nan=True)
    assert np.array_equal(e5m2, codes.view(ml_dtypes.float8_e5m2).astype(np.float32), equal_nan=True)
    assert np.array_equal(bf16.view(np.uint32), codes.view(np.uint16).astype(np.uint32) << 16)


@pytest.mark.parametrize(
    ("name", "n", "k", "dtype"),
    [
        ("bf16_n8", 8, 64, ml_dtypes.bfloat16),
        ("bf16_n16", 16, 64, ml_dtypes.bfloat16),
        ("bf16_n32", 32, 64, ml_dtypes.bfloat16),
        ("bf16_n64", 64, 64, ml_dtypes.bfloat16),
        ("bf16_n128", 128, 64, ml_dtypes.bfloat16),
        ("bf16_n256", 256, 64, ml_dtypes.bfloat16),
        ("bf16_n64_transposed", 64, 64, ml_dtypes.bfloat16),
        ("bf16_n16_registers", 16, 64, ml_dtypes.bfloat16),
        ("bf16_n32_registers", 32, 64, ml_dtypes.bfloat16),
        ("bf16_n64_registers", 64, 64, ml_dtypes.bfloat16),
        ("bf16_n256_registers", 256, 64, ml_dtypes.bfloat16),
        ("e4m3_n64", 64, 128, ml_dtypes.float8_e4m3fn),
        ("e4m3_n128", 128, 128, ml_dtypes.float8_e4m3fn),
    ],
)
def test_every_wgmma_multiplies_exactly(device: Device, name: str, n: int, k: int, dtype: type) -> None:
    # Integers up to 4: sums up to 2048 need 11 bits, which even the 13 bits of Hopper's FP8 accumulation hold.
    rng = np.random.default_rng(6)
    a, b = rng.integers(-4, 5, (64, k)), rng.integers(-4, 5, (n, k))
    out = poison(64, n)
    lay = (lambda matrix: matrix.T) if name.endswith("transposed") else (lambda matrix: matrix)
    args = [np.ascontiguousarray(lay(matrix).astype(dtype)).view(np.uint8) for matrix in (a, b)]
    device.launch(kernel("wgmma", name), LaunchPlan(1, 128), (*args, out))
    assert np.array_equal(out, a @ b.T)
