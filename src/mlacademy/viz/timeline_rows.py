"""The rows of a timeline on a canvas: bars, bars drawn together, a barrier's steps, and links between rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlacademy.viz.canvas import WIDTH, Canvas
from mlacademy.viz.numbers import plural, tenths
from mlacademy.viz.theme import INK
from mlacademy.viz.timeline_keys import KEY_NAMES, KEYS
from mlacademy.viz.timeline_lanes import Bars, Lane
from mlacademy.viz.timeline_merge import thinned

PLOT_X = 138.0
PLOT_WIDTH = WIDTH - PLOT_X - 4
GAP = 5.0
HEIGHTS = {"warps": 13.0, "operations": 8.0, "barriers": 26.0, "buffers": 7.0}
PHASE_HEIGHT, STEPS_HEIGHT = 10.0, 13.0
MOST_STEPS = 160
NAME, WIDE_NAME = 21, 19
"""Letters of a lane's name at most; one with more than the second is written smaller."""


def lane_height(lane: Lane) -> float:
    """Height of a lane's bars: as many rows as it has levels."""
    levels = int(lane.bars.level.max(initial=0)) + 1
    return HEIGHTS[lane.section] * (2 if lane.section == "buffers" else levels)


@dataclass
class Rows:
    """Draws rows for the cycles from `low` to `high`; `hatch` is the fill of waits."""

    canvas: Canvas
    low: float
    high: float
    hatch: str

    def x(self, time: float) -> float:
        """Where a cycle stands, at the plot's edge for times outside."""
        inside = min(max(time, self.low), self.high)
        return PLOT_X + (inside - self.low) / (self.high - self.low) * PLOT_WIDTH

    def shows(self, time: float) -> bool:
        """True where the cycle is inside the window."""
        return self.low <= time <= self.high

    def draw(self, lane: Lane, bars: Bars, y: float) -> None:
        """Draw one lane with its label; `bars` are the lane's, clipped and merged."""
        name = lane.name if len(lane.name) <= NAME else lane.name[: NAME - 1] + "…"
        with self.canvas.group(detail=lane.about):
            size = 11 if len(name) <= WIDE_NAME else 10
            self.canvas.text(PLOT_X - 8, y + lane_height(lane) / 2 + 4, name, size=size, anchor="end")
        for i in range(len(bars)):
            if lane.section == "barriers":
                self._phase(lane, bars, i, y)
            else:
                self._bar(lane, bars, i, y)
        if lane.steps is not None:
            self._steps(lane, y)

    def link(self, start: float, y: float, stop: float, to: float) -> None:
        """Connect the end of an operation with the wait that saw it."""
        self.canvas.line(self.x(start), y, self.x(stop), to, width=0.8, opacity=0.55)
        self.canvas.circle(self.x(stop), to, 1.8)

    def _bar(self, lane: Lane, bars: Bars, i: int, y: float) -> None:
        x, width = self._span(bars, i)
        height = HEIGHTS[lane.section]
        top = y + int(bars.level[i]) * height
        height -= 1.0 if lane.section in ("operations", "buffers") else 0.0
        parts = bars.mix[i] if bars.mix else ()
        if len(parts) < 2:
            self._fill(int(bars.key[i]), x, top, width, height, detail=self._sentence(lane, bars, i))
            return
        with self.canvas.group(detail=self._sentence(lane, bars, i)):
            for key, share in parts[:3]:
                self._fill(key, x, top, width, share * height)
                top += share * height

    def _fill(self, key: int, x: float, y: float, width: float, height: float, detail: str | None = None) -> None:
        look = KEYS[KEY_NAMES[key]]
        outlined = look.hatched and width > 3 and height > 8
        self.canvas.rect(
            x,
            y,
            width,
            height,
            fill=self.hatch if look.hatched else look.colour,
            tint=look.tint,
            stroke=INK if outlined else None,
            stroke_width=0.4 if outlined else None,
            detail=detail,
        )

    def _phase(self, lane: Lane, bars: Bars, i: int, y: float) -> None:
        x, width = self._span(bars, i)
        together = bool(bars.mix and bars.mix[i])
        look = KEYS["odd"] if together else KEYS[KEY_NAMES[int(bars.key[i])]]
        label = bars.text[i].split(" (")[0].split(", ")[-1]
        with self.canvas.group(detail=self._sentence(lane, bars, i)):
            self.canvas.rect(x, y, width, PHASE_HEIGHT, fill=look.colour, tint=look.tint)
            if not together and width > 6.0 * len(label):
                self.canvas.text(x + width / 2, y + 8.5, label, size=9, anchor="middle")

    def _steps(self, lane: Lane, y: float) -> None:
        """Draw arrivals due (a line) and bytes owed (an area) under a barrier's phases."""
        assert lane.steps is not None
        steps = thinned(lane.steps, self.low, self.high, PLOT_WIDTH)
        base = y + PHASE_HEIGHT + STEPS_HEIGHT + 2
        self.canvas.line(PLOT_X, base, WIDTH - 4, base, opacity=0.25)
        if len(steps.time) > MOST_STEPS:
            events = plural(len(lane.steps.time), "event")
            self.canvas.text(PLOT_X, base - 3, f"{events}: choose a shorter stretch to see them", size=9, dim=True)
            return
        for values, look in ((steps.tx, KEYS["owed"]), (steps.pending, KEYS["pending"])):
            most = max(int(np.abs(values).max(initial=0)), 1)
            points: list[tuple[float, float]] = []
            for i, value in enumerate(values.tolist()):
                level = base - max(value, 0) / most * STEPS_HEIGHT
                end = float(steps.time[i + 1]) if i + 1 < len(steps.time) else self.high
                points += [(self.x(float(steps.time[i])), level), (self.x(end), level)]
            if look.line:
                self.canvas.path(points, stroke=look.colour, width=1.2)
            elif values.any():
                points = [(points[0][0], base), *points, (points[-1][0], base)]
                self.canvas.path(points, stroke="none", fill=look.colour, opacity=look.tint, closed=True)

    def _span(self, bars: Bars, i: int) -> tuple[float, float]:
        x = self.x(float(bars.start[i]))
        return x, max(self.x(float(bars.stop[i])) - x - 0.3, 0.75)

    def _sentence(self, lane: Lane, bars: Bars, i: int) -> str:
        start, stop = float(bars.start[i]), float(bars.stop[i])
        return f"{lane.name}, cycles {tenths(start)}–{tenths(stop)} ({tenths(stop - start)}): {bars.text[i]}"
