"""Exercise 09.3: a step of the online softmax on the fragment of a warpgroup."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlacademy.gpu import LaunchPlan
from mlacademy.grading import Case, Close, CudaExercise, KernelMistake, Launch, Out, Sign
from mlacademy.grading.judges.kernel_shared import poisoned

Floats = NDArray[np.float32]
Bits = NDArray[np.uint64]
Outputs = tuple[Floats, Floats, Floats, Floats]
HEADS = TOKENS = 64
START = -1e30

QUAD = np.array([[8 * group + 2 * lane + side for group in range(8) for side in range(2)] for lane in range(4)])
"""The 16 columns of each lane of a quad, in the order of its registers of one row."""


def _cases(rng: np.random.Generator, hidden: bool) -> Iterator[Case]:
    axes = (("block", "head", "token"), ("block", "head"), ("head",), ("head",))

    def case(label: str, blocks: int, level: float, holes: float, none: tuple[int, ...] = ()) -> Case:
        scores = (level * rng.standard_normal((blocks, HEADS, TOKENS))).astype(np.float32)
        there = rng.random((blocks, TOKENS)) >= holes
        there[list(none)] = False
        bits = (there.astype(np.uint64) << np.arange(TOKENS, dtype=np.uint64)).sum(1, dtype=np.uint64)
        return Case({"scores": scores, "valid": bits}, label, axes)

    if not hidden:
        yield case("one block", 1, 3.0, 0.0)
        yield case("several blocks with holes", 3, 3.0, 0.2)
        yield case("a first block of holes", 3, 3.0, 0.2, none=(0,))
        return
    yield case("large scores", 4, 30.0, 0.3)
    yield case("blocks of holes in the middle and at the end", 5, 5.0, 0.5, none=(2, 4))
    yield case("only holes", 2, 5.0, 0.5, none=(0, 1))


def _launch(scores: Floats, valid: Bits) -> Launch:
    blocks = len(scores)
    outs = (Out((blocks, HEADS, TOKENS)), Out((blocks, HEADS)), Out((HEADS,)), Out((HEADS,)))
    return Launch(LaunchPlan(grid=1, block=128), (scores, valid, *outs, blocks))


def _shared(top: NDArray[Any], mistake: str) -> NDArray[Any]:
    """The maxima [64, 4] that the lanes of each row end up with."""
    if mistake == "both rows":
        pairs = top.reshape(4, 2, 8, 4).max(1, keepdims=True)  # rows r and r + 8 of each warp's sixteen
        top = np.broadcast_to(pairs, (4, 2, 8, 4)).reshape(HEADS, 4)
    if mistake == "own maximum":
        return top
    if mistake == "half a quad":
        return np.repeat(top.reshape(HEADS, 2, 2).max(2), 2, axis=1)
    return np.broadcast_to(top.max(1, keepdims=True), top.shape)


def _there(bits: NDArray[Any], mistake: str) -> NDArray[Any]:
    """Which columns count, as the lanes see it: [64 rows, 4 lanes, 16 columns]."""
    if mistake == "register bits":
        group, side = np.arange(16) // 2, np.arange(16) % 2
        halves = [bits[4 * group + side + 2 * lower] for lower in range(2)]
        return np.tile(np.stack([np.tile(half, (8, 4, 1)) for half in halves]).reshape(16, 4, 16), (4, 1, 1))
    return np.broadcast_to(bits[QUAD], (HEADS, 4, 16))


def _as(mistake: str = "") -> Callable[[Floats, Bits], Outputs]:
    """The steps, right or with one mistake."""

    def model(scores: Floats, valid: Bits) -> Outputs:
        power = np.exp if mistake == "base e" else np.exp2
        m, total = np.full((HEADS, 4), START), np.zeros((HEADS, 4))
        p, factors = np.empty(scores.shape), np.empty(scores.shape[:2])
        with np.errstate(all="ignore"):
            for block, given in enumerate(np.asarray(scores, np.float64)):
                bits = (valid[block] >> np.arange(TOKENS, dtype=np.uint64) & np.uint64(1)).astype(bool)
                s = given[:, QUAD]
                there = np.ones_like(s, bool) if mistake == "no holes" else _there(bits, mistake)
                seen = s if mistake == "holes in the maximum" else np.where(there, s, -np.inf)
                top = _shared(seen.max(2), mistake)
                new = top if mistake == "forgets" else np.maximum(m, top)
                factor = power(new - m if mistake == "inverse" else m - new)
                if mistake == "late":
                    factor = np.ones_like(factor)
                weights = np.where(there, power(s - new[:, :, None]), 0)
                added = weights.sum(2)
                if mistake == "whole rows":
                    added = np.broadcast_to(added.sum(1, keepdims=True), added.shape)
                total = total * (1 if mistake == "not rescaled" else factor) + added
                if mistake == "only the last":
                    total = added
                m = new
                p[block][:, QUAD], factors[block] = weights, factor[:, 0]
        outputs = p, factors, m[:, 0], total.sum(1)
        first, second, third, fourth = (np.asarray(one, np.float32) for one in outputs)
        return first, second, third, fourth

    return model


_MAX_HINTS = (
    "Which lanes hold scores of your row?",
    "Four neighbouring lanes share a row: two exchanges, with the neighbour and with the neighbour pair.",
    "top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFu, top, 1)); then the same with 2.",
)
_SUM_HINTS = (
    "Follow the sum of a row whose second block has a larger maximum.",
    "What was added so far is relative to the old maximum; the factor 2^(m - m') makes it relative to the new one.",
    "sum = sum * factor + the weights of this thread's 16 columns; the quad is added up at the end.",
)
_FACTOR_HINTS = (
    "What must an earlier weight be multiplied by when the maximum grows?",
    "Weights were 2^(s - m) and become 2^(s - m'): the factor is 2^(m - m'), at most 1.",
    "factor = exp2f(m - next), before m = next.",
)
_HOLE_HINTS = (
    "Which columns does a thread hold, and which bits belong to them?",
    "Bit c of valid belongs to column c = 8 · (i / 4) + 2 · (lane mod 4) + i mod 2. A hole's score counts as −∞.",
    "if (!(valid >> column & 1)) s[i] = -kInfinity, before the maximum.",
)

SOFTMAX_STEP = CudaExercise(
    id="09.3",
    title="A step of the online softmax on a fragment",
    entry="softmax_step",
    points=5,
    lines=18,
    parameters=("scores", "valid"),
    outputs=("p", "factors", "maximum", "total"),
    cases=_cases,
    reference=_as(),
    compare=Close(
        atol=2.0**-126,
        rtol=2.0**-15,
        why="float32 keeps 24 bits of differences of up to 300, whose exponential shows 300 times their error",
    ),
    launch=_launch,
    misconceptions=(
        KernelMistake(
            "some lanes",
            "Not all lanes of the warp come to your shuffle: it stands in a branch or in a loop that some leave "
            "earlier.",
            (
                "Which lanes execute the shuffle?",
                "The mask 0xFFFFFFFF says that all 32 do.",
                "Shuffle outside of any if that depends on the lane or on valid.",
            ),
            signs=(Sign(("aligned-divergence", "deadlock", "shuffle"), text="shfl"),),
        ),
        KernelMistake(
            "own maximum",
            "Each thread took the maximum of its own 16 columns. A row is spread over four lanes, which need one "
            "maximum.",
            _MAX_HINTS,
            _as("own maximum"),
        ),
        KernelMistake(
            "half a quad",
            "Your exchange reaches one neighbour only: two of the four lanes of a row have one maximum, two another.",
            _MAX_HINTS,
            _as("half a quad"),
        ),
        KernelMistake(
            "both rows",
            "Upper and lower row got one maximum together. They are two heads; registers i with i / 2 even are the "
            "upper row.",
            (
                "Which registers belong to the row 8 further down?",
                "Of every four registers the first two are the upper row, the other two the lower.",
                "side = i / 2 % 2, and m[side].",
            ),
            _as("both rows"),
        ),
        KernelMistake(
            "forgets",
            "The maximum is that of the block alone: the one of the blocks before is forgotten, and a block of holes "
            "has none.",
            (
                "What is the maximum after a block whose scores are all smaller than before?",
                "m' = max(m, the block's largest). It never falls, and −1e30 at the start keeps it finite.",
                "next = fmaxf(m[side], top).",
            ),
            _as("forgets"),
        ),
        KernelMistake(
            "late",
            "Your factor is always 1: m had been overwritten when you computed it.",
            _FACTOR_HINTS,
            _as("late"),
        ),
        KernelMistake(
            "inverse",
            "Your factor is the inverse: 2^(m' − m), which is at least 1.",
            _FACTOR_HINTS,
            _as("inverse"),
        ),
        KernelMistake(
            "base e",
            "You took powers of e. The scores are in log2 units: weights and factors are powers of 2.",
            (
                "Which function does the statement name?",
                "The scale that was multiplied into the scores contains log2 e.",
                "exp2f, not expf or __expf.",
            ),
            _as("base e"),
        ),
        KernelMistake(
            "not rescaled",
            "The sum of the blocks before was not multiplied by the factor.",
            _SUM_HINTS,
            _as("not rescaled"),
        ),
        KernelMistake(
            "only the last",
            "The sum holds the last block alone.",
            _SUM_HINTS,
            _as("only the last"),
        ),
        KernelMistake(
            "whole rows",
            "The sum is four times too large: you added the quad's lanes in each step, and they are added again at "
            "the end.",
            _SUM_HINTS,
            _as("whole rows"),
        ),
        KernelMistake(
            "register bits",
            "You took the bit by the register's number. The bits belong to columns.",
            _HOLE_HINTS,
            _as("register bits"),
        ),
        KernelMistake(
            "no holes",
            "Holes were counted like tokens.",
            _HOLE_HINTS,
            _as("no holes"),
        ),
        KernelMistake(
            "holes in the maximum",
            "The weights of holes are 0, but their scores entered the maximum: mask before you look for it.",
            _HOLE_HINTS,
            _as("holes in the maximum"),
        ),
        KernelMistake(
            "NaN",
            "There is NaN in the result: −∞ − (−∞), or an infinity times 0. A block of holes must leave everything "
            "finite.",
            (
                "What is the largest score of a block of holes, and what do you subtract it from?",
                "m starts at −1e30 and not at −∞, so that m − m' and s − m' are never −∞ − (−∞).",
                "next = fmaxf(m[side], top), and exp2f(s[i] - next) with s[i] = -kInfinity gives 0.",
            ),
            when=poisoned,
        ),
    ),
    hints=(
        "Three passes over the 32 registers: mask and maximum, then the quad and the factor, then weights and sum.",
        "Row by side = i / 2 % 2. The maximum needs two shuffles, with 1 and with 2; the sum needs none here.",
        "next = fmaxf(m, quad maximum); factor = exp2f(m - next); m = next; s[i] = exp2f(s[i] - m); sum = sum * "
        "factor + added.",
    ),
)
