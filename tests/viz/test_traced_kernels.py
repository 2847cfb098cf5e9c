"""Pictures of real runs: the sample kernels, traced on the emulator, and one that hangs."""

from __future__ import annotations

import functools
import itertools
import re
from typing import Any

import numpy as np
import pytest
from svg_reading import details, parse

from mlacademy import gpu
from mlacademy.gpu import samples
from mlacademy.gpu.includes import header_layer
from mlacademy.viz import barrier_states, timeline
from mlacademy.viz.barrier_log import barrier_log, barriers_of, waiting_at
from mlacademy.viz.timeline import run_of
from mlacademy.viz.timeline_explorer import scene_of
from mlacademy.viz.timeline_facts import instructions, observers, role_shares
from mlacademy.viz.timeline_lanes import choose, lanes_of

KERNELS = ("bulk_copy", "cluster_sum", "wgmma_tile", "wgmma_ring", "wgmma_pingpong")


@functools.cache
def traced(name: str) -> Any:
    report, outcome = samples.run(name, gpu.Device("emulator"), trace=True)
    assert outcome.right
    return report.trace


@pytest.mark.parametrize("name", KERNELS)
def test_timeline_of_a_sample_kernel_is_whole_and_small(name: str) -> None:
    trace = traced(name)
    picture = timeline(trace)
    parse(picture.svg)
    assert len(picture.svg) < 2_000_000
    assert picture.title.startswith(f"Timeline of {name}: ")
    lanes = lanes_of(trace, choose(trace))
    assert sum(len(lane.bars) for lane in lanes if lane.section == "warps") == len(trace.spans.t0)
    assert all((lane.bars.stop >= lane.bars.start).all() for lane in lanes)
    assert max(float(lane.bars.stop.max(initial=0)) for lane in lanes) <= trace.cycles + 1e-6


@pytest.mark.parametrize("name", KERNELS)
def test_waits_of_each_role_fit_into_its_life(name: str) -> None:
    trace = traced(name)
    spans = trace.spans
    shares = role_shares(trace)
    assert all(0 <= share.waiting <= share.life for share in shares)
    assert sum(share.waiting for share in shares) == pytest.approx((spans.t1 - spans.t0)[spans.kind == "wait"].sum())


@pytest.mark.parametrize("name", ["bulk_copy", "wgmma_ring", "wgmma_pingpong"])
def test_every_load_is_seen_after_it_landed_by_a_warp_that_reads_it(name: str) -> None:
    trace = traced(name)
    ops = trace.operations
    ctas = {int(cta) for cta in ops.cta}
    seen = observers(trace, ctas)
    loads = [i for i in range(len(ops.id)) if str(ops.kind[i]).endswith("load")]
    assert loads
    producers = {(int(ops.cta[i]), int(ops.warp[i])) for i in loads}
    for i in loads:
        assert seen[i].time >= ops.t_end[i]
        assert (seen[i].cta, seen[i].warp) not in producers


def test_wgmma_is_counted_once_a_warpgroup() -> None:
    trace = traced("wgmma_ring")
    kinds = trace.operations.kind
    for cta in {int(c) for c in trace.operations.cta}:
        mine = (trace.operations.cta == cta) & (kinds == "wgmma")
        assert 4 * (kinds[instructions(trace, cta)] == "wgmma").sum() == mine.sum()


@pytest.mark.parametrize("name", ["bulk_copy", "wgmma_ring", "wgmma_pingpong"])
def test_barriers_of_a_run_keep_the_law_of_the_phase(name: str) -> None:
    trace = traced(name)
    for cta, barrier in barriers_of(trace):
        log = barrier_log(trace, barrier, cta)
        assert log[0].kind == "init"
        for before, event in itertools.pairwise(log):
            if event.kind == "phase":
                assert (before.pending, before.tx) == (0, 0)
            assert event.phase == before.phase + (event.kind == "phase")
            assert event.time >= before.time
        assert waiting_at(log, len(log) - 1) == []
        parse(barrier_states(trace, barrier, cta=cta, step=len(log) // 2).svg)


def test_names_and_lines_are_the_kernel_s_own() -> None:
    sentences = details(timeline(traced("bulk_copy")).svg)
    assert any(s.startswith("consumer · w1,") and "waits for full[" in s and "bulk_copy.cu:" in s for s in sentences)
    assert any("writes stage[0], signals full[0]" in s for s in sentences)


def test_scene_of_a_run_is_plain_numbers() -> None:
    trace = traced("wgmma_ring")
    scene = scene_of(run_of(trace), lanes_of(trace, choose(trace)))
    assert all(isinstance(v, int | float) and not isinstance(v, np.generic) for v in scene["lanes"][0]["start"])


def test_hang_is_marked_and_the_stepper_shows_who_stands_there() -> None:
    source = (
        (header_layer() / "bulk_copy.cu")
        .read_text(encoding="utf-8")
        .replace("mbarrier_arrive(&shared.empty[stage]);", "")
    )
    kernel = gpu.compile(source, arch="sm_90a", name="bulk_copy.cu")["bulk_copy"]
    data = np.zeros(64 * 4096, np.uint8)
    target = np.zeros_like(data)
    with pytest.raises(gpu.Deadlock) as caught:
        gpu.Device("emulator").launch(kernel, gpu.LaunchPlan(grid=2, block=64), (data, target, data.nbytes), trace=True)
    picture = timeline(caught.value)
    assert "The run ended in: deadlock." in picture.text
    assert any("the run ended in: deadlock" in s for s in details(picture.svg))
    assert re.search(r"At the end producer \(CTA 0, warp 0\) waits for empty\[0\], since cycle \d", picture.text)
    assert re.search(r"At the end consumer \(CTA 0, warp 1\) waits for full\[0\], since cycle \d", picture.text)
    log = barrier_log(run_of(caught.value).trace, "empty[0]", 0)
    assert [who for who, _ in waiting_at(log, len(log) - 1)] == ["producer"]
