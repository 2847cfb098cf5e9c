"""Judge of 07.5: two CTAs load one half each and multicast it to both."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from mlacademy.gpu import LaunchPlan
from mlacademy.grading.compare import Exact
from mlacademy.grading.cuda_exercise import CudaExercise, KernelMistake, Launch, Out, Sign, stuck
from mlacademy.grading.exercise import Case
from mlacademy.grading.judges.kernel_shared import EARLY, INIT_NOT_FENCED, poisoned

Array = NDArray[np.float32]
TILE = 512
HALF_BYTES = TILE // 2 * 4
ENDED_EARLY = (*EARLY, "exit-pending", "remote-exited")


def _cases(rng: np.random.Generator, hidden: bool) -> Iterator[Case]:
    counts = {1: "one cluster"} if not hidden else {2: "two clusters", 3: "three clusters"}
    for clusters, label in counts.items():
        source = rng.integers(-500, 500, (clusters, TILE)).astype(np.float32)
        yield Case({"source": source}, label, (("cluster", "CTA", "element"),))


def _launch(source: Array) -> Launch:
    plan = LaunchPlan(grid=2 * len(source), block=128, cluster=2)
    return Launch(plan, (source, Out((len(source), 2, TILE))))


def _reference(source: Array) -> Array:
    return np.stack([source, 2 * source], axis=1)


def _one_place(source: Array, kept: int) -> Array:
    """Both halves copied to the front: the one that landed last is seen, behind it poison."""
    seen = np.full_like(source, np.nan)
    seen[:, : TILE // 2] = source.reshape(-1, 2, TILE // 2)[:, kept]
    return _reference(seen)


SHARE_TILE = CudaExercise(
    id="07.5",
    title="Load halves, multicast them",
    entry="share_tile",
    points=3,
    lines=8,
    parameters=("source",),
    outputs=("target",),
    cases=_cases,
    launch=_launch,
    reference=_reference,
    compare=Exact(),
    uses={
        r"cp\.async\.bulk\S*multicast::cluster": "share_tile gives the right values, but every CTA loads all of them: "
        "this exercise asks for cp_async_bulk_shared_global_multicast."
    },
    misconceptions=(
        KernelMistake(
            key="peer-not-ready",
            says="A multicast reached a CTA whose barrier was not initialised yet: nothing had made sure that it was.",
            hints=(
                "How does CTA 0 know that CTA 1 has initialised its barrier?",
                "A multicast signals the barrier of every CTA in the mask. __syncthreads() meets only the own threads.",
                "mbarrier_init, fence_mbarrier_init, cluster_sync(), and only then the multicast.",
            ),
            signs=(Sign("barrier-init"), Sign(("race", "uninitialized"), object="landed")),
        ),
        INIT_NOT_FENCED,
        KernelMistake(
            key="read-too-early",
            says="The tile was read before both halves were known to be there.",
            hints=(
                "Which line makes a thread sure that both halves have landed?",
                "The own barrier's phase ends when one arrival and all announced bytes are in.",
                "mbarrier_wait_parity(&landed, 0) by all threads.",
            ),
            signs=(
                Sign(ENDED_EARLY, lacks=r"wait_parity|test_wait|try_wait"),
                Sign(ENDED_EARLY, answer=r"wait_parity\w*\(&?landed,\s*1\)"),
            ),
            when=poisoned,
        ),
        KernelMistake(
            key="announced-by-one",
            says="Bytes landed at the barrier of a CTA that had not announced them: each CTA expects for itself.",
            hints=(
                "How many barriers does a multicast to two CTAs signal?",
                "Every CTA in the mask gets the data and counts the bytes at its own barrier, so every CTA announces.",
                "mbarrier_arrive_expect_tx(&landed, …) by one thread of each CTA.",
            ),
            signs=(stuck("landed", pending=True, tx="unannounced"),),
        ),
        KernelMistake(
            key="too-few-announced",
            says="More bytes landed than were announced: two multicasts of half a tile end at each barrier, a "
            "whole tile in all.",
            hints=(
                "Count the copies whose mask holds this CTA, and their bytes.",
                "One from each rank, half a tile each. Loading the whole tile twice would bring two tiles.",
                "Announce sizeof(tile); each rank copies sizeof(tile) / 2.",
            ),
            signs=(
                stuck("landed", pending=False, tx="unannounced"),
                Sign(ENDED_EARLY, answer=r"expect_tx\(&?landed,\s*(sizeof\(tile\)\s*/\s*2|1024)\)"),
            ),
        ),
        KernelMistake(
            key="copied-too-little",
            says="The copies bring fewer bytes than a half has. A copy's size counts bytes, not floats.",
            hints=(
                "How many bytes does half a tile have?",
                "256 floats are 1,024 bytes. Offsets into tile and source count floats, the size counts bytes.",
                "The size is sizeof(tile) / 2.",
            ),
            signs=(
                Sign(
                    "deadlock", waits=lambda rows: any(row.get("tx", 0) > 0 and row["tx"] % HALF_BYTES for row in rows)
                ),
            ),
        ),
        KernelMistake(
            key="not-multicast",
            says="A CTA waits for bytes that were never sent to it: a half was not loaded, or went to one CTA only.",
            hints=(
                "Which CTAs are in the mask?",
                "Bit r of the mask stands for rank r. Both CTAs need both halves.",
                "The mask is 3 (binary 11) in both CTAs.",
            ),
            signs=(stuck("landed", pending=False, tx="owed"),),
        ),
        KernelMistake(
            key="arrivals-missing",
            says="An arrival is missing at the barrier: copies bring bytes, never arrivals.",
            hints=(
                "How many arrivals did mbarrier_init ask for?",
                "One thread of each CTA announces and arrives; no other CTA's copy arrives for it.",
                "mbarrier_init(&landed, 1) and mbarrier_arrive_expect_tx(&landed, sizeof(tile)).",
            ),
            signs=(stuck("landed", pending=True),),
        ),
        KernelMistake(
            key="every-thread",
            says="Several threads of a CTA announced, arrived or copied; one does all three.",
            hints=(
                "How many threads does a copy need?",
                "One thread of each CTA announces the whole tile, arrives and starts its half.",
                "if (threadIdx.x == 0) { … }, then all threads wait.",
            ),
            signs=(Sign("arrive-count"),),
        ),
        KernelMistake(
            key="offset-in-bytes",
            says="An address leaves its buffer. An offset added to a pointer to float counts floats, not bytes.",
            hints=(
                "Where does the second half begin, in floats?",
                "tile + n is n floats further, and so is source + n; half a tile has 256 floats.",
                "tile + 256 * rank and source + 256 * rank.",
            ),
            signs=(Sign("bounds"),),
        ),
        KernelMistake(
            key="mask",
            says="The mask names no CTA, or one that is not in the cluster.",
            hints=(
                "What does each bit of the mask stand for?",
                "The mask is no rank and no count: bit r is rank r.",
                "The mask is 3 (binary 11).",
            ),
            signs=(Sign("multicast-mask"),),
        ),
        KernelMistake(
            key="everything-twice",
            says="Each CTA multicast the whole tile, so everything was loaded and written twice.",
            hints=(
                "How often does each byte of the tile leave global memory?",
                "The work is shared: each rank loads one half, and the multicast brings it to both.",
                "Copy sizeof(tile) / 2 bytes, from source + 256 * rank to tile + 256 * rank.",
            ),
            signs=(Sign(ENDED_EARLY, answer=r"multicast\([^;]*,\s*(sizeof\(tile\)|2048)\s*,"),),
        ),
        KernelMistake(
            key="halves-on-top",
            says="Both halves went to the same place of the tile.",
            hints=(
                "Where does rank 1's half belong?",
                "A multicast writes at the same offset in every CTA: the offset is chosen by the sender.",
                "Target tile + 256 * rank, source + 256 * rank.",
            ),
            signs=(Sign("race", object="tile", code="multicast", text=r"^[^\n]*copy[^\n]*copy"),),
            when=lambda case, expected, got: any(
                np.array_equal(_one_place(case.inputs["source"], kept), got, equal_nan=True) for kept in (0, 1)
            ),
        ),
        KernelMistake(
            key="same-half-twice",
            says="Both CTAs loaded the same half of the source.",
            hints=(
                "What differs between the two CTAs' copies?",
                "Rank r loads half r: source and target both move with the rank.",
                "source + 256 * rank into tile + 256 * rank.",
            ),
            model=lambda source: _reference(np.concatenate([source[:, : TILE // 2]] * 2, axis=1)),
        ),
        KernelMistake(
            key="halves-exchanged",
            says="The halves changed places: the first half of the source went behind the second.",
            hints=(
                "Where in the tile does the half of rank 0 belong?",
                "Source and target move together: half r of the source is half r of the tile.",
                "tile + 256 * rank from source + 256 * rank.",
            ),
            model=lambda source: _reference(np.roll(source, TILE // 2, axis=1)),
        ),
    ),
    hints=(
        "Each CTA needs a barrier of its own, known to the other, and announces what will land there.",
        "Two copies end at each CTA: its own and the other's. Together they are one tile.",
        "cp_async_bulk_shared_global_multicast(tile + 256 * rank, source + 256 * rank, sizeof(tile) / 2, &landed, 3).",
    ),
)
