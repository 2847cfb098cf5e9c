"""Exercise 06.4: split attention from raw scores to the final output."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from mlacademy.grading.exercise import Case, Exercise, Misconception
from mlacademy.grading.judges.combine_merge import WEIGHT_HINTS, merge_rows, split_weights
from mlacademy.grading.judges.combine_partial import LSE_HINTS
from mlacademy.grading.judges.combine_sink import INFINITE_HINTS, OUTSIDE_HINTS, SHARE_HINTS, UNIT_HINTS, with_sink
from mlacademy.grading.judges.softmax_shared import CLOSE, FLOAT32, LISTS, LOG2E, SOFTMAX, Array, agree, holds_nan


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
        yield case("two splits, no sink", 3, [0, 4, 8], sink=[off, off, off])
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


def _relative_sums(scores: Array, bounds: list[int], multiplier: float) -> Array:
    """Σ 2^(x − max) of every split and head (NaN for a split of holes)."""
    pieces = [scores[:, start:stop] * multiplier for start, stop in itertools.pairwise(bounds)]
    return np.stack([np.exp2(x - x.max(axis=1, initial=-np.inf)[:, None]).sum(axis=1) for x in pieces])


def _whole(scores: Array, values: Array, bounds: list[int], scale: float, sink: Array) -> tuple[Array, Array, Array]:
    outs, lses = _pieces(scores, values, bounds, scale * LOG2E)
    return (*merge_rows(outs, lses, with_sink(lses, sink)), lses)


def _whole_as(what: str) -> Callable[..., Any]:
    @np.errstate(all="ignore")
    def model(scores: Array, values: Array, bounds: list[int], scale: float, sink: Array) -> Any:
        factors = {"no log2e": scale, "no scale": LOG2E, "scale twice": scale**2 * LOG2E}
        multiplier = factors.get(what, scale * LOG2E)
        if what == "empty dropped":
            bounds = sorted(set(bounds))
        outs, lses = _pieces(scores, values, bounds[:-1] if what == "last split" else bounds, multiplier)
        weights = with_sink(lses, sink)
        own = np.stack([with_sink(row[None], sink)[0] for row in lses])
        if what == "sink scaled":
            weights = with_sink(lses, sink * scale)
        elif what == "sums merged":
            seen = np.where(np.isneginf(lses), 0.0, _relative_sums(scores, bounds, multiplier))
            outs = outs * seen[:, :, None]
        elif what == "empty is 0":
            lses = np.where(np.isneginf(lses), 0.0, lses)
            weights = with_sink(lses, sink)
        elif what == "average":
            weights = np.full_like(lses, 1 / len(lses))
        elif what == "no sink":
            weights = split_weights(lses)
        elif what == "each split":
            weights = split_weights(lses) * own
        elif what == "twice":
            weights = weights * own
        elif what == "base 2 sink":
            weights = with_sink(lses, sink / LOG2E)
        elif what == "natural merge":
            weights = with_sink(lses * LOG2E, sink * LOG2E)
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


def _only_empty_heads_are_wrong(case: Case, expected: Any, got: Any) -> bool:
    used = np.isfinite(expected[1])
    rest = agree(expected[0][used], got[0][used]) and agree(expected[1][used], got[1][used])
    return not used.all() and rest and agree(expected[2], got[2])


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
        Misconception("no sink", "The sink is missing from the denominator.", SHARE_HINTS, _whole_as("no sink")),
        Misconception(
            "each split",
            "Every split got a sink of its own, so the result depends on the cuts. Apply it once, in the merge.",
            SHARE_HINTS,
            _whole_as("each split"),
        ),
        Misconception(
            "twice",
            "The sink was applied in every split and again in the merge. Exactly one place applies it.",
            SHARE_HINTS,
            _whole_as("twice"),
        ),
        Misconception(
            "base 2 sink",
            "You used the sink as a base-2 number. It is in natural units: 2^(sink · log2 e) is its term.",
            UNIT_HINTS,
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
            OUTSIDE_HINTS,
            _whole_as("in the lse"),
        ),
        Misconception(
            "base 2",
            "Your final lse is in base 2; the statement asks for the natural one.",
            OUTSIDE_HINTS,
            _whole_as("base 2"),
        ),
        Misconception(
            "no scale",
            "You left out scale: the weights are e to the scaled scores.",
            _SCALE_HINTS,
            _whole_as("no scale"),
        ),
        Misconception(
            "scale twice",
            "The scale entered twice. It belongs in the multiplier once.",
            _SCALE_HINTS,
            _whole_as("scale twice"),
        ),
        Misconception(
            "sink scaled",
            "You multiplied the sink by scale. The scale is for dot products; the sink is a logit, scaled already.",
            UNIT_HINTS,
            _whole_as("sink scaled"),
        ),
        Misconception(
            "sums merged",
            "You merged unnormalised outputs with weights that stand for whole splits. Divide each partial output by "
            "its split's own sum first.",
            _PARTIAL_HINTS,
            _whole_as("sums merged"),
        ),
        Misconception(
            "empty is 0",
            "A split without tokens reports lse_log2 = −∞. A 0 says that it has seen the weight 2^0 = 1.",
            _PARTIAL_HINTS,
            _whole_as("empty is 0"),
        ),
        Misconception(
            "finite holes",
            "A split of holes reported a finite log-sum-exp: its holes became large negative numbers, and measured "
            "from each other they weigh as much as tokens. Leave holes at −∞.",
            _PARTIAL_HINTS,
            when=lambda case, expected, got: bool(np.isfinite(got[2][np.isneginf(expected[2])]).any()),
        ),
        Misconception(
            "empty dropped",
            "You left out the split without positions. It is a split like the others and reports −∞.",
            _CUT_HINTS,
            _whole_as("empty dropped"),
        ),
        Misconception(
            "partial mark",
            "A head without any token has the final lse +∞; −∞ is what each of its splits reports.",
            OUTSIDE_HINTS,
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
            INFINITE_HINTS,
            when=lambda case, expected, got: holds_nan(got) and not _only_empty_heads_are_wrong(case, expected, got),
        ),
        Misconception(
            "empty head",
            "All heads with tokens are right. A head without any has out 0 and lse +∞.",
            OUTSIDE_HINTS,
            when=_only_empty_heads_are_wrong,
        ),
        FLOAT32,
        LISTS,
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
