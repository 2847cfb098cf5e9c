"""``check``, ``hint`` and ``hidden`` as a notebook calls them."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlacademy.grading import Case, Exercise, board, check, hidden, hint, judges, session
from mlacademy.grading.session import sentence


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch, exercise: Exercise, tmp_path: Path) -> dict[str, Any]:
    """The names of a notebook in which exercise 99.1 exists, with progress kept beside it."""
    names: dict[str, Any] = {}
    monkeypatch.setattr(session, "namespace", lambda: names)
    monkeypatch.setattr(judges, "exercise", lambda name: exercise)
    monkeypatch.setattr(judges, "all_exercises", lambda: (exercise,))
    monkeypatch.setenv("MLACADEMY_PROGRESS", str(tmp_path / "progress.json"))
    return names


def right(x: Any, factor: int) -> Any:
    return x * np.float32(factor)


def test_hidden_returns_the_points_and_prints_one_sentence(notebook: dict[str, Any], capsys: Any) -> None:
    notebook["scale"] = right
    assert hidden("99.1") == 2
    assert capsys.readouterr().out == "Exercise 99.1: 2 of 2 points.\n"
    notebook["scale"] = lambda x, factor: x + factor
    assert hidden("99.1") == 0
    assert capsys.readouterr().out == "Exercise 99.1: 0 of 2 points: not right for a few rows. You added the factor.\n"


def test_hidden_tells_neither_inputs_nor_expected_values(notebook: dict[str, Any], capsys: Any) -> None:
    def fails_when_empty(x: Any, factor: int) -> Any:
        print("the inputs are", x)
        return x * np.float32(factor) if len(x) else np.ones(1, np.float32)

    notebook["scale"] = fails_when_empty
    assert check("99.1")
    assert hidden("99.1") == 0
    captured = capsys.readouterr()
    assert captured.out == "Exercise 99.1: 0 of 2 points: not right for no rows.\n"
    assert captured.err == ""


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (lambda x, factor: None, "scale returned None; expected an array of shape"),
        (lambda x, factor: 1 / 0, "scale raised ZeroDivisionError: division by zero."),
        (3, "The answer is an integer; expected the function scale(x, factor)."),
        (..., "scale is not answered yet: about 3 lines are missing."),
    ],
)
def test_hidden_never_raises(notebook: dict[str, Any], capsys: Any, answer: Any, text: str) -> None:
    notebook["scale"] = answer
    assert hidden("99.1") == 0
    out = capsys.readouterr().out
    assert out.startswith("Exercise 99.1: 0 of 2 points: ")
    assert text in out
    assert out.count("\n") == 1


def test_missing_answer_is_named(notebook: dict[str, Any], capsys: Any) -> None:
    assert hidden("99.1") == 0
    assert "There is no scale in this notebook yet: run the cell that defines it." in capsys.readouterr().out
    assert check("99.1").state == "unanswered"


def test_hidden_is_quiet_on_standard_error(notebook: dict[str, Any], monkeypatch: Any, capfd: Any, make: Any) -> None:
    def warns(x: Any, factor: int) -> Any:
        warnings.warn("a reference that warns", stacklevel=1)
        return right(x, factor)

    monkeypatch.setattr(judges, "exercise", lambda name: make(reference=warns))
    notebook["scale"] = right
    assert hidden("99.1") == 2
    assert capfd.readouterr().err == ""


def test_partial_credit_is_returned(notebook: dict[str, Any], monkeypatch: Any, capsys: Any, make: Any) -> None:
    def cases(rng: np.random.Generator, hidden: bool) -> Iterator[Case]:
        for part, factor in (("small", 1), ("large", 3)):
            yield Case({"x": rng.random(2).astype(np.float32), "factor": factor}, label=part, part=part)

    in_parts = make(cases=cases, parts={"small": 1, "large": 4}, points=5, misconceptions=())
    monkeypatch.setattr(judges, "exercise", lambda name: in_parts)
    notebook["scale"] = lambda x, factor: x
    assert hidden("99.1") == 1
    assert (
        capsys.readouterr().out
        == "Exercise 99.1: 1 of 5 points: not right for large. Tolerance: 2.38e-07 × |expected| (two roundings).\n"
    )


def test_answer_is_found_in_the_main_module_outside_of_a_notebook(exercise: Exercise, monkeypatch: Any) -> None:
    monkeypatch.setattr(judges, "exercise", lambda name: exercise)
    monkeypatch.setattr(sys.modules["__main__"], "scale", right, raising=False)
    assert check("99.1")


def test_hints_go_up_in_steps_from_the_one_already_shown(notebook: dict[str, Any]) -> None:
    assert (hint("99.1").level, hint("99.1").text) == (1, "second step")
    check("99.1", lambda x, factor: x)
    assert [hint("99.1").level for _ in range(3)] == [2, 3, 3]
    assert hint("99.1", level=1).text == "first step"
    with pytest.raises(ValueError, match="level must be 1, 2 or 3; got 4"):
        hint("99.1", level=4)


def test_hints_follow_the_mistake_that_was_found(notebook: dict[str, Any]) -> None:
    check("99.1", lambda x, factor: x + factor)
    shown = hint("99.1")
    assert (shown.level, shown.text) == (2, "add 2")
    assert str(shown) == '99.1, hint 2 of 3\nAbout: You added the factor.\nadd 2\nThe next step: hint("99.1")'
    assert "add 2" in shown._repr_html_()
    check("99.1", lambda x, factor: x)
    assert hint("99.1").text == "second step"


def test_prose_has_no_hints(make: Callable[..., Exercise], monkeypatch: Any) -> None:
    prose = make(cases=None, reference=None, rubric="2 points", hints=("", "", ""), misconceptions=())
    monkeypatch.setattr(judges, "exercise", lambda name: prose)
    assert hint("99.1").text.startswith("This answer is read by a person")


def test_check_is_remembered_by_the_board(notebook: dict[str, Any]) -> None:
    check("99.1", lambda x, factor: x)
    check("99.1", right)
    (row,) = board.progress().rows
    assert (row.state, row.tries) == ("right", 2)


def test_unknown_exercise_is_an_error() -> None:
    with pytest.raises(ValueError, match="an exercise's name is text like"):
        check("nothing")


def test_sentence_of_a_failed_exercise_without_label(exercise: Exercise) -> None:
    verdict = session._missing(exercise)
    assert sentence(verdict) == (
        "Exercise 99.1: 0 of 2 points: There is no scale in this notebook yet: run the cell that defines it."
    )
