"""Judge of 07.1: one bulk copy, one mbarrier."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from mlacademy.gpu import LaunchPlan
from mlacademy.grading.compare import Exact
from mlacademy.grading.cuda_exercise import CudaExercise, KernelMistake, Launch, Out, Sign, stuck
from mlacademy.grading.exercise import Case
from mlacademy.grading.judges.kernel_shared import EARLY, INIT_NOT_FENCED, never_written, poisoned

Array = NDArray[np.float32]


def _cases(rng: np.random.Generator, hidden: bool) -> Iterator[Case]:
    sizes = (
        {1024: "a full tile", 300: "a part of a tile"} if not hidden else {4: "16 bytes", 772: "a part", 1024: "full"}
    )
    for size, label in sizes.items():
        yield Case({"source": rng.standard_normal(size).astype(np.float32)}, label, (("element",),))


def _launch(source: Array) -> Launch:
    return Launch(LaunchPlan(grid=1, block=128), (source, Out(source.shape), source.nbytes))


COPY_TILE = CudaExercise(
    id="07.1",
    title="Copy a tile and wait for it",
    entry="copy_tile",
    points=3,
    lines=7,
    parameters=("source",),
    outputs=("target",),
    cases=_cases,
    launch=_launch,
    reference=lambda source: source.copy(),
    compare=Exact(),
    uses={
        r"cp\.async\.bulk\S*shared::cluster\.global": "copy_tile gives the right values, but not by a bulk copy: "
        "this exercise asks for cp_async_bulk_shared_global."
    },
    misconceptions=(
        KernelMistake(
            key="every-thread",
            says="Several threads started the copy and arrived; one copy is enough, and one arrival expected.",
            hints=(
                "How many threads does a bulk copy need?",
                "A bulk copy is started by one thread; the copy engine moves all bytes. 128 threads start 128 copies.",
                "Put expect and copy behind threadIdx.x == 0; the wait is for all threads.",
            ),
            signs=(
                Sign("arrive-count"),
                Sign("race", object="tile", code="cp_async", text=r"^[^\n]*a bulk copy of[^\n:]*a bulk copy of"),
            ),
        ),
        KernelMistake(
            key="not-initialised",
            says="The barrier was used before mbarrier_init had run for all threads to see.",
            hints=(
                "When does thread 100 know that thread 0 has initialised the barrier?",
                "One thread runs mbarrier_init and the fence; the others must not look at the barrier before.",
                "mbarrier_init, fence_mbarrier_init, then __syncthreads() for everybody.",
            ),
            signs=(Sign("barrier-init"), Sign(EARLY, object="landed")),
        ),
        INIT_NOT_FENCED,
        KernelMistake(
            key="bytes-never-announced",
            says="The copy brought bytes that nobody had announced: no expect_tx comes before the wait.",
            hints=(
                "What does the barrier count besides arrivals?",
                "The phase ends when no arrival and no byte is missing: announce the bytes before you wait for them.",
                "mbarrier_arrive_expect_tx(&landed, bytes) announces and arrives in one step.",
            ),
            signs=(stuck("landed", pending=True, tx="unannounced"),),
        ),
        KernelMistake(
            key="too-few-announced",
            says="You announced fewer bytes than the copy brings. expect_tx counts bytes, not elements.",
            hints=(
                "Compare the number you announce with the number you copy.",
                "complete_tx takes off what lands. What is left must be exactly zero, or the phase never ends.",
                "Announce `bytes`, the same number that the copy gets.",
            ),
            signs=(stuck("landed", pending=False, tx="unannounced"),),
        ),
        KernelMistake(
            key="too-many-announced",
            says="You announced more bytes than the copy brings, so the barrier waits for bytes that never come.",
            hints=(
                "Compare the number you announce with the number you copy.",
                "Announce once, by one thread, what the copy brings; the whole tile is right only for a full tile.",
                "`bytes` in both places, in mbarrier_arrive_expect_tx and in the copy.",
            ),
            signs=(stuck("landed", pending=False, tx="owed"),),
        ),
        KernelMistake(
            key="other-parity",
            says="You waited for parity 1. On a fresh barrier that is the phase before the first, which counts "
            "as over.",
            hints=(
                "Which phase is a fresh barrier in?",
                "Phases alternate in parity and begin with 0. A wait for parity p returns when the phase of "
                "parity p is over.",
                "The copy belongs to the first phase: mbarrier_wait_parity(&landed, 0).",
            ),
            signs=(stuck("landed", parity=1), Sign(EARLY, object="tile", answer=r"wait_parity\w*\(&?landed,\s*1")),
        ),
        KernelMistake(
            key="announced-without-arrival",
            says="The bytes came and went, but the arrival that mbarrier_init asked for is missing.",
            hints=(
                "mbarrier_init(&landed, n): who are the n?",
                "A phase needs its arrivals and its bytes. expect_tx alone is no arrival, and only threads that "
                "arrive count.",
                "Init with 1 and let the copying thread call mbarrier_arrive_expect_tx once.",
            ),
            signs=(stuck("landed", pending=True),),
        ),
        KernelMistake(
            key="copied-too-little",
            says="A part of the tile was read that no copy had written. A copy's size counts bytes, not elements.",
            hints=(
                "How many bytes does the copy bring, and how many does the last loop read?",
                "A float has 4 bytes, and `bytes` counts bytes already.",
                "cp_async_bulk_shared_global(tile, source, bytes, &landed).",
            ),
            signs=(Sign("uninitialized", object="tile", when=never_written),),
        ),
        KernelMistake(
            key="read-too-early",
            says="The tile was read before the copy was known to be over.",
            hints=(
                "Which line makes a thread sure that the bytes are there?",
                "An arrival without announced bytes ends the phase at once. A thread that does not wait itself must "
                "meet one that has.",
                "Announce with mbarrier_arrive_expect_tx; every thread: mbarrier_wait_parity(&landed, 0).",
            ),
            signs=(Sign(EARLY, object="tile"), Sign("exit-pending")),
            when=poisoned,
        ),
    ),
    hints=(
        "Four steps: prepare the barrier, announce, copy, wait. Who does each?",
        "One thread prepares, announces and copies. All threads meet after the preparation, and all wait at the end.",
        "mbarrier_init + fence_mbarrier_init, __syncthreads, mbarrier_arrive_expect_tx + cp_async_bulk_shared_global, "
        "mbarrier_wait_parity(&landed, 0).",
    ),
)
