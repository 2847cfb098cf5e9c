"""The emulator's tensor core against fractions, its own symmetries, and results recorded on an H200."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tensor_oracle import BITS, DEPTH, FLOATS, RULE, dot, value

from mlacademy._emulator import numerics

FLOAT_TYPES = [
    ("f32", "f16", "f16"),
    ("f16", "f16", "f16"),
    ("f32", "bf16", "bf16"),
    ("f32", "tf32", "tf32"),
    *((d, a, b) for d in ("f32", "f16") for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")),
]
Types = tuple[str, str, str]
Draw = Callable[[st.SearchStrategy], object]


def codes_near(rng: np.random.Generator, kind: str, shape: tuple[int, ...], middle: int, spread: int) -> np.ndarray:
    """Codes whose exponent lies within `spread` of `middle`, with random signs and mantissas. Never NaN or infinity."""
    exponent_bits, mantissa_bits = FLOATS[kind]
    bias = 2 ** (exponent_bits - 1) - 1
    field = np.clip(rng.integers(middle - spread, middle + spread + 1, shape) + bias, 0, 2**exponent_bits - 2)
    code = field << mantissa_bits | rng.integers(0, 2**mantissa_bits, shape)
    code |= rng.integers(0, 2, shape) << (exponent_bits + mantissa_bits)
    return (code << 13 if kind == "tf32" else code).astype(np.uint32)


def expected(
    types: Types, a: np.ndarray, b: np.ndarray, c: np.ndarray, rule: tuple[int, int] | None = None
) -> np.ndarray:
    rows = [
        [dot(types[0], types[1:], [*map(int, x)], [*map(int, y)], int(z), rule) for y, z in zip(b, w, strict=True)]
        for x, w in zip(a, c, strict=True)
    ]
    return np.array(rows, np.uint32)


def agree(types: Types, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    got, want = numerics.multiply_add(*types, a, b, c), expected(types, a, b, c)
    wrong = np.argwhere(got != want)
    assert not len(wrong), f"{types} at {wrong[0]}: {got[tuple(wrong[0])]:#x}, exact {want[tuple(wrong[0])]:#x}"


@pytest.mark.parametrize("types", FLOAT_TYPES, ids=".".join)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_any_codes_give_the_oracles_bits(types: Types, seed: int) -> None:
    rng = np.random.default_rng(seed)
    d, a, b = types
    k = DEPTH[a]
    draw = [
        rng.integers(0, 2 ** BITS[kind], shape, dtype=np.uint32)
        for kind, shape in ((a, (3, k)), (b, (70, k)), (d, (3, 70)))
    ]
    agree(types, *draw)


@pytest.mark.parametrize("types", FLOAT_TYPES, ids=".".join)
@pytest.mark.parametrize(("spread", "addend"), [(0, 0), (2, 2), (6, 0), (6, -12), (14, 10), (3, -30)])
def test_finite_sums_give_the_oracles_bits(types: Types, spread: int, addend: int) -> None:
    rng = np.random.default_rng(spread + 100 * (addend + 50))
    d, a, b = types
    k = DEPTH[a]
    left, right = codes_near(rng, a, (3, k), 0, spread), codes_near(rng, b, (17, k), 0, spread)
    agree(types, left, right, codes_near(rng, d, (3, 17), addend, 3))


@pytest.mark.parametrize("types", FLOAT_TYPES, ids=".".join)
def test_cancelled_sums_give_the_oracles_bits(types: Types) -> None:
    rng = np.random.default_rng(5)
    d, a, b = types
    k = DEPTH[a]
    left, right = codes_near(rng, a, (4, k), 0, 3), codes_near(rng, b, (9, k), 0, 3)
    rest = numerics.multiply_add(d, a, b, left, right, None)
    sign = np.uint32(0x8000_0000 if d == "f32" else 0x8000)
    agree(types, left, right, (rest ^ sign) + rng.integers(0, 3, rest.shape, dtype=np.uint32))


@pytest.mark.parametrize("types", [("f32", "bf16", "bf16"), ("f32", "tf32", "tf32")], ids=".".join)
def test_products_below_the_smallest_f32_give_the_oracles_bits(types: Types) -> None:
    rng = np.random.default_rng(6)
    k = DEPTH[types[1]]
    left, right = codes_near(rng, types[1], (4, k), -126, 2), codes_near(rng, types[2], (40, k), -18, 14)
    left[rng.random(left.shape) < 0.5] = 0
    agree(types, left, right, np.zeros((4, 40), np.uint32))


@pytest.mark.parametrize("depth", [1, 2, 7, 8, 16])
def test_depths_other_than_the_instructions_give_the_oracles_bits(depth: int) -> None:
    rng = np.random.default_rng(depth)
    left, right = codes_near(rng, "f16", (2, depth), 0, 5), codes_near(rng, "f16", (65, depth), 0, 5)
    agree(("f32", "f16", "f16"), left, right, codes_near(rng, "f32", (2, 65), 0, 9))


@given(st.data())
def test_order_of_the_terms_does_not_matter(data: st.DataObject) -> None:
    d, a, b = data.draw(st.sampled_from(FLOAT_TYPES))
    k = DEPTH[a]
    left, right = (
        np.array([data.draw(st.lists(st.integers(0, 2 ** BITS[kind] - 1), min_size=k, max_size=k))]) for kind in (a, b)
    )
    c = np.array([[data.draw(st.integers(0, 2 ** BITS[d] - 1))]])
    order = data.draw(st.permutations(range(k)))
    one, other = (
        numerics.multiply_add(d, a, b, x, y, c) for x, y in ((left, right), (left[:, order], right[:, order]))
    )
    assert one == other


@given(st.sampled_from(FLOAT_TYPES), st.integers(0, 2**32 - 1))
def test_negating_everything_negates_the_result(types: Types, seed: int) -> None:
    d, a, b = types
    rng = np.random.default_rng(seed)
    left, right = codes_near(rng, a, (2, DEPTH[a]), 0, 6), codes_near(rng, b, (5, DEPTH[a]), 0, 6)
    c = codes_near(rng, d, (2, 5), 0, 6)
    sign = np.uint32(1 << (BITS[d] - 1))
    plus, minus = (
        numerics.multiply_add(d, a, b, left, right, z, negate=(n, False)) for z, n in ((c, False), (c ^ sign, True))
    )
    np.testing.assert_array_equal(np.where(plus == 0, 0, plus ^ sign), minus)  # a zero is +0 either way


@given(st.sampled_from([t for t in FLOAT_TYPES if t[0] == "f32"]), st.integers(0, 2**32 - 1))
@example(("f32", "bf16", "bf16"), 1)
def test_sums_of_positive_terms_never_exceed_the_exact_sum(types: Types, seed: int) -> None:
    d, a, b = types
    rng = np.random.default_rng(seed)
    left, right = (
        codes_near(rng, kind, (1, DEPTH[a]), 0, 6) & np.uint32((1 << (BITS[kind] - 1)) - 1) for kind in (a, b)
    )
    c = codes_near(rng, d, (1, 1), 0, 6) & np.uint32(0x7FFF_FFFF)
    exact = value(d, int(c[0, 0])) + sum(
        value(a, int(x)) * value(b, int(y)) for x, y in zip(left[0], right[0], strict=True)
    )
    got = value("f32", int(numerics.multiply_add(d, a, b, left, right, c)[0, 0]))
    # Every term loses less than one unit of 2^(top - F), where top <= the sum's exponent; the result less than one more
    # unit of its last place, 2^(exponent - M).
    fraction_bits, mantissa_bits = RULE[a]
    lost = (DEPTH[a] + 1) * Fraction(1, 2**fraction_bits) + Fraction(1, 2**mantissa_bits)
    assert exact * (1 - lost) < got <= exact


def test_fp8_keeps_thirteen_bits_of_an_f32_accumulator() -> None:
    one, small = 0x38, 0x38 - (7 << 3)  # e4m3: 1 and 2^-6 · 1 (a subnormal 2^-7 would do too)
    a = np.zeros((1, 32), np.uint32)
    b = np.zeros((1, 32), np.uint32)
    a[0, 0], b[0, 0] = one, one
    a[0, 1], b[0, 1] = 0x01, small + 0x08  # 2^-9 · 2^-6 · 2: 2^-14
    assert numerics.multiply_add("f32", "e4m3", "e4m3", a, b, None)[0, 0] == 0x3F80_0000
    c = np.array([[0x3F80_03FF]], np.uint32)  # 1 and ten bits below the thirteenth
    assert numerics.multiply_add("f32", "e4m3", "e4m3", a * 0, b, c)[0, 0] == 0x3F80_0000


def test_plain_sums_keep_what_fp8_loses() -> None:
    a, b = np.full((1, 32), 0x01, np.uint32), np.full((1, 32), 0x30, np.uint32)  # 2^-9 · 2^-1
    c = np.array([[0x4180_0000]], np.uint32)  # 16
    silicon, plain = (numerics.multiply_add("f32", "e4m3", "e4m3", a, b, c, plain=p)[0, 0] for p in (False, True))
    assert (silicon, plain) == (0x4180_0000, 0x4180_4000)  # 32 · 2^-10 = 2^-5


@pytest.mark.parametrize("seed", [1, 2])
def test_plain_sums_are_floats_in_the_order_of_k(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = (rng.standard_normal((n, 16)).astype(np.float16) for n in (3, 70))
    c = rng.standard_normal((3, 70)).astype(np.float32)
    want = c.copy()
    for k in range(16):
        want += a[:, None, k].astype(np.float32) * b[None, :, k].astype(np.float32)
    got = numerics.multiply_add(
        "f32", "f16", "f16", a.view(np.uint16), b.view(np.uint16), c.view(np.uint32), plain=True
    )
    np.testing.assert_array_equal(got.view(np.float32), want)


@pytest.mark.parametrize("types", FLOAT_TYPES, ids=".".join)
def test_no_addend_is_an_addend_of_zero(types: Types) -> None:
    rng = np.random.default_rng(9)
    d, a, b = types
    left, right = codes_near(rng, a, (3, DEPTH[a]), 0, 4), codes_near(rng, b, (8, DEPTH[a]), 0, 4)
    zero = np.zeros((3, 8), np.uint32)
    np.testing.assert_array_equal(*(numerics.multiply_add(d, a, b, left, right, c) for c in (None, zero)))


@pytest.mark.parametrize(("a", "b"), [("s8", "s8"), ("s8", "u8"), ("u8", "s8"), ("u8", "u8")])
@pytest.mark.parametrize("satfinite", [False, True])
def test_integers_are_exact_and_wrap_or_clamp(a: str, b: str, satfinite: bool) -> None:
    rng = np.random.default_rng(4)
    left, right = (rng.integers(0, 256, (n, 32)).astype(np.uint8) for n in (5, 66))
    c = rng.choice([2**31 - 1, -(2**31), 0], (5, 66)) + rng.integers(-9, 9, (5, 66))
    c = np.clip(c, -(2**31), 2**31 - 1)
    signed = [x.view(np.int8) if kind == "s8" else x for x, kind in ((left, a), (right, b))]
    exact = signed[0].astype(np.int64) @ signed[1].astype(np.int64).T + c
    want = np.clip(exact, -(2**31), 2**31 - 1) if satfinite else exact
    got = numerics.multiply_add("s32", a, b, left, right, c.astype(np.int32).view(np.uint32), satfinite=satfinite)
    np.testing.assert_array_equal(got, want.astype(np.uint64).astype(np.uint32))


@pytest.mark.parametrize(
    ("a", "b", "c", "want"),
    [
        ([0x7F80], [0x3F80], 0, 0x7F80_0000),  # ∞ · 1
        ([0xFF80], [0x3F80], 0, 0xFF80_0000),
        ([0x7F80], [0x0000], 0, 0x7FFF_FFFF),  # ∞ · 0
        ([0x7F80, 0xFF80], [0x3F80, 0x3F80], 0, 0x7FFF_FFFF),  # ∞ - ∞
        ([0x7F80], [0x3F80], 0xFF80_0000, 0x7FFF_FFFF),
        ([0x0000], [0x3F80], 0xFF80_0000, 0xFF80_0000),
        ([0x0000], [0x3F80], 0x7F80_0001, 0x7FFF_FFFF),  # a NaN loses its payload
        ([0x7F00, 0xFF00], [0x7F00, 0x7F00], 0x3F80_0000, 0x3F80_0000 - 0x3F80_0000),  # 2^254 - 2^254 + 1: the 1 is cut
        ([0x7F00], [0x7F00], 0, 0x7F80_0000),  # a finite sum beyond the range
        ([0x8000], [0x3F80], 0x8000_0000, 0),  # -0 - 0 is +0
        ([0x8001], [0x0001], 0, 0),  # a negative sum cut to zero is +0
    ],
)
def test_special_sums_follow_the_silicon(a: list[int], b: list[int], c: int, want: int) -> None:
    got = numerics.multiply_add("f32", "bf16", "bf16", [a], [b], [[c]])
    assert got[0, 0] == want


def recorded() -> list[dict[str, object]]:
    text = Path(__file__).with_name("silicon.json").read_text(encoding="utf-8")
    return json.loads(text)["mma"]


@pytest.mark.parametrize("case", recorded(), ids=lambda case: f"{case['type']}-{case['gpu']}")
def test_recorded_results_of_an_h200_are_reproduced(case: dict[str, object]) -> None:
    a, b = ([[int(x, 16) for x in str(case[side]).split()]] for side in ("a", "b"))
    negate = tuple(sign < 0 for sign in case["negate"])  # type: ignore[attr-defined]
    got = numerics.multiply_add(*str(case["type"]).split("."), a, b, [[int(str(case["c"]), 16)]], negate=negate)
    assert f"{got[0, 0]:x}" == case["gpu"]


def test_another_rule_gives_the_oracles_bits() -> None:
    rng = np.random.default_rng(8)
    types = ("f32", "e4m3", "e5m2")
    left, right, c = (
        codes_near(rng, "e4m3", (3, 32), 0, 6),
        codes_near(rng, "e5m2", (9, 32), 0, 6),
        codes_near(rng, "f32", (3, 9), 0, 6),
    )
    got = numerics.multiply_add(*types, left, right, c, rule=(22, 23))
    np.testing.assert_array_equal(got, expected(types, left, right, c, (22, 23)))


def test_an_unknown_type_is_named_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="a is 'fp8'; known are f16, bf16, tf32, e4m3, e5m2, s8, u8"):
        numerics.multiply_add("f32", "fp8", "e4m3", [[0]], [[0]])


def test_types_that_no_wgmma_combines_are_refused() -> None:
    with pytest.raises(ValueError, match="no wgmma combines"):
        numerics.multiply_add("f32", "f16", "bf16", [[0]], [[0]])
    with pytest.raises(ValueError, match="no wgmma combines"):
        numerics.multiply_add("f16", "bf16", "bf16", [[0]], [[0]])
    with pytest.raises(ValueError, match="same depth"):
        numerics.multiply_add("f32", "f16", "f16", [[0]], [[0, 0]])
