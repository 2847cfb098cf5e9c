"""Bars too narrow to see become one bar: a timeline of any length is drawn with a bounded number of shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlacademy.viz.numbers import short, tenths
from mlacademy.viz.timeline_keys import KEY_NAMES, KEYS
from mlacademy.viz.timeline_lanes import Bars, Lane, Steps

LEAST_PIXELS = 0.75


def fitting(lanes: Sequence[Lane], start: float, stop: float, width: float, most: int) -> list[Bars]:
    """Return the bars of each lane inside `start` to `stop`, merged so that at most `most` are left in all.

    `width` is the pixels that the window takes. Bars narrower than a limit are drawn together; the limit starts below a
    pixel and doubles until the shapes are few enough.
    """
    scale = width / max(stop - start, 1e-9)
    least = LEAST_PIXELS
    while least <= width:
        if sum(len(np.unique(_labels(lane.bars, start, stop, least / scale)[1])) for lane in lanes) <= most:
            break
        least *= 2
    return [merged(lane.bars, start, stop, least / scale) for lane in lanes]


def merged(bars: Bars, start: float, stop: float, least: float) -> Bars:
    """Return the bars between two times; those under `least` cycles that begin in one stretch become one."""
    inside, label = _labels(bars, start, stop, least)
    if not len(inside):
        return Bars(bars.start[:0], bars.stop[:0], bars.key[:0], (), bars.level[:0])
    t0, t1 = bars.start[inside], bars.stop[inside]
    key, level = bars.key[inside], bars.level[inside]
    _, first, group, count = np.unique(label, return_index=True, return_inverse=True, return_counts=True)
    time = np.zeros((len(count), len(KEY_NAMES)))
    np.add.at(time, (group, key), np.maximum(t1 - t0, 1e-9))
    low, high = np.full(len(count), np.inf), np.full(len(count), -np.inf)
    np.minimum.at(low, group, t0)
    np.maximum.at(high, group, t1)
    main, spent = time.argmax(axis=1), time.sum(axis=1)
    order = np.argsort(low, kind="stable")
    mix = tuple(_mix(time[g] / spent[g]) if count[g] > 1 else () for g in order)
    text = tuple(
        _together(int(count[g]), float(spent[g]), parts) if parts else bars.text[inside[first[g]]]
        for g, parts in zip(order, mix, strict=True)
    )
    return Bars(low[order], high[order], main[order], text, level[first][order], mix)


def _labels(bars: Bars, start: float, stop: float, least: float) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """Return which bars are inside, and for each a number that it shares with those drawn together with it."""
    inside = np.flatnonzero((bars.stop >= start) & (bars.start <= stop))
    t0, t1, level = bars.start[inside], bars.stop[inside], bars.level[inside]
    cell = np.floor((t0 - start) / least).astype(np.int64) * (int(level.max(initial=0)) + 1) + level
    alone = int(cell.max(initial=0)) + 1 + np.arange(len(cell))
    return inside, np.where(t1 - t0 < least, cell, alone)


def _mix(shares: NDArray[np.float64]) -> tuple[tuple[int, float], ...]:
    order = np.argsort(-shares, kind="stable")
    return tuple((int(key), float(shares[key])) for key in order if shares[key] > 0)


def _together(count: int, cycles: float, parts: tuple[tuple[int, float], ...]) -> str:
    words = ", ".join(f"{KEYS[KEY_NAMES[key]].words} {short(100 * share, 2)} %" for key, share in parts[:4])
    return f"{count:,} drawn together, {tenths(cycles)} cycles in all: {words}"


def thinned(steps: Steps, start: float, stop: float, width: float) -> Steps:
    """Return the steps between two times, one a pixel at most: the last state in each; the state at `start` stays."""
    before = max(int(np.searchsorted(steps.time, start, side="right")) - 1, 0)
    after = int(np.searchsorted(steps.time, stop, side="right"))
    rows: NDArray[Any] = np.arange(before, after)
    pixel = np.floor((np.maximum(steps.time[rows], start) - start) * width / max(stop - start, 1e-9))
    rows = rows[np.append(pixel[1:] != pixel[:-1], True)] if len(rows) else rows
    return Steps(np.maximum(steps.time[rows], start), steps.pending[rows], steps.tx[rows])
