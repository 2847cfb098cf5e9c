"""Exercises 02.1 and 02.2: decode an E4M3 byte, encode a number."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np

from mlacademy.fp8 import decode_e4m3, encode_e4m3
from mlacademy.grading.exercise import Case, Exercise, Misconception

FORBIDS = ("mlacademy.fp8", "mlacademy._core")


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


def _decode(code: int) -> float:
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
        if (e, m) == (15, 7) and mistake != "no NaN":
            return math.nan
        if e == 0 and mistake != "all normal":
            if mistake == "flush":
                return 0.0
            return sign * m / 8 * 2.0 ** (-7 if mistake == "exponent -7" else -6)
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
    reference=_decode,
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


# 02.2


def _encode_cases(rng: np.random.Generator, hidden: bool) -> Iterable[Case]:
    fixed = [
        (1.0, "a number that E4M3 has"),
        (-0.3, "a negative number"),
        (18.9, "a number between two codes"),
        (19.0, "a tie that goes up"),
        (17.0, "a tie that goes down"),
        (15.9, "rounding up into the next power of two"),
        (0.0042, "a subnormal result"),
        (0.0151, "rounding up to the smallest normal number"),
        (2.0**-10, "the tie between 0 and the smallest subnormal"),
        (448.0, "the largest number"),
        (460.0, "above the largest number, and still nearest to it"),
        (465.0, "rounding beyond the largest number"),
        (-1e9, "a large negative number"),
        (math.inf, "infinity"),
        (math.nan, "not a number"),
        (-0.0, "minus zero"),
    ]
    for x, label in [] if hidden else fixed:
        yield Case({"x": x}, label=label)
    if not hidden:
        return
    grid = np.array([_decode(code) for code in range(0x7F)])
    for low in rng.choice(0x7E, 40, replace=False):
        sign, tie = float(rng.choice([-1, 1])), float(grid[low] + grid[low + 1]) / 2
        yield Case({"x": sign * tie}, label="ties")
        yield Case({"x": sign * math.nextafter(tie, math.inf)}, label="numbers next to a tie")
        yield Case({"x": sign * math.nextafter(tie, 0)}, label="numbers next to a tie")
    for x in 2.0 ** rng.uniform(-12, 11, 100) * rng.choice([-1, 1], 100):
        yield Case({"x": float(x)}, label="numbers of any size")
    for x in (-math.inf, -math.nan, 0.0, 464.0, -464.0, math.nextafter(464, 500), 5e-324, -1e308):
        yield Case({"x": x}, label="numbers at and beyond the ends")


def _encode(x: float) -> int:
    return int(encode_e4m3(x))


def _encode_as(mistake: str) -> Callable[[float], int]:
    """An encoder that is right but for one mistake."""

    def model(x: float) -> int:
        if math.isnan(x):
            return 0x7E if mistake == "NaN" else 0x7F
        sign = 0x80 if (x < 0 if mistake == "minus zero" else math.copysign(1, x) < 0) else 0
        if math.isinf(x) and mistake == "infinity":
            return sign | 0x7F
        a = min(abs(x), 1e30)
        if mistake == "flush" and a < 2.0**-6:
            return sign
        exponent = max(math.frexp(a)[1] - 1, -6) if a else -6
        exact = a / 2.0 ** (exponent - 3)
        steps = math.floor(exact) if mistake == "cut" else math.floor(exact + 0.5) if mistake == "up" else round(exact)
        if mistake == "carry" and steps == 16:
            steps = 8
        code = (exponent + 6) * 8 + steps
        if code > 0x7E:
            code = 0x7F if mistake == "overflow" else code & 0x7F if mistake == "wraps" else 0x7E
        if mistake == "early" and a > 448:
            code = 0x7F
        return sign | code

    return model


_TIE_HINTS = (
    "Print the two neighbours of the number, and how far it is from each. Then look at the last bit of their codes.",
    "The number is exactly halfway. Ties go to the neighbour whose last mantissa bit is 0, be it above or below.",
    "Python's round(), NumPy's rint and C's default rounding all break ties to even. Count in steps of 2^(exponent - "
    "3) and round the count.",
)
_END_HINTS = (
    "What would the code after 0x7E be, and may an ordinary number have it?",
    "Round first, as if there were a 480; then see whether the result is larger than 448.",
    "Compute the code without the sign; min(code, 0x7E) is saturation. NaN is the only input with 0x7F.",
)

ENCODE_NUMBER = Exercise(
    id="02.2",
    title="Encode a number",
    entry="encode_number",
    points=3,
    lines=9,
    parameters=("x",),
    outputs=("code",),
    cases=_encode_cases,
    reference=_encode,
    misconceptions=(  # the rarer mistakes first: a grosser one may look the same on the cases that fail
        Misconception(
            "up",
            "You rounded a tie away from zero (floor(x + 0.5) does that). Ties go to the even code.",
            _TIE_HINTS,
            _encode_as("up"),
        ),
        Misconception(
            "cut",
            "You cut the surplus bits off instead of rounding to the nearest code.",
            _TIE_HINTS,
            _encode_as("cut"),
        ),
        Misconception(
            "flush",
            "You sent everything below 2^-6 to zero. Subnormal codes reach down to 2^-9, and half a step below.",
            (
                "Which exponent do the codes 0x01 to 0x07 have, and what is the step between them?",
                "Below 2^-6 the exponent stops falling: the step stays 2^-9, and the count of steps shrinks below 8.",
                "exponent = max(floor(log2 |x|), -6); steps = round(|x| / 2^(exponent - 3)). For exponent -6 and fewer "
                "than 8 steps the code is the count itself.",
            ),
            _encode_as("flush"),
        ),
        Misconception(
            "carry",
            "You lost a carry: when rounding up makes the mantissa overflow, the exponent must go up by one. Your "
            "result is half as large as it should be.",
            (
                "15.9 lies between 15 and 16. Both have codes, one after the other. Which exponent does 16 have?",
                "In units of the step, 15.9 is 15.9 steps of 1, which rounds to 16. A mantissa holds 8 to 15 steps.",
                "Codes are consecutive across powers of two: (exponent + 6) * 8 + steps is right for 16 steps as well.",
            ),
            _encode_as("carry"),
        ),
        Misconception(
            "infinity",
            "You encoded infinity as NaN. With saturation it becomes ±448, like every number beyond the end.",
            _END_HINTS,
            _encode_as("infinity"),
        ),
        Misconception(
            "overflow",
            "You turned overflow into NaN. That is the other convention; this exercise saturates, as "
            "cvt.rn.satfinite does.",
            _END_HINTS,
            _encode_as("overflow"),
        ),
        Misconception(
            "early",
            "You turned everything above 448 into NaN. This exercise saturates; and numbers up to 464 would even round "
            "to 448 without any saturation.",
            _END_HINTS,
            _encode_as("early"),
        ),
        Misconception(
            "wraps",
            "Your code ran over its seven bits and started again at small numbers. Check the end of the range before "
            "you pack the fields.",
            _END_HINTS,
            _encode_as("wraps"),
        ),
        Misconception(
            "NaN",
            "You encoded NaN as a number. min() and comparisons let NaN slip through; ask for it first.",
            (
                "What does a comparison with NaN give, whichever way round?",
                "math.isnan(x), or x != x, before anything else.",
                "if x != x: return 0x7F",
            ),
            _encode_as("NaN"),
        ),
        Misconception(
            "minus zero",
            "You lost the sign of -0.0: it is not smaller than 0. Its code is 0x80.",
            (
                "What is -0.0 < 0 in Python?",
                "The sign is a bit of its own. Which function reads the sign bit of a float, of zero as well?",
                "math.copysign(1, x) < 0 is true for -0.0.",
            ),
            _encode_as("minus zero"),
        ),
    ),
    hints=(
        "Deal with NaN first, take the sign apart, and work with |x|. What is the step between codes near |x|?",
        "Near |x| the step is 2^(exponent - 3), where 2^exponent is the power of two at or below |x|, but never less "
        "than 2^-6. Count the steps in |x| and round the count.",
        "exponent = max(math.frexp(a)[1] - 1, -6), steps = round(a / 2.0 ** (exponent - 3)), code = min((exponent + 6) "
        "* 8 + steps, 0x7E), plus 0x80 for the sign. Mind a = 0 and infinity.",
    ),
    forbids=FORBIDS,
    show={"code": bits},
)
