"""A trace in words: cycles, what each role did, and who waited how long on what."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from mlacademy.gpu.trace import Trace

_MOST_WAITS = 12


def summary(trace: Trace) -> str:
    """Cycles of the launch; for each role its warps and the share of its time by kind; the longest waits by object."""
    spans = trace.spans
    operations = trace.operations
    lines = [
        f"{trace.kernel}: {trace.cycles:,.0f} cycles modelled, {len(trace.ctas.cta):,} CTAs, "
        f"{len(trace.warps.cta):,} warps, {len(operations.id):,} asynchronous operations"
    ]
    if trace.error is not None:
        lines.append(f"It ended with: {str(trace.error).splitlines()[0]}")
    took = spans.t1 - spans.t0
    for role in dict.fromkeys(trace.warps.role.tolist()):
        mine = spans.role == role
        if not mine.any():
            continue
        kinds = {kind: took[mine & (spans.kind == kind)].sum() for kind in dict.fromkeys(spans.kind[mine].tolist())}
        shares = sorted(kinds.items(), key=lambda item: -item[1])
        total = sum(kinds.values())
        words = ", ".join(f"{kind} {value / total:.0%}" for kind, value in shares if value >= 0.005 * total)
        lines.append(f"  {role or 'warps without a role'}: {words}")
    waits = spans.kind == "wait"
    if waits.any():
        keys = list(zip(spans.role[waits].tolist(), spans.object[waits].tolist(), strict=True))
        totals: dict[tuple[str, str], list[float]] = {}
        for key, value in zip(keys, took[waits].tolist(), strict=True):
            totals.setdefault(key, []).append(value)
        lines.append("waits, summed over warps:")
        longest = sorted(totals.items(), key=lambda item: -sum(item[1]))
        for (role, name), values in longest[:_MOST_WAITS]:
            times = f"{len(values):,} time{'s' if len(values) > 1 else ''}"
            lines.append(f"  {np.sum(values):>12,.0f}  {role or 'warps'} on {name} ({times})")
    return "\n".join(lines)
