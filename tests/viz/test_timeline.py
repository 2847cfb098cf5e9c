"""The timeline draws every span, operation, phase and access where its cycles are, and says in words what matters."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from made_trace import BYTES, ISSUE, LOAD, MATH, QUEUE, ring_trace
from svg_reading import SVG, details, numbers, parse, rectangles, written

from mlacademy.viz.timeline import timeline
from mlacademy.viz.timeline_lanes import choose, lanes_of
from mlacademy.viz.timeline_merge import fitting, merged, thinned
from mlacademy.viz.timeline_rows import PLOT_WIDTH, PLOT_X

BAR = re.compile(r"(.+), cycles ([\d,.]+)–([\d,.]+) \(([\d,.]+)\): (.+)")


def bars(svg: str) -> list[tuple[str, float, float, str]]:
    """Lane, start, stop and words of each bar, as its sentence says."""
    found = [m for sentence in details(svg) if (m := BAR.match(sentence))]
    return [(m[1], float(m[2].replace(",", "")), float(m[3].replace(",", "")), m[5]) for m in found]


class Deadlock(Exception):
    rule = "deadlock"


def test_every_span_and_operation_of_a_short_run_is_drawn_once() -> None:
    trace = ring_trace(blocks=5, stages=2)
    drawn = bars(timeline(trace).svg)
    lanes = [lane for lane, *_ in drawn]
    spans = trace.spans
    for warp, name in enumerate(("producer · w0", "consumer · w1")):
        mine = spans.warp == warp
        assert sorted((a, b) for lane, a, b, _ in drawn if lane == name) == sorted(
            zip(spans.t0[mine], spans.t1[mine], strict=True)
        )
    assert lanes.count("TMA loads") == lanes.count("wgmma") == 5
    assert lanes.count("k[0]") == 6
    assert lanes.count("full[0]") == 4  # three phases done, one under way


def test_bars_stand_where_their_cycles_are() -> None:
    trace = ring_trace(blocks=4)
    svg = timeline(trace).svg
    for lane, start, stop, words in bars(svg):
        x, _, width, _ = rectangles(svg, f"{lane}, cycles {start:,g}–{stop:,g} ({stop - start:,g}): {words}")[0]
        assert x == pytest.approx(PLOT_X + start / trace.cycles * PLOT_WIDTH, abs=0.02)
        assert width == pytest.approx(max((stop - start) / trace.cycles * PLOT_WIDTH - 0.3, 0.75), abs=0.02)


def test_details_name_object_instruction_and_source_line() -> None:
    sentences = details(timeline(ring_trace(blocks=1)).svg)
    landed = ISSUE + QUEUE + LOAD
    assert f"consumer · w1, cycles 0–{landed} ({landed}): waits for full[0]: mbarrier.try_wait, ring.cu:30" in sentences
    assert (
        f"TMA loads, cycles {ISSUE}–{landed} ({QUEUE + LOAD}): tensor load by producer, {BYTES:,} bytes, reads global, "
        f"writes k[0], signals full[0], {QUEUE} cycles in the queue, line 22" in sentences
    )


def test_twin_states_shares_and_overlap() -> None:
    text = timeline(ring_trace(blocks=1)).text
    life, waiting = ISSUE + QUEUE + LOAD + ISSUE + MATH + ISSUE, ISSUE + QUEUE + LOAD + MATH
    assert f"consumer: {100 * waiting / life:.3g} % of the time in waits, most on full[0]" in text
    assert "producer (1 warp): waits 0 %" in text
    assert f"TMA loads: 1 operation, {BYTES:,} bytes, {QUEUE + LOAD} cycles from issue to completion on average" in text
    assert "overlap for 0 cycles: 0 % of the loads' time, 0 % of wgmma's" in text
    assert "barrier full[0] of CTA 0: 1 phase completed" in text
    assert f"buffer k[0] of CTA 0: {BYTES:,} bytes: 1 write, 1 read" in text


def test_one_link_leads_from_each_operation_to_the_wait_that_saw_it() -> None:
    trace = ring_trace(blocks=3)
    circles = list(parse(timeline(trace).svg).iter(f"{SVG}circle"))
    assert len(circles) == 6
    waits = [*trace.spans.t1[trace.spans.kind == "wait"], *trace.barriers.time[trace.barriers.event == "pass"]]
    ends = {round(PLOT_X + t / trace.cycles * PLOT_WIDTH, 2) for t in waits}
    assert {float(c.get("cx", "nan")) for c in circles} <= ends


@pytest.mark.parametrize("ctas", [1, 3])
def test_filters_keep_what_they_name_and_what_it_touches(ctas: int) -> None:
    trace = ring_trace(blocks=6, stages=2, ctas=ctas)
    lanes = {lane for lane, *_ in bars(timeline(trace, role="producer").svg)}
    assert "producer · w0" in lanes
    assert not lanes & {"consumer · w1", "wgmma"}
    drawn = bars(timeline(trace, barrier="full[1]").svg)
    lanes = {lane for lane, *_ in drawn}
    assert {"full[1]", "k[1]", "TMA loads"} <= lanes
    assert not lanes & {"full[0]", "empty[1]", "k[0]"}
    assert all("signals full[1]" in words for lane, *_, words in drawn if lane == "TMA loads")
    drawn = bars(timeline(trace, buffer="k[0]").svg)
    lanes = {lane for lane, *_ in drawn}
    assert {"full[0]", "k[0]", "TMA loads", "wgmma"} <= lanes
    assert not lanes & {"full[1]", "k[1]"}
    assert all("k[0]" in words for lane, *_, words in drawn if lane in ("TMA loads", "wgmma"))
    labels = [t for t in written(timeline(trace, cta=ctas - 1).svg) if t == "producer · w0"]
    assert len(labels) == 1


def test_spans_outside_a_chosen_barrier_turn_grey() -> None:
    trace = ring_trace(blocks=6)
    lane = next(lane for lane in lanes_of(trace, choose(trace, barrier="full[0]")) if lane.warp == 1)
    bright = [text for text, key in zip(lane.bars.text, lane.bars.key, strict=True) if key == 7]
    assert bright
    assert all("for full[0]" in text for text in bright)


def test_window_cuts_the_cycles() -> None:
    trace = ring_trace(blocks=6)
    picture = timeline(trace, start=300, stop=500)
    assert picture.title == f"Timeline of ring: {trace.cycles:,.0f} cycles, 300 to 500"
    assert all(start <= 500 and stop >= 300 for _, start, stop, _ in bars(picture.svg))
    assert all(
        r[0] >= PLOT_X - 0.01 and r[0] + r[2] <= PLOT_X + PLOT_WIDTH + 0.8 for r in rectangles(picture.svg, ", cycles ")
    )


@pytest.mark.parametrize("how", ["argument", "trace", "exception"])
def test_death_is_marked_where_the_run_ended(how: str) -> None:
    died = Deadlock("Nothing can run any more.\nproducer waits …")
    trace: Any = ring_trace(blocks=3, error=died if how == "trace" else None)
    if how == "exception":
        died.trace = trace  # type: ignore[attr-defined]
    picture = timeline(died if how == "exception" else trace, error=died if how == "argument" else None)
    assert "The run ended in: deadlock." in picture.text
    assert f"cycle {trace.cycles:,.0f}: the run ended in: deadlock" in details(picture.svg)
    assert "✕ deadlock" in written(picture.svg)
    assert "✕" not in timeline(ring_trace(blocks=3)).svg


def test_report_with_a_trace_will_do() -> None:
    trace = ring_trace(blocks=2)
    assert timeline(SimpleNamespace(trace=trace)) == timeline(trace)


def test_long_run_stays_small_and_loses_no_time() -> None:
    trace = ring_trace(blocks=1000, stages=4, ctas=4)
    assert len(trace.spans.t0) > 20_000
    picture = timeline(trace)
    assert len(picture.svg) < 2_000_000
    assert len(picture.text.splitlines()) < 60
    lanes = lanes_of(trace, choose(trace))
    kept = fitting(lanes, 0.0, trace.cycles, PLOT_WIDTH, 3600)
    assert sum(map(len, kept)) <= 3600
    for lane, few in zip(lanes, kept, strict=True):
        assert few.start.min(initial=np.inf) == lane.bars.start.min(initial=np.inf)
        assert few.stop.max(initial=0) == lane.bars.stop.max(initial=0)


def test_bars_drawn_together_say_how_many_and_share_their_time() -> None:
    trace = ring_trace(blocks=50)
    lane = next(lane for lane in lanes_of(trace, choose(trace)) if lane.warp == 1)
    few = merged(lane.bars, 0.0, trace.cycles, 1000.0)
    counts = [int(t.split(" ")[0]) if "drawn together" in t else 1 for t in few.text]
    assert sum(counts) == len(lane.bars)
    spent = (lane.bars.stop - lane.bars.start).sum()
    said = sum(float(re.search(r"([\d,]+) cycles in all", t)[1].replace(",", "")) for t in few.text)  # type: ignore[index]
    assert said == pytest.approx(spent, rel=1e-3)
    assert all(sum(share for _, share in parts) == pytest.approx(1) for parts in few.mix if parts)
    alone = merged(lane.bars, 0.0, trace.cycles, 0.5)
    assert alone.text == lane.bars.text


def test_steps_keep_the_last_state_of_a_pixel() -> None:
    trace = ring_trace(blocks=200)
    lane = next(lane for lane in lanes_of(trace, choose(trace)) if lane.name == "full[0]")
    assert lane.steps is not None
    few = thinned(lane.steps, 0.0, trace.cycles, 50)
    assert len(few.time) <= 51
    assert (few.pending[-1], few.tx[-1]) == (lane.steps.pending[-1], lane.steps.tx[-1])
    late = thinned(lane.steps, 1000.0, 1200.0, 100)
    before = np.searchsorted(lane.steps.time, 1000.0, side="right") - 1
    assert (late.time[0], late.tx[0]) == (1000.0, lane.steps.tx[before])


def test_many_ctas_are_cut_at_whole_ctas_and_said_so() -> None:
    picture = timeline(ring_trace(blocks=2, ctas=20))
    assert "4 of 20 CTAs shown" in picture.text
    assert "CTA 3: warps" in written(picture.svg)
    assert "CTA 4: warps" not in written(picture.svg)


def test_numbers_of_the_summary_are_in_the_twin() -> None:
    picture = timeline(ring_trace(blocks=6, ctas=2))
    assert numbers(picture.text.splitlines()[1]) <= numbers(picture.text)
    assert picture.text.startswith(picture.title)


def test_run_without_spans_or_operations_draws() -> None:
    trace = ring_trace(blocks=1)
    for name in ("spans", "operations", "barriers", "accesses"):
        table = getattr(trace, name)
        for column in vars(table):
            setattr(table, column, getattr(table, column)[:0])
    assert parse(timeline(trace).svg).tag == f"{SVG}svg"


def test_bad_arguments_are_refused_in_a_sentence() -> None:
    trace = ring_trace(blocks=2)
    with pytest.raises(TypeError, match=r"it is int\. Was the launch made with trace=True\?"):
        timeline(3)
    with pytest.raises(TypeError, match="it is SimpleNamespace"):
        timeline(SimpleNamespace(trace=None))
    with pytest.raises(ValueError, match="role must be one of the run's: producer, consumer; it is 'loader'"):
        timeline(trace, role="loader")
    with pytest.raises(ValueError, match="cta must be one of the run's: 0; it is 4"):
        timeline(trace, cta=4)
    with pytest.raises(ValueError, match="barrier must be one of the run's: full"):
        timeline(trace, barrier=["full[0]", "full[9]"])
    with pytest.raises(ValueError, match="buffer must be one of the run's"):
        timeline(trace, buffer="v[0]")
    with pytest.raises(ValueError, match="start must lie before stop: start is 500, stop 500"):
        timeline(trace, start=500, stop=500)
