"""Exercise 05.1: a safe softmax in base 2."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from mlacademy.grading.exercise import Case, Exercise, Misconception
from mlacademy.grading.judges.softmax_shared import CLOSE, FLOAT32, LISTS, LOG2E, SOFTMAX, Array, agree, holds_nan


def _safe_cases(rng: np.random.Generator, hidden: bool) -> Iterable[Case]:
    def case(label: str, scores: Any, scale: float) -> Case:
        inputs = {"scores": np.asarray(scores, dtype=np.float64), "scale": scale}
        return Case(inputs, label=label, axes=(("token",), ()))

    inf = np.inf
    if not hidden:
        yield case("small scores", [3.52, -1.23, 2.17, 0.89], 1 / 24)
        yield case("another scale", [1.0, 4.0, -2.0, 0.5, 3.0], 0.1352)
        yield case("a hole between tokens", [8.0, -inf, 2.0, 5.0], 0.25)
        yield case("scores far above 0", [9000.0, 8990.0, 9005.0], 0.1352)
        yield case("scores far below 0", [-9000.0, -8990.0, -9005.0], 0.1352)
        yield case("a row of holes", [-inf, -inf, -inf], 0.1352)
        return
    for spread, offset, label in (
        (10.0, 0.0, "scores of both signs"),
        (20.0, 8000.0, "scores far above 0"),
        (20.0, -8000.0, "scores far below 0"),
        (15.0, 0.0, "holes in a longer row"),
    ):
        scores = np.round(offset + spread * rng.normal(size=int(rng.integers(5, 40))), 2)
        if "holes" in label:
            scores[rng.random(scores.size) < 0.4] = -inf
            scores[1] = 3.0
        yield case(label, scores, round(float(rng.uniform(0.05, 0.2)), 3))
    yield case("one token", [-700.0], 0.1352)
    yield case("a row of holes", [-inf] * 5, 0.05)


def _safe(scores: Array, scale: float) -> tuple[Array, float]:
    keep = scores > -np.inf
    if not keep.any():
        return np.zeros_like(scores), -np.inf
    top = float(scores.max())
    e = np.where(keep, np.exp(scale * np.where(keep, scores - top, 0.0)), 0.0)
    return e / e.sum(), (float(np.log(e.sum())) + scale * top) / float(np.log(2))


def _safe_as(what: str) -> Callable[..., Any]:
    """A wrong softmax: the right one with one thing mistaken."""

    @np.errstate(all="ignore")
    def model(scores: Array, scale: float) -> Any:
        multipliers = {"no log2e": scale, "over log2e": scale / LOG2E, "no scale": LOG2E, "twice": scale**2 * LOG2E}
        x = scores * multipliers.get(what, scale * LOG2E)
        top = {"unsafe": 0.0, "raw max": scores.max()}.get(what, x.max())
        w = np.exp(x - top) if what == "base e" else np.exp2(x - top)
        lse = np.log2(w.sum()) + top
        weights, right = _safe(scores, scale)
        if what == "unsafe":
            return w / w.sum(), lse
        if what in multipliers or what in ("raw max", "base e"):
            return (w / w.sum(), lse) if right > -np.inf else (weights, right)
        return {
            "natural": (weights, right / LOG2E),
            "relative": (weights, np.log2(w.sum())),
            "raw max back": (weights, np.log2(w.sum()) + scores.max()),
            "mixed": (weights, np.log(w.sum()) + top),
            "minus": (weights, np.log2(w.sum()) - top),
            "not normalised": (w, right),
            "holes left out": (weights[scores > -np.inf], right),
            "plus infinity": (weights, np.inf if right == -np.inf else right),
        }[what]

    return model


def _multiplier(key: str, says: str) -> Misconception:
    hints = (
        "Which single number must multiply a score so that 2 to the product is e to (scale · score)?",
        "e^y = 2^(y · log2 e). Here y = scale · score, so both factors go into one multiplier, once.",
        "x = scores * (scale * math.log2(math.e)); from there on only x, exp2 and log2 appear.",
    )
    return Misconception(key, says, hints, _safe_as(key))


def _only_holes(expected: Any) -> bool:
    return bool(np.isneginf(expected[1]))


_EMPTY_HINTS = (
    "What are x.max() and x − x.max() when every score is −∞?",
    "Either treat the row of holes before you subtract, or subtract a max that is never below −1e30.",
    "top = max(x.max(), -1e30); then w is all 0: guard the division, np.log2(0) is −∞ by itself.",
)
_LSE_HINTS = (
    "By how much does your lse_log2 differ from the expected one? Compare it with x.max().",
    "log2 of Σ 2^(x − top) is log2 of Σ 2^x, minus top. Both terms are in base 2.",
    "lse_log2 = np.log2(w.sum()) + top, with the same top that you subtracted from x",
)

SAFE = Exercise(
    id="05.1",
    title="Safe softmax in base 2",
    entry="softmax_base2",
    points=2,
    lines=6,
    parameters=("scores", "scale"),
    outputs=("weights", "lse_log2"),
    cases=_safe_cases,
    reference=_safe,
    compare=CLOSE,
    misconceptions=(
        _multiplier("no log2e", "You computed 2^(scale · score). The weight is e^(scale · score): log2 e is missing."),
        _multiplier(
            "over log2e",
            "You divided by log2 e, or multiplied by ln 2, which is the same. e^y is 2^(y · log2 e): the factor "
            "log2 e = 1.4427 multiplies.",
        ),
        _multiplier("no scale", "You left out scale: the weights are e to the scaled scores."),
        _multiplier("twice", "The scale entered twice. It belongs in the multiplier once; the scores stay raw."),
        Misconception(
            "unsafe",
            "Without subtracting the max, 2^x overflows to infinity or every weight underflows to 0, and the quotient "
            "is NaN. Subtract the largest x first; it cancels in the weights.",
            (
                "What is np.exp2(1900.0)? And np.exp2(-1900.0)?",
                "Subtract the row's max from all x before exp2, and add it to log2 of the sum afterwards.",
                "top = x.max(); w = np.exp2(x - top); lse_log2 = np.log2(w.sum()) + top",
            ),
            _safe_as("unsafe"),
        ),
        Misconception(
            "raw max",
            "You subtracted the max of the raw scores from exponents in base 2. What cancels is the max of x, the "
            "scaled scores.",
            (
                "Which numbers go into exp2, and which max did you subtract?",
                "The largest exponent must become 0. So take the max after scaling.",
                "x = scores * (scale * math.log2(math.e)); top = x.max()",
            ),
            _safe_as("raw max"),
        ),
        Misconception(
            "base e",
            "You raised e to exponents that are in base 2 already: log2 e then counts twice.",
            (
                "Which base do exponents have that were multiplied by log2 e?",
                "With log2 e in the multiplier the exponential is exp2. (With np.exp there is no log2 e.)",
                "w = np.exp2(x - top)",
            ),
            _safe_as("base e"),
        ),
        Misconception(
            "empty",
            "A row of holes became NaN: its max is −∞, and −∞ − (−∞) is NaN. The statement asks for weights of 0 and "
            "lse_log2 = −∞.",
            _EMPTY_HINTS,
            when=lambda case, expected, got: _only_holes(expected) and holds_nan(got),
        ),
        Misconception(
            "equal holes",
            "In a row of holes every hole got the same weight. Measured from each other they do, so a hole must be "
            "told from a token by its −∞, or by its distance from a max that is never below −1e30.",
            _EMPTY_HINTS,
            when=lambda case, expected, got: (
                _only_holes(expected) and agree(np.full(len(got[0]), 1 / len(got[0])), got[0])
            ),
        ),
        Misconception(
            "holes left out",
            "Your weights have no entry for a hole. Every place of the list keeps one; a hole's is 0.",
            (
                "How many weights must come back for a list of n places?",
                "exp2(−∞) is 0, so a hole needs no special treatment beside a token.",
                "Compute exp2 of all x at once, without x[x > -np.inf].",
            ),
            _safe_as("holes left out"),
        ),
        Misconception(
            "plus infinity",
            "A row of holes has the partial log-sum-exp −∞ here. +∞ is the mark of an empty row in a *final* lse.",
            (
                "What is log2 of a sum that is 0?",
                "Partial results say −∞, so that 2^lse is the weight that was seen: 0.",
                "Return -np.inf as lse_log2 when no score is above −∞.",
            ),
            _safe_as("plus infinity"),
        ),
        Misconception(
            "empty value",
            "A row of holes has weights of 0 and lse_log2 = −∞, the logarithm of an empty sum.",
            _EMPTY_HINTS,
            when=lambda case, expected, got: _only_holes(expected) and np.shape(expected[0]) == np.shape(got[0]),
        ),
        Misconception(
            "natural",
            "The weights are right, but your log-sum-exp is a natural logarithm; lse_log2 is in base 2.",
            (
                "Which logarithm undoes exp2?",
                "If w = 2^(x − top), the sum's logarithm in the same units is log2.",
                "lse_log2 = np.log2(w.sum()) + top",
            ),
            _safe_as("natural"),
        ),
        Misconception(
            "relative",
            "The weights are right, but your log-sum-exp is relative to the max: add back what you subtracted.",
            _LSE_HINTS,
            _safe_as("relative"),
        ),
        Misconception(
            "raw max back",
            "The weights are right, but to log2 of the sum you added the max of the raw scores. Add the number that "
            "you subtracted, the max of the scaled ones.",
            _LSE_HINTS,
            _safe_as("raw max back"),
        ),
        Misconception(
            "minus",
            "The weights are right, but the max entered lse_log2 with a minus. You subtracted it from x: add it back.",
            _LSE_HINTS,
            _safe_as("minus"),
        ),
        Misconception(
            "mixed",
            "The weights are right, but your lse_log2 adds a natural logarithm and a max in base 2.",
            _LSE_HINTS,
            _safe_as("mixed"),
        ),
        Misconception(
            "not normalised",
            "Your weights are 2^(x − max) and do not sum to 1: divide by their sum.",
            (
                "What do softmax weights sum to?",
                "The sum that you take the logarithm of is also the divisor.",
                "weights = w / w.sum(), with zeros where the sum is 0",
            ),
            _safe_as("not normalised"),
        ),
        FLOAT32,
        LISTS,
    ),
    hints=(
        "Four steps: base-2 units, the max, the weights, the sum. What does each do to a hole, whose score is −∞?",
        "x = scores · scale · log2 e. Subtract the max before exp2; add it back to log2 of the sum. A row of holes has "
        "no max to subtract.",
        "w = np.exp2(x - top); total = w.sum(); weights = w / total; lse_log2 = np.log2(total) + top. For a row of "
        "holes: zeros and −∞.",
    ),
    forbids=SOFTMAX,
)
