"""The map marks the chapter it is asked for, and knows which chapters exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlacademy.viz.course_map import LAST_WRITTEN, PARTS, course_map

LESSONS = Path(__file__).resolve().parents[2] / "lessons"


def test_every_chapter_from_01_to_16_has_a_place() -> None:
    assert {chapter for part in PARTS for chapter in part.chapters} == set(range(1, 17))


def test_the_map_marks_one_chapter() -> None:
    assert "Chapter 04 is here: schedule." in course_map("04").text
    assert "is here" not in course_map().text
    assert course_map(4).svg == course_map("04").svg != course_map("05").svg


def test_dashed_boxes_are_the_chapters_still_to_come() -> None:
    written = max(int(path.name[:2]) for path in LESSONS.glob("[0-9][0-9]_*.ipynb"))
    assert written == LAST_WRITTEN
    assert course_map().svg.count("stroke-dasharray") == sum(
        bool(p.chapters) and p.chapters[0] > written for p in PARTS
    )


@pytest.mark.parametrize("chapter", [-1, 17, "20"])
def test_a_chapter_that_does_not_exist_is_refused(chapter: int | str) -> None:
    with pytest.raises(ValueError, match="chapter must be 0 to 16"):
        course_map(chapter)
