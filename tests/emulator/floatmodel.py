"""Binary floating point by fractions: the independent model that conformance tests round with."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import isqrt

Number = Fraction | str  # "nan", "+inf", "-inf", "-0" beside ordinary values


@dataclass(frozen=True)
class Format:
    exponent_bits: int
    mantissa_bits: int
    nan: int
    infinities: bool = True

    @property
    def bias(self) -> int:
        return (1 << self.exponent_bits - 1) - 1

    @property
    def bits(self) -> int:
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def sign(self) -> int:
        return 1 << self.bits - 1

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent_bits) - 1) << self.mantissa_bits

    @property
    def largest(self) -> int:
        return self.infinity - 1 if self.infinities else self.nan - 1


F16 = Format(5, 10, 0x7FFF)
BF16 = Format(8, 7, 0x7FFF)
F32 = Format(8, 23, 0x7FFFFFFF)
F64 = Format(11, 52, 0x7FFFFFFFFFFFFFFF)
TF32 = Format(8, 10, 0x3FFFF)
E4M3 = Format(4, 3, 0x7F, infinities=False)
E5M2 = Format(5, 2, 0x7F)
FORMATS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}


def decode(bits: int, f: Format) -> Number:
    negative, magnitude = bool(bits & f.sign), bits & (f.sign - 1)
    if magnitude > (f.infinity if f.infinities else f.largest):
        return "nan"
    if f.infinities and magnitude == f.infinity:
        return "-inf" if negative else "+inf"
    if magnitude == 0:
        return "-0" if negative else Fraction(0)
    exponent, mantissa = magnitude >> f.mantissa_bits, magnitude & ((1 << f.mantissa_bits) - 1)
    if exponent:
        mantissa |= 1 << f.mantissa_bits
    value = mantissa * Fraction(2) ** (max(exponent, 1) - f.bias - f.mantissa_bits)
    return -value if negative else value


def round_integer(x: Fraction, mode: str) -> int:
    """x to an integer; modes are PTX's rn, rz, rm, rp, rna."""
    floor = x.numerator // x.denominator
    rest = x - floor
    if rest == 0:
        return floor
    if mode == "rn":
        return floor + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and floor % 2 == 1))
    if mode == "rna":
        return floor + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and x > 0))
    return {"rm": floor, "rp": floor + 1, "rz": floor if x > 0 else floor + 1}[mode]


def encode(x: Number, f: Format, mode: str = "rn", *, saturate: bool = False) -> int:
    """The code of x in format f, rounded once."""
    if x == "nan":
        return f.nan
    if x in ("+inf", "-inf"):
        return (f.sign if x == "-inf" else 0) | (f.largest if saturate or not f.infinities else f.infinity)
    if x == "-0":
        return f.sign
    assert isinstance(x, Fraction)
    if x == 0:
        return 0
    sign = f.sign if x < 0 else 0
    magnitude = abs(x)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if Fraction(2) ** exponent > magnitude:
        exponent -= 1
    last_place = max(exponent, 1 - f.bias) - f.mantissa_bits
    count = abs(round_integer(x / Fraction(2) ** last_place, mode))
    field = max(exponent, 1 - f.bias) + f.bias - 1
    code = (field << f.mantissa_bits) + count
    if code > f.largest:
        inward = mode == "rz" or (mode == "rp" and sign) or (mode == "rm" and not sign)
        code = f.largest if saturate or not f.infinities or inward else f.infinity
    return sign | code


def flush(bits: int, f: Format) -> int:
    """.ftz: a subnormal code becomes the zero of its sign."""
    return bits & f.sign if (bits & (f.sign - 1)) >> f.mantissa_bits == 0 else bits


def is_nan(bits: int, f: Format) -> bool:
    return decode(bits, f) == "nan"


def nan64(*operands: int) -> int:
    """f64 keeps the last NaN operand, quieted; an invalid operation gives 0xfff8000000000000 (seen on an H200)."""
    nans = [bits for bits in operands if is_nan(bits, F64)]
    return nans[-1] | 1 << 51 if nans else 0xFFF8 << 48


def is_negative(x: Number) -> bool:
    return x in ("-inf", "-0") or (isinstance(x, Fraction) and x < 0)


def finite(x: Number) -> Fraction:
    return Fraction(0) if x == "-0" else x if isinstance(x, Fraction) else Fraction(1)


def signed_zero(negative: bool) -> Number:
    return "-0" if negative else Fraction(0)


def negate(x: Number) -> Number:
    if isinstance(x, Fraction):
        return "-0" if x == 0 else -x
    return {"nan": "nan", "+inf": "-inf", "-inf": "+inf", "-0": Fraction(0)}[x]


def multiply(x: Number, y: Number) -> Number:
    if "nan" in (x, y):
        return "nan"
    negative = is_negative(x) != is_negative(y)
    if x in ("+inf", "-inf") or y in ("+inf", "-inf"):
        if finite(x) == 0 or finite(y) == 0:
            return "nan"
        return "-inf" if negative else "+inf"
    product = finite(x) * finite(y)
    return product if product != 0 else signed_zero(negative)


def add(x: Number, y: Number, mode: str = "rn") -> Number:
    if "nan" in (x, y) or {x, y} == {"+inf", "-inf"}:
        return "nan"
    for infinity in ("+inf", "-inf"):
        if infinity in (x, y):
            return infinity
    if x == "-0" and y == "-0":
        return "-0"
    total = finite(x) + finite(y)
    if total == 0:
        both_plus = x == 0 and y == 0
        return signed_zero(mode == "rm" and not both_plus)
    return total


def divide(x: Number, y: Number) -> Number:
    infinite_x, infinite_y = x in ("+inf", "-inf"), y in ("+inf", "-inf")
    if "nan" in (x, y) or (infinite_x and infinite_y):
        return "nan"
    negative = is_negative(x) != is_negative(y)
    if infinite_x:
        return "-inf" if negative else "+inf"
    if infinite_y:
        return signed_zero(negative)
    if finite(y) == 0:
        return "nan" if finite(x) == 0 else "-inf" if negative else "+inf"
    quotient = finite(x) / finite(y)
    return quotient if quotient != 0 else signed_zero(negative)


def square_root(x: Number) -> Number:
    """To far more bits than any format has; an odd last bit stands for what was cut off."""
    if x in ("nan", "+inf", "-0") or x == 0:
        return x
    if is_negative(x):
        return "nan"
    scaled = finite(x) * Fraction(4) ** 1200
    whole = scaled.numerator // scaled.denominator
    root = isqrt(whole)
    inexact = root * root != whole or scaled.denominator != 1
    return Fraction(2 * root + inexact, 1) / Fraction(2) ** 1201
