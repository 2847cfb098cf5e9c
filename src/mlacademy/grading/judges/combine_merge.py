"""Exercises 06.1 and 06.2: the partial result of one split, and the merge of several."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from mlacademy.grading.exercise import Case, Exercise, Misconception
from mlacademy.grading.judges.softmax_rows import CLOSE, LIBRARY, LOG2E, SOFTMAX, Array, holds_nan

# 06.1


def _partial_cases(rng: np.random.Generator, hidden: bool) -> Iterable[Case]:
    inf = np.inf

    def case(label: str, x: Any) -> Case:
        x = np.asarray(x, dtype=np.float64)
        inputs = {"x": x, "v": np.round(3 * rng.normal(size=(x.size, 3)), 2)}
        return Case(inputs, label=label, axes=(("element",), ()))

    if not hidden:
        yield case("four equal scores", [0.0, 0.0, 0.0, 0.0])
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
        w = np.exp2(x - top)
        if what == "natural weights":
            w = np.exp(x - top)
        o, lse = w @ v / w.sum(), top + np.log2(w.sum())
        if what in ("unsafe", "natural weights"):
            return o, lse
        right_o, right = _partial(x, v)
        return {
            "not divided": (np.zeros(v.shape[1]) if right == -np.inf else w @ v, right),
            "sum": (right_o, 2.0**right),
            "natural": (right_o, right / LOG2E),
            "relative": (right_o, np.log2(w.sum()) if right > -np.inf else right),
            "max": (right_o, float(x.max())),
            "final mark": (right_o, np.inf if right == -np.inf else right),
        }[what]

    return model


LSE_HINTS = (
    "o is right. What single number tells a stranger how much weight this split has seen?",
    "The weight seen is Σ 2^x. Its base-2 logarithm is log2 of Σ 2^(x − top), plus top.",
    "lse_log2 = np.log2(w.sum()) + top",
)
_EMPTY_HINTS = (
    "How much weight has a split without tokens seen, and what is its base-2 logarithm?",
    "The weight seen is 0, so lse_log2 is −∞, and o is a vector of zeros: no division.",
    "if not np.isfinite(x).any(): return np.zeros(v.shape[1]), -np.inf",
)

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
            when=lambda case, expected, got: bool(np.isneginf(expected[1])) and holds_nan(got),
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
            (
                "In which units does the statement give x?",
                "log2 e was multiplied in when x was made. What remains is exp2.",
                "w = np.exp2(x - x.max())",
            ),
            _partial_as("natural weights"),
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
            "sum", "You returned the sum of weights; asked is its base-2 logarithm.", LSE_HINTS, _partial_as("sum")
        ),
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


# 06.2


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
