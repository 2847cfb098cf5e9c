"""What a trace says in numbers: who waited how long and on what, what overlapped, which wait saw an operation land.

Everything is computed from the columns of a `mlacademy.gpu.trace.Trace`; times are modelled cycles.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FAMILIES = {
    "bulk_load": "loads",
    "tensor_load": "loads",
    "bulk_store": "stores",
    "tensor_store": "stores",
    "bulk_reduce": "stores",
    "tensor_reduce": "stores",
    "wgmma": "wgmma",
    "cp_async": "cp.async",
    "st_async": "remote",
    "red_async": "remote",
}
FAMILY_WORDS = {
    "loads": "TMA loads",
    "wgmma": "wgmma",
    "stores": "bulk stores",
    "cp.async": "cp.async",
    "remote": "remote stores",
}


SOURCES = "sources of bulk groups"
GROUPS = {"wgmma": ("wgmma groups",), "stores": ("bulk groups", SOURCES), "cp.async": ("cp.async groups",)}
"""What a warp waits for, by name, until operations of a family that signal no barrier are done."""


def union(start: Any, stop: Any) -> Floats:
    """Return the disjoint intervals `[k, 2]`, in order, that the intervals from `start` to `stop` cover.

    >>> union([0, 2, 9], [3, 5, 9]).tolist()
    [[0.0, 5.0]]
    """
    pairs = np.stack([np.asarray(start, float), np.asarray(stop, float)], axis=1)
    pairs = pairs[pairs[:, 1] > pairs[:, 0]]
    pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
    if not len(pairs):
        return pairs
    reach = np.maximum.accumulate(pairs[:, 1])
    first = np.concatenate([[True], pairs[1:, 0] > reach[:-1]])
    last = np.concatenate([first[1:], [True]])
    return np.stack([pairs[first, 0], reach[last]], axis=1)


def length(intervals: Floats) -> float:
    """Return the total length of disjoint intervals."""
    return float((intervals[:, 1] - intervals[:, 0]).sum()) if len(intervals) else 0.0


def intersection(a: Floats, b: Floats) -> Floats:
    """Return where two sets of disjoint, ordered intervals overlap.

    >>> intersection(union([0], [5]), union([3, 8], [4, 9])).tolist()
    [[3.0, 4.0]]
    """
    found, i, j = [], 0, 0
    while i < len(a) and j < len(b):
        low, high = max(a[i, 0], b[j, 0]), min(a[i, 1], b[j, 1])
        if low < high:
            found.append((low, high))
        if a[i, 1] < b[j, 1]:
            i += 1
        else:
            j += 1
    return np.array(found, float).reshape(-1, 2)


@dataclass(frozen=True)
class RoleShare:
    """How the warps of one role spent their time.

    Attributes:
        role: its name, or "warp n" where the kernel names no role. warps: how many, over all CTAs.
        life: cycles from first to last span, summed over the warps. waiting: cycles of it in waits.
        waits: (what is waited for, cycles), longest first.
    """

    role: str
    warps: int
    life: float
    waiting: float
    waits: tuple[tuple[str, float], ...]


def role_of(trace: Any, row: int) -> str:
    """Return the name under which a row of `trace.warps` is shown."""
    return str(trace.warps.role[row]) or f"warp {int(trace.warps.warp[row])}"


def role_shares(trace: Any, ctas: Iterable[int] | None = None) -> tuple[RoleShare, ...]:
    """Return one `RoleShare` a role, in the order of `trace.warps`; of all CTAs or of some."""
    wanted = None if ctas is None else set(ctas)
    spans = trace.spans
    order: dict[str, list[tuple[int, int]]] = {}
    for row in range(len(trace.warps.cta)):
        cta = int(trace.warps.cta[row])
        if wanted is None or cta in wanted:
            order.setdefault(role_of(trace, row), []).append((cta, int(trace.warps.warp[row])))
    of_cta, of_warp, t0, t1 = (np.asarray(getattr(spans, name)) for name in ("cta", "warp", "t0", "t1"))
    is_wait = np.asarray(spans.kind) == "wait"
    shares = []
    for role, members in order.items():
        life, waits = 0.0, dict[str, float]()
        for c, w in members:
            mine = (of_cta == c) & (of_warp == w)
            if not mine.any():
                continue
            life += float(t1[mine].max() - t0[mine].min())
            for i in np.flatnonzero(mine & is_wait):
                waits[wait_name(trace, int(i))] = waits.get(wait_name(trace, int(i)), 0.0) + float(t1[i] - t0[i])
        longest = sorted(waits.items(), key=lambda item: (-item[1], item[0]))
        shares.append(RoleShare(role, len(members), life, sum(waits.values()), tuple(longest)))
    return tuple(shares)


def wait_name(trace: Any, span: int) -> str:
    """Return what a wait waits for: the object's name, or the instruction where it has none."""
    return str(trace.spans.object[span]) or str(trace.spans.what[span])


def families(trace: Any) -> NDArray[np.object_]:
    """Return the family of each operation, a key of `FAMILY_WORDS` or its kind where it belongs to none."""
    kinds = trace.operations.kind
    found = np.empty(len(kinds), dtype=object)
    found[:] = [FAMILIES.get(str(kind), str(kind)) for kind in kinds]
    return found


def instructions(trace: Any, cta: int) -> NDArray[np.intp]:
    """Return the rows of a CTA's operations, one for each instruction.

    A trace has four rows for a wgmma, one for each warp of its warpgroup. The four run the same sequence of them, so
    those of the warpgroup's first warp stand for all.
    """
    ops = trace.operations
    rows = np.flatnonzero(np.asarray(ops.cta) == cta)
    shared = np.asarray(ops.kind)[rows] == "wgmma"
    group = np.asarray(ops.warp)[rows] // 4
    first = {int(g): int(np.asarray(ops.warp)[rows][shared & (group == g)].min()) for g in np.unique(group[shared])}
    leads = np.array([first.get(int(g), -1) for g in group], np.int64) == np.asarray(ops.warp)[rows]
    found: NDArray[np.intp] = rows[~shared | leads]
    return found


def family_times(trace: Any, cta: int) -> dict[str, Floats]:
    """Return when operations of one CTA were in flight, from start to end, family by family."""
    ops, kinds = trace.operations, families(trace)
    here = np.asarray(ops.cta) == cta
    start, stop = np.asarray(ops.t_start, float), np.asarray(ops.t_end, float)
    names = [*FAMILY_WORDS, *sorted(set(kinds) - FAMILY_WORDS.keys())]
    chosen = {name: here & (kinds == name) for name in names}
    return {name: union(start[rows], stop[rows]) for name, rows in chosen.items() if rows.any()}


@dataclass(frozen=True)
class Flight:
    """Cycles, summed over CTAs, in which TMA loads, wgmma and both of them were in flight."""

    loads: float
    wgmma: float
    both: float


def flight(trace: Any, ctas: Iterable[int]) -> Flight:
    """Return how long TMA loads and wgmma were in flight, and together, within the same CTA."""
    loads = wgmma = both = 0.0
    for cta in ctas:
        times = family_times(trace, cta)
        a, b = (times.get(name, np.zeros((0, 2))) for name in ("loads", "wgmma"))
        loads, wgmma, both = loads + length(a), wgmma + length(b), both + length(intersection(a, b))
    return Flight(loads, wgmma, both)


@dataclass(frozen=True)
class Seen:
    """The wait that saw an operation land, or that its sources had been read.

    Attributes:
        cta, warp: who waited. time: when it went on. since: when the operation had come so far.
        reads: True where the wait was for the sources alone.
    """

    cta: int
    warp: int
    time: float
    since: float
    reads: bool = False


def observers(trace: Any, ctas: Iterable[int]) -> dict[int, Seen]:
    """Return, for the operations of some CTAs, the first wait that could go on because they were complete.

    The result is keyed by rows of `trace.operations`; what no wait saw is absent.

    An operation that signals a barrier is seen by the first warp of its CTA that passes this barrier after it ended;
    one without a barrier by the first wait of the issuing warp for groups of its family that ends after it. A wait for
    the sources of bulk stores counts from when these had been read.
    """
    spans, ops, events, wanted = trace.spans, trace.operations, trace.barriers, list(ctas)
    waits: dict[tuple[int, str], list[tuple[float, int]]] = {}
    # Waiting is local, so whoever passes a barrier is a warp of its CTA.
    for i in np.flatnonzero((np.asarray(events.event) == "pass") & np.isin(events.cta, wanted)):
        waits.setdefault((int(events.cta[i]), str(events.name[i])), []).append(
            (float(events.time[i]), int(events.by[i]))
        )
    for i in np.flatnonzero((np.asarray(spans.kind) == "wait") & np.isin(spans.cta, wanted)):
        cta, warp = int(spans.cta[i]), int(spans.warp[i])
        for name in (str(spans.object[i]), f"{spans.object[i]} of warp {warp}"):
            waits.setdefault((cta, name), []).append((float(spans.t1[i]), warp))
    for ends in waits.values():
        ends.sort()
    seen: dict[int, Seen] = {}
    for row in np.flatnonzero(np.isin(ops.cta, wanted)):
        cta, warp, kind = int(ops.cta[row]), int(ops.warp[row]), FAMILIES.get(str(ops.kind[row]), "")
        done, read = float(ops.t_end[row]), float(ops.t_read[row])
        objects = [(str(ops.barrier[row]), done)] if str(ops.barrier[row]) else []
        objects += [(f"{name} of warp {warp}", read if name == SOURCES else done) for name in GROUPS.get(kind, ())]
        found = []
        for name, since in objects:
            ends = waits.get((cta, name), [])
            at = bisect.bisect_left(ends, (since - 1e-9, -1))
            if at < len(ends):
                found.append(Seen(cta, ends[at][1], ends[at][0], since, name.startswith(SOURCES)))
        if found:
            seen[int(row)] = min(found, key=lambda one: one.time)
    return seen
