"""Exercises 06.3 and 06.4: weights with an attention sink, and a whole split attention."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from mlacademy.grading.exercise import Case, Exercise, Misconception
from mlacademy.grading.judges.combine_merge import LSE_HINTS, WEIGHT_HINTS, merge_rows, split_weights
from mlacademy.grading.judges.softmax_rows import CLOSE, LOG2E, SOFTMAX, Array, holds_nan

# 06.3


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


def _with_sink(lse_log2: Array, sink: Array) -> Array:
    """Weights 2^(l − G'), 0 where a split or everything is empty, or where the sink takes all."""
    sink_log2 = sink * LOG2E
    top = np.maximum(lse_log2.max(axis=0), sink_log2)
    safe = np.where(np.isfinite(top), top, 0.0)
    relative = np.where(np.isposinf(top), 0.0, np.exp2(lse_log2 - safe))
    total = relative.sum(axis=0) + np.exp2(np.where(np.isposinf(sink_log2), 0.0, sink_log2) - safe)
    return relative / np.where(total > 0, total, 1.0)


def _sink(lse_log2: Array, sink: Array) -> tuple[Array, Array]:
    nothing = np.zeros((*lse_log2.shape, 1))
    return _with_sink(lse_log2, sink), merge_rows(nothing, lse_log2, np.zeros_like(lse_log2))[1]


def _sink_as(what: str) -> Callable[..., Any]:
    @np.errstate(all="ignore")
    def model(lse_log2: Array, sink: Array) -> Any:
        weights, lse = _sink(lse_log2, sink)
        if what == "ignored":
            return split_weights(lse_log2), lse
        if what in ("base 2 sink", "over log2e", "sign"):
            factor = {"base 2 sink": 1 / LOG2E, "over log2e": 1 / LOG2E**2, "sign": -1.0}[what]
            return _with_sink(lse_log2, sink * factor), lse
        if what in ("each split", "twice"):
            own = np.stack([_with_sink(row[None], sink)[0] for row in lse_log2])
            base = split_weights(lse_log2) if what == "each split" else weights
            return base * own, lse
        if what == "count":  # a sink for every split in one common denominator
            return _with_sink(lse_log2, sink + np.log(len(lse_log2))), lse
        if what == "in the lse":
            return weights, np.where(np.isposinf(lse), lse, np.logaddexp(lse, sink))
        if what == "base 2":
            return weights, lse * LOG2E
        if what == "partial mark":
            return weights, np.where(np.isposinf(lse), -np.inf, lse)
        total = np.exp2(lse_log2).sum(axis=0) + np.exp2(sink * LOG2E)
        return np.exp2(lse_log2) / total, lse

    return model


_UNIT_HINTS = (
    "In which unit is the sink, and in which are the log-sum-exps?",
    "e^sink = 2^(sink · log2 e). Bring the sink to base 2 before it meets lse_log2.",
    "sink_log2 = sink * math.log2(math.e)",
)
_SHARE_HINTS = (
    "What do the weights of a head sum to when a sink takes a share?",
    "The sink adds one term to the denominator, once a head: weights = 2^l / (Σ 2^l + 2^sink_log2).",
    "top = np.maximum(lse_log2.max(axis=0), sink_log2); w = np.exp2(lse_log2 - top); w / (w.sum(axis=0) + "
    "np.exp2(sink_log2 - top))",
)
_OUTSIDE_HINTS = (
    "Which of the two outputs may depend on the sink?",
    "lse describes the tokens alone, so that whoever merges this result further can add the sink once.",
    "Compute lse from lse_log2 alone, as in 06.2.",
)
_INFINITE_HINTS = (
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
            "Your weights sum to 1 although there is a sink. The sink belongs into the denominator.",
            _SHARE_HINTS,
            _sink_as("ignored"),
        ),
        Misconception(
            "base 2 sink",
            "You used the sink as a base-2 number. It is in natural units: 2^(sink · log2 e) is its term.",
            _UNIT_HINTS,
            _sink_as("base 2 sink"),
        ),
        Misconception(
            "over log2e",
            "You divided the sink by log2 e. From natural to base 2 the factor log2 e = 1.4427 multiplies.",
            _UNIT_HINTS,
            _sink_as("over log2e"),
        ),
        Misconception(
            "sign", "The sink entered with the wrong sign: a larger sink takes more.", _SHARE_HINTS, _sink_as("sign")
        ),
        Misconception(
            "each split",
            "You gave every split a sink of its own. The row has one sink, and it is applied once, in the merge.",
            _SHARE_HINTS,
            _sink_as("each split"),
        ),
        Misconception(
            "twice",
            "The sink was applied in every split and again in the merge. Exactly one place applies it.",
            _SHARE_HINTS,
            _sink_as("twice"),
        ),
        Misconception(
            "count",
            "Your denominator holds the sink's term once for every split. It belongs there once a head.",
            _SHARE_HINTS,
            _sink_as("count"),
        ),
        Misconception(
            "in the lse",
            "The weights are right, but your lse contains the sink. The returned lse never does.",
            _OUTSIDE_HINTS,
            _sink_as("in the lse"),
        ),
        Misconception("base 2", "Your lse is in base 2; asked is the natural one.", _OUTSIDE_HINTS, _sink_as("base 2")),
        Misconception(
            "partial mark",
            "The weights are right. A head whose splits are all empty has the final lse +∞, with any sink.",
            _OUTSIDE_HINTS,
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
            _INFINITE_HINTS,
            when=lambda case, expected, got: holds_nan(got),
        ),
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


# 06.4


def _whole_cases(rng: np.random.Generator, hidden: bool) -> Iterable[Case]:
    def case(label: str, heads: int, bounds: list[int], holes: Any = (), lift: Any = 0.0, sink: Any = None) -> Case:
        n = bounds[-1]
        scores = np.round(12 * rng.normal(size=(heads, n)), 2) + np.asarray(lift)
        for where in holes:
            scores[where] = -np.inf
        scale = round(float(rng.uniform(0.05, 0.2)), 3)
        inputs = {
            "scores": scores,
            "values": np.round(2 * rng.normal(size=(n, 3)), 2),
            "bounds": bounds,
            "scale": scale,
            "sink": np.round(rng.normal(size=heads) + 2, 2) if sink is None else np.asarray(sink, dtype=np.float64),
        }
        return Case(inputs, label=label, axes=(("head", "element"), ("head",), ("split", "head")))

    every, off = slice(None), -np.inf
    if not hidden:
        yield case("two splits, no sink", 2, [0, 4, 8], sink=[off, off])
        yield case("unequal splits and a sink", 3, [0, 2, 9])
        yield case("one split", 2, [0, 6])
        yield case("a split of holes", 2, [0, 4, 8], [(every, slice(4, 8))])
        yield case("a split without positions", 2, [0, 3, 3, 7])
        yield case("a head without any token", 3, [0, 4, 8], [(1, every)])
        yield case("heads at very different levels", 2, [0, 5, 8], lift=[[9000.0], [-9000.0]], sink=[0.5, off])
        return
    for splits in (3, 8):
        n = int(rng.integers(20, 90))
        bounds = [0, *sorted(int(c) for c in rng.integers(0, n + 1, splits - 1)), n]
        yield case("other cuts, holes and sinks", 4, bounds, [rng.random((4, n)) < 0.4])
    yield case("heads without any token", 3, [0, 5, 5, 11], [(0, every), (2, every)], sink=[3.0, 1.0, np.inf])
    yield case("infinite sinks", 3, [0, 6, 13], sink=[np.inf, off, 0.0])
    yield case("one token a split", 2, [0, 1, 2, 3, 4])


def _pieces(scores: Array, values: Array, bounds: list[int], multiplier: float) -> tuple[Array, Array]:
    outs, lses = [], []
    for start, stop in itertools.pairwise(bounds):
        x, v = scores[:, start:stop] * multiplier, values[start:stop]
        top = np.max(x, axis=1, initial=-np.inf)
        safe = np.where(np.isneginf(top), 0.0, top)
        w = np.exp2(x - safe[:, None])
        total = w.sum(axis=1)
        seen = np.where(total > 0, total, 1.0)
        outs.append(w @ v / seen[:, None])
        lses.append(np.where(total > 0, np.log2(seen) + safe, -np.inf))
    return np.stack(outs), np.stack(lses)


def _whole(scores: Array, values: Array, bounds: list[int], scale: float, sink: Array) -> tuple[Array, Array, Array]:
    outs, lses = _pieces(scores, values, bounds, scale * LOG2E)
    return (*merge_rows(outs, lses, _with_sink(lses, sink)), lses)


def _whole_as(what: str) -> Callable[..., Any]:
    @np.errstate(all="ignore")
    def model(scores: Array, values: Array, bounds: list[int], scale: float, sink: Array) -> Any:
        multiplier = scale if what == "no log2e" else scale * LOG2E
        outs, lses = _pieces(scores, values, bounds[:-1] if what == "last split" else bounds, multiplier)
        weights = _with_sink(lses, sink)
        own = np.stack([_with_sink(row[None], sink)[0] for row in lses])
        if what == "average":
            weights = np.full_like(lses, 1 / len(lses))
        elif what == "no sink":
            weights = split_weights(lses)
        elif what == "each split":
            weights = split_weights(lses) * own
        elif what == "twice":
            weights = weights * own
        elif what == "base 2 sink":
            weights = _with_sink(lses, sink / LOG2E)
        elif what == "natural merge":
            weights = _with_sink(lses * LOG2E, sink * LOG2E)
        out, lse = merge_rows(outs, lses, weights)
        if what == "in the lse":
            lse = np.where(np.isposinf(lse), lse, np.logaddexp(lse, sink))
        elif what == "base 2":
            lse = lse * LOG2E
        elif what == "partial mark":
            lse = np.where(np.isposinf(lse), -np.inf, lse)
        elif what == "natural partials":
            lses = lses / LOG2E
        elif what == "final marks":
            lses = np.where(np.isneginf(lses), np.inf, lses)
        return out, lse, lses

    return model


_SCALE_HINTS = (
    "Which single number must multiply a score so that 2 to the product is e to (scale · score)?",
    "e^y = 2^(y · log2 e). Here y = scale · score, so both factors go into one multiplier, once.",
    "x = scores[:, start:stop] * (scale * math.log2(math.e))",
)
_CUT_HINTS = (
    "How many splits do three bounds describe, and where does the last one end?",
    "Split i covers the tokens bounds[i] to bounds[i+1] − 1. There is one split fewer than there are bounds.",
    "for start, stop in zip(bounds, bounds[1:]): x = scores[:, start:stop]",
)
_PARTIAL_HINTS = (
    "What does a split report that has seen no token of a head?",
    "Partial results are in base 2: log2 of the split's sum plus its max, and −∞ without tokens, which weighs 0 in the "
    "merge.",
    "Use your partial result from 06.1, for every head of the slice; lse_log2[i] is its second part.",
)

WHOLE = Exercise(
    id="06.4",
    title="Split attention, whole",
    entry="split_attention",
    points=4,
    lines=18,
    parameters=("scores", "values", "bounds", "scale", "sink"),
    outputs=("out", "lse", "lse_log2"),
    cases=_whole_cases,
    reference=_whole,
    compare=CLOSE,
    misconceptions=(
        Misconception("last split", "The last split is missing.", _CUT_HINTS, _whole_as("last split")),
        Misconception(
            "no log2e",
            "You used scale as it is with exp2. The multiplier is scale · log2 e, because e^y = 2^(y · log2 e).",
            _SCALE_HINTS,
            _whole_as("no log2e"),
        ),
        Misconception(
            "average",
            "You averaged the splits' outputs. A split counts by the weight it has seen.",
            WEIGHT_HINTS,
            _whole_as("average"),
        ),
        Misconception("no sink", "The sink is missing from the denominator.", _SHARE_HINTS, _whole_as("no sink")),
        Misconception(
            "each split",
            "Every split got a sink of its own, so the result depends on the cuts. Apply it once, in the merge.",
            _SHARE_HINTS,
            _whole_as("each split"),
        ),
        Misconception(
            "twice",
            "The sink was applied in every split and again in the merge. Exactly one place applies it.",
            _SHARE_HINTS,
            _whole_as("twice"),
        ),
        Misconception(
            "base 2 sink",
            "You used the sink as a base-2 number. It is in natural units: 2^(sink · log2 e) is its term.",
            _UNIT_HINTS,
            _whole_as("base 2 sink"),
        ),
        Misconception(
            "natural merge",
            "The merge raises e to log-sum-exps that are in base 2.",
            WEIGHT_HINTS,
            _whole_as("natural merge"),
        ),
        Misconception(
            "in the lse",
            "Your lse contains the sink. The returned lse never does.",
            _OUTSIDE_HINTS,
            _whole_as("in the lse"),
        ),
        Misconception(
            "base 2", "Your final lse is in base 2; asked is the natural one.", _OUTSIDE_HINTS, _whole_as("base 2")
        ),
        Misconception(
            "partial mark",
            "A head without any token has the final lse +∞; −∞ is what each of its splits reports.",
            _OUTSIDE_HINTS,
            _whole_as("partial mark"),
        ),
        Misconception(
            "natural partials",
            "out and lse are right, but your partial log-sum-exps are natural. lse_log2 is in base 2.",
            LSE_HINTS,
            _whole_as("natural partials"),
        ),
        Misconception(
            "final marks",
            "out and lse are right, but a split without tokens must report −∞. +∞ marks an empty row in the final lse.",
            _PARTIAL_HINTS,
            _whole_as("final marks"),
        ),
        Misconception(
            "nan",
            "An infinity met an infinity, or 0 was divided by 0: a split or a head without tokens, or a sink of +∞.",
            _INFINITE_HINTS,
            when=lambda case, expected, got: holds_nan(got),
        ),
    ),
    hints=(
        "Two parts that you have already: 06.1 for each split (all heads at once), then 06.2 with the weights of 06.3.",
        "Loop over consecutive bounds, collect outs [s, h, d] and lse_log2 [s, h]. A split may have no position: give "
        "np.max an initial value of −∞. Then merge once, with the sink.",
        "x = scores[:, a:b] * scale * log2e; top = x.max(axis=1, initial=-np.inf), 0 where −∞; w = np.exp2(x - top[:, "
        "None]); o = w @ v / sum; l = log2(sum) + top; at the end the weighted sum of all o.",
    ),
    forbids=SOFTMAX,
)
