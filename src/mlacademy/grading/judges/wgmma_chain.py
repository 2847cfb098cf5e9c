"""Exercise 08.2: fence, four multiplies, commit, wait."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from mlacademy.gpu import LaunchPlan
from mlacademy.grading import Case, CudaExercise, Exact, KernelMistake, Launch, Out, Sign
from mlacademy.grading.judges.wgmma_mistakes import SOME_LANES, SOME_WARPS
from mlacademy.grading.judges.wgmma_tiles import Matrix, misread, product, slices, tiles, whole


def _cases(rng: np.random.Generator, hidden: bool) -> Iterator[Case]:
    axes = (("row", "column"),)
    for largest in (1, 4) if not hidden else (3, 4):
        yield Case({"a": whole(rng, 64, 64, largest), "b": whole(rng, 64, 64, largest)}, "small integers", axes)


def _launch(a: Matrix, b: Matrix) -> Launch:
    return Launch(LaunchPlan(grid=1, block=128), (tiles(a), tiles(b), Out((64, 64))))


def _slice(a: Matrix, b: Matrix, first: int) -> Matrix:
    return product(a[:, first : first + 16], b[:, first : first + 16])


def _one_moves(a: Matrix, b: Matrix, *, a_step: int, b_step: int) -> Matrix:
    pairs = zip(slices(a, step=a_step), slices(b, step=b_step), strict=True)
    return sum((product(*pair) for pair in pairs), np.zeros((64, 64), np.float32))


def _all_nan(case: Case, expected: Any, got: Any) -> bool:
    return bool(np.isnan(np.asarray(got)).all())


def _another_swizzle(case: Case, expected: Any, got: Any) -> bool:
    a, b = case.inputs["a"], case.inputs["b"]
    return any(np.array_equal(got, misread(a, b, swizzle=name)) for name in ("64B", "32B"))


CHAIN = CudaExercise(
    id="08.2",
    title="The chain of one tile",
    entry="chain_tile",
    points=4,
    lines=8,
    parameters=("a", "b"),
    outputs=("c",),
    cases=_cases,
    reference=product,
    compare=Exact(),
    launch=_launch,
    misconceptions=(
        SOME_LANES,
        SOME_WARPS,
        KernelMistake(
            "no wait",
            "D is read while the multiplies still run: no wait for their group stands between.",
            (
                "The multiplies are asynchronous: when the instruction is over, the sum is not there yet.",
                "A commit closes their group; a wait after it says how many groups may still be pending.",
                "After the commit: wgmma_wait_group<0>(d).",
            ),
            signs=(Sign("wgmma-wait"),),
        ),
        KernelMistake(
            "no fence",
            "D was written by ordinary instructions, and no wgmma_fence orders these writes before the multiplies.",
            (
                "Which instructions wrote d last, before your first multiply?",
                "The order between ordinary instructions on d and the multiplies has an instruction of its own.",
                "wgmma_fence(d) before the first of the four.",
            ),
            signs=(Sign("wgmma-fence"),),
        ),
        KernelMistake(
            "adds to NaN",
            "Everything is NaN: d still holds what was in it, or your first multiply adds to what was in d.",
            (
                "What was in d before your lines?",
                "The last argument of the multiply says whether it adds or overwrites.",
                "false for the first slice, true for the other three.",
            ),
            when=_all_nan,
        ),
        KernelMistake(
            "overwrites",
            "Only the last slice of 16 is in the result: each multiply overwrote the one before.",
            (
                "Compare your result with the product of columns 48 to 63 alone.",
                "Only one of the four multiplies may overwrite.",
                "accumulate is false for the first slice and true for the others.",
            ),
            model=partial(_slice, first=48),
        ),
        KernelMistake(
            "one slice",
            "Only the first 16 of 64 columns are in the result. One instruction takes 16 elements of K.",
            (
                "How deep is one m64n64k16?",
                "A tile that is 64 deep needs four multiplies.",
                "Four times, with both descriptors 32 bytes further in each time.",
            ),
            model=partial(_slice, first=0),
        ),
        KernelMistake(
            "stands still",
            "All four multiplies read the first slice: the descriptors never move along K.",
            (
                "Your result is four times that of the first 16 columns.",
                "Slice i begins 16 i elements further in, in both tiles.",
                "advance(descriptor, 32 * i).",
            ),
            model=lambda a, b: 4 * _slice(a, b, 0),
        ),
        KernelMistake(
            "a stands still",
            "Only b's descriptor moves along K: every slice of b meets the first slice of a.",
            (
                "What of a does the second multiply read?",
                "A product sums over K: both operands go on together.",
                "advance(a, 32 * i) and advance(b, 32 * i).",
            ),
            model=partial(_one_moves, a_step=0, b_step=32),
        ),
        KernelMistake(
            "b stands still",
            "Only a's descriptor moves along K: every slice of a meets the first slice of b.",
            (
                "What of b does the second multiply read?",
                "A product sums over K: both operands go on together.",
                "advance(a, 32 * i) and advance(b, 32 * i).",
            ),
            model=partial(_one_moves, a_step=32, b_step=0),
        ),
        KernelMistake(
            "operands swapped",
            "You computed b · aᵀ, which is the result transposed: the second argument is A, the third is B.",
            (
                "Compare element (0, 1) of your result with element (1, 0) of the right one.",
                "The rows of D come from A, its columns from B.",
                "wgmma_m64n64k16_f32_bf16(d, a, b, …).",
            ),
            model=lambda a, b: product(b, a),
        ),
        KernelMistake(
            "stride in elements",
            "The stride counts bytes, and 8 rows of 64 elements have more than 512.",
            (
                "How many bytes has an element?",
                "matrix_descriptor wants bytes, and puts them into units of 16 itself.",
                "8 rows of 64 elements of 2 bytes: 1024.",
            ),
            model=partial(misread, stride=512),
        ),
        KernelMistake(
            "stride of a row",
            "The stride offset is not the distance of two rows, but that of two groups of 8 rows.",
            (
                "Rows are 128 bytes apart. What does the descriptor's stride lead to?",
                "K-major: from 8 rows to the next 8 rows.",
                "8 rows of 128 bytes: 1024.",
            ),
            model=partial(misread, stride=128),
        ),
        KernelMistake(
            "no swizzle",
            "The tiles have swizzle 128B, and your descriptors say that they have none.",
            (
                "The tensor maps brought the tiles with a swizzle.",
                "The descriptor must name the same swizzle as the map.",
                "matrix_descriptor<Swizzle::k128B, 1024>(…).",
            ),
            model=partial(misread, swizzle="none"),
        ),
        KernelMistake(
            "another swizzle",
            "The tiles have swizzle 128B; your descriptors name another one.",
            (
                "How long is a row of 64 bf16 elements?",
                "The swizzle's name is the length of the row that it permutes.",
                "Swizzle::k128B.",
            ),
            when=_another_swizzle,
        ),
        KernelMistake(
            "half a step",
            "From slice to slice you advance 16 bytes. A slice is 16 elements wide, and an element has 2 bytes.",
            (
                "In which unit does advance count?",
                "The slices overlap: half of each is read twice.",
                "advance(descriptor, 32 * i).",
            ),
            model=partial(misread, step=16),
        ),
        KernelMistake(
            "beyond the tile",
            "A multiply reads beyond the tiles: your slices are too many, or slices or groups of 8 rows too far apart.",
            (
                "How many bytes of a row does one multiply take, and how many bytes are 8 rows?",
                "16 elements of 2 bytes; four slices fill the row of 128 bytes. 8 rows are 1024 bytes.",
                "advance(descriptor, 32 * i), not 64 or 128; stride 1024.",
            ),
            signs=(Sign(("uninitialized", "bounds"), text="wgmma"),),
        ),
    ),
    hints=(
        "Four lines around the multiplies: fence before; commit and wait after.",
        "Descriptors: swizzle 128B, stride 1024; slice i starts 32 i bytes further in, in both tiles.",
        "wgmma_fence(d); four wgmma_m64n64k16_f32_bf16(d, a, b, i > 0); wgmma_commit_group(); wgmma_wait_group<0>(d).",
    ),
)
