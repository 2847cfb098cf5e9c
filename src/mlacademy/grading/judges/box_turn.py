"""Judge of 07.3: a box of a tensor by TMA, read through its swizzle."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from mlacademy.gpu import LaunchPlan
from mlacademy.grading.compare import Exact
from mlacademy.grading.cuda_exercise import Box, CudaExercise, KernelMistake, Launch, Out, Sign, stuck
from mlacademy.grading.exercise import Case
from mlacademy.grading.judges.kernel_shared import EARLY, poisoned

Array = NDArray[np.float32]
SIDE = 32


def _cases(rng: np.random.Generator, hidden: bool) -> Iterator[Case]:
    places = [(40, 64, 3, 16, "inside the matrix"), (40, 64, 27, 8, "over the last row")]
    if hidden:
        places = [
            (64, 96, 0, 64, "in a corner"),
            (50, 40, 5, 20, "over the last column"),
            (20, 24, -6, -8, "before the first"),
        ]
    for rows, columns, row, column, label in places:
        matrix = rng.integers(1, 10_000, (rows, columns)).astype(np.float32)
        yield Case({"matrix": matrix, "row": row, "column": column}, label, (("column", "row"),))


def _launch(matrix: Array, row: int, column: int) -> Launch:
    source = Box(matrix, (SIDE, SIDE), {"swizzle": "128B", "name": "matrix"})
    return Launch(LaunchPlan(grid=1, block=128), (source, Out((SIDE, SIDE)), row, column))


def box_of(matrix: Array, row: int, column: int) -> Array:
    """The box whose first element is at (row, column); zeros outside the matrix."""
    box = np.zeros((SIDE, SIDE), np.float32)
    for r in range(max(0, -row), min(SIDE, matrix.shape[0] - row)):
        for c in range(max(0, -column), min(SIDE, matrix.shape[1] - column)):
            box[r, c] = matrix[row + r, column + c]
    return box


def _landed(matrix: Array, row: int, column: int) -> Array:
    """The box as it lies in shared memory: in row r, the 16-byte chunk j stands at place j XOR (r mod 8)."""
    chunks = box_of(matrix, row, column).reshape(SIDE, 8, 4)
    landed = np.empty_like(chunks)
    for r in range(SIDE):
        for j in range(8):
            landed[r, j ^ r % 8] = chunks[r, j]
    return landed.reshape(SIDE, SIDE)


def _read(matrix: Array, row: int, column: int, place: NDArray[np.int64]) -> Array:
    """What a reader gets that looks for element (r, c) at ``place[r, c]`` of its row."""
    return np.take_along_axis(_landed(matrix, row, column), place, axis=1).T.copy()


_R, _C = np.meshgrid(np.arange(SIDE), np.arange(SIDE), indexing="ij")

TURN_BOX = CudaExercise(
    id="07.3",
    title="Load a box, undo the swizzle",
    entry="turn_box",
    points=4,
    lines=9,
    parameters=("matrix", "row", "column"),
    outputs=("turned",),
    cases=_cases,
    launch=_launch,
    reference=lambda matrix, row, column: box_of(matrix, row, column).T.copy(),
    compare=Exact(),
    misconceptions=(
        KernelMistake(
            key="not-turned",
            says="The box is right but not transposed: turned[c][r] is element (r, c) of the box.",
            hints=(
                "Which index of turned runs fastest?",
                "Element 0 of turned is (0, 0), element 1 is row 1 of column 0.",
                "turned[32 * c + r] = element (r, c).",
            ),
            model=lambda matrix, row, column: box_of(matrix, row, column),
        ),
        KernelMistake(
            key="swizzle-ignored",
            says="You read the box as if its rows lay in order; the map swizzles 16-byte chunks inside each row.",
            hints=(
                "Rows 0, 8, 16 and 24 are right. What is special about them?",
                "With the 128-byte swizzle, chunk j (16 bytes) of row r lies at place j XOR (r mod 8) of the same row.",
                "place = 4 * ((c / 4) ^ (r % 8)) + c % 4 in row r.",
            ),
            model=lambda matrix, row, column: _read(matrix, row, column, _C),
        ),
        KernelMistake(
            key="swizzle-of-four-rows",
            says="Your pattern repeats after 4 rows: that is the 64-byte swizzle. The 128-byte one repeats after 8.",
            hints=(
                "How many chunks does a row have?",
                "A row of 128 bytes has 8 chunks, and the pattern is 8 rows tall.",
                "XOR the chunk's number with r % 8.",
            ),
            model=lambda matrix, row, column: _read(matrix, row, column, 4 * (_C // 4 ^ _R % 4) + _C % 4),
        ),
        KernelMistake(
            key="swizzle-of-elements",
            says="You swizzled single floats. The unit is 16 bytes: four floats stay together.",
            hints=(
                "How many floats move together?",
                "Only bits 4 to 6 of the byte address change; bits 2 and 3 choose the float inside its chunk.",
                "XOR c / 4 with r % 8 and put c % 4 behind it.",
            ),
            model=lambda matrix, row, column: _read(matrix, row, column, _C ^ _R % 8),
        ),
        KernelMistake(
            key="swizzle-of-row-groups",
            says="You took the number of the group of 8 rows. What counts is the row's number inside its group.",
            hints=(
                "Which rows have all chunks in order?",
                "Rows 0, 8, 16 and 24, the first of each group: r % 8 is 0 there.",
                "XOR c / 4 with r % 8, not with r / 8.",
            ),
            model=lambda matrix, row, column: _read(matrix, row, column, 4 * (_C // 4 ^ _R // 8) + _C % 4),
        ),
        KernelMistake(
            key="place-outside",
            says="The place you compute lies outside the box: a swizzle never leaves the row, which has 8 places.",
            hints=(
                "Which values can the place of a chunk take?",
                "A row has 8 chunks of 4 floats, and the XOR takes r mod 8: the place is 0 to 7.",
                "box[32 * r + 4 * ((c / 4) ^ (r % 8)) + c % 4].",
            ),
            signs=(Sign("bounds", code=r"box\["),),
        ),
        KernelMistake(
            key="place-not-scaled",
            says="You used the place of a chunk as if it were the place of a float. A chunk has 4 floats.",
            hints=(
                "Where does the chunk at place 1 begin, in floats?",
                "The chunk at place p begins at float 4 * p of the row.",
                "4 * ((c / 4) ^ (r % 8)) + c % 4.",
            ),
            model=lambda matrix, row, column: _read(matrix, row, column, (_C // 4 ^ _R % 8) + _C % 4),
        ),
        KernelMistake(
            key="first-of-each-chunk",
            says="All four floats of a chunk came out as its first one.",
            hints=(
                "Which float of its chunk is element (r, c)?",
                "c / 4 chooses the chunk, c % 4 the float inside.",
                "Add c % 4 behind the chunk's place.",
            ),
            model=lambda matrix, row, column: _read(matrix, row, column, 4 * (_C // 4 ^ _R % 8)),
        ),
        KernelMistake(
            key="as-it-lies",
            says="You wrote the box out as it lies in shared memory: neither turned nor with its chunks in place.",
            hints=(
                "Which element of the box belongs at turned[1]?",
                "turned[32 * c + r] is element (r, c), whose chunk c / 4 lies at place (c / 4) ^ (r % 8) of row r.",
                "turned[32 * c + r] = box[32 * r + 4 * ((c / 4) ^ (r % 8)) + c % 4].",
            ),
            model=lambda matrix, row, column: _landed(matrix, row, column),
        ),
        KernelMistake(
            key="coordinates-swapped",
            says="The coordinates are in the wrong order: the first one is the innermost axis, the column.",
            hints=(
                "Which coordinate moves along a row?",
                "The tensor map counts axes from the innermost: c0 is the column, c1 the row.",
                "cp_async_bulk_tensor_2d_shared_global(box, &matrix, column, row, &landed).",
            ),
            signs=(Sign("tensor-coordinate"),),
            model=lambda matrix, row, column: box_of(matrix, column, row).T.copy(),
        ),
        KernelMistake(
            key="coordinates-in-bytes",
            says="The column was given in bytes. Coordinates of a tensor map count elements.",
            hints=(
                "What does c0 count?",
                "The map knows the element's size; coordinates are elements along each axis.",
                "Pass column, not 4 * column.",
            ),
            model=lambda matrix, row, column: box_of(matrix, row, 4 * column).T.copy(),
        ),
        KernelMistake(
            key="wrong-byte-count",
            says="The bytes announced are not those of the whole box. A box at the edge brings all its bytes, "
            "zeros included.",
            hints=(
                "How many bytes does the barrier see from a box that hangs over the edge?",
                "TMA fills what is outside with zeros and counts the whole box: 32 rows of 128 bytes, always.",
                "mbarrier_arrive_expect_tx(&landed, sizeof(box)).",
            ),
            signs=(stuck("landed", pending=False, tx="unannounced"), stuck("landed", pending=False, tx="owed")),
        ),
        KernelMistake(
            key="bytes-never-announced",
            says="The box brought bytes that nobody had announced at the barrier.",
            hints=(
                "What does the barrier wait for besides one arrival?",
                "Announce the bytes of the box in the phase in which it lands.",
                "mbarrier_arrive_expect_tx(&landed, sizeof(box)) by the thread that starts the copy.",
            ),
            signs=(stuck("landed", tx="unannounced"),),
        ),
        KernelMistake(
            key="arrival-missing",
            says="The bytes came as announced, but the arrival that mbarrier_init asked for is missing.",
            hints=(
                "mbarrier_init(&landed, 1): who is the one?",
                "expect_tx alone is no arrival, and a copy never arrives: the copying thread does.",
                "mbarrier_arrive_expect_tx(&landed, sizeof(box)).",
            ),
            signs=(stuck("landed", pending=True),),
        ),
        KernelMistake(
            key="every-thread",
            says="Every thread started the copy; one is enough, and the barrier expects one arrival.",
            hints=(
                "Who starts a copy?",
                "One thread announces and starts; the others wait.",
                "if (threadIdx.x == 0) { … }, then all threads wait.",
            ),
            signs=(Sign("arrive-count"),),
        ),
        KernelMistake(
            key="read-too-early",
            says="The box was read before the copy was known to be over.",
            hints=(
                "Which line makes a thread sure that the box is there?",
                "Every thread that reads waits for phase 0 of the barrier itself.",
                "mbarrier_wait_parity(&landed, 0) by all threads, before the first read.",
            ),
            signs=(Sign(EARLY, object="box"), Sign("exit-pending")),
        ),
        KernelMistake(
            key="not-all-written",
            says="Some places of turned were never written.",
            hints=(
                "Which elements does each of the 128 threads write?",
                "32 × 32 elements, 128 threads: each writes 8 of them.",
                "for (int i = threadIdx.x; i < 32 * 32; i += blockDim.x) turned[i] = …",
            ),
            when=poisoned,
        ),
    ),
    hints=(
        "Three steps: announce and load by one thread, wait by all, read each element where the swizzle has put it.",
        "The row of an element does not change; its 16-byte chunk does: place = chunk XOR (row mod 8).",
        "Element (r, c) is box[32 * r + 4 * ((c / 4) ^ (r % 8)) + c % 4].",
    ),
)
