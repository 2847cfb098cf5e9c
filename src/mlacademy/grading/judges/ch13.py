"""Judges of assignment 13: a block-scaled FP8 GEMM, and three questions about what makes it fast."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlacademy import fp8, gemm
from mlacademy.grading import Case, Close, Exercise, Misconception, PassRule

Array = NDArray[Any]

RULE = PassRule(
    points=8,
    veto=(
        "mixes up the jobs of TMA (moves tiles into shared memory) and WGMMA (multiplies them)",
        "mixes up one scale per tensor with one scale per block",
    ),
)


def _operand(rng: np.random.Generator, rows: int, k: int, group: int) -> gemm.Operand:
    """A matrix whose blocks along K differ in size by up to a thousand, quantised as the kernels' inputs are."""
    size = 10.0 ** rng.uniform(-1.5, 1.5, size=(rows, k // 128))
    return gemm.quantize_blocks(rng.normal(size=(rows, k)) * size.repeat(128, axis=1), rows=group)


def _case(rng: np.random.Generator, m: int, n: int, k: int, part: str, label: str) -> Case:
    a, b = _operand(rng, m, k, 1), _operand(rng, n, k, 128)
    magnitude = np.abs(gemm.dequantize_blocks(a)) @ np.abs(gemm.dequantize_blocks(b, rows=128)).T
    return Case(
        inputs={
            "a": fp8.decode_e4m3(a.codes),
            "b": fp8.decode_e4m3(b.codes),
            "scale_a": a.scales,
            "scale_b": b.scales,
        },
        label=label,
        axes=(("m", "n"),),
        part=part,
        magnitude=(magnitude,),
    )


def _cases(rng: np.random.Generator, hidden: bool) -> Iterator[Case]:
    one, depth, wide = "one K block", "several K blocks", "weights in several row blocks"
    if not hidden:
        yield _case(rng, 3, 5, 128, one, "one K block, fewer than 128 weight rows")
        yield _case(rng, 4, 6, 256, depth, "two K blocks with different scales")
        yield _case(rng, 2, 3, 640, depth, "five K blocks")
        yield _case(rng, 3, 256, 128, wide, "two row blocks of weights")
        yield _case(rng, 5, 130, 384, wide, "a last row block of weights with few rows")
    else:
        yield _case(rng, 1, 1, 128, one, "a single row and column")
        yield _case(rng, 7, 2, 896, depth, "an odd number of K blocks")
        yield _case(rng, 1, 128, 1024, depth, "a long K")
        yield _case(rng, 130, 257, 256, wide, "more activation rows than a weight block has")
        yield _case(rng, 2, 385, 128, wide, "more row blocks of weights than K blocks")


def _reference(a: Array, b: Array, scale_a: Array, scale_b: Array) -> Array:
    """The oracle in float64. The inputs are E4M3 values, so encoding them again is exact."""
    operands = (gemm.Operand(fp8.encode_e4m3(a), scale_a), gemm.Operand(fp8.encode_e4m3(b), scale_b))
    return np.asarray(gemm.gemm_nt(*operands).astype(np.float32))


def _rows(scale_b: Array, n: int) -> Array:
    return np.repeat(scale_b, 128, axis=0)[:n]


def _per_block(a: Array, b: Array, factor: Array) -> Array:
    """Sum of the blocks' products times ``factor`` [M, N, K/128]."""
    m, n, blocks = factor.shape
    products = np.einsum("mkc,nkc->mnk", a.reshape(m, blocks, 128), b.reshape(n, blocks, 128))
    return np.asarray((products * factor).sum(axis=2), np.float32)


def _factor(scale_a: Array, spread_b: Array) -> Array:
    return scale_a[:, None, :] * spread_b[None, :, :]


def _epilogue_last(a: Array, b: Array, scale_a: Array, scale_b: Array) -> Array:
    return np.asarray((a @ b.T) * np.outer(scale_a[:, -1], _rows(scale_b, len(b))[:, -1]), np.float32)


def _epilogue_first(a: Array, b: Array, scale_a: Array, scale_b: Array) -> Array:
    return np.asarray((a @ b.T) * np.outer(scale_a[:, 0], _rows(scale_b, len(b))[:, 0]), np.float32)


def _epilogue_mean(a: Array, b: Array, scale_a: Array, scale_b: Array) -> Array:
    return np.asarray((a @ b.T) * np.outer(scale_a.mean(axis=1), _rows(scale_b, len(b)).mean(axis=1)), np.float32)


def _running(a: Array, b: Array, scale_a: Array, scale_b: Array) -> Array:
    total = np.zeros((len(a), len(b)), np.float32)
    spread = _rows(scale_b, len(b))
    for block in range(scale_a.shape[1]):
        inside = slice(128 * block, 128 * block + 128)
        total = (total + a[:, inside] @ b[:, inside].T) * np.outer(scale_a[:, block], spread[:, block])
    return total


def _no_scale_b(a: Array, b: Array, scale_a: Array, scale_b: Array) -> Array:
    return _per_block(a, b, _factor(scale_a, np.ones((len(b), scale_a.shape[1]), np.float32)))


def _first_row_block(a: Array, b: Array, scale_a: Array, scale_b: Array) -> Array:
    return _per_block(a, b, _factor(scale_a, np.repeat(scale_b[:1], len(b), axis=0)))


def _tiled_rows(a: Array, b: Array, scale_a: Array, scale_b: Array) -> Array:
    return _per_block(a, b, _factor(scale_a, scale_b[np.arange(len(b)) % len(scale_b)]))


def _two_blocks(a: Array, b: Array, scale_a: Array, scale_b: Array) -> Array:
    return _per_block(a[:, :256], b[:, :256], _factor(scale_a, _rows(scale_b, len(b)))[:, :, :2])


_LATE = (
    "What is the same for all K of one output element, and what is not?",
    "The scales change every 128 values along K, so products of different blocks cannot share one factor.",
    "Inside the loop: the product of one 128-deep slice, times its own scale_a and scale_b, added to the total.",
)
_WEIGHTS = (
    "How many rows of b share one row of scale_b?",
    "Weight row n belongs to row block n // 128; the last block may have fewer rows.",
    "np.repeat(scale_b, 128, axis=0)[:N] has one row a weight row; or loop over the row blocks.",
)

CODE = Exercise(
    id="13.1",
    title="A block-scaled GEMM",
    entry="block_gemm",
    points=4,
    lines=8,
    parameters=("a", "b", "scale_a", "scale_b"),
    outputs=("out",),
    cases=_cases,
    reference=_reference,
    compare=Close(
        rtol=144 * 2.0**-24,
        why="128 additions a block, three roundings to promote it and up to 8 blocks, each within 2^-24 in float32",
        dtype="same",
    ),
    parts={"one K block": 1, "several K blocks": 2, "weights in several row blocks": 1},
    misconceptions=(
        Misconception(
            "no scales",
            model=lambda a, b, scale_a, scale_b: a @ b.T,
            says="The products are summed without any scale: codes of different blocks stand for different units.",
            hints=_LATE,
        ),
        Misconception(
            "epilogue, last block",
            model=_epilogue_last,
            says="All of K is multiplied by the scales of the last block: scaling only after the loop is too late.",
            hints=_LATE,
        ),
        Misconception(
            "epilogue, first block",
            model=_epilogue_first,
            says="All of K is multiplied by the scales of the first block: scaling only after the loop is too late.",
            hints=_LATE,
        ),
        Misconception(
            "epilogue, mean",
            model=_epilogue_mean,
            says="All of K is multiplied by mean scales after the loop: no single factor is right for all blocks.",
            hints=_LATE,
        ),
        Misconception(
            "running total scaled",
            model=_running,
            says="The running total is scaled again with every block: only the new block's products take its scales.",
            hints=(
                "What happens to the first block's products in the second turn of the loop?",
                "Two accumulators: one for the block, cleared each time; one for the total, never scaled.",
                "total += products * factor, not total = (total + products) * factor.",
            ),
        ),
        Misconception(
            "scale of b left out",
            model=_no_scale_b,
            says="scale_b is missing: both operands were divided by a scale when they were quantised.",
            hints=(
                "Which of the two inputs were quantised?",
                "A code stands for code × scale, in a and in b.",
                "The factor of a block is scale_a[m, kb] times scale_b[n // 128, kb].",
            ),
        ),
        Misconception(
            "first weight block for all",
            model=_first_row_block,
            says="Every row of b takes the scales of the first 128 rows.",
            hints=_WEIGHTS,
        ),
        Misconception(
            "weight blocks interleaved",
            model=_tiled_rows,
            says="Row n of b takes scale row n % blocks; rows share a scale in groups of 128 neighbours, n // 128.",
            hints=_WEIGHTS,
        ),
        Misconception(
            "two blocks only",
            model=_two_blocks,
            says="Only the first two K blocks are summed; K is not always 256.",
            hints=(
                "Where does the number of blocks come from?",
                "Take it from the shapes: K // 128, or the second axis of scale_a.",
                "for kb in range(a.shape[1] // 128)",
            ),
        ),
    ),
    hints=(
        "Do one output element by hand for K = 256: two sums of 128 products, each with its own factor.",
        "Loop over the K blocks. Each block: multiply the slices, multiply by the outer product of its scales, add.",
        "Slice columns 128·kb to 128·(kb + 1) of a and b; the factor is scale_a[:, kb] by the spread scale_b[:, kb].",
    ),
    forbids=("mlacademy.gemm", "mlacademy.fp8", "mlacademy._core"),
)

QUESTION = "Two points: one for each half of the question, half a point off for a missing link in the chain of causes."
SCALES = Exercise(
    id="13.2", title="Why blocks, and what they ask of the tensor core", entry="scales", points=2, rubric=QUESTION
)
OPERANDS = Exercise(id="13.3", title="Operands from shared memory", entry="operands", points=2, rubric=QUESTION)
MASKED = Exercise(id="13.4", title="Masked groups and CUDA graphs", entry="masked", points=2, rubric=QUESTION)
