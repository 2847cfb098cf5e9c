"""The event log and its replay: it agrees with the run, with itself, and with what can be worked out by hand."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from mlacademy import gpu
from mlacademy.gpu import Device, LaunchPlan, samples
from mlacademy.gpu.cost_model import CostModel
from mlacademy.gpu.trace import Trace

POLICIES = [{"order": "eager"}, {"order": "lazy"}, {"order": "seeded", "seed": 5}, {"order": "seeded", "seed": 91}]
NAMES = ["bulk_copy", "cluster_sum", "wgmma_tile"]
HEADER = ".version 9.0\n.target sm_90a\n.address_size 64\n"


def traced(name: str, **options: Any) -> tuple[gpu.LaunchReport, Trace]:
    report, outcome = samples.run(name, Device("emulator"), inputs=2, trace=True, **options)
    assert outcome.right
    assert report.trace is not None
    return report, report.trace


@pytest.fixture(params=list(itertools.product(NAMES, range(len(POLICIES)))), ids=lambda p: f"{p[0]}-{p[1]}")
def run(request: pytest.FixtureRequest) -> tuple[gpu.LaunchReport, Trace]:
    name, policy = request.param
    return traced(name, **POLICIES[policy])


def test_log_counts_what_the_run_counts(run: tuple[gpu.LaunchReport, Trace]) -> None:
    report, trace = run
    counted = {key: trace.totals[key] for key in ("instructions", "lane_instructions")}
    assert counted == {key: report.statistics[key] for key in counted}


def test_spans_of_a_warp_follow_each_other(run: tuple[gpu.LaunchReport, Trace]) -> None:
    spans = run[1].spans
    for cta, warp in set(zip(spans.cta.tolist(), spans.warp.tolist(), strict=True)):
        mine = (spans.cta == cta) & (spans.warp == warp)
        begin, end = spans.t0[mine], spans.t1[mine]
        assert np.all(end > begin)
        assert np.all(begin[1:] >= end[:-1])
    assert spans.t1.max() <= run[1].cycles


def test_a_barrier_counts_to_the_end_of_each_phase(run: tuple[gpu.LaunchReport, Trace]) -> None:
    rows = run[1].barriers
    assert np.all(np.diff(rows.time) >= 0)
    for cta, offset in set(zip(rows.cta.tolist(), rows.offset.tolist(), strict=True)):
        mine = np.flatnonzero((rows.cta == cta) & (rows.offset == offset))
        assert rows.event[mine[0]] == "init"
        owed = {"pending": 0, "tx": 0}
        phases = 0
        for row in mine:
            event, amount = rows.event[row], int(rows.amount[row])
            if event == "init":
                owed = {"pending": amount, "tx": 0}
            elif event == "arrive":
                owed["pending"] -= amount
            elif event in ("expect_tx", "complete_tx"):
                owed["tx"] += amount if event == "expect_tx" else -amount
            elif event == "phase":
                assert owed == {"pending": 0, "tx": 0}
                owed["pending"], phases = int(rows.expected[row]), phases + 1
            assert (int(rows.pending[row]), int(rows.tx[row]), int(rows.phase[row])) == (*owed.values(), phases)
            assert owed["pending"] >= 0


def test_bytes_of_operations_are_the_bytes_that_barriers_get(run: tuple[gpu.LaunchReport, Trace]) -> None:
    trace = run[1]
    rows, operations = trace.barriers, trace.operations
    for name in set(operations.barrier.tolist()) - {""}:
        moved = operations.bytes[operations.barrier == name].sum()
        came = rows.amount[(rows.name == name) & (rows.event == "complete_tx")].sum()
        expected = rows.amount[(rows.name == name) & (rows.event == "expect_tx")].sum()
        assert moved == came == expected


def test_an_operation_ends_before_the_wait_that_it_ends(run: tuple[gpu.LaunchReport, Trace]) -> None:
    trace = run[1]
    rows, operations = trace.barriers, trace.operations
    ends = dict(zip(operations.id.tolist(), operations.t_end.tolist(), strict=True))
    assert np.all(operations.t_issue <= operations.t_start)
    assert np.all(operations.t_start <= operations.t_read)
    assert np.all(operations.t_read <= operations.t_end)
    checked = 0
    for row in np.flatnonzero(rows.event == "complete_tx"):
        same = (rows.cta == rows.cta[row]) & (rows.offset == rows.offset[row])
        over = rows.time[same & (rows.event == "phase") & (rows.phase == rows.phase[row] + 1)]
        passes = rows.time[same & (rows.event == "pass") & (rows.phase == rows.phase[row] + 1)]
        assert ends[int(rows.by[row])] <= over[0]
        assert np.all(passes >= over[0])
        checked += 1
    assert checked == np.count_nonzero(operations.barrier != "")


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_gives_the_same_trace(name: str) -> None:
    first, again = (traced(name, order="seeded", seed=7)[1] for _ in range(2))
    for table in ("spans", "operations", "barriers", "accesses", "warps", "buffers", "ctas"):
        one, other = vars(getattr(first, table)), vars(getattr(again, table))
        for column, values in one.items():
            assert values.tolist() == other[column].tolist(), (table, column)


@pytest.mark.parametrize("name", NAMES)
def test_times_hardly_depend_on_the_order_in_which_copies_complete(name: str) -> None:
    cycles = [traced(name, **policy)[1].cycles for policy in POLICIES]
    assert max(cycles) < 1.1 * min(cycles)


@pytest.mark.parametrize("constant", ["bulk_latency", "l2_latency", "mbarrier_wake_latency", "barrier_latency"])
@pytest.mark.parametrize("name", NAMES)
def test_a_slower_machine_never_takes_less_time(name: str, constant: str) -> None:
    trace = traced(name)[1]
    value = getattr(trace.cost_model, constant)
    cycles = [trace.with_costs(trace.cost_model.replace(**{constant: value * k})).cycles for k in (0.5, 1, 1.5, 3)]
    assert cycles == sorted(cycles)


def test_roles_and_buffers_carry_the_kernels_names() -> None:
    trace = traced("bulk_copy")[1]
    assert trace.warps.role.tolist() == ["producer", "consumer"] * 3
    names = {f"{name}[{i}]" for name in ("stage", "full", "empty") for i in range(4)}
    assert set(trace.buffers.name.tolist()) == names
    assert {name for touched in trace.operations.writes for name in touched} == {"global"} | {
        f"stage[{i}]" for i in range(4)
    }
    waits = trace.spans.object[trace.spans.kind == "wait"]
    assert {"full[0]", "sources of bulk groups"} <= set(waits.tolist())


def test_a_report_without_a_trace_has_none() -> None:
    report, _ = samples.run("bulk_copy", Device("emulator"))
    assert report.trace is None


def test_a_trace_that_grows_too_large_says_so() -> None:
    with pytest.raises(gpu.TraceFull, match="The trace is full: 50 events have been logged") as caught:
        samples.run("bulk_copy", Device("emulator"), trace=True, trace_limit=50)
    assert caught.value.trace.totals["events"] == 50
    assert caught.value.trace.cycles > 0


HANG = """.visible .entry hang() { .reg .b32 %r<4>; .reg .pred %p<2>; .shared .align 8 .b8 s[8];
mov.u32 %r1, s;
// mla.buffer "never", %r1, 8
// mla.role "waiting"
mbarrier.init.shared.b64 [%r1], 2;
mbarrier.arrive.shared.b64 _, [%r1];
again: mbarrier.try_wait.parity.shared.b64 %p1, [%r1], 0;
@!%p1 bra again;
ret; }"""


def test_a_hang_leaves_its_trace_with_the_error() -> None:
    kernel = gpu.Module.from_ptx(HEADER + HANG)["hang"]
    with pytest.raises(gpu.Deadlock) as caught:
        Device("emulator").launch(kernel, LaunchPlan(grid=1, block=1), (), trace=True)
    trace = caught.value.trace
    assert trace.error is caught.value
    last = trace.spans.t1.argmax()
    assert (trace.spans.kind[last], trace.spans.object[last], trace.spans.role[last]) == ("wait", "never", "waiting")
    assert trace.barriers.pending.tolist()[-1] == 1


# One warp, known by hand: two dependent additions, a load from shared memory, an addition on it.
CHAIN = """.visible .entry chain(.param .u32 x) { .reg .b32 %r<6>; .shared .align 4 .b8 s[128];
ld.param.u32 %r1, [x];
add.u32 %r2, %r1, 1;
add.u32 %r3, %r2, 1;
st.shared.u32 [s], %r3;
ld.shared.u32 %r4, [s];
add.u32 %r5, %r4, 1;
ret; }"""


def test_a_chain_takes_the_sum_of_its_latencies() -> None:
    costs = CostModel().replace(start_latency=0, alu_latency=4, shared_latency=30, integer_issue=1)
    kernel = gpu.Module.from_ptx(HEADER + CHAIN)["chain"]
    report = Device("emulator").launch(kernel, LaunchPlan(grid=1, block=32), (3,), trace=True, cost_model=costs)
    trace = report.trace
    assert trace is not None
    # add at 0, its result at 4, the second's at 8: the store starts at 8; the load waits for its turn behind the store
    # in shared memory and in no other way, so it starts at 4 and its result is there at 34; the last addition is at 34.
    assert trace.cycles == pytest.approx(34, abs=2)
    slower = trace.with_costs(costs.replace(alu_latency=14, shared_latency=130))
    assert slower.cycles == pytest.approx(134, abs=2)


def test_a_ring_in_its_steady_state_has_one_period() -> None:
    """An arrival's place among its instruction's lanes does not depend on how often the loop has been round."""
    trace = traced("wgmma_ring")[1]
    loads = np.flatnonzero((trace.operations.kind == "tensor_load") & (trace.operations.cta == 0))
    begins = np.sort(trace.operations.t_issue[loads])[4::2]  # of a, from the second round on
    assert len(begins) == 5
    assert np.allclose(np.diff(begins), begins[1] - begins[0])
