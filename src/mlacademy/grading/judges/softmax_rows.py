"""Exercises 05.1 and 05.2: a safe softmax in base 2, and one step of online softmax."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlacademy.grading.compare import Close
from mlacademy.grading.exercise import Case, Exercise, Misconception

Array = NDArray[np.float64]

LOG2E = float(np.log2(np.e))
FLOOR = -1e30
LIBRARY = ("mlacademy.softmax", "mlacademy.attention")
SOFTMAX = (*LIBRARY, "torch.softmax", "torch.nn.functional.softmax", "torch.logsumexp")
CLOSE = Close(
    atol=1e-9,
    rtol=1e-9,
    why="float64 keeps about 16 digits; exponents of up to 3,000 leave 12 of them in a weight",
)


def holds_nan(got: Any) -> bool:
    """Whether any number of a result is NaN (False for what is no number)."""
    parts = got if isinstance(got, (tuple, list)) else [got]
    try:
        return any(bool(np.isnan(np.asarray(part, dtype=np.float64)).any()) for part in parts)
    except (TypeError, ValueError):
        return False


# 05.1


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
        top = 0.0 if what == "unsafe" else x.max()
        w = np.exp2(x - top)
        lse = np.log2(w.sum()) + top
        weights, right = _safe(scores, scale)
        if what == "unsafe" or (what in multipliers and right > -np.inf):
            return w / w.sum(), lse
        if what in multipliers:
            return weights, right
        return {
            "natural": (weights, right / LOG2E),
            "relative": (weights, np.log2(w.sum())),
            "not normalised": (w, right),
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
            "over log2e", "You divided by log2 e. e^y is 2^(y · log2 e): the factor log2 e = 1.4427 multiplies."
        ),
        _multiplier("no scale", "You left out scale: the weights are e to the scaled scores."),
        _multiplier("twice", "The scale entered twice. It belongs into the multiplier once; the scores stay raw."),
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
            "empty",
            "A row of holes became NaN: its max is −∞, and −∞ − (−∞) is NaN. The statement asks for weights of 0 and "
            "lse_log2 = −∞.",
            (
                "What are x.max() and x − x.max() when every score is −∞?",
                "Either treat the row of holes before you subtract, or subtract a max that is never below −1e30.",
                "top = max(x.max(), -1e30); then w is all 0: guard the division, np.log2(0) is −∞ by itself.",
            ),
            when=lambda case, expected, got: bool(np.isneginf(expected[1])) and holds_nan(got),
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
            (
                "By how much does your lse_log2 differ from the expected one? Compare it with x.max().",
                "log2 of Σ 2^(x − top) is log2 of Σ 2^x, minus top.",
                "lse_log2 = np.log2(w.sum()) + top",
            ),
            _safe_as("relative"),
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


# 05.2


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
        top = own if what == "block max" else M if what == "old max" else max(M, own)
        w = np.exp(x - top) if what == "natural" else np.exp2(x - (own if what == "own max" else top))
        old = np.exp2(top - M) if what == "reversed" else np.exp2(M - top)
        if what == "natural":
            old = np.exp(M - top)
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
            (
                "In which units does the statement give x and M?",
                "log2 e was multiplied in when x was made. What remains is exp2.",
                "w = np.exp2(x - new_M); rescale = 2.0 ** (M - new_M)",
            ),
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
            "nan",
            "A block of holes became NaN: somewhere −∞ was subtracted from −∞. The running max starts at −1e30 so that "
            "the difference with a hole is −∞, not NaN.",
            _MAX_HINTS,
            when=lambda case, expected, got: holds_nan(got),
        ),
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
