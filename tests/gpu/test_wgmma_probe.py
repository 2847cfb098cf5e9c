"""Tiles written by `mlacademy.gpu.wgmma` are what a multiply on the device reads: the probe kernel, every layout."""

from __future__ import annotations

import numpy as np
import pytest

from mlacademy import gpu
from mlacademy.gpu.wgmma import SPANS, Descriptor, matrix_of, write_tile

pytestmark = pytest.mark.usefixtures("compiler")
A_BASE, B_BASE, BYTES = 8192, 32_768, 65_536


def codes(matrix: np.ndarray) -> np.ndarray:
    return (matrix.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def multiply(kernel: str, image: np.ndarray, pairs: list[tuple[Descriptor, Descriptor]]) -> np.ndarray:
    bits = np.array([[a.bits, b.bits] for a, b in pairs], np.uint64)
    d = np.full((128, 32), np.nan, np.float32)
    plan = gpu.LaunchPlan(grid=1, block=128, smem_bytes=image.size)
    gpu.Device("emulator").launch(gpu.compile("wgmma_probe.cu")[kernel], plan, (image, image.size, bits, d))
    return matrix_of(d)


def k_major(base: int, swizzle: str) -> list[Descriptor]:
    """Four slices of a tile 64 deep: neighbouring columns of spans lie 8192 bytes apart."""
    if swizzle == "none":
        return [Descriptor(base + 256 * step, leading=128, stride=1024) for step in range(4)]
    span = SPANS[swizzle]
    return [
        Descriptor(base + 32 * step // span * 4096 + 32 * step % span, stride=8 * span, swizzle=swizzle)
        for step in range(4)
    ]


@pytest.mark.parametrize("a_swizzle", list(SPANS))
@pytest.mark.parametrize("b_swizzle", list(SPANS))
def test_k_major_tiles_of_any_two_swizzles_multiply(a_swizzle: str, b_swizzle: str) -> None:
    rng = np.random.default_rng(5)
    a, b = rng.integers(-4, 5, (2, 64, 64))
    image = rng.integers(0, 100, BYTES).astype(np.uint8)
    pairs = list(zip(k_major(A_BASE, a_swizzle), k_major(B_BASE, b_swizzle), strict=True))
    for step, pair in enumerate(pairs):
        for matrix, descriptor in zip((a, b), pair, strict=True):
            write_tile(image, codes(matrix[:, 16 * step : 16 * step + 16]), descriptor)
    assert np.array_equal(multiply("wgmma_probe", image, pairs), a @ b.T)


@pytest.mark.parametrize("swizzle", list(SPANS))
def test_n_major_tiles_multiply(swizzle: str) -> None:
    rng = np.random.default_rng(6)
    a, b = rng.integers(-4, 5, (2, 64, 64))
    image = rng.integers(0, 100, BYTES).astype(np.uint8)
    span = SPANS[swizzle]
    if swizzle == "none":
        told = [Descriptor(B_BASE + 256 * step, leading=128, stride=1024) for step in range(4)]
    else:
        told = [
            Descriptor(B_BASE + 16 * span * step, leading=64 * span, stride=8 * span, swizzle=swizzle)
            for step in range(4)
        ]
    pairs = list(zip(k_major(A_BASE, "128B"), told, strict=True))
    for step, (left, right) in enumerate(pairs):
        write_tile(image, codes(a[:, 16 * step : 16 * step + 16]), left)
        write_tile(image, codes(b[:, 16 * step : 16 * step + 16]), right, major="MN")
    assert np.array_equal(multiply("wgmma_probe_n", image, pairs), a @ b.T)
