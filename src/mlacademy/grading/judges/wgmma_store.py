"""Exercise 08.3: the fragment of D to a row-major matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from mlacademy.gpu import LaunchPlan
from mlacademy.gpu.fragments import fragment
from mlacademy.grading import Case, CudaExercise, Exact, KernelMistake, Launch, Out, Sign
from mlacademy.grading.judges.wgmma_tiles import Matrix, product, tiles, whole

Place = Callable[[int, int], tuple[int, int]]
"""(thread, register) → (row, column)."""


def _cases(rng: np.random.Generator, hidden: bool) -> Iterator[Case]:
    for pitch in (64, 71) if not hidden else (100, 64, 65):
        label = "rows one behind the other" if pitch == 64 else "a gap between the rows"
        yield Case({"a": whole(rng, 64, 64), "b": whole(rng, 64, 64), "pitch": pitch}, label, (("row", "column"),))


def _launch(a: Matrix, b: Matrix, pitch: int) -> Launch:
    return Launch(LaunchPlan(grid=1, block=128), (tiles(a), tiles(b), Out((64, pitch)), pitch))


def _stored(a: Matrix, b: Matrix, pitch: int, *, place: Place | None = None, apart: int = 0) -> Matrix:
    """What is in memory after each register went to its ``place`` (default: the right one), rows ``apart`` elements
    apart (default: the pitch); untouched elements are NaN."""
    held, exact = fragment("D", n=64), product(a, b)
    memory = np.full(64 * pitch, np.nan, np.float32)
    for index in range(32):
        for thread in range(128):
            row, column = (place or held.element)(thread, index)
            memory[row * (apart or pitch) + column] = exact[held.element(thread, index)]
    return memory.reshape(64, pitch)


def _transposed(thread: int, index: int) -> tuple[int, int]:
    row, column = fragment("D", n=64).element(thread, index)
    return column, row


def _rows_of_lanes(thread: int, index: int) -> tuple[int, int]:
    return thread % 64, 32 * (thread // 64) + index


def _quads_swapped(thread: int, index: int) -> tuple[int, int]:
    lane = thread % 32
    return 16 * (thread // 32) + lane % 4 + 8 * (index // 2 % 2), 8 * (index // 4) + 2 * (lane // 4) + index % 2


def _halves_swapped(thread: int, index: int) -> tuple[int, int]:
    lane = thread % 32
    return 16 * (thread // 32) + lane // 4 + 8 * (index % 2), 8 * (index // 4) + 2 * (lane % 4) + index // 2 % 2


def _single_columns(thread: int, index: int) -> tuple[int, int]:
    row, _ = fragment("D", n=64).element(thread, index)
    return row, 8 * (index // 4) + thread % 4 + index % 2


def _pad_written(case: Case, expected: Any, got: Any) -> bool:
    return np.array_equal(got[:, :64], expected[:, :64]) and not bool(np.isnan(got[:, 64:]).all())


def _half_stored(case: Case, expected: Any, got: Any) -> bool:
    """Some of a thread's registers in their places, the others nowhere."""
    tile, right = got[:, :64], expected[:, :64]
    missing = np.isnan(tile)
    return bool(missing.any()) and not bool(missing.all()) and np.array_equal(tile[~missing], right[~missing])


STORE = CudaExercise(
    id="08.3",
    title="Store the fragment",
    entry="store_tile",
    points=3,
    lines=6,
    parameters=("a", "b", "pitch"),
    outputs=("c",),
    cases=_cases,
    reference=_stored,
    compare=Exact(),
    launch=_launch,
    misconceptions=(
        KernelMistake(
            "transposed",
            "The matrix came out transposed: row and column have changed places.",
            (
                "Compare element (0, 1) of your result with element (1, 0) of the right one.",
                "A row-major matrix: the row is what gets multiplied by the pitch.",
                "c[row * pitch + column].",
            ),
            model=partial(_stored, place=_transposed),
        ),
        KernelMistake(
            "one warp",
            "Only rows 0 to 15 were written: all four warps stored to the first warp's rows.",
            (
                "How many rows does one warp hold, and where do those of warp 1 begin?",
                "Warp w holds rows 16 w to 16 w + 15.",
                "Add 16 * (threadIdx.x / 32) to the row.",
            ),
            when=lambda case, expected, got: bool(np.isnan(got[16:]).all()) and not bool(np.isnan(got[:8, :64]).any()),
        ),
        KernelMistake(
            "upper half",
            "Rows 8 to 15 of every warp are missing: registers 2 and 3 of each four belong 8 rows further down.",
            (
                "A thread holds elements of two rows. Which two?",
                "Registers come in fours: two of row r, two of row r + 8.",
                "Add 8 * (i / 2 % 2) to the row.",
            ),
            when=lambda case, expected, got: (
                bool(np.isnan(got.reshape(4, 16, -1)[:, 8:]).all())
                and not bool(np.isnan(got.reshape(4, 16, -1)[:, :8, :64]).any())
            ),
        ),
        KernelMistake(
            "pitch",
            "Your rows are 64 elements apart. They are pitch elements apart in memory.",
            (
                "Which case fails, and which one passes?",
                "Where the pitch is larger than 64, a row of memory is longer than a row of D.",
                "row * pitch + column.",
            ),
            model=partial(_stored, apart=64),
        ),
        KernelMistake(
            "halves",
            "Within four registers you step down first and to the right second. It is the other way round.",
            (
                "Registers 0 and 1 of a thread are neighbours. In a row or in a column?",
                "i mod 2 moves one column to the right, i / 2 mod 2 moves 8 rows down.",
                "row + 8 * (i / 2 % 2), column + i % 2.",
            ),
            model=partial(_stored, place=_halves_swapped),
        ),
        KernelMistake(
            "lanes",
            "Lane / 4 and lane mod 4 have changed places: four neighbouring lanes share a row.",
            (
                "Where does lane 1 hold its first element: one row down or two columns to the right?",
                "lane / 4 is the row within 8, lane mod 4 the pair of columns.",
                "row: lane / 4; column: 2 * (lane % 4).",
            ),
            model=partial(_stored, place=_quads_swapped),
        ),
        KernelMistake(
            "thread rows",
            "You took a thread's registers for neighbours in one row. A thread holds pairs all over its warp's rows.",
            (
                "Use the picture of the fragment in the chapter: which elements are thread 6's?",
                "Only two neighbouring registers are neighbours in a row.",
                "Use the rule of the statement for row and column.",
            ),
            model=partial(_stored, place=_rows_of_lanes),
        ),
        KernelMistake(
            "single columns",
            "A lane holds two neighbouring columns, so the next lane begins two further on, not one.",
            (
                "Two threads of your kernel store to the same element. Which?",
                "Four lanes share 8 columns of a row: two each.",
                "column: 8 * (i / 4) + 2 * (lane % 4) + i % 2.",
            ),
            model=partial(_stored, place=_single_columns),
        ),
        KernelMistake(
            "the gap",
            "You stored between column 64 and the pitch, where somebody else's data lie.",
            (
                "Which columns does your kernel store to?",
                "D has 64 columns, whatever the pitch is.",
                "Store the 32 registers of each thread and nothing else.",
            ),
            when=_pad_written,
        ),
        KernelMistake(
            "not all stored",
            "What you stored is right, but elements are missing: each of 128 threads has 32 registers to store.",
            (
                "How many elements does your kernel store in all?",
                "64 · 64 elements are 32 for each of 128 threads.",
                "Let all threads run, and i from 0 to 31.",
            ),
            when=_half_stored,
        ),
        KernelMistake(
            "pairs",
            "An 8-byte store needs an address that is a multiple of 8, and with an odd pitch every other row is none.",
            (
                "At which byte does row 1 begin if the pitch is odd?",
                "Registers 0 and 1 are neighbours in memory, but their address may be a multiple of 4 only.",
                "Two stores of 4 bytes instead of one float2.",
            ),
            signs=(Sign("alignment"),),
        ),
        KernelMistake(
            "outside",
            "You stored outside the matrix: your formula gives a row or a column above 63, or counts bytes.",
            (
                "What are the largest row and the largest column that your formula gives?",
                "Row 16 * 3 + 7 + 8 = 63 for the last warp's last lane, column 8 * 7 + 2 * 3 + 1 = 63 for register 31.",
                "threadIdx.x / 32 is the warp, threadIdx.x % 32 the lane; i / 2 % 2 the lower half, i / 4 the block.",
            ),
            signs=(Sign("bounds"),),
        ),
    ),
    hints=(
        "Write down row and column of registers 0, 1, 2, 3 and 4 of thread 0.",
        "Loop over the 32 registers; compute row and column by the rule; store to c[row * pitch + column].",
        "row = 16 * (t / 32) + t % 32 / 4 + 8 * (i / 2 % 2), column = 8 * (i / 4) + 2 * (t % 4) + i % 2.",
    ),
)
