"""Judges of assignment 13: a block-scaled FP8 GEMM, and three questions about what makes it fast."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


def _epilogue(reduce: Callable[[Array], Array]) -> Callable[..., Array]:
    """All of K in one sum, then one factor from the scales ``[rows, K / 128]`` of either side."""

    def model(a: Array, b: Array, scale_a: Array, scale_b: Array) -> Array:
        factor = np.outer(reduce(scale_a), reduce(_rows(scale_b, len(b))))
        return np.asarray((a @ b.T) * factor, np.float32)

    return model


def _epilogue_products(a: Array, b: Array, scale_a: Array, scale_b: Array) -> Array:
    factor = scale_a @ _rows(scale_b, len(b)).T / scale_a.shape[1]
    return np.asarray((a @ b.T) * factor, np.float32)


def _not_cleared(a: Array, b: Array, scale_a: Array, scale_b: Array) -> Array:
    out, running = np.zeros((2, len(a), len(b)), np.float32)
    for block in range(scale_a.shape[1]):
        inside = slice(128 * block, 128 * block + 128)
        running = running + a[:, inside] @ b[:, inside].T
        out = out + running * np.outer(scale_a[:, block], _rows(scale_b, len(b))[:, block])
    return out


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


def _own_rows(a: Array, b: Array, scale_a: Array, scale_b: Array) -> Array:
    return _per_block(a, b, _factor(scale_a, scale_b[np.minimum(np.arange(len(b)), len(scale_b) - 1)]))


def _no_scale_a(a: Array, b: Array, scale_a: Array, scale_b: Array) -> Array:
    return _per_block(a, b, _factor(np.ones_like(scale_a), _rows(scale_b, len(b))))


def _divided(a: Array, b: Array, scale_a: Array, scale_b: Array) -> Array:
    return _per_block(a, b, 1 / _factor(scale_a, _rows(scale_b, len(b))))


def _shifted(by: int) -> Callable[..., Array]:
    """Every block with the scales of another, ``by`` places on."""

    def model(a: Array, b: Array, scale_a: Array, scale_b: Array) -> Array:
        return _per_block(a, b, np.roll(_factor(scale_a, _rows(scale_b, len(b))), -by, axis=2))

    return model


def _some_blocks(blocks: slice) -> Callable[..., Array]:
    """Only these blocks along K."""

    def model(a: Array, b: Array, scale_a: Array, scale_b: Array) -> Array:
        factor = _factor(scale_a, _rows(scale_b, len(b)))
        kept = np.zeros_like(factor)
        kept[:, :, blocks] = factor[:, :, blocks]
        return _per_block(a, b, kept)

    return model


_LATE = (
    "What is the same for all K of one output element, and what is not?",
    "The scales change every 128 values along K, so products of different blocks cannot share one factor.",
    "Inside the loop: the product of one 128-deep slice, times its own scale_a and scale_b, added to the total.",
)
_BOTH = (
    "Which of the two inputs were quantised?",
    "A code stands for code × scale, in a and in b.",
    "The factor of a block is scale_a[m, kb] times scale_b[n // 128, kb].",
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
        *(
            Misconception(
                f"epilogue, {which}",
                model=model,
                says=f"All of K is multiplied by {which} scales after the loop: no one factor is right for all blocks.",
                hints=_LATE,
            )
            for which, model in (
                ("the last block's", _epilogue(lambda scales: scales[:, -1])),
                ("the first block's", _epilogue(lambda scales: scales[:, 0])),
                ("mean", _epilogue(lambda scales: scales.mean(axis=1))),
                ("the largest", _epilogue(lambda scales: scales.max(axis=1))),
                ("the sums of the", _epilogue(lambda scales: scales.sum(axis=1))),
                ("the product of all", _epilogue(lambda scales: scales.prod(axis=1))),
                ("mean products of the", _epilogue_products),
            )
        ),
        Misconception(
            "accumulator not cleared",
            model=_not_cleared,
            says="The sum that is scaled still holds the products of earlier blocks: they are counted again each time.",
            hints=(
                "What is in your block sum at the start of the second turn of the loop?",
                "Two accumulators: one for the block, which starts from 0 each time; one for the scaled total.",
                "Inside the loop: partial = a[:, s] @ b[:, s].T, not partial += …; then total += partial * factor.",
            ),
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
            hints=_BOTH,
        ),
        Misconception(
            "scale of a left out",
            model=_no_scale_a,
            says="scale_a is missing: both operands were divided by a scale when they were quantised.",
            hints=_BOTH,
        ),
        Misconception(
            "divided",
            model=_divided,
            says="You divided by the scales. That was done when the values were quantised; now they are multiplied.",
            hints=_BOTH,
        ),
        *(
            Misconception(
                f"scales of another block, {by}",
                model=_shifted(by),
                says="A block takes the scales of its neighbour along K.",
                hints=(
                    "Which scales belong to the values 0 to 127 of a row?",
                    "Block kb, from value 128·kb on, has the scales in column kb, of scale_a and of scale_b.",
                    "One loop variable for all four: slices from 128·kb, scale_a[:, kb], scale_b[:, kb].",
                ),
            )
            for by in (1, -1)
        ),
        Misconception(
            "one weight row, one scale",
            model=_own_rows,
            says="Row n of b takes scale row n. Weights have one scale for 128 × 128 values: rows 0 to 127 share one.",
            hints=_WEIGHTS,
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
        *(
            Misconception(
                f"{which} only",
                model=_some_blocks(blocks),
                says=says,
                hints=(
                    "How many K blocks are there, and how many of them are in your total?",
                    "Take the number from the shapes, K // 128 or the second axis of scale_a, and add with +=.",
                    "for kb in range(a.shape[1] // 128): … out += partial * factor",
                ),
            )
            for which, blocks, says in (
                ("two blocks", slice(0, 2), "Only the first two K blocks are summed; K is not always 256."),
                (
                    "last block",
                    slice(-1, None),
                    "Only the last K block is in the result: it replaced the others.",
                ),
                ("first block", slice(0, 1), "Only the first K block is in the result."),
                ("all but the last block", slice(0, -1), "The last K block is missing."),
            )
        ),
    ),
    hints=(
        "Write down the four shapes for K = 256, N = 130. Then do one output element by hand: two sums of 128 "
        "products, each with its own factor.",
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
