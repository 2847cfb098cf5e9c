"""Exercise 05.2: one step of online softmax."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from mlacademy.grading.exercise import Case, Exercise, Misconception
from mlacademy.grading.judges.softmax_shared import CLOSE, FLOAT32, FLOOR, LIBRARY, LISTS, LOG2E, Array, holds_nan


def _step_cases(rng: np.random.Generator, hidden: bool) -> Iterable[Case]:
    inf = np.inf

    def case(label: str, M: float, L: float, x: Any, d: int = 3) -> Case:
        x = np.asarray(x, dtype=np.float64)
        o = np.zeros(d) if L == 0 else np.round(L * rng.normal(size=d), 2)
        inputs = {"M": M, "L": L, "o": o, "x": x, "v": np.round(3 * rng.normal(size=(x.size, d)), 2)}
        return Case(inputs, label=label, axes=((), (), ("element",)))

    if not hidden:
        yield case("the first block", FLOOR, 0.0, [0.0, 1.0])
        yield case("the max rises", 1.0, 1.5, [3.0, 2.0])
        yield case("the max stays", 3.0, 1.875, [1.0, -inf, 2.5])
        yield case("a first block of holes", FLOOR, 0.0, [-inf, -inf, -inf])
        yield case("a later block of holes", 3.0, 2.125, [-inf, -inf])
        yield case("the max rises by a thousand", -400.0, 2.5, [700.0, 650.0])
        return
    for label in ("the first block", "the max rises", "the max stays", "holes and tokens"):
        x = np.round(4 * rng.normal(size=int(rng.integers(3, 20))), 2)
        if "holes" in label:
            x[rng.random(x.size) < 0.5] = -inf
            x[0] = 1.0
        M = {"the first block": FLOOR, "the max rises": x.max() - 3.3, "the max stays": x.max() + 2.2}.get(label, 0.7)
        yield case(label, float(M), 0.0 if M == FLOOR else float(rng.uniform(1, 9)), x, int(rng.integers(2, 7)))
    yield case("a block of holes", 5.5, 3.25, [-inf] * 4)
    yield case("a first block of holes", FLOOR, 0.0, [-inf] * 4)


def _step(M: float, L: float, o: Array, x: Array, v: Array) -> tuple[float, float, Array]:
    top = max(M, float(x.max()))
    w = np.exp2(x - top)
    old = 2.0 ** (M - top)
    return top, old * L + float(w.sum()), old * o + w @ v


def _step_as(what: str) -> Callable[..., Any]:
    @np.errstate(all="ignore")
    def model(M: float, L: float, o: Array, x: Array, v: Array) -> Any:
        own = float(x.max())
        if what == "again":
            x, own = x * LOG2E, own * LOG2E
        top = own if what == "block max" else M if what == "old max" else max(M, own)
        w = np.exp(x - top) if what == "natural" else np.exp2(x - (own if what == "own max" else top))
        old = np.exp2(top - M) if what == "reversed" else np.exp2(M - top)
        if what == "natural":
            old = np.exp(M - top)
        if what == "new":
            return top, L + w.sum() * old, o + w @ v * old
        if what == "all":
            return top, (L + w.sum()) * old, (o + w @ v) * old
        if what == "late":
            w = np.exp2(x - M)
            return top, (L + w.sum()) * old, (o + w @ v) * old
        if what == "forgotten":
            return top, w.sum(), w @ v
        if what == "o forgotten":
            return top, L * old + w.sum(), w @ v
        if what == "reset" and np.isneginf(own):
            return top, 0.0, np.zeros_like(o)
        L_old = L if what in ("L kept", "both kept") else L * old
        o_old = o if what in ("o kept", "both kept") else o * old
        total = L_old + w.sum()
        out = o_old + w @ v
        if what == "divided":
            out = out / total
        elif what == "w divided":
            out = o_old + w @ v / w.sum()
        return top, total, out

    return model


_RESCALE_HINTS = (
    "Everything collected so far was measured from the old max. From where is the new block measured?",
    "A term 2^(x − old) becomes 2^(x − new) by the factor 2^(old − new). It applies to L and to o alike.",
    "rescale = 2.0 ** (M - new_M); L = L * rescale + w.sum(); o = o * rescale + w @ v",
)
_MAX_HINTS = (
    "Which of two numbers is the max of all scores seen so far?",
    "The running max never falls. A block of small scores, or of holes, leaves it where it is.",
    "new_M = max(M, x.max())",
)
_UNIT_HINTS = (
    "In which units does the statement give x and M?",
    "log2 e was multiplied in when x was made. What remains is exp2.",
    "w = np.exp2(x - new_M); rescale = 2.0 ** (M - new_M)",
)
_END_HINTS = (
    "When is the output divided by the sum?",
    "Until the last block, o is a plain sum of weights times values. Dividing early would have to be undone.",
    "Return o * rescale + w @ v as it is.",
)

STEP = Exercise(
    id="05.2",
    title="One online step",
    entry="online_step",
    points=3,
    lines=6,
    parameters=("M", "L", "o", "x", "v"),
    outputs=("M", "L", "o"),
    cases=_step_cases,
    reference=_step,
    compare=CLOSE,
    misconceptions=(
        Misconception(
            "reversed",
            "Your rescale factor is 2^(new − old). It must be 2^(old − new), which is at most 1: old terms shrink when "
            "the max rises.",
            _RESCALE_HINTS,
            _step_as("reversed"),
        ),
        Misconception(
            "both kept",
            "The max rose, but L and o were not rescaled: they still count from the old max.",
            _RESCALE_HINTS,
            _step_as("both kept"),
        ),
        Misconception(
            "o kept",
            "L was rescaled, o was not. The output so far counts from the old max as well.",
            _RESCALE_HINTS,
            _step_as("o kept"),
        ),
        Misconception(
            "L kept",
            "o was rescaled, L was not. The sum so far counts from the old max as well.",
            _RESCALE_HINTS,
            _step_as("L kept"),
        ),
        Misconception(
            "own max",
            "You measured the block's weights from the block's own max; L and o count from the running max.",
            _MAX_HINTS,
            _step_as("own max"),
        ),
        Misconception(
            "block max",
            "You took the block's max as the new running max, even where the old one is larger (and −∞ for holes).",
            _MAX_HINTS,
            _step_as("block max"),
        ),
        Misconception(
            "old max",
            "The running max did not move although the block exceeds it: weights then grow above 1 without bound.",
            _MAX_HINTS,
            _step_as("old max"),
        ),
        Misconception(
            "natural",
            "You used e as the base. x is in base-2 units already, so weights and rescale are powers of 2.",
            _UNIT_HINTS,
            _step_as("natural"),
        ),
        Misconception(
            "divided",
            "You divided o by L inside the step. The statement asks for the unnormalised o.",
            _END_HINTS,
            _step_as("divided"),
        ),
        Misconception(
            "w divided",
            "You normalised the block's weights by the block's own sum before adding them to o.",
            _END_HINTS,
            _step_as("w divided"),
        ),
        Misconception(
            "new",
            "You multiplied the block by the factor. It belongs to what was collected before: the block is measured "
            "from the new max already.",
            _RESCALE_HINTS,
            _step_as("new"),
        ),
        Misconception(
            "all",
            "The factor multiplied the block as well. Only the old L and o take it: the block is measured from the new "
            "max already.",
            _RESCALE_HINTS,
            _step_as("all"),
        ),
        Misconception(
            "late",
            "You measured the block's weights from the old max and rescaled afterwards. In exact arithmetic that is "
            "the same, but 2^(x − old) overflows: before the first block the old max is −1e30.",
            (
                "What is 2^(x − M) at the first block, where M is −1e30?",
                "Move the max first. Then no exponent is above 0, and nothing can overflow.",
                "new_M = max(M, x.max()); w = np.exp2(x - new_M)",
            ),
            _step_as("late"),
        ),
        Misconception(
            "reset",
            "A block of holes set L and o to 0. It adds nothing, and leaves what was collected before as it is.",
            _MAX_HINTS,
            _step_as("reset"),
        ),
        Misconception(
            "forgotten", "The old L and o are gone: the block is added to them.", _RESCALE_HINTS, _step_as("forgotten")
        ),
        Misconception(
            "o forgotten",
            "M and L are right, but the old o is gone: the block is added to it.",
            _RESCALE_HINTS,
            _step_as("o forgotten"),
        ),
        Misconception(
            "again",
            "You multiplied x by log2 e. The statement gives x in base-2 units already.",
            _UNIT_HINTS,
            _step_as("again"),
        ),
        Misconception(
            "equal holes",
            "In a first block of holes every hole got the weight 1. If a hole becomes a finite number, a block of "
            "holes has that number as its max. Leave it at −∞.",
            _MAX_HINTS,
            when=lambda case, expected, got: expected[1] == 0 and got[1] == len(case.inputs["x"]),
        ),
        Misconception(
            "nan",
            "A block of holes became NaN: somewhere −∞ was subtracted from −∞. The running max starts at −1e30 so that "
            "the difference with a hole is −∞, not NaN.",
            _MAX_HINTS,
            when=lambda case, expected, got: holds_nan(got) and bool(np.isneginf(case.inputs["x"]).all()),
        ),
        FLOAT32,
        LISTS,
    ),
    hints=(
        "In this order: the new max, the factor for everything old, the block's weights, then L and o.",
        "The new max is the larger of M and the block's max. The factor 2^(M − new max) repairs L and o; the block's "
        "weights are 2^(x − new max).",
        "new_M = max(M, x.max()); rescale = 2.0 ** (M - new_M); w = np.exp2(x - new_M); then L · rescale + w.sum() and "
        "o · rescale + w @ v.",
    ),
    forbids=LIBRARY,
)
