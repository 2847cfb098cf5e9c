"""Numbers about a trace: interval arithmetic against counting unit by unit, and shares worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_trace import ISSUE, LOAD, MATH, QUEUE, ring_trace

from mlacademy.viz.timeline_facts import (
    family_times,
    flight,
    instructions,
    intersection,
    length,
    observers,
    role_shares,
    union,
)

INTERVALS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=20)


def covered(pairs: list[tuple[int, int]]) -> set[int]:
    return {unit for start, size in pairs for unit in range(start, start + size)}


def united(pairs: list[tuple[int, int]]) -> np.ndarray:
    return union([a for a, _ in pairs], [a + n for a, n in pairs])


@given(INTERVALS)
def test_union_covers_what_counting_units_covers(pairs: list[tuple[int, int]]) -> None:
    found = united(pairs)
    assert {u for a, b in found for u in range(int(a), int(b))} == covered(pairs)
    assert length(found) == len(covered(pairs))
    assert all(found[i, 1] < found[i + 1, 0] for i in range(len(found) - 1))


@given(INTERVALS, INTERVALS)
def test_intersection_is_what_both_cover(one: list[tuple[int, int]], two: list[tuple[int, int]]) -> None:
    assert length(intersection(united(one), united(two))) == len(covered(one) & covered(two))


def test_shares_of_a_single_block_are_those_worked_out_by_hand() -> None:
    producer, consumer = role_shares(ring_trace(blocks=1))
    assert (producer.role, producer.life, producer.waits) == ("producer", 2 * ISSUE, ())
    landed = ISSUE + QUEUE + LOAD
    assert consumer.life == landed + ISSUE + MATH + ISSUE
    assert consumer.waits == (("full[0]", landed), ("wgmma groups", MATH))
    assert consumer.waiting == landed + MATH


def test_waits_add_up_to_the_spans_of_every_role() -> None:
    trace = ring_trace(blocks=7, stages=3, ctas=3)
    s = trace.spans
    waiting = (s.t1 - s.t0)[s.kind == "wait"].sum()
    assert sum(share.waiting for share in role_shares(trace)) == pytest.approx(waiting)
    part = role_shares(trace, [1])
    assert [share.warps for share in part] == [1, 1]
    assert sum(share.waiting for share in part) == pytest.approx((s.t1 - s.t0)[(s.kind == "wait") & (s.cta == 1)].sum())


def test_unnamed_warps_go_by_their_number() -> None:
    assert [share.role for share in role_shares(ring_trace(named=False))] == ["warp 0", "warp 1"]


def test_time_in_flight_is_counted_cycle_by_cycle() -> None:
    trace = ring_trace(blocks=9, stages=3, ctas=2)
    ops = trace.operations
    sums = [0, 0, 0]
    for cta in (0, 1):
        busy = [
            {
                cycle
                for i in range(len(ops.cta))
                if ops.cta[i] == cta and ops.kind[i] == kind
                for cycle in range(int(ops.t_start[i]), int(ops.t_end[i]))
            }
            for kind in ("tensor_load", "wgmma")
        ]
        for place, cycles in enumerate((busy[0], busy[1], busy[0] & busy[1])):
            sums[place] += len(cycles)
        assert [length(t) for t in family_times(trace, cta).values()] == [len(b) for b in busy]
    found = flight(trace, [0, 1])
    assert [found.loads, found.wgmma, found.both] == sums


def test_every_load_is_seen_by_the_consumer_when_its_wait_ends() -> None:
    trace = ring_trace(blocks=6, stages=2, ctas=2)
    ops = trace.operations
    found = observers(trace, [0, 1])
    assert found.keys() == set(range(len(ops.cta)))
    for i, seen in found.items():
        if ops.kind[i] == "wgmma":
            assert (seen.cta, seen.warp, seen.time) == (ops.cta[i], 1, ops.t_end[i])
        else:
            assert (seen.cta, seen.warp) == (ops.cta[i], 1)
            assert seen.time >= ops.t_end[i]
    assert found[0].time == ISSUE + QUEUE + LOAD
    assert {ops.cta[i] for i in observers(trace, [1])} == {1}


def test_four_warps_of_a_warpgroup_make_one_wgmma() -> None:
    trace = ring_trace(blocks=3, ctas=2)
    ops = trace.operations
    count = len(ops.id)
    wgmma = np.flatnonzero(ops.kind == "wgmma")
    # The same again for warps 2 and 3 of the warpgroup, and for warp 5 of another.
    for name, column in list(vars(ops).items()):
        setattr(ops, name, np.concatenate([column, *([column[wgmma]] * 3)]))
    ops.warp[count:] = np.repeat([2, 3, 5], len(wgmma))
    for cta in (0, 1):
        rows = instructions(trace, cta)
        assert (ops.kind[rows] == "tensor_load").sum() == 3
        assert sorted(ops.warp[rows][ops.kind[rows] == "wgmma"]) == [1, 1, 1, 5, 5, 5]


def test_bulk_store_is_seen_when_its_sources_were_read_or_when_it_is_done() -> None:
    trace = ring_trace(blocks=1)
    ops, spans = trace.operations, trace.spans
    ops.kind[1], ops.t_read[1] = "bulk_store", 250.0  # ends at 344, where the consumer's group wait ends
    wait = np.flatnonzero(spans.what == "wgmma.wait_group")[0]
    end = float(spans.t1[wait])
    for name, since in (("sources of bulk groups", 250.0), ("bulk groups", float(ops.t_end[1]))):
        spans.object[wait] = name
        seen = observers(trace, [0])[1]
        assert (seen.warp, seen.time, seen.since, seen.reads) == (1, end, since, since == 250.0)
    spans.object[wait] = "wgmma groups"  # waits for something else
    assert observers(trace, [0]).keys() == {0}


def test_operation_that_nothing_waits_for_has_no_observer() -> None:
    trace = ring_trace(blocks=1)
    trace.spans.kind[:] = "alu"
    trace.barriers.event[:] = "arrive"
    assert observers(trace, [0]) == {}
