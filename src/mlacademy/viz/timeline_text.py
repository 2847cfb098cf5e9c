"""The text twin of a timeline: cycles, who waits on what, what overlaps, what barriers and buffers went through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlacademy.viz.numbers import plural, short, tenths
from mlacademy.viz.timeline_facts import (
    FAMILY_WORDS,
    families,
    family_times,
    flight,
    instructions,
    length,
    role_of,
    role_shares,
    wait_name,
)
from mlacademy.viz.timeline_lanes import Lane

LISTED = 16


def percent(part: float, whole: float) -> str:
    """`percent(1, 8)` is "12.5 %"; of nothing it is "0 %"."""
    return f"{short(100 * part / whole, 3)} %" if whole else "0 %"


def summary(trace: Any, ctas: Sequence[int], died: str) -> str:
    """One or two sentences: the length of the run, the role that waits most, and how far copies and math overlap."""
    total = len({int(c) for c in trace.warps.cta})
    shown = plural(total, "CTA") if len(ctas) == total else f"{len(ctas)} of {total:,} CTAs shown"
    parts = [f"{tenths(float(trace.cycles))} cycles, {shown}"]
    shares = [share for share in role_shares(trace, ctas) if share.waits]
    if shares:
        most = max(shares, key=lambda share: share.waiting / share.life)
        parts.append(
            f"{most.role}: {percent(most.waiting, most.life)} of the time in waits, most on {most.waits[0][0]}"
        )
    both = flight(trace, ctas)
    if both.loads and both.wgmma:
        parts.append(f"TMA loads are in flight for {percent(both.both, both.wgmma)} of wgmma's time")
    return "; ".join(parts) + "." + (f" The run ended in: {died}." if died else "")


def twin(trace: Any, ctas: Sequence[int], lanes: Sequence[Lane], died: str) -> str:
    """The body of the twin, for the CTAs shown; of a run that died also who stood waiting when it did."""
    lines = [*_roles(trace, ctas), *_operations(trace, ctas), *_barriers(lanes), *_buffers(lanes)]
    return "\n".join([*_standing(trace, ctas), *lines] if died else lines)


def _standing(trace: Any, ctas: Sequence[int]) -> list[str]:
    """Say which waits were not over when the run ended."""
    spans = trace.spans
    last = (np.asarray(spans.kind) == "wait") & (np.asarray(spans.t1) >= float(trace.cycles) - 1e-6)
    rows = np.flatnonzero(last & np.isin(spans.cta, list(ctas)))
    roles = {
        (int(cta), int(warp)): role_of(trace, row)
        for row, (cta, warp) in enumerate(zip(trace.warps.cta, trace.warps.warp, strict=True))
    }
    lines = []
    for i in rows[:LISTED]:
        cta, warp, since = int(spans.cta[i]), int(spans.warp[i]), tenths(float(spans.t0[i]))
        who = f"{roles[cta, warp]} (CTA {cta}, warp {warp})"
        lines.append(f"At the end {who} waits for {wait_name(trace, int(i))}, since cycle {since}")
    return lines + ([f"… and {len(rows) - LISTED} more warps."] if len(rows) > LISTED else [])


def _roles(trace: Any, ctas: Sequence[int]) -> list[str]:
    lines = ["Time of each role, from its first to its last instruction:"]
    shares = role_shares(trace, ctas)
    for share in shares[:LISTED]:
        on = ", ".join(f"{name} {percent(cycles, share.life)}" for name, cycles in share.waits[:4])
        more = f", {len(share.waits) - 4} more" if len(share.waits) > 4 else ""
        lines.append(
            f"{share.role} ({plural(share.warps, 'warp')}): waits {percent(share.waiting, share.life)}"
            + (f" ({on}{more})" if on else "")
        )
    if len(shares) > LISTED:
        lines.append(f"… and {len(shares) - LISTED} more.")
    return lines


def _operations(trace: Any, ctas: Sequence[int]) -> list[str]:
    ops = trace.operations
    here = np.concatenate([instructions(trace, cta) for cta in ctas]) if ctas else np.zeros(0, np.intp)
    kinds = families(trace)[here]
    times = [family_times(trace, cta) for cta in ctas]
    lines = []
    for family in dict.fromkeys(name for one in times for name in one):
        rows = here[kinds == family]
        busy = sum(length(one[family]) for one in times if family in one)
        moved = int(np.asarray(ops.bytes)[rows].sum())
        taken = np.asarray(ops.t_end, float)[rows] - np.asarray(ops.t_issue, float)[rows]
        lines.append(
            f"{FAMILY_WORDS.get(family, family)}: {plural(len(rows), 'operation')}"
            + (f", {plural(moved, 'byte')}" if moved and family != "wgmma" else "")
            + f", {tenths(float(taken.mean()))} cycles from issue to completion on average, in flight "
            f"{percent(busy, float(trace.cycles) * len(ctas))} of the run"
        )
    both = flight(trace, ctas)
    if both.loads and both.wgmma:
        lines.append(
            f"TMA loads and wgmma overlap for {tenths(both.both)} cycles: {percent(both.both, both.loads)} of the "
            f"loads' time, {percent(both.both, both.wgmma)} of wgmma's."
        )
    return lines


def _barriers(lanes: Sequence[Lane]) -> list[str]:
    shown = [lane for lane in lanes if lane.section == "barriers"]
    lines = []
    for lane in shown[:LISTED]:
        assert lane.steps is not None
        done = len(lane.bars) - 1
        longest = f", the longest {tenths(float((lane.bars.stop - lane.bars.start)[:-1].max()))} cycles" if done else ""
        lines.append(
            f"barrier {lane.name} of CTA {lane.cta}: {plural(done, 'phase')} completed{longest}; at the end "
            f"{plural(int(lane.steps.pending[-1]), 'arrival')} pending, {plural(int(lane.steps.tx[-1]), 'byte')} owed"
        )
    if len(shown) > LISTED:
        lines.append(f"… and {len(shown) - LISTED} more barriers.")
    return lines


def _buffers(lanes: Sequence[Lane]) -> list[str]:
    shown = [lane for lane in lanes if lane.section == "buffers"]
    lines = []
    for lane in shown[:LISTED]:
        writes = int((lane.bars.level == 0).sum())
        lines.append(
            f"{lane.about}: {plural(writes, 'write')}, {plural(len(lane.bars) - writes, 'read')}, first touched "
            f"at cycle {tenths(float(lane.bars.start.min()))}, last at {tenths(float(lane.bars.stop.max()))}"
        )
    if len(shown) > LISTED:
        lines.append(f"… and {len(shown) - LISTED} more buffers.")
    return lines
