"""Conversions, directed rounding and the .approx functions, by opcode, against neighbours, fractions and an H200."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensor_oracle import power_below

from mlacademy._emulator import numerics

# Every code of a format as the value it stands for, by an independent library.
with np.errstate(invalid="ignore"):  # signalling NaN
    VALUES = {
        "f16": np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float64),
        "bf16": np.arange(2**16, dtype=np.uint16).view(ml_dtypes.bfloat16).astype(np.float64),
        "e4m3": np.arange(2**8, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float64),
        "e5m2": np.arange(2**8, dtype=np.uint8).view(ml_dtypes.float8_e5m2).astype(np.float64),
    }
ROUNDINGS = ("rn", "rz", "rm", "rp")


def f32(bits: np.ndarray | int) -> np.ndarray:
    return np.asarray(bits, np.uint32).view(np.float32)


def rounded(kind: str, x: np.ndarray, rounding: str, *, satfinite: bool = False) -> np.ndarray:
    """Codes of the neighbour that the rounding picks among all values of the format. x: finite float64, exact."""
    values = VALUES[kind]
    half = values.size // 2  # codes with the sign bit clear come first
    ladder = values[:half][np.isfinite(values[:half])]
    beyond = 2 * ladder[-1] - ladder[-2]  # where the next value would lie: infinity stands there for nearest even
    ladder = np.append(ladder, beyond)
    size, negative = np.abs(x), np.signbit(x)
    below = np.clip(np.searchsorted(ladder, size, side="right") - 1, 0, ladder.size - 1)
    above = np.minimum(below + 1, ladder.size - 1)
    exact = ladder[below] == size
    middle = (ladder[below] + ladder[above]) / 2
    nearest = np.where((size > middle) | ((size == middle) & (below % 2 == 1)), above, below)
    outward = np.where(exact, below, above)
    inward = np.minimum(below, ladder.size - 2)
    code = {
        "rn": np.where(exact, below, nearest),
        "rz": inward,
        "rm": np.where(negative, outward, inward),
        "rp": np.where(negative, inward, outward),
    }[rounding]
    if satfinite:
        code = np.minimum(code, ladder.size - 2)
    return code | np.where(negative, half, 0)


def hard_floats(kind: str) -> np.ndarray:
    """f32 values at every value of a format, at every midpoint, and one f32 to both sides of each."""
    values = np.unique(VALUES[kind][np.isfinite(VALUES[kind])])
    if kind == "bf16":  # every f32 step is finer: the neighbours of a sample will do
        values = np.unique(np.concatenate([values[::7], values[:600], values[-600:]]))
    points = np.concatenate([values, (values[1:] + values[:-1]) / 2])
    points = points[np.abs(points) < 3.4e38].astype(np.float32)
    more = [np.nextafter(points, np.float32(side)) for side in (-np.inf, np.inf)]
    return np.concatenate([points, *more, f32([0, 0x8000_0000, 1, 0x8000_0001, 0x7F7F_FFFF, 0xFF7F_FFFF])])


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_narrowing_takes_the_right_neighbour(kind: str, rounding: str) -> None:
    x = hard_floats(kind)
    x = x[np.isfinite(x)]
    got = numerics.scalar(f"cvt.{rounding}.{kind}.f32", x.view(np.uint32))
    np.testing.assert_array_equal(got, rounded(kind, x.astype(np.float64), rounding))


@pytest.mark.parametrize("rounding", ["rn", "rz"])
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_satfinite_stops_at_the_largest_value(kind: str, rounding: str) -> None:
    x = hard_floats(kind)
    x = x[np.isfinite(x)]
    got = numerics.scalar(f"cvt.{rounding}.satfinite.{kind}.f32", x.view(np.uint32))
    np.testing.assert_array_equal(got, rounded(kind, x.astype(np.float64), rounding, satfinite=True))


@pytest.mark.parametrize("kind", ["e4m3", "e5m2"])
@pytest.mark.parametrize("relu", ["", ".relu"])
def test_fp8_pairs_round_both_operands_and_put_the_first_high(kind: str, relu: str) -> None:
    x = hard_floats(kind)
    y = x[::-1].copy()
    got = numerics.scalar(f"cvt.rn.satfinite{relu}.{kind}x2.f32", x.view(np.uint32), y.view(np.uint32))
    high, low = (rounded(kind, v.astype(np.float64), "rn", satfinite=True) for v in (x, y))
    if relu:
        high, low = np.where(np.signbit(x), 0, high), np.where(np.signbit(y), 0, low)
    np.testing.assert_array_equal(got, high << 8 | low)


@pytest.mark.parametrize("kind", ["e4m3", "e5m2"])
def test_fp8_from_every_pair_of_equal_halves(kind: str) -> None:
    codes = np.arange(2**16)
    finite = np.isfinite(VALUES["f16"])
    got = numerics.scalar(f"cvt.rn.satfinite.{kind}x2.f16x2", codes | codes << 16)
    want = rounded(kind, np.where(finite, VALUES["f16"], 0), "rn", satfinite=True)
    np.testing.assert_array_equal(got[finite], (want | want << 8)[finite])


@pytest.mark.parametrize("kind", ["e4m3", "e5m2"])
def test_every_fp8_pair_widens_to_f16(kind: str) -> None:
    codes = np.arange(2**16)
    got = numerics.scalar(f"cvt.rn.f16x2.{kind}x2", codes)
    with np.errstate(invalid="ignore"):
        halves = VALUES[kind].astype(np.float16)
    bits = np.where(np.isnan(halves), 0x7FFF, halves.view(np.uint16)).astype(np.uint64)
    np.testing.assert_array_equal(got, bits[codes >> 8] << 16 | bits[codes & 0xFF])


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_every_16_bit_code_widens_to_its_value(kind: str) -> None:
    got = f32(numerics.scalar(f"cvt.f32.{kind}", np.arange(2**16)).astype(np.uint32))
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(got.astype(np.float64), VALUES[kind])
    assert np.array_equal(np.signbit(got)[VALUES[kind] == 0], [False, True])


@pytest.mark.parametrize(
    ("opcode", "nan"),
    [
        ("cvt.rn.f16.f32", 0x7FFF),
        ("cvt.rn.bf16.f32", 0x7FFF),
        ("cvt.rn.satfinite.f16.f32", 0x7FFF),
        ("cvt.rn.relu.bf16.f32", 0x7FFF),
        ("cvt.rn.tf32.f32", 0x7FFF_E000),
    ],
)
def test_nan_becomes_the_formats_own(opcode: str, nan: int) -> None:
    assert set(numerics.scalar(opcode, [0x7F80_0001, 0xFFC0_0000, 0x7FFF_FFFF])) == {nan}


def test_infinity_stays_unless_satfinite() -> None:
    infinities = [0x7F80_0000, 0xFF80_0000]
    assert list(numerics.scalar("cvt.rn.f16.f32", infinities)) == [0x7C00, 0xFC00]
    assert list(numerics.scalar("cvt.rz.f16.f32", infinities)) == [0x7C00, 0xFC00]
    assert list(numerics.scalar("cvt.rn.satfinite.f16.f32", infinities)) == [0x7BFF, 0xFBFF]
    assert list(numerics.scalar("cvt.rn.satfinite.e4m3x2.f32", infinities, infinities)) == [0x7E7E, 0xFEFE]


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=40))
def test_tf32_rounding_is_that_of_an_f32_with_ten_mantissa_bits(bits: list[int]) -> None:
    finite = [b for b in bits if b & 0x7F80_0000 != 0x7F80_0000] or [0]
    x = np.array(finite, np.uint64)
    rest, kept = x & 0x1FFF, x >> 13
    nearest = kept + ((rest > 0x1000) | ((rest == 0x1000) & (kept & 1 == 1)))
    np.testing.assert_array_equal(numerics.scalar("cvt.rn.tf32.f32", x), nearest << 13)
    np.testing.assert_array_equal(numerics.scalar("cvt.rz.tf32.f32", x), kept << 13)
    np.testing.assert_array_equal(numerics.scalar("cvt.rna.tf32.f32", x), (kept + (rest >= 0x1000)) << 13)


# ---- integers ----

INTEGERS = {"s8": (-(2**7), 2**7 - 1), "u8": (0, 2**8 - 1), "s16": (-(2**15), 2**15 - 1), "u16": (0, 2**16 - 1)}
INTEGERS |= {f"{'s' if low else 'u'}{n}": (-low, 2**n - 1 - low) for n in (32, 64) for low in (0, 2 ** (n - 1))}
WHOLE = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}


@pytest.mark.parametrize("rounding", WHOLE)
@pytest.mark.parametrize("kind", INTEGERS)
def test_float_to_integer_rounds_then_saturates(kind: str, rounding: str) -> None:
    low, high = INTEGERS[kind]
    rng = np.random.default_rng(3)
    edges = [0.5, 1.5, 2.5, 0.49999997, -0.5, -1.5, float(low), float(high), high + 1.0, 1e30, -1e30, 8388607.5]
    x = np.concatenate([np.array(edges, np.float32), rng.uniform(-2 * high, 2 * high, 200).astype(np.float32)])
    got = numerics.scalar(f"cvt.{rounding}.{kind}.f32", x.view(np.uint32))
    width = 64 if kind.endswith("64") else 32
    want = [min(max(WHOLE[rounding](float(v)), low), high) % 2**width for v in x]
    np.testing.assert_array_equal(got, np.array(want, np.uint64))


def test_nan_to_integer_is_zero_or_the_top_bit() -> None:
    nan = np.array([0x7FC0_0000])
    assert numerics.scalar("cvt.rzi.s32.f32", nan)[0] == 0
    assert numerics.scalar("cvt.rzi.u64.f32", nan)[0] == 2**63
    assert numerics.scalar("cvt.rzi.s32.f64", np.array([0x7FF8 << 48], np.uint64))[0] == 2**31


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_integers_narrow_with_one_rounding(kind: str, rounding: str) -> None:
    rng = np.random.default_rng(4)
    n = np.concatenate(
        [rng.integers(-(2**31), 2**31, 300), rng.integers(-70000, 70000, 300), [65519, 65520, 2049, -2051]]
    )
    got = numerics.scalar(f"cvt.{rounding}.{kind}.s32", n.astype(np.int64).view(np.uint64) & 0xFFFF_FFFF)
    np.testing.assert_array_equal(got, rounded(kind, n.astype(np.float64), rounding))


# ---- directed arithmetic ----

finite_bits = st.integers(0, 2**32 - 1).filter(lambda b: b & 0x7F80_0000 != 0x7F80_0000)


def exact_rounding(x: Fraction, rounding: str) -> Fraction:
    """The multiple of the f32 step at x that `rounding` picks. x is not zero; beyond the range the step goes on."""
    unit = Fraction(2) ** (max(power_below(abs(x)), -126) - 23)
    return {"rn": round, "rz": math.trunc, "rm": math.floor, "rp": math.ceil}[rounding](x / unit) * unit


@pytest.mark.parametrize("rounding", ROUNDINGS)
@given(a=finite_bits, b=finite_bits, c=finite_bits)
def test_arithmetic_rounds_the_exact_result_once(rounding: str, a: int, b: int, c: int) -> None:
    x, y, z = (Fraction(float(f32(v))) for v in (a, b, c))
    cases: dict[str, tuple[Fraction, tuple[int, ...]]] = {
        "add": (x + y, (a, b)),
        "mul": (x * y, (a, b)),
        "fma": (x * y + z, (a, b, c)),
    }
    if y != 0:
        cases["div"] = (x / y, (a, b))
    for name, (exact, operands) in cases.items():
        want = exact_rounding(exact, rounding) if exact != 0 else Fraction(0)
        if abs(want) < 2**128:
            got = numerics.scalar(f"{name}.{rounding}.f32", *([v] for v in operands))
            assert Fraction(float(f32(got[0]))) == want, name


@given(st.integers(1, 0x7F7F_FFFF))
def test_square_roots_lie_on_the_right_side(bits: int) -> None:
    x = Fraction(float(f32(bits)))
    down, near, up = (Fraction(float(f32(numerics.scalar(f"sqrt.{r}.f32", [bits])[0]))) for r in ("rm", "rn", "rp"))
    assert down * down <= x <= up * up
    middle = (down + up) / 2
    assert near == (down if x < middle * middle else up)


def test_cancelled_sums_are_negative_zero_only_when_rounding_down() -> None:
    one, minus = [0x3F80_0000], [0xBF80_0000]
    assert [int(numerics.scalar(f"add.{r}.f32", one, minus)[0]) for r in ROUNDINGS] == [0, 0, 0x8000_0000, 0]
    assert numerics.scalar("add.rm.f32", [0x7F80_0000], [0xFF80_0000])[0] == 0x7FFF_FFFF


@given(*(st.integers(0, 0xFFFF) for _ in range(3)))
def test_half_fma_rounds_the_exact_result_once(a: int, b: int, c: int) -> None:
    x, y, z = (VALUES["f16"][v] for v in (a, b, c))
    if not np.all(np.isfinite([x, y, z])):
        return
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    scaled = exact / Fraction(2) ** -24  # float() may round twice: keep 30 bits and a sticky one
    if exact != 0:
        shift = max(abs(scaled.numerator // scaled.denominator).bit_length() - 30, -30)
        whole, rest = divmod(abs(scaled) / Fraction(2) ** shift, 1)
        sticky = math.copysign((2 * whole + (rest != 0)) * 2.0 ** (shift - 25), float(scaled))
        want = rounded("f16", np.array([sticky]), "rn")[0]
        assert numerics.scalar("fma.rn.f16", [a], [b], [c])[0] == want


@pytest.mark.parametrize(
    ("opcode", "a", "b", "want"),
    [
        ("min.f32", 0x0000_0000, 0x8000_0000, 0x8000_0000),  # -0 < +0
        ("max.f32", 0x8000_0000, 0x0000_0000, 0x0000_0000),
        ("max.f32", 0x7FC0_0001, 0xC000_0000, 0xC000_0000),  # a NaN is ignored
        ("max.f32", 0x7FC0_0001, 0xFFC0_0000, 0x7FFF_FFFF),
        ("max.NaN.f32", 0x7FC0_0001, 0x3F80_0000, 0x7FFF_FFFF),
        ("min.ftz.f32", 0x8000_0001, 0x3F80_0000, 0x8000_0000),
        ("max.xorsign.abs.f32", 0xC000_0000, 0x3F80_0000, 0xC000_0000),  # |-2| > |1|, signs differ
        ("min.bf16", 0x7FC0, 0x7FC0, 0x7FFF),
        ("max.f16", 0x3C00, 0x4000, 0x4000),
    ],
)
def test_minimum_and_maximum(opcode: str, a: int, b: int, want: int) -> None:
    assert numerics.scalar(opcode, [a], [b])[0] == want


# ---- the multi-function unit ----


def silicon() -> dict[str, list[str]]:
    text = Path(__file__).with_name("silicon.json").read_text(encoding="utf-8")
    return json.loads(text)["scalar"]


@pytest.mark.parametrize("opcode", silicon())
def test_results_recorded_on_an_h200_are_reproduced(opcode: str) -> None:
    pairs = [line.split() for line in silicon()[opcode]]
    got = numerics.scalar(opcode, [int(a, 16) for a, _ in pairs])
    assert [f"{int(g):x}" for g in got] == [f"{int(want, 16):x}" for _, want in pairs]


@pytest.mark.parametrize(
    ("opcode", "reference", "low", "high", "ulp"),
    [
        ("ex2.approx.ftz.f32", np.exp2, -126.0, 128.0, 2),
        ("rcp.approx.ftz.f32", lambda x: 1 / x, 2.0**-126, 2.0**126, 1),
        ("rsqrt.approx.ftz.f32", lambda x: 1 / np.sqrt(x), 2.0**-126, 3e38, 2),
        ("sqrt.approx.ftz.f32", np.sqrt, 2.0**-126, 3e38, 1),
        ("tanh.approx.f32", np.tanh, 2.0**-7, 8.0, 1),
    ],
)
def test_approximations_stay_within_their_ulp(
    opcode: str, reference: np.ufunc, low: float, high: float, ulp: int
) -> None:
    rng = np.random.default_rng(7)
    x = (
        rng.uniform(low, high, 4000)
        if low < 0 or opcode.startswith("tanh")
        else 2 ** rng.uniform(math.log2(low), math.log2(high), 4000)
    )
    x = x.astype(np.float32)
    got = f32(numerics.scalar(opcode, x.view(np.uint32)).astype(np.uint32)).astype(np.float64)
    exact = reference(x.astype(np.float64))
    step = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
    assert np.max(np.abs(got - exact) / step) <= ulp + 0.5


@pytest.mark.parametrize(
    ("opcode", "operand", "want"),
    [
        ("ex2.approx.ftz.f32", 0x0000_0001, 0x3F80_0000),  # 2^(subnormal) = 1
        ("ex2.approx.f32", 0xC316_0000, 0x0000_0000),  # 2^-150
        ("ex2.approx.f32", 0xC314_0000, 0x0000_0002),  # 2^-148 is subnormal
        ("ex2.approx.ftz.f32", 0xC314_0000, 0x0000_0000),
        ("ex2.approx.f32", 0x4300_0000, 0x7F80_0000),  # 2^128
        ("lg2.approx.f32", 0x8000_0000, 0xFF80_0000),
        ("lg2.approx.f32", 0xBF80_0000, 0x7FFF_FFFF),
        ("lg2.approx.f32", 0x3F80_0000, 0x0000_0000),
        ("lg2.approx.f32", 0x0000_0001, 0xC315_0000),  # log2 of 2^-149
        ("rcp.approx.ftz.f32", 0x0000_0001, 0x7F80_0000),
        ("rcp.approx.f32", 0x0080_0000, 0x7E80_0000),  # 1 / 2^-126
        ("rcp.approx.f32", 0xFF80_0000, 0x8000_0000),
        ("rsqrt.approx.f32", 0x8000_0000, 0xFF80_0000),
        ("rsqrt.approx.f32", 0x4080_0000, 0x3F00_0000),  # 1 / √4
        ("sqrt.approx.f32", 0x8000_0000, 0x8000_0000),
        ("sqrt.approx.f32", 0xBF80_0000, 0x7FFF_FFFF),
        ("sin.approx.f32", 0x7F80_0000, 0x7FFF_FFFF),
        ("tanh.approx.f32", 0xFF80_0000, 0xBF80_0000),
    ],
)
def test_special_operands_of_the_approximations(opcode: str, operand: int, want: int) -> None:
    assert numerics.scalar(opcode, [operand])[0] == want


def test_an_unknown_opcode_is_an_error_that_names_it() -> None:
    with pytest.raises(ValueError, match=r"no opcode 'cvt\.rn\.f8\.f32'"):
        numerics.scalar("cvt.rn.f8.f32", [0])
    with pytest.raises(ValueError, match=r"add\.rn\.f32 takes 2 operands of one size"):
        numerics.scalar("add.rn.f32", [0])
