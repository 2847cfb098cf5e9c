"""Exercise 05.4: a running max that moves only when it must."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from mlacademy.grading.compare import Exact
from mlacademy.grading.exercise import Case, Exercise, Misconception
from mlacademy.grading.judges.softmax_shared import FLOOR, LIBRARY


def _lazy_cases(rng: np.random.Generator, hidden: bool) -> Iterable[Case]:
    inf = np.inf
    fixed = [
        ([1.0, 3.0, 9.0, 2.0, 8.5, 16.0, 12.0], 6.0, "small steps that add up"),
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
        maxima, moves, before = [], 0, FLOOR
        for number, top in enumerate(block_maxima):
            if what == "early":
                maxima.append(M)
            compared = {"true max": true, "previous": before}.get(what, M)
            limit = M if what == "eager" else compared + lag
            moved = (
                top >= limit if what == "at the limit" else abs(top - M) > lag if what == "both ways" else top > limit
            )
            if moved:
                M = top - lag if what == "part way" and number else M + lag if what == "creeps" else top
                moves += not (what == "first free" and number == 0)
            true, before = max(true, top), top
            if what not in ("early", "moves only") or (what == "moves only" and moved):
                maxima.append(true if what == "true recorded" else M)
        return maxima, moves

    return model


_LAG_HINTS = (
    "Write the condition for a move as one comparison. Of which two numbers?",
    "The block's max is compared with the lagging max in use, plus the lag. At exactly that distance nothing moves.",
    "if top > M + lag: M = top",
)
_RECORD_HINTS = (
    "How many entries has the list for n blocks, and what does the first one say?",
    "After each block, moved or not, the M in use goes into the list.",
    "maxima.append(M) is the last line of the loop, outside the if.",
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
            "creeps",
            "When M moves, it moves all the way to the block's max, not by the lag.",
            _LAG_HINTS,
            _lazy_as("creeps"),
        ),
        Misconception(
            "previous",
            "You compared with the block before. Compare with the M in use, which may be older.",
            _LAG_HINTS,
            _lazy_as("previous"),
        ),
        Misconception(
            "early",
            "Your list holds the M before each block. The statement asks for the M in use after it.",
            _RECORD_HINTS,
            _lazy_as("early"),
        ),
        Misconception(
            "moves only",
            "Your list has an entry only where M moved. Every block gets one.",
            _RECORD_HINTS,
            _lazy_as("moves only"),
        ),
        Misconception(
            "true recorded",
            "Your list holds the true max so far. The statement asks for the M in use, which lags behind it.",
            _RECORD_HINTS,
            _lazy_as("true recorded"),
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
