"""Exercise 08.6: two warpgroups hand a tile to each other, by named barriers, and share the registers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mlacademy.gpu import LaunchPlan
from mlacademy.grading import Case, CudaExercise, Exact, KernelMistake, Launch, Out, Sign
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
    misconceptions=(
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
    ),
    hints=(
        "Scores: make, wait until p is free, store, fence, say it is ready. Output: wait, add, say it is free.",
        "Who arrives does not wait, who waits does not arrive: a bar_arrive and a bar_sync a barrier and block.",
        "Nobody need wait for kFree before the first block, and nobody need arrive at it after the last.",
    ),
)
