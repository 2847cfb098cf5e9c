"""E4M3, E8M0 and bfloat16 against exact rational arithmetic, ml_dtypes and torch; both implementations."""

from __future__ import annotations

import bisect
import doctest
import itertools
import subprocess
import sys
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlacademy import _native, fp8

CODES = np.arange(256, dtype=np.uint8)
FINITE = [code for code in range(128) if code != 0x7F]


@pytest.fixture(params=["native", "twin"], autouse=True)
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every test of this file runs on the compiled loops and on their NumPy twins."""
    monkeypatch.setenv("MLACADEMY_NATIVE", "1" if request.param == "native" else "0")
    assert (_native.core() is None) == (request.param == "twin")
    return str(request.param)


def exact_value(code: int) -> Fraction:
    """The definition of E4M3 in rational numbers, sign apart."""
    exponent, mantissa = code >> 3 & 0xF, code & 0x7
    if exponent == 0:
        return Fraction(mantissa, 8) / 2**6
    return (1 + Fraction(mantissa, 8)) * Fraction(2) ** (exponent - 7)


def exact_encode(x: Fraction, overflow: str) -> int:
    """Nearest even among all values by exact distances; 480 stands for the first value that does not exist."""
    low = bisect.bisect_right(GRID, min(abs(x), GRID[-1])) - 1
    high = min(low + 1, 127)
    best = min(low, high, key=lambda code: (abs(GRID[code] - abs(x)), code % 2))
    if best == 127:
        best = 0x7E if overflow == "saturate" else 0x7F
    return best | (0x80 if x < 0 else 0)


VALUES = [exact_value(code) for code in FINITE]
GRID = [*VALUES, Fraction(480)]
TIES = [(low + high) / 2 for low, high in itertools.pairwise(GRID)]


def around(points: list[Fraction]) -> np.ndarray:
    """Each point (a float32) with its float32 neighbours, both signs."""
    middle = np.array([float(p) for p in points], dtype=np.float32)
    both = np.concatenate([np.nextafter(middle, np.float32(-np.inf)), middle, np.nextafter(middle, np.float32(np.inf))])
    return np.concatenate([both, -both])


def test_every_code_decodes_to_its_definition() -> None:
    decoded = fp8.decode_e4m3(CODES)
    assert decoded.dtype == np.float32
    for code in range(256):
        if code & 0x7F == 0x7F:
            assert np.isnan(decoded[code])
        else:
            assert Fraction(float(decoded[code])) == exact_value(code) * (-1 if code & 0x80 else 1)
            assert np.signbit(decoded[code]) == bool(code & 0x80)  # 0x80 is minus zero


def test_constants_are_the_codes_they_name() -> None:
    assert fp8.decode_e4m3(0x7E) == fp8.E4M3_MAX
    assert fp8.decode_e4m3(0x08) == fp8.E4M3_MIN_NORMAL
    assert fp8.decode_e4m3(0x01) == fp8.E4M3_MIN_SUBNORMAL
    assert np.isnan(fp8.decode_e4m3(fp8.E4M3_NAN))


def test_every_code_survives_a_round_trip() -> None:
    expected = np.where(CODES & 0x7F == 0x7F, fp8.E4M3_NAN, CODES)
    np.testing.assert_array_equal(fp8.encode_e4m3(fp8.decode_e4m3(CODES)), expected)


@pytest.mark.parametrize("overflow", ["saturate", "nan"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_tie_and_its_neighbours_round_exactly(overflow: str, dtype: type) -> None:
    x = around(TIES + VALUES).astype(dtype)
    expected = [exact_encode(Fraction(float(v)), overflow) for v in x]
    # Fraction has no minus zero: its sign is taken from the input.
    expected = np.array(expected, dtype=np.uint8) | np.where(np.signbit(x), 0x80, 0).astype(np.uint8)
    np.testing.assert_array_equal(fp8.encode_e4m3(x, overflow=overflow), expected)


@pytest.mark.parametrize("overflow", ["saturate", "nan"])
def test_large_values_saturate_or_become_nan(overflow: str) -> None:
    top = {"saturate": 0x7E, "nan": 0x7F}[overflow]
    x = np.array([448, 464, np.nextafter(np.float32(464), np.float32(500)), 480, 1e30, 3e38, np.inf], np.float32)
    np.testing.assert_array_equal(fp8.encode_e4m3(x, overflow=overflow), [0x7E, 0x7E, top, top, top, top, top])
    np.testing.assert_array_equal(fp8.encode_e4m3(-x, overflow=overflow), [0xFE, 0xFE] + [top | 0x80] * 5)


@pytest.mark.parametrize("overflow", ["saturate", "nan"])
def test_nan_of_either_sign_and_any_payload_is_one_code(overflow: str) -> None:
    patterns = np.array([0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF], dtype=np.uint32).view(np.float32)
    np.testing.assert_array_equal(fp8.encode_e4m3(patterns, overflow=overflow), [0x7F] * 4)


def test_float64_is_rounded_once() -> None:
    above_a_tie = 17 + 2.0**-40  # as float32 this is the tie 17, which goes down to 16
    assert fp8.encode_e4m3(np.float32(above_a_tie)) == fp8.encode_e4m3(16.0)
    assert fp8.encode_e4m3(above_a_tie) == fp8.encode_e4m3(18.0)


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=64))
def test_any_float32_pattern_encodes_alike_in_both_implementations(patterns: list[int]) -> None:
    x = np.array(patterns, dtype=np.uint32).view(np.float32)
    native = _native._loaded
    assert native is not None
    for saturate in (True, False):
        np.testing.assert_array_equal(native.encode_e4m3(x, saturate), fp8._encode_e4m3_twin(x, saturate))


def test_agrees_with_ml_dtypes_including_its_overflow() -> None:
    rng = np.random.default_rng(1)
    x = np.concatenate(
        [around(TIES), rng.normal(size=5000), rng.normal(size=5000) * 2.0 ** rng.integers(-14, 12, 5000)]
    )
    x = np.concatenate([x.astype(np.float32), np.array([np.inf, -np.inf, 1e9, -1e9], np.float32)])
    theirs = x.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    np.testing.assert_array_equal(fp8.encode_e4m3(x, overflow="nan"), theirs)
    np.testing.assert_array_equal(fp8.decode_e4m3(CODES), CODES.view(ml_dtypes.float8_e4m3fn).astype(np.float32))


def test_agrees_with_torch_in_range_and_on_codes() -> None:
    rng = np.random.default_rng(2)
    x = np.concatenate([around(TIES[:-1]), rng.normal(size=5000).astype(np.float32) * 100]).astype(np.float32)
    x = x[np.abs(x) <= 464]
    theirs = torch.from_numpy(x).to(torch.float8_e4m3fn)
    np.testing.assert_array_equal(fp8.encode_e4m3(x), theirs.view(torch.uint8).numpy())
    beyond = np.array([464, 465, 480, 1e9, np.inf, -465, -np.inf], np.float32)
    theirs = torch.from_numpy(beyond).to(torch.float8_e4m3fn).view(torch.uint8).numpy()
    modes = [fp8.encode_e4m3(beyond, overflow=overflow).tolist() for overflow in ("saturate", "nan")]
    assert theirs.tolist() in modes  # torch saturates from release 2.12 on, and gave NaN before
    decoded = fp8.decode_e4m3(torch.arange(256).to(torch.uint8).view(torch.float8_e4m3fn))
    torch.testing.assert_close(
        decoded, torch.arange(256).to(torch.uint8).view(torch.float8_e4m3fn).float(), rtol=0, atol=0, equal_nan=True
    )


def test_answers_come_in_the_kind_of_the_question() -> None:
    assert isinstance(fp8.encode_e4m3(1.0), int)
    assert isinstance(fp8.decode_e4m3(0x38), float)
    assert isinstance(fp8.decode_e4m3(np.uint8(0x38)), np.float32)
    assert fp8.decode_e4m3(np.zeros((2, 0, 3), np.uint8)).shape == (2, 0, 3)
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int32):
        codes = fp8.encode_e4m3(torch.tensor([[1, 2], [3, 4]], dtype=dtype))
        assert codes.dtype == torch.uint8
        assert codes.tolist() == [[0x38, 0x40], [0x44, 0x48]]
    assert fp8.encode_e4m3(np.float16(1.0)) == 0x38
    strided = np.arange(12, dtype=np.float32).reshape(3, 4).T
    np.testing.assert_array_equal(fp8.decode_e4m3(fp8.encode_e4m3(strided)), strided)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(TypeError, match="codes must be integers, one byte each: its dtype is float64"):
        fp8.decode_e4m3(0.5)
    with pytest.raises(ValueError, match=r"codes must be bytes, 0 to 255: codes\[1\] is 256"):
        fp8.decode_e4m3([3, 256])
    with pytest.raises(ValueError, match="codes must be bytes, 0 to 255: codes is -1"):
        fp8.decode_e8m0(-1)
    with pytest.raises(ValueError, match="overflow must be 'saturate' or 'nan': it is 'wrap'"):
        fp8.encode_e4m3(1.0, overflow="wrap")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="x must be real numbers: its dtype is complex128"):
        fp8.encode_e4m3(1j)
    with pytest.raises(TypeError, match="x must be numbers: it is list"):
        fp8.encode_e4m3([None])
    with pytest.raises(TypeError, match=r"its dtype is torch.float8_e4m3fn. Decode it first"):
        fp8.encode_e4m3(torch.zeros(1, dtype=torch.float8_e4m3fn))


# E8M0


def test_every_e8m0_code_is_its_power_of_two() -> None:
    decoded = fp8.decode_e8m0(CODES)
    assert [Fraction(float(v)) for v in decoded[:255]] == [Fraction(2) ** (code - 127) for code in range(255)]
    assert np.isnan(decoded[255])
    for rounding in ("up", "nearest", "down"):
        np.testing.assert_array_equal(fp8.encode_e8m0(decoded, rounding=rounding), CODES)


def exact_power(x: Fraction, rounding: str) -> int:
    """The exponent by comparisons of rationals."""
    low = -1100
    while Fraction(2) ** (low + 1) <= x:
        low += 1
    exact, middle = Fraction(2) ** low == x, Fraction(2) ** low * Fraction(3, 2)
    if rounding == "down" or exact:
        return low
    return low + 1 if rounding == "up" or x >= middle else low


@pytest.mark.parametrize("rounding", ["up", "nearest", "down"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_e8m0_rounds_exactly_next_to_powers_and_midpoints(rounding: str, dtype: type) -> None:
    powers = np.array([2.0**k for k in (-127, -126, -125, -30, -13, -1, 0, 1, 2, 30, 126)], dtype=dtype)
    points = np.concatenate([powers, powers * dtype(1.5)])
    x = np.concatenate([np.nextafter(points, dtype(0)), points, np.nextafter(points, dtype(np.inf))])
    x = x[x >= dtype(2.0**-127)]
    expected = [exact_power(Fraction(float(v)), rounding) + 127 for v in x]
    np.testing.assert_array_equal(fp8.encode_e8m0(x, rounding=rounding), expected)


def test_rounding_up_survives_where_float_log2_does_not() -> None:
    x = np.nextafter(np.float32(2.0**-9), np.float32(1))
    assert 2.0 ** np.ceil(np.log2(x)) == 2.0**-9  # below x: codes would overflow
    assert fp8.decode_e8m0(fp8.encode_e8m0(x)) == 2.0**-8


def test_e8m0_agrees_with_torch_and_ml_dtypes_to_nearest() -> None:
    x = np.abs(np.random.default_rng(3).normal(size=4000)).astype(np.float32) * np.float32(2.0) ** np.arange(
        -50, 50, 0.025
    )
    x = x.astype(np.float32)
    ours = fp8.encode_e8m0(x, rounding="nearest")
    np.testing.assert_array_equal(ours, torch.from_numpy(x).to(torch.float8_e8m0fnu).view(torch.uint8).numpy())
    np.testing.assert_array_equal(ours, x.astype(ml_dtypes.float8_e8m0fnu).view(np.uint8))


def test_e8m0_has_ends() -> None:
    tiny, largest = np.float32(2.0**-149), np.float32(2.0**127)
    assert fp8.encode_e8m0(tiny, rounding="up") == 0
    assert fp8.encode_e8m0(largest, rounding="up") == 254
    assert fp8.encode_e8m0(np.float32(1.8 * 2.0**-128), rounding="nearest") == 0
    for x, rounding in (
        (tiny, "down"),
        (tiny, "nearest"),
        (np.float32(2.5e38), "up"),
        (np.float32(2.0e38) * 1.5, "up"),
    ):
        with pytest.raises(ValueError, match=rf"x must round {rounding} to a power of two from 2\^-127 to 2\^127"):
            fp8.encode_e8m0(x, rounding=rounding)
    for x in (0.0, -1.0, np.inf, -np.inf):
        with pytest.raises(ValueError, match=r"x must be positive and finite.*x\[1\] is"):
            fp8.encode_e8m0(np.array([1.0, x]))
    with pytest.raises(ValueError, match="rounding must be 'up', 'nearest' or 'down': it is 'even'"):
        fp8.encode_e8m0(1.0, rounding="even")  # type: ignore[arg-type]


# bfloat16


def test_bf16_rounds_as_torch_does() -> None:
    rng = np.random.default_rng(4)
    bits = rng.integers(0, 2**32, 20000, dtype=np.uint32)
    ties = rng.integers(0, 2**16, 2000, dtype=np.uint32) << 16 | 0x8000
    x = np.concatenate([bits, ties, ties + 1, ties - 1]).view(np.float32)
    theirs = torch.from_numpy(x).to(torch.bfloat16).float().numpy()
    np.testing.assert_array_equal(fp8.round_bf16(x), theirs)


def test_bf16_of_float64_is_rounded_once() -> None:
    assert fp8.round_bf16(1 + 2.0**-8 + 2.0**-40) == 1 + 2.0**-7


# Tiles


@pytest.mark.parametrize(
    ("rule", "smallest"), [(fp8.V32_RULE, -13), (fp8.MODEL1_RULE, -13), (fp8.DEEPGEMM_RULE, -22)], ids=lambda r: str(r)
)
def test_the_scale_is_the_smallest_power_that_holds_amax(rule: fp8.TileRule, smallest: int) -> None:
    assert rule.scale(0.0) == 2.0**smallest
    for power in (-12, -9, 0, 5):
        edge = 448 * 2.0**power
        assert rule.scale(edge) == 2.0**power
        assert rule.scale(float(np.nextafter(np.float32(edge), np.float32(np.inf)))) == 2.0 ** (power + 1)
        assert rule.scale(float(np.nextafter(np.float32(edge), np.float32(0)))) == 2.0**power


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([fp8.V32_RULE, fp8.MODEL1_RULE]), st.integers(-40, 30))
def test_quantising_is_the_rule_in_exact_arithmetic(seed: int, rule: fp8.TileRule, power: int) -> None:
    rng = np.random.default_rng(seed)
    x = (rng.normal(size=(3, 2 * rule.tile)) * 2.0**power).astype(np.float32)
    x[0, : rule.tile] = 0
    codes, scales = fp8.quantize_tiles(x, rule)
    assert codes.shape == x.shape
    assert scales.shape == (3, 2)
    for row, tile in np.ndindex(3, 2):
        values = [Fraction(float(v)) for v in x[row, tile * rule.tile : (tile + 1) * rule.tile]]
        scale, amax = Fraction(float(scales[row, tile])), max(abs(v) for v in values)
        assert amax <= 448 * scale
        assert scale == Fraction(1, 2**13) or amax > 448 * scale / 2
        sample = range(0, rule.tile, 17)
        got = [int(codes[row, tile * rule.tile + i]) & 0x7F for i in sample]
        assert got == [exact_encode(abs(values[i]) / scale, "saturate") for i in sample]
    restored = fp8.dequantize_tiles(codes, scales)
    # Normal codes are off by at most half of 2^-3 relative; subnormals by half a step of 2^-9 · scale.
    bound = np.maximum(np.abs(x) * 2.0**-4, np.repeat(scales, rule.tile, axis=-1) * 2.0**-10)
    assert (np.abs(restored - x) <= bound).all()


def test_a_value_that_is_not_finite_is_found() -> None:
    for bad in (np.nan, np.inf, -np.inf):
        x = np.zeros((4, 256), dtype=np.float32)
        x[3, 200] = bad
        with pytest.raises(ValueError, match=rf"x must be finite: tile \[3, 1\] holds {bad} at its element 72"):
            fp8.quantize_tiles(x, fp8.V32_RULE)


@pytest.mark.parametrize("shape", [(100,), (2, 0), ()])
def test_the_last_axis_must_be_whole_tiles(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="positive multiple of the tile, 128: its shape is"):
        fp8.quantize_tiles(np.zeros(shape), fp8.V32_RULE)


def test_quantising_torch_gives_torch_and_leaves_the_input() -> None:
    x = torch.randn(2, 3, 128, dtype=torch.bfloat16, generator=torch.Generator().manual_seed(7))
    before = x.clone()
    codes, scales = fp8.quantize_tiles(x, fp8.V32_RULE)
    assert (codes.dtype, codes.shape, scales.dtype, scales.shape) == (
        torch.uint8, torch.Size([2, 3, 128]), torch.float32, torch.Size([2, 3, 1]),
    )  # fmt: skip
    assert torch.equal(x, before)
    # Three mantissa bits: half a step is 2^-4 of a normal value, and 2^-10 of the scale below the smallest normal.
    bound = x.float().abs() * 2.0**-4 + scales * 2.0**-10
    assert ((fp8.dequantize_tiles(codes, scales) - x.float()).abs() <= bound).all()


def test_readers_agree_on_powers_of_two_and_only_there() -> None:
    codes = np.array([0x38, 0x7E, 0x01, 0xB9], np.uint8)  # 1, 448, 2^-9, -1.125
    for read_as in ("float32", "sm90", "sm100"):
        got = fp8.dequantize_tiles(codes, np.float32([2.0**-9]), read_as=read_as)
        np.testing.assert_array_equal(got, np.float32([1, 448, 2.0**-9, -1.125]) * 2.0**-9)
    scale = np.float32([0.75 / 448])  # 0.001674…, not a power of two
    assert fp8.dequantize_tiles(codes[:1], scale, read_as="float32")[0] == scale[0]
    assert fp8.dequantize_tiles(codes[:1], scale, read_as="sm90")[0] == fp8.round_bf16(scale)[0] != scale[0]
    assert fp8.dequantize_tiles(codes[:1], scale, read_as="sm100")[0] == 2.0**-10


def test_dequantising_names_a_wrong_shape_or_reader() -> None:
    with pytest.raises(ValueError, match=r"scales must have the shape of codes.*codes has \(4,\), scales has \(3,\)"):
        fp8.dequantize_tiles(np.zeros(4, np.uint8), np.ones(3))
    with pytest.raises(ValueError, match="read_as must be 'float32', 'sm90' or 'sm100': it is 'bf16'"):
        fp8.dequantize_tiles(np.zeros(4, np.uint8), np.ones(1), read_as="bf16")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="amax must be finite and not negative"):
        fp8.V32_RULE.scale(-1.0)


# Neighbours and statistics


@given(st.floats(-448, 448))
def test_neighbours_enclose_and_touch(x: float) -> None:
    below, nearest, above = fp8.e4m3_neighbours(x)
    assert below <= x <= above
    assert nearest in (below, above)
    signed = sorted({s * float(v) for v in VALUES for s in (1, -1)})
    assert (below == above) == (x in signed)
    assert not any(below < v < above for v in signed)
    assert nearest == fp8.decode_e4m3(fp8.encode_e4m3(x))


def test_neighbours_beyond_the_range_are_infinite() -> None:
    assert fp8.e4m3_neighbours(500.0) == (448.0, 448.0, float("inf"))
    assert fp8.e4m3_neighbours(-500.0) == (float("-inf"), -448.0, -448.0)
    with pytest.raises(ValueError, match="NaN has no neighbours"):
        fp8.e4m3_neighbours(float("nan"))


def test_error_statistics_of_a_known_error() -> None:
    stats = fp8.error_stats([1.0, -2.0, 0.0], [1.1, -2.2, 0.0])  # 10 % everywhere
    assert stats.max_abs == pytest.approx(0.2)
    assert stats.max_rel == pytest.approx(0.1)
    assert stats.rms_rel == pytest.approx(0.1)
    assert stats.cosine == pytest.approx(1.0)
    assert stats.calc_diff == pytest.approx(1 - 2 * 1.1 / (1 + 1.21))
    assert fp8.error_stats([0.0], [0.0]) == fp8.ErrorStats(0.0, 0.0, 0.0, 1.0, 0.0)
    assert fp8.error_stats([0.0], [1.0]).rms_rel == float("inf")


def test_error_statistics_refuse_what_has_no_answer() -> None:
    with pytest.raises(ValueError, match=r"one shape with elements: they have \(2,\) and \(3,\)"):
        fp8.error_stats(np.zeros(2), np.zeros(3))
    with pytest.raises(ValueError, match="must be finite"):
        fp8.error_stats([np.nan], [0.0])


def test_examples_in_the_documentation_hold() -> None:
    assert doctest.testmod(fp8).failed == 0


def test_the_module_does_not_import_torch() -> None:
    command = "import sys, mlacademy.fp8; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", command], check=False).returncode == 0
