"""Exercise 08.6: two warpgroups hand a tile to each other, by named barriers, and share the registers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from mlacademy.gpu import LaunchPlan
from mlacademy.grading import Case, CudaExercise, Exact, KernelMistake, Launch, Out, Sign, stuck
from mlacademy.grading.judges.wgmma_mistakes import SOME_LANES
from mlacademy.grading.judges.wgmma_tiles import Matrix, product, tiles, whole


def _cases(rng: np.random.Generator, hidden: bool) -> Iterator[Case]:
    for blocks in (1, 3) if not hidden else (2, 3):
        label = "one block" if blocks == 1 else "the tile is used again"
        inputs = {"q": whole(rng, 64, 64, 1), "kv": whole(rng, 64 * blocks, 64, 1)}
        yield Case(inputs, label, (("query", "dimension"),))


def _launch(q: Matrix, kv: Matrix) -> Launch:
    return Launch(LaunchPlan(grid=1, block=384), (tiles(q), tiles(kv), Out((64, 64)), len(kv) // 64))


def _output(q: Matrix, kv: Matrix) -> Matrix:
    return product(product(q, kv), kv.T)


def _last_block(q: Matrix, kv: Matrix) -> Matrix:
    return _output(q, kv[-64:])


def _nothing_stored(case: Case, expected: Any, got: Any) -> bool:
    return bool(np.isnan(np.asarray(got)).all())


def _both_wait(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Both warpgroups wait at a named barrier: one at kReady, the other at kFree."""
    return {"1", "2"} <= {str(row["object"]) for row in rows if row["kind"] == "barrier"}


HAND_OVER = CudaExercise(
    id="08.6",
    title="Two warpgroups hand a tile to each other",
    entry="hand_over",
    points=6,
    lines=20,
    parameters=("q", "kv"),
    outputs=("out",),
    cases=_cases,
    reference=_output,
    compare=Exact(),
    launch=_launch,
    uses={
        r"setmaxnreg\.dec\S* 40;": "The result is right, but warpgroup 0 does not go down to 40 registers.",
        r"setmaxnreg\.inc\S* 232;": "The result is right, but the other two warpgroups do not take what warpgroup 0 "
        "leaves: (504 - 40) / 2 = 232 each.",
    },
    misconceptions=(
        SOME_LANES,
        KernelMistake(
            "part of a warpgroup",
            "Only some warps or threads execute your setmaxnreg. It moves the registers of a whole warpgroup at once.",
            (
                "Which threads does your branch let through?",
                "The whole warpgroup gives its registers away, also the warps that do nothing afterwards.",
                "setmaxnreg_dec<40>() for all of group 0, then if (threadIdx.x == 0) load(…).",
            ),
            signs=(Sign("setmaxnreg", text="four warps"), Sign("aligned-divergence", text="setmaxnreg")),
        ),
        KernelMistake(
            "nobody gives",
            "Two warpgroups wait for registers, and none gives any away: the start hands out the whole pool.",
            (
                "Whose registers could the other two get?",
                "Warpgroup 0 starts with 168 and needs 40.",
                "setmaxnreg_dec<40>() in all of warpgroup 0.",
            ),
            signs=(Sign("deadlock", text="setmaxnreg", lacks="setmaxnreg_dec<"),),
        ),
        KernelMistake(
            "registers",
            "The warpgroups ask for more registers than there are: 168 for each of three makes 504 to share.",
            (
                "What does the kernel start with, and who gives how much away?",
                "Three warpgroups of 168: 504. The first keeps 40.",
                "(504 - 40) / 2 = 232 for each of the other two.",
            ),
            signs=(Sign("setmaxnreg"), Sign("deadlock", text="setmaxnreg")),
        ),
        KernelMistake(
            "all load",
            "More than one thread calls load: each announces the bytes and issues the copies, but full expects one.",
            (
                "How many arrivals does full wait for?",
                "A copy is issued by one thread, and moves the whole tile.",
                "if (threadIdx.x == 0) load(shared, &q_map, &kv_map, blocks).",
            ),
            signs=(Sign("arrive-count", object="full"),),
        ),
        KernelMistake(
            "first block",
            "The scores warpgroup waits for kFree before its first block, and nobody has said so: p was free from the "
            "start.",
            (
                "Who arrives at kFree before block 0, in your kernel?",
                "The output warpgroup says free after it has read p, which it cannot before p is ready.",
                "if (block > 0) bar_sync(kFree, 256).",
            ),
            signs=(Sign("deadlock", waits=_both_wait, lacks=r"if\s*\([^;]*\)\s*\{?\s*bar_sync\(\s*kFree"),),
        ),
        KernelMistake(
            "too many expected",
            "Your barriers count more threads than come: two warpgroups meet there, 256 threads.",
            (
                "Whom does the count of a named barrier include?",
                "Warpgroup 0 never comes to these barriers.",
                "256 in all four calls.",
            ),
            signs=(Sign("deadlock", answer=r"bar_(sync|arrive)\(\s*k\w+,\s*(384|512|1024)\s*\)"),),
        ),
        KernelMistake(
            "count",
            "Your barriers count 128 threads: one warpgroup completes them alone, and the other one never meets it. "
            "It is 256: 128 that arrive and 128 that wait.",
            (
                "Whom does the count of a named barrier include?",
                "All threads that come to it in one phase, whether they wait or not.",
                "256 in all four calls.",
            ),
            signs=(Sign(("race", "uninitialized", "deadlock"), answer=r"bar_(sync|arrive)\(\s*k\w+,\s*128\s*\)"),),
        ),
        KernelMistake(
            "proxy",
            "p is written by ordinary stores and read by wgmma, which takes another way to shared memory: "
            "the proxy fence between them is missing.",
            (
                "Stores of threads and reads of wgmma go through different proxies.",
                "Every thread that stored fences, before it says that p is ready.",
                "fence_proxy_async_shared_cta() between store_scores and bar_arrive(kReady, 256).",
            ),
            signs=(Sign("proxy", object="^p"),),
        ),
        KernelMistake(
            "one barrier",
            'One named barrier serves both ways. Its phases mix arrivals that mean "ready" with arrivals that mean '
            '"free": take two barriers.',
            (
                "Two warpgroups wait at the same barrier. What does its end tell each of them?",
                "p complete and p free are two announcements.",
                "kReady from scores to output, kFree from output to scores.",
            ),
            signs=(Sign(("race", "deadlock", "uninitialized"), answer=r"(?s)bar_sync\(\s*(k\w+).*bar_sync\(\s*\1"),),
        ),
        KernelMistake(
            "never free",
            "Nothing tells the scores warpgroup that p has been read: it stores the next block over it.",
            (
                "With one block your kernel is right. What is new with the second?",
                "The scores warpgroup must know that the output warpgroup is through with p.",
                "output: bar_arrive(kFree, 256) after add_output; scores: bar_sync(kFree, 256) before store_scores.",
            ),
            signs=(Sign(("race", "deadlock"), lacks=r"bar_sync\(\s*kFree"),),
        ),
        KernelMistake(
            "not ready",
            "The output warpgroup reads p before it is complete: it does not wait for kReady, or kReady comes before "
            "the stores.",
            (
                "What must have happened before add_output may run?",
                "All 128 threads have stored and fenced, then arrived; the output warpgroup has waited.",
                "scores: store, fence, bar_arrive(kReady, 256). output: bar_sync(kReady, 256), add.",
            ),
            signs=(
                Sign("uninitialized", object="^p"),
                Sign("race", object="^p", lacks=r"bar_sync\(\s*kReady"),
                Sign("race", object="^p", answer=r"(?s)bar_arrive\(\s*kReady.*store_scores\(\s*shared"),
                Sign("race", object="^p", answer=r"(?s)bar_arrive\(\s*kReady[^}]*add_output\("),
            ),
        ),
        KernelMistake(
            "overwritten",
            "p is overwritten while the output warpgroup still reads it: it is called free too early.",
            (
                "When has p been read?",
                "add_output returns when its multiplies have ended.",
                "bar_arrive(kFree, 256) after add_output.",
            ),
            signs=(Sign("race", object="^p"),),
        ),
        KernelMistake(
            "free not said",
            "The scores warpgroup waits for kFree, and the output warpgroup does not say it in the round before.",
            (
                "After which blocks does each warpgroup come to kFree?",
                "For every block but the first somebody waits, so after every block but the last somebody arrives.",
                "scores: if (block > 0) bar_sync. output: if (block + 1 < blocks) bar_arrive.",
            ),
            signs=(Sign("deadlock", waits=_both_wait),),
        ),
        KernelMistake(
            "nothing loaded",
            "Everyone waits for the copies, and nobody issues them.",
            (
                "Which barrier does the table name, and who arrives there?",
                "load announces the bytes at full and issues the copies.",
                "Warpgroup 0: if (threadIdx.x == 0) load(shared, &q_map, &kv_map, blocks).",
            ),
            signs=(stuck("^full", completed=0),),
        ),
        KernelMistake(
            "starts afresh",
            "Only the last block is in the result: o is made anew in each round.",
            (
                "With one block your kernel is right. What is new with the second?",
                "add_output adds to o from the second block on. What is in it then?",
                "float o[32] = {}; before the loop.",
            ),
            model=_last_block,
        ),
        KernelMistake(
            "not stored",
            "Nothing has been stored: out still holds what was in it.",
            (
                "Which piece brings o to memory, and who calls it?",
                "The output warpgroup, when it has added all blocks.",
                "store_output(out, o) after the loop.",
            ),
            when=_nothing_stored,
        ),
    ),
    hints=(
        "Scores: make, wait until p is free, store, fence, say it is ready. Output: wait, add, say it is free.",
        "Who arrives does not wait, who waits does not arrive: a bar_arrive and a bar_sync a barrier and block.",
        "Nobody need wait for kFree before the first block, and nobody need arrive at it after the last.",
    ),
)
