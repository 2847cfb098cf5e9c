"""Judge of 12.6: every CTA finds the first length that has changed, before any output is written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlacademy.gpu import LaunchPlan
from mlacademy.grading.compare import Exact
from mlacademy.grading.cuda_exercise import CudaExercise, KernelMistake, Launch, Out, Sign
from mlacademy.grading.exercise import Case

Array = NDArray[Any]
CTAS, THREADS = 3, 64
POISON = 0x7FFF  # a bfloat16 NaN


def _cases(rng: np.random.Generator, hidden: bool) -> Iterator[Case]:
    def case(b: int, changes: dict[int, int], label: str) -> Case:
        planned = rng.integers(10, 2000, b).astype(np.int32)
        lengths = planned.copy()
        for request, by in changes.items():
            lengths[request] += by
        values = rng.integers(0, POISON, 300).astype(np.uint16)
        return Case({"lengths": lengths, "planned": planned, "values": values}, label, (("element",), ()))

    if not hidden:
        # Each mistake fails first where no other one gives the same.
        yield case(5, {}, "nothing has changed")
        yield case(80, {20: 2, 40: -1, 70: -1}, "tokens moved from one request to others")
        yield case(50, {40: 1}, "a request beyond the first warp")
        yield case(200, {170: 3}, "more requests than threads")
        yield case(7, {0: -5}, "the first request only")
    else:
        yield case(64, {63: 1}, "as many requests as threads")
        yield case(65, {64: -1}, "one request more than threads")
        yield case(1, {0: 40}, "one request")
        changes = {int(r): int(rng.integers(1, 9)) for r in rng.choice(500, 20, replace=False)}
        yield case(500, changes, "many changes")
        yield case(333, {}, "a large batch without a change")
        yield case(1000, {999: -2}, "the last of a thousand requests")


def _launch(lengths: Array, planned: Array, values: Array) -> Launch:
    args = (lengths, planned, len(lengths), values, Out(values.shape, np.uint16), len(values), Out((1,), np.int32))
    return Launch(LaunchPlan(grid=CTAS, block=THREADS), args)


def _guarded(lengths: Array, planned: Array, values: Array, differs: Array | None = None) -> tuple[Array, Array]:
    places = np.flatnonzero(lengths != planned if differs is None else differs)
    first = int(places[0]) if places.size else len(lengths)
    return _outputs(first, lengths, values)


def _outputs(first: int, lengths: Array, values: Array) -> tuple[Array, Array]:
    out = np.full_like(values, POISON) if first < len(lengths) else values.copy()
    return out, np.array([first], np.int32)


def _last(lengths: Array, planned: Array, values: Array) -> tuple[Array, Array]:
    places = np.flatnonzero(lengths != planned)
    return _outputs(int(places[-1]) if places.size else len(lengths), lengths, values)


GUARD = CudaExercise(
    id="12.6",
    title="Guard the outputs",
    entry="guard",
    points=3,
    lines=5,
    parameters=("lengths", "planned", "values"),
    outputs=("out", "first"),
    cases=_cases,
    launch=_launch,
    reference=_guarded,
    compare=Exact(),
    misconceptions=(
        KernelMistake(
            key="read-before-set",
            says="`changed` was used before thread 0's first value was known to be in it, or nobody gave it one.",
            hints=(
                "What is in shared memory when a CTA starts?",
                "One thread writes b into `changed`; the others may look at it, or lower it, only after they have met "
                "that thread.",
                "if (threadIdx.x == 0) changed = b; then __syncthreads();",
            ),
            signs=(
                Sign("uninitialized", object="changed"),
                Sign("race", object="changed", text="(?i)atomic", lacks=r"changed = b;\s*\}?\s*__syncthreads"),
                Sign("race", object="changed", answer="atomicMin", lacks=r"changed = b;\s*\}?\s*__syncthreads"),
            ),
        ),
        KernelMistake(
            key="used-too-early",
            says="Some threads read `changed` while others were still comparing.",
            hints=(
                "When is the last thread done with its comparisons?",
                "The given lines below read `changed`. Every thread must have finished its loop by then.",
                "A second __syncthreads(), after the loop.",
            ),
            signs=(Sign("race", object="changed", answer="atomicMin"),),
        ),
        KernelMistake(
            key="plain-stores",
            says="Several threads store to `changed` without order. Which request is left there is chance, and another "
            "thread may read it half way.",
            hints=(
                "Threads 3 and 40 both find a difference. Which of their stores stays?",
                "Looking and storing are two steps. Another thread may come in between.",
                "atomicMin(&changed, r) looks and stores in one step, and keeps the smallest.",
            ),
            signs=(Sign("race", object="changed"),),
        ),
        KernelMistake(
            key="as-many-as-threads",
            says="Lengths far down in the batch were not compared. There may be more requests than a CTA has threads.",
            hints=(
                "b may be 200, and blockDim.x is 64. Who compares request 170?",
                "Each thread takes several requests: its own number, and every blockDim.x-th after it.",
                "for (int r = threadIdx.x; r < b; r += blockDim.x)",
            ),
            model=lambda lengths, planned, values: _guarded(
                lengths, planned, values, (lengths != planned) & (np.arange(len(lengths)) < THREADS)
            ),
        ),
        KernelMistake(
            key="as-many-as-a-warp",
            says="Only 32 lengths were compared, those of one warp's lanes.",
            hints=(
                "How many requests does a warp look at in one step?",
                "A warp can do the work alone, but it needs a loop.",
                "for (int r = threadIdx.x; r < b; r += 32)",
            ),
            model=lambda lengths, planned, values: _guarded(
                lengths, planned, values, (lengths != planned) & (np.arange(len(lengths)) < 32)
            ),
        ),
        KernelMistake(
            key="out-of-bounds",
            says="A thread read a length beyond the last request.",
            hints=(
                "How many requests are there, and how many threads?",
                "Threads without a request must not read.",
                "The condition r < b, in the loop or before the comparison.",
            ),
            signs=(Sign("bounds", object="lengths|planned"),),
        ),
        KernelMistake(
            key="growth-only",
            says="Only lengths that grew were noticed. A shorter one is as wrong: its blocks were scheduled and are "
            "not there.",
            hints=(
                "What happens when a request has become shorter?",
                "Every difference counts, in both directions.",
                "lengths[r] != planned[r].",
            ),
            model=lambda lengths, planned, values: _guarded(lengths, planned, values, lengths > planned),
        ),
        KernelMistake(
            key="shrinking-only",
            says="Only lengths that shrank were noticed. A longer one leaves tokens out without a word.",
            hints=(
                "What happens when a request has become longer?",
                "Every difference counts, in both directions.",
                "lengths[r] != planned[r].",
            ),
            model=lambda lengths, planned, values: _guarded(lengths, planned, values, lengths < planned),
        ),
        KernelMistake(
            key="last-instead-of-first",
            says="You kept the largest request that differs. Asked is the first: the smallest number.",
            hints=(
                "Two requests differ: which one does the note name?",
                "Start from b, larger than any request, and go down.",
                "atomicMin, not atomicMax.",
            ),
            model=_last,
        ),
        KernelMistake(
            key="sums",
            says="You compared the sums of the lengths. A token moved from one request to another leaves the sum as it "
            "was.",
            hints=(
                "Lengths 5 and 7 become 6 and 6. What is their sum?",
                "A schedule depends on every single length.",
                "Compare request by request.",
            ),
            when=lambda case, expected, got: bool(
                case.inputs["lengths"].sum() == case.inputs["planned"].sum()
                and np.array_equal(got[0], case.inputs["values"])
            ),
        ),
        KernelMistake(
            key="one-cta",
            says="Only one CTA compared. The others do not see its shared memory, and write their share of the outputs "
            "as if nothing had changed.",
            hints=(
                "Who can read `changed` of CTA 0?",
                "Shared memory belongs to one CTA. There is no cheap way to tell all the others.",
                "No condition on blockIdx.x: every CTA compares for itself.",
            ),
            when=lambda case, expected, got: 0 < int((got[0] == POISON).sum()) < got[0].size,
        ),
    ),
    hints=(
        "Three steps: give `changed` its first value, compare, meet. Which of them does one thread do, which all?",
        "`changed` begins with b. Each thread goes through its share of the requests and lowers `changed` where a "
        "length differs. Between the steps the threads must meet.",
        "if (threadIdx.x == 0) changed = b; __syncthreads(); a loop from threadIdx.x in steps of blockDim.x with "
        "atomicMin(&changed, r); __syncthreads();",
    ),
)
