"""An exercise that contradicts itself is refused when it is declared; its cases are the same at every call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mlacademy.grading import Case, Exact, Exercise, Misconception, judges
from mlacademy.grading.exercise import STREAMS

H = ("a", "b", "c")
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"id": "2.1"}, "id must look like '02.3', got '2.1'"),
    ({"entry": "two words"}, "entry must be a Python name"),
    ({"points": 0}, "points and lines must be at least 1"),
    ({"reference": None}, "give a reference, or a rubric"),
    ({"rubric": "2 points"}, "give a reference, or a rubric"),
    ({"hints": ("a", "b")}, "needs three hints"),
    ({"hints": ("a", "b", " ")}, "needs three hints"),
    ({"compare": (Exact(), Exact())}, "1 outputs but 2 comparisons"),
    ({"parts": {"a": 1}}, "parts add up to 1, not to 2"),
    ({"misconceptions": (Misconception("k", "s", H, int), Misconception("k", "s", H, int))}, "share a key"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_contradictions_are_refused(make: Callable[..., Exercise], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**changes)


CASES: list[tuple[dict[str, Any], Case, str]] = [
    ({}, Case({"y": 1}), "must be the parameters"),
    ({}, Case({"factor": 1, "x": 2}), "in their order"),
    ({}, Case({"x": 1}, part="a"), "has a part, but the exercise has no parts"),
    ({"parts": {"a": 1, "b": 1}}, Case({"x": 1}, part="c"), r"part 'c' is not in \['a', 'b'\]"),
]


@pytest.mark.parametrize(("changes", "case", "message"), CASES)
def test_cases_must_fit(make: Callable[..., Exercise], changes: dict[str, Any], case: Case, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(cases=lambda rng, hidden: [case], **changes).make_cases("visible")


def test_exercise_without_cases_is_refused(make: Callable[..., Exercise]) -> None:
    with pytest.raises(ValueError, match=r"99\.1 has no visible cases"):
        make(cases=lambda rng, hidden: []).make_cases("visible")


def test_misconception_needs_exactly_one_way_to_be_seen() -> None:
    with pytest.raises(ValueError, match="exactly one of model and when"):
        Misconception("k", "s", H)
    with pytest.raises(ValueError, match="misconception 'k' needs three hints"):
        Misconception("k", "s", ("a",), int)  # type: ignore[arg-type]


def test_streams_draw_other_numbers_and_repeat_themselves(exercise: Exercise) -> None:
    drawn = {stream: exercise.make_cases(stream)[-1].inputs["x"] for stream in STREAMS}
    for stream, x in drawn.items():
        assert (exercise.make_cases(stream)[-1].inputs["x"] == x).all()
    assert not np.isin(drawn["hidden"], drawn["regrade"]).any()
    assert not np.isin(drawn["visible"], drawn["hidden"]).any()


def test_kinds_are_told_by_what_is_given(make: Callable[..., Exercise]) -> None:
    assert make().kind == "function"
    assert make(cases=None, parameters=()).kind == "value"
    prose = make(cases=None, reference=None, rubric="2 points", hints=("", "", ""), misconceptions=())
    assert prose.kind == "prose"


def test_exercises_are_found_by_name() -> None:
    everything = judges.all_exercises()
    assert [exercise.id for exercise in everything] == sorted(
        {e.id for e in everything}, key=lambda i: (i[:2], int(i[3:]))
    )
    for exercise in everything:
        assert judges.exercise(exercise.id) is exercise
    with pytest.raises(ValueError, match=r"there is no exercise 13\.9; chapter 13 has 13\.1, 13\.2, 13\.3, 13\.4"):
        judges.exercise("13.9")
    with pytest.raises(ValueError, match="chapter '98' has no exercises; the chapters are"):
        judges.exercise("98.1")
    with pytest.raises(ValueError, match=r"an exercise's name is text like '02\.3'; got 2\.3"):
        judges.exercise(2.3)  # type: ignore[arg-type]


@pytest.mark.parametrize("exercise", [e for e in judges.all_exercises() if e.kind == "function"], ids=lambda e: e.id)
def test_case_labels_name_properties_and_no_numbers_that_give_hidden_cases_away(exercise: Exercise) -> None:
    for case in exercise.make_cases("hidden"):
        assert case.label, "a hidden test says which property broke"
        assert not any(len(word) > 3 and word.strip(".,").isdigit() for word in case.label.split())


@pytest.mark.parametrize("exercise", judges.all_exercises(), ids=lambda e: e.id)
def test_hints_are_short(exercise: Exercise) -> None:
    hints = [*exercise.hints, *(hint for known in exercise.misconceptions for hint in known.hints)]
    assert all(len(hint.split()) <= 60 for hint in hints), max(hints, key=lambda hint: len(hint.split()))
