"""Random programs: races and missing proxy fences are reported exactly where a brute-force search finds them.

A program is a sequence of steps, each of one warp; run warp by warp in that order it cannot hang. Signals and loads
have an mbarrier each that is used for one phase, so which step happens before which does not depend on the schedule,
and the oracle is reachability in a graph. Only its verdict is compared: which of several races is named is open.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pytest
from ptxrun import launch

from mlacademy import _emulator

WARPS, CELLS, BYTES = 3, 3, 128
OPTIONS = [{"order": "eager"}, {"order": "lazy"}, *({"order": "seeded", "seed": s} for s in (1, 2, 3))]


@dataclass
class Step:
    """What one warp does: ``write read fence`` a cell, ``signal`` or ``wait`` for a barrier, ``load`` or ``store`` a
    cell by a copy, ``drain`` the warp's stores, or ``meet`` (all warps)."""

    warp: int
    kind: str
    cell: int = 0
    barrier: int = 0


@dataclass
class Graph:
    """Nodes are moments: each step, and each copy on its own way."""

    edges: dict[int, set[int]] = field(default_factory=dict)

    def add(self, *before: int) -> int:
        node = len(self.edges)
        self.edges[node] = set()
        for one in before:
            self.edges[one].add(node)
        return node

    def reaches(self) -> dict[int, set[int]]:
        @cache
        def beyond(node: int) -> frozenset[int]:
            return frozenset(self.edges[node]).union(*(beyond(n) for n in self.edges[node]))

        return {node: set(beyond(node)) for node in self.edges}


def invent(rng: random.Random) -> list[Step]:
    """A random program; careful in varying degrees, so that about half of them are right."""
    steps, signalled, care = [], [], rng.random()
    for _ in range(rng.randrange(4, 22)):
        warp, cell = rng.randrange(WARPS), rng.randrange(CELLS)
        kind = rng.choices(
            ["write", "read", "load", "store", "fence", "drain", "signal", "wait", "meet"], [3, 3, 2, 2, 1, 1, 2, 3, 1]
        )[0]
        if kind in ("signal", "load"):
            signalled.append(len(signalled))
            steps.append(Step(warp, kind, cell, signalled[-1]))
        elif kind == "wait" and signalled:
            steps.append(Step(warp, kind, 0, rng.choice(signalled)))
        elif kind != "wait":
            steps.append(Step(warp, kind, cell))
        if rng.random() < care:  # everything comes to rest
            steps += [Step(w, k) for w in range(WARPS) for k in ("drain", "fence")]
            steps += [Step(w, "wait", 0, b) for w in range(WARPS) for b in signalled[-3:]]
            steps.append(Step(0, "meet"))
    return steps


def verdict(steps: list[Step]) -> set[str]:
    """What is wrong with the program: "race", "proxy", both or nothing."""
    graph = Graph()
    start = graph.add()
    last = dict.fromkeys(range(WARPS), start)
    arrivals: dict[int, list[int]] = {}
    stores: dict[int, list[int]] = {warp: [] for warp in range(WARPS)}
    fences: list[int] = [start]
    accesses = [(start, cell, True, True, start) for cell in range(CELLS)]  # node, cell, writes, generic, issued at
    for step in steps:
        if step.kind == "meet":
            node = graph.add(*last.values())
            last = dict.fromkeys(range(WARPS), node)
            continue
        node = last[step.warp] = graph.add(last[step.warp])
        if step.kind in ("write", "read"):
            accesses.append((node, step.cell, step.kind == "write", True, node))
        elif step.kind == "fence":
            fences.append(node)
        elif step.kind == "signal":
            arrivals[step.barrier] = [node]
        elif step.kind == "wait":
            for before in arrivals[step.barrier]:
                graph.edges[before].add(node)
        elif step.kind == "drain":
            for before in stores[step.warp]:
                graph.edges[before].add(node)
        else:
            copy = graph.add(node)
            accesses.append((copy, step.cell, step.kind == "load", False, node))
            if step.kind == "load":
                arrivals[step.barrier] = [node, copy]
            else:
                stores[step.warp].append(copy)
    beyond = graph.reaches()

    def before(a: int, b: int) -> bool:
        return b in beyond[a]

    found = set()
    for i, (a, cell, a_writes, a_generic, _) in enumerate(accesses):
        for b, other, b_writes, _, _ in accesses[i + 1 :]:
            if cell == other and (a_writes or b_writes) and not before(a, b) and not before(b, a):
                found.add("race")
        if not a_writes or not a_generic or a == start:
            continue
        for b, other, b_writes, b_generic, issued in accesses:
            overwritten = any(
                c == cell and w and before(a, x) and before(x, b) for x, c, w, _, _ in accesses if x not in (a, b)
            )
            if cell == other and not b_writes and not b_generic and before(a, b) and not overwritten:
                fenced = any(before(a, f) and before(f, issued) for f in fences)
                if not fenced:
                    found.add("proxy")
    return found


CODE = {
    "write": "st.shared.u32 [%own+{at}], %r0;",
    "read": "ld.shared.u32 %r1, [%own+{at}];",
    "fence": "fence.proxy.async.shared::cta;",
    "signal": "@%first mbarrier.arrive.shared::cta.b64 _, [%bars+{bar}];",
    "wait": "L{n}: mbarrier.try_wait.parity.shared::cta.b64 %done, [%bars+{bar}], 0; @!%done bra L{n};",
    "drain": "@%first cp.async.bulk.wait_group.read 0; bar.warp.sync -1;",
    "meet": "bar.sync 0;",
    "load": """@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bars+{bar}], 128;
        @%first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes
        [%base+{at}], [%d0], 128, [%bars+{bar}];""",
    "store": """@%first cp.async.bulk.global.shared::cta.bulk_group [%d1], [%base+{at}], 128;
        @%first cp.async.bulk.commit_group;""",
}


def ptx(steps: list[Step]) -> str:
    barriers = 1 + max((s.barrier for s in steps), default=0)
    lines = [
        ".visible .entry k(.param .u64 source, .param .u64 sink) {",
        f".shared .align 128 .b8 cells[{CELLS * BYTES}]; .shared .align 8 .b64 bars[{barriers}];",
        ".reg .b32 %r<3>; .reg .b32 %tid, %warp, %base, %own, %bars; .reg .b64 %d<2>; .reg .pred %first, %done, %p0;",
        "ld.param.u64 %d0, [source]; ld.param.u64 %d1, [sink]; mov.u32 %tid, %tid.x; shr.u32 %warp, %tid, 5;",
        "and.b32 %r0, %tid, 31; setp.eq.s32 %first, %r0, 0; mov.u32 %base, cells; mov.u32 %bars, bars;",
        "mad.lo.s32 %own, %r0, 4, %base; setp.ne.s32 %p0, %warp, 0; @%p0 bra READY;",
        *(f"@%first mbarrier.init.shared::cta.b64 [%bars+{8 * b}], 1;" for b in range(barriers)),
        *(f"st.shared.u32 [%own+{BYTES * cell}], 0;" for cell in range(CELLS)),
        "fence.proxy.async.shared::cta; READY: bar.sync 0;",
        *(f"setp.eq.s32 %p0, %warp, {warp}; @%p0 bra W{warp};" for warp in range(WARPS)),
    ]
    for warp in range(WARPS):
        lines.append(f"W{warp}:")
        for n, step in enumerate(steps):
            if step.kind == "meet" or step.warp == warp:
                lines.append(CODE[step.kind].format(at=BYTES * step.cell, bar=8 * step.barrier, n=f"{warp}_{n}"))
        lines.append("@%first cp.async.bulk.wait_group 0; ret;")
    return "\n".join([*lines, "}"])


def reports(text: str, options: dict[str, object]) -> str:
    try:
        launch(text, np.zeros(32, np.uint32), np.zeros(32, np.uint32), block=(32 * WARPS, 1, 1), **options)
    except (_emulator.Race, _emulator.ProxyError) as error:
        return error.rule
    return ""


@pytest.mark.parametrize("seed", range(12))
def test_reports_agree_with_reachability(seed: int) -> None:
    rng = random.Random(seed)
    verdicts = []
    for _ in range(25):
        steps = invent(rng)
        wrong = verdict(steps)
        verdicts.append(bool(wrong))
        for options in OPTIONS:
            said = reports(ptx(steps), {**options, "check": ("race", "proxy")})
            assert said in (wrong or {""}), (steps, wrong, options)
    assert 3 < sum(verdicts) < 22  # right programs and wrong ones
