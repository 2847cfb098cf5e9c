"""The timeline's canvas in a real page: keyboard, zoom, movement, details, theme, and a run of 24,000 spans."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from made_trace import ISSUE, LOAD, QUEUE, ring_trace
from test_view import FLAGS, MODEL

from mlacademy.machine import chromium
from mlacademy.viz.timeline import run_of
from mlacademy.viz.timeline_explorer import TimelineExplorer, TimelineView
from mlacademy.viz.trace_studies import timeline_study

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        instance = playwright.chromium.launch(executable_path=chromium(), headless=True, args=FLAGS)
        yield instance
        instance.close()


def state_of(trace: Any) -> dict[str, str]:
    run = run_of(trace)
    view = TimelineExplorer(run, timeline_study(run)).view
    return {name: getattr(view, name) for name in ("scene", "title", "summary", "text", "message")}


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[[Any], Any]]:
    pages: list[Any] = []
    errors: list[str] = []

    def opened(trace: Any) -> Any:
        page = browser.new_page(viewport={"width": 1000, "height": 900})
        pages.append(page)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.route("**/view.js", lambda route: route.fulfill(body=TimelineView._esm, content_type="text/javascript"))
        module = MODEL.replace("VIEW", "http://view.test/view.js").replace("STATE", json.dumps(state_of(trace)))
        document = (
            f"<style>{TimelineView._css}</style><button id=before>b</button><div id=view></div>"
            f"<script type=module>{module}</script>"
        )
        page.route(
            "http://view.test/", lambda route: route.fulfill(body=document, content_type="text/html; charset=utf-8")
        )
        page.goto("http://view.test/")
        page.wait_for_function("window.ready")
        page.wait_for_timeout(50)
        return page

    yield opened
    for page in pages:
        page.close()
    assert errors == []


def detail(page: Any) -> str:
    return str(page.locator(".mla-detail").text_content())


def cycles(page: Any) -> tuple[float, float]:
    words = page.locator(".mla-range").text_content().replace(",", "").split()
    return float(words[1]), float(words[3])


def enter(page: Any) -> None:
    page.locator(".mla-tools button").last.focus()
    page.keyboard.press("Tab")


TOPS = """scene => {
  let [y, last] = [24, ""];
  return scene.lanes.map((lane) => {
    if (lane.cta + lane.section !== last) y += 17;
    last = lane.cta + lane.section;
    const top = y;
    y += { warps: 14, operations: 9, barriers: 28, buffers: 8 }[lane.section] * lane.levels + 5;
    return top;
  });
}"""
PIXEL = """([x, y]) => {
  const ratio = window.devicePixelRatio;
  const context = document.querySelector(".mla-canvas").getContext("2d");
  return [...context.getImageData(x * ratio, y * ratio, 1, 1).data];
}"""


def colour_at(page: Any, cycle: float, lane: int) -> list[int]:
    """Red, green, blue and opacity near the top of a lane at a cycle, the whole run being shown."""
    scene = json.loads(page.evaluate("window.model.get('scene')"))
    width = page.evaluate("document.querySelector('.mla-canvas').clientWidth")
    top = page.evaluate(TOPS, scene)[lane]
    return list(page.evaluate(PIXEL, [150 + cycle / scene["cycles"] * (width - 158), top + 4]))


def test_arrow_keys_go_from_bar_to_bar_and_lane_to_lane(open_page: Callable[[Any], Any]) -> None:
    page = open_page(ring_trace(blocks=3))
    assert "arrow keys" in detail(page)
    enter(page)
    assert (
        detail(page)
        == f"producer · w0, cycles 0–{ISSUE} ({ISSUE}): synchronises: mbarrier.arrive.expect_tx, ring.cu:21"
    )
    page.keyboard.press("ArrowRight")
    assert detail(page).startswith(f"producer · w0, cycles {ISSUE}–{2 * ISSUE} ({ISSUE}): global memory:")
    page.keyboard.press("ArrowDown")
    assert detail(page).startswith(f"consumer · w1, cycles 0–{ISSUE + QUEUE + LOAD}")
    assert "waits for full[0]" in detail(page)
    page.keyboard.press("ArrowDown")
    assert detail(page).startswith("TMA loads, cycles ")
    assert f"seen by consumer · w1 at cycle {ISSUE + QUEUE + LOAD}" in detail(page)
    page.keyboard.press("ArrowUp")
    page.keyboard.press("End")
    assert "ring.cu:33" in detail(page)
    page.keyboard.press("Home")
    page.keyboard.press("ArrowLeft")  # stays at the first
    assert detail(page).startswith("consumer · w1, cycles 0–")
    assert page.locator(".mla-detail").get_attribute("aria-live") == "polite"


def test_keys_and_buttons_zoom_and_move(open_page: Callable[[Any], Any]) -> None:
    trace = ring_trace(blocks=6)
    page = open_page(trace)
    assert cycles(page) == (0, trace.cycles)
    enter(page)
    page.keyboard.press("+")
    low, high = cycles(page)
    assert high - low == pytest.approx(trace.cycles / 2, abs=0.2)
    page.keyboard.press("Shift+ArrowRight")
    moved = cycles(page)
    assert moved[0] - low == pytest.approx((high - low) / 4, abs=0.2)
    page.keyboard.press("-")
    page.keyboard.press("-")
    assert cycles(page) == (0, trace.cycles)
    page.get_by_role("button", name="zoom in").click()
    page.get_by_role("button", name="later").click()
    assert cycles(page)[0] > 0
    page.get_by_role("button", name="show the whole run").click()
    assert cycles(page) == (0, trace.cycles)
    page.locator(".mla-canvas").focus()
    for _ in range(9):
        page.keyboard.press("+")
    low, high = cycles(page)
    assert high - low == pytest.approx(16, abs=0.2)


def test_selected_bar_scrolls_into_view(open_page: Callable[[Any], Any]) -> None:
    trace = ring_trace(blocks=30)
    page = open_page(trace)
    enter(page)
    for _ in range(5):
        page.keyboard.press("+")
    page.keyboard.press("End")
    low, high = cycles(page)
    last = float(trace.spans.t1[trace.spans.warp == 0].max())
    assert low < last <= high + 1


def test_wheel_with_ctrl_zooms_at_the_pointer_and_drag_moves(open_page: Callable[[Any], Any]) -> None:
    trace = ring_trace(blocks=6)
    page = open_page(trace)
    box = page.locator(".mla-canvas").bounding_box()
    page.mouse.move(box["x"] + 150 + (box["width"] - 158) / 4, box["y"] + 60)
    page.mouse.wheel(0, -100)
    assert cycles(page) == (0, trace.cycles)  # without Ctrl the page scrolls
    page.keyboard.down("Control")
    page.mouse.wheel(0, -100)
    page.keyboard.up("Control")
    page.wait_for_function("!document.querySelector('.mla-range').textContent.startsWith('cycles 0 ')")
    low, high = cycles(page)
    assert high - low == pytest.approx(0.8 * trace.cycles, rel=0.01)
    assert (low + (high - low) / 4) == pytest.approx(trace.cycles / 4, rel=0.02)
    page.mouse.down()
    page.mouse.move(box["x"] + 150 + (box["width"] - 158) / 4 - 60, box["y"] + 60)
    page.mouse.up()
    assert cycles(page)[0] > low


def test_pointing_reads_a_bar_and_leaving_clears_it(open_page: Callable[[Any], Any]) -> None:
    trace = ring_trace(blocks=3)
    page = open_page(trace)
    box = page.locator(".mla-canvas").bounding_box()
    at = 100 / trace.cycles * (box["width"] - 158)
    page.mouse.move(box["x"] + 150 + at, box["y"] + 24 + 17 + 14 + 5 + 6)
    assert detail(page).startswith("consumer · w1, cycles 0–")
    page.mouse.move(box["x"] + 40, box["y"] + 5)
    assert "arrow keys" in detail(page)


def test_bars_are_painted_in_the_colour_of_their_kind_and_ink_follows_the_page(open_page: Callable[[Any], Any]) -> None:
    trace = ring_trace(blocks=3)
    page = open_page(trace)
    scene = json.loads(page.evaluate("window.model.get('scene')"))
    loads = next(i for i, lane in enumerate(scene["lanes"]) if lane["name"] == "TMA loads")
    red, green, blue, opacity = colour_at(page, (ISSUE + LOAD) / 2, loads)
    wanted = scene["keys"]["loads"]["colour"]
    assert [red, green, blue] == pytest.approx([int(wanted[i : i + 2], 16) for i in (1, 3, 5)], abs=3)
    assert opacity / 255 == pytest.approx(scene["keys"]["loads"]["tint"], abs=0.02)
    phases = next(i for i, lane in enumerate(scene["lanes"]) if lane["section"] == "barriers")
    assert colour_at(page, 30, phases)[:3] == [0, 0, 0]
    page.evaluate("document.body.style.color = '#e6e6e6'")
    page.wait_for_timeout(100)
    assert min(colour_at(page, 30, phases)[:3]) > 200


def test_long_run_and_its_end_are_drawn(open_page: Callable[[Any], Any]) -> None:
    class Deadlock(Exception):
        rule = "deadlock"

    trace = ring_trace(blocks=1000, stages=4, ctas=4, error=Deadlock("Nothing can run."))
    page = open_page(trace)
    assert len(page.evaluate("window.model.get('scene')")) < 4_000_000
    enter(page)
    page.keyboard.press("End")
    page.keyboard.press("+")
    page.keyboard.press("+")
    assert cycles(page)[1] <= trace.cycles
    assert "deadlock" in page.locator(".mla-summary").text_content()
    page.keyboard.press("0")
    assert cycles(page) == (0, trace.cycles)


def test_new_scene_of_the_same_run_keeps_the_window(open_page: Callable[[Any], Any]) -> None:
    trace = ring_trace(blocks=6)
    page = open_page(trace)
    page.get_by_role("button", name="zoom in").click()
    before = cycles(page)
    run = run_of(trace)
    explorer = TimelineExplorer(run, timeline_study(run))
    explorer.controls["role"].value = "producer"
    page.evaluate("changes => window.model.set(changes)", {"scene": explorer.view.scene, "text": explorer.view.text})
    assert cycles(page) == before
    enter(page)
    assert detail(page).startswith("producer · w0")


def test_twin_and_message_show_as_in_every_view(open_page: Callable[[Any], Any]) -> None:
    page = open_page(ring_trace(blocks=3))
    twin = page.locator(".mla-text")
    assert twin.is_hidden()
    page.locator(".mla-bar .mla-text-button").focus()
    page.keyboard.press("Enter")
    assert twin.is_visible()
    assert "consumer (1 warp): waits" in twin.text_content()
    page.evaluate("window.model.set({message: 'cta must be one of the run.'})")
    assert page.locator(".mla-message").is_visible()
    assert "mla-stale" in page.locator(".mla-frame").get_attribute("class")
