"""Fine-grained FP8 GEMM: D = A·Bᵀ where every 128 values along K have their own scale.

    A   codes uint8 [M, K],  scales float32 [M, ceil(K/128)]                 activations: 1×128
    B   codes uint8 [N, K],  scales float32 [ceil(N/128), ceil(K/128)]       weights: 128×128
    D   [M, N]               D[m, n] = Σ_kb sa[m, kb] · sb[n // 128, kb] · Σ_k∈kb a[m, k]·b[n, k]

Codes are E4M3, scales are multipliers. The scales change from block to block, so a block's products have to be summed
on their own and scaled ("promoted") before they join the total: no single factor after the loop over K can do it.
Weight gradients use 1×128 on both sides (``WGRAD``). These oracles are plain on purpose; the layouts at the end are
those that the kernels want their scales in. Left out: grouped GEMM, FP4.

Sources: the DeepGEMM interface (shapes, recipes, scale layouts, quantiser, ``calc_diff``) and the DeepSeek-V3 report.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlacademy import fp8

BLOCK_K = 128
"""How many values along K share a scale, and how deep one accumulation on the tensor core goes."""

MIN_AMAX = 1e-4
"""The quantiser raises a block's largest magnitude to at least this, so the smallest scale is 1e-4 / 448."""

_TMA_BYTES = 16


class Recipe(NamedTuple):
    """How many rows of A, rows of B and values along K share one scale."""

    rows_a: int
    rows_b: int
    k: int


FORWARD = Recipe(1, 128, BLOCK_K)
"""Activations 1×128, weights 128×128: forward passes and inference ("1D2D")."""
WGRAD = Recipe(1, 1, BLOCK_K)
"""1×128 on both sides: weight gradients ("1D1D")."""


class Operand(NamedTuple):
    """An FP8 matrix: E4M3 ``codes`` uint8 [rows, K] and ``scales`` float32 [ceil(rows/r), ceil(K/128)]."""

    codes: NDArray[np.uint8]
    scales: NDArray[np.float32]


def quantize_blocks(x: NDArray[Any], *, rows: int = 1, power_of_two: bool = False) -> Operand:
    """Quantise ``x`` [R, K] with one scale for every ``rows``×128 values: scale = max(amax, 1e-4) / 448.

    ``power_of_two`` rounds each scale up to a power of two, the only kind that E8M0 holds (SM100). Blocks at the
    edges may be smaller. Raises ``ValueError`` for another rank, for NaN or infinity, and for ``rows`` below 1.

    >>> quantize_blocks(np.array([[448.0, -224.0, 7.0, 0.0]])).codes
    array([[126, 246,  78,   0]], dtype=uint8)
    """
    if x.ndim != 2:
        raise ValueError(f"x must be a matrix [rows, K]: it has shape {list(x.shape)}")
    if rows < 1:
        raise ValueError(f"rows must be at least 1: it is {rows}")
    if not np.isfinite(x).all():
        raise ValueError("x must be finite: a NaN or an infinity would spoil the scale of its whole block")
    down, across = _blocks(x.shape[0], rows), _blocks(x.shape[1], BLOCK_K)
    padded = np.zeros((down * rows, across * BLOCK_K))
    padded[: x.shape[0], : x.shape[1]] = x
    amax = np.abs(padded).reshape(down, rows, across, BLOCK_K).max(axis=(1, 3), initial=0.0)
    scales = (np.maximum(amax, MIN_AMAX) / fp8.E4M3_MAX).astype(np.float32)
    if power_of_two and scales.size:
        scales = fp8.decode_e8m0(fp8.encode_e8m0(scales, rounding="up"))
    spread = _spread(scales, x.shape, rows)
    return Operand(fp8.encode_e4m3(x / spread), scales)


def dequantize_blocks(operand: Operand, *, rows: int = 1) -> NDArray[np.float64]:
    """The values [R, K] of an operand with one scale for ``rows``×128 codes: code value × scale, exact in float64."""
    codes, scales = operand
    _check_scales(codes, scales, rows, "operand")
    values = fp8.decode_e4m3(codes).astype(np.float64)
    return np.asarray(values * _spread(scales, codes.shape, rows))


def gemm_nt(
    a: Operand,
    b: Operand,
    *,
    recipe: Recipe = FORWARD,
    c: NDArray[Any] | None = None,
    precision: Literal["float64", "float32"] = "float64",
) -> NDArray[Any]:
    """D = A·Bᵀ (+ C), block by block along K, [M, N] in ``precision``.

    ``"float64"`` is the oracle: products of E4M3 values and sums of 128 of them are exact in it, and the scales are
    applied with one rounding each. ``"float32"`` does what a kernel's registers do: sum a block in float32, multiply
    by the product of its two scales, add to a float32 total. K may be any length (the last block may be shorter);
    with K = 0 the result is 0, or C. Raises ``ValueError`` where shapes do not fit, naming the operand.
    """
    if precision not in ("float64", "float32"):
        raise ValueError(f"precision must be 'float64' or 'float32': it is {precision!r}")
    if recipe.k != BLOCK_K:
        raise ValueError(f"recipe must have 128 values along K: it has {recipe.k}")
    (m, k), (n, k_b) = _check_codes(a.codes, "a"), _check_codes(b.codes, "b")
    if k != k_b:
        raise ValueError(f"a and b must agree on K: a has {k}, b has {k_b}. B is stored [N, K], not [K, N]")
    _check_scales(a.codes, a.scales, recipe.rows_a, "a")
    _check_scales(b.codes, b.scales, recipe.rows_b, "b")
    if c is not None and c.shape != (m, n):
        raise ValueError(f"c must have shape [{m}, {n}]: it has {list(c.shape)}")
    kind = np.dtype(precision)
    values_a, values_b = fp8.decode_e4m3(a.codes).astype(kind), fp8.decode_e4m3(b.codes).astype(kind)
    scales_a = np.repeat(a.scales.astype(kind), recipe.rows_a, axis=0)[:m]
    scales_b = np.repeat(b.scales.astype(kind), recipe.rows_b, axis=0)[:n]
    total = np.zeros((m, n), kind) if c is None else c.astype(kind)
    for block in range(_blocks(k, BLOCK_K)):
        inside = slice(block * BLOCK_K, (block + 1) * BLOCK_K)
        products = values_a[:, inside] @ values_b[:, inside].T
        total += products * np.outer(scales_a[:, block], scales_b[:, block])
    return total


def calc_diff(x: NDArray[Any], y: NDArray[Any]) -> float:
    """1 − 2Σxy / Σ(x² + y²): 0 for equal matrices, and for two zero matrices.

    It sees a wrong scale, unlike the cosine, but not a small one: every value 1 % too large gives about 5e-5, so the
    usual limit of 1e-3 has to stand beside an elementwise test. Raises ``ValueError`` for unequal shapes.
    """
    if x.shape != y.shape:
        raise ValueError(f"x and y must have one shape: {list(x.shape)} and {list(y.shape)}")
    one, other = x.astype(np.float64), y.astype(np.float64)
    size = float((one * one + other * other).sum())
    return 1.0 - 2.0 * float((one * other).sum()) / size if size else 0.0


def scale_stride(mn: int, itemsize: int = 4) -> int:
    """Distance in elements between two K blocks of an MN-major scale matrix: ``mn`` rounded up to 16 bytes."""
    if mn < 0 or itemsize < 1 or _TMA_BYTES % itemsize:
        raise ValueError(f"mn must not be negative and itemsize must divide 16: they are {mn} and {itemsize}")
    per_row = _TMA_BYTES // itemsize
    return _blocks(mn, per_row) * per_row


def to_mn_major(scales: NDArray[Any]) -> NDArray[Any]:
    """The flat memory that kernels read scales [MN, blocks] from: element (mn, kb) at ``mn + kb · scale_stride(MN)``.

    The scales of one K block are then one contiguous row, which a single TMA copy fetches. Gaps are zero.
    """
    mn, blocks = scales.shape
    stride = scale_stride(mn, scales.dtype.itemsize)
    memory = np.zeros((blocks, stride), scales.dtype)
    memory[:, :mn] = scales.T
    return memory.reshape(-1)


def from_mn_major(memory: NDArray[Any], mn: int) -> NDArray[Any]:
    """The scales [MN, blocks] of a flat MN-major memory. Raises ``ValueError`` when its length does not fit."""
    stride = scale_stride(mn, memory.dtype.itemsize)
    if memory.ndim != 1 or (memory.size % stride if stride else memory.size):
        raise ValueError(f"memory must be flat, a multiple of the stride {stride} long: its shape is {memory.shape}")
    return memory.reshape(-1, stride)[:, :mn].T.copy() if stride else np.zeros((0, 0), memory.dtype)


def pack_ue8m0(scales: NDArray[np.float32]) -> NDArray[np.int32]:
    """Power-of-two scales [MN, blocks] as int32 [MN, ceil(blocks/4)]: four exponents a word, low byte = lowest block.

    Missing blocks of the last word are 0. Raises ``ValueError`` for a scale that is not a positive power of two: the
    format would cut it to one, silently wrong by up to a factor of 2.
    """
    bits = np.ascontiguousarray(scales, np.float32).view(np.uint32)
    if (bits & np.uint32(0x807FFFFF)).any():
        raise ValueError("scales must be positive powers of two (sign and mantissa bits 0): quantise with power_of_two")
    mn, blocks = scales.shape
    exponents = np.zeros((mn, _blocks(blocks, 4) * 4), np.uint8)
    exponents[:, :blocks] = bits >> np.uint32(23)
    return exponents.view("<i4").astype(np.int32)


def unpack_ue8m0(words: NDArray[np.int32], blocks: int) -> NDArray[np.float32]:
    """The float32 scales [MN, blocks] of packed words [MN, ceil(blocks/4)]."""
    if words.ndim != 2 or words.shape[1] != _blocks(blocks, 4):
        raise ValueError(f"words must be [MN, {_blocks(blocks, 4)}] for {blocks} blocks: shape {list(words.shape)}")
    exponents = np.ascontiguousarray(words, "<i4").view(np.uint8)[:, :blocks]
    return np.asarray(fp8.decode_e8m0(exponents), np.float32)


def _blocks(length: int, size: int) -> int:
    return -(-length // size)


def _spread(scales: NDArray[Any], shape: tuple[int, ...], rows: int) -> NDArray[np.float64]:
    """One float64 scale for every value of a matrix of ``shape``."""
    wide = np.repeat(np.repeat(scales.astype(np.float64), rows, axis=0), BLOCK_K, axis=1)
    return np.asarray(wide[: shape[0], : shape[1]])


def _check_codes(codes: NDArray[Any], name: str) -> tuple[int, int]:
    if codes.dtype != np.uint8 or codes.ndim != 2:
        raise ValueError(f"{name}.codes must be a uint8 matrix: it is {codes.dtype} with shape {list(codes.shape)}")
    return codes.shape[0], codes.shape[1]


def _check_scales(codes: NDArray[Any], scales: NDArray[Any], rows: int, name: str) -> None:
    want = (_blocks(codes.shape[0], rows), _blocks(codes.shape[1], BLOCK_K))
    if scales.shape != want:
        hint = " Are the scales MN-major? Use from_mn_major first." if scales.ndim == 1 else ""
        raise ValueError(
            f"{name}.scales must have shape {list(want)}, one for {rows}×128 codes: it has {list(scales.shape)}.{hint}"
        )
