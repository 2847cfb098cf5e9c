"""Exercise 09.1: the waits, arrivals and fences of three roles around two buffers and a tile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlacademy.gpu import LaunchPlan
from mlacademy.grading import Case, CudaExercise, Exact, KernelMistake, Launch, Out, Sign, stuck
from mlacademy.grading.judges.kernel_shared import EARLY
from mlacademy.grading.judges.wgmma_mistakes import SOME_LANES
from mlacademy.grading.judges.wgmma_tiles import Matrix, product

Codes = NDArray[np.int8]
Rows = Sequence[Mapping[str, Any]]
KEPT, ALL = 128, 256


def _cases(rng: np.random.Generator, hidden: bool) -> Iterator[Case]:
    for blocks in (1, 5) if not hidden else (2, 3, 6):
        label = "one block" if blocks == 1 else "as many blocks as buffers" if blocks == 2 else "the buffers go round"
        q, rows = (rng.integers(-1, 2, (64 * n, 64)).astype(np.int8) for n in (1, blocks))
        yield Case({"q": q, "rows": rows}, label, (("query", "dimension"),))


def _launch(q: Codes, rows: Codes) -> Launch:
    return Launch(LaunchPlan(grid=1, block=384), (q, rows, Out((64, 64)), len(rows) // 64))


def _output(q: Codes, rows: Codes) -> Matrix:
    return product(product(q, rows), rows.T)


def _last_block(q: Codes, rows: Codes) -> Matrix:
    return _output(q, rows[-64:])


def _row(rows: Rows, barrier: str) -> list[Mapping[str, Any]]:
    return [row for row in rows if row["kind"] == "mbarrier" and str(row["object"]).startswith(barrier)]


def _one_role_kept(rows: Rows) -> bool:
    """Of the two that must give a buffer back, one warpgroup has and the other has not, and nobody waits for p."""
    kept = any(row["pending"] == KEPT and row["expected"] == ALL for row in _row(rows, "k_empty"))
    return kept and "2" not in _named(rows)


def _nobody_gave(rows: Rows) -> bool:
    return any(row["pending"] == ALL and row["completed"] == 0 and row["parity"] == 0 for row in _row(rows, "k_empty"))


def _some_arrived(rows: Rows) -> bool:
    return any(row["pending"] % KEPT for row in _row(rows, "k_"))


def _named(rows: Rows) -> set[str]:
    """The named barriers of p at which somebody waits."""
    return {"1", "2"} & {str(row["object"]) for row in rows if row["kind"] == "barrier"}


def _at_p(rows: Rows) -> bool:
    """Somebody waits at a named barrier for p to be free or ready."""
    return bool(_named(rows))


def _both_at_p(rows: Rows) -> bool:
    """scores waits for p to be free, values for it to be ready."""
    return _named(rows) == {"1", "2"}


def _nothing_stored(case: Case, expected: Any, got: Any) -> bool:
    return bool(np.isnan(np.asarray(got)).all())


THREE_ROLES = CudaExercise(
    id="09.1",
    title="The meetings of three roles",
    entry="three_roles",
    points=6,
    lines=26,
    parameters=("q", "rows"),
    outputs=("out",),
    cases=_cases,
    reference=_output,
    compare=Exact(),
    launch=_launch,
    uses={
        r"mbarrier\.(try|test)_wait": "The result is right, but no role waits at k_full or k_empty: "
        "the roles do not work side by side.",
    },
    misconceptions=(
        SOME_LANES,
        KernelMistake(
            "whole CTA",
            "__syncthreads waits for all three roles, and they do not come to it in the same rounds.",
            (
                "Which of the three roles comes to your __syncthreads, and how often?",
                "Each role goes through its blocks at its own pace; they meet at the four kinds of barriers only.",
                "No __syncthreads in the gap.",
            ),
            signs=(Sign(("deadlock", *EARLY), answer=r"(?s)__syncthreads.*__syncthreads"),),
        ),
        KernelMistake(
            "count",
            "Your named barriers do not count 256 threads: 128 of one role arrive, 128 of the other wait.",
            (
                "Whom does the count of a named barrier include?",
                "All threads that come to it in one phase, whether they wait or not.",
                "256 in all calls of bar_sync and bar_arrive.",
            ),
            signs=(Sign(("deadlock", *EARLY), answer=r"bar_(sync|arrive)\(\s*k\w+,\s*(?!256\b)\d+\s*\)"),),
        ),
        KernelMistake(
            "k not fenced",
            "gather stores k with ordinary instructions and wgmma reads it another way: the proxy fence between them "
            "is missing.",
            (
                "Stores of threads and reads of wgmma go through different proxies.",
                "Every thread that stored fences, before it says that the block is there.",
                "fence_proxy_async_shared_cta() between fill and mbarrier_arrive(&shared.k_full[stage]).",
            ),
            signs=(Sign("proxy", object=r"^k\["),),
        ),
        KernelMistake(
            "p not fenced",
            "scores stores p with ordinary instructions and wgmma reads it another way: the proxy fence between them "
            "is missing.",
            (
                "You fenced k. What else is stored by threads and multiplied?",
                "Every thread that stored p fences, before it says that p is complete.",
                "fence_proxy_async_shared_cta() between store_p and bar_arrive(kReady, 256).",
            ),
            signs=(Sign("proxy", object="^p"),),
        ),
        KernelMistake(
            "first round",
            "gather waits for a buffer that has been free from the start: for the first round of k_empty the parity "
            "is 1.",
            (
                "Who could arrive at k_empty before the first block is there?",
                "A fresh barrier lets a wait for parity 1 through at once.",
                "mbarrier_wait_parity(&shared.k_empty[stage], (block / 2 + 1) & 1).",
            ),
            signs=(Sign("deadlock", waits=_nobody_gave),),
        ),
        KernelMistake(
            "one role gives back",
            "Only one of the two multiplying roles gives the buffer back, and k_empty counts 256 arrivals.",
            (
                "Read the table: how many of the 256 arrivals are missing at k_empty?",
                "scores reads a block as keys, values reads it as values.",
                "Both arrive: scores after make_scores, values after add_output.",
            ),
            signs=(Sign("deadlock", waits=_one_role_kept),),
        ),
        KernelMistake(
            "some arrive",
            "Some threads of a role arrive and others do not: the barriers count 128 and 256 threads.",
            (
                "How many arrivals does the table miss?",
                "mbarrier_init says how many: all threads of a role, each for what it has stored or read.",
                "No if around mbarrier_arrive.",
            ),
            signs=(Sign("deadlock", waits=_some_arrived),),
        ),
        KernelMistake(
            "too many",
            "More arrivals come than the barrier counts in a phase: some thread arrives twice, or at another's "
            "barrier.",
            (
                "Which role arrives at which barrier, and how often a block?",
                "k_full: gather, once a block. k_empty: scores once and values once a block.",
                "One arrival a thread, block and barrier.",
            ),
            signs=(
                Sign("arrive-count", object="^k_"),
                Sign(EARLY, answer=r"(?s)arrive\(\s*&shared\.k_full.*arrive\(\s*&shared\.k_full"),
            ),
        ),
        KernelMistake(
            "first p",
            "scores waits for kFree before its first block, and nobody has said so: p was free from the start.",
            (
                "Who arrives at kFree before block 0?",
                "values says free after it has read p, which it cannot before p is complete.",
                "if (block > 0) bar_sync(kFree, 256).",
            ),
            signs=(Sign("deadlock", waits=_at_p, answer=r"(?m)^\s*bar_sync\(\s*kFree"),),
        ),
        KernelMistake(
            "never free",
            "Nothing tells scores that p has been read: it stores the next block's over it.",
            (
                "With one block your kernel is right. What is new with the second?",
                "scores must know that values is through with p.",
                "values: bar_arrive(kFree, 256) after add_output; scores: bar_sync(kFree, 256) before store_p.",
            ),
            signs=(Sign(("race", "deadlock"), object="^p", lacks=r"bar_sync\(\s*kFree"),),
        ),
        KernelMistake(
            "p not ready",
            "values reads p before it is complete: it does not wait for kReady, or kReady comes before the stores.",
            (
                "What must have happened before add_output may run?",
                "All 128 threads of scores have stored and fenced, then arrived; values has waited.",
                "scores: store_p, fence, bar_arrive(kReady, 256). values: bar_sync(kReady, 256), add_output.",
            ),
            signs=(
                Sign("uninitialized", object="^p"),
                Sign("race", object="^p", lacks=r"bar_sync\(\s*kReady"),
                Sign("race", object="^p", answer=r"(?s)bar_arrive\(\s*kReady[^}]*store_p\(\s*shared"),
            ),
        ),
        KernelMistake(
            "p overwritten",
            "p is overwritten while values still reads it: it is called free too early.",
            (
                "When has p been read?",
                "add_output returns when its multiplies have ended.",
                "bar_arrive(kFree, 256) after add_output.",
            ),
            signs=(Sign("race", object="^p"),),
        ),
        KernelMistake(
            "not asked",
            "gather stores a block over one that is still being read: it does not wait for k_empty.",
            (
                "Block 2 goes where block 0 lies. Who says that block 0 has been read?",
                "k_empty[stage] ends a phase when scores and values have both read the block.",
                "mbarrier_wait_parity(&shared.k_empty[stage], (block / 2 + 1) & 1) before fill.",
            ),
            signs=(Sign(("race", "arrive-count"), object="^k", lacks=r"wait_parity\(\s*&shared\.k_empty"),),
        ),
        KernelMistake(
            "given back early",
            "A buffer is given back before its block has been read: gather stores the next one over it.",
            (
                "When has values read the block?",
                "make_scores and add_output return when their multiplies have ended.",
                "mbarrier_arrive(&shared.k_empty[stage]) after add_output, and after make_scores.",
            ),
            signs=(
                Sign("race", object=r"^k\[", answer=r"(?s)arrive\(\s*&shared\.k_empty[^}]*(add_output|make_scores)\("),
            ),
        ),
        KernelMistake(
            "k not ready",
            "A block is multiplied before it has been stored: nothing makes scores wait for k_full, or k_full comes "
            "before the stores.",
            (
                "How does scores know that the block is there?",
                "k_full[stage] ends a phase when all threads of gather have stored, fenced and arrived.",
                "gather: fill, fence, arrive. scores: mbarrier_wait_parity(&shared.k_full[stage], block / 2 & 1).",
            ),
            signs=(
                Sign(EARLY, object=r"^k\[", lacks=r"wait_parity\(\s*&shared\.k_full"),
                Sign(EARLY, object=r"^k\[", answer=r"(?s)arrive\(\s*&shared\.k_full[^}]*fill\("),
            ),
        ),
        KernelMistake(
            "free not said",
            "scores waits for kFree, and values does not say it in the round before.",
            (
                "After which blocks does each role come to kFree?",
                "For every block but the first somebody waits, so after every block but the last somebody arrives.",
                "scores: if (block > 0) bar_sync. values: if (block + 1 < blocks) bar_arrive.",
            ),
            signs=(Sign("deadlock", waits=_both_at_p),),
        ),
        KernelMistake(
            "parity",
            "You wait for the wrong phase: a buffer is used every second block, so that its phases have parity 0, 0, "
            "1, 1, 0 … seen from the blocks.",
            (
                "Write down stage and round of blocks 0 to 5.",
                "The stage is block % 2, the round block / 2; the round's lowest bit is the parity of k_full.",
                "k_full: block / 2 & 1. k_empty: the opposite.",
            ),
            signs=(Sign(EARLY, object=r"^k\["), stuck("^k_")),
        ),
        KernelMistake(
            "starts afresh",
            "Only the last block is in the result: every block is added as if it were the first.",
            (
                "With one block your kernel is right. What is new with the second?",
                "The last argument of add_output says that o is overwritten.",
                "add_output(shared, stage, o, block == 0).",
            ),
            model=_last_block,
        ),
        KernelMistake(
            "not stored",
            "Nothing has been stored: out still holds what was in it.",
            (
                "Which piece brings o to memory, and who calls it?",
                "values, when it has added all blocks.",
                "store_output(out, o) after the loop.",
            ),
            when=_nothing_stored,
        ),
    ),
    hints=(
        "gather: wait for k_empty, fill, fence, arrive at k_full. Then find the same four steps for p.",
        "For each wait write down who arrives, how often, and for which phase. k_empty has two roles that arrive.",
        "scores: wait k_full, make, arrive k_empty, wait kFree (not for block 0), store, fence, arrive kReady. "
        "values: wait kReady, add, arrive k_empty, arrive kFree (not after the last).",
    ),
)
