"""Descriptors and the addresses that they mean, against their definitions spelled out another way."""

from __future__ import annotations

import doctest
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlacademy.gpu import wgmma
from mlacademy.gpu.shared_memory import swizzle as swizzle_of
from mlacademy.gpu.wgmma import SPANS, Descriptor

sixteens = st.integers(0, (1 << 14) - 1).map(lambda units: 16 * units)
descriptors = st.builds(Descriptor, sixteens, sixteens, sixteens, st.integers(0, 7), st.sampled_from(list(SPANS)))


def test_the_examples_in_the_docstrings_hold() -> None:
    assert doctest.testmod(wgmma).failed == 0


@given(descriptors)
def test_a_descriptor_survives_its_bits(descriptor: Descriptor) -> None:
    assert Descriptor.from_bits(descriptor.bits) == descriptor


@given(descriptors)
def test_each_field_lies_in_its_own_bits(descriptor: Descriptor) -> None:
    text = f"{descriptor.bits:064b}"
    field = {first: int(text[63 - last : 64 - first], 2) for first, last in ((0, 13), (16, 29), (32, 45), (49, 51))}
    assert [16 * field[first] for first in (0, 16, 32)] == [descriptor.start, descriptor.leading, descriptor.stride]
    assert field[49] == descriptor.base
    assert {"00": "none", "01": "128B", "10": "64B", "11": "32B"}[text[:2]] == descriptor.swizzle


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"start": 8}, "start must be a multiple of 16 from 0 to 262,128, got 8"),
        ({"start": 0, "stride": 1 << 18}, "stride must be a multiple of 16 from 0 to 262,128, got 262,144"),
        ({"start": 0, "swizzle": "256B"}, "swizzle must be one of none, 128B, 64B, 32B, got '256B'"),
        ({"start": 0, "base": 8}, "base must be 0 to 7, got 8"),
    ],
)
def test_a_field_that_does_not_fit_is_refused(wrong: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        Descriptor(**wrong)  # type: ignore[arg-type]


def test_bits_outside_the_fields_are_refused() -> None:
    with pytest.raises(ValueError, match="bits outside the five fields must be 0, got 0x4000 of"):
        Descriptor.from_bits(1 << 14)


@pytest.mark.parametrize("swizzle", ["32B", "64B", "128B"])
@pytest.mark.parametrize("start", [0, 1024, 5120])
@pytest.mark.parametrize(("rows", "dtype"), [(64, np.uint16), (24, np.uint8), (8, np.uint32)])
def test_k_major_tiles_lie_as_rows_of_one_span(swizzle: str, start: int, rows: int, dtype: type) -> None:
    """What a tensor copy leaves: dense rows, one span each, then the permutation of the address."""
    span = SPANS[swizzle]
    tile = np.random.default_rng(rows).integers(0, 200, (rows, span // np.dtype(dtype).itemsize)).astype(dtype)
    image = np.zeros(16384, np.uint8)
    for position, byte in enumerate(tile.tobytes()):
        image[swizzle_of(start + position, swizzle)] = byte
    descriptor = Descriptor(start, stride=8 * span, swizzle=swizzle)
    assert np.array_equal(wgmma.read_tile(image, tile.shape, dtype, descriptor), tile)
    slice_bytes = 32
    columns = slice_bytes // tile.itemsize
    for step in range(span // slice_bytes):  # the slice: only the start moves
        got = wgmma.read_tile(image, (rows, columns), dtype, descriptor.advanced(step * slice_bytes))
        assert np.array_equal(got, tile[:, step * columns : (step + 1) * columns])


def test_without_swizzle_a_tile_is_core_matrices_of_8_rows_of_16_bytes() -> None:
    tile = np.arange(16 * 24, dtype=np.uint16).reshape(16, 24)
    image = np.zeros(2048, np.uint8)
    wgmma.write_tile(image, tile, Descriptor(256, leading=128, stride=3 * 128))
    core = image[256 : 256 + 6 * 128].view(np.uint16).reshape(2, 3, 8, 8)  # groups of rows, of K, row, k
    assert np.array_equal(core.transpose(0, 2, 1, 3).reshape(16, 24), tile)


@pytest.mark.parametrize("swizzle", list(SPANS))
def test_the_same_bytes_are_k_major_for_one_product_and_mn_major_for_another(swizzle: str) -> None:
    """A tile of tokens by dimensions: keys are K-major, values MN-major, in one place."""
    span = SPANS[swizzle]
    tokens = np.random.default_rng(3).integers(0, 60000, (32, span // 2)).astype(np.uint16)
    image = np.zeros(8192, np.uint8)
    keys = Descriptor(1024, stride=8 * span, swizzle=swizzle)
    wgmma.write_tile(image, tokens, keys)
    values = Descriptor(1024, leading=8 * span, stride=8 * span, swizzle=swizzle)
    got = wgmma.read_tile(image, (span // 2, 32), np.uint16, values, major="MN")
    assert np.array_equal(got, tokens.T)


def test_a_tile_beyond_the_image_is_refused() -> None:
    with pytest.raises(ValueError, match="the descriptor reaches byte 9,216, the image ends after 4,096"):
        wgmma.read_tile(np.zeros(4096, np.uint8), (64, 64), np.uint16, Descriptor(1024, swizzle="128B"))


@pytest.mark.parametrize(("major", "shape"), [("K", (12, 16)), ("MN", (16, 12)), ("K", (8, 12))])
def test_shapes_that_cut_core_matrices_are_refused(major: str, shape: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=f"a {major}-major tile of 2-byte elements has a multiple of"):
        wgmma.addresses(Descriptor(0), *shape, major=major)  # type: ignore[arg-type]


def test_registers_become_the_matrix_that_the_manual_draws() -> None:
    registers = np.arange(128 * 8).reshape(128, 8)
    matrix = wgmma.matrix_of(registers)
    assert matrix.shape == (64, 16)
    places = [(1, 2), (1, 3), (9, 2), (9, 3), (1, 10), (1, 11), (9, 10), (9, 11)]  # of thread 5, in order
    assert [matrix[place] for place in places] == registers[5].tolist()
    assert matrix[48, 0] == registers[96, 0]
    assert sorted(matrix.flat) == list(range(1024))


def test_registers_of_fewer_threads_are_refused() -> None:
    with pytest.raises(ValueError, match="one line a thread; got 64 lines"):
        wgmma.matrix_of(np.zeros((64, 4)))
