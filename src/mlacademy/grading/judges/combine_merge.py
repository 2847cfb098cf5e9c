"""Exercise 06.2: the merge of several splits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from mlacademy.grading.exercise import Case, Exercise, Misconception
from mlacademy.grading.judges.softmax_shared import CLOSE, FLOAT32, LIBRARY, LISTS, LOG2E, Array, agree, holds_nan


def _merge_inputs(rng: np.random.Generator, lse_log2: Any) -> dict[str, Array]:
    lses = np.asarray(lse_log2, dtype=np.float64)
    outs = np.round(2 * rng.normal(size=(*lses.shape, 3)), 2)
    outs[np.isneginf(lses)] = 0.0
    return {"outs": outs, "lse_log2": lses}


def _merge_cases(rng: np.random.Generator, hidden: bool) -> Iterable[Case]:
    inf = np.inf
    axes = (("head", "element"), ("head",))

    def case(label: str, lse_log2: Any) -> Case:
        return Case(_merge_inputs(rng, lse_log2), label=label, axes=axes)

    if not hidden:
        yield case("three splits of one head", [[4.2], [3.8], [2.1]])
        yield case("splits of equal weight, several heads", [[2.0, 5.0], [2.0, 5.0]])
        yield case("one split", [[1.5, -3.0]])
        yield case("an empty split", [[3.0, 1.0], [-inf, 2.0], [1.0, -inf]])
        yield case("a head whose splits are all empty", [[3.0, -inf], [2.5, -inf]])
        yield case("log-sum-exps in the thousands, heads far apart", [[1500.0, -1500.0], [1499.0, -1502.0]])
        return
    for splits, heads, level, label in (
        (7, 4, 0.0, "many splits"),
        (5, 3, 1800.0, "log-sum-exps in the thousands"),
        (5, 3, -1800.0, "log-sum-exps in the thousands"),
    ):
        lses = np.round(level + 3 * rng.normal(size=(splits, heads)), 2)
        lses[1:, 0][rng.random(splits - 1) < 0.5] = -inf
        yield case(label, lses)
    yield case("heads far apart", 2 * rng.normal(size=(3, 3)) + np.array([1500.0, 0.0, -1500.0]))
    yield case("every split of every head empty", [[-inf, -inf]] * 3)


def merge_rows(outs: Array, lse_log2: Array, weights: Array) -> tuple[Array, Array]:
    """``Σ weights·outs``, and the natural log-sum-exp of the splits (+inf where all are empty)."""
    out = np.einsum("sh,shd->hd", weights, outs)
    top = lse_log2.max(axis=0)
    floor = np.where(np.isneginf(top), 0.0, top)
    total = np.exp2(lse_log2 - floor).sum(axis=0)
    lse = (np.log2(np.where(total > 0, total, 1.0)) + floor) / LOG2E
    return out, np.where(total > 0, lse, np.inf)


def split_weights(lse_log2: Array) -> Array:
    """2^(l − G), and 0 for an empty split."""
    top = lse_log2.max(axis=0)
    relative = np.exp2(lse_log2 - np.where(np.isneginf(top), 0.0, top))
    total = relative.sum(axis=0)
    return relative / np.where(total > 0, total, 1.0)


def _merge(outs: Array, lse_log2: Array) -> tuple[Array, Array]:
    return merge_rows(outs, lse_log2, split_weights(lse_log2))


def _merge_as(what: str) -> Callable[..., Any]:
    """A wrong merge: the right one with one thing mistaken."""

    @np.errstate(all="ignore")
    def model(outs: Array, lse_log2: Array) -> Any:
        out, lse = _merge(outs, lse_log2)
        empty = np.isposinf(lse)
        if what in ("average", "average of the rest", "not divided"):
            weights = np.ones_like(lse_log2)
            if what == "average":
                weights /= len(lse_log2)
            elif what == "average of the rest":
                used = lse_log2 > -np.inf
                weights = used / np.maximum(used.sum(axis=0), 1)
            else:
                weights = np.exp2(lse_log2 - np.where(empty, 0.0, lse_log2.max(axis=0)))
            return np.einsum("sh,shd->hd", weights, outs), lse
        if what in ("best", "sum of outs", "over heads", "over all", "by the lse"):
            relative = split_weights(lse_log2)
            weights = {
                "best": (lse_log2 == lse_log2.max(axis=0)) & (lse_log2 > -np.inf),
                "sum of outs": np.ones_like(lse_log2),
                "over heads": split_weights(lse_log2.T).T,
                "over all": relative / relative.sum(),
                "by the lse": lse_log2 / lse_log2.sum(axis=0),
            }[what]
            return np.einsum("sh,shd->hd", weights, outs), lse
        if what == "natural":
            weights = split_weights(lse_log2 * LOG2E)
            return np.einsum("sh,shd->hd", weights, outs), merge_rows(outs, lse_log2 * LOG2E, weights)[1]
        if what == "unsafe":
            w = np.exp2(lse_log2)
            total = w.sum(axis=0)
            kept = np.einsum("sh,shd->hd", w / total, outs)
            return np.where(empty[:, None], 0.0, kept), np.where(empty, np.inf, np.log(total))
        if what == "one max":
            w = np.exp2(lse_log2 - lse_log2.max())
            total = w.sum(axis=0)
            seen = total > 0
            kept = np.einsum("sh,shd->hd", w / np.where(seen, total, 1.0), outs)
            return kept, np.where(seen, (np.log2(total) + lse_log2.max()) / LOG2E, np.inf)
        changed = {
            "base 2": lse * LOG2E,
            "max": lse_log2.max(axis=0) / LOG2E,
            "relative": lse - lse_log2.max(axis=0) / LOG2E,
            "mixed": lse - lse_log2.max(axis=0) / LOG2E + lse_log2.max(axis=0),
            "wrong way": lse * LOG2E**2,
            "sum": (lse_log2 / LOG2E).sum(axis=0),
            "partial mark": lse,
        }[what]
        return out, np.where(empty, -np.inf if what == "partial mark" else np.inf, changed)

    return model


WEIGHT_HINTS = (
    "A split that has seen ten times the weight counts how much more?",
    "Split i counts 2^(l_i − G), where G is the base-2 log-sum-exp of all splits. For three splits 4.2, 3.8, 2.1 that "
    "is 0.5022, 0.3806, 0.1171.",
    "w = np.exp2(lse_log2 - lse_log2.max(axis=0)); w = w / w.sum(axis=0); out = (w[:, :, None] * outs).sum(axis=0)",
)
_FINAL_HINTS = (
    "out is right. Which base and which sum does the final lse have?",
    "G = max + log2 Σ 2^(l − max) is in base 2. The caller gets the natural logarithm.",
    "lse = (np.log2(total) + top) / math.log2(math.e), with total = Σ 2^(l − top)",
)
_NOTHING_HINTS = (
    "What is the max over splits of a head whose splits are all −∞?",
    "For such a head use 0 in place of the max, and do not divide by its sum; its out is 0 and its lse +∞.",
    "top = np.where(np.isneginf(m), 0, m); total = np.exp2(l - top).sum(axis=0); divide by np.where(total > 0, total, "
    "1)",
)


def _only_empty_heads_are_wrong(case: Case, expected: Any, got: Any) -> bool:
    used = np.isfinite(expected[1])
    return not used.all() and all(agree(want[used], have[used]) for want, have in zip(expected, got, strict=True))


MERGE = Exercise(
    id="06.2",
    title="Merge the splits",
    entry="merge",
    points=3,
    lines=10,
    parameters=("outs", "lse_log2"),
    outputs=("out", "lse"),
    cases=_merge_cases,
    reference=_merge,
    compare=CLOSE,
    misconceptions=(
        Misconception(
            "average",
            "You averaged the splits. A split counts by the weight it has seen, 2^(lse_log2), not once like all "
            "others.",
            WEIGHT_HINTS,
            _merge_as("average"),
        ),
        Misconception(
            "average of the rest",
            "You averaged the splits that are not empty. A split counts by the weight it has seen, 2^(lse_log2).",
            WEIGHT_HINTS,
            _merge_as("average of the rest"),
        ),
        Misconception(
            "natural",
            "You raised e to the log-sum-exps. They are in base 2: the weights are powers of 2. (With e they also sum "
            "to 1, which is why the slip is easy to miss.)",
            WEIGHT_HINTS,
            _merge_as("natural"),
        ),
        Misconception(
            "best",
            "You took the output of the heaviest split alone. All splits contribute, each by its weight.",
            WEIGHT_HINTS,
            _merge_as("best"),
        ),
        Misconception(
            "sum of outs",
            "You added the outputs. They are averages already: the merge is an average of them, with weights.",
            WEIGHT_HINTS,
            _merge_as("sum of outs"),
        ),
        Misconception(
            "over heads",
            "Your weights sum to 1 over the heads. They must do so over the splits of each head, axis 0.",
            WEIGHT_HINTS,
            _merge_as("over heads"),
        ),
        Misconception(
            "over all",
            "You divided by the sum over all splits and heads. Each head has a sum of its own, over its splits.",
            WEIGHT_HINTS,
            _merge_as("over all"),
        ),
        Misconception(
            "by the lse",
            "Your weights are proportional to the log-sum-exps. A log-sum-exp is a logarithm; the weight seen is 2 "
            "to that power.",
            WEIGHT_HINTS,
            _merge_as("by the lse"),
        ),
        Misconception(
            "not divided",
            "Your weights are relative to the largest split and do not sum to 1.",
            WEIGHT_HINTS,
            _merge_as("not divided"),
        ),
        Misconception(
            "unsafe",
            "2 to a log-sum-exp in the thousands overflows or underflows. Subtract each head's largest one first.",
            (
                "What is np.exp2(1500.0)?",
                "Only differences of log-sum-exps matter for the weights, so the largest may be subtracted.",
                "top = lse_log2.max(axis=0); w = np.exp2(lse_log2 - top)",
            ),
            _merge_as("unsafe"),
        ),
        Misconception(
            "one max",
            "You subtracted one max for all heads. A head far below it underflows to nothing: take the max over "
            "splits, for each head by itself.",
            (
                "Along which axis is the max taken?",
                "Heads are independent. lse_log2 is [s, h]: the max over the splits is over axis 0.",
                "top = lse_log2.max(axis=0)",
            ),
            _merge_as("one max"),
        ),
        Misconception(
            "partial mark",
            "out is right. A head whose splits are all empty has the final lse +∞; −∞ is what its splits reported.",
            _NOTHING_HINTS,
            _merge_as("partial mark"),
        ),
        Misconception(
            "nan",
            "A head whose splits are all empty became NaN: −∞ − (−∞), or 0 / 0. Its out is 0 and its lse +∞.",
            _NOTHING_HINTS,
            when=lambda case, expected, got: bool(np.isposinf(expected[1]).any()) and holds_nan(got),
        ),
        Misconception(
            "base 2", "Your final lse is in base 2; the caller gets a natural one.", _FINAL_HINTS, _merge_as("base 2")
        ),
        Misconception(
            "max",
            "Your final lse is the largest split's; it must hold the weight of all splits.",
            _FINAL_HINTS,
            _merge_as("max"),
        ),
        Misconception(
            "relative", "Your final lse lacks the max that you subtracted.", _FINAL_HINTS, _merge_as("relative")
        ),
        Misconception(
            "mixed",
            "Your final lse adds a natural logarithm of the sum and a max in base 2. Bring both to one unit first.",
            _FINAL_HINTS,
            _merge_as("mixed"),
        ),
        Misconception(
            "wrong way",
            "You multiplied by log2 e. From base 2 to natural one divides by it.",
            _FINAL_HINTS,
            _merge_as("wrong way"),
        ),
        Misconception(
            "empty head",
            "All heads with tokens are right. A head whose splits are all empty has out 0 and lse +∞.",
            _NOTHING_HINTS,
            when=_only_empty_heads_are_wrong,
        ),
        FLOAT32,
        LISTS,
        Misconception(
            "sum", "You added the log-sum-exps. Weights add, not their logarithms.", _FINAL_HINTS, _merge_as("sum")
        ),
    ),
    hints=(
        "It is safe softmax again, over the splits of each head, with outputs in the place of values.",
        "Per head: the max over splits, 2^(l − max), their sum, weights, the weighted sum of outs. The final lse is "
        "natural. A head without any weight is a case of its own.",
        "top = max over axis 0 (0 where it is −∞); w = np.exp2(lse_log2 - top); total = w.sum(axis=0); out = Σ w·outs "
        "/ total; lse = (log2 total + top) / log2 e, or +∞.",
    ),
    forbids=LIBRARY,
)
