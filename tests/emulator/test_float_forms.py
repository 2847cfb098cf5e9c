"""Floating point: each row of float.forms against exact fractions; .approx rows within their documented error."""

from __future__ import annotations

import math

import numpy as np
import pytest
from conformance import check, row_id, rows
from floatmodel import (
    FORMATS,
    Format,
    Number,
    add,
    decode,
    divide,
    encode,
    flush,
    is_nan,
    multiply,
    nan64,
    negate,
    square_root,
)
from formtable import Form, types_of
from ptxrun import run_elementwise

Mods = tuple[str, ...]
Args = tuple[int, ...]


def mode_of(mods: Mods) -> str:
    return next((mod for mod in mods if mod in ("rz", "rm", "rp")), "rn")


def clamped(x: Number, mods: Mods) -> Number:
    """.sat clamps to [0, 1] with NaN to +0; .relu turns negative values into +0."""
    from fractions import Fraction

    if "sat" in mods:
        if x in ("nan", "-inf", "-0") or (isinstance(x, Fraction) and x < 0):
            return Fraction(0)
        return min(x, Fraction(1)) if isinstance(x, Fraction) else Fraction(1)
    if "relu" in mods and (x in ("-inf", "-0") or (isinstance(x, Fraction) and x < 0)):
        return Fraction(0)
    return x


def scalar(form: Form, kind: str, mods: Mods, args: Args) -> int:
    f = FORMATS[kind]
    if "ftz" in mods:
        args = tuple(flush(a, f) for a in args)
    if "oob" in mods and any(a & 0x7FFF == 0x7FF7 for a in args[:2]):  # the NaN that a tensor copy fills with
        return 0
    x = [decode(a, f) for a in args]
    mode = mode_of(mods)
    match form.opcode:
        case "add":
            result = add(x[0], x[1], mode)
        case "sub":
            result = add(x[0], negate(x[1]), mode)
        case "mul":
            result = multiply(x[0], x[1])
        case "fma" | "mad":
            result = add(multiply(x[0], x[1]), x[2], mode)
        case "div":
            result = divide(x[0], x[1])
        case "rcp":
            result = divide(decode(encode_one(f), f), x[0])
        case "sqrt":
            result = square_root(x[0])
        case _:
            raise AssertionError(form.opcode)
    if result == "nan" and kind == "f64":
        order = {"fma": (0, 2, 1), "mad": (0, 2, 1), "div": (1, 0)}.get(form.opcode, range(len(args)))
        return nan64(*(args[i] for i in order))
    bits = encode(clamped(result, mods), f, mode)
    if form.opcode == "div" and "ftz" in mods and flush(cut := encode(result, f, "rz"), f) != cut:
        return cut & f.sign  # a GPU flushes before it rounds away from zero
    return flush(bits, f) if "ftz" in mods else bits


def encode_one(f: Format) -> int:
    return f.bias << f.mantissa_bits


def packed(form: Form, kind: str, mods: Mods, args: Args, one) -> int:
    """`one` on a scalar, or on both halves of a pair."""
    if not kind.endswith("x2"):
        return one(form, kind, mods, args)
    low, high = tuple(a & 0xFFFF for a in args), tuple(a >> 16 for a in args)
    return one(form, kind[:-2], mods, low) | one(form, kind[:-2], mods, high) << 16


def arithmetic(form: Form, mods: Mods, args: Args) -> tuple[int, ...]:
    return (packed(form, types_of(mods)[0], mods, args, scalar),)


EXACT = (
    "float_add",
    "float_mul",
    "float_fma",
    "float_div",
    "float_rcp",
    "float_sqrt",
    "half_add",
    "half_mul",
    "half_fma",
)


@pytest.mark.parametrize("form", rows(*EXACT), ids=row_id)
def test_arithmetic_rounds_once(form: Form) -> None:
    check(form, arithmetic, limit=12)


def sign_scalar(form: Form, kind: str, mods: Mods, args: Args) -> int:
    f = FORMATS[kind]
    a = flush(args[0], f) if "ftz" in mods else args[0]
    if is_nan(a, f):
        return nan64(a) if kind == "f64" else f.nan
    return a ^ f.sign if form.opcode == "neg" else a & (f.sign - 1)


def minmax_scalar(form: Form, kind: str, mods: Mods, args: Args) -> int:
    f = FORMATS[kind]
    a, b = (flush(v, f) if "ftz" in mods else v for v in args)
    sign = 0
    if "xorsign" in mods:
        sign = (a ^ b) & f.sign
        a, b = a & (f.sign - 1), b & (f.sign - 1)
    nans = [decode(v, f) == "nan" for v in (a, b)]
    if all(nans) or (any(nans) and "NaN" in mods):
        return nan64(a, b) if kind == "f64" else f.nan
    if any(nans):
        return sign | (b if nans[0] else a)

    def key(v: int) -> int:  # codes in the order of their values, −0 below +0
        return -(v & (f.sign - 1)) - 1 if v & f.sign else v

    return sign | (min if form.opcode == "min" else max)(a, b, key=key)


def copysign(form: Form, mods: Mods, args: Args) -> tuple[int, ...]:
    sign = FORMATS[mods[-1]].sign
    return (args[0] & sign | args[1] & (sign - 1),)


def float_class(form: Form, mods: Mods, args: Args) -> tuple[int, ...]:
    f = FORMATS[mods[-1]]
    value, magnitude = decode(args[0], f), args[0] & (f.sign - 1)
    exponent = magnitude >> f.mantissa_bits
    special = value in ("nan", "+inf", "-inf")
    return (
        int(
            {
                "finite": not special,
                "infinite": value in ("+inf", "-inf"),
                "number": value != "nan",
                "notanumber": value == "nan",
                "normal": not special and (exponent > 0 or magnitude == 0),  # zero counts, on an H200
                "subnormal": not special and exponent == 0 and magnitude > 0,
            }[mods[0]]
        ),
    )


@pytest.mark.parametrize("form", rows("float_sign"), ids=row_id)
def test_signs(form: Form) -> None:
    check(form, lambda form, mods, args: (packed(form, types_of(mods)[0], mods, args, sign_scalar),))


@pytest.mark.parametrize("form", rows("float_minmax"), ids=row_id)
def test_minimum_and_maximum(form: Form) -> None:
    check(form, lambda form, mods, args: (packed(form, types_of(mods)[0], mods, args, minmax_scalar),))


@pytest.mark.parametrize("form", rows("copysign"), ids=row_id)
def test_copysign(form: Form) -> None:
    check(form, copysign)


@pytest.mark.parametrize("form", rows("testp"), ids=row_id)
def test_testp(form: Form) -> None:
    check(form, float_class)


REFERENCE = {
    "rcp": lambda x: 1 / x,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sin": np.sin,
    "cos": np.cos,
    "lg2": np.log2,
    "ex2": np.exp2,
    "tanh": np.tanh,
}


@pytest.mark.parametrize("form", rows("approx"), ids=row_id)
@pytest.mark.parametrize("ftz", [False, True])
def test_approximations_stay_within_their_bound(form: Form, ftz: bool) -> None:
    if ftz and not any("ftz" in slot.options for slot in form.slots):
        pytest.skip("the form has no .ftz")
    rng = np.random.default_rng(1)
    span = {"ex2": 100.0, "sin": 3.0, "cos": 3.0, "tanh": 5.0}.get(form.opcode)
    x = rng.uniform(-span, span, 512) if span else np.exp(rng.uniform(-60, 60, 512))
    x = x.astype(np.float32)
    (bits,) = run_elementwise(f"{form.opcode}.approx{'.ftz' * ftz}.f32 %d0, %a0;", [x.view(np.uint32)], [32])
    want = REFERENCE[form.opcode](x.astype(np.float64))
    # The ISA's bounds: 2^-20.9 absolute for sin and cos, 2^-11 relative for tanh, about 2^-22 relative for the rest.
    error = np.abs(bits.view(np.float32) - want)
    bound = {"sin": 2.0**-20, "cos": 2.0**-20}.get(form.opcode, 0) + np.abs(want) * (
        2.0**-10.9 if form.opcode == "tanh" else 2.0**-21
    )
    assert (error <= bound + (2.0**-22 if form.opcode == "lg2" else 0)).all()


@pytest.mark.parametrize(
    ("instruction", "x", "expected"),
    [
        ("ex2.approx.ftz.f32", "-inf", "+0"), ("ex2.approx.ftz.f32", "inf", "inf"), ("ex2.approx.ftz.f32", "-0.0", "1"),
        ("lg2.approx.ftz.f32", "0", "-inf"), ("lg2.approx.ftz.f32", "-1", "nan"), ("lg2.approx.ftz.f32", "inf", "inf"),
        ("rcp.approx.ftz.f32", "0", "inf"), ("rcp.approx.ftz.f32", "-0.0", "-inf"),
        ("rcp.approx.ftz.f32", "-inf", "-0.0"),
        ("rsqrt.approx.ftz.f32", "0", "inf"), ("rsqrt.approx.ftz.f32", "-4", "nan"),
        ("sqrt.approx.ftz.f32", "-1", "nan"),
        ("sin.approx.ftz.f32", "inf", "nan"), ("tanh.approx.f32", "inf", "1"),
    ],
)  # fmt: skip
def test_special_values_of_approximations(instruction: str, x: str, expected: str) -> None:
    (bits,) = run_elementwise(f"{instruction} %d0, %a0;", [np.array([float(x)], np.float32).view(np.uint32)], [32])
    got = float(bits.view(np.float32)[0])
    if expected == "nan":
        assert bits[0] == 0x7FFFFFFF
    else:
        assert got == float(expected)
        assert math.copysign(1, got) == math.copysign(1, float(expected))


@pytest.mark.parametrize("form", rows("half_approx"), ids=row_id)
def test_half_approximations(form: Form) -> None:
    for kind in next(slot.options for slot in form.slots if "f16" in slot.options or "bf16" in slot.options):
        f = FORMATS[kind.removesuffix("x2")]
        x = np.linspace(-4, 4, 64).astype(np.float32)
        codes = np.array([encode_float(v, f) for v in x], np.uint32)
        pair = kind.endswith("x2")
        ftz = ".ftz" if any("ftz" in slot.options for slot in form.slots) else ""
        data = (codes | codes << 16) if pair else codes.astype(np.uint16)
        (bits,) = run_elementwise(f"{form.opcode}.approx{ftz}.{kind} %d0, %a0;", [data], [32 if pair else 16])
        for code, got in zip(codes, bits, strict=True):
            exact = REFERENCE[form.opcode](float(decode(int(code), f)) if decode(int(code), f) != "-0" else -0.0)
            halves = [int(got) & 0xFFFF, int(got) >> 16] if pair else [int(got)]
            for half in halves:
                value = decode(half, f)
                assert abs(float(0 if value == "-0" else value) - exact) <= abs(exact) * 2.0 ** -(f.mantissa_bits - 1)


def encode_float(x: float, f: Format) -> int:
    from fractions import Fraction

    return encode(Fraction(float(x)), f)


@pytest.mark.parametrize("full", ["approx", "full"])
def test_approximate_division(full: str) -> None:
    rng = np.random.default_rng(2)
    a, b = (np.exp(rng.uniform(-40, 40, 256)).astype(np.float32) for _ in range(2))
    (bits,) = run_elementwise(f"div.{full}.ftz.f32 %d0, %a0, %a1;", [a.view(np.uint32), b.view(np.uint32)], [32])
    got, want = bits.view(np.float32), a.astype(np.float64) / b
    assert (np.abs(got - want) <= 2 * np.spacing(want.astype(np.float32)).astype(np.float64)).all()  # 2 ulp


def test_approximate_division_by_a_huge_divisor_gives_zero() -> None:
    a = np.array([1.0, np.inf, -1.0], np.float32).view(np.uint32)
    b = np.array([2.0**127] * 3, np.float32).view(np.uint32)
    (bits,) = run_elementwise("div.approx.f32 %d0, %a0, %a1;", [a, b], [32])
    assert bits.tolist() == [0, 0x7FFFFFFF, 0x80000000]


@pytest.mark.parametrize(
    ("opcode", "exact"), [("rcp.approx.ftz.f64", lambda x: 1 / x), ("rsqrt.approx.ftz.f64", lambda x: 1 / np.sqrt(x))]
)
def test_double_approximations_have_twenty_bits(opcode: str, exact) -> None:
    x = np.exp(np.random.default_rng(3).uniform(-100, 100, 128))
    (bits,) = run_elementwise(f"{opcode} %d0, %a0;", [x.view(np.uint64)], [64])
    got = bits.view(np.float64)
    assert (np.abs(got - exact(x)) <= exact(x) * 2.0**-19).all()
    assert (bits & np.uint64(0xFFFFFFFF) == 0).all()


def test_reciprocal_square_root_of_doubles_is_as_good_as_division() -> None:
    x = np.exp(np.random.default_rng(4).uniform(-100, 100, 128))
    (bits,) = run_elementwise("rsqrt.approx.f64 %d0, %a0;", [x.view(np.uint64)], [64])
    want = 1 / np.sqrt(x)
    assert (np.abs(bits.view(np.float64) - want) <= np.spacing(want)).all()
