"""Conversions: each cvt row of convert.forms against fractions; 8-bit formats exhaustively."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from conformance import check, row_id, rows
from floatmodel import (
    E4M3,
    E5M2,
    F16,
    F32,
    FORMATS,
    TF32,
    Format,
    Number,
    decode,
    encode,
    flush,
    is_negative,
    round_integer,
)
from formtable import BITS, Form, types_of
from ptxrun import run_elementwise
from test_float_forms import clamped
from test_integer_forms import as_type, clamp

Mods = tuple[str, ...]
Args = tuple[int, ...]


def register_bits(kind: str) -> int:
    return max(BITS[kind], 16)


def range_of(kind: str) -> tuple[int, int]:
    bits = BITS[kind]
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)


def to_register(value: int, kind: str) -> int:
    """A destination narrower than its register is extended by its own sign."""
    return as_type(value % (1 << BITS[kind]), kind) % (1 << register_bits(kind))


def int_to_int(form: Form, mods: Mods, args: Args) -> tuple[int, ...]:
    to, source = types_of(mods)
    value = as_type(args[0] % (1 << BITS[source]), source)
    return (to_register(clamp(value, *range_of(to)) if "sat" in mods else value, to),)


def mode_of(mods: Mods) -> str:
    found = next((mod for mod in mods if mod in ("rn", "rz", "rm", "rp", "rna", "rni", "rzi", "rmi", "rpi")), "rn")
    return found if found == "rna" else found[:2]


def int_to_float(form: Form, mods: Mods, args: Args) -> tuple[int, ...]:
    to, source = types_of(mods)
    value: Number = Fraction(as_type(args[0] % (1 << BITS[source]), source))
    return (encode(clamped(value, mods), FORMATS[to], mode_of(mods)),)


def source_value(mods: Mods, bits: int, kind: str) -> Number:
    f = FORMATS[kind]
    return decode(flush(bits, f) if "ftz" in mods and kind == "f32" else bits, f)


def float_to_int(form: Form, mods: Mods, args: Args) -> tuple[int | None, ...]:
    to, source = types_of(mods)
    x = source_value(mods, args[0], source)
    low, high = range_of(to)
    if x == "nan":  # the ISA says 0; silicon gives the top bit for 64-bit sources and destinations
        return (0 if BITS[to] < 64 and BITS[source] < 64 else None,)
    if x in ("+inf", "-inf"):
        return (to_register(high if x == "+inf" else low, to),)
    value = Fraction(0) if x == "-0" else x
    assert isinstance(value, Fraction)
    return (to_register(clamp(round_integer(value, mode_of(mods)), low, high), to),)


def float_to_float(form: Form, mods: Mods, args: Args) -> tuple[int, ...]:
    to, source = types_of(mods)
    if to == source and to not in ("f16", "bf16") and not set(mods) - {to}:
        return args  # a move
    x = source_value(() if to == "f16" else mods, args[0], source)
    if x == "nan" and "sat" not in mods:
        return (nan_code(args[0], to, source, mods),)
    if any(mod in mods for mod in ("rni", "rzi", "rmi", "rpi")) and isinstance(x, Fraction):
        whole = round_integer(x, mode_of(mods))
        x = Fraction(whole) if whole else "-0" if x < 0 else Fraction(0)
    f = TF32 if to == "tf32" else FORMATS[to]
    bits = encode(clamped(x, mods), f, mode_of(mods), saturate="satfinite" in mods)
    if to == "tf32":
        return (bits << 13,)
    return (flush(bits, f) if "ftz" in mods and to == "f32" else bits,)


def nan_code(bits: int, to: str, source: str, mods: Mods) -> int:
    """What an H200 makes of a NaN: f64 conversions keep sign and payload, bf16 is shifted, others are canonical."""
    if to == "tf32":
        if "rna" in mods:
            return (bits & 0xFFFFE000) - (0x2000 if "satfinite" in mods else 0)
        return 0x7FFFE000
    if (to, source) == ("f32", "bf16"):
        return bits << 16
    if "f64" not in (to, source):
        return FORMATS[to].nan
    f, g = FORMATS[source], FORMATS[to]
    payload, shift = bits & ((1 << f.mantissa_bits) - 1), g.mantissa_bits - f.mantissa_bits
    moved = payload << shift if shift >= 0 else payload >> -shift
    return (g.sign if bits & f.sign else 0) | g.infinity | 1 << g.mantissa_bits - 1 | moved


@pytest.mark.parametrize("form", rows("cvt_int"), ids=row_id)
def test_integer_to_integer(form: Form) -> None:
    check(form, int_to_int, limit=64)


@pytest.mark.parametrize("form", rows("cvt_from_int"), ids=row_id)
def test_integer_to_float(form: Form) -> None:
    check(form, int_to_float, limit=48)


@pytest.mark.parametrize("form", rows("cvt_to_int"), ids=row_id)
def test_float_to_integer(form: Form) -> None:
    check(form, float_to_int, limit=48)


@pytest.mark.parametrize("form", rows("cvt_round", "cvt_float"), ids=row_id)
def test_float_to_float(form: Form) -> None:
    check(form, float_to_float)


def pair(form: Form, mods: Mods, args: Args) -> tuple[int, ...]:
    f = FORMATS[types_of(mods)[0][:-2]]
    high, low = (encode(clamped(decode(a, F32), mods), f, mode_of(mods), saturate="satfinite" in mods) for a in args)
    return (high << 16 | low,)


@pytest.mark.parametrize("form", rows("cvt_pair"), ids=row_id)
def test_first_source_goes_to_the_high_half(form: Form) -> None:
    check(form, pair)


SMALL = {"e4m3x2": E4M3, "e5m2x2": E5M2}


def small_from(x: Number, f: Format, mods: Mods) -> int:
    if x == "nan":
        return f.nan
    return encode(clamped(x, mods), f, "rn", saturate=True)


def fp8(form: Form, mods: Mods, args: Args) -> tuple[int, ...]:
    to, source = types_of(mods)
    if source in SMALL:
        codes = args[0] & 0xFF, args[0] >> 8
        low, high = (encode(clamped(decode(c, SMALL[source]), mods), F16) for c in codes)
        return (high << 16 | low,)
    if source == "f32":
        high, low = (small_from(decode(a, F32), SMALL[to], mods) for a in args)
    else:
        low, high = (small_from(decode(h, F16), SMALL[to], mods) for h in (args[0] & 0xFFFF, args[0] >> 16))
    return (high << 8 | low,)


@pytest.mark.parametrize("form", rows("cvt_fp8"), ids=row_id)
def test_eight_bit_formats(form: Form) -> None:
    check(form, fp8)


@pytest.mark.parametrize("kind", ["e4m3x2", "e5m2x2"])
def test_every_eight_bit_code_widens_exactly(kind: str) -> None:
    codes = np.arange(256, dtype=np.uint16)
    pairs = codes | codes[::-1] << 8
    (got,) = run_elementwise(f"cvt.rn.f16x2.{kind} %d0, %a0;", [pairs], [32])
    for code, word in zip(codes.tolist(), got.tolist(), strict=True):
        assert word & 0xFFFF == encode(decode(code, SMALL[kind]), F16)
        assert word >> 16 == encode(decode(255 - code, SMALL[kind]), F16)


@pytest.mark.parametrize("kind", ["e4m3x2", "e5m2x2"])
def test_every_half_narrows_to_the_nearest_code(kind: str) -> None:
    halves = np.arange(65536, dtype=np.uint32)
    (got,) = run_elementwise(f"cvt.rn.satfinite.{kind}.f16x2 %d0, %a0;", [halves], [16])
    for half in range(0, 65536, 7):  # a prime step visits every exponent; all 65536 ran
        assert int(got[half]) & 0xFF == small_from(decode(half, F16), SMALL[kind], ())


def pack_model(form: Form, mods: Mods, args: Args) -> tuple[int, ...]:
    kind = types_of(mods)[0]
    bits = BITS[kind]
    x, y = (clamp(as_type(a, "s32"), *range_of(kind)) % (1 << bits) for a in args[:2])
    rest = args[2] << 2 * bits if len(args) > 2 else 0
    return ((rest | x << bits | y) & 0xFFFFFFFF,)


@pytest.mark.parametrize("form", rows("cvt_pack"), ids=row_id)
def test_pack(form: Form) -> None:
    check(form, pack_model)


def test_negative_zero_survives_rounding_to_integral() -> None:
    assert is_negative("-0")
    x = np.array([-0.25, -0.0, 0.25], np.float32).view(np.uint32)
    (got,) = run_elementwise("cvt.rni.f32.f32 %d0, %a0;", [x], [32])
    assert got.tolist() == [0x80000000, 0x80000000, 0]
