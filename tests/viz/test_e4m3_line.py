"""The number line rounds as exact arithmetic over all codes does, and says why."""

from __future__ import annotations

import bisect
import math
from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from svg_reading import details, numbers, written

from mlacademy.viz.e4m3_line import number_line, rounding_of
from mlacademy.viz.numbers import short


def value_of(code: int) -> Fraction:
    exponent, mantissa = code >> 3 & 15, code & 7
    size = Fraction(mantissa, 8) / 64 if exponent == 0 else (1 + Fraction(mantissa, 8)) * Fraction(2) ** (exponent - 7)
    return -size if code & 0x80 else size


CODES = [c for c in range(256) if c & 0x7F != 0x7F]
SIZES = [value_of(c) for c in range(0x7F)]  # rising, the index is the code


def nearest(x: Fraction) -> tuple[int, bool]:
    """The code without sign nearest to |x|, the even one of two equally near; whether there were two."""
    above = bisect.bisect_left(SIZES, abs(x))
    if above == len(SIZES):
        return 0x7E, False
    if above == 0 or SIZES[above] == abs(x):
        return above, False
    up, down = SIZES[above] - abs(x), abs(x) - SIZES[above - 1]
    if up == down:
        return above - (above & 1), True
    return (above if up < down else above - 1), False


@given(st.floats(-600, 600), st.integers(-13, 8))
@example(17.0, 0)
@example(464.0, 0)
@example(464.0000000001, 0)
@example(2.0**-10, 0)
@example(-(2.0**-10), 0)
@example(5e-324, 0)
@example(5e-324, 1)
def test_rounding_is_that_of_exact_arithmetic(value: float, exponent: int) -> None:
    scale = 2.0**exponent
    r = rounding_of(value, scale)
    x = Fraction(value) / Fraction(scale)
    if abs(x) <= 464:
        size, tie = nearest(x)
        assert r.code & 0x7F == size
        assert r.decoded == float(value_of(r.code))
        assert r.tie == (tie or abs(x) == 464)
    else:
        assert r.code & 0x7F == 0x7E
        assert math.isnan(rounding_of(value, scale, "nan").decoded)
    magnitude = abs(x)
    region = (
        "zero"
        if magnitude == 0
        else "subnormal"
        if magnitude < Fraction(1, 64)
        else "normal"
        if magnitude <= 448
        else "overflow"
    )
    assert r.region == region


@pytest.mark.parametrize("code", CODES)
def test_every_code_is_its_own_rounding(code: int) -> None:
    value = float(value_of(code))
    r = rounding_of(value if code != 0x80 else -0.0)
    assert (r.code, r.tie, r.scaled) == (code, False, value)
    assert f"0x{code:02X}" in number_line(value if code != 0x80 else -0.0).text


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (17.0, "halfway between two codes; the code with the even mantissa wins: 16 (code 0x58)."),
        (19.0, "halfway between two codes; the code with the even mantissa wins: 20 (code 0x5A)."),
        (16.0, "an E4M3 value: code 0x58, no rounding."),
        (17.1, "rounds to the nearest code, 18 (code 0x59)."),
        (464.0, "halfway between two codes; 448 keeps it: 448 (code 0x7E)."),
        (470.0, "beyond the largest value: it saturates to 448 (code 0x7E)."),
        (450.0, "rounds to the nearest code, 448 (code 0x7E)."),
        (0.0, "an E4M3 value: code 0x00, no rounding."),
    ],
)
def test_verdict_names_the_reason(value: float, sentence: str) -> None:
    assert sentence in number_line(value).text


def test_overflow_can_become_nan() -> None:
    text = number_line(-500.0, overflow="nan").text
    assert "it becomes NaN" in text
    assert "all exponent and mantissa bits set: NaN" in text


def test_drawing_shows_the_bits_of_the_code() -> None:
    picture = number_line(0.3, scale=2.0**-7)
    bits = "".join(t for t in written(picture.svg) if t in ("0", "1"))
    assert "01100010" in bits  # 0x62: 1.25 · 2^5 = 40, and 0.3 / 2^-7 = 38.4
    assert "Read back: 40 × 0.0078125 = 0.3125; error 0.0125 (4.17 % of the value)." in picture.text


@settings(max_examples=30)
@given(st.floats(-700, 700))
def test_twin_contains_the_values_around(value: float) -> None:
    picture = number_line(value)
    r = rounding_of(value)
    for v in (r.below, r.above):
        if math.isfinite(v):
            assert short(v, 6) in picture.text
    assert numbers(" ".join(written(picture.svg))) <= numbers(picture.text)


def test_four_codes_are_shown_at_either_end() -> None:
    for value in (448.0, -448.0, 0.0, 447.0, -447.0):
        assert sum("mantissa" in d and d.startswith("code 0x") for d in details(number_line(value).svg)) == 4


@pytest.mark.parametrize(("sign", "nan"), [(1, "0x7F"), (-1, "0xFF")])
def test_beyond_the_last_code_the_missing_value_and_its_tie_are_shown(sign: int, nan: str) -> None:
    sentences = details(number_line(sign * 460.0).svg)
    minus = "−" if sign < 0 else ""
    assert f"{minus}480 would be code {nan}, but that is NaN" in sentences
    assert f"tie point {minus}464" in sentences


def test_wrong_arguments_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="value must be a finite number: it is nan"):
        number_line(math.nan)
    with pytest.raises(ValueError, match="scale must be finite and above 0, it is the multiplier on read: it is 0"):
        number_line(1.0, scale=0)
    with pytest.raises(ValueError, match="overflow must be 'saturate' or 'nan'"):
        number_line(1.0, overflow="wrap")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="value / scale must be finite"):
        number_line(1e308, scale=1e-10)
