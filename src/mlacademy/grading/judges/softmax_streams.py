"""Exercises 05.3 and 05.4: attention streamed over blocks, and a running max that moves only when it must."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from mlacademy.grading.compare import Exact
from mlacademy.grading.exercise import Case, Exercise, Misconception
from mlacademy.grading.judges.softmax_rows import CLOSE, FLOOR, LIBRARY, LOG2E, SOFTMAX, Array, holds_nan

# 05.3


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
        x = scores * (scale if what == "no log2e" else scale * LOG2E)
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
            L = L * old + w.sum(axis=1)
            o = o * (1.0 if what == "o kept" else old[:, None]) + w @ v
            M = new
            sums.append(L)
        out, lse, trace = o / L[:, None], (np.log2(L) + M) / LOG2E, np.array(sums)
        if what in ("no guard", "minus infinity"):
            return out, lse, trace
        empty = L == 0
        out = np.where(empty[:, None], 0.0, o if what == "not divided" else out)
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
_MAX_HINTS = (
    "How many running maxima are there: one a row, or one for all?",
    "Every head has its own max, sum and rescale factor. A max over axis 1 gives one number a head.",
    "new_M = np.maximum(M, x.max(axis=1))",
)

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
            "no log2e",
            "You used scale as it is with exp2. The multiplier is scale · log2 e, because e^y = 2^(y · log2 e).",
            (
                "Which base has the softmax of the statement, and which has your exponential?",
                "Fold log2 e into the scale, once, before the loop.",
                "x = scores[:, start : start + block] * (scale * math.log2(math.e))",
            ),
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
            "nan",
            "Somewhere −∞ was subtracted from −∞, or 0 divided by 0. The −1e30 start prevents the first; the second is "
            "a head without any token.",
            _START_HINTS,
            when=lambda case, expected, got: holds_nan(got),
        ),
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


# 05.4


def _lazy_cases(rng: np.random.Generator, hidden: bool) -> Iterable[Case]:
    inf = np.inf
    fixed = [
        ([1.0, 3.0, 9.0, 8.0, 16.0], 6.0, "small steps that add up"),
        ([0.0, 6.0, 6.5, 5.0], 6.0, "a block exactly at the limit"),
        ([4.0, 2.0, 3.0], 6.0, "falling maxima"),
        ([-inf, -inf, -50.0, -47.0, -inf, -40.0], 6.0, "blocks of holes"),
        ([0.5, 1.0, 0.75, 2.0], 0.0, "no lag: the ordinary running max"),
    ]
    for maxima, lag, label in [] if hidden else fixed:
        yield Case({"block_maxima": maxima, "lag": lag}, label=label, axes=(("block",), ()))
    for label in ("longer rows", "longer rows with blocks of holes", "far below 0") if hidden else ():
        maxima = (rng.integers(-60, 60, 32) / 4).tolist()  # quarters, so that sums and comparisons are exact
        if "holes" in label:
            maxima = [-inf if rng.random() < 0.3 else m for m in maxima]
            maxima[0] = -inf
        if "below" in label:
            maxima = [m - 2000 for m in maxima]
        yield Case({"block_maxima": maxima, "lag": float(rng.integers(1, 9))}, label=label, axes=(("block",), ()))


def _lazy(block_maxima: list[float], lag: float) -> tuple[list[float], int]:
    used = [*accumulate(block_maxima, lambda M, top: top if top > M + lag else M, initial=FLOOR)]
    return used[1:], sum(after != before for before, after in pairwise(used))


def _lazy_as(what: str) -> Callable[..., Any]:
    def model(block_maxima: list[float], lag: float) -> Any:
        M = true = -np.inf if what == "minus infinity" else 0.0 if what == "from 0" else FLOOR
        maxima, moves = [], 0
        for number, top in enumerate(block_maxima):
            limit = true + lag if what == "true max" else M if what == "eager" else M + lag
            moved = (
                top >= limit if what == "at the limit" else abs(top - M) > lag if what == "both ways" else top > limit
            )
            if moved:
                M = top - lag if what == "part way" and number else top
                moves += not (what == "first free" and number == 0)
            true = max(true, top)
            maxima.append(M)
        return maxima, moves

    return model


_LAG_HINTS = (
    "Write the condition for a move as one comparison. Of which two numbers?",
    "The block's max is compared with the lagging max in use, plus the lag. At exactly that distance nothing moves.",
    "if top > M + lag: M = top",
)
_COUNT_HINTS = (
    "maxima is right. From where does M move at the first block that has a token?",
    "M starts at −1e30, so the first block with a token moves it, and that counts.",
    "Count one whenever top > M + lag holds, the first time included.",
)
_LAZY_START = (
    "What is M before the first block, in the statement?",
    "M starts at −1e30: far below every real score, yet finite. A block of holes, −∞, never exceeds it.",
    "M = -1e30",
)

LAZY = Exercise(
    id="05.4",
    title="A max that lags behind",
    entry="lazy_maxima",
    points=2,
    lines=7,
    parameters=("block_maxima", "lag"),
    outputs=("maxima", "moves"),
    cases=_lazy_cases,
    reference=_lazy,
    compare=Exact(),
    misconceptions=(
        Misconception(
            "at the limit",
            "You moved at exactly the limit. A block that exceeds M by the lag and no more does not move it: its "
            "weights are at most 2^lag.",
            _LAG_HINTS,
            _lazy_as("at the limit"),
        ),
        Misconception(
            "eager",
            "You moved at every new max. With a lag, M stays until a block exceeds it by more than lag.",
            _LAG_HINTS,
            _lazy_as("eager"),
        ),
        Misconception(
            "true max",
            "You compared with the true max so far. Small steps then add up unseen, and weights exceed 2^lag: compare "
            "with the M in use.",
            _LAG_HINTS,
            _lazy_as("true max"),
        ),
        Misconception(
            "part way",
            "When M moves, it moves all the way to the block's max, not to the max minus the lag.",
            _LAG_HINTS,
            _lazy_as("part way"),
        ),
        Misconception(
            "both ways",
            "Your max also falls when a block lies far below it. A running max never falls.",
            _LAG_HINTS,
            _lazy_as("both ways"),
        ),
        Misconception(
            "first free", "You did not count the first move, from −1e30.", _COUNT_HINTS, _lazy_as("first free")
        ),
        Misconception(
            "from 0",
            "Your M starts at 0. Scores may all lie below 0; the start must be below every score.",
            _LAZY_START,
            _lazy_as("from 0"),
        ),
        Misconception(
            "minus infinity",
            "Your M starts at −∞. Until the first token it must be −1e30, or the weights of a block of holes are NaN.",
            _LAZY_START,
            _lazy_as("minus infinity"),
        ),
    ),
    hints=(
        "One pass over the blocks with two things to keep: the M in use and the number of moves.",
        "A block moves M when its max is above M + lag, and then M becomes the block's max. After each block, moved or "
        "not, M goes into the list.",
        "M, maxima, moves = -1e30, [], 0; for top in block_maxima: if top > M + lag: M = top; moves += 1; then "
        "maxima.append(M).",
    ),
    forbids=LIBRARY,
)
