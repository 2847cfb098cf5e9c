"""The tile scheduler against worked examples, a coin-by-coin simulation, and the definitions of its outputs."""

from __future__ import annotations

import doctest
import importlib
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mlacademy.schedule import (
    KERNELS,
    MAX_BATCH,
    CostModel,
    Segment,
    effective_lengths,
    num_sm_parts,
    read_record,
    schedule,
    scheduler_shared_bytes,
    walk,
)


def coin_by_coin(lengths: list[int], parts: int, overhead: int, block: int) -> list[list[tuple[int, int]]]:
    """Oracle: the prose of the walk, one coin at a time. For each partition the (request, block) pairs it reads.

    A partition gets ``payload`` coins. Opening a request costs ``overhead`` coins and is allowed while at least one
    coin would be left; then each block costs one.
    """
    todo = [(r, k) for r, length in enumerate(lengths) for k in range(max(-(-length // block), 1))]
    payload = (len(todo) + overhead * len(lengths) + parts - 1) // parts + overhead
    taken: list[list[tuple[int, int]]] = []
    position = 0
    for _ in range(parts):
        coins, opened = payload, -1
        mine: list[tuple[int, int]] = []
        while position < len(todo):
            request = todo[position][0]
            if request != opened:
                if coins <= overhead:
                    break
                coins, opened = coins - overhead, request
            if coins == 0:
                break
            coins -= 1
            mine.append(todo[position])
            position += 1
        taken.append(mine)
    assert position == len(todo)
    return taken


def records_by_definition(lengths: list[int], taken: list[list[tuple[int, int]]], block: int) -> list[list[int]]:
    """The eight fields of each record from what the partitions read: flags and splits as counts of holders."""
    holders: list[list[int]] = [[] for _ in lengths]
    for p, mine in enumerate(taken):
        for request in sorted({r for r, _ in mine}):
            holders[request].append(p)
    records = []
    for p, mine in enumerate(taken):
        if not mine:
            last = len(lengths) - 1
            records.append([len(lengths), last, 0, -(-lengths[last] // block), 0, 0, 0, 0])
            continue
        (first, begin), (last, end) = mine[0], mine[-1]
        end_block = end + 1 if lengths[last] else 0
        flags = [int(len(holders[r]) > 1) for r in (first, last)]
        records.append([first, last, begin, end_block, holders[first].index(p), *flags, 0])
    return records


lengths_of_all_sorts = st.lists(
    st.one_of(st.integers(0, 70), st.integers(0, 4096), st.sampled_from([0, 1, 63, 64, 65, 2048])),
    min_size=1,
    max_size=24,
)


@settings(max_examples=300, deadline=None)
@given(
    lengths_of_all_sorts, st.integers(1, 160), st.sampled_from([0, 1, 3, 5, 5, 9]), st.sampled_from([1, 16, 64, 64, 64])
)
@example([128, 128], 66, 5, 64)
@example([0], 3, 5, 64)
@example([0, 0, 4096, 0], 66, 5, 64)
def test_records_equal_the_coin_by_coin_simulation(lengths: list[int], parts: int, overhead: int, block: int) -> None:
    plan = schedule(lengths, parts, overhead=overhead, block=block)
    taken = coin_by_coin(lengths, parts, overhead, block)
    assert plan.records().tolist() == records_by_definition(lengths, taken, block)
    holders = [sum(any(r == request for r, _ in mine) for mine in taken) for request in range(len(lengths))]
    assert plan.num_splits.tolist() == [sum(holders[:r]) for r in range(len(lengths) + 1)]
    assert plan.used == sum(map(bool, taken))


@settings(max_examples=200, deadline=None)
@given(lengths_of_all_sorts, st.integers(1, 160), st.sampled_from([0, 3, 5]))
def test_segments_read_every_block_once_within_the_payload(lengths: list[int], parts: int, overhead: int) -> None:
    plan = schedule(lengths, parts, overhead=overhead)
    seen = [np.zeros(-(-length // 64), dtype=int) for length in lengths]
    room = np.full(parts, plan.payload)
    pieces: dict[int, list[Segment]] = {r: [] for r in range(len(lengths))}
    for segment in plan.segments():
        seen[segment.request][segment.begin_block : segment.end_block] += 1
        room[segment.partition] -= max(segment.blocks, 1) + overhead
        pieces[segment.request].append(segment)
    assert all((count == 1).all() for count in seen)
    assert (room >= 0).all()
    for request, mine in pieces.items():
        first, stop = int(plan.num_splits[request]), int(plan.num_splits[request + 1])
        assert stop - first == len(mine) == plan.splits[request]
        assert [s.split for s in mine] == ([None] if len(mine) == 1 else list(range(first, stop)))
        assert mine[0].begin_block == 0
        assert mine[-1].end_block == -(-lengths[request] // 64)
        assert all(a.end_block == b.begin_block and b.partition == a.partition + 1 for a, b in pairwise(mine))


@settings(max_examples=100, deadline=None)
@given(lengths_of_all_sorts, st.integers(1, 160), st.sampled_from([0, 3, 5]))
def test_plain_walk_takes_the_same_blocks(lengths: list[int], parts: int, overhead: int) -> None:
    plan = schedule(lengths, parts, overhead=overhead)
    steps = list(walk(plan.num_blocks.tolist(), parts, overhead=overhead))
    taken = [(s.partition, s.request, s.begin_block, s.end_block) for s in steps if s.action != "full"]
    assert taken == [(s.partition, s.request, s.begin_block, s.end_block or 1) for s in plan.segments()]
    assert all(s.room > overhead for s in steps if s.action == "slice")
    assert all(s.room <= overhead for s in steps if s.action == "full")


def test_article_example_uses_4_partitions_of_66() -> None:
    plan = schedule([128, 128], num_sm_parts(132))
    assert (plan.parts, plan.payload, plan.used, plan.idle) == (66, 6, 4, 62)
    assert plan.num_blocks.tolist() == [2, 2]
    assert plan.num_splits.tolist() == [0, 2, 4]
    assert plan.records()[:5].tolist() == [
        [0, 0, 0, 1, 0, 1, 1, 0],
        [0, 0, 1, 2, 1, 1, 1, 0],
        [1, 1, 0, 1, 0, 1, 1, 0],
        [1, 1, 1, 2, 1, 1, 1, 0],
        [2, 1, 0, 2, 0, 0, 0, 0],
    ]
    assert [p.idle for p in plan.partitions] == [False] * 4 + [True] * 62
    assert all(p.is_first_req_splitted and p.is_last_req_splitted for p in plan.partitions[:4])


@pytest.mark.parametrize(
    ("sms", "kernel", "h_q", "s_q", "parts", "payload", "used", "per_partition"),
    [
        (132, "sm90_sparse", 128, 1, 66, 77, 64, 2),
        (132, "sm90_sparse", 128, 2, 33, 149, 32, 4),
        (132, "sm90_sparse", 64, 1, 132, 41, 128, 1),
        (148, "sm100_head64", 64, 1, 148, 37, 128, 1),
        (148, "sm100_head64x2", 128, 1, 148, 37, 128, 1),
    ],
)
def test_128_requests_of_2048_are_never_split(
    sms: int, kernel: str, h_q: int, s_q: int, parts: int, payload: int, used: int, per_partition: int
) -> None:
    assert num_sm_parts(sms, s_q=s_q, h_q=h_q, kernel=kernel) == parts
    plan = schedule(effective_lengths(128, 2048), parts)
    assert (plan.payload, plan.used, plan.split_requests) == (payload, used, 0)
    assert all(s.split is None and s.blocks == 32 for s in plan.segments())
    assert {p.end_req - p.begin_req + 1 for p in plan.partitions[:used]} == {per_partition}


@pytest.mark.parametrize(
    ("lengths", "payload", "splits"),
    [
        (effective_lengths(4, 2048, topk_length=[2048, 100, 0, 1024]), 7, [16, 1, 1, 8]),
        (effective_lengths(1, 2048), 6, [32]),
        ([0, 4096, 64], 7, [1, 32, 1]),
        (effective_lengths(4, 128, extra_topk=512, extra_topk_length=[512, 0, 64, 300]), 6, [10, 2, 3, 7]),
    ],
)
def test_worked_examples_on_66_partitions(lengths: list[int], payload: int, splits: list[int]) -> None:
    plan = schedule(lengths, 66)
    assert plan.payload == payload
    assert plan.splits.tolist() == splits
    assert plan.used == sum(splits)


def test_zero_length_request_gets_one_empty_segment() -> None:
    plan = schedule([0, 4096, 64, 0], 4)
    empty = [s for s in plan.segments() if s.blocks == 0]
    assert [(s.request, s.begin_block, s.end_block, s.split) for s in empty] == [(0, 0, 0, None), (3, 0, 0, None)]
    assert schedule([0], 66).records()[0].tolist() == [0, 0, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("b", [1, 2, 1000, MAX_BATCH])
@pytest.mark.parametrize("parts", [1, 66, 148])
def test_extreme_batches_match_the_simulation(b: int, parts: int) -> None:
    lengths = np.random.default_rng(b + parts).integers(0, 700, b).tolist()
    plan = schedule(lengths, parts)
    assert plan.records().tolist() == records_by_definition(lengths, coin_by_coin(lengths, parts, 5, 64), 64)


@pytest.mark.parametrize("lengths", [[10**6], [1, 10**6, 0, 1], [10**6] * 40, [2**31 - 1]])
def test_long_contexts_are_spread_over_all_partitions(lengths: list[int]) -> None:
    plan = schedule(lengths, 132)
    assert plan.used == 132
    assert sum(s.blocks for s in plan.segments()) == sum(-(-length // 64) for length in lengths)


def test_one_partition_takes_everything_whole() -> None:
    plan = schedule([1, 4096, 0, 65], 1)
    assert plan.records().tolist() == [[0, 3, 0, 2, 0, 0, 0, 0]]
    assert plan.num_splits.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("sms", "arguments", "parts"),
    [
        (132, {"s_q": 4}, 33 // 2),
        (132, {"s_q": 133}, 1),
        (1, {}, 1),
        (78, {}, 39),
        (148, {"kernel": "sm100_head128"}, 74),
        (148, {"kernel": "sm100_head128", "s_q": 5}, 14),
        (132, {"kernel": "sm90_dense"}, 66),
        (132, {"kernel": "sm90_dense", "h_q": 1}, 132),
        (132, {"kernel": "sm90_dense", "h_q": 9, "h_k": 3, "s_q": 2}, 44),
        (132, {"kernel": "sm90_dense", "h_q": 128, "s_q": 2}, 33),
        (132, {"kernel": "sm90_dense", "h_q": 64, "h_k": 8, "s_q": 200}, 1),
    ],
)
def test_number_of_partitions(sms: int, arguments: dict[str, int], parts: int) -> None:
    assert num_sm_parts(sms, **arguments) == parts  # type: ignore[arg-type]


def test_only_the_two_cta_blackwell_kernel_has_overhead_3() -> None:
    assert {name: rule.overhead for name, rule in KERNELS.items() if rule.overhead != 5} == {"sm100_head128": 3}


def test_scratch_of_128_requests_is_48_and_a_half_mib() -> None:
    plan = schedule(effective_lengths(128, 2048), 66)
    outputs, sums = (128 + 66) * 128 * 512 * 4, (128 + 66) * 128 * 4
    assert plan.scratch_bytes() == outputs + sums
    assert outputs / 2**20 == 48.5


def test_batch_limit_is_the_last_that_fits_in_shared_memory() -> None:
    assert scheduler_shared_bytes(MAX_BATCH) <= 227 * 1024 < scheduler_shared_bytes(MAX_BATCH + 1)


def test_schedule_is_a_value() -> None:
    plan = schedule([128, 128], 66)
    assert plan == schedule(np.array([128, 128], dtype=np.int32), 66)
    assert hash(plan) == hash(schedule((128, 128), 66))
    assert plan != schedule([128, 127], 66)
    assert plan != "a schedule"
    with pytest.raises(ValueError, match="read-only"):
        plan.num_splits[0] = 1
    assert str(plan) == (
        "2 requests, 4 blocks of 64, 2 of them split into 4 pieces; 66 partitions with payload 6: 4 used, 62 idle"
    )


def test_callers_lengths_are_copied() -> None:
    lengths = np.array([128, 128])
    plan = schedule(lengths, 66)
    lengths[0] = 2048
    assert plan.lengths.tolist() == [128, 128]


def test_torch_lengths_are_accepted() -> None:
    torch = pytest.importorskip("torch")
    assert schedule(torch.tensor([128, 128], dtype=torch.int32), 66) == schedule([128, 128], 66)


def test_stale_record_is_read_as_the_kernel_would() -> None:
    stale = schedule([128, 64], 1).records()[0].tolist()
    (first, last) = read_record(0, stale, [256, 256], [0, 1, 2])
    assert (first.begin_block, first.end_block) == (0, 4)  # a whole request: its end comes from the new length
    assert (last.begin_block, last.end_block) == (0, 1)  # the last request: its end comes from the old record


def test_cost_of_the_article_example() -> None:
    cost = schedule([128, 128], 66).cost(CostModel(partial=0.5))
    assert cost.busy == (6.0,) * 4 + (0.0,) * 62
    assert (cost.makespan, cost.combine, cost.total) == (6.0, 2.0, 8.0)
    assert (cost.ideal, cost.no_split) == (6.0, 7.0)
    assert cost.utilisation == pytest.approx(4 / (66 * 6))
    assert cost.balance == pytest.approx(4 / 66)


def test_cost_scales_with_the_prices() -> None:
    plan = schedule([2048] * 3, 66)
    cost = plan.cost(CostModel(block=2.0, segment=0.0, partial=0.0))
    assert cost.makespan == 2.0 * max(s.blocks for s in plan.segments())
    assert cost.no_split == 64.0


@settings(max_examples=100, deadline=None)
@given(lengths_of_all_sorts, st.integers(1, 160), st.sampled_from([0, 3, 5]))
def test_cost_lies_between_its_bounds(lengths: list[int], parts: int, overhead: int) -> None:
    plan = schedule(lengths, parts, overhead=overhead)
    cost = plan.cost()
    slack = 1e-9 * plan.payload  # sums of small integers in float64 are exact; only `ideal` divides
    assert cost.ideal <= cost.makespan + slack
    assert cost.ideal <= cost.no_split + slack
    assert cost.makespan <= plan.payload
    assert 0 <= cost.utilisation <= 1
    assert 0 <= cost.balance <= 1 + 1e-12
    if not plan.split_requests:
        assert cost.combine == 0


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda: schedule([], 66), ValueError, r"lengths must hold at least one request: it is empty"),
        (lambda: schedule([1.5], 66), TypeError, r"lengths must hold integers: its dtype is float64"),
        (lambda: schedule([True], 66), TypeError, r"lengths must hold integers: its dtype is bool"),
        (lambda: schedule([[1]], 66), ValueError, r"shape \[b\]: its shape is \[1, 1\]"),
        (lambda: schedule([5, -1], 66), ValueError, r"lengths must not be negative: lengths\[1\] is -1"),
        (lambda: schedule([2**31], 66), ValueError, r"lengths must fit in int32 .*lengths\[0\] is 2147483648"),
        (lambda: schedule([1], 0), ValueError, r"parts must be at least 1: it is 0"),
        (lambda: schedule([1], 6.0), TypeError, r"parts must be an integer, not float 6.0"),
        (lambda: schedule([1], True), TypeError, r"parts must be an integer, not the truth value True"),
        (lambda: schedule([1], 1, overhead=-1), ValueError, r"overhead must be at least 0: it is -1"),
        (lambda: schedule([1], 1, block=0), ValueError, r"block must be at least 1: it is 0"),
        (lambda: num_sm_parts(0), ValueError, r"sms must be at least 1: it is 0"),
        (lambda: num_sm_parts(132, s_q=0), ValueError, r"s_q must be at least 1"),
        (lambda: num_sm_parts(132, h_q=16), ValueError, r"h_q must be 64 or 128 for sm90_sparse: it is 16"),
        (lambda: num_sm_parts(132, h_k=2), ValueError, r"h_k must be 1 for sm90_sparse"),
        (lambda: num_sm_parts(132, h_q=9, h_k=2, kernel="sm90_dense"), ValueError, r"h_q must be a multiple of h_k"),
        (lambda: num_sm_parts(132, kernel="sm80"), ValueError, r"kernel must be one of sm90_sparse, .*: it is 'sm80'"),
        (lambda: effective_lengths(0, 64), ValueError, r"b must be at least 1"),
        (lambda: effective_lengths(1, 0), ValueError, r"topk must be at least 1"),
        (lambda: effective_lengths(1, 2**31), ValueError, r"topk must fit in int32"),
        (
            lambda: effective_lengths(2, 64, topk_length=[1]),
            ValueError,
            r"one number per request: b is 2, topk_length has 1",
        ),
        (lambda: effective_lengths(1, 64, topk_length=[65]), ValueError, r"topk_length\[0\] is 65, the list has 64"),
        (lambda: effective_lengths(1, 64, extra_topk_length=[1]), ValueError, r"extra_topk_length needs extra_topk"),
        (
            lambda: effective_lengths(1, 64, extra_topk=64, extra_topk_length=[-1]),
            ValueError,
            r"extra_topk_length must not be negative",
        ),
        (lambda: CostModel(partial=-1), ValueError, r"partial must be a finite price of at least 0: it is -1"),
        (lambda: CostModel(block=0), ValueError, r"block must be above 0"),
    ],
)
def test_bad_arguments_are_named(call: object, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        call()  # type: ignore[operator]


@pytest.mark.parametrize("name", ["__init__", "kernels", "plan", "walk"])
def test_docstring_examples_hold(name: str) -> None:
    module = importlib.import_module("mlacademy.schedule" + f".{name}" * (name != "__init__"))
    failed, tried = doctest.testmod(module)
    assert tried > 0
    assert failed == 0


def test_module_does_not_load_torch() -> None:
    code = "import sys, mlacademy.schedule; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
