"""The warm-up exercise of chapter 00: how large a launch is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from mlacademy.grading.compare import Exact
from mlacademy.grading.exercise import Case, Exercise, Misconception


def _cases(rng: np.random.Generator, hidden: bool) -> Iterable[Case]:
    yield Case(inputs={"grid": [2, 1, 66], "block": 384}, label="the running example")
    yield Case(inputs={"grid": [5, 3, 1], "block": 100}, label="a CTA whose last warp is not full")
    for _ in range(4 if hidden else 1):
        grid = [int(extent) for extent in rng.integers(2, 50, size=3)]
        yield Case(inputs={"grid": grid, "block": int(rng.integers(33, 1024))}, label="three extents above one")


def _launch_size(grid: Sequence[int], block: int) -> tuple[int, int, int]:
    x, y, z = grid
    return x * y * z, x * y * z * block, (block + 31) // 32


def _added(grid: Sequence[int], block: int) -> tuple[int, int, int]:
    return sum(grid), sum(grid) * block, (block + 31) // 32


def _flat(grid: Sequence[int], block: int) -> tuple[int, int, int]:
    ctas = grid[0] * grid[1]
    return ctas, ctas * block, (block + 31) // 32


def _floor(grid: Sequence[int], block: int) -> tuple[int, int, int]:
    ctas, threads, _ = _launch_size(grid, block)
    return ctas, threads, block // 32


def _full_warps(grid: Sequence[int], block: int) -> tuple[int, int, int]:
    ctas, _, warps = _launch_size(grid, block)
    return ctas, ctas * warps * 32, warps


def _one_more(grid: Sequence[int], block: int) -> tuple[int, int, int]:
    ctas, threads, _ = _launch_size(grid, block)
    return ctas, threads, block // 32 + 1


def _one_cta(grid: Sequence[int], block: int) -> tuple[int, int, int]:
    ctas, _, warps = _launch_size(grid, block)
    return ctas, block, warps


def _reordered(case: Case, expected: Any, got: Any) -> bool:
    """The three right numbers in another order."""
    return list(got) != list(expected) and sorted(got) == sorted(expected)


def _float_warps(case: Case, expected: Any, got: Any) -> bool:
    """Whole numbers of CTAs and threads, but warps from a true division or from NumPy's ceil."""
    return tuple(got[:2]) == expected[:2] and isinstance(got[2], (float, np.floating))


def _all_warps(case: Case, expected: Any, got: Any) -> bool:
    """Warps of the launch: CTA by CTA, or of all threads together, rounded down or up."""
    ctas, threads, warps = expected
    return bool(got[2] in (ctas * warps, threads // 32, -(-threads // 32)))


def _only_warps(case: Case, expected: Any, got: Any) -> bool:
    """Everything right but the warps of one CTA, and these are not warps of something else."""
    return _three(got) and tuple(got[:2]) == expected[:2] and not _all_warps(case, expected, got)


def _three(got: Any) -> bool:
    return isinstance(got, (list, tuple)) and len(got) == 3


_WARP_HINTS = (
    "CTAs and threads are right. How many groups of 32 do 33 threads need?",
    "Divide block by 32 and round up: a warp that is not full is still a warp.",
    "warps_per_cta = (block + 31) // 32",
)

LAUNCH_SIZE = Exercise(
    id="00.1",
    title="How large a launch is",
    entry="launch_size",
    points=1,
    lines=3,
    parameters=("grid", "block"),
    outputs=("ctas", "threads", "warps_per_cta"),
    cases=_cases,
    reference=_launch_size,
    compare=Exact(),
    misconceptions=(
        Misconception(
            "added",
            "You added the three extents of the grid; a grid is a box of CTAs, so they multiply.",
            (
                "Draw the grid (2, 1, 3). How many CTAs do you count?",
                "The extents are the sides of a box; the number of CTAs is its volume.",
                "ctas = grid[0] * grid[1] * grid[2]",
            ),
            _added,
        ),
        Misconception(
            "flat",
            "You left out the third extent of the grid; the decode kernel puts its partitions there.",
            (
                "Which of the three numbers of (2, 1, 66) did you not use?",
                "A grid has three extents. Two of them are often 1, but not always the same two.",
                "ctas = grid[0] * grid[1] * grid[2]",
            ),
            _flat,
        ),
        Misconception(
            "floor",
            "You dropped the last warp: 100 threads need 4 warps, the fourth with 4 threads in it.",
            (
                "How many warps hold 33 threads?",
                "A warp that is not full is still a warp: round up, not down.",
                "warps_per_cta = (block + 31) // 32",
            ),
            _floor,
        ),
        Misconception(
            "all warps",
            "Your third number counts the warps of the whole launch; asked are the warps of one CTA.",
            (
                "Read the name of the third output again.",
                "Warps of one CTA depend on block alone, not on grid.",
                "warps_per_cta = (block + 31) // 32",
            ),
            when=_all_warps,
        ),
        Misconception(
            "full warps",
            "You counted the empty places of a warp that is not full as threads.",
            (
                "A CTA of 100 threads takes the room of 128. How many threads does it run?",
                "The room is rounded up to whole warps; the threads are the ones you asked for.",
                "threads = ctas * block",
            ),
            _full_warps,
        ),
        Misconception(
            "one more",
            "You always added a warp. 384 threads are exactly 12 warps; only a remainder needs one more.",
            _WARP_HINTS,
            _one_more,
        ),
        Misconception(
            "one CTA",
            "Your second number is the threads of one CTA; asked are the threads of the whole launch.",
            (
                "What did you do with the number of CTAs?",
                "Every CTA of the launch has block threads.",
                "threads = ctas * block",
            ),
            _one_cta,
        ),
        Misconception(
            "reordered",
            "The three numbers are right, but not in the order asked for: ctas, threads, warps_per_cta.",
            (
                "Compare your return line with the row Returns of the statement.",
                "A tuple has no names: its order is its meaning.",
                "return ctas, threads, warps_per_cta",
            ),
            when=_reordered,
        ),
        Misconception(
            "float warps",
            "A number of warps is an integer. / always gives a float, and so does np.ceil; // gives an integer.",
            (
                "What does type(384 / 32) say in Python?",
                "// divides integers and rounds down. How do you make it round up?",
                "warps_per_cta = (block + 31) // 32",
            ),
            when=_float_warps,
        ),
        Misconception(
            "form",
            "The answer is a tuple of three numbers.",
            (
                "What does your return line give back?",
                "Names separated by commas after return make a tuple. An array or a dict is one thing, not three.",
                "return ctas, threads, warps_per_cta",
            ),
            when=lambda case, expected, got: not _three(got),
        ),
        Misconception(
            "only warps",
            "CTAs and threads are right; the warps of one CTA are not.",
            _WARP_HINTS,
            when=_only_warps,
        ),
    ),
    hints=(
        "Start with the CTAs: how many does the grid (2, 1, 66) hold?",
        "CTAs are the product of the three extents. Threads are CTAs times block. Warps come 32 threads at a time.",
        "Three products and one division that rounds up; (n + 31) // 32 rounds up.",
    ),
)
