"""The events of one mbarrier in the order in which they happened: who did it, where, and the state after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlacademy.viz.timeline_facts import role_of
from mlacademy.viz.timeline_lanes import source


@dataclass(frozen=True)
class BarrierEvent:
    """One event and the state after it.

    Attributes:
        kind: init, arrive, expect_arrive, expect_tx, complete_tx, phase, wait, pass or inval. words: the same as a
        sentence. by: a warp's or an operation's name. warp: its CTA and number, `None` for an operation.
        source: "kernel.cu:41", with "…" where a span of many instructions began there; or "".
        pending, expected: arrivals still due in this phase, and of how many. tx: bytes owed; below 0 when bytes landed
        before they were expected. phase: counts from 0; its parity is what a wait asks for.
    """

    kind: str
    time: float
    by: str
    warp: tuple[int, int] | None
    source: str
    words: str
    pending: int
    expected: int
    tx: int
    phase: int

    @property
    def state(self) -> tuple[int, ...]:
        """Arrivals due, arrivals expected, bytes owed, phase."""
        return self.pending, self.expected, self.tx, self.phase


def barriers_of(trace: Any) -> list[tuple[int, str]]:
    """Return (CTA, name) of each barrier in the order in which they first appear, CTA after CTA."""
    table = trace.barriers
    pairs = dict.fromkeys((int(c), str(name)) for c, name in zip(table.cta, table.name, strict=True))
    return sorted(pairs, key=lambda pair: pair[0])


def barrier_log(trace: Any, name: str, cta: int) -> tuple[BarrierEvent, ...]:
    """Return the events of a barrier, in order; a wait stands where the warp began to stand still."""
    table, spans = trace.barriers, trace.spans
    events = _rows(table.cta, table.name, cta, name)
    events = events[np.asarray(table.event)[events] != "wait"]
    waits = _rows(spans.cta, spans.object, cta, name)
    waits = waits[np.asarray(spans.kind)[waits] == "wait"]
    time = np.concatenate([np.asarray(table.time)[events], np.asarray(spans.t0)[waits]])
    log: list[BarrierEvent] = []
    for place in np.argsort(time, kind="stable"):  # waits come last, so they follow what happened in the same cycle
        state = log[-1].state if log else (0, 0, 0, 0)
        if place >= len(events):
            kind, (by, warp, source) = "wait", _warp(trace, cta, waits[place - len(events)])
        else:
            row = int(events[place])
            kind, (by, warp, source) = str(table.event[row]), _actor(trace, row)
            if kind != "pass":  # looking at a barrier does not change it
                state = tuple(int(column[row]) for column in (table.pending, table.expected, table.tx, table.phase))
        words = _words(kind, by, state[2] - (log[-1].tx if log else 0), state[3], state[1])
        log.append(BarrierEvent(kind, float(time[place]), by, warp, source, words, *state))
    return tuple(log)


def _rows(ctas: Any, names: Any, cta: int, name: str) -> NDArray[np.intp]:
    return np.flatnonzero((np.asarray(ctas) == cta) & (np.asarray(names) == name))


def waiting_at(log: Sequence[BarrierEvent], at: int) -> list[tuple[str, float]]:
    """Return who stands at the barrier after event `at`, and since which cycle."""
    since: dict[tuple[int, int], tuple[str, float]] = {}
    for event in log[: at + 1]:
        if event.warp is None:
            continue
        if event.kind == "wait":
            since.setdefault(event.warp, (event.by, event.time))
        elif event.kind == "pass":
            since.pop(event.warp, None)
    return list(since.values())


def _words(kind: str, by: str, change: int, phase: int, expected: int) -> str:
    count = f"{abs(change):,} bytes"
    return {
        "init": f"{by} initialises it for {expected:,} arrival{'' if expected == 1 else 's'} a phase",
        "inval": f"{by} ends its life",
        "arrive": f"{by} arrives",
        "expect_arrive": f"{by} expects one arrival more",
        "expect_tx": f"{by} expects {count} more",
        "complete_tx": f"{by}: {count} have landed",
        "phase": f"phase {phase - 1} is over, phase {phase} begins",
        "wait": f"{by} waits",
        "pass": f"{by} goes on",
    }.get(kind, f"{by}: {kind}")


Actor = tuple[str, tuple[int, int] | None, str]
"""Name of who caused an event, (CTA, warp) where it was a warp, source line."""


def _actor(trace: Any, row: int) -> Actor:
    table = trace.barriers
    number, cta = int(table.by[row]), int(table.by_cta[row])
    if table.by_operation[row]:
        i = number - 1  # operations are numbered from 1 in the order of their rows
        what = str(trace.operations.kind[i]).replace("_", " ")
        line = int(trace.operations.source_line[i])
        return f"{what} {number}", None, f"line {line}" if line > 0 else ""
    spans, time = trace.spans, float(table.time[row])
    mine = (np.asarray(spans.cta) == cta) & (np.asarray(spans.warp) == number)
    here = np.flatnonzero(mine & (np.asarray(spans.t0) <= time) & (np.asarray(spans.t1) >= time))
    is_wait = np.asarray(spans.kind)[here] == "wait"
    fitting = here[is_wait == (str(table.event[row]) == "pass")]
    found = fitting if len(fitting) else here
    away = "" if cta == int(table.cta[row]) else f" of CTA {cta}"
    return _name(trace, cta, number) + away, (cta, number), _line(trace, int(found[-1])) if len(found) else ""


def _warp(trace: Any, cta: int, span: int) -> Actor:
    warp = int(trace.spans.warp[span])
    return _name(trace, cta, warp), (cta, warp), _line(trace, int(span))


def _name(trace: Any, cta: int, warp: int) -> str:
    """Return a warp's role, with its number where other warps of the CTA have the same role."""
    here = np.flatnonzero(np.asarray(trace.warps.cta) == cta)
    names = {int(trace.warps.warp[i]): role_of(trace, int(i)) for i in here}
    name = names.get(warp, f"warp {warp}")
    return f"{name} w{warp}" if list(names.values()).count(name) > 1 else name


def _line(trace: Any, span: int) -> str:
    many = int(trace.spans.instructions[span]) > 1
    return source(trace, trace.spans, span).removeprefix(", ") + ("…" if many else "")
