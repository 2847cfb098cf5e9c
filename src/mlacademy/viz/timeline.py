"""The timeline of a traced run: warps, asynchronous operations, barriers and buffers over modelled cycles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlacademy.viz.canvas import WIDTH, Canvas
from mlacademy.viz.numbers import tenths
from mlacademy.viz.picture import Picture
from mlacademy.viz.theme import INK, PINK
from mlacademy.viz.timeline_facts import observers
from mlacademy.viz.timeline_keys import KEY_NAMES, KEYS
from mlacademy.viz.timeline_lanes import SECTIONS, Bars, Lane, choose, lanes_of
from mlacademy.viz.timeline_merge import fitting
from mlacademy.viz.timeline_rows import GAP, HEIGHTS, PLOT_WIDTH, Rows, lane_height
from mlacademy.viz.timeline_text import summary, twin

MOST_LANES, MOST_SHAPES, MOST_LINKS = 48, 3600, 120


@dataclass(frozen=True)
class Run:
    """A trace, and what ended the run where it died: the words for the marker."""

    trace: Any
    died: str = ""


def run_of(given: Any, error: BaseException | None = None) -> Run:
    """Take a trace, a launch report with one, or the error of a traced launch; raise `TypeError` for anything else."""
    if isinstance(given, Run):
        return given
    if isinstance(given, BaseException):
        error = given
    trace = given if hasattr(given, "spans") else getattr(given, "trace", None)
    if trace is None or not hasattr(trace, "spans"):
        raise TypeError(
            f"trace must be the trace of a launch, its report or its error: it is {type(given).__name__}. "
            "Was the launch made with trace=True?"
        )
    cause = error if error is not None else getattr(trace, "error", None)
    return Run(trace, "" if cause is None else describe_end(cause))


def describe_end(cause: Any) -> str:
    """Return the name under which a death is marked: the report's rule, or the error's first sentence."""
    rule = getattr(cause, "rule", "")
    return str(rule) if rule else str(cause).split("\n")[0].rstrip(".")


def timeline(
    trace: Any,
    *,
    cta: int | Sequence[int] | None = None,
    role: str | Sequence[str] | None = None,
    barrier: str | Sequence[str] | None = None,
    buffer: str | Sequence[str] | None = None,
    start: float | None = None,
    stop: float | None = None,
    error: BaseException | None = None,
    title: str | None = None,
) -> Picture:
    """Draw a traced run: one row a warp, then its asynchronous operations, barriers and buffers, over modelled cycles.

    A warp's row shows what kind of instructions it runs and, hatched, when it waits. An operation's bar goes from its
    issue to its completion; a thin line leads from there to the wait that saw it. A barrier's row alternates with its
    phases; the steps in it are arrivals still due and bytes still owed. Bars too narrow to see are drawn together.

    Args:
        trace: from a launch with `trace=True`; its report, or the error that ended it, will do.
        cta: CTAs by number; default: all, as far as 48 rows go.
        role: warps of these roles ("warp 3" where a kernel names none) and the operations that they issued.
        barrier, buffer: only these rows and those connected with them by an operation; other spans turn grey.
        start, stop: the cycles to show; default: the whole run.
        error: what ended the run, marked at its end; taken from `trace` where that carries it.

    Raises:
        TypeError: something that holds no trace.
        ValueError: a CTA, role, barrier or buffer that the run has not; an empty stretch of cycles.
    """
    run = run_of(trace, error)
    chosen = choose(run.trace, cta, role, barrier, buffer)
    low, high = window_of(run.trace, start, stop)
    lanes = lanes_of(run.trace, chosen, MOST_LANES)
    ctas = list(dict.fromkeys(lane.cta for lane in lanes))
    heading = title or heading_of(run.trace)
    if (low, high) != window_of(run.trace, None, None):
        heading += "" if title else f", {tenths(low)} to {tenths(high)}"
    line = summary(run.trace, ctas, run.died)
    canvas = Canvas()
    canvas.text(0, 16, heading, size=14, bold=True)
    parts = _wrapped(line)
    for index, part in enumerate(parts):
        canvas.text(0, 35 + 16 * index, part, dim=True)
    bars = fitting(lanes, low, high, PLOT_WIDTH, MOST_SHAPES)
    rows = Rows(canvas, low, high, canvas.hatch("wait", spacing=4, opacity=0.5))
    top = _legend(canvas, bars, lanes, rows.hatch, 55.0 + 16 * (len(parts) - 1)) + 22
    places, bottom = _places(lanes, top + 12)
    _axis(rows, top, bottom)
    _headings(canvas, lanes, places, several=len(ctas) > 1)
    for lane, drawn, y in zip(lanes, bars, places, strict=True):
        rows.draw(lane, drawn, y)
    _links(rows, run.trace, lanes, places)
    if run.died and low <= float(run.trace.cycles) <= high:
        _death(rows, run, top, bottom)
    canvas.height = bottom + (20 if run.died else 4)
    return canvas.picture(title=heading, summary=line, text=twin(run.trace, ctas, lanes, run.died))


def heading_of(trace: Any) -> str:
    """Return the title of a timeline: which kernel, how many cycles."""
    return f"Timeline of {trace.kernel}: {tenths(float(trace.cycles))} cycles"


def window_of(trace: Any, start: float | None, stop: float | None) -> tuple[float, float]:
    """Return the cycles to show; raise `ValueError` for a stretch that is empty."""
    low = 0.0 if start is None else float(start)
    high = max(float(trace.cycles), 1.0) if stop is None else float(stop)
    if not low < high:
        raise ValueError(f"start must lie before stop: start is {tenths(low)}, stop {tenths(high)}")
    return low, high


def _wrapped(line: str, most: int = 122) -> list[str]:
    """Cut the summary between its parts into lines that fit the picture."""
    lines = [""]
    for part in line.replace("; ", ";\n").replace(". ", ".\n").split("\n"):
        if lines[-1] and len(lines[-1]) + 1 + len(part) > most:
            lines.append(part)
        else:
            lines[-1] = f"{lines[-1]} {part}".strip()
    return lines


def _legend(canvas: Canvas, bars: Sequence[Bars], lanes: Sequence[Lane], hatch: str, y: float) -> float:
    """Draw the keys that occur, in rows; return the last row's baseline."""
    used = {section: set[int]() for section in SECTIONS}
    for lane, drawn in zip(lanes, bars, strict=True):
        used[lane.section] |= set(drawn.key.tolist()) | {key for parts in drawn.mix for key, _ in parts}
    names = [KEY_NAMES[key] for section in ("warps", "operations", "buffers") for key in sorted(used[section])]
    names += ["pending", "owed"] if used["barriers"] else []
    x = 0.0
    for look in (KEYS[name] for name in names):
        width = 19 + 7.4 * len(look.words) + 12
        if x + width > WIDTH:
            x, y = 0.0, y + 17
        if look.line:
            canvas.line(x, y - 4, x + 14, y - 4, stroke=look.colour, width=2)
        else:
            canvas.rect(x, y - 9, 14, 10, fill=hatch if look.hatched else look.colour, tint=look.tint)
        if look.hatched:
            canvas.rect(x, y - 9, 14, 10, fill="none", stroke=INK, stroke_width=0.5)
        canvas.text(x + 19, y, look.words, size=11)
        x += width
    return y


def _places(lanes: Sequence[Lane], top: float) -> tuple[list[float], float]:
    """Return the y of each lane and the bottom; a heading's space stands before each new section and CTA."""
    places, y, previous = [], top, None
    for lane in lanes:
        if (lane.cta, lane.section) != previous:
            y += 18 if previous and lane.section == "warps" else 14
            previous = (lane.cta, lane.section)
        places.append(y)
        y += lane_height(lane) + GAP
    return places, y + 4


def _headings(canvas: Canvas, lanes: Sequence[Lane], places: Sequence[float], *, several: bool) -> None:
    previous = None
    for lane, y in zip(lanes, places, strict=True):
        if (lane.cta, lane.section) == previous:
            continue
        if several and (previous is None or previous[0] != lane.cta):
            canvas.text(0, y - 4, f"CTA {lane.cta}: {lane.section}", size=11, bold=True)
        else:
            canvas.text(0, y - 4, lane.section, size=11, dim=True)
        previous = (lane.cta, lane.section)


def _axis(rows: Rows, top: float, bottom: float) -> None:
    step = tick_step(rows.high - rows.low, 8)
    tick = float(np.ceil(rows.low / step) * step)
    rows.canvas.text(0, top, "cycle", size=11, dim=True)
    while tick <= rows.high + 1e-9:
        x = rows.x(tick)
        rows.canvas.line(x, top + 5, x, bottom, opacity=0.13)
        at_end = x > WIDTH - 24
        rows.canvas.text(
            WIDTH if at_end else x, top, f"{tick:,.0f}", size=11, anchor="end" if at_end else "middle", dim=True
        )
        tick += step


def tick_step(span: float, most: int) -> float:
    """Return 1, 2 or 5 times a power of ten that gives at most `most` steps in `span`; 1 at least."""
    return float(next(d * 10**p for p in range(18) for d in (1, 2, 5) if span / (d * 10**p) <= most))


def _links(rows: Rows, trace: Any, lanes: Sequence[Lane], places: Sequence[float]) -> None:
    """Connect the end of each operation with the wait that saw it, where there are few enough to follow."""
    warps = {(lane.cta, lane.warp): y for lane, y in zip(lanes, places, strict=True) if lane.section == "warps"}
    shown = [(lane, y) for lane, y in zip(lanes, places, strict=True) if lane.section == "operations"]
    seen = observers(trace, {lane.cta for lane in lanes})
    # One wait may see many operations of a lane: the link leads from the one that came last.
    last: dict[tuple[int, int, int, float], tuple[float, float]] = {}
    for number, (lane, y) in enumerate(shown):
        for i, row in enumerate(lane.rows):
            who = seen.get(int(row))
            if who is not None and (who.cta, who.warp) in warps and rows.shows(who.time) and rows.shows(who.since):
                bar = y + int(lane.bars.level[i]) * HEIGHTS["operations"] + 3
                key = (number, who.cta, who.warp, who.time)
                last[key] = max(last.get(key, (0.0, 0.0)), (who.since, bar))
    if len(last) <= MOST_LINKS:
        for (_, cta, warp, time), (since, bar) in last.items():
            rows.link(since, bar, time, warps[cta, warp] + HEIGHTS["warps"])


def _death(rows: Rows, run: Run, top: float, bottom: float) -> None:
    cycles = float(run.trace.cycles)
    x = rows.x(cycles)
    shown = run.died if len(run.died) <= 90 else run.died[:89] + "…"
    with rows.canvas.group(detail=f"cycle {tenths(cycles)}: the run ended in: {run.died}"):
        rows.canvas.line(x, top + 5, x, bottom + 4, stroke=PINK, width=2.5, dash="5 3")
        rows.canvas.text(x + 3, bottom + 16, f"✕ {shown}", size=11, anchor="end", bold=True, fill=PINK)
