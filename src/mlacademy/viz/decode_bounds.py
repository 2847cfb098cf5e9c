"""What binds a sparse decode: the least time of each part of the GPU, side by side, and what was measured."""

from __future__ import annotations

from collections.abc import Mapping

from mlacademy.roofline import H200, OURS, Machine, Roofline, Shape, roofline
from mlacademy.viz.canvas import WIDTH, Canvas
from mlacademy.viz.numbers import short
from mlacademy.viz.picture import Picture
from mlacademy.viz.theme import ORANGE, TEAL

LEFT, RIGHT, ROW, GAP = 150.0, WIDTH - 96, 24.0, 8.0
WHAT = {
    "memory": "rows of the cache, at copy bandwidth",
    "tensor cores": "both products",
    "conversion": "FP8 to bfloat16 on the CUDA cores",
    "shared memory": "stores and operands, 128 bytes a cycle",
}


def decode_bounds(
    shape: Shape,
    machine: Machine = H200,
    *,
    convert_cycles: float = OURS,
    measured_us: Mapping[str, float] | None = None,
) -> Picture:
    """Draw the least times of one call.

    Args:
        shape, machine, convert_cycles: as `roofline.roofline`.
        measured_us: whose kernel -> microseconds a call, drawn below for comparison.
    """
    bounds = roofline(shape, machine, convert_cycles=convert_cycles)
    measured = dict(measured_us or {})
    longest = max(1e6 * bounds.floor, *measured.values(), 1e-9)
    canvas = Canvas()
    title = f"What binds: {shape.h_q} heads, batch {shape.b:,}, {shape.topk:,} slots" + (
        f", {shape.s_q} query tokens" if shape.s_q > 1 else ""
    )
    summary = (
        f"At least {short(1e6 * bounds.floor, 3)} µs on {machine.name}, set by {bounds.binding}; "
        f"{bounds.blocks:,} block{'s' if bounds.blocks > 1 else ''} on the busiest partition."
    )
    canvas.text(0, 16, title, size=14, bold=True)
    canvas.text(0, 35, summary, dim=True)
    y = 58.0
    for part, seconds in bounds.seconds.items():
        binds = part == bounds.binding
        _row(canvas, y, part, 1e6 * seconds, longest, colour=ORANGE if binds else TEAL, strong=binds)
        y += ROW + GAP
    for name, time in measured.items():
        _row(canvas, y, name, time, longest, hatch=canvas.hatch(f"measured-{name}"))
        y += ROW + GAP
    canvas.height = y + 4
    return canvas.picture(title=title, summary=summary, text=_twin(bounds, measured))


def _row(
    canvas: Canvas,
    y: float,
    name: str,
    time: float,
    longest: float,
    *,
    colour: str | None = None,
    strong: bool = False,
    hatch: str | None = None,
) -> None:
    middle = y + ROW / 2 + 4
    length = (RIGHT - LEFT) * time / longest
    detail = f"{name}: {short(time, 3)} µs" + (f", {WHAT[name]}" if name in WHAT else ", measured")
    canvas.text(0, middle, name, bold=strong)
    canvas.rect(LEFT, y, RIGHT - LEFT, ROW, tint=0.05, radius=2)
    if colour is not None:
        canvas.rect(LEFT, y, length, ROW, fill=colour, tint=0.85 if strong else 0.6, radius=2, detail=detail)
    else:
        canvas.rect(LEFT, y, length, ROW, fill=hatch or "none", stroke="currentColor", radius=2, detail=detail)
    canvas.text(RIGHT + 8, middle, f"{short(time, 3)} µs", bold=strong)


def _twin(bounds: Roofline, measured: Mapping[str, float]) -> str:
    lines = [
        f"{part:<14} {1e6 * seconds:8.2f} µs  {WHAT[part]}{'  <- binds' if part == bounds.binding else ''}"
        for part, seconds in bounds.seconds.items()
    ]
    lines += [
        f"{name:<14} {time:8.2f} µs  measured: {time / (1e6 * bounds.floor):.2f} times the bound"
        for name, time in measured.items()
    ]
    return "\n".join(lines)
