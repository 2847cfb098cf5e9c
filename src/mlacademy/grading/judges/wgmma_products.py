"""Exercise 08.4: the scores' registers as A of a second product."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from mlacademy.gpu import LaunchPlan
from mlacademy.gpu.fragments import fragment
from mlacademy.grading import Case, CudaExercise, Exact, KernelMistake, Launch, Out, Sign
from mlacademy.grading.judges.wgmma_mistakes import SOME_LANES, SOME_WARPS
from mlacademy.grading.judges.wgmma_tiles import Matrix, product, slices, tiles, whole


def _cases(rng: np.random.Generator, hidden: bool) -> Iterator[Case]:
    axes = (("query", "dimension"),)
    for _ in range(3 if hidden else 2):
        yield Case({"q": whole(rng, 64, 64, 1), "kv": whole(rng, 64, 64, 1)}, "-1, 0 and 1", axes)


def _launch(q: Matrix, kv: Matrix) -> Launch:
    return Launch(LaunchPlan(grid=1, block=128), (tiles(q), tiles(kv), Out((64, 64))))


def _output(q: Matrix, kv: Matrix) -> Matrix:
    return product(product(q, kv), kv.T)


def _fed(q: Matrix, kv: Matrix, *, registers: Sequence[Sequence[int]], repeat: int = 4) -> Matrix:
    """The output if value v of slice j's A fragment is accumulator ``registers[j % repeat][v]`` of the scores."""
    scores, d, a = product(q, kv), fragment("D", n=64), fragment("A", "bf16")
    weights = np.zeros((64, 64), np.float32)
    for j in range(4):
        for thread in range(128):
            for v in range(8):
                row, k = a.element(thread, v)
                weights[row, 16 * j + k] = scores[d.element(thread, registers[j % repeat][v])]
    return product(weights, kv.T)


def _values_as(q: Matrix, kv: Matrix, **told: Any) -> Matrix:
    """The output if the descriptors of the values are wrong."""
    scores = product(q, kv)
    total = np.zeros((64, 64), np.float32)
    for j, values in enumerate(slices(kv, **told)):
        total += product(scores[:, 16 * j : 16 * j + 16], values)
    return total


def _all_nan(case: Case, expected: Any, got: Any) -> bool:
    return bool(np.isnan(np.asarray(got)).all())


_IN_ORDER = [[8 * j + v for v in range(8)] for j in range(4)]

PRODUCTS = CudaExercise(
    id="08.4",
    title="From D to A",
    entry="chain_products",
    points=4,
    lines=10,
    parameters=("q", "kv"),
    outputs=("out",),
    cases=_cases,
    reference=_output,
    compare=Exact(),
    launch=_launch,
    misconceptions=(
        SOME_LANES,
        SOME_WARPS,
        KernelMistake(
            "no wait",
            "D is read while the multiplies still run: no wait for their group stands between.",
            (
                "The second chain is as asynchronous as the first.",
                "Commit its four multiplies as a group, and wait for it.",
                "wgmma_commit_group(); wgmma_wait_group<0>(d);",
            ),
            signs=(Sign("wgmma-wait"),),
        ),
        KernelMistake(
            "no fence",
            "Ordinary instructions wrote d and your fragments; no wgmma_fence stands between them and the multiplies.",
            (
                "The first chain had a fence. What has been written since?",
                "The conversions wrote registers that the multiplies read as A.",
                "wgmma_fence(d) after the conversions, before the first multiply.",
            ),
            signs=(Sign("wgmma-fence"),),
        ),
        KernelMistake(
            "adds to NaN",
            "Everything is NaN: d still holds what was in it, or your first multiply adds to what was in d.",
            (
                "What was in d before your lines?",
                "The first of the four multiplies overwrites.",
                "The last argument: j > 0.",
            ),
            when=_all_nan,
        ),
        KernelMistake(
            "pairs swapped",
            "In each pair low and high half have changed places.",
            (
                "Which of the two neighbours belongs to the lower k?",
                "Value 2 j is the low half of register j, value 2 j + 1 the high half.",
                "cvt_rn_bf16x2_f32(low, high): the even accumulator first.",
            ),
            model=partial(_fed, registers=[[v ^ 1 for v in row] for row in _IN_ORDER]),
        ),
        KernelMistake(
            "same fragment",
            "Every slice got the fragment of tokens 0 to 15.",
            (
                "How many registers of D make one fragment of A?",
                "Eight accumulators become four registers; the next slice takes the next eight.",
                "Slice j takes scores[8 * j] to scores[8 * j + 7].",
            ),
            model=partial(_fed, registers=_IN_ORDER, repeat=1),
        ),
        KernelMistake(
            "overlapping pairs",
            "Your pairs overlap: accumulators 0 and 1, then 1 and 2. A register takes two of its own.",
            (
                "How many accumulators go into four registers of A?",
                "Eight, two to a register: none is used twice.",
                "Register r of slice j: scores[8 * j + 2 * r] and scores[8 * j + 2 * r + 1].",
            ),
            model=partial(_fed, registers=[[8 * j + v // 2 + v % 2 for v in range(8)] for j in range(4)]),
        ),
        KernelMistake(
            "four to a slice",
            "Slice j begins at scores[4 * j] in your kernel. A slice of 16 tokens takes eight accumulators.",
            (
                "How many accumulators go into four registers of A?",
                "Two to a register: the four registers of a slice take eight.",
                "Register r of slice j: scores[8 * j + 2 * r] and scores[8 * j + 2 * r + 1].",
            ),
            model=partial(_fed, registers=[[4 * j + v for v in range(8)] for j in range(4)]),
        ),
        KernelMistake(
            "rows and columns",
            "Within a fragment you took the right neighbour block before the rows below.",
            (
                "Compare the two rules: values 2 and 3 of A and registers 2 and 3 of D.",
                "The order is the same in both: nothing must be moved.",
                "Register r of slice j: scores[8 * j + 2 * r] and scores[8 * j + 2 * r + 1].",
            ),
            model=partial(_fed, registers=[[row[v] for v in (0, 1, 4, 5, 2, 3, 6, 7)] for row in _IN_ORDER]),
        ),
        KernelMistake(
            "keys again",
            "The second product read kv as keys, K-major.",
            (
                "Over what does the second product sum: dimensions or tokens?",
                "Its B is N-major; a slice of 16 tokens is 16 rows.",
                "The template argument <1>, and shared.kv[16 * j] as the start.",
            ),
            model=_values_as,
            signs=(Sign(("bounds", "uninitialized"), text="wgmma", lacks=r"f32_bf16<(1|0,\s*1)>"),),
        ),
        KernelMistake(
            "steps of a key",
            "The values are read N-major, but from slice to slice you advance 32 bytes, which is 16 dimensions.",
            (
                "A slice of the second product is 16 tokens.",
                "A token is a row of 128 bytes.",
                "2048 bytes from slice to slice.",
            ),
            model=partial(_values_as, step=32, major="MN"),
        ),
        KernelMistake(
            "half a slice",
            "From slice to slice you advance 1024 bytes, which is 8 tokens: half of each slice is read twice.",
            (
                "How many tokens does one multiply sum over?",
                "16 tokens, each a row of 128 bytes.",
                "2048 bytes from slice to slice.",
            ),
            model=partial(_values_as, step=1024, major="MN"),
        ),
        KernelMistake(
            "stands still",
            "All four slices are multiplied by the values of tokens 0 to 15.",
            (
                "Which part of kv does slice j need?",
                "Tokens 16 j to 16 j + 15.",
                "Start at shared.kv[16 * j], or advance by 2048 * j.",
            ),
            model=partial(_values_as, step=0, major="MN"),
        ),
        KernelMistake(
            "stride of a row",
            "The stride offset of the values leads to the next 8 tokens, not to the next one.",
            (
                "What does the hardware add after 8 steps along K?",
                "8 tokens are 8 rows of 128 bytes.",
                "matrix_descriptor<Swizzle::k128B, 1024, 1024>.",
            ),
            model=partial(_values_as, step=2048, stride=128, major="MN"),
        ),
        KernelMistake(
            "beyond the tile",
            "A multiply reads beyond kv: your slices or your groups of 8 tokens are too far apart.",
            (
                "How many bytes are 8 tokens, and how many are 16?",
                "A token is a row of 128 bytes; the whole tile has 8192.",
                "Stride 1024; 2048 bytes from slice to slice.",
            ),
            signs=(Sign(("uninitialized", "bounds"), text="wgmma"),),
        ),
    ),
    hints=(
        "Two loops: one converts, one multiplies. Between them a fence.",
        "Register r of slice j is the pair scores[8 j + 2 r], scores[8 j + 2 r + 1]; slice j takes tokens 16 j and up.",
        "wgmma_m64n64k16_f32_bf16<1>(d, a[j], b, j > 0); b describes the rows from shared.kv[16 * j] on: stride 1024.",
    ),
)
