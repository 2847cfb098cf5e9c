"""Exercise 02.2: encode a number as E4M3."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np

from mlacademy.fp8 import encode_e4m3
from mlacademy.grading.exercise import Case, Exercise, Misconception
from mlacademy.grading.judges.fp8_codes import FORBIDS, bits, decode


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
        (0.0015, "just below the smallest subnormal"),
        (448.0, "the largest number"),
        (460.0, "above the largest number, and still nearest to it"),
        (465.0, "rounding beyond the largest number"),
        (-1e9, "a large negative number"),
        (math.inf, "infinity"),
        (math.nan, "not a number"),
        (0.0, "zero"),
        (-0.0, "minus zero"),
    ]
    for x, label in [] if hidden else fixed:
        yield Case({"x": x}, label=label)
    if not hidden:
        return
    grid = np.array([decode(code) for code in range(0x7F)])
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
        sign = 0x80 if (x < 0 if mistake == "minus zero" else math.copysign(1, x) < 0) else 0
        if math.isnan(x):
            return {"NaN": 0x7E, "NaN sign": sign | 0x7F}.get(mistake, 0x7F)
        if math.isinf(x) and mistake == "infinity":
            return sign | 0x7F
        a = min(abs(x), 1e30)
        if mistake == "float32":
            a = float(np.float32(a))
        if a < {"flush": 2.0**-6, "flush early": 2.0**-9}.get(mistake, 0.0):
            return sign
        exponent = max(math.frexp(a)[1] - 1, -6) if a or mistake == "zero" else -6
        code = _pack(a, exponent, mistake)
        if code > 0x7E:
            code = 0x7F if mistake == "overflow" else code & 0x7F if mistake == "wraps" else 0x7E
        if mistake == "early" and a > 448:
            code = 0x7F
        if mistake == "no sign":
            return code
        return -code & 0xFF if mistake == "complement" and sign else sign | code

    return model


def _pack(a: float, exponent: int, mistake: str) -> int:
    """Exponent and mantissa of ``a`` as a code, which may be beyond 0x7E."""
    exact = a / 2.0 ** (exponent - 3)
    if mistake == "cut":
        steps = math.floor(exact)
    elif mistake == "up":
        steps = math.floor(exact + 0.5)
    elif mistake == "down":
        steps = math.ceil(exact - 0.5)
    elif mistake == "ceil":
        steps = math.ceil(exact)
    else:
        steps = round(exact)
    if mistake == "carry" and steps == 16:
        steps = 8
    if mistake == "leading 1" and 0 < a < 2.0**-6:
        return max(round((math.frexp(a)[0] * 2 - 1) * 8), 0)
    return (exponent + (7 if mistake == "bias 8" else 6)) * 8 + steps


_TIE_HINTS = (
    "Print the two neighbours of the number, and how far it is from each. Then look at the last bit of their codes.",
    "The number is exactly halfway. Ties go to the neighbour whose last mantissa bit is 0, be it above or below.",
    "Python's round(), NumPy's rint and C's default rounding all break ties to even. Count in steps of 2^(exponent - "
    "3) and round the count.",
)
_LOW_HINTS = (
    "Which exponent do the codes 0x01 to 0x07 have, and what is the step between them?",
    "Below 2^-6 the exponent stops falling: the step stays 2^-9, and the count of steps falls below 8, to 0 for zero.",
    "exponent = max(floor(log2 |x|), -6), and -6 for zero; steps = round(|x| / 2^(exponent - 3)). For exponent -6 and "
    "fewer than 8 steps the code is the count itself.",
)
_SIGN_BIT_HINTS = (
    "Encode 0.3 and -0.3. In how many bits may their codes differ?",
    "The top bit is the sign and nothing else; the other seven bits are those of |x|.",
    "Compute the code of abs(x); add 0x80 when math.copysign(1, x) < 0.",
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
            "down",
            "You sent a tie to the smaller neighbour, as a search that keeps the first of two equal distances does. "
            "Ties go to the even code.",
            _TIE_HINTS,
            _encode_as("down"),
        ),
        Misconception(
            "float32",
            "You rounded to float32 first, so that a number next to a tie became a tie. Rounding twice is not rounding "
            "once.",
            (
                "Which of your steps works in float32? The input is a Python float, that is a float64.",
                "Scaling by a power of two is exact in float64; no other conversion is needed before the one rounding.",
                "Leave out np.float32 and struct's 'f'; use math.frexp and round on x itself.",
            ),
            _encode_as("float32"),
        ),
        Misconception(
            "flush early",
            "You sent everything below 2^-9 to zero. The upper half of that range is nearer to 2^-9, code 0x01.",
            _LOW_HINTS,
            _encode_as("flush early"),
        ),
        Misconception(
            "zero",
            "Zero came out as a normal number: frexp(0) gives the exponent 0. It needs the exponent of the subnormals.",
            _LOW_HINTS,
            _encode_as("zero"),
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
            _LOW_HINTS,
            _encode_as("flush"),
        ),
        Misconception(
            "leading 1",
            "You took a leading 1 away from a subnormal number. Below 2^-6 the exponent stays at -6, and the code is "
            "the count of steps of 2^-9.",
            _LOW_HINTS,
            _encode_as("leading 1"),
        ),
        Misconception(
            "ceil",
            "You rounded away from zero. The nearest code may lie below.",
            _TIE_HINTS,
            _encode_as("ceil"),
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
            "NaN sign",
            "You kept the sign of NaN. Every NaN becomes 0x7F here.",
            (
                "What should become of -math.nan?",
                "NaN is the one input whose sign bit is not kept.",
                "if x != x: return 0x7F, before the sign is looked at.",
            ),
            _encode_as("NaN sign"),
        ),
        Misconception(
            "bias 8",
            "Your exponent field is one too large: every normal number comes out twice as large as it is.",
            (
                "1.0 is 2^0. Which field does the exponent 0 have, with a bias of 7?",
                "The field of a normal number is its exponent plus 7. A count of 8 to 15 steps already adds 1 to it.",
                "code = (exponent + 6) * 8 + steps, or (exponent + 7) * 8 + (steps - 8).",
            ),
            _encode_as("bias 8"),
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
        Misconception("no sign", "You ignored the sign.", _SIGN_BIT_HINTS, _encode_as("no sign")),
        Misconception(
            "complement",
            "You negated the code in two's complement. A float keeps its sign apart: only the top bit of -x differs.",
            _SIGN_BIT_HINTS,
            _encode_as("complement"),
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
