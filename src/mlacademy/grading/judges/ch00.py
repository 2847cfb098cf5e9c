"""The warm-up exercise of chapter 00: how large a launch is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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


def _all_warps(grid: Sequence[int], block: int) -> tuple[int, int, int]:
    ctas, threads, warps = _launch_size(grid, block)
    return ctas, threads, ctas * warps


def _full_warps(grid: Sequence[int], block: int) -> tuple[int, int, int]:
    ctas, _, warps = _launch_size(grid, block)
    return ctas, ctas * warps * 32, warps


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
            _all_warps,
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
    ),
    hints=(
        "Start with the CTAs: how many does the grid (2, 1, 66) hold?",
        "CTAs are the product of the three extents. Threads are CTAs times block. Warps come 32 threads at a time.",
        "Three products and one division that rounds up; (n + 31) // 32 rounds up.",
    ),
)
