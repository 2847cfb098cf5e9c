"""A learner's first chapter, end to end: `mlacademy lab`, a browser, chapter 04, and a slider moved by keyboard."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser.lab import browser, running_lab
from playwright.sync_api import expect

from mlacademy import notebooks

pytestmark = [pytest.mark.browser, pytest.mark.notebook, pytest.mark.timeout(900)]

CHAPTER = "lessons/04_tile_scheduler.ipynb"


def test_chapter_04_runs_and_its_picture_follows_the_slider(tree: Path, tmp_path: Path) -> None:
    cells = notebooks.read(tree / CHAPTER)["cells"]
    code_cells = sum(cell["cell_type"] == "code" for cell in cells)
    with running_lab(tree, tmp_path / "lab.log") as base, browser() as seen:
        seen.open_notebook(base, CHAPTER)
        seen.run_all(code_cells)
        page = seen.page
        assert page.locator(".jp-RenderedText[data-mime-type='application/vnd.jupyter.stderr']").count() == 0
        assert page.locator(".jp-Notification, .jp-Dialog").count() == 0, "no news, no questions"

        widget = page.locator(".jp-CodeCell", has=page.locator(".mla-view")).first
        slider = widget.get_by_role("slider").first
        slider.scroll_into_view_if_needed()
        picture = widget.locator(".mla-drawing svg")
        expect(picture).to_be_visible()
        before = picture.evaluate("svg => svg.outerHTML")
        slider.focus()
        for _ in range(3):
            page.keyboard.press("ArrowRight")
        page.wait_for_function(
            "before => document.querySelector('.mla-drawing svg')?.outerHTML !== before", arg=before, timeout=30_000
        )
        assert seen.errors == []
        assert seen.hosts == {"127.0.0.1"}
