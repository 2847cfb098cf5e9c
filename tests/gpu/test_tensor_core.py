"""The tensor core's sums on numbers: against fractions aligned, cut and added one by one."""

from __future__ import annotations

import math
import re
from fractions import Fraction

import numpy as np
import pytest

from mlacademy import fp8
from mlacademy.gpu.tensor_core import DEPTH, FRACTION_BITS, accumulate, multiply_add

MANTISSA = {"bf16": 23, "e4m3": 13}


def cut(x: Fraction, unit: Fraction) -> Fraction:
    return math.trunc(x / unit) * unit


def power(x: Fraction) -> int:
    return math.frexp(float(abs(x)))[1] - 1


def one_sum(a: np.ndarray, b: np.ndarray, c: float, kind: str) -> float:
    """For operands that are powers of two times one: a product's exponent is then that of its value."""
    terms = [Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a, b, strict=True)] + [Fraction(c)]
    top = max(power(term) for term in terms if term)
    total = sum(cut(term, Fraction(2) ** (top - FRACTION_BITS[kind])) for term in terms)
    return float(cut(total, Fraction(2) ** (power(total) - MANTISSA[kind]))) if total else 0.0


@pytest.mark.parametrize("kind", list(DEPTH))
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_one_instruction_aligns_cuts_and_adds(kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    low, high = (-6, 8) if kind == "e4m3" else (-20, 20)
    a, b = (np.exp2(rng.integers(low, high, (5, DEPTH[kind]))) * rng.choice([-1, 1], (5, DEPTH[kind])) for _ in "ab")
    c = np.exp2(rng.integers(low, high, (5, 5))).astype(np.float32)
    got = multiply_add(a, b, c, kind=kind)
    expected = [
        [one_sum(x, y, float(z), kind) for y, z in zip(b, row, strict=True)] for x, row in zip(a, c, strict=True)
    ]
    assert got.tolist() == expected


def test_products_far_below_an_fp8_accumulator_are_lost_until_promoted() -> None:
    a, b = np.full((1, 256), 2.0**-5), np.full((1, 256), 2.0**-5)
    a[0, 0], b[0, 0] = 4.0, 4.0
    one, promoted = (accumulate(a, b, kind="e4m3", promote=every)[0, 0] for every in (None, 128))
    assert one == 16.0
    assert promoted == 16.0 + 128 * 2.0**-10
    assert accumulate(a, b, kind="bf16")[0, 0] == accumulate(a, b, kind="e4m3", plain=True)[0, 0] == 16 + 255 / 1024


@pytest.mark.parametrize("kind", list(DEPTH))
def test_small_integers_are_summed_exactly(kind: str) -> None:
    rng = np.random.default_rng(4)
    a, b = rng.integers(-2, 3, (7, 160)), rng.integers(-2, 3, (9, 160))
    assert np.array_equal(accumulate(a, b, kind=kind, promote=32), a @ b.T)


def test_the_first_instruction_has_no_addend() -> None:
    a = fp8.round_bf16(np.random.default_rng(5).normal(size=(3, 16)).astype(np.float32))
    assert np.array_equal(accumulate(a, a), multiply_add(a, a, np.zeros((3, 3))))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: multiply_add([[0.1] * 16], [[1] * 16]), "a must hold bf16 numbers: a[0, 0] is 0.1"),
        (
            lambda: multiply_add([[1] * 32], [[1] * 31 + [17]], kind="e4m3"),
            "b must hold e4m3 numbers: b[0, 31] is 17.0",
        ),
        (lambda: multiply_add([[1] * 8], [[1] * 8]), "a must be [rows, 16] for bf16, got [1, 8]"),
        (lambda: multiply_add([[1]], [[1]], kind="int4"), "kind must be one of bf16, e4m3, got 'int4'"),
        (
            lambda: accumulate(np.ones((1, 24)), np.ones((1, 24))),
            "K and promote must be multiples of 16 for bf16, got 24",
        ),
    ],
)
def test_wrong_operands_are_refused(call, sentence: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=re.escape(sentence)):
        call()
