"""The barrier's states follow the log of a run: the state after each event, who did it, and who stands waiting."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
from made_trace import BYTES, ISSUE, LOAD, QUEUE, ring_trace
from svg_reading import details, numbers, parse, written

from mlacademy.viz.barrier_log import barrier_log, barriers_of, waiting_at
from mlacademy.viz.barrier_machine import barrier_states
from mlacademy.viz.explorer import Explorer
from mlacademy.viz.picture import Picture
from mlacademy.viz.trace_studies import barrier_study, explore_barrier

LANDED = ISSUE + QUEUE + LOAD


def test_log_of_one_block_is_the_life_of_a_phase() -> None:
    log = barrier_log(ring_trace(blocks=1), "full[0]", 0)
    assert [(e.kind, e.time, e.by, e.pending, e.tx, e.phase) for e in log] == [
        ("init", 0, "producer", 1, 0, 0),
        ("expect_tx", 0, "producer", 1, BYTES, 0),
        ("arrive", 0, "producer", 0, BYTES, 0),
        ("wait", 0, "consumer", 0, BYTES, 0),
        ("complete_tx", LANDED, "tensor load 1", 0, 0, 0),
        ("phase", LANDED, "tensor load 1", 1, 0, 1),
        ("pass", LANDED, "consumer", 1, 0, 1),
    ]
    assert [e.source for e in log][1:5] == ["ring.cu:21", "ring.cu:21", "ring.cu:30", "line 22"]
    assert log[1].words == f"producer expects {BYTES:,} bytes more"
    assert log[4].words == f"tensor load 1: {BYTES:,} bytes have landed"
    assert log[5].words == "phase 0 is over, phase 1 begins"


def test_every_phase_ends_exactly_when_nothing_is_due_and_nothing_owed() -> None:
    trace = ring_trace(blocks=9, stages=3, ctas=2)
    for cta, name in barriers_of(trace):
        log = barrier_log(trace, name, cta)
        for before, event in itertools.pairwise(log):
            if event.kind == "phase":
                assert (before.pending, before.tx) == (0, 0)
                assert event.phase == before.phase + 1
            else:
                assert event.phase == before.phase


def test_who_waits_is_known_after_each_event() -> None:
    log = barrier_log(ring_trace(blocks=1), "full[0]", 0)
    waiting = [[who for who, _ in waiting_at(log, at)] for at in range(len(log))]
    assert waiting == [[], [], [], ["consumer"], ["consumer"], ["consumer"], []]
    assert waiting_at(log, 4) == [("consumer", 0.0)]


@pytest.mark.parametrize("step", range(7))
def test_picture_shows_the_state_of_its_step(step: int) -> None:
    trace = ring_trace(blocks=1)
    picture = barrier_states(trace, "full[0]", step=step)
    now = barrier_log(trace, "full[0]", 0)[step]
    assert picture.title == f"Barrier full[0] of CTA 0, event {step} of 0–6"
    sentences = details(picture.svg)
    assert f"{1 - now.pending} of 1 arrival came in this phase, {now.pending} due" in sentences
    assert f"{now.tx:,} bytes owed; the most in this run: {BYTES:,}" in sentences
    parity = now.phase % 2
    assert f"parity {parity}: a wait for parity {parity} stands still until this phase ends" in sentences
    assert f"parity {1 - parity}: a wait for parity {1 - parity} goes on at once" in sentences
    assert ("consumer waits since cycle 0" in sentences) == (3 <= step < 6)
    assert f"> {step}. cycle" in picture.text


def test_window_of_events_follows_the_step_in_a_long_log() -> None:
    trace = ring_trace(blocks=60)
    log = barrier_log(trace, "full[0]", 0)
    for step in (0, 40, len(log) - 1):
        picture = barrier_states(trace, "full[0]", step=step)
        shown = [int(m[1]) for s in details(picture.svg) if (m := re.match(r"event (\d+), cycle", s))]
        assert len(shown) == 11
        assert step in shown
        assert len(picture.text.splitlines()) < 70


def test_numbers_of_the_drawing_are_in_the_twin() -> None:
    picture = barrier_states(ring_trace(blocks=2), "full[1]", step=4)
    assert numbers(" ".join(written(picture.svg))) <= numbers(picture.text)


def test_many_arrivals_are_a_bar_and_bytes_below_zero_stand_left_of_it() -> None:
    trace: Any = ring_trace(blocks=1)
    table = trace.barriers
    mine = table.name == "full[0]"
    table.expected[mine], table.pending[mine] = 128, 96
    table.tx[mine & (table.event == "complete_tx")] = -BYTES
    picture = barrier_states(trace, "full[0]", step=4)
    assert "32 of 128 arrivals came in this phase, 96 due" in details(picture.svg)
    assert f"tx = −{BYTES:,}" in written(picture.svg)
    parse(picture.svg)


@pytest.fixture
def explorer(monkeypatch: pytest.MonkeyPatch) -> Explorer:
    monkeypatch.delenv("MLACADEMY_STATIC", raising=False)
    shown = explore_barrier(ring_trace(blocks=4, ctas=2))
    assert isinstance(shown, Explorer)
    return shown


def test_stepper_goes_through_the_log_of_the_chosen_barrier(explorer: Explorer) -> None:
    assert explorer.view.title == "Barrier full[0] of CTA 0, event 0 of 0–12"
    explorer.controls["step"].value = 5
    assert "event 5" in explorer.view.title
    explorer.controls["barrier"].value = (1, "empty[1]")
    last = explorer.controls["step"].max
    assert last == len(barrier_log(ring_trace(blocks=4, ctas=2), "empty[1]", 1)) - 1
    explorer.controls["step"].value = last
    assert explorer.view.title == f"Barrier empty[1] of CTA 1, event {last} of 0–{last}"
    assert explorer.view.message == ""


def test_book_gets_the_first_barrier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLACADEMY_STATIC", "1")
    trace = ring_trace(blocks=2)
    shown = explore_barrier(trace)
    assert isinstance(shown, Picture)
    assert shown == barrier_states(trace, "full[0]", step=0) == barrier_study(trace).picture()


def test_bad_arguments_are_refused_in_a_sentence() -> None:
    trace: Any = ring_trace(blocks=2)
    with pytest.raises(ValueError, match=r"barrier must be one of the run's: full\[0\], .*; it is 'done'"):
        barrier_states(trace, "done")
    with pytest.raises(ValueError, match=r"cta must be one with a barrier full\[0\]: 0; it is 3"):
        barrier_states(trace, "full[0]", cta=3)
    with pytest.raises(ValueError, match=r"step must be 0 to 6, one for each event of full\[0\]: it is 7"):
        barrier_states(trace, "full[0]", step=7)
    with pytest.raises(TypeError, match="trace must be the trace of a launch"):
        barrier_states(None, "full[0]")
    for column in vars(trace.barriers):
        setattr(trace.barriers, column, getattr(trace.barriers, column)[:0])
    with pytest.raises(ValueError, match="trace must hold an mbarrier to step through"):
        explore_barrier(trace)
