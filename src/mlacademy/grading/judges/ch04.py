"""Judges of chapter 04, the tile scheduler: count partitions, price requests, walk, read a record."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from mlacademy.grading.compare import Difference, describe
from mlacademy.grading.exercise import Case, Exercise
from mlacademy.grading.judges import scheduler_reading, scheduler_records, scheduler_sizes
from mlacademy.schedule import num_sm_parts, read_record, schedule

LIBRARY = ("mlacademy.schedule",)
HEADS = {"sm90_sparse": (64, 128), "sm100_head64": (64,), "sm100_head64x2": (128,), "sm100_head128": (128,)}
RECORD = ("begin_req", "end_req", "begin_block", "end_block", "begin_split")
WORK = ("request", "begin_block", "end_block", "slot")
NOTES = {
    "end_req": "the last request is included",
    "end_block": "exclusive end",
    "begin_split": "pieces of begin_req in earlier partitions",
}


def table_difference(
    output: str, row_name: str, fields: tuple[str, ...], expected: list[list[int]], got: Any
) -> Difference | None:
    """The first wrong field of a list of rows, as ``partition 1: end_block is 1, expected 2 (exclusive end)``."""
    rows = got.tolist() if isinstance(got, np.ndarray) else got
    if not isinstance(rows, (list, tuple)):
        return Difference(output, "type", f"a list of rows [{', '.join(fields)}]", f"is {describe(got)}")
    for number, (want, row) in enumerate(zip(expected, rows, strict=False)):
        if not isinstance(row, (list, tuple)) or len(row) != len(fields):
            form = f"[{', '.join(fields)}]"
            sentence = f"{row_name} {number}: the row is {row!r:.60}, expected {len(fields)} numbers {form}."
            return Difference(output, "shape", form, row, (number,), sentence=sentence)
        for field, right, value in zip(fields, want, row, strict=True):
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
                sentence = f"{row_name} {number}: {field} is {value!r:.40}, expected an integer."
                return Difference(output, "type", right, value, (number, field), sentence=sentence)
            if value != right:
                note = f" ({NOTES[field]})" if field in NOTES else ""
                if field == "slot":
                    note = " (whole: no slot)" if right < 0 else " (its flag is set: a slot)" if value < 0 else ""
                sentence = f"{row_name} {number}: {field} is {value}, expected {right}{note}. "
                sentence += f"Your row is {list(row)}; expected {want}."
                return Difference(output, "value", right, value, (number, field), sentence=sentence)
    if len(rows) != len(expected):
        sentence = f"{output} has {len(rows)} rows, expected {len(expected)}"
        if len(rows) > len(expected):
            sentence += f"; row {len(expected)} should not be there: {rows[len(expected)]!r:.60}."
        else:
            sentence += f"; {row_name} {len(rows)} should follow: {expected[len(rows)]}."
        return Difference(output, "length", len(expected), len(rows), sentence=sentence)
    return None


# 04.1


def _count_cases(rng: np.random.Generator, hidden: bool) -> Iterable[Case]:
    fixed = [
        (132, 1, 128, "sm90_sparse", "one query token, two CTAs a partition"),
        (132, 1, 64, "sm90_sparse", "half the heads"),
        (132, 2, 128, "sm90_sparse", "several query tokens"),
        (148, 1, 64, "sm100_head64", "a kernel with one CTA a partition"),
        (148, 1, 128, "sm100_head64x2", "128 heads in two launches"),
        (148, 3, 128, "sm100_head128", "a kernel with two CTAs a partition"),
        (132, 100, 128, "sm90_sparse", "more CTAs than SMs"),
    ]
    for sms, s_q, h_q, kernel, label in [] if hidden else fixed:
        yield Case({"sms": sms, "s_q": s_q, "h_q": h_q, "kernel": kernel}, label=label)
    for kernel, heads in HEADS.items() if hidden else ():
        for s_q in (1, 4, int(rng.integers(5, 30)), 400):
            inputs = {"sms": int(rng.integers(70, 160)), "s_q": s_q, "h_q": int(rng.choice(heads)), "kernel": kernel}
            yield Case(inputs, label="other GPUs and other numbers of query tokens")


def _count(sms: int, s_q: int, h_q: int, kernel: str) -> int:
    return num_sm_parts(sms, s_q=s_q, h_q=h_q, kernel=kernel)


COUNT = Exercise(
    id="04.1",
    title="Count the partitions",
    entry="count_partitions",
    points=1,
    lines=3,
    parameters=("sms", "s_q", "h_q", "kernel"),
    outputs=("parts",),
    cases=_count_cases,
    reference=_count,
    misconceptions=scheduler_sizes.COUNT,
    hints=(
        "Ask how many CTAs work side by side on one piece of the batch: all heads, all query tokens. "
        "Then ask how many such groups run on the GPU at the same time.",
        "The groups are counted with whole divisions: SMs, by query tokens, by CTAs per query token. A remainder is "
        "lost. What should come out when a single group already needs more CTAs than the GPU has SMs?",
        "CTAs per query token: h_q // 64 for sm90_sparse, 1 for both 64-head kernels of SM100, 2 for sm100_head128. "
        "The answer is max(sms // s_q // ctas, 1).",
    ),
    forbids=LIBRARY,
)


# 04.2


def _price_cases(rng: np.random.Generator, hidden: bool) -> Iterable[Case]:
    fixed = [
        ([128, 128], 66, 5, "the running example"),
        ([2048, 100, 1, 1024], 66, 5, "unequal lengths"),
        ([2048] * 128, 66, 5, "a full batch"),
        ([64, 65, 63], 2, 3, "lengths around a multiple of 64"),
        ([0, 4096, 64], 66, 5, "a request without tokens"),
        ([64] * 66, 66, 5, "a total that divides evenly"),
    ]
    for lengths, parts, overhead, label in [] if hidden else fixed:
        yield Case({"lengths": lengths, "parts": parts, "overhead": overhead}, label=label)
    for size in (1, 3, 40, 200) if hidden else ():
        lengths = [int(n) for n in rng.integers(0, 5000, size)]
        lengths[0] = 64 * int(rng.integers(0, 5))
        inputs = {"lengths": lengths, "parts": int(rng.integers(1, 150)), "overhead": int(rng.choice([3, 5]))}
        yield Case(inputs, label="batches of any size, with lengths of 0 and at block limits")


def _price(lengths: list[int], parts: int, overhead: int) -> tuple[list[int], int]:
    plan = schedule(lengths, parts, overhead=overhead)
    return plan.num_blocks.tolist(), plan.payload


PRICE = Exercise(
    id="04.2",
    title="Blocks and payload",
    entry="blocks_and_payload",
    points=2,
    lines=4,
    parameters=("lengths", "parts", "overhead"),
    outputs=("num_blocks", "payload"),
    cases=_price_cases,
    reference=_price,
    misconceptions=scheduler_sizes.PRICE,
    hints=(
        "Two steps. First the blocks of each request: which block does its last token lie in? Then the payload: the "
        "equal share of one partition, plus room to pay for a cut.",
        "A length of n > 0 fills ceil(n / 64) blocks; a length of 0 still counts one, because somebody must write that "
        "request's output. The share is the total over the partitions, rounded up.",
        "num_blocks[r] = max(length - 1, 0) // 64 + 1. The total is the sum of num_blocks[r] + overhead over all "
        "requests; payload = ceil(total / parts) + overhead.",
    ),
    forbids=LIBRARY,
)


# 04.3


def _walk_inputs(num_blocks: list[int], parts: int, overhead: int) -> dict[str, Any]:
    payload = -(-(sum(num_blocks) + overhead * len(num_blocks)) // parts) + overhead
    return {"num_blocks": num_blocks, "overhead": overhead, "payload": payload}


def _walk_cases(rng: np.random.Generator, hidden: bool) -> Iterable[Case]:
    fixed = [
        ([2, 2], 66, 5, "the running example"),
        ([25, 1, 25], 3, 5, "a partition with a piece, a whole request and a piece"),
        ([32, 2, 1, 16], 66, 5, "unequal lengths"),
        ([32, 32, 32, 32], 2, 5, "whole requests only"),
        ([1, 64, 1], 66, 5, "a partition that ends with its room unused"),
        ([9, 4, 30], 4, 3, "another overhead"),
    ]
    for num_blocks, parts, overhead, label in [] if hidden else fixed:
        yield Case(_walk_inputs(num_blocks, parts, overhead), label=label)
    for size in (1, 2, 5, 20, 100, 128) if hidden else ():
        num_blocks = [int(n) for n in rng.integers(1, 40, size)]
        parts, overhead = int(rng.integers(1, 140)), int(rng.choice([3, 5]))
        yield Case(_walk_inputs(num_blocks, parts, overhead), label="other batches, partition counts and overheads")


def _walk(num_blocks: list[int], overhead: int, payload: int) -> tuple[list[list[int]], list[int]]:
    # The payload decides the walk; the fewest partitions that give this payload are total / share, rounded up.
    total = sum(num_blocks) + overhead * len(num_blocks)
    share = payload - overhead
    plan = schedule([n * 64 for n in num_blocks], -(-total // share), overhead=overhead)
    assert plan.payload == payload, "the case's payload does not come from a number of partitions"
    rows = [list(partition[:5]) for partition in plan.partitions[: plan.used]]
    return rows, plan.num_splits.tolist()


def _compare_walk(case: Case, expected: Any, got: Any) -> Difference | None:
    if not isinstance(got, (list, tuple)) or len(got) != 2:
        came = describe(got) if not isinstance(got, (list, tuple)) else f"{len(got)} results"
        sentence = f"greedy_walk returned {came}; expected two results: records, num_splits."
        return Difference("greedy_walk", "length", 2, came, sentence=sentence)
    records, num_splits = got
    found = table_difference("records", "partition", RECORD, expected[0], records)
    if found is not None:
        return found
    prefix = num_splits.tolist() if isinstance(num_splits, np.ndarray) else num_splits
    if isinstance(prefix, (list, tuple)) and len(prefix) != len(expected[1]):
        sentence = (
            f"num_splits has {len(prefix)} entries, expected {len(expected[1])}: one more than there are requests. "
            f"Yours is {prefix!r:.60}."
        )
        return Difference("num_splits", "length", len(expected[1]), len(prefix), sentence=sentence)
    if not isinstance(prefix, (list, tuple)):
        return Difference("num_splits", "type", f"a list of {len(expected[1])}", f"is {describe(num_splits)}")
    for r, (want, value) in enumerate(zip(expected[1], prefix, strict=True)):
        if type(value) is bool or not isinstance(value, (int, np.integer)) or value != want:
            sentence = f"num_splits[{r}] is {value!r:.40}, expected {want} (pieces of all requests before request {r})."
            return Difference("num_splits", "value", want, value, (r,), sentence=sentence)
    return None


WALK = Exercise(
    id="04.3",
    title="The greedy walk",
    entry="greedy_walk",
    points=4,
    lines=14,
    parameters=("num_blocks", "overhead", "payload"),
    outputs=("records", "num_splits"),
    cases=_walk_cases,
    reference=_walk,
    compare=_compare_walk,
    misconceptions=scheduler_records.WALK,
    hints=(
        "Keep four numbers: the request you are at, how many of its blocks are done, how many pieces it already has, "
        "and the room of the partition that is open. Each step takes some blocks and updates them.",
        "A step takes min(remaining blocks, room - overhead) blocks, and is possible only while room > overhead. If "
        "the request is finished, the room shrinks by blocks + overhead; if not, the partition is full.",
        "Open a row [request, request, done, done, pieces] when room <= overhead; after each step set its end_req to "
        "the request and its end_block to done. When a request is finished, append num_splits[-1] + pieces.",
    ),
    forbids=LIBRARY,
)


# 04.4


def _read_inputs(lengths: list[int], parts: int, partition: int) -> dict[str, Any]:
    plan = schedule(lengths, parts)
    record = plan.records()[partition].tolist()
    return {"record": record, "lengths": lengths, "num_splits": plan.num_splits.tolist()}


def _read_cases(rng: np.random.Generator, hidden: bool) -> Iterable[Case]:
    fixed = [
        ([1600, 64, 1600], 3, 1, "a piece, a whole request and a piece"),
        ([128, 128], 66, 0, "the first half of a request"),
        ([128, 128], 66, 1, "the second half of a request"),
        ([2048] * 128, 66, 5, "two whole requests"),
        ([1000, 500, 65, 1000], 2, 0, "whole requests, then the beginning of one"),
        ([1600, 64, 1600], 3, 2, "the end of a request, in a later piece"),
        ([128, 128], 66, 40, "a partition without work"),
        ([100, 1000, 300], 2, 0, "lists that do not fill their last block"),
    ]
    for lengths, parts, partition, label in [] if hidden else fixed:
        yield Case(_read_inputs(lengths, parts, partition), label=label)
    for size in (4, 12, 60) if hidden else ():
        lengths = [int(n) for n in rng.integers(1, 3000, size)]
        parts = int(rng.integers(2, 9))
        for partition in range(parts):
            yield Case(_read_inputs(lengths, parts, partition), label="records of other schedules")


def _read(record: list[int], lengths: list[int], num_splits: list[int]) -> list[list[int]]:
    segments = read_record(0, record, lengths, num_splits)
    return [[s.request, s.begin_block, s.end_block, -1 if s.split is None else s.split] for s in segments]


def _compare_work(case: Case, expected: Any, got: Any) -> Difference | None:
    return table_difference("work", "segment", WORK, expected, got)


READ = Exercise(
    id="04.4",
    title="Read a record",
    entry="work_of",
    points=3,
    lines=12,
    parameters=("record", "lengths", "num_splits"),
    outputs=("work",),
    cases=_read_cases,
    reference=_read,
    compare=_compare_work,
    misconceptions=scheduler_reading.READ,
    hints=(
        "Loop over the requests of the record, the last one included. For each, answer three questions: where do I "
        "begin, where do I end, and is anybody else working on this request?",
        "The record speaks of its first and its last request only. For a request in between, everything follows from "
        "its length: all blocks, whole. One request may be first and last at once.",
        "Start with begin 0, end ceil(length / 64), not shared, slot num_splits[request]. If it is the last request: "
        "end_block and the last flag. If it is the first: begin_block, the first flag, and slot + begin_split.",
    ),
    forbids=LIBRARY,
)
