"""Judge of 07.2: a ring of two stages between a copying thread and computing warps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlacademy.gpu import LaunchPlan
from mlacademy.grading.compare import Exact
from mlacademy.grading.cuda_exercise import CudaExercise, KernelMistake, Launch, Out, Sign, stuck
from mlacademy.grading.exercise import Case
from mlacademy.grading.judges.kernel_shared import EARLY, poisoned

Array = NDArray[np.float32]
TILE = 256


def _cases(rng: np.random.Generator, hidden: bool) -> Iterator[Case]:
    counts = {1: "one tile", 7: "an odd number of tiles"} if not hidden else {2: "a full ring", 3: "three", 12: "many"}
    for tiles, label in counts.items():
        source = rng.integers(-999, 999, tiles * TILE).astype(np.float32)
        yield Case({"source": source}, label, (("element",),))


def _launch(source: Array) -> Launch:
    return Launch(LaunchPlan(grid=1, block=96), (source, Out(source.shape), source.size // TILE))


def _nothing_was_filled(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the copier waits for drained although no stage that is waited for has been filled yet."""
    barriers = [row for row in rows if row["kind"] == "mbarrier"]
    copier = any("drained" in row["object"] and row["parity"] == 0 and row["completed"] == 0 for row in barriers)
    return copier and all(row["completed"] == 0 for row in barriers)


DOUBLE_TILES = CudaExercise(
    id="07.2",
    title="A ring of two stages",
    entry="double_tiles",
    points=4,
    lines=6,
    parameters=("source",),
    outputs=("target",),
    cases=_cases,
    launch=_launch,
    reference=lambda source: 2 * source,
    compare=Exact(),
    uses={
        r"cp\.async\.bulk\S*shared::cluster\.global": "double_tiles gives the right values, but not through the ring: "
        "this exercise asks for cp_async_bulk_shared_global into stage[s]."
    },
    misconceptions=(
        KernelMistake(
            key="meets-in-a-branch",
            says="Threads wait at __syncthreads(), which others never reach: each role has its own branch.",
            hints=(
                "Which threads run the line with __syncthreads()?",
                "All threads of the CTA must come to __syncthreads(). Roles in different branches meet at mbarriers.",
                "Leave it out: filled[s] and drained[s] say all that the two sides need to know.",
            ),
            signs=(Sign("deadlock", waits=lambda rows: any(row["kind"] == "barrier" for row in rows)),),
        ),
        KernelMistake(
            key="announced-without-arrival",
            says="filled expects one arrival a phase, and nobody arrives: expect_tx announces bytes and is no arrival.",
            hints=(
                "filled[s] was initialised with 1. Who is it?",
                "The copying thread announces and arrives, once a tile.",
                "mbarrier_arrive_expect_tx(&filled[s], sizeof(stage[s])).",
            ),
            signs=(
                Sign(
                    "deadlock",
                    answer=r"mbarrier_expect_tx\(&?filled",
                    lacks=r"arrive_expect_tx\(&?filled|mbarrier_arrive\(&?filled",
                ),
            ),
        ),
        KernelMistake(
            key="parity-of-the-tile",
            says="The parity you wait for at filled[s] does not follow the uses of the stage: the wait is for a phase "
            "that had ended before, or for one that nobody ends.",
            hints=(
                "Write down, for tiles 0 to 5, the stage and how often it was used before.",
                "Tile t is the (t / 2)-th use of stage t % 2. Its phase's parity is 0, 0, 1, 1, 0, 0 …",
                "mbarrier_wait_parity(&filled[s], round & 1), with round = tile / 2.",
            ),
            signs=tuple(
                Sign((*EARLY, "deadlock", "arrive-count"), answer=rf"wait_parity\w*\(&?filled\[\w+\],\s*{parity}\)")
                for parity in (
                    "[01]",
                    r"tile\s*(?:&\s*1|%\s*2)",
                    r"(?:~|!|1\s*-)[^;]*",
                    r"[^;]*\^\s*1",
                    r"[^;]*\+\s*1[^;]*",
                )
            ),
        ),
        KernelMistake(
            key="other-stage",
            says="The barrier you wait for belongs to the other stage: its phase had ended before.",
            hints=(
                "Which stage do you read, and which stage's barrier do you wait for?",
                "Each stage has its own pair of barriers; s chooses both.",
                "mbarrier_wait_parity(&filled[s], round & 1).",
            ),
            signs=(Sign((*EARLY, "deadlock", "arrive-count"), answer=r"wait_parity\w*\(&?filled(?:\[[01]\])?,"),),
        ),
        KernelMistake(
            key="arrives-at-the-wrong-barrier",
            says="The computing threads arrive at filled: more threads arrived at a barrier than it was initialised "
            "for, and nobody hands the stage back.",
            hints=(
                "Which barrier does which thread arrive at?",
                "filled expects one arrival a phase, by the copying thread; drained expects 64, by the computing ones.",
                "mbarrier_arrive(&drained[s]) in the computing threads.",
            ),
            signs=(
                Sign(
                    ("deadlock", "arrive-count"),
                    answer=r"mbarrier_arrive\(&?filled",
                    lacks=r"mbarrier_arrive\(&?drained",
                ),
            ),
        ),
        KernelMistake(
            key="too-many-arrivals",
            says="More arrivals came to a barrier in one phase than it was initialised for.",
            hints=(
                "How often does each thread arrive at each barrier, for one tile?",
                "filled: once, by the copying thread, with arrive_expect_tx. drained: once by each of the 64 threads.",
                "mbarrier_arrive_expect_tx(&filled[s], …) by thread 0, mbarrier_arrive(&drained[s]) by the others.",
            ),
            signs=(Sign("arrive-count"),),
        ),
        KernelMistake(
            key="waits-for-a-drain-that-cannot-come",
            says="In the first round, the copying thread waits for somebody to drain a stage that was never filled.",
            hints=(
                "What does the copying thread wait for before the very first copy?",
                "A fresh barrier counts as passed for parity 1. The drained barriers must let the first round through.",
                "Wait for drained[s] with the opposite parity: ~round & 1.",
            ),
            signs=(Sign("deadlock", waits=_nothing_was_filled),),
        ),
        KernelMistake(
            key="too-few-drains",
            says="A stage was not handed back: fewer than 64 threads arrived at its drained barrier.",
            hints=(
                "drained was initialised with 64. Who are they?",
                "Each of the 64 computing threads arrives once a tile, after its last read of the stage.",
                "mbarrier_arrive(&drained[s]) by every thread of warps 1 and 2.",
            ),
            signs=(stuck("drained", pending=True),),
        ),
        KernelMistake(
            key="bytes-never-announced",
            says="The copies brought bytes that nobody had announced at filled[s].",
            hints=(
                "What ends a phase of filled[s]?",
                "One arrival and the announced bytes. The copying thread gives both, once a tile.",
                "mbarrier_arrive_expect_tx(&filled[s], sizeof(stage[s])) before or after the copy.",
            ),
            signs=(stuck("filled", tx="unannounced", pending=True),),
        ),
        KernelMistake(
            key="wrong-byte-count",
            says="The bytes announced at filled[s] and the bytes copied differ. Both are counted in bytes.",
            hints=(
                "How many bytes does one tile have?",
                "A tile has 256 floats, which is 1,024 bytes; expect_tx and the copy take bytes.",
                "sizeof(stage[s]) in both places.",
            ),
            signs=(stuck("filled", pending=False, tx="unannounced"), stuck("filled", pending=False, tx="owed")),
        ),
        KernelMistake(
            key="filled-never-ends",
            says="The computing threads wait for a phase of filled that nobody ends.",
            hints=(
                "Which stage does the copying thread fill for this tile, and which one do you wait for?",
                "Tile t lies in stage t % 2 and is the (t / 2)-th use of it: the phase's parity is (t / 2) & 1.",
                "mbarrier_wait_parity(&filled[s], round & 1).",
            ),
            signs=(stuck("filled"), Sign("runaway")),
        ),
        KernelMistake(
            key="does-not-wait",
            says="A stage was read before its copy was known to be over: nobody waits for filled.",
            hints=(
                "What tells the computing threads that the tile is there?",
                "Each of the 64 threads waits for the phase of filled[s] in which the tile lands.",
                "mbarrier_wait_parity(&filled[s], round & 1) before the first read.",
            ),
            signs=(Sign(EARLY, object="stage", lacks=r"wait_parity\w*\(&?filled"),),
        ),
        KernelMistake(
            key="offset-in-bytes",
            says="An address leaves its buffer. An offset added to a pointer to float counts floats, not bytes.",
            hints=(
                "How many floats after `source` does tile 1 begin?",
                "source + n is n floats further. A tile has kTile floats and sizeof(stage[s]) bytes.",
                "source + tile * kTile; only the copy's size is in bytes.",
            ),
            signs=(Sign("bounds"),),
        ),
        KernelMistake(
            key="overwritten",
            says="A stage was filled again while it was still being read: the copy did not wait until it was drained.",
            hints=(
                "How does the copying thread know that all 64 threads are done with the stage?",
                "They arrive at drained[s] after their last read; the copy waits for that phase before it starts.",
                "Before the copy: mbarrier_wait_parity(&drained[s], ~round & 1). After the reads: mbarrier_arrive.",
            ),
            signs=(
                Sign("race", object="stage", code="cp_async"),
                Sign("race", object="stage", lacks="wait_parity.*drained"),
            ),
            when=lambda case, expected, got: _later_tile(expected, got),
        ),
        KernelMistake(
            key="read-too-early",
            says="A stage was read before its copy was known to be over: the wait was for a phase that had ended "
            "before.",
            hints=(
                "Which use of the stage does your wait stand for?",
                "Every stage is used again every second tile, and its phase's parity changes only then: 0, 0, 1, "
                "1, 0, 0 …",
                "mbarrier_wait_parity(&filled[s], round & 1), with round = tile / 2, before the first read.",
            ),
            signs=(Sign(EARLY, object="stage"),),
            when=lambda case, expected, got: _earlier_tile(expected, got),
        ),
        KernelMistake(
            key="not-all-written",
            says="Some places of target were never written.",
            hints=(
                "Which value does thread 32 take first, and where does tile 1 go?",
                "64 threads, 32 to 95, share the 256 values of a tile; tile number t begins at target[256 * t].",
                "for (uint32_t i = threadIdx.x - 32; i < kTile; i += 64) target[tile * kTile + i] = …",
            ),
            when=poisoned,
        ),
        KernelMistake(
            key="the-first-tile-again",
            says="Every tile came out as the first one: the source of the copy does not move with the tile.",
            hints=(
                "Where in the source does tile 1 begin?",
                "The copy of each tile starts kTile floats after the one before.",
                "source + tile * kTile.",
            ),
            model=lambda source: np.tile(2 * source[:TILE], len(source) // TILE),
        ),
        KernelMistake(
            key="not-doubled",
            says="The tiles are in place, but their values are not doubled.",
            hints=("What happens to each value on its way out?", "target gets twice the source.", "2 * stage[s][i]"),
            model=lambda source: source.copy(),
        ),
    ),
    hints=(
        "Two barriers a stage: filled tells the readers, drained tells the copier. Write down who arrives at which.",
        "The copier waits for drained, announces at filled, copies. The readers wait for filled, read, arrive at "
        "drained.",
        "Parities: filled with round & 1, drained with ~round & 1, where round = tile / 2.",
    ),
)


def _tiles_of_others(expected: Array, got: Array, distance: int) -> bool:
    """Whether every wrong tile of ``got`` holds numbers of the tile ``distance`` later that lay in the same stage."""
    want, have = expected.reshape(-1, TILE), np.asarray(got).reshape(-1, TILE)
    wrong = np.argwhere(want != have)
    places = [(tile + distance, i) for tile, i in wrong if 0 <= tile + distance < len(want)]
    return (
        len(wrong) > 0
        and len(places) == len(wrong)
        and all(have[tile - distance, i] == want[tile, i] for tile, i in places)
    )


def _later_tile(expected: Array, got: Array) -> bool:
    return _tiles_of_others(expected, got, 2) or _tiles_of_others(expected, got, 1)


def _earlier_tile(expected: Array, got: Array) -> bool:
    return _tiles_of_others(expected, got, -2)
