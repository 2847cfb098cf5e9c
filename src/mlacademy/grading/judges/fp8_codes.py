"""Exercise 02.1: decode an E4M3 byte."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np

from mlacademy.fp8 import decode_e4m3
from mlacademy.grading.exercise import Case, Exercise, Misconception

FORBIDS = ("mlacademy.fp8", "mlacademy._core", "torch.float8_e4m3fn", "ml_dtypes.float8_e4m3fn")


def bits(code: object) -> str:
    """A code as ``0x58 (0_1011_000)``; anything that is no byte as it is."""
    if not isinstance(code, (int, np.integer)) or not 0 <= code <= 0xFF:
        return repr(code)
    return f"0x{code:02X} ({code >> 7:b}_{code >> 3 & 15:04b}_{code & 7:03b})"


# 02.1


def _decode_cases(rng: np.random.Generator, hidden: bool) -> Iterable[Case]:
    fixed = [
        (0x38, "the number 1"),
        (0x4D, "a normal number"),
        (0xC4, "a negative number"),
        (0x08, "the smallest normal number"),
        (0x7E, "the largest number"),
        (0x78, "an exponent field of ones"),
        (0x01, "the smallest subnormal number"),
        (0x86, "a negative subnormal number"),
        (0x00, "zero"),
        (0x7F, "not a number"),
        (0xFF, "not a number, with a sign"),
    ]
    for code, label in [] if hidden else fixed:
        yield Case({"code": code}, label=label)
    for code in rng.permutation(256).tolist() if hidden else ():
        kind = "a byte that means NaN" if code & 0x7F == 0x7F else "normal" if code & 0x78 else "subnormal"
        yield Case({"code": code}, label=kind if "NaN" in kind else f"a {kind} number")


def decode(code: int) -> float:
    return float(decode_e4m3(code))


def _decode_as(mistake: str) -> Callable[[int], float]:
    """A decoder that is right but for one mistake."""

    def model(code: int) -> float:
        sign, e, m = -1.0 if code & 0x80 else 1.0, code >> 3 & 15, code & 7
        if mistake == "sign":
            sign = 1.0
        if mistake == "complement" and code & 0x80:
            e, m = (256 - code) >> 3 & 15, (256 - code) & 7
        if mistake == "E5M2":
            e, m = code >> 2 & 31, code & 3
            return sign * (2.0 ** (e - 15) * (1 + m / 4) if e else 2.0**-14 * m / 4)
        if mistake == "IEEE" and e == 15:
            return sign * math.inf if m == 0 else math.nan
        if mistake == "sign in exponent":
            e = code >> 3
        if code == 0x7F if mistake == "one NaN" else code & 0x7F == 0x7F and mistake != "no NaN":
            return math.nan
        if e == 0 and mistake != "all normal":
            if mistake == "flush":
                return 0.0
            return sign * m / (1 if mistake == "whole" else 8) * 2.0 ** (-7 if mistake == "exponent -7" else -6)
        return sign * (1 + m / 8) * 2.0 ** (e - (8 if mistake == "bias 8" else 7))

    return model


_SUBNORMAL_HINTS = (
    "Look at the bytes whose exponent field is 0. They must fill the gap between 0 and the smallest normal number, "
    "2^-6, in equal steps.",
    "Without the leading 1, the mantissa alone counts: 0/8, 1/8, … 7/8 of something. Of what, so that 8/8 would be "
    "2^-6?",
    "For e == 0 the value is (m / 8) · 2^-6. The exponent is the one of e == 1, not one lower.",
)
_TOP_HINTS = (
    "Only one pattern of exponent and mantissa is special in E4M3. Count what it would otherwise be worth.",
    "The largest number is 448 = 1.75 · 2^8, so the exponent field 15 is in use. Which of its 8 mantissas is not a "
    "number?",
    "e == 15 and m == 7 is NaN, with either sign. All else with e == 15 is (1 + m/8) · 2^8.",
)
_SIGN_HINTS = (
    "Compare two bytes that differ in the top bit only. What should their values have in common?",
    "The top bit is the sign and nothing else: it does not change the other seven bits.",
    "sign = -1 if code & 0x80 else 1; take e and m from code & 0x7F; multiply at the end.",
)

DECODE_BYTE = Exercise(
    id="02.1",
    title="Decode a byte",
    entry="decode_byte",
    points=2,
    lines=6,
    parameters=("code",),
    outputs=("value",),
    cases=_decode_cases,
    reference=decode,
    misconceptions=(
        Misconception(
            "bias 8",
            "You used a bias of 8: every normal number comes out half as large as it is.",
            (
                "Decode 0_0111_000, which is 1. Which exponent must the field 0111 stand for?",
                "A field of 4 bits has 16 values. The bias is 2^(4-1) - 1.",
                "The bias is 7: the exponent of a normal number is e - 7.",
            ),
            _decode_as("bias 8"),
        ),
        Misconception(
            "all normal",
            "You gave the leading 1 to numbers whose exponent field is 0. Those are subnormal: they have none, and so "
            "0x00 can be zero.",
            _SUBNORMAL_HINTS,
            _decode_as("all normal"),
        ),
        Misconception(
            "exponent -7",
            "Your subnormal numbers are half as large as they are: you took 0 - 7 for their exponent. They have the "
            "exponent of the smallest normal numbers, -6.",
            _SUBNORMAL_HINTS,
            _decode_as("exponent -7"),
        ),
        Misconception(
            "flush",
            "You took every byte with an exponent field of 0 for zero. Seven of them (for each sign) are numbers.",
            _SUBNORMAL_HINTS,
            _decode_as("flush"),
        ),
        Misconception(
            "whole",
            "Your subnormal numbers are 8 times as large as they are: the mantissa counts eighths there as well.",
            _SUBNORMAL_HINTS,
            _decode_as("whole"),
        ),
        Misconception(
            "one NaN",
            "You decoded 0xFF as a number. NaN has a sign bit as well: both 0x7F and 0xFF are NaN.",
            _TOP_HINTS,
            _decode_as("one NaN"),
        ),
        Misconception(
            "no NaN",
            "You decoded the NaN pattern as 480. E4M3 gives up this one number to have a NaN.",
            _TOP_HINTS,
            _decode_as("no NaN"),
        ),
        Misconception(
            "IEEE",
            "You treated an exponent field of ones as in IEEE formats, as infinity and NaN. E4M3 has no infinity, and "
            "uses that field for numbers from 256 to 448.",
            _TOP_HINTS,
            _decode_as("IEEE"),
        ),
        Misconception("sign", "You ignored the sign bit.", _SIGN_HINTS, _decode_as("sign")),
        Misconception(
            "sign in exponent",
            "The sign bit leaked into your exponent: code >> 3 has five bits, and only four belong to it.",
            _SIGN_HINTS,
            _decode_as("sign in exponent"),
        ),
        Misconception(
            "complement",
            "You read the byte in two's complement. A float keeps its sign apart: the other seven bits of +x and -x "
            "are the same.",
            _SIGN_HINTS,
            _decode_as("complement"),
        ),
        Misconception(
            "E5M2",
            "You decoded E5M2, the other 8-bit float: 5 exponent bits, 2 mantissa bits, bias 15.",
            (
                "The name tells the widths: E for exponent, M for mantissa.",
                "E4M3: the byte is s_eeee_mmm.",
                "e = (code >> 3) & 15, m = code & 7, bias 7.",
            ),
            _decode_as("E5M2"),
        ),
    ),
    hints=(
        "Cut the byte into its three fields first, and print them for 0x38, which must decode to 1.",
        "Three cases: the NaN pattern, an exponent field of 0 (subnormal), everything else (normal). Which fields "
        "decide?",
        "e = (code >> 3) & 15 and m = code & 7. NaN for e == 15 and m == 7; ± m/8 · 2^-6 for e == 0; else "
        "± (1 + m/8) · 2^(e - 7).",
    ),
    forbids=FORBIDS,
    show={"code": bits},
)
