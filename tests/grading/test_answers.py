"""Every recorded answer through the real engine: right ones pass, wrong ones fail and say what they must."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from mlacademy import notebooks
from mlacademy.grading import guard, judges
from mlacademy.grading.answers import Answer, load
from mlacademy.grading.compare import Difference
from mlacademy.grading.exercise import STREAMS, Exercise
from mlacademy.grading.judge import judge
from mlacademy.grading.outcomes import difference, inputs_of, prepare

ROOT = Path(__file__).parents[2]
SOLUTIONS = ROOT / "solutions"
FILES = sorted(SOLUTIONS.glob("*/answers.py"))
ANSWERS = [answer for file in FILES for answer in load(file)]
CODE = [exercise for exercise in judges.all_exercises() if exercise.kind != "prose"]

needs_solutions = pytest.mark.skipif(not FILES, reason="this branch has no solutions/")


def name(item: Answer | Exercise) -> str:
    return f"{item.exercise}-{item.label}" if isinstance(item, Answer) else item.id


def squeeze(text: str) -> str:
    return re.sub(r"\s+", " ", text).casefold()


@needs_solutions
@pytest.mark.parametrize("answer", [a for a in ANSWERS if a.says is None], ids=name)
def test_right_answer_passes_all_streams(answer: Answer) -> None:
    exercise = judges.exercise(answer.exercise)
    verdict = judge(exercise, answer.value(exercise), streams=tuple(STREAMS))
    assert verdict, str(verdict)
    assert verdict.points == exercise.points


@needs_solutions
@pytest.mark.parametrize("answer", [a for a in ANSWERS if a.says is not None], ids=name)
def test_wrong_answer_fails_and_says_why(answer: Answer) -> None:
    exercise = judges.exercise(answer.exercise)
    verdict = judge(exercise, answer.value(exercise))
    if verdict:  # a mistake that only the hidden cases see
        verdict = judge(exercise, answer.value(exercise), streams=("visible", "hidden"))
    assert not verdict, f"{answer.label!r} passes"
    assert answer.says is not None
    assert squeeze(answer.says) in squeeze(str(verdict)), str(verdict)
    assert verdict.points < exercise.points


@needs_solutions
@pytest.mark.parametrize("exercise", CODE, ids=name)
def test_exercise_has_two_right_and_five_wrong_answers(exercise: Exercise) -> None:
    mine = [answer for answer in ANSWERS if answer.exercise == exercise.id]
    right = [answer for answer in mine if answer.says is None]
    assert len(right) >= 2
    assert len(mine) - len(right) >= 5
    labels = Counter(answer.label for answer in mine)
    assert max(labels.values()) == 1, labels


@needs_solutions
@pytest.mark.parametrize("exercise", [e for e in CODE if e.kind == "function" and e.forbids], ids=name)
def test_exercise_has_a_wrong_answer_that_uses_the_library(exercise: Exercise) -> None:
    verdicts = [
        judge(exercise, answer.value(exercise)).kind
        for answer in ANSWERS
        if answer.exercise == exercise.id and answer.says is not None
    ]
    assert "library" in verdicts


@pytest.mark.parametrize("exercise", [e for e in CODE if e.kind == "function"], ids=name)
def test_function_exercise_forbids_the_library_it_is_about(exercise: Exercise) -> None:
    assert exercise.forbids or exercise.chapter == "00", "chapter 00 is about the machine, not about a module"
    for forbidden in exercise.forbids:
        owner, _ = guard.resolve(forbidden)
        assert owner is not None, f"{forbidden} does not exist"


@pytest.mark.parametrize("exercise", [e for e in CODE if e.kind == "function"], ids=name)
def test_every_model_of_a_mistake_differs_from_the_reference(exercise: Exercise) -> None:
    for known in exercise.misconceptions:
        if known.model is None:
            continue
        found: list[Difference | None] = []
        for stream in ("visible", "hidden"):
            for item in prepare(exercise, stream):
                try:
                    wrong = known.model(**inputs_of(item.case, item.pickled))
                except Exception:  # a model may make no sense on some inputs
                    continue
                found.append(difference(exercise, item.case, item.expected, _as_received(wrong)))
        assert any(found), f"{known.key}: the model equals the reference on every case"


def _as_received(value: object) -> object:
    """A value as it would come back from the worker."""
    from mlacademy.grading import wire

    return wire.decode(*wire.encode(value))


@needs_solutions
@pytest.mark.parametrize("path", sorted(SOLUTIONS.glob("*/*.ipynb")), ids=lambda path: path.stem)
def test_assignment_has_the_cells_of_each_of_its_exercises(path: Path) -> None:
    notebook = notebooks.read(path)
    assert path.read_text(encoding="utf-8") == notebooks.dumps(notebook), "run scripts/notebook.py format"
    assert path.parent.name == path.stem
    cells = {cell["id"]: cell for cell in notebook["cells"]}
    exercises = judges.chapter(path.stem[:2])
    for exercise in exercises:
        answer = cells[f"{exercise.cell}-answer"]["metadata"]["nbgrader"]
        assert answer["solution"]
        assert answer["grade_id"] == f"{exercise.cell}-answer"
        if exercise.kind == "prose":
            assert answer["grade"]
            assert answer["points"] == exercise.points
            continue
        statement = notebooks.source(cells[f"{exercise.cell}-statement"])
        assert exercise.id in statement
        assert f"about {exercise.lines} line" in statement, f"{exercise.id}: the statement gives no honest size"
        assert notebooks.source(cells[f"{exercise.cell}-check"]) == f'check("{exercise.id}", {exercise.entry})'
        test = cells[f"{exercise.cell}-hidden"]
        assert notebooks.source(test) == f'hidden("{exercise.id}")'
        graded = test["metadata"]["nbgrader"]
        assert (graded["grade_id"], graded["points"]) == (f"{exercise.cell}-hidden", exercise.points)
        assert graded["grade"]
        assert graded["locked"]
        solution = notebooks.source(cells[f"{exercise.cell}-answer"])
        assert "### BEGIN SOLUTION" in solution
        size = _lines_of_solution(solution)
        assert exercise.lines / 2 <= size <= exercise.lines * 2, f"{exercise.id}: {size} lines, not {exercise.lines}"


def _lines_of_solution(source: str) -> int:
    inside, count = False, 0
    for line in source.splitlines():
        if "### BEGIN SOLUTION" in line:
            inside = True
        elif "### END SOLUTION" in line:
            inside = False
        elif inside and line.strip() and not line.strip().startswith("#"):
            count += 1
    return count
