"""Exercise 02.3: the scales of tiles by the rule of the V3.2 cache, and the values divided by them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlacademy.fp8 import TileRule
from mlacademy.grading.compare import Exact
from mlacademy.grading.exercise import Case, Exercise, Misconception

Floats = NDArray[np.float32]
Result = tuple[NDArray[Any], NDArray[Any]]


def _reference(x: Floats, tile: int) -> Result:
    amax = np.abs(x).reshape(len(x), -1, tile).max(axis=2)
    scales = TileRule("exercise", tile, "float32", min_scale=1e-4).scale(amax)
    return scales, x / np.repeat(scales, tile, axis=1)


def _rows(*rows: list[float]) -> Floats:
    return np.array(rows, dtype=np.float32)


def _cases(rng: np.random.Generator, hidden: bool) -> Iterable[Case]:
    axes = (("row", "tile"), ("row", "element"))
    above = float(np.nextafter(np.float32(0.875), np.float32(1)))
    fixed = [
        (_rows([0.25, -0.5, 0.125, 0.75]), 4, "the chapter's values"),
        (_rows([1.0, 2.0, 3.0, 4.0, 3.0, 200.0, 5.0, 448.0]), 4, "two tiles of one row"),
        (_rows([0.5, -6.0], [70.0, -0.5]), 2, "a negative value is the largest"),
        (_rows([0.875, 0.1, 3.5, 0.1]), 2, "amax is 448 times a power of two"),
        (_rows([above, 0.1]), 2, "amax is one step above 448 times a power of two"),
        (_rows([0.03, -0.01, 1e-6, 2e-7]), 2, "tiles of small values"),
        (_rows([0.0, 0.0, 5.0, 0.0]), 2, "a tile of zeros"),
    ]
    for x, tile, label in [] if hidden else fixed:
        yield Case({"x": x, "tile": tile}, label=label, axes=axes)
    if not hidden:
        return
    for tile, tiles in ((128, 4), (64, 7), (16, 3)):
        sizes = 2.0 ** rng.integers(-18, 12, (6, tiles, 1))
        x = (rng.normal(size=(6, tiles, tile)) * sizes).astype(np.float32).reshape(6, -1)
        yield Case({"x": x, "tile": tile}, label="rows of many tiles", axes=axes)
    for step in (-np.inf, np.inf):
        edges = np.float32(448) * np.float32(2.0) ** np.arange(-14, 10, dtype=np.float32)
        x = rng.uniform(-0.01, 0.01, (24, 4)).astype(np.float32)
        x[:, 1] = -np.nextafter(edges, np.float32(step))
        yield Case({"x": x, "tile": 4}, label="amax next to 448 times a power of two", axes=axes)


def _as(mistake: str) -> Callable[[Floats, int], Result]:
    """The right result but for one mistake."""

    def power_up(m: NDArray[Any]) -> NDArray[Any]:
        fraction, exponent = np.frexp(m)
        power: NDArray[Any] = np.ldexp(1.0, exponent - (fraction == 0.5))
        return power

    def model(x: Floats, tile: int) -> Result:
        tiles = x.reshape(len(x), -1, tile)
        amax = (tiles if mistake == "signed" else np.abs(tiles)).max(axis=2)
        if mistake == "row":
            amax = np.broadcast_to(np.abs(x).max(axis=1, keepdims=True), amax.shape)
        if mistake == "column":
            amax = np.broadcast_to(amax.max(axis=0), amax.shape)
        if mistake == "strided":
            tiles = x.reshape(len(x), tile, -1).swapaxes(1, 2)
            amax = np.abs(tiles).max(axis=2)
        m = np.maximum(amax.astype(np.float64) / 448, 1e-4)
        if mistake == "adds":
            m = amax.astype(np.float64) / 448 + 1e-4
        with np.errstate(all="ignore"):
            if mistake == "no clamp":
                scales = 2.0 ** np.ceil(np.log2(amax.astype(np.float64) / 448))
            elif mistake == "clamps amax":
                scales = power_up(np.maximum(amax.astype(np.float64), 1e-4) / 448)
            elif mistake == "clamps last":
                scales = np.maximum(2.0 ** np.ceil(np.log2(amax.astype(np.float64) / 448)), 1e-4)
            elif mistake == "no power":
                scales = m
            elif mistake == "down":
                scales = 2.0 ** np.floor(np.log2(m))
            elif mistake == "always up":
                scales = 2.0 ** (np.floor(np.log2(m)) + 1)
            elif mistake == "nearest":
                scales = 2.0 ** np.round(np.log2(m))
            elif mistake == "log2":
                scales = np.float32(2) ** np.ceil(np.log2(np.maximum(amax / np.float32(448), np.float32(1e-4))))
            else:
                scales = power_up(m)
            if mistake == "reciprocal":
                return 1 / scales, x / np.repeat(scales, tile, axis=1)
            scales = scales.astype(np.float32)
            spread = np.repeat(scales, tile, axis=1)
            if mistake in ("np.tile", "strided"):
                spread = np.tile(scales, (1, tile))
            if mistake == "exponents":
                return np.log2(scales), x / spread
            scaled = x * spread if mistake == "multiplies" else x / spread
            return scales, np.rint(scaled) if mistake == "rounds" else scaled

    return model


_ROUND_HINTS = (
    "Which power of two is allowed? Divide the largest value of the tile by your scale and compare with 448.",
    "The scale is the smallest power of two that is not below m. If m is a power of two itself, it is m.",
    "fraction, exponent = np.frexp(m) gives m = fraction · 2^exponent with 0.5 <= fraction < 1. The power is "
    "2^exponent, or 2^(exponent - 1) where fraction is exactly 0.5.",
)
_CLAMP_HINTS = (
    "What is the smallest scale that the cache allows, and which tiles get it?",
    "The clamp acts on m = amax / 448, before m is rounded up to a power of two.",
    "m = np.maximum(amax / 448, 1e-4); then round m up. The smallest scale is then 2^-13.",
)

TILE_SCALES = Exercise(
    id="02.3",
    title="Scales of tiles",
    entry="tile_scales",
    points=3,
    lines=8,
    parameters=("x", "tile"),
    outputs=("scales", "scaled"),
    cases=_cases,
    reference=_reference,
    compare=Exact(),
    misconceptions=(  # the rarer mistakes first: a grosser one may look the same on the cases that fail
        Misconception(
            "reciprocal",
            "You returned the reciprocals of the scales. What is stored is the multiplier at read time: value = code · "
            "scale.",
            (
                "A reader multiplies. What must it multiply 384 by, to get 0.75 back?",
                "Values are divided by the scale when they are written, and multiplied by it when they are read.",
                "scale = 2^ceil(log2 m), without 1 / … in front.",
            ),
            _as("reciprocal"),
        ),
        Misconception(
            "multiplies",
            "Your scales are right, but you multiplied by them. The writer divides, so that the reader can multiply.",
            (
                "After scaling, the largest value of a tile should lie between 224 and 448 (unless the clamp acts).",
                "scaled = x / scale, with the scale of the element's own tile.",
                "scaled = x / np.repeat(scales, tile, axis=1)",
            ),
            _as("multiplies"),
        ),
        Misconception(
            "exponents",
            "You returned the exponents. A scale is the power of two itself, 2^-9 and not -9.",
            (
                "A reader multiplies by the scale. What would 384 · -9 be?",
                "The scale is 2 to that exponent.",
                "scales = np.ldexp(1.0, exponent), or 2.0 ** exponent",
            ),
            _as("exponents"),
        ),
        Misconception(
            "np.tile",
            "Your scales are right, but most elements were divided by the scale of another tile.",
            (
                "Print the scales after you spread them over the row: which element gets which?",
                "np.tile repeats the whole row of scales, s0 s1 s0 s1; neighbours need s0 s0 s1 s1.",
                "np.repeat(scales, tile, axis=1), or tiles / scales[..., None] with the tiles on an axis of their own.",
            ),
            _as("np.tile"),
        ),
        Misconception(
            "rounds",
            "You rounded the quotients to integers. Encoding is the next step; return them as they are.",
            (
                "Which values between 1 and 2 does E4M3 have? Would an integer be right?",
                "Rounding happens once, when the code is made. This exercise stops before that.",
                "scaled = x / np.repeat(scales, tile, axis=1), without np.round",
            ),
            _as("rounds"),
        ),
        Misconception(
            "always up",
            "You always went to the next larger power of two. Where m is a power of two itself, it is the scale.",
            _ROUND_HINTS,
            _as("always up"),
        ),
        Misconception(
            "adds",
            "You added 1e-4 to m. The clamp is a maximum: it changes m only where m is smaller.",
            _CLAMP_HINTS,
            _as("adds"),
        ),
        Misconception(
            "clamps amax",
            "You clamped amax to 1e-4. That is DeepGEMM's rule, which reaches down to 2^-22; the cache clamps amax / "
            "448.",
            _CLAMP_HINTS,
            _as("clamps amax"),
        ),
        Misconception(
            "clamps last",
            "You clamped after rounding up, so small tiles get the scale 0.0001, which is no power of two.",
            _CLAMP_HINTS,
            _as("clamps last"),
        ),
        Misconception(
            "no clamp",
            "You left out the clamp: m must be at least 1e-4. A tile of zeros would be divided by zero.",
            _CLAMP_HINTS,
            _as("no clamp"),
        ),
        Misconception(
            "no power",
            "Your scales are not powers of two. Hopper would read them rounded, and Blackwell cut to a smaller power "
            "of two, off by up to a factor of 2.",
            _ROUND_HINTS,
            _as("no power"),
        ),
        Misconception(
            "log2",
            "log2 in float32 is too coarse next to a power of two: it rounded away the last bit of m, so ceil did not "
            "go up, and a value just above 448 would be cut off.",
            (
                "Look at the one case that fails: m is one float32 step above a power of two. What does np.log2(m) "
                "print?",
                "Do not ask a logarithm for an exponent; the float carries it in its bits. NumPy's frexp reads them.",
                _ROUND_HINTS[2],
            ),
            _as("log2"),
        ),
        Misconception(
            "nearest",
            "You rounded log2(m) to the nearest integer. Where that goes down, the largest value of the tile exceeds "
            "448.",
            _ROUND_HINTS,
            _as("nearest"),
        ),
        Misconception(
            "down",
            "You rounded m down to a power of two: the largest value of the tile then exceeds 448 and would be cut "
            "off.",
            _ROUND_HINTS,
            _as("down"),
        ),
        Misconception(
            "signed",
            "You took the largest value, not the largest magnitude: a large negative value was overlooked.",
            (
                "What is amax of a tile whose values are all negative?",
                "amax is the largest absolute value.",
                "np.abs(…) before .max(…)",
            ),
            _as("signed"),
        ),
        Misconception(
            "strided",
            "Your tiles take values at a distance from each other. A tile is a run of neighbours.",
            (
                "Reshape np.arange(8) the way you reshape a row, and look at which numbers share a tile.",
                "The last axis of the reshaped array must have the length tile: those are the neighbours.",
                "x.reshape(n, d // tile, tile), not (n, tile, d // tile)",
            ),
            _as("strided"),
        ),
        Misconception(
            "column",
            "You took the maximum over the rows as well. Rows are different tokens; each has its own scales.",
            (
                "How many scales do n rows of d values have?",
                "The maximum runs over the last axis of [n, d // tile, tile] and over no other.",
                "np.abs(x.reshape(n, d // tile, tile)).max(axis=2)",
            ),
            _as("column"),
        ),
        Misconception(
            "row",
            "You used one scale for the whole row. Each tile has its own.",
            (
                "How many scales does a row of d values have?",
                "Give the tiles an axis of their own, and take the maximum over the last axis.",
                "x.reshape(n, d // tile, tile)",
            ),
            _as("row"),
        ),
    ),
    hints=(
        "Reshape x so that a tile is an axis of its own. Then three steps: amax, m with its clamp, and the power of "
        "two.",
        "m = max(amax / 448, 1e-4). The scale is the smallest power of two that is at least m. Spread the scales back "
        "over the elements to divide.",
        "fraction, exponent = np.frexp(m); scales = np.ldexp(1.0, exponent - (fraction == 0.5)); scaled = x / "
        "np.repeat(scales, tile, axis=1).",
    ),
    forbids=("mlacademy.fp8", "mlacademy.cache", "mlacademy._core"),
)
