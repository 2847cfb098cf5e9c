"""Exercise 09.2: rows of the FP8 cache to a swizzled tile of bf16."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlacademy import fp8
from mlacademy.gpu import LaunchPlan
from mlacademy.grading import Case, CudaExercise, Exact, KernelMistake, Launch, Out, Sign
from mlacademy.grading.judges.kernel_shared import never_written

Bytes = NDArray[np.uint8]
Slots = NDArray[np.int32]
Tile = NDArray[np.float32]
TOKENS, CODES, ROPE, ROW_BYTES, SCALES_AT, ROPE_AT = 32, 512, 64, 656, 512, 528


def _cache(rng: np.random.Generator, rows: int) -> Bytes:
    """Rows of random finite codes, power-of-two scales and RoPE values."""
    cache = np.zeros((rows, ROW_BYTES), np.uint8)
    codes = rng.integers(0, 256, (rows, CODES)).astype(np.uint8)
    cache[:, :CODES] = np.where(codes & 0x7F == 0x7F, 0x38, codes)
    scales = np.exp2(rng.permuted(np.tile(np.arange(-13, -5), (rows, 1)), axis=1)[:, :4]).astype(np.float32)
    cache[:, SCALES_AT:ROPE_AT] = scales.view(np.uint8)
    rope = fp8.round_bf16(rng.standard_normal((rows, ROPE)).astype(np.float32))
    cache[:, ROPE_AT:] = (rope.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    return cache


def _cases(rng: np.random.Generator, hidden: bool) -> Iterator[Case]:
    axes = (("token", "dimension"),)
    rows = 40 if not hidden else 57
    cache = _cache(rng, rows)
    slots = rng.permutation(rows)[:TOKENS].astype(np.int32)
    yield Case({"cache": cache, "slots": slots}, "no holes", axes)
    holes = slots.copy()
    holes[rng.permutation(TOKENS)[:5]] = -1
    yield Case({"cache": cache, "slots": holes}, "some holes", axes)
    if hidden:
        yield Case({"cache": cache, "slots": np.full(TOKENS, -1, np.int32)}, "only holes", axes)


def _launch(cache: Bytes, slots: Slots) -> Launch:
    return Launch(LaunchPlan(grid=1, block=128), (cache, slots, Out((TOKENS, CODES + ROPE))))


def _parts(cache: Bytes, slots: Slots) -> tuple[Tile, Tile, Tile]:
    """Codes' values [32, 512], scales [32, 4] and RoPE [32, 64] of the rows that the slots name."""
    rows = cache[np.maximum(slots, 0)]
    codes = np.asarray(fp8.decode_e4m3(rows[:, :CODES]), np.float32)
    scales = np.ascontiguousarray(rows[:, SCALES_AT:ROPE_AT]).view(np.float32)
    rope = np.ascontiguousarray(rows[:, ROPE_AT:]).view(np.uint16).astype(np.uint32) << 16
    return codes, scales, rope.view(np.float32)


def _values(cache: Bytes, slots: Slots) -> Tile:
    codes, scales, rope = _parts(cache, slots)
    values = np.concatenate([codes * np.repeat(scales, 128, axis=1), rope], axis=1)
    return np.where(slots[:, None] < 0, np.float32(0), values)


def _pieces(values: Tile) -> Tile:
    return values.reshape(TOKENS, 9, 8, 8)


def _swizzled_by(place: Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]) -> Callable[..., Tile]:
    """The result where piece j of a token's column block was put at ``place(j, token)`` and read by the right rule."""

    def model(cache: Bytes, slots: Slots) -> Tile:
        right = _pieces(_values(cache, slots))
        token, j = np.meshgrid(np.arange(TOKENS), np.arange(8), indexing="ij")
        stored = np.full_like(right, np.nan)
        stored[token, :, place(j, token)] = right[token, :, j]
        return stored[token, :, j ^ token % 8].transpose(0, 2, 1, 3).reshape(TOKENS, -1)

    return model


def _as(mistake: str) -> Callable[..., Tile]:
    """The right values but for one mistake."""

    def model(cache: Bytes, slots: Slots) -> Tile:
        codes, scales, rope = _parts(cache, slots)
        spread = np.repeat(scales, 128, axis=1)
        if mistake == "one scale":
            spread = np.repeat(scales[:, :1], CODES, axis=1)
        if mistake == "scales in turn":
            spread = np.tile(np.repeat(scales, 16, axis=1), (1, 8))
        if mistake == "reversed":
            codes = codes.reshape(TOKENS, -1, 4)[..., ::-1].reshape(TOKENS, CODES)
        scaled = codes / spread if mistake == "divides" else codes if mistake == "unscaled" else codes * spread
        if mistake == "scaled rope":
            rope = fp8.round_bf16(rope * scales[:, 3:])
        hole = 0 if mistake != "holes" else np.concatenate([scaled, rope], axis=1)
        values = np.concatenate([np.asarray(fp8.round_bf16(scaled), np.float32), rope], axis=1)
        return np.where(slots[:, None] < 0, hole, values).astype(np.float32)

    return model


_SWIZZLE_HINTS = (
    "Which tokens come out right? What have they in common?",
    "Piece j of a token's column block goes to place j ⊕ (token mod 8). A place is 8 values, 16 bytes.",
    "&tile[c][token][8 * (j ^ token % 8)], with j = 0 to 7.",
)
_SCALE_HINTS = (
    "How many codes share a scale, and how many column blocks is that?",
    "128 codes are two column blocks: blocks 0 and 1 have scale 0, blocks 2 and 3 scale 1.",
    "scales[c / 2] for column block c.",
)

CONVERT_ROWS = CudaExercise(
    id="09.2",
    title="From cache rows to a swizzled tile",
    entry="convert_rows",
    points=4,
    lines=20,
    parameters=("cache", "slots"),
    outputs=("out",),
    cases=_cases,
    reference=_values,
    compare=Exact(),
    launch=_launch,
    misconceptions=(
        KernelMistake(
            "reads a hole",
            "A hole has no row: your kernel reads from a null pointer.",
            (
                "What is row for a token whose slot is -1?",
                "A hole is a row of zeros, and zeros must be stored, for its place in the tile holds old bytes.",
                "if (row) … else zeros; the put comes in both cases.",
            ),
            signs=(Sign("bounds", text=r"\breads?\b|\bload"), Sign("bounds", text="global")),
        ),
        KernelMistake(
            "misaligned",
            "An access of 16 bytes needs an address that is a multiple of 16. A piece is 16 bytes of shared memory, "
            "and 8 codes are only 8 bytes of the row.",
            (
                "Which of your addresses is a multiple of 8 only?",
                "16 codes are one load of 16 bytes and two pieces of 8 bf16 values.",
                "Load at row + 64 * c + 16 * part; put pieces 2 * part and 2 * part + 1.",
            ),
            signs=(Sign("alignment"),),
        ),
        KernelMistake(
            "not everything",
            "Parts of the tile have never been written: some codes, the RoPE values, or the rows of holes.",
            (
                "How many pieces of 16 bytes has a token, and how many does each of its four threads put?",
                "72 pieces a token: 64 of converted codes, 8 of RoPE. 18 a thread, for holes too.",
                "Eight column blocks with two pieces each, and two pieces of column block 8.",
            ),
            signs=(Sign("uninitialized", when=never_written), Sign("uninitialized", object="^tile")),
        ),
        KernelMistake(
            "outside",
            "A store goes beyond the tile: it has 9 column blocks of 32 tokens, 64 values each.",
            (
                "What is the largest index in each of the three dimensions?",
                "Column block 0 to 8, token 0 to 31, places 0 to 7 of 8 values.",
                "&tile[c][token][8 * place], place = j ^ token % 8.",
            ),
            signs=(Sign("bounds"),),
        ),
        KernelMistake(
            "no swizzle",
            "Your pieces lie in order. In a row of swizzle 128B piece j lies at place j ⊕ (token mod 8).",
            _SWIZZLE_HINTS,
            model=_swizzled_by(lambda j, token: j + 0 * token),
        ),
        KernelMistake(
            "swizzle 64B",
            "Your swizzle permutes within four pieces. Rows of 128 bytes have eight, and take token mod 8.",
            _SWIZZLE_HINTS,
            model=_swizzled_by(lambda j, token: j ^ token % 4),
        ),
        KernelMistake(
            "rotates",
            "You rotated the pieces by the row: (j + token) mod 8. The swizzle is an exclusive or.",
            _SWIZZLE_HINTS,
            model=_swizzled_by(lambda j, token: (j + token) % 8),
        ),
        KernelMistake(
            "other swizzle",
            "You divided the token by eight where the swizzle takes the remainder.",
            _SWIZZLE_HINTS,
            model=_swizzled_by(lambda j, token: j ^ token // 8),
        ),
        KernelMistake(
            "one scale",
            "Every code was multiplied by the first scale. A token has four, one for 128 codes.",
            _SCALE_HINTS,
            model=_as("one scale"),
        ),
        KernelMistake(
            "scales in turn",
            "You chose the scale by the thread or the run of 16 codes. It belongs to 128 neighbouring codes.",
            _SCALE_HINTS,
            model=_as("scales in turn"),
        ),
        KernelMistake(
            "divides",
            "You divided by the scale. The writer divided; a reader multiplies.",
            (
                "What is the scale of the cache, the divisor or the multiplier?",
                "value = code · scale.",
                "e4m3(code) * scales[c / 2].",
            ),
            model=_as("divides"),
        ),
        KernelMistake(
            "unscaled",
            "The codes are decoded but not scaled.",
            (
                "What are the 16 bytes at 512 for?",
                "value = code · scale, with the scale of the code's 128.",
                "e4m3(code) * scales[c / 2].",
            ),
            model=_as("unscaled"),
        ),
        KernelMistake(
            "reversed",
            "In each group of four the codes come out in reverse. The first code is the lowest byte of a word.",
            (
                "Which byte of a 32-bit word has the lowest address?",
                "The GPU is little-endian: code i of a word is word >> 8 * i & 0xFF.",
                "word >> 8 * i, not word >> 24 - 8 * i.",
            ),
            model=_as("reversed"),
        ),
        KernelMistake(
            "scaled rope",
            "You scaled the RoPE values. They are bf16 already and lie in the cache as they are.",
            (
                "Which part of the row is quantised?",
                "The 512 codes are; the 64 values behind the scales are not.",
                "Copy the RoPE pieces, 16 bytes each.",
            ),
            model=_as("scaled rope"),
        ),
        KernelMistake(
            "holes",
            "A hole came out as the row of slot 0. It is a row of zeros.",
            (
                "What do your threads store for a token whose row is null?",
                "Reading slot 0 instead is fine, as long as zeros are stored.",
                "Multiply nothing: store zeros where row is null.",
            ),
            model=_as("holes"),
        ),
    ),
    hints=(
        "Thread part takes codes 64c + 16 part to 64c + 16 part + 15 of each column block c: two pieces of 8 values.",
        "Those are pieces 2 part and 2 part + 1 of column block c, at places j ⊕ (token mod 8); their scale is number "
        "c / 2.",
        "for c in 0 … 7: 16 codes, times scales[c / 2], two puts at &tile[c][token][8 * (j ^ token % 8)]; then RoPE "
        "pieces part and part + 4 of block 8.",
    ),
)
