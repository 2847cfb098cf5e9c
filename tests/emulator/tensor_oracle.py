"""The tensor core's sum by fractions, from its description alone: nothing here is shared with the emulator.

Each product is exact. Terms are aligned to the largest exponent among those that are not zero (a product has the sum of
its operands' exponents, unnormalised; at least -133), cut toward zero after F bits, and added. The sum is cut to a
mantissa of M bits (f32) or rounded to nearest even (f16).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

DEPTH = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32}
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "f32": 32}
RULE = {"f16": (25, 23), "bf16": (25, 23), "tf32": (25, 23), "e4m3": (13, 13), "e5m2": (13, 13)}
FLOATS = {"f32": (8, 23), "f16": (5, 10), "bf16": (8, 7), "tf32": (8, 10), "e4m3": (4, 3), "e5m2": (5, 2)}
NAN = {"f32": 0x7FFF_FFFF, "f16": 0x7FFF}
LEAST = -133


@dataclass(frozen=True)
class Number:
    """significand · 2^exponent, or kind "inf" (the significand's sign) or "nan"."""

    kind: str
    significand: Fraction
    exponent: int


def decode(kind: str, code: int) -> Number:
    exponent_bits, mantissa_bits = FLOATS[kind]
    if kind == "tf32":
        code >>= 13
    sign = -1 if code >> (exponent_bits + mantissa_bits) & 1 else 1
    field = code >> mantissa_bits & (2**exponent_bits - 1)
    mantissa = code & (2**mantissa_bits - 1)
    bias = 2 ** (exponent_bits - 1) - 1
    if kind == "e4m3":
        if field == 15 and mantissa == 7:
            return Number("nan", Fraction(0), 0)
    elif field == 2**exponent_bits - 1:
        return Number("nan" if mantissa else "inf", Fraction(sign), 0)
    fraction = Fraction(mantissa, 2**mantissa_bits)
    if field == 0:
        return Number("finite", sign * fraction, 1 - bias)
    return Number("finite", sign * (1 + fraction), field - bias)


def value(kind: str, code: int) -> Fraction:
    number = decode(kind, code)
    assert number.kind == "finite"
    return number.significand * Fraction(2) ** number.exponent


def power_below(x: Fraction) -> int:
    """e with 2^e <= x < 2^(e + 1), x > 0."""
    e = x.numerator.bit_length() - x.denominator.bit_length()
    return e if x >= Fraction(2) ** e else e - 1


def cut(x: Fraction, unit: Fraction) -> Fraction:
    return int(x / unit) * unit  # int() of a Fraction goes toward zero


def f32_bits(x: Fraction, mantissa_bits: int) -> int:
    if x == 0:
        return 0
    unit = Fraction(2) ** (max(power_below(abs(x)), -126) - mantissa_bits)
    kept = cut(x, unit)
    if kept == 0:
        return 0  # never -0
    if abs(kept) >= Fraction(2) ** 128:
        return 0x7F80_0000 | (0x8000_0000 if kept < 0 else 0)
    return int.from_bytes(struct.pack("<f", float(kept)), "little")


def f16_bits(x: Fraction) -> int:
    if x == 0:
        return 0
    unit = Fraction(2) ** (max(power_below(abs(x)), -14) - 10)
    kept = round(x / unit) * unit  # round() of a Fraction goes to the even neighbour
    if kept == 0:
        return 0
    if abs(kept) >= 65536:
        return 0x7C00 | (0x8000 if kept < 0 else 0)
    return int.from_bytes(struct.pack("<e", float(kept)), "little")


def dot(
    d: str, kinds: tuple[str, str], a: Sequence[int], b: Sequence[int], c: int, rule: tuple[int, int] | None = None
) -> int:
    """One output: codes in, the code of D out."""
    fraction_bits, mantissa_bits = rule or RULE[kinds[0]]
    left, right, addend = [decode(kinds[0], x) for x in a], [decode(kinds[1], x) for x in b], decode(d, c)
    signs = set()
    if addend.kind == "nan":
        return NAN[d]
    if addend.kind == "inf":
        signs.add(addend.significand)
    terms = [(addend.significand, addend.exponent)]
    for x, y in zip(left, right, strict=True):
        product = x.significand * y.significand
        if "nan" in (x.kind, y.kind) or ("inf" in (x.kind, y.kind) and product == 0):
            return NAN[d]
        if "inf" in (x.kind, y.kind):
            signs.add(Fraction(1 if product > 0 else -1))
        terms.append((product, x.exponent + y.exponent))
    if len(signs) == 2:
        return NAN[d]
    if signs:
        infinity, sign = (0x7F80_0000, 31) if d == "f32" else (0x7C00, 15)
        return infinity | (1 << sign if -1 in signs else 0)
    top = max([LEAST] + [exponent for significand, exponent in terms if significand])
    unit = Fraction(2) ** (top - fraction_bits)
    total = sum((cut(s * Fraction(2) ** e, unit) for s, e in terms), Fraction(0))
    return f32_bits(total, mantissa_bits) if d == "f32" else f16_bits(total)
