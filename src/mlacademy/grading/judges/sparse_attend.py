"""Exercise 03.4: sparse attention of one request over a list of slots with holes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlacademy.grading.compare import Close
from mlacademy.grading.exercise import Case, Exercise, Misconception

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Result = tuple[Array, Array]


def _attend(q: Array, cache: Array, indices: Ints, length: int, scale: float, d_v: int) -> Result:
    tokens = cache.reshape(-1, cache.shape[2])
    named = np.array([slot for slot in indices[:length] if slot != -1], dtype=np.int64)
    return _softmax(scale * q @ tokens[named].T, tokens[named, :d_v])


def _softmax(logits: Array, values: Array) -> Result:
    if logits.shape[1] == 0:
        return np.zeros((len(logits), values.shape[1])), np.full(len(logits), np.inf)
    top = logits.max(axis=1, keepdims=True)
    e = np.exp(logits - top)
    total = e.sum(axis=1, keepdims=True)
    return e / total @ values, (top + np.log(total))[:, 0]


def _cases(rng: np.random.Generator, hidden: bool) -> Iterable[Case]:
    def case(
        label: str,
        indices: list[int],
        length: int | None = None,
        *,
        spread: float = 1.0,
        d_v: int = 4,
        older: tuple[int, ...] = (),
    ) -> Case:
        """A cache that is NaN wherever no entry that counts points, but for the slots of `older` tokens."""
        h, d, pages, page = 3, 6, 5, 4
        length = len(indices) if length is None else length
        used = [*older, *(slot for slot in indices[:length] if slot != -1)]
        tokens = np.full((pages * page, d), np.nan)
        tokens[used] = rng.normal(size=(len(used), d))
        q = spread * rng.normal(size=(h, d))
        scale = float(rng.uniform(0.3, 0.9))
        inputs = {
            "q": q,
            "cache": tokens.reshape(pages, page, d),
            "indices": np.array(indices, dtype=np.int64),
            "length": length,
            "scale": scale,
            "d_v": d_v,
        }
        return Case(inputs, label=label, axes=(("head", "element"), ("head",)))

    if not hidden:
        yield case("no holes", [7, 2, 13, 5])
        yield case("slot 0 in the list", [0, 9, 4])
        yield case("holes in front and between", [-1, 6, -1, -1, 11, 3])
        yield case("a slot that is named twice", [8, 1, 8, -1, 14])
        yield case("entries behind the length", [10, -1, 2, 15, 6], length=3, older=(15, 6))
        yield case("garbage behind the length", [4, 9, 2_147_483_647, -7], length=2)
        yield case("large logits", [3, 17, 6, -1], spread=900.0)
        yield case("a list of holes", [-1, -1, -1])
        return
    for count in (1, 5, 12, 40):
        indices = rng.integers(0, 20, count)
        indices[rng.random(count) < 0.3] = -1
        indices[0] = 0
        yield case("slots, holes and duplicates anywhere", indices.tolist(), d_v=int(rng.integers(2, 6)))
        length = int(rng.integers(0, count + 1))
        yield case("garbage behind the length", [*indices.tolist()[:length], 10**6, -5], length=length)
    yield case("large logits", rng.integers(0, 20, 9).tolist(), spread=2000.0)
    yield case("a length of 0", [3, 4], length=0)
    yield case("a list of holes", [-1] * 6)


def _attend_as(what: str) -> Callable[..., Result]:
    """A wrong attention: the right one with one thing mistaken."""

    @np.errstate(all="ignore")
    def model(q: Array, cache: Array, indices: Ints, length: int, scale: float, d_v: int) -> Result:
        d = cache.shape[2]
        tokens = cache.reshape(-1, d)
        kept = indices[:length]
        hole = kept == -1
        if what in ("zeros", "masked NaN", "last"):
            rows = tokens[np.where(hole, -1 if what == "last" else 0, kept)]
            if what == "zeros":
                rows = np.where(hole[:, None], 0.0, rows)
            logits = scale * q @ rows.T
            if what == "masked NaN":
                logits = np.where(hole, -np.inf, logits)
            return _softmax(logits, rows[:, :d_v])
        if what == "length":
            return _attend(q, cache, indices, len(indices), scale, d_v)
        if what == "slot 0":
            return _attend(q, cache, kept[kept > 0], length, scale, d_v)
        if what == "unique":
            return _attend(q, cache, np.unique(kept[~hole]), length, scale, d_v)
        if what == "no scale":
            return _attend(q, cache, indices, length, 1.0, d_v)
        if what == "root":
            return _attend(q, cache, indices, length, d**-0.5, d_v)
        named = kept[~hole]
        if what == "last values":
            return _softmax(scale * q @ tokens[named].T, tokens[named, d - d_v :])
        if what == "all values":
            return _softmax(scale * q @ tokens[named].T, tokens[named])
        out, lse = _attend(q, cache, indices, length, scale, d_v)
        if what == "base 2":
            return out, lse / np.log(2)
        if what == "sum":
            return out, np.exp(lse)
        if what == "relative":
            return out, lse - (scale * q @ tokens[named].T).max(axis=1)
        return out, np.where(lse == np.inf, -np.inf, lse)

    return model


def _overflow(case: Case, expected: Any, got: Any) -> bool:
    """Infinite or NaN results where the logits are beyond what exp can take."""
    logits = case.inputs["scale"] * np.abs(case.inputs["q"]).max()
    try:
        finite = all(np.isfinite(np.asarray(part, dtype=np.float64)).all() for part in got)
    except (TypeError, ValueError):
        return False
    return bool(logits > 100 and not finite)


def _empty(case: Case, expected: Any, got: Any) -> bool:
    """NaN where no entry counts."""
    counted = case.inputs["indices"][: case.inputs["length"]]
    try:
        nan = any(np.isnan(np.asarray(part, dtype=np.float64)).any() for part in got)
    except (TypeError, ValueError):
        return False
    return bool(nan and (counted == -1).all())


def _over_heads(case: Case, expected: Any, got: Any) -> bool:
    """Weights that sum to 1 over the heads of a token."""
    q, cache, indices, length, scale, d_v = case.inputs.values()
    rows = cache.reshape(-1, cache.shape[2])[[slot for slot in indices[:length] if slot != -1]]
    logits = scale * q @ rows.T
    weights = np.exp(logits - logits.max(axis=0))
    mixed = weights / weights.sum(axis=0) @ rows[:, :d_v]
    out = np.asarray(got[0], dtype=np.float64)
    return bool(np.allclose(mixed, out, rtol=1e-9, atol=1e-9) and not np.allclose(expected[0], out))


def _digits(value: float) -> str:
    return f"{value:.10g}"


_HOLE_HINTS = (
    "Which entries of the list may contribute to the sums at all?",
    "Two ways work: drop the holes before you read the cache, or read something harmless for them and set their "
    "scores to minus infinity, so that their weight is exactly 0.",
    "used = indices[:length]; used = used[used != -1]; rows = cache.reshape(-1, d)[used]; go on with these rows alone.",
)
_LSE_HINTS = (
    "The output is right; look at lse. Which logarithm, and of what?",
    "lse is the natural logarithm of the sum of exp(scaled score). If you subtracted the largest score before exp, it "
    "has to come back.",
    "lse = top + np.log(np.exp(scores − top).sum(axis=1)).",
)
_VALUE_HINTS = (
    "A cached row serves twice: whole as the key, in part as the value. Which part?",
    "The value is the latent, which stands first. RoPE, which stands last, belongs to the key alone.",
    "values = rows[:, :d_v]",
)
_EMPTY_HINTS = (
    "What are the largest score and the sum of exponentials of nothing?",
    "Treat a list without a single token before you divide by its sum.",
    "if used.size == 0: return np.zeros((h, d_v)), np.full(h, np.inf)",
)

SPARSE_ATTENTION = Exercise(
    id="03.4",
    title="Attend to a list of slots",
    entry="attend",
    points=4,
    lines=12,
    parameters=("q", "cache", "indices", "length", "scale", "d_v"),
    outputs=("out", "lse"),
    cases=_cases,
    reference=_attend,
    compare=Close(
        atol=1e-9,
        rtol=1e-9,
        why="values are a few units, and scores of thousands carry a float64 error of about 1e-12 into the weights",
    ),
    misconceptions=(
        Misconception(
            "zeros",
            "Your holes take part: a row of zeros has the score 0, and softmax gives a score of 0 the weight e⁰ = 1. "
            "A hole needs the weight 0, that is the score −∞.",
            _HOLE_HINTS,
            _attend_as("zeros"),
        ),
        Misconception(
            "last",
            "A hole read the last slot of the pool: in NumPy the index −1 counts from the end.",
            _HOLE_HINTS,
            _attend_as("last"),
        ),
        Misconception(
            "masked NaN",
            "Your holes have the weight 0, but the row that you read in their place holds NaN, and 0 · NaN is NaN. "
            "Replace a hole's values as well, or do not read them at all.",
            _HOLE_HINTS,
            _attend_as("masked NaN"),
        ),
        Misconception(
            "slot 0",
            "You left slot 0 out. It is a slot like any other; only −1 is a hole.",
            (
                "Which test separates tokens from holes in your answer?",
                "An entry of 0 names the first token of page 0.",
                "Keep entries that differ from −1: used[used != -1].",
            ),
            _attend_as("slot 0"),
        ),
        Misconception(
            "unique",
            "You attended to each slot once. A slot that is named twice counts twice; no kernel looks for duplicates.",
            (
                "How often does the list name each slot?",
                "np.unique and set() drop repetitions.",
                "Index the cache with the list as it is; repeated entries give repeated rows.",
            ),
            _attend_as("unique"),
        ),
        Misconception(
            "length",
            "You read entries at or behind length. They are holes whatever they hold.",
            (
                "Which argument did you not use?",
                "Only the first length entries count.",
                "used = indices[:length]",
            ),
            _attend_as("length"),
        ),
        Misconception(
            "no scale",
            "You left out scale: the scores are scale · q·k.",
            (
                "Which argument did you not use?",
                "Softmax depends on how far scores are apart; scale decides that.",
                "scores = scale * (q @ rows.T)",
            ),
            _attend_as("no scale"),
        ),
        Misconception(
            "root",
            "You scaled by 1/√d. The scale is an argument here: latent attention's is not 1/√d of the cached row.",
            (
                "Which argument did you not use?",
                "DeepSeek-V3.2 scales by 0.1352, not by 1/√576 = 0.0417.",
                "scores = scale * (q @ rows.T)",
            ),
            _attend_as("root"),
        ),
        Misconception(
            "heads",
            "Your weights sum to 1 over the heads of a token. Softmax goes over the tokens, for each head by itself.",
            (
                "Which sums of your weights are 1: those of a head, or those of a token?",
                "With scores of shape [h, n] the tokens are the last axis.",
                "weights / weights.sum(axis=1, keepdims=True), and the maximum along the same axis.",
            ),
            when=_over_heads,
        ),
        Misconception(
            "last values",
            "You took the last d_v columns as values; the value is the first d_v columns of a row.",
            _VALUE_HINTS,
            _attend_as("last values"),
        ),
        Misconception(
            "all values",
            "Your output is as wide as a key. The value is the first d_v columns of a row only.",
            _VALUE_HINTS,
            _attend_as("all values"),
        ),
        Misconception(
            "base 2",
            "Your lse is a base-2 logarithm. Asked is the natural one.",
            _LSE_HINTS,
            _attend_as("base 2"),
        ),
        Misconception(
            "relative",
            "Your lse is relative to the largest score: after subtracting it for exp, add it back.",
            _LSE_HINTS,
            _attend_as("relative"),
        ),
        Misconception(
            "sum",
            "You returned the sum of the exponentials; asked is its natural logarithm.",
            _LSE_HINTS,
            _attend_as("sum"),
        ),
        Misconception(
            "minus infinity",
            "A list without tokens has lse = +∞ by the kernels' convention, not −∞: then exp(score − lse) is 0 for "
            "whoever uses it. (A *partial* result uses −∞; that is chapter 06.)",
            (
                "What does the statement say about a list without tokens?",
                "ln 0 is −∞, but the public interface marks an empty row by +∞.",
                "Return +np.inf for every head when no entry counts.",
            ),
            _attend_as("minus infinity"),
        ),
        Misconception(
            "empty",
            "No entry counts in this case, and your answer divided 0 by 0. The output is 0 and lse is +∞ then.",
            _EMPTY_HINTS,
            when=_empty,
        ),
        Misconception(
            "overflow",
            "The scores of this case are large, and exp of anything above 709 overflows in float64. Softmax does not "
            "change when a head's largest score is subtracted from all of its scores; then no exponent is above 0.",
            (
                "What is np.exp(1000.0)?",
                "Subtract each head's largest score before exp, and add it to the logarithm afterwards.",
                "top = scores.max(axis=1, keepdims=True); weights = np.exp(scores − top)",
            ),
            when=_overflow,
        ),
    ),
    hints=(
        "In this order: which slots count, their rows, the scores of all heads, softmax, values.",
        "Drop the holes first; then there is nothing special left but the empty list. Slot s is row s of "
        "cache.reshape(-1, d). Softmax goes over the tokens, for each head by itself.",
        "used = indices[:length]; used = used[used != −1]; rows = cache.reshape(-1, d)[used]; scores = scale · q "
        "@ rows.T [h, n]; subtract the row maximum; out = weights @ rows[:, :d_v] / their sum; lse = top + ln(sum).",
    ),
    show={"out": _digits, "lse": _digits},
    forbids=("mlacademy.attention", "mlacademy.softmax", "mlacademy.cache", "mlacademy.sparse"),
)
