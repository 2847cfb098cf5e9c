"""The tensor core's arithmetic on numbers: one instruction, and a chain of them along K.

The sums are the emulator's, which give an H200's bits (docs/numerics.md): each instruction aligns its exact products
and the addend to the largest of them, cuts each toward zero (25 bits for bf16, 13 for FP8), adds, and cuts the sum.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlacademy import fp8

DEPTH = {"bf16": 16, "e4m3": 32}
"""How many elements of K one instruction takes: 32 bytes of each row."""
FRACTION_BITS = {"bf16": 25, "e4m3": 13}
"""Bits that a term keeps below the leading one of the largest term."""

Floats = NDArray[np.float32]


def multiply_add(a: Any, b: Any, c: Any = None, *, kind: str = "bf16", plain: bool = False) -> Floats:
    """One instruction: a [m, k] times b [n, k] transposed, plus c [m, n] if given; float32 [m, n].

    ``kind`` is ``bf16`` (k = 16) or ``e4m3`` (k = 32). ``plain`` sums in float32, in the order of k, instead.
    Raises ``ValueError`` where an element of a or b is not a number of that kind, or k is another.
    """
    left, right = _codes("a", a, kind), _codes("b", b, kind)
    addend = None if c is None else np.ascontiguousarray(c, np.float32).view(np.uint32)
    numerics = importlib.import_module("mlacademy._emulator").numerics
    bits: NDArray[np.uint32] = numerics.multiply_add("f32", kind, kind, left, right, addend, plain=plain)
    return bits.view(np.float32)


def accumulate(a: Any, b: Any, *, kind: str = "bf16", promote: int | None = None, plain: bool = False) -> Floats:
    """A chain of instructions along K: a [m, K] times b [n, K] transposed, float32 [m, n].

    ``promote`` is after how many elements of K the accumulator is added to a float32 sum (rounded to nearest) and
    started afresh; None keeps one accumulator for all of K. Raises ``ValueError`` where K or ``promote`` is no multiple
    of the instruction's depth.
    """
    a, b, step = np.asarray(a), np.asarray(b), DEPTH[kind]
    total = a.shape[1]
    every = promote or total
    if total % step or every % step:
        raise ValueError(f"K and promote must be multiples of {step} for {kind}, got {total} and {promote}")
    result = np.zeros((len(a), len(b)), np.float32)
    for begin in range(0, total, every):
        part = None
        for k in range(begin, min(begin + every, total), step):
            part = multiply_add(a[:, k : k + step], b[:, k : k + step], part, kind=kind, plain=plain)
        if part is not None:
            result = result + part
    return result


def _codes(name: str, values: Any, kind: str) -> NDArray[np.uint32]:
    if kind not in DEPTH:
        raise ValueError(f"kind must be one of {', '.join(DEPTH)}, got {kind!r}")
    numbers = np.ascontiguousarray(values, np.float32)
    if numbers.ndim != 2 or numbers.shape[1] != DEPTH[kind]:
        raise ValueError(f"{name} must be [rows, {DEPTH[kind]}] for {kind}, got {list(numbers.shape)}")
    if kind == "bf16":
        codes, back = numbers.view(np.uint32) >> 16, fp8.round_bf16(numbers)
    else:
        codes = fp8.encode_e4m3(numbers)
        back = fp8.decode_e4m3(codes)
    wrong = ~((back == numbers) | np.isnan(numbers))
    if wrong.any():
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise ValueError(f"{name} must hold {kind} numbers: {name}{list(where)} is {numbers[where]}. Round it first.")
    return codes.astype(np.uint32)
