"""The timeline's widget without a browser: the scene is the run, filters thin it, and the twin follows."""

from __future__ import annotations

import json
from typing import Any

import pytest
from made_trace import ring_trace

from mlacademy.viz.picture import Picture
from mlacademy.viz.timeline import timeline
from mlacademy.viz.timeline_explorer import TimelineExplorer
from mlacademy.viz.trace_studies import ALL, explore_timeline


@pytest.fixture
def explore(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delenv("MLACADEMY_STATIC", raising=False)
    return explore_timeline


def scene(explorer: TimelineExplorer) -> dict[str, Any]:
    return dict(json.loads(explorer.view.scene))


def test_scene_holds_every_span_with_its_times_and_words(explore: Any) -> None:
    trace = ring_trace(blocks=5, ctas=2)
    found = scene(explore(trace))
    assert found["cycles"] == trace.cycles
    for lane in found["lanes"]:
        assert lane["start"] == sorted(lane["start"])
        assert len({len(lane[name]) for name in ("start", "stop", "key", "level", "text")}) == 1
        if lane["section"] == "warps":
            warp = int(lane["name"][-1])
            mine = (trace.spans.cta == lane["cta"]) & (trace.spans.warp == warp)
            assert lane["start"] == trace.spans.t0[mine].tolist()
            kinds = [found["names"][key] for key in lane["key"]]
            assert kinds == trace.spans.kind[mine].tolist()
    assert len(found["texts"]) == len(set(found["texts"]))


def test_links_lead_to_the_lane_of_the_warp_that_saw_the_operation(explore: Any) -> None:
    lanes = scene(explore(ring_trace(blocks=5, ctas=2)))["lanes"]
    loads = [lane for lane in lanes if lane["name"] == "TMA loads"]
    for lane in loads:
        assert len(lane["links"]) == 5
        for bar, to, time, since, reads in lane["links"]:
            assert lanes[to]["name"] == "consumer · w1"
            assert lanes[to]["cta"] == lane["cta"]
            assert (since, reads) == (lane["stop"][bar], False)
            assert time >= since


def test_filters_change_scene_and_twin(explore: Any) -> None:
    explorer = explore(ring_trace(blocks=6, stages=3, ctas=2))
    assert set(explorer.controls) == {"cta", "role", "barrier", "buffer"}
    assert explorer.settings == dict.fromkeys(explorer.controls, ALL)
    whole = scene(explorer)
    explorer.controls["cta"].value = 1
    assert {lane["cta"] for lane in scene(explorer)["lanes"]} == {1}
    assert "1 of 2 CTAs shown" in explorer.view.summary
    assert "barrier full[0] of CTA 0" not in explorer.view.text
    explorer.set(cta=ALL, role="consumer", barrier="full[2]")
    names = {lane["name"] for lane in scene(explorer)["lanes"]}
    assert names == {"consumer · w1", "full[2]", "k[2]"}  # the producer issued the loads
    explorer.set(role=ALL, barrier=ALL)
    assert scene(explorer) == whole


def test_twin_is_that_of_the_static_picture(explore: Any) -> None:
    trace = ring_trace(blocks=4)
    explorer = explore(trace)
    assert explorer.view.text == timeline(trace).text
    assert explorer.view.title == timeline(trace).title


def test_control_without_a_choice_is_left_out(explore: Any) -> None:
    explorer = explore(ring_trace(blocks=2, stages=1, ctas=1))
    assert set(explorer.controls) == {"role", "barrier"}


def test_end_of_a_run_that_died_is_in_the_scene(explore: Any) -> None:
    class Race(Exception):
        rule = "race"

    assert scene(explore(ring_trace(blocks=2, error=Race("Two warps write."))))["died"] == "race"
    assert scene(explore(ring_trace(blocks=2)))["died"] == ""


def test_long_run_makes_a_scene_of_a_few_megabytes(explore: Any) -> None:
    trace = ring_trace(blocks=1000, stages=4, ctas=4)
    assert len(trace.spans.t0) > 20_000
    assert len(explore(trace).view.scene) < 4_000_000


def test_book_gets_the_static_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLACADEMY_STATIC", "1")
    trace = ring_trace(blocks=3)
    shown = explore_timeline(trace)
    assert isinstance(shown, Picture)
    assert shown == timeline(trace)
