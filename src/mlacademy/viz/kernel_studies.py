"""The studies of the kernel chapters: swizzle map, register fragments and what binds a decode, under sliders."""

from __future__ import annotations

from typing import Any

from mlacademy import gpus, measured, roofline
from mlacademy.gpu.fragments import fragment
from mlacademy.gpu.shared_memory import CHUNK_BYTES, SWIZZLES
from mlacademy.viz.decode_bounds import decode_bounds
from mlacademy.viz.fragment_grid import fragment_map
from mlacademy.viz.picture import Picture
from mlacademy.viz.study import Choice, Settings, Slider, Stops, Study, show
from mlacademy.viz.swizzle_tile import swizzle_map


def explore_swizzle() -> Any:
    """Swizzle map under sliders: mode, row width, rows, the column that is read, where the tile starts."""
    return show(SWIZZLE)


def explore_fragment() -> Any:
    """Fragment map under sliders: operand and type, N, thread, window of columns."""
    return show(FRAGMENT)


def explore_decode_bounds() -> Any:
    """What binds a sparse decode under sliders: batch, heads, list, card, cycles of the conversion."""
    return show(BOUNDS)


SWIZZLE = Study(
    swizzle_map,
    (
        Choice("mode", "swizzle", "128B", {"none": "none"} | {name: name for name in SWIZZLES if name != "none"}),
        Slider("row_bytes", "bytes a row", 128, 16, 256, 16),
        Slider("column", "chunk column", 2, 0, 7),
        Slider("rows", "rows", 8, 1, 32),
        Slider("base", "starts at byte", 0, 0, 1024, 16),
    ),
    presets={
        "128-byte rows (64 bf16), swizzle 128B": {},
        "the same rows without swizzle": {"mode": "none"},
        "64-byte rows, swizzle 64B": {"mode": "64B", "row_bytes": 64},
        "32-byte rows, swizzle 32B": {"mode": "32B", "row_bytes": 32, "column": 1},
        "chunks of 32 bytes stay together: 128B_ATOM_32B": {"mode": "128B_ATOM_32B"},
        "padding instead of a swizzle: rows of 144 bytes": {"mode": "none", "row_bytes": 144},
        "a tile that starts inside the pattern": {"base": 384},
    },
    limits=lambda settings: {"column": settings["row_bytes"] // CHUNK_BYTES - 1},
)

OPERANDS = {
    "D, f32 or s32": "D f32",
    "D, f16": "D f16",
    "A, bf16 or f16": "A bf16",
    "A, 8-bit": "A e4m3",
    "A, tf32": "A tf32",
}


def draw_fragment(*, kind: str, n: int, thread: int, first_column: int) -> Picture:
    """Draw the fragment of an operand and type named as in `OPERANDS`."""
    operand, dtype = kind.split()
    return fragment_map(operand, dtype=dtype, n=n, thread=thread, first_column=first_column)


def _last_window(settings: Settings) -> dict[str, int]:
    operand, dtype = settings["kind"].split()
    return {"first_column": fragment(operand, dtype, settings["n"]).columns - 8}


FRAGMENT = Study(
    draw_fragment,
    (
        Choice("kind", "operand", "D f32", OPERANDS),
        Slider("thread", "thread", 37, 0, 127),
        Stops("n", "N of D", 64, tuple(range(8, 257, 8))),
        Slider("first_column", "first column", 0, 0, 56, 8),
    ),
    presets={
        "D 64 × 64, f32": {},
        "D 64 × 256, f32: 128 registers a thread": {"n": 256},
        "A 64 × 16, bf16: the same lanes as D": {"kind": "A bf16"},
        "A 64 × 32, FP8: four bytes a register": {"kind": "A e4m3"},
        "A 64 × 8, tf32": {"kind": "A tf32"},
    },
    limits=_last_window,
)

CARDS = {"H200, as measured": roofline.H200} | {
    f"{card.name}, data sheet": roofline.Machine.of(card) for card in (gpus.H800, gpus.H200, gpus.H20)
}


def draw_bounds(*, b: int, h_q: int, s_q: int, topk: int, card: str, convert_cycles: int) -> Picture:
    """Draw the bounds of a call, with the times that were measured for it, if any."""
    shape, machine = roofline.Shape(b, h_q, s_q, topk), CARDS[card]
    times = _kept_times(shape) if machine is roofline.H200 else {}
    return decode_bounds(shape, machine, convert_cycles=convert_cycles, measured_us=times)


def _kept_times(shape: roofline.Shape) -> dict[str, float]:
    try:
        rows = measured.kept().rows
    except FileNotFoundError:  # an installation without the benchmarks' results
        return {}
    for row in rows:
        if row.case == shape.case:
            return {"ours": row.ours_us} | ({} if row.peer_us is None else {"FlashMLA": row.peer_us})
    return {}


BOUNDS = Study(
    draw_bounds,
    (
        Stops("b", "requests", 128, (1, 2, 4, 8, 16, 32, 48, 64, 66, 67, 96, 128, 192, 256, 512)),
        Stops("h_q", "query heads", 128, (16, 32, 64, 128)),
        Slider("s_q", "query tokens", 1, 1, 4),
        Stops("topk", "slots a list", 2048, (64, 128, 256, 512, 1024, 2048, 4096)),
        Slider("convert_cycles", "cycles/token", roofline.OURS, 5, 100),
        Choice("card", "card", "H200, as measured", {name: name for name in CARDS}),
    ),
    presets={
        "a full batch, 128 heads": {},
        "a full batch, 64 heads": {"h_q": 64},
        "a full batch, 16 heads": {"h_q": 16},
        "the running example": {"b": 2, "topk": 128},
        "one request": {"b": 1},
        "64 heads, FlashMLA's conversion": {"h_q": 64, "convert_cycles": roofline.FLASHMLA},
        "H20": {"card": "H20, data sheet"},
    },
)
