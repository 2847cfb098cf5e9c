"""Exercise 06.1: the partial result of one split."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from mlacademy.grading.exercise import Case, Exercise, Misconception
from mlacademy.grading.judges.softmax_shared import CLOSE, FLOAT32, LISTS, LOG2E, SOFTMAX, Array, agree, holds_nan


def _partial_cases(rng: np.random.Generator, hidden: bool) -> Iterable[Case]:
    inf = np.inf

    def case(label: str, x: Any) -> Case:
        x = np.asarray(x, dtype=np.float64)
        inputs = {"x": x, "v": np.round(3 * rng.normal(size=(x.size, 3)), 2)}
        return Case(inputs, label=label, axes=(("element",), ()))

    if not hidden:
        yield case("four equal scores", [1.0, 1.0, 1.0, 1.0])
        yield case("unequal scores", [1.0, -2.0, 3.5])
        yield case("a hole", [2.0, -inf, 0.5])
        yield case("a split of holes", [-inf, -inf])
        yield case("scores far above 0", [1500.0, 1498.0])
        yield case("scores far below 0", [-1500.0, -1498.5, -inf])
        return
    for offset in (0.0, 1700.0, -1700.0):
        x = np.round(offset + 3 * rng.normal(size=int(rng.integers(3, 30))), 2)
        x[rng.random(x.size) < 0.3] = -inf
        x[2] = offset
        yield case("longer splits with holes", x)
    yield case("one token", [-3.25])
    yield case("a split of holes", [-inf] * 6)


def _partial(x: Array, v: Array) -> tuple[Array, float]:
    tokens = x > -np.inf
    if not tokens.any():
        return np.zeros(v.shape[1]), -np.inf
    top = float(x.max())
    w = np.exp2(x[tokens] - top)
    return w @ v[tokens] / w.sum(), top + float(np.log2(w.sum()))


def _partial_as(what: str) -> Callable[..., Any]:
    @np.errstate(all="ignore")
    def model(x: Array, v: Array) -> Any:
        top = 0.0 if what == "unsafe" else float(x.max())
        if what == "again":
            x, top = x * LOG2E, top * LOG2E
        w = np.exp2(x - top)
        if what == "natural weights":
            w = np.exp(x - top)
        o, lse = w @ v / w.sum(), top + np.log2(w.sum())
        if what in ("unsafe", "natural weights", "again"):
            return o, lse
        right_o, right = _partial(x, v)
        if what == "counted":
            return w @ v / len(x), right
        return {
            "not divided": (np.zeros(v.shape[1]) if right == -np.inf else w @ v, right),
            "sum": (right_o, 2.0**right if right > -np.inf else right),
            "mixed": (right_o, np.log(w.sum()) + top),
            "natural": (right_o, right / LOG2E),
            "relative": (right_o, np.log2(w.sum()) if right > -np.inf else right),
            "max": (right_o, float(x.max())),
            "final mark": (right_o, np.inf if right == -np.inf else right),
        }[what]

    return model


LSE_HINTS = (
    "o is right. What single number tells somebody else how much weight this split has seen?",
    "The weight seen is Σ 2^x. Its base-2 logarithm is log2 of Σ 2^(x − top), plus top.",
    "lse_log2 = np.log2(w.sum()) + top",
)
_UNIT_HINTS = (
    "In which units does the statement give x?",
    "log2 e was multiplied in when x was made. What remains is exp2.",
    "w = np.exp2(x - x.max())",
)
_EMPTY_HINTS = (
    "How much weight has a split without tokens seen, and what is its base-2 logarithm?",
    "The weight seen is 0, so lse_log2 is −∞, and o is a vector of zeros: no division.",
    "if not np.isfinite(x).any(): return np.zeros(v.shape[1]), -np.inf",
)


def _only_holes(expected: Any) -> bool:
    return bool(np.isneginf(expected[1]))


PARTIAL = Exercise(
    id="06.1",
    title="The partial result of a split",
    entry="partial_result",
    points=2,
    lines=6,
    parameters=("x", "v"),
    outputs=("o", "lse_log2"),
    cases=_partial_cases,
    reference=_partial,
    compare=CLOSE,
    misconceptions=(
        Misconception(
            "unsafe",
            "Without subtracting the max, 2^x overflows or underflows: infinity over infinity, or 0 over 0, is NaN.",
            (
                "What is np.exp2(1500.0)?",
                "Subtract the split's max before exp2, and add it to log2 of the sum.",
                "top = x.max(); w = np.exp2(x - top); lse_log2 = np.log2(w.sum()) + top",
            ),
            _partial_as("unsafe"),
        ),
        Misconception(
            "empty",
            "A split of holes became NaN. It reports o = 0 and lse_log2 = −∞, so that it weighs nothing in the merge.",
            _EMPTY_HINTS,
            when=lambda case, expected, got: _only_holes(expected) and holds_nan(got),
        ),
        Misconception(
            "equal holes",
            "In a split of holes every hole weighed as much as the others, so o became the mean of the values. A hole "
            "weighs nothing: do not replace its −∞ by a finite number.",
            _EMPTY_HINTS,
            when=lambda case, expected, got: _only_holes(expected) and agree(case.inputs["v"].mean(axis=0), got[0]),
        ),
        Misconception(
            "counted",
            "You divided o by the number of positions. The weights' own sum is what makes it an average under them.",
            (
                "If one token has nearly all the weight, what should o be close to?",
                "An average under weights is Σ w·v / Σ w.",
                "o = w @ v / w.sum()",
            ),
            _partial_as("counted"),
        ),
        Misconception(
            "final mark",
            "A split of holes reports −∞, not +∞. +∞ marks an empty row in the *final* lse; as a partial result it "
            "would weigh everything.",
            _EMPTY_HINTS,
            _partial_as("final mark"),
        ),
        Misconception(
            "not divided",
            "Your o is Σ w·v. A partial output is normalised: divide by the split's own sum of weights.",
            (
                "If all values are 1, what is the output of attention over any tokens?",
                "Each split is an attention of its own; its output is an average of its values.",
                "o = w @ v / w.sum()",
            ),
            _partial_as("not divided"),
        ),
        Misconception(
            "natural weights",
            "You used e as the base. x is in base-2 units already: weights are powers of 2.",
            _UNIT_HINTS,
            _partial_as("natural weights"),
        ),
        Misconception(
            "again",
            "You multiplied x by log2 e. The statement gives x in base-2 units already.",
            _UNIT_HINTS,
            _partial_as("again"),
        ),
        Misconception(
            "natural", "Your log-sum-exp is natural; lse_log2 is in base 2.", LSE_HINTS, _partial_as("natural")
        ),
        Misconception(
            "relative", "Your lse_log2 lacks the max that you subtracted.", LSE_HINTS, _partial_as("relative")
        ),
        Misconception(
            "max",
            "You returned the max. Two splits with equal maxima may have seen very different weight: use the whole "
            "sum.",
            LSE_HINTS,
            _partial_as("max"),
        ),
        Misconception(
            "sum",
            "You returned the sum of weights; the statement asks for its base-2 logarithm.",
            LSE_HINTS,
            _partial_as("sum"),
        ),
        Misconception(
            "mixed",
            "o is right, but your lse_log2 adds a natural logarithm and a max in base 2.",
            LSE_HINTS,
            _partial_as("mixed"),
        ),
        Misconception(
            "empty value",
            "A split of holes reports o = 0 and lse_log2 = −∞, the logarithm of an empty sum.",
            _EMPTY_HINTS,
            when=lambda case, expected, got: _only_holes(expected) and np.shape(expected[0]) == np.shape(got[0]),
        ),
        FLOAT32,
        LISTS,
    ),
    hints=(
        "A split is a small attention of its own. What does it need besides its average of values?",
        "Weights 2^(x − max), their sum, the average of the values under them, and log2 of the sum with the max added "
        "back. Without a token there is no max to subtract.",
        "w = np.exp2(x - x.max()); o = w @ v / w.sum(); lse_log2 = np.log2(w.sum()) + x.max(); zeros and −∞ for a "
        "split of holes.",
    ),
    forbids=SOFTMAX,
)
