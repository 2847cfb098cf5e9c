"""A trace in Chrome's trace event format, which https://ui.perfetto.dev and chrome://tracing show.

One process a CTA, one thread a warp with its role; waits and runs of instructions are complete events, asynchronous
operations async events on a track of their own with an arrow to the wait that saw them end, and mbarriers counters of
pending arrivals and owed bytes. A microsecond of the format is one modelled cycle.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from mlacademy.gpu.trace import Trace

Events = list[dict[str, Any]]


def events(trace: Trace) -> Events:
    """The events, as dicts."""
    return [*_names(trace), *_spans(trace), *_operations(trace), *_arrows(trace), *_counters(trace)]


def write(trace: Trace, path: Path) -> Path:
    """Write the events of ``trace`` to ``path``."""
    about = {"kernel": trace.kernel, "unit": "one microsecond is one modelled cycle"}
    document = {"traceEvents": events(trace), "displayTimeUnit": "ns", "otherData": about}
    path.write_text(json.dumps(document, default=_plain), encoding="utf-8")
    return path


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is no JSON value")


def _names(trace: Trace) -> Events:
    rows: Events = []
    blocks = zip(trace.ctas.cta.tolist(), trace.ctas.block.tolist(), strict=True)
    for cta, (x, y, z) in blocks:
        rows.append({"ph": "M", "name": "process_name", "pid": cta, "args": {"name": f"CTA ({x}, {y}, {z})"}})
    warps = zip(trace.warps.cta.tolist(), trace.warps.warp.tolist(), trace.warps.role.tolist(), strict=True)
    for cta, warp, role in warps:
        name = f"warp {warp}" + (f": {role}" if role else "")
        rows.append({"ph": "M", "name": "thread_name", "pid": cta, "tid": warp, "args": {"name": name}})
    return rows


def _spans(trace: Trace) -> Events:
    s = trace.spans
    rows: Events = []
    for i in range(len(s.t0)):
        wait = s.kind[i] == "wait"
        about = {"instructions": s.what[i], "ptx_line": s.ptx_line[i], "source_line": s.source_line[i]}
        rows.append(
            {
                "ph": "X",
                "name": f"waits on {s.object[i]}" if wait else s.kind[i],
                "cat": s.kind[i],
                "pid": s.cta[i],
                "tid": s.warp[i],
                "ts": s.t0[i],
                "dur": s.t1[i] - s.t0[i],
                "args": about,
            }
        )
    return rows


def _operations(trace: Trace) -> Events:
    o = trace.operations
    rows: Events = []
    for i in range(len(o.id)):
        same = {"cat": "operation", "name": o.kind[i], "id": o.id[i], "pid": o.cta[i], "tid": o.warp[i]}
        about = {"bytes": o.bytes[i], "reads": ", ".join(o.reads[i]), "writes": ", ".join(o.writes[i])}
        about |= {"barrier": o.barrier[i], "source_line": o.source_line[i]}
        rows.append({"ph": "b", "ts": o.t_issue[i], "args": about, **same})
        rows.append({"ph": "e", "ts": o.t_end[i], **same})
    return rows


def _arrows(trace: Trace) -> Events:
    """From the issue of each operation that signals a barrier to the first wait that passes because of it."""
    b, o = trace.barriers, trace.operations
    seen: dict[tuple[int, int, int], int] = {}
    for row in np.flatnonzero(b.event == "pass").tolist():
        seen.setdefault((int(b.cta[row]), int(b.offset[row]), int(b.phase[row])), row)
    rows: Events = []
    for row in np.flatnonzero(b.by_operation & (b.event == "complete_tx")).tolist():
        passed = seen.get((int(b.cta[row]), int(b.offset[row]), int(b.phase[row]) + 1))
        if passed is None:
            continue
        i = int(b.by[row]) - 1
        same = {"cat": "signal", "name": f"{b.name[row]}", "id": o.id[i]}
        rows.append({"ph": "s", "pid": o.cta[i], "tid": o.warp[i], "ts": o.t_issue[i], **same})
        end = {"pid": b.by_cta[passed], "tid": b.by[passed], "ts": b.time[passed], "bp": "e"}
        rows.append({"ph": "f", **end, **same})
    return rows


def _counters(trace: Trace) -> Events:
    b = trace.barriers
    changes = ~np.isin(b.event.astype(str), ("wait", "pass"))
    return [
        {
            "ph": "C",
            "name": str(b.name[i]),
            "pid": b.cta[i],
            "ts": b.time[i],
            "args": {"pending": b.pending[i], "bytes": b.tx[i]},
        }
        for i in np.flatnonzero(changes).tolist()
    ]
