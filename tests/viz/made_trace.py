"""A small traced run made by hand: a producer fills a ring of buffers by TMA, a consumer multiplies and frees them.

Times follow from five numbers (below), so tests can work out what a picture must say. The columns are those of
`mlacademy.gpu.trace.Trace`.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

ISSUE, LOAD, MATH, QUEUE, BYTES = 10, 200, 120, 4, 8192
FILES = ("/src/ring.cu",)


class Table:
    """Rows under construction; `columns()` gives them as NumPy arrays, strings as objects."""

    def __init__(self, names: str) -> None:
        self.names = names.split()
        self.rows: list[tuple[Any, ...]] = []

    def add(self, *row: Any) -> None:
        assert len(row) == len(self.names)
        self.rows.append(row)

    def columns(self) -> SimpleNamespace:
        made = {}
        for i, name in enumerate(self.names):
            values = [row[i] for row in self.rows]
            column = np.empty(len(values), object)
            column[:] = values
            plain = values and all(isinstance(v, int | float) for v in values)
            made[name] = np.array(values) if plain else column
        return SimpleNamespace(**made)


def ring_trace(blocks: int = 6, stages: int = 2, ctas: int = 1, *, named: bool = True, error: Any = None) -> Any:
    """A run of `blocks` blocks through `stages` buffers in each of `ctas` CTAs, one after the other by 5 cycles."""
    spans = Table("cta warp t0 t1 kind what ptx_line source_file source_line object role instructions")
    ops = Table("id kind cta warp t_issue t_start t_read t_end bytes reads writes barrier source_line")
    barriers = Table("cta offset name time event pending expected tx phase by by_cta by_operation")
    accesses = Table("cta buffer t0 t1 mode by")
    warps, buffers = Table("cta warp role"), Table("cta name offset bytes")
    end = 0.0
    for cta in range(ctas):
        roles = ("producer", "consumer") if named else ("", "")
        for warp, role in enumerate(roles):
            warps.add(cta, warp, role)
        for s in range(stages):
            buffers.add(cta, f"k[{s}]", 1024 + BYTES * s, BYTES)
            barriers.add(cta, 8 * s, f"full[{s}]", 0.0, "init", 1, 1, 0, 0, 0, cta, False)
            barriers.add(cta, 64 + 8 * s, f"empty[{s}]", 0.0, "init", 1, 1, 0, 0, 0, cta, False)

        def span(
            warp: int, t0: float, t1: float, kind: str, what: str, line: int, on: str = "", cta: int = cta
        ) -> None:
            role = ("producer", "consumer")[warp] if named else ""
            spans.add(cta, warp, float(t0), float(t1), kind, what, 10 * line, 0, line, on, role, 1)

        def event(
            name: str, time: float, kind: str, pending: int, tx: int, phase: int, by: int, cta: int = cta
        ) -> None:
            base = 0 if name.startswith("full") else 64
            lands = name.startswith("full") and kind in ("complete_tx", "phase")
            place = base + 8 * int(name[-2])
            barriers.add(cta, place, name, float(time), kind, pending, 1, tx, phase, by, cta, lands)

        producer = consumer = 5.0 * cta
        freed = [0.0] * stages
        for k in range(blocks):
            s, turn = k % stages, k // stages
            full, empty, buffer = f"full[{s}]", f"empty[{s}]", f"k[{s}]"
            if k >= stages:
                if freed[s] > producer:
                    span(0, producer, freed[s], "wait", "mbarrier.try_wait", 20, empty)
                event(empty, producer, "wait", 1, 0, turn, 0)
                producer = max(producer, freed[s])
                event(empty, producer, "pass", 1, 0, turn, 0)
            span(0, producer, producer + ISSUE, "sync", "mbarrier.arrive.expect_tx", 21)
            event(full, producer, "expect_tx", 1, BYTES, turn, 0)
            event(full, producer, "arrive", 0, BYTES, turn, 0)
            issued = producer + ISSUE
            landed = issued + QUEUE + LOAD
            ident = len(ops.rows) + 1
            ops.add(
                ident,
                "tensor_load",
                cta,
                0,
                issued,
                issued + QUEUE,
                landed,
                landed,
                BYTES,
                ("global",),
                (buffer,),
                full,
                22,
            )
            accesses.add(cta, buffer, issued + QUEUE, landed, "write", f"operation {ident}")
            span(0, issued, issued + ISSUE, "memory", "cp.async.bulk.tensor.2d", 22)
            producer = issued + ISSUE
            if landed > consumer:
                span(1, consumer, landed, "wait", "mbarrier.try_wait", 30, full)
            event(full, consumer, "wait", 1, 0, turn, 1)
            event(full, landed, "complete_tx", 0, 0, turn, ident)
            event(full, landed, "phase", 1, 0, turn + 1, ident)
            consumer = max(consumer, landed)
            event(full, consumer, "pass", 1, 0, turn + 1, 1)
            span(1, consumer, consumer + ISSUE, "mma", "wgmma.mma_async", 31)
            begun = consumer + ISSUE
            ident = len(ops.rows) + 1
            ops.add(ident, "wgmma", cta, 1, begun, begun, begun + MATH, begun + MATH, 0, (buffer,), (), "", 31)
            accesses.add(cta, buffer, begun, begun + MATH, "read", f"operation {ident}")
            span(1, begun, begun + MATH, "wait", "wgmma.wait_group", 32, "wgmma groups")
            consumer = begun + MATH
            span(1, consumer, consumer + ISSUE, "sync", "mbarrier.arrive", 33)
            freed[s] = consumer
            event(empty, consumer, "arrive", 0, 0, turn, 1)
            event(empty, consumer, "phase", 1, 0, turn + 1, 1)
            consumer += ISSUE
        end = max(end, consumer)
    barriers.rows.sort(key=lambda row: row[3])
    return SimpleNamespace(
        spans=spans.columns(),
        operations=ops.columns(),
        barriers=barriers.columns(),
        accesses=accesses.columns(),
        warps=warps.columns(),
        buffers=buffers.columns(),
        kernel="ring",
        files=FILES,
        cycles=end,
        error=error,
    )
