"""Exercise 06.3: the weights of splits beside an attention sink."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from mlacademy.grading.exercise import Case, Exercise, Misconception
from mlacademy.grading.judges.combine_merge import merge_rows, split_weights
from mlacademy.grading.judges.softmax_shared import CLOSE, FLOAT32, LISTS, LOG2E, SOFTMAX, Array, holds_nan


def _sink_cases(rng: np.random.Generator, hidden: bool) -> Iterable[Case]:
    inf = np.inf

    def case(label: str, lse_log2: Any, sink: Any) -> Case:
        inputs = {"lse_log2": np.asarray(lse_log2, dtype=np.float64), "sink": np.asarray(sink, dtype=np.float64)}
        return Case(inputs, label=label, axes=(("split", "head"), ("head",)))

    if not hidden:
        yield case("the running example", [[5.6210], [5.4671]], [-2.5])
        yield case("a sink of its own for each head", [[4.0, 1.0, 2.0], [3.0, 2.5, 2.0]], [0.0, 1.5, 3.0])
        yield case("an empty split", [[3.0, -inf], [-inf, 2.0]], [1.0, 1.0])
        yield case("a head whose splits are all empty", [[3.0, -inf], [2.0, -inf]], [0.5, 0.5])
        yield case("infinite sinks", [[3.0, 2.0], [1.0, 2.5]], [-inf, inf])
        yield case("numbers in the thousands", [[1500.0, -1500.0], [1501.0, -1499.0]], [1040.0, -1040.0])
        return
    for splits, heads, level in ((1, 3, 0.0), (6, 4, 0.0), (4, 3, 1600.0), (4, 3, -1600.0)):
        lses = np.round(level + 2 * rng.normal(size=(splits, heads)), 2)
        lses[1:, 1][rng.random(splits - 1) < 0.5] = -inf
        label = "other splits, heads and sinks" if level == 0 else "numbers in the thousands"
        yield case(label, lses, np.round(level / LOG2E + 2 * rng.normal(size=heads), 2))
    yield case("infinite sinks and empty heads", [[-inf, 2.0, -inf]] * 2, [inf, inf, -inf])


def with_sink(lse_log2: Array, sink: Array) -> Array:
    """Weights 2^(l − G'), 0 where a split or everything is empty, or where the sink takes all."""
    sink_log2 = sink * LOG2E
    top = np.maximum(lse_log2.max(axis=0), sink_log2)
    safe = np.where(np.isfinite(top), top, 0.0)
    relative = np.where(np.isposinf(top), 0.0, np.exp2(lse_log2 - safe))
    total = relative.sum(axis=0) + np.exp2(np.where(np.isposinf(sink_log2), 0.0, sink_log2) - safe)
    return relative / np.where(total > 0, total, 1.0)


def _sink(lse_log2: Array, sink: Array) -> tuple[Array, Array]:
    nothing = np.zeros((*lse_log2.shape, 1))
    return with_sink(lse_log2, sink), merge_rows(nothing, lse_log2, np.zeros_like(lse_log2))[1]


def _sink_as(what: str) -> Callable[..., Any]:
    @np.errstate(all="ignore")
    def model(lse_log2: Array, sink: Array) -> Any:
        weights, lse = _sink(lse_log2, sink)
        if what == "ignored":
            return split_weights(lse_log2), lse
        if what in ("natural", "all natural"):
            slipped = _sink(lse_log2 * LOG2E, sink)
            return slipped if what == "all natural" else (slipped[0], lse)
        if what == "sink row":
            return np.vstack([weights, 1 - weights.sum(axis=0)]), lse
        if what == "subtracted":
            return split_weights(lse_log2) - np.exp(sink - lse), lse
        if what == "not relative":
            relative = np.exp2(lse_log2 - lse_log2.max(axis=0))
            return relative / (relative.sum(axis=0) + np.exp(sink)), lse
        if what in ("base 2 sink", "over log2e", "sign"):
            factor = {"base 2 sink": 1 / LOG2E, "over log2e": 1 / LOG2E**2, "sign": -1.0}[what]
            return with_sink(lse_log2, sink * factor), lse
        if what in ("each split", "twice"):
            own = np.stack([with_sink(row[None], sink)[0] for row in lse_log2])
            base = split_weights(lse_log2) if what == "each split" else weights
            return base * own, lse
        if what == "count":  # a sink for every split in one common denominator
            return with_sink(lse_log2, sink + np.log(len(lse_log2))), lse
        if what == "in the lse":
            return weights, np.where(np.isposinf(lse), lse, np.logaddexp(lse, sink))
        if what == "base 2":
            return weights, lse * LOG2E
        if what == "partial mark":
            return weights, np.where(np.isposinf(lse), -np.inf, lse)
        total = np.exp2(lse_log2).sum(axis=0) + np.exp2(sink * LOG2E)
        return np.exp2(lse_log2) / total, lse

    return model


UNIT_HINTS = (
    "In which unit is the sink, and in which are the log-sum-exps?",
    "e^sink = 2^(sink · log2 e). Bring the sink to base 2 before it meets lse_log2.",
    "sink_log2 = sink * math.log2(math.e)",
)
SHARE_HINTS = (
    "What do the weights of a head sum to when a sink takes a share?",
    "The sink adds one term to the denominator, once a head: weights = 2^l / (Σ 2^l + 2^sink_log2).",
    "top = np.maximum(lse_log2.max(axis=0), sink_log2); w = np.exp2(lse_log2 - top); w / (w.sum(axis=0) + "
    "np.exp2(sink_log2 - top))",
)
OUTSIDE_HINTS = (
    "Which of the two outputs may depend on the sink?",
    "lse describes the tokens alone, so that whoever merges this result further can add the sink once.",
    "Compute lse from lse_log2 alone, as in 06.2.",
)
INFINITE_HINTS = (
    "Which differences are −∞ − (−∞) or ∞ − ∞ in this case?",
    "sink = +∞: every weight is 0. Everything empty: every weight is 0. Elsewhere the largest exponent is finite and "
    "may be subtracted.",
    "safe = np.where(np.isfinite(top), top, 0); set the weights to 0 where sink is +∞; divide where the total is above "
    "0.",
)

SINK = Exercise(
    id="06.3",
    title="Weights with a sink",
    entry="weights_with_sink",
    points=3,
    lines=9,
    parameters=("lse_log2", "sink"),
    outputs=("weights", "lse"),
    cases=_sink_cases,
    reference=_sink,
    compare=CLOSE,
    misconceptions=(
        Misconception(
            "ignored",
            "Your weights sum to 1 although there is a sink. The sink belongs in the denominator.",
            SHARE_HINTS,
            _sink_as("ignored"),
        ),
        Misconception(
            "base 2 sink",
            "You used the sink as a base-2 number. It is in natural units: 2^(sink · log2 e) is its term.",
            UNIT_HINTS,
            _sink_as("base 2 sink"),
        ),
        Misconception(
            "over log2e",
            "You divided the sink by log2 e. From natural to base 2 the factor log2 e = 1.4427 multiplies.",
            UNIT_HINTS,
            _sink_as("over log2e"),
        ),
        Misconception(
            "sign", "The sink entered with the wrong sign: a larger sink takes more.", SHARE_HINTS, _sink_as("sign")
        ),
        Misconception(
            "each split",
            "You gave every split a sink of its own. The row has one sink, and it is applied once, in the merge.",
            SHARE_HINTS,
            _sink_as("each split"),
        ),
        Misconception(
            "twice",
            "The sink was applied in every split and again in the merge. Exactly one place applies it.",
            SHARE_HINTS,
            _sink_as("twice"),
        ),
        Misconception(
            "count",
            "Your denominator holds the sink's term once for every split. It belongs there once a head.",
            SHARE_HINTS,
            _sink_as("count"),
        ),
        Misconception(
            "in the lse",
            "The weights are right, but your lse contains the sink. The returned lse never does.",
            OUTSIDE_HINTS,
            _sink_as("in the lse"),
        ),
        Misconception(
            "base 2",
            "Your lse is in base 2; the statement asks for the natural one.",
            OUTSIDE_HINTS,
            _sink_as("base 2"),
        ),
        Misconception(
            "natural",
            "You raised e to lse_log2. Its base is 2; only the sink is in natural units.",
            UNIT_HINTS,
            _sink_as("natural"),
        ),
        Misconception(
            "all natural",
            "You took lse_log2 for a natural log-sum-exp. Its base is 2: weights are powers of 2, and the returned lse "
            "is divided by log2 e.",
            UNIT_HINTS,
            _sink_as("all natural"),
        ),
        Misconception(
            "sink row",
            "You returned the sink's own weight as one more row. Weights are for splits, which have an output.",
            SHARE_HINTS,
            _sink_as("sink row"),
        ),
        Misconception(
            "subtracted",
            "You subtracted the sink's term from the weights. It belongs in the denominator, so that all weights "
            "shrink by one factor.",
            SHARE_HINTS,
            _sink_as("subtracted"),
        ),
        Misconception(
            "not relative",
            "The splits' terms are 2^(l − max), but the sink's term lacks the max: subtract the same number from all "
            "exponents.",
            SHARE_HINTS,
            _sink_as("not relative"),
        ),
        Misconception(
            "partial mark",
            "The weights are right. A head whose splits are all empty has the final lse +∞, with any sink.",
            OUTSIDE_HINTS,
            _sink_as("partial mark"),
        ),
        Misconception(
            "unsafe",
            "Numbers in the thousands overflow or underflow as powers. Subtract the larger of the sink and the largest "
            "log-sum-exp first.",
            (
                "What is np.exp2(1500.0)?",
                "Only differences matter: subtract one number from the log-sum-exps and from the sink alike.",
                "top = np.maximum(lse_log2.max(axis=0), sink_log2)",
            ),
            _sink_as("unsafe"),
        ),
        Misconception(
            "nan",
            "An infinity met an infinity: −∞ − (−∞) where everything is empty, or ∞ − ∞ where the sink is +∞. The "
            "weights are 0 there.",
            INFINITE_HINTS,
            when=lambda case, expected, got: holds_nan(got),
        ),
        FLOAT32,
        LISTS,
    ),
    hints=(
        "One more logit joins the splits' log-sum-exps, but it has no output. What does that do to the weights?",
        "Bring the sink to base 2. Subtract the largest of all exponents, sink included. The sink's term goes into the "
        "denominator only. lse is computed without it.",
        "top = np.maximum(lse_log2.max(axis=0), sink_log2), made finite; w = np.exp2(lse_log2 - top); "
        "weights = w / (w.sum(axis=0) + np.exp2(sink_log2 - top)); zeros where the sink is +∞.",
    ),
    forbids=SOFTMAX,
)
