"""A trace as rows of bars: warps, asynchronous operations, barriers and buffers, filtered to what was asked for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlacademy.viz.numbers import plural, tenths
from mlacademy.viz.timeline_facts import FAMILIES, FAMILY_WORDS, instructions, role_of
from mlacademy.viz.timeline_keys import KEY_NAMES, KEYS

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


SECTIONS = ("warps", "operations", "barriers", "buffers")


@dataclass(frozen=True)
class Bars:
    """Bars of one lane in the order of `start`: times in cycles, `key` an index into `KEY_NAMES`, one sentence each."""

    start: Floats
    stop: Floats
    key: Ints
    text: tuple[str, ...]
    level: Ints
    """Height at which a bar is drawn where bars of a lane overlap: 0 for the first row."""
    mix: tuple[tuple[tuple[int, float], ...], ...] = ()
    """Where bars were drawn together: for each bar () or (key, share of its time), the largest share first."""

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True)
class Steps:
    """A barrier's state after each of its events: arrivals still due and bytes still owed."""

    time: Floats
    pending: Ints
    tx: Ints


@dataclass(frozen=True)
class Lane:
    """One row of the timeline."""

    section: str
    cta: int
    name: str
    about: str
    bars: Bars
    steps: Steps | None = None
    warp: int | None = None
    rows: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """In the section "operations": the row of `trace.operations` of each bar."""


@dataclass(frozen=True)
class Filter:
    """What to show; an empty tuple means all. CTAs by number, the rest by name."""

    ctas: tuple[int, ...] = ()
    roles: tuple[str, ...] = ()
    barriers: tuple[str, ...] = ()
    buffers: tuple[str, ...] = ()


def choose(trace: Any, cta: Any = None, role: Any = None, barrier: Any = None, buffer: Any = None) -> Filter:
    """Make a `Filter` of single values or several; raise `ValueError` for what the trace does not hold."""
    have: dict[str, list[Any]] = {
        "cta": sorted({int(c) for c in trace.warps.cta}),
        "role": list(dict.fromkeys(role_of(trace, row) for row in range(len(trace.warps.cta)))),
        "barrier": list(dict.fromkeys(str(name) for name in trace.barriers.name)),
        "buffer": list(dict.fromkeys(str(name) for name in trace.buffers.name)),
    }
    picked = []
    for name, given in (("cta", cta), ("role", role), ("barrier", barrier), ("buffer", buffer)):
        several = () if given is None else (given,) if isinstance(given, str | int | np.integer) else tuple(given)
        for value in several:
            if value not in have[name]:
                shown = ", ".join(str(v) for v in have[name][:12]) + (", …" if len(have[name]) > 12 else "")
                raise ValueError(f"{name} must be one of the run's: {shown or 'it has none'}; it is {value!r}")
        picked.append(several)
    return Filter(*picked)


def lanes_of(trace: Any, chosen: Filter, most: int | None = None) -> list[Lane]:
    """Return the rows of a trace, CTA after CTA: warps, operations, barriers, buffers.

    With `most`, of as many whole CTAs as fit into so many rows, one at least, unless CTAs were chosen by number.
    """
    lanes: list[Lane] = []
    rows = _connected(trace, chosen)
    for cta in chosen.ctas or sorted({int(c) for c in trace.warps.cta}):
        more = [
            *_warps(trace, cta, chosen, rows),
            *_operations(trace, cta, chosen),
            *_barriers(trace, cta, rows),
            *_buffers(trace, cta, rows),
        ]
        if most is not None and lanes and len(lanes) + len(more) > most and not chosen.ctas:
            break
        lanes += more
    return lanes


def _connected(trace: Any, chosen: Filter) -> Filter:
    """Return the filter of rows: a chosen barrier brings its operations' buffers, a chosen buffer their barriers."""
    if bool(chosen.barriers) == bool(chosen.buffers):
        return chosen
    ops = trace.operations
    barriers, buffers = set(chosen.barriers), set(chosen.buffers)
    for i in range(len(ops.cta)):
        name, touched = str(ops.barrier[i]), {*_names(ops.reads[i]), *_names(ops.writes[i])}
        if name and name in chosen.barriers:
            buffers |= touched
        if name and touched & set(chosen.buffers):
            barriers.add(name)
    return Filter(chosen.ctas, chosen.roles, tuple(sorted(barriers)), tuple(sorted(buffers)))


def source(trace: Any, table: Any, row: int) -> str:
    """Return ", kernel.cu:41" for a row whose source line is known, else nothing."""
    line = int(table.source_line[row])
    if line <= 0:
        return ""
    name = getattr(table, "source_file", None)
    if name is None:
        return f", line {line}"
    file = name[row]
    path = str(trace.files[file]) if isinstance(file, int | np.integer) else str(file)
    return f", {PurePath(path).name}:{line}"


def _warps(trace: Any, cta: int, chosen: Filter, rows: Filter) -> list[Lane]:
    spans, lanes = trace.spans, []
    here = np.asarray(spans.cta) == cta
    for row in np.flatnonzero(np.asarray(trace.warps.cta) == cta):
        warp, role = int(trace.warps.warp[row]), role_of(trace, int(row))
        if chosen.roles and role not in chosen.roles:
            continue
        mine = np.flatnonzero(here & (np.asarray(spans.warp) == warp))
        kinds = [str(spans.kind[i]) for i in mine]
        texts, keys = [], []
        for i, kind in zip(mine, kinds, strict=True):
            name, what = str(spans.object[i]), str(spans.what[i])
            on = f" for {name}" if kind == "wait" and name else ""
            texts.append(f"{KEYS[kind].words if kind in KEYS else kind}{on}: {what}{source(trace, spans, int(i))}")
            keys.append("faded" if _faded(rows, kind, name) else kind if kind in KEYS else "control")
        own = str(trace.warps.role[row])
        name = f"{own} · w{warp}" if own else f"warp {warp}"
        about = f"warp {warp} of CTA {cta}" + (f", role {own}" if own else "")
        bars = _bars(np.asarray(spans.t0)[mine], np.asarray(spans.t1)[mine], keys, texts)
        lanes.append(Lane("warps", cta, name, about, bars, warp=warp))
    return lanes


def _faded(rows: Filter, kind: str, name: str) -> bool:
    wanted = (*rows.barriers, *rows.buffers)
    return bool(wanted) and not (kind == "wait" and name in wanted)


def _operations(trace: Any, cta: int, chosen: Filter) -> list[Lane]:
    ops, lanes = trace.operations, []
    roles = {
        (int(trace.warps.cta[row]), int(trace.warps.warp[row])): role_of(trace, row)
        for row in range(len(trace.warps.cta))
    }
    kept: dict[str, list[int]] = {}
    for i in instructions(trace, cta):
        role = roles.get((cta, int(ops.warp[i])), "")
        touched = {*_names(ops.reads[i]), *_names(ops.writes[i])}
        if (
            (not chosen.roles or role in chosen.roles)
            and (not chosen.barriers or str(ops.barrier[i]) in chosen.barriers)
            and (not chosen.buffers or touched & set(chosen.buffers))
        ):
            kept.setdefault(FAMILIES.get(str(ops.kind[i]), str(ops.kind[i])), []).append(int(i))
    for family in [*FAMILY_WORDS, *sorted(kept.keys() - FAMILY_WORDS.keys())]:
        rows = sorted(kept.get(family, ()), key=lambda i: (float(ops.t_issue[i]), i))
        if not rows:
            continue
        issued = np.array([float(ops.t_issue[i]) for i in rows])
        ended = np.array([float(ops.t_end[i]) for i in rows])
        texts = [operation_text(trace, i, roles.get((cta, int(ops.warp[i])), "")) for i in rows]
        key = family if family in KEYS else "loads"
        words = FAMILY_WORDS.get(family, family)
        bars = _bars(issued, ended, [key] * len(rows), texts, levels=_levels(issued, ended))
        about = f"{words} of CTA {cta}: {plural(len(rows), 'operation')}"
        lanes.append(Lane("operations", cta, words, about, bars, rows=np.array(rows)))
    return lanes


def operation_text(trace: Any, row: int, role: str) -> str:
    """Say what an asynchronous operation was: kind, bytes, buffers, barrier, times and source line."""
    ops = trace.operations
    reads, writes = _names(ops.reads[row]), _names(ops.writes[row])
    parts = [f"{str(ops.kind[row]).replace('_', ' ')} by {role or f'warp {int(ops.warp[row])}'}"]
    if int(ops.bytes[row]) and str(ops.kind[row]) != "wgmma":
        parts.append(plural(int(ops.bytes[row]), "byte"))
    parts += [f"reads {', '.join(reads)}"] if reads else []
    parts += [f"writes {', '.join(writes)}"] if writes else []
    parts += [f"signals {ops.barrier[row]}"] if str(ops.barrier[row]) else []
    queued = float(ops.t_start[row]) - float(ops.t_issue[row])
    parts += [f"{tenths(queued)} cycles in the queue"] if queued > 0 else []
    return ", ".join(parts) + source(trace, ops, row)


def _names(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,) if value else ()
    return tuple(str(name) for name in value)


def _levels(start: Floats, stop: Floats, most: int = 8) -> Ints:
    """Give each bar the lowest row that is free when it starts; bars beyond `most` at once share the last row."""
    free = [-np.inf] * most
    levels = []
    for low, high in zip(start, stop, strict=True):
        level = next((i for i in range(most) if free[i] <= low), most - 1)
        free[level] = max(free[level], float(high))
        levels.append(level)
    return np.array(levels, np.int64)


def _barriers(trace: Any, cta: int, chosen: Filter) -> list[Lane]:
    table, lanes = trace.barriers, []
    names = np.array([str(name) for name in table.name], dtype=object)
    here = np.asarray(table.cta) == cta
    for name in dict.fromkeys(names[here]):
        if chosen.barriers and name not in chosen.barriers:
            continue
        rows = np.flatnonzero(here & (names == name))
        rows = rows[np.argsort(np.asarray(table.time)[rows], kind="stable")]
        rows = rows[~np.isin(np.asarray([str(table.event[i]) for i in rows]), ("wait", "pass"))]
        if not len(rows):
            continue
        time = np.asarray(table.time, float)[rows]
        phase = np.asarray(table.phase, np.int64)[rows]
        change = np.flatnonzero(np.concatenate([[True], phase[1:] != phase[:-1]]))
        starts = time[change]
        stops = np.append(starts[1:], max(float(trace.cycles), float(time[-1])))
        counts = np.diff(np.append(change, len(rows)))
        texts = [
            f"{name}, phase {int(phase[c])} (parity {int(phase[c]) % 2}): {plural(int(n), 'event')}"
            for c, n in zip(change, counts, strict=True)
        ]
        keys = ["odd" if int(phase[c]) % 2 else "even" for c in change]
        steps = Steps(time, np.asarray(table.pending, np.int64)[rows], np.asarray(table.tx, np.int64)[rows])
        about = f"mbarrier {name} of CTA {cta}: {plural(len(change) - 1, 'phase')} completed"
        lanes.append(Lane("barriers", cta, name, about, _bars(starts, stops, keys, texts), steps))
    return lanes


def _buffers(trace: Any, cta: int, chosen: Filter) -> list[Lane]:
    table, lanes = trace.accesses, []
    names = np.array([str(name) for name in table.buffer], dtype=object)
    here = np.asarray(table.cta) == cta
    for row in np.flatnonzero(np.asarray(trace.buffers.cta) == cta):
        name = str(trace.buffers.name[row])
        if chosen.buffers and name not in chosen.buffers:
            continue
        rows = np.flatnonzero(here & (names == name))
        if not len(rows):
            continue
        # The warps of a warpgroup read the same operand in the same cycles: one bar.
        same = {(float(table.t0[i]), float(table.t1[i]), str(table.mode[i])): int(i) for i in reversed(rows)}
        rows = np.array(sorted(same.values(), key=lambda i: (float(table.t0[i]), i)))
        modes = ["write" if str(table.mode[i]) == "write" else "read" for i in rows]
        texts = [f"{name} {KEYS[mode].words} by {table.by[i]}" for i, mode in zip(rows, modes, strict=True)]
        about = f"buffer {name} of CTA {cta}: {plural(int(trace.buffers.bytes[row]), 'byte')}"
        levels = np.array([0 if mode == "write" else 1 for mode in modes], np.int64)
        bars = _bars(np.asarray(table.t0)[rows], np.asarray(table.t1)[rows], modes, texts, levels=levels)
        lanes.append(Lane("buffers", cta, name, about, bars))
    return lanes


def _bars(start: Any, stop: Any, keys: Iterable[str], texts: Iterable[str], levels: Ints | None = None) -> Bars:
    low, high = np.asarray(start, float), np.asarray(stop, float)
    key = np.array([KEY_NAMES.index(name) for name in keys], np.int64)
    level = np.zeros(len(low), np.int64) if levels is None else levels
    order = np.argsort(low, kind="stable")
    words = tuple(texts)
    return Bars(low[order], high[order], key[order], tuple(words[i] for i in order), level[order])
