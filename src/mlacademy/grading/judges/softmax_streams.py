"""Exercise 05.3: attention streamed over blocks, with holes anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from mlacademy.grading.exercise import Case, Exercise, Misconception
from mlacademy.grading.judges.softmax_shared import (
    CLOSE,
    FLOAT32,
    FLOOR,
    LISTS,
    LOG2E,
    SOFTMAX,
    Array,
    agree,
    holds_nan,
)


def _stream_cases(rng: np.random.Generator, hidden: bool) -> Iterable[Case]:
    def case(label: str, heads: int, n: int, block: int, holes: Any = (), lift: Any = 0.0) -> Case:
        scores = np.round(12 * rng.normal(size=(heads, n)), 2) + np.asarray(lift)
        for where in holes:
            scores[where] = -np.inf
        inputs = {
            "scores": scores,
            "values": np.round(2 * rng.normal(size=(n, 3)), 2),
            "scale": round(float(rng.uniform(0.05, 0.2)), 3),
            "block": block,
        }
        return Case(inputs, label=label, axes=(("head", "element"), ("head",), ("block", "head")))

    every, first = slice(None), slice(0, 4)
    if not hidden:
        yield case("whole blocks without holes", 2, 12, 4)
        yield case("a last block that is shorter", 3, 10, 4)
        yield case("a first block of holes", 2, 12, 4, [(every, first)])
        yield case("a middle block of holes, for one head", 3, 12, 4, [(1, slice(4, 8))])
        yield case("a head without any token", 3, 8, 4, [(1, every)])
        yield case("heads at very different levels", 2, 8, 4, lift=[[9000.0], [-9000.0]])
        return
    for block in (1, 5, 64):
        n = int(rng.integers(block + 1, 150))
        scattered = rng.random((4, n)) < 0.4
        yield case("holes anywhere, other block sizes", 4, n, block, [scattered])
    yield case("a first block of holes", 5, 33, 8, [(every, slice(0, 8)), (2, slice(0, 17))])
    yield case("one block larger than the row", 2, 7, 64, [(0, first)])
    yield case("heads at very different levels", 3, 40, 16, lift=[[7000.0], [0.0], [-7000.0]])
    yield case("heads without any token", 4, 20, 8, [(0, every), (3, every)])


def _stream(scores: Array, values: Array, scale: float, block: int) -> tuple[Array, Array, Array]:
    x = scores * (scale * LOG2E)
    ends = [min(start + block, x.shape[1]) for start in range(0, x.shape[1], block)]
    tops = [np.maximum(x[:, :end].max(axis=1), FLOOR) for end in ends]
    sums = np.stack([np.exp2(x[:, :end] - top[:, None]).sum(axis=1) for end, top in zip(ends, tops, strict=True)])
    w, total = np.exp2(x - tops[-1][:, None]), sums[-1]
    empty = total == 0
    out = (w @ values) / np.where(empty, 1.0, total)[:, None]
    lse = np.where(empty, np.inf, (np.log2(np.where(empty, 1.0, total)) + tops[-1]) / LOG2E)
    return out, lse, sums


def _stream_as(what: str) -> Callable[..., Any]:
    """A wrong streamed attention: the right one with one thing mistaken."""

    @np.errstate(all="ignore")
    def model(scores: Array, values: Array, scale: float, block: int) -> Any:
        heads, n = scores.shape
        if what == "padded":
            extra = -n % block
            scores, values = np.pad(scores, ((0, 0), (0, extra))), np.pad(values, ((0, extra), (0, 0)))
            n += extra
        x = scores * {"no log2e": scale, "twice": scale**2 * LOG2E, "no scale": LOG2E}.get(what, scale * LOG2E)
        stop = n - n % block if what == "dropped" else n
        M = np.full(heads, -np.inf if what == "minus infinity" else 0.0 if what == "from 0" else FLOOR)
        L, o, sums = np.zeros(heads), np.zeros((heads, values.shape[1])), []
        for start in range(0, stop, block):
            part, v = x[:, start : start + block], values[start : start + block]
            new = np.maximum(M, part.max() if what == "one max" else part.max(axis=1))
            if what == "block max":
                new = part.max(axis=1)
            old = np.exp2(new - M) if what == "reversed" else np.exp2(M - new)
            if what == "never":
                old = np.ones(heads)
            w = np.exp2(part - new[:, None])
            L = L * (1.0 if what == "L kept" else old) + w.sum(axis=1)
            o = o * (1.0 if what == "o kept" else old[:, None]) + w @ v
            if what == "each divided":
                o = np.where(L[:, None] > 0, o / L[:, None], 0.0)
            if what != "M kept":
                M = new
            sums.append(w.sum(axis=1) if what == "block sums" else L)
        M = new
        out, lse, trace = o / L[:, None], (np.log2(L) + M) / LOG2E, np.array(sums)
        if what in ("no guard", "minus infinity"):
            return out, lse, trace
        empty = L == 0
        out = np.where(empty[:, None], 0.0, o if what in ("not divided", "each divided") else out)
        if what == "final sums":
            w = np.exp2(x - M[:, None])
            trace = np.stack([w[:, : start + block].sum(axis=1) for start in range(0, n, block)])
        lse = np.where(empty, -np.inf if what == "partial mark" else np.inf, lse)
        finite = np.isfinite(lse)
        changed = {"base 2": lse * LOG2E, "relative": np.log(L), "mixed": np.log(L) + M}.get(what, lse)
        return out, np.where(finite, changed, lse), trace

    return model


_RESCALE_HINTS = (
    "Look at the sum after the first block whose max is higher. What does the old part count from?",
    "When a head's max rises, its L and its o are multiplied by 2^(old max − new max), before the block is added.",
    "rescale = np.exp2(M - new_M); L = L * rescale + w.sum(axis=1); o = o * rescale[:, None] + w @ v",
)
_EMPTY_HINTS = (
    "What are L and o of a head without any token?",
    "Test L == 0 at the very end: output 0, and lse = +∞ (this is a final result).",
    "empty = L == 0; out = o / np.where(empty, 1, L)[:, None]; lse = np.where(empty, np.inf, lse)",
)
_START_HINTS = (
    "What do you subtract from −∞ when the first block holds no token?",
    "The max must start at a finite number below every score, so that no difference is −∞ − (−∞).",
    "M = np.full(h, -1e30)",
)
_LSE_HINTS = (
    "out is right; look at lse. In which units are M and log2(L)?",
    "M is in base 2. In base 2 the log-sum-exp is log2(L) + M; dividing by log2 e makes it natural.",
    "lse = (np.log2(L) + M) / math.log2(math.e)",
)
_SCALE_HINTS = (
    "Which base has the softmax of the statement, and which has your exponential?",
    "Fold log2 e into the scale, once, before the loop. The scores stay raw.",
    "x = scores[:, start : start + block] * (scale * math.log2(math.e))",
)
_SUMS_HINTS = (
    "Which number does the next block find as the running sum?",
    "sums records L at the end of every turn of the loop, after the rescale and the addition.",
    "sums.append(L) as the last line of the loop; np.array(sums) at the end.",
)
_MAX_HINTS = (
    "How many running maxima are there: one a row, or one for all?",
    "Every head has its own max, sum and rescale factor. A max over axis 1 gives one number a head.",
    "new_M = np.maximum(M, x.max(axis=1))",
)


def _only_lse_is_wrong(case: Case, expected: Any, got: Any) -> bool:
    return (
        agree(expected[0], got[0])
        and agree(expected[2], got[2])
        and agree(np.isposinf(expected[1]), np.isposinf(got[1]))
    )


def _only_empty_heads_are_wrong(case: Case, expected: Any, got: Any) -> bool:
    used = np.isfinite(expected[1])
    sums = agree(expected[2], got[2])
    return not used.all() and sums and agree(expected[0][used], got[0][used]) and agree(expected[1][used], got[1][used])


def _holes_weigh_one(case: Case, expected: Any, got: Any) -> bool:
    nothing = expected[2] == 0
    return bool(nothing.any()) and bool((got[2][nothing] >= 1).all())


STREAM = Exercise(
    id="05.3",
    title="Attention over blocks",
    entry="stream_attention",
    points=4,
    lines=15,
    parameters=("scores", "values", "scale", "block"),
    outputs=("out", "lse", "sums"),
    cases=_stream_cases,
    reference=_stream,
    compare=CLOSE,
    misconceptions=(
        Misconception(
            "dropped",
            "The last block is shorter than the others, and you left it out.",
            (
                "How many blocks has a row of 10 tokens in blocks of 4?",
                "Round up: the last block holds what is left. A slice may run over the end of an array.",
                "for start in range(0, n, block): x = scores[:, start : start + block]",
            ),
            _stream_as("dropped"),
        ),
        Misconception(
            "reversed",
            "Your rescale factor is 2^(new − old). It must be 2^(old − new), which is at most 1.",
            _RESCALE_HINTS,
            _stream_as("reversed"),
        ),
        Misconception(
            "never",
            "Nothing is rescaled when the max rises: terms measured from different maxima are added.",
            _RESCALE_HINTS,
            _stream_as("never"),
        ),
        Misconception(
            "o kept",
            "sums is right, so L is rescaled; the output o is not. It needs the same factor.",
            _RESCALE_HINTS,
            _stream_as("o kept"),
        ),
        Misconception(
            "L kept",
            "o is rescaled when the max rises, the sum L is not. It needs the same factor.",
            _RESCALE_HINTS,
            _stream_as("L kept"),
        ),
        Misconception(
            "M kept",
            "The new max is used for the block, but the running max itself never changes: keep it for the next block.",
            _RESCALE_HINTS,
            _stream_as("M kept"),
        ),
        Misconception(
            "padded",
            "You filled the last block up with scores of 0. A score of 0 is a token like any other; fill with −∞, or "
            "let the last block be shorter.",
            (
                "Which score has the weight 0?",
                "2^(0 − M) is not 0. Only −∞ makes a place weigh nothing.",
                "for start in range(0, n, block): x = scores[:, start : start + block]",
            ),
            _stream_as("padded"),
        ),
        Misconception(
            "block sums",
            "out is right, but sums holds each block's own sum. The statement asks for the running sum L after "
            "each block.",
            _SUMS_HINTS,
            _stream_as("block sums"),
        ),
        Misconception(
            "final sums",
            "out is right, but sums is measured from the max of the whole row. After a block, L is measured from the "
            "largest score of the blocks so far: the later ones are not known yet.",
            _SUMS_HINTS,
            _stream_as("final sums"),
        ),
        Misconception(
            "each divided",
            "You divided by L after every block. The output so far is then no longer a plain sum: divide once, at the "
            "end.",
            _EMPTY_HINTS,
            _stream_as("each divided"),
        ),
        Misconception(
            "twice", "The scale entered twice. It belongs in the multiplier once.", _SCALE_HINTS, _stream_as("twice")
        ),
        Misconception(
            "no scale",
            "You left out scale: the weights are e to the scaled scores.",
            _SCALE_HINTS,
            _stream_as("no scale"),
        ),
        Misconception(
            "no log2e",
            "You used scale as it is with exp2. The multiplier is scale · log2 e, because e^y = 2^(y · log2 e).",
            _SCALE_HINTS,
            _stream_as("no log2e"),
        ),
        Misconception(
            "one max",
            "You kept one max for all heads. Each head counts from its own; far below a common max it would lose all "
            "its weights to underflow.",
            _MAX_HINTS,
            _stream_as("one max"),
        ),
        Misconception(
            "minus infinity",
            "Your running max starts at −∞. When a head's first block holds no token, −∞ − (−∞) is NaN, and NaN "
            "survives every later block.",
            _START_HINTS,
            _stream_as("minus infinity"),
        ),
        Misconception(
            "block max",
            "Your max is the current block's, not the largest so far. sums must be measured from the running max, and "
            "a block of holes must not move it to −∞.",
            _MAX_HINTS,
            _stream_as("block max"),
        ),
        Misconception(
            "from 0",
            "Your running max starts at 0, so a head whose scores all lie below 0 is measured from 0: its sum comes "
            "out too small and may underflow.",
            _START_HINTS,
            _stream_as("from 0"),
        ),
        Misconception(
            "not divided",
            "You returned the sum of weights times values: divide by L, once, after the last block.",
            _EMPTY_HINTS,
            _stream_as("not divided"),
        ),
        Misconception(
            "no guard",
            "A head without any token ends with L = 0, and 0 / 0 is NaN. Its output is 0 and its lse +∞.",
            _EMPTY_HINTS,
            _stream_as("no guard"),
        ),
        Misconception(
            "partial mark",
            "The output is right. A head without any token has lse = +∞ in a final result; −∞ marks a *partial* one.",
            _EMPTY_HINTS,
            _stream_as("partial mark"),
        ),
        Misconception(
            "base 2",
            "Your lse is in base 2. The statement asks for the natural log-sum-exp.",
            _LSE_HINTS,
            _stream_as("base 2"),
        ),
        Misconception("relative", "Your lse lacks the max: ln L counts from it.", _LSE_HINTS, _stream_as("relative")),
        Misconception(
            "mixed",
            "Your lse adds ln L (natural) and M (base 2). Bring both to one unit first.",
            _LSE_HINTS,
            _stream_as("mixed"),
        ),
        Misconception(
            "equal holes",
            "In a first block of holes every hole got the weight 1. If a hole becomes a finite number such as −1e30, a "
            "block of holes has that number as its max, or the scale lifts it above the start. Leave holes at −∞.",
            _START_HINTS,
            when=_holes_weigh_one,
        ),
        Misconception(
            "nan",
            "Somewhere −∞ was subtracted from −∞, or 0 divided by 0. The −1e30 start prevents the first; the second is "
            "a head without any token.",
            _START_HINTS,
            when=lambda case, expected, got: holds_nan(got) and not _only_empty_heads_are_wrong(case, expected, got),
        ),
        Misconception(
            "empty head",
            "All heads with tokens are right. A head without any has out 0 and lse +∞.",
            _EMPTY_HINTS,
            when=_only_empty_heads_are_wrong,
        ),
        Misconception(
            "lse",
            "out and sums are right, lse is not: it is the natural logarithm of Σ e^(scale · score).",
            _LSE_HINTS,
            when=_only_lse_is_wrong,
        ),
        FLOAT32,
        LISTS,
    ),
    hints=(
        "Your answer to 05.2 is the body of the loop, with one M and one L for each head.",
        "Before the loop: M = −1e30, L = 0, o = 0 for every head. In the loop: one online step on a slice of scores "
        "and values, and L goes into sums. After it: divide, and care for heads with L = 0.",
        "x = scores[:, i:i+block] * (scale * log2e); new_M = np.maximum(M, x.max(axis=1)); "
        "w = np.exp2(x - new_M[:, None]); rescale L and o by np.exp2(M - new_M). At the end out = o / L and "
        "lse = (log2 L + M) / log2e.",
    ),
    forbids=SOFTMAX,
)
