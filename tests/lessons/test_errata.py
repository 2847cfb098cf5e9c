"""Every erratum of the two articles is assigned to a chapter, and a chapter that exists puts its own right."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mlacademy import notebooks

LESSONS = Path(__file__).resolve().parents[2] / "lessons"
INDEX = tomllib.loads((LESSONS / "errata" / "index.toml").read_text(encoding="utf-8"))
COUNTS = {1: 92, 2: 32}
CHAPTERS = sorted(LESSONS.glob("[0-9][0-9]_*.ipynb"))


def errata(chapter: Path) -> list[dict[str, Any]]:
    return tomllib.loads((LESSONS / "errata" / f"{chapter.name[:2]}.toml").read_text(encoding="utf-8"))["erratum"]


@pytest.mark.parametrize("article", COUNTS)
def test_every_erratum_has_exactly_one_home(article: int) -> None:
    homes = [n for chapter, n_list in INDEX[f"article-{article}"].items() if chapter != "title" for n in n_list]
    assert Counter(homes) == Counter(range(1, COUNTS[article] + 1))


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_a_chapter_puts_right_all_errata_that_have_their_home_in_it(chapter: Path) -> None:
    due = {(a, n) for a in COUNTS for n in INDEX[f"article-{a}"].get(chapter.name[:2], [])}
    done = {(e["article"], e["number"]) for e in errata(chapter)}
    assert due <= done, f"not put right: {sorted(due - done)}"


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_an_erratum_points_at_a_box_followed_by_a_recomputation(chapter: Path) -> None:
    cells = notebooks.read(chapter)["cells"]
    position = {cell["id"]: i for i, cell in enumerate(cells)}
    for erratum in errata(chapter):
        assert erratum["claim"], erratum
        assert erratum["right"], erratum
        assert erratum["cell"] in position, f"no cell named {erratum['cell']}"
        box, check = cells[position[erratum["cell"]] :][:2]
        assert "source-box" in box["metadata"].get("tags", []), erratum["cell"]
        assert "source-check" in check["metadata"].get("tags", []), f"{check['id']} should recompute {erratum['cell']}"
        assert "assert" in notebooks.source(check), check["id"]
