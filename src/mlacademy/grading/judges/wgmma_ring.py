"""Exercise 08.5: the multiplying side of a ring of two buffers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from mlacademy.gpu import LaunchPlan
from mlacademy.grading import Case, CudaExercise, Exact, KernelMistake, Launch, Out, Sign, stuck
from mlacademy.grading.judges.wgmma_mistakes import SOME_LANES, SOME_WARPS
from mlacademy.grading.judges.wgmma_tiles import Matrix, product, tiles, whole


def _cases(rng: np.random.Generator, hidden: bool) -> Iterator[Case]:
    for blocks in (1, 5) if not hidden else (2, 4, 7):
        label = "one block" if blocks == 1 else "as many blocks as stages" if blocks == 2 else "the ring goes round"
        yield Case({"a": whole(rng, 64, 64 * blocks), "b": whole(rng, 64, 64 * blocks)}, label, (("row", "column"),))


def _launch(a: Matrix, b: Matrix) -> Launch:
    return Launch(LaunchPlan(grid=1, block=160), (tiles(a), tiles(b), Out((64, 64)), a.shape[1] // 64))


def _last(a: Matrix, b: Matrix, columns: int) -> Matrix:
    return product(a[:, -columns:], b[:, -columns:])


def _first_slices(matrix: Matrix) -> Matrix:
    """The first 16 columns of each block of 64."""
    return matrix.reshape(64, -1, 64)[..., :16].reshape(64, -1)


def _waits_for_all(rows: Sequence[Mapping[str, Any]]) -> bool:
    return any(row["kind"] == "barrier" and row["object"] == "0" for row in rows)


def _waits(rows: Sequence[Mapping[str, Any]], barrier: str) -> list[Mapping[str, Any]]:
    return [row for row in rows if row["kind"] == "mbarrier" and str(row["object"]).startswith(barrier)]


def _one_stage(rows: Sequence[Mapping[str, Any]]) -> bool:
    """With one stage the barriers lie right behind a single pair of tiles."""
    return any(row["offset"] < 2 * 16_384 for row in _waits(rows, "full"))


def _some_arrived(rows: Sequence[Mapping[str, Any]]) -> bool:
    return any(0 < row["pending"] < row["expected"] for row in _waits(rows, "empty"))


def _kept(rows: Sequence[Mapping[str, Any]]) -> bool:
    """The copy waits for a stage that nobody ever gave back, and the multiplies for the block that would go there."""
    copying = [r for r in _waits(rows, "empty") if r["completed"] == 0 and r["pending"] == r["expected"]]
    return bool(copying) and any(row["completed"] == 1 and row["object"] == "full[0]" for row in _waits(rows, "full"))


RING = CudaExercise(
    id="08.5",
    title="A ring of two buffers",
    entry="ring_tile",
    points=5,
    lines=14,
    parameters=("a", "b"),
    outputs=("c",),
    cases=_cases,
    reference=product,
    compare=Exact(),
    launch=_launch,
    misconceptions=(
        SOME_LANES,
        SOME_WARPS,
        KernelMistake(
            "whole CTA",
            "__syncthreads waits for every thread of the CTA, and the copying warp never comes to it.",
            (
                "Who is the thread that the table misses?",
                "The two roles meet at mbarriers only: full and empty.",
                "All 128 threads wait for full themselves; no __syncthreads.",
            ),
            signs=(Sign("deadlock", answer=r"(?s)__syncthreads.*__syncthreads", waits=_waits_for_all),),
        ),
        KernelMistake(
            "announces",
            "You arrive at full. That barrier is the copying warp's to complete; what you give back is empty.",
            (
                "What does full announce, and what does empty?",
                "full: a block has landed. empty: a stage may be overwritten.",
                "mbarrier_arrive(&shared.empty[(i - 1) % kStages]).",
            ),
            signs=(Sign(("deadlock", "race", "arrive-count"), answer=r"mbarrier_arrive\(\s*&shared\.full"),),
        ),
        KernelMistake(
            "wrong barrier",
            "You wait for empty. It says that a stage may be overwritten, and its arrivals are your own.",
            (
                "Which barrier announces that a block has landed?",
                "The copying warp waits for empty, you wait for full.",
                "mbarrier_wait_parity(&shared.full[i % kStages], i / kStages & 1).",
            ),
            signs=(Sign("deadlock", answer=r"(?s)wait_parity\(\s*&shared\.empty.*wait_parity\(\s*&shared\.empty"),),
        ),
        KernelMistake(
            "before the first",
            "With block 0 no stage can be given back yet: (i - 1) % kStages is -1, and empty[-1] is another barrier.",
            (
                "Which stage does your kernel give back in its first round?",
                "After issuing block 0 its chain is pending, and no other has been issued.",
                "if (i > 0) mbarrier_arrive(…).",
            ),
            signs=(Sign("arrive-count", object="full"),),
        ),
        KernelMistake(
            "block not awaited",
            "The kernel ends before all blocks have landed: your loop does not wait for each of them.",
            (
                "For how many blocks does your loop wait?",
                "Every copy that is issued must be waited for, and each wait stands for one block.",
                "for (int i = 0; i < blocks; ++i), with a wait for full in each round.",
            ),
            signs=(Sign("exit-pending"),),
        ),
        KernelMistake(
            "same stage",
            "You multiply stage 0 in every round. Block i lies in stage i % kStages.",
            (
                "Where does the copying warp put block 1?",
                "The blocks go into stages 0, 1, 0, 1 …",
                "shared.a[i % kStages] and shared.b[i % kStages].",
            ),
            signs=(Sign(("race", "uninitialized"), answer=r"shared\.[ab]\[0\]"),),
        ),
        KernelMistake(
            "one waits",
            "Only some threads wait for the block. The others go on to their multiplies before it has landed.",
            (
                "What tells warp 3 that the block is there?",
                "A wait binds the threads that execute it.",
                "All 128 threads call mbarrier_wait_parity.",
            ),
            signs=(
                Sign(
                    ("race", "uninitialized"),
                    answer=r"if\s*\([^;{]*(threadIdx|elect_sync|lane)[^;{]*\)\s*\{?\s*"
                    r"mbarrier_wait_parity\(\s*&shared\.full",
                ),
            ),
        ),
        KernelMistake(
            "one buffer",
            "There is one stage, one buffer too few: it is given back only after the next block has been waited for, "
            "and that block has no other place to go.",
            (
                "Follow blocks 0 and 1 by hand: where does block 1 land, and when may it?",
                "With one chain in flight a stage is held for one block longer.",
                "kStages = 2, as it was.",
            ),
            signs=(Sign("deadlock", waits=_one_stage),),
        ),
        KernelMistake(
            "too few arrive",
            "Some threads arrive at empty, but not all: the barrier waits for 128 arrivals in each phase.",
            (
                "Read the table: how many arrivals are missing?",
                "mbarrier_init(&shared.empty[stage], 128) counts threads, not warpgroups.",
                "Every thread calls mbarrier_arrive.",
            ),
            signs=(Sign("deadlock", waits=_some_arrived),),
        ),
        KernelMistake(
            "kept",
            "A stage is never given back, or one block too late: the copying warp waits at its empty barrier, and you "
            "for the block that would go there.",
            (
                "Who waits for whom in the table?",
                "When block i - 1 has been multiplied, its stage may be overwritten. Say so.",
                "mbarrier_arrive(&shared.empty[(i - 1) % kStages]) after wgmma_wait_group<1>(d).",
            ),
            signs=(Sign("deadlock", waits=_kept),),
        ),
        KernelMistake(
            "another stage",
            "You wait for another stage than the one you multiply, and no block has been sent there.",
            (
                "Which barrier does the table name, and in which stage is the block?",
                "Block i lies in stage i % kStages, and announces itself at the barrier of that stage.",
                "mbarrier_wait_parity(&shared.full[i % kStages], …).",
            ),
            signs=(stuck("full", completed=0),),
        ),
        KernelMistake(
            "parity",
            "You wait for the wrong parity of full, or multiply another stage than you waited for: the phases of one "
            "stage have parity 0, 1, 0 …, and a stage is used every kStages blocks.",
            (
                "Write down stage and round of blocks 0 to 5.",
                "The round is i / kStages; its lowest bit is the parity.",
                "mbarrier_wait_parity(&shared.full[i % kStages], i / kStages & 1).",
            ),
            signs=(
                stuck("full"),
                Sign("race", object=r"^[ab]\[", answer=r"wait_parity\(\s*&shared\.full\[[^\]]*\],\s*[01]\s*\)"),
                Sign(
                    ("race", "uninitialized"),
                    object=r"^[ab]\[",
                    text=r"\) reads ",
                    answer=r"wait_parity\(\s*&shared\.full",
                ),
            ),
        ),
        KernelMistake(
            "no commit",
            "Your multiplies belong to no group: waiting for groups waits for nothing.",
            (
                "What does wgmma_wait_group count?",
                "A group is what stands between two commits.",
                "wgmma_commit_group() after the four multiplies of a block.",
            ),
            signs=(Sign(("race", "wgmma-wait"), lacks="wgmma_commit_group"),),
        ),
        KernelMistake(
            "not landed",
            "A block is read before it has landed: nothing makes the multiplies wait for its copy.",
            (
                "How do you know that the block is there?",
                "full[stage] ends a phase when its 16,384 bytes have come.",
                "mbarrier_wait_parity(&shared.full[i % kStages], i / kStages & 1) before the multiplies.",
            ),
            signs=(Sign(("race", "uninitialized"), object=r"^[ab]\[", lacks=r"wait_parity\(\s*&shared\.full"),),
        ),
        KernelMistake(
            "too early",
            "A stage is given back before its multiplies have ended: the next copy overwrites what they read.",
            (
                "After wgmma_wait_group<1>, which chain may still be running?",
                "The one you have just issued. The one before it has ended.",
                "After the wait, arrive for stage (i - 1) % kStages.",
            ),
            signs=(Sign("race", object=r"^[ab]\[", text="writes it"),),
        ),
        KernelMistake(
            "no fence",
            "d was written by ordinary instructions, and no wgmma_fence orders that before the multiplies.",
            (
                "Who wrote d before your loop?",
                "One instruction stands before the first multiply.",
                "wgmma_fence(d).",
            ),
            signs=(Sign("wgmma-fence"),),
        ),
        KernelMistake(
            "last chain",
            "D is read while the last chain is still pending: wait for it after the loop.",
            (
                "How many chains are pending when your loop ends?",
                "wgmma_wait_group<1> leaves one.",
                "wgmma_wait_group<0>(d) after the loop.",
            ),
            signs=(Sign("wgmma-wait"),),
        ),
        KernelMistake(
            "overwrites",
            "Only the last block is in the result: each block's first multiply overwrote the sum so far.",
            (
                "When may a multiply overwrite?",
                "Only the first slice of the first block.",
                "accumulate: i + slice > 0. d is zero at first, so true would do as well.",
            ),
            model=partial(_last, columns=64),
        ),
        KernelMistake(
            "one slice",
            "Of each block only the first 16 of 64 columns are in the result.",
            (
                "How deep is one m64n64k16?",
                "A block that is 64 deep needs four multiplies.",
                "Four times, with both descriptors 32 bytes further in each time.",
            ),
            model=lambda a, b: product(_first_slices(a), _first_slices(b)),
        ),
    ),
    hints=(
        "Block i lies in stage i % kStages; the stage's round is i / kStages.",
        "Wait for full, multiply, commit; leave one chain pending; then the block before has been read.",
        "wgmma_wait_group<1>(d); if (i > 0) mbarrier_arrive(&shared.empty[(i - 1) % kStages]); at the end wait for 0.",
    ),
)
