"""The view in a real page: keyboard, details, text twin, message, and focus that survives a new drawing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from mlacademy import viz
from mlacademy.machine import chromium
from mlacademy.schedule import schedule
from mlacademy.viz.explorer import HERE

pytestmark = pytest.mark.browser
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]

MODEL = """
import view from "VIEW";
const listeners = [];
window.model = {
  state: STATE,
  get(name) { return this.state[name]; },
  on(events, run) { for (const event of events.split(" ")) listeners.push([event, run]); },
  set(changes) {
    Object.assign(this.state, changes);
    for (const [event, run] of listeners) if (event.replace("change:", "") in changes) run();
  },
};
view.render({ model: window.model, el: document.getElementById("view") });
window.ready = true;
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        instance = playwright.chromium.launch(executable_path=chromium(), headless=True, args=FLAGS)
        yield instance
        instance.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page with the view on a schedule of four requests; arrow keys and details are those of a widget."""
    picture = viz.splits(schedule([2048, 100, 1, 1024], 66))
    state = {"svg": picture.svg, "text": picture.text, "title": picture.title, "message": ""}
    source = (HERE / "view.js").read_text(encoding="utf-8")
    here = browser.new_page(viewport={"width": 1000, "height": 800})
    here.route("**/view.js", lambda route: route.fulfill(body=source, content_type="text/javascript"))
    style = (HERE / "view.css").read_text(encoding="utf-8")
    module = MODEL.replace("VIEW", "http://view.test/view.js").replace("STATE", json.dumps(state))
    document = (
        f"<style>{style}</style><button id=before>b</button><div id=view></div><script type=module>{module}</script>"
    )
    here.route("http://view.test/", lambda route: route.fulfill(body=document, content_type="text/html; charset=utf-8"))
    errors: list[str] = []
    here.on("pageerror", lambda error: errors.append(str(error)))
    here.goto("http://view.test/")
    here.wait_for_function("window.ready")
    yield here
    here.close()
    assert errors == []


def detail(page: Any) -> str:
    return str(page.locator(".mla-detail").text_content())


def test_tab_enters_the_picture_and_arrows_move_among_its_parts(page: Any) -> None:
    page.locator("#before").focus()
    page.keyboard.press("Tab")
    assert detail(page).startswith("partition 0: request 0, blocks 0–1 of 32")
    page.keyboard.press("ArrowRight")
    assert detail(page).startswith("partition 1: request 0, blocks 2–3 of 32")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")  # stays at the first
    assert detail(page).startswith("partition 0:")
    page.keyboard.press("ArrowDown")
    assert detail(page).startswith("request 0: 2,048 tokens, 32 blocks, 16 pieces")
    page.keyboard.press("ArrowUp")
    assert detail(page).startswith("partition ")
    page.keyboard.press("End")
    assert detail(page).startswith("lower bound")
    page.keyboard.press("Home")
    assert detail(page).startswith("partition 0:")


def test_one_tab_stop_leads_in_and_the_next_leads_on(page: Any) -> None:
    assert page.locator('.mla-drawing [tabindex="0"]').count() == 1
    page.locator("#before").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "mla-text-button"


def test_focused_part_has_a_visible_ring_around_it(page: Any) -> None:
    ring = page.locator(".mla-ring")
    assert ring.get_attribute("visibility") == "hidden"
    page.locator("#before").focus()
    page.keyboard.press("Tab")
    assert ring.get_attribute("visibility") == "visible"
    part, around = page.locator(".mla-drawing :focus").bounding_box(), ring.bounding_box()
    assert around["x"] < part["x"]
    assert around["width"] > part["width"]
    page.locator(".mla-text-button").focus()
    page.wait_for_function("document.querySelector('.mla-ring').getAttribute('visibility') === 'hidden'")


def test_pointing_shows_the_detail_and_leaving_clears_it(page: Any) -> None:
    hint = detail(page)
    assert "arrow keys" in hint
    page.locator("[data-detail]").nth(2).hover()
    assert detail(page).startswith("partition 2:")
    assert page.locator(".mla-detail").get_attribute("aria-live") == "polite"
    page.locator("#before").hover()
    assert detail(page) == hint


def test_parts_and_picture_have_names_for_a_screen_reader(page: Any) -> None:
    assert page.locator(".mla-drawing svg").get_attribute("role") == "group"
    assert page.locator(".mla-drawing svg").get_attribute("aria-label") == "4 requests on 66 partitions"
    first = page.locator("[data-detail]").first
    assert first.get_attribute("role") == "img"
    assert first.get_attribute("aria-label") == first.get_attribute("data-detail")
    page.wait_for_function("document.querySelector('.mla-spoken').textContent.includes('payload 7 blocks')")


def test_new_drawing_keeps_the_focus_where_it_was(page: Any) -> None:
    page.locator("#before").focus()
    page.keyboard.press("Tab")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    other = viz.splits(schedule([64, 64], 66))
    page.evaluate("changes => window.model.set(changes)", {"svg": other.svg, "text": other.text, "title": other.title})
    assert page.evaluate("document.activeElement.dataset.detail") == detail(page)
    page.keyboard.press("Home")
    assert detail(page).startswith("partition 0: request 0, all 1 block")


def test_text_version_opens_and_closes_by_keyboard(page: Any) -> None:
    button, twin = page.locator(".mla-text-button"), page.locator(".mla-text")
    assert twin.is_hidden()
    button.focus()
    page.keyboard.press("Enter")
    assert twin.is_visible()
    assert button.get_attribute("aria-expanded") == "true"
    assert "payload 7 blocks" in twin.text_content()
    page.keyboard.press("Enter")
    assert twin.is_hidden()


def test_message_is_an_alert_and_fades_the_stale_picture(page: Any) -> None:
    message = page.locator(".mla-message")
    assert message.is_hidden()
    page.evaluate("window.model.set({message: 'groups must divide heads.'})")
    assert message.is_visible()
    assert message.get_attribute("role") == "alert"
    assert message.text_content() == "groups must divide heads."
    assert "mla-stale" in page.locator(".mla-drawing").get_attribute("class")
    page.evaluate("window.model.set({message: ''})")
    assert message.is_hidden()
