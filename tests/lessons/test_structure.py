"""Every chapter keeps the rhythm that the course promises, in every language."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mlacademy import notebooks

LESSONS = Path(__file__).resolve().parents[2] / "lessons"
CHAPTERS = sorted(LESSONS.rglob("[0-9][0-9]_*.ipynb"))
TRANSLATIONS = sorted((LESSONS / "zh_CN").glob("[0-9][0-9]_*.ipynb"))
AT_LEAST = {
    "map": 1,
    "predict": 6,
    "run": 6,
    "explain": 6,
    "figure": 2,
    "break-it": 1,
    "boundary": 1,
    "trade-off": 1,
    "source-box": 1,
    "source-check": 1,
    "closing": 1,
}


def tags(cell: dict[str, Any]) -> list[str]:
    return list(cell["metadata"].get("tags", []))


def relative(path: Path) -> str:
    return str(path.relative_to(LESSONS))


@pytest.mark.parametrize("chapter", CHAPTERS, ids=relative)
def test_a_chapter_has_every_part(chapter: Path) -> None:
    cells = notebooks.read(chapter)["cells"]
    count = Counter(tag for cell in cells for tag in tags(cell))
    missing = {tag: (count[tag], least) for tag, least in AT_LEAST.items() if count[tag] < least}
    assert not missing, f"found and needed: {missing}"
    assert "opening" in tags(cells[0])
    assert "map" in tags(cells[1])
    assert "closing" in tags(cells[-1])


@pytest.mark.parametrize("chapter", [c for c in CHAPTERS if not c.name.startswith("00")], ids=relative)
def test_a_chapter_has_a_widget_and_points_at_its_exercises(chapter: Path) -> None:
    cells = notebooks.read(chapter)["cells"]
    assert any("exercise" in tags(c) and f"exercises/{chapter.name[:2]}_" in notebooks.source(c) for c in cells)
    if not chapter.name.startswith("03"):
        assert any("widget" in tags(c) for c in cells)


@pytest.mark.parametrize("chapter", CHAPTERS, ids=relative)
def test_a_prediction_is_followed_by_a_run_that_asserts_and_an_explanation(chapter: Path) -> None:
    cells = notebooks.read(chapter)["cells"]
    for position, cell in enumerate(cells):
        if "predict" not in tags(cell):
            continue
        rest = cells[position + 1 :]
        run = next((c for c in rest if "run" in tags(c)), None)
        assert run is not None, f"{cell['id']} has no run"
        assert rest.index(run) <= 2, f"{cell['id']}: its run is {rest.index(run)} cells away"
        assert "assert" in notebooks.source(run), f"{run['id']} asserts nothing"
        after = rest[rest.index(run) + 1 :]
        distance = next((i for i, c in enumerate(after) if "explain" in tags(c)), None)
        assert distance is not None, f"{run['id']} is not explained"
        assert distance <= 2, f"{run['id']} is not explained soon"


@pytest.mark.parametrize("chapter", CHAPTERS, ids=relative)
def test_code_cells_are_short(chapter: Path) -> None:
    for cell in notebooks.read(chapter)["cells"]:
        if cell["cell_type"] == "code":
            lines = len(notebooks.source(cell).splitlines())
            assert lines < 30, f"{cell['id']} has {lines} lines"


@pytest.mark.parametrize("translation", TRANSLATIONS, ids=relative)
def test_a_translation_runs_the_same_code(translation: Path) -> None:
    def code(path: Path) -> list[tuple[str, str]]:
        return [(c["id"], notebooks.source(c)) for c in notebooks.read(path)["cells"] if c["cell_type"] == "code"]

    original = LESSONS / translation.name
    names = [cell["id"] for cell in notebooks.read(original)["cells"]]
    assert [cell["id"] for cell in notebooks.read(translation)["cells"]] == names
    for (name, theirs), (_, ours) in zip(code(translation), code(original), strict=True):
        strip = [line.split("#")[0].rstrip() for line in theirs.splitlines()]
        assert strip == [line.split("#")[0].rstrip() for line in ours.splitlines()], name


@pytest.mark.parametrize("chapter", CHAPTERS, ids=relative)
def test_links_lead_to_notebooks_that_the_book_has_too(chapter: Path) -> None:
    for cell in notebooks.read(chapter)["cells"]:
        if cell["cell_type"] != "markdown":
            continue
        for target in re.findall(r"\]\(([^)#\s]+)", notebooks.source(cell)):
            if target.startswith(("http://", "https://")):
                continue
            place = (chapter.parent / target).resolve()
            folder = place.relative_to(LESSONS.parent).parts[0]
            assert place.is_file(), f"{cell['id']}: {target}"
            assert folder in ("lessons", "exercises"), f"{cell['id']}: {target}"
