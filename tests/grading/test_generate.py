"""``exercises/`` is what ``solutions/`` generates, twice the same bytes, with nothing of the solutions left."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from mlacademy import notebooks
from mlacademy.grading import Exercise, assignments, judges
from mlacademy.grading.assignments import PROSE_BLANK, cut
from mlacademy.grading.exercise import STREAMS
from mlacademy.grading.submissions import judge_notebook

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "solutions").glob("*/*.ipynb"))
OF_EVERY_KERNEL = {"if (threadIdx.x == 0) {"}
needs_solutions = pytest.mark.skipif(not SOURCES, reason="this branch has no solutions/")


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All assignments, generated now."""
    into = tmp_path_factory.mktemp("exercises")
    assignments.generate(root=ROOT, into=into)
    return into


@needs_solutions
def test_exercises_agree_with_solutions(fresh: Path) -> None:
    found = assignments.differences(fresh, ROOT / "exercises")
    assert found == [], "run: python -m mlacademy.grading.assignments"


@needs_solutions
def test_generating_again_gives_the_same_bytes(fresh: Path, tmp_path: Path) -> None:
    assignments.generate(root=ROOT, into=tmp_path)
    assert assignments.differences(fresh, tmp_path) == []


@needs_solutions
@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_student_notebook_is_the_solution_minus_its_blanks(source: Path, fresh: Path) -> None:
    path = fresh / source.stem / source.name
    student, teacher = notebooks.read(path), notebooks.read(source)
    assert path.read_text(encoding="utf-8") == notebooks.dumps(student)
    assert [cell["id"] for cell in student["cells"]] == [cell["id"] for cell in teacher["cells"]]
    for mine, theirs in zip(student["cells"], teacher["cells"], strict=True):
        exercise = assignments.exercise_of(theirs)
        if exercise is None:
            assert notebooks.source(mine) == notebooks.source(theirs)
            continue
        text = notebooks.source(mine)
        if exercise.kind == "prose":
            assert text == PROSE_BLANK
        else:
            assert text == cut(notebooks.source(theirs), exercise)
            assert f"about {exercise.lines} line" in text
            assert "SOLUTION" not in text


@needs_solutions
@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_no_line_of_a_solution_is_left(source: Path, fresh: Path) -> None:
    kept = {
        line.strip()
        for cell in notebooks.read(fresh / source.stem / source.name)["cells"]
        for line in notebooks.source(cell).splitlines()
    }
    for cell in notebooks.read(source)["cells"]:
        inside = False
        for line in notebooks.source(cell).splitlines():
            marker = "### BEGIN SOLUTION" in line or "### END SOLUTION" in line
            inside = inside != marker
            if inside and not marker and len(line.strip()) >= 20 and line.strip() not in OF_EVERY_KERNEL:
                assert line.strip() not in kept
    assert not [path for path in fresh.rglob("*") if path.name in assignments.INSTRUCTOR_FILES]


@needs_solutions
@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_unfilled_notebook_runs_and_every_blank_is_not_answered_yet(source: Path, fresh: Path) -> None:
    notebook = nbformat.read(fresh / source.stem / source.name, as_version=4)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(fresh / source.stem)}}).execute()
    outputs = {cell["id"]: json.dumps(cell.get("outputs", []), ensure_ascii=False) for cell in notebook.cells}
    for exercise in judges.chapter(source.stem[:2]):
        if exercise.kind == "prose":
            continue
        assert "not answered yet" in outputs[f"{exercise.cell}-check"]
        assert f"Exercise {exercise.id}: 0 of {exercise.points} points: " in outputs[f"{exercise.cell}-hidden"]
        assert '"text/plain": "0"' in outputs[f"{exercise.cell}-hidden"]


@needs_solutions
@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_solution_notebook_earns_all_points(source: Path) -> None:
    notebook = notebooks.read(source)
    for exercise in judges.chapter(source.stem[:2]):
        verdict = judge_notebook(notebook, exercise, streams=tuple(STREAMS))
        assert verdict.state == ("manual" if exercise.kind == "prose" else "passed"), str(verdict)
        assert exercise.kind == "prose" or verdict.points == exercise.points


def test_blank_keeps_signature_and_indentation(exercise: Exercise) -> None:
    source = (
        'def scale(x, factor):\n    """Doc."""\n    ### BEGIN SOLUTION\n    return x * factor\n    ### END SOLUTION'
    )
    assert cut(source, exercise) == (
        'def scale(x, factor):\n    """Doc."""\n    # Your code: about 3 lines.\n'
        '    raise NotImplementedError("99.1 is not answered yet")'
    )


def test_blank_of_a_value_can_be_run(make: Callable[..., Exercise]) -> None:
    value = make(cases=None, parameters=(), entry="answer", lines=1)
    source = "### BEGIN SOLUTION\nanswer = 66\n### END SOLUTION\nprint(answer)"
    assert cut(source, value) == "# Your answer: about 1 line.\nanswer = ...\nprint(answer)"


@pytest.mark.parametrize(
    "source", ["return 1", "### BEGIN SOLUTION\n1", "1\n### END SOLUTION", "### BEGIN SOLUTION\n### BEGIN SOLUTION"]
)
def test_unpaired_markers_are_refused(exercise: Exercise, source: str) -> None:
    with pytest.raises(ValueError, match=r"exercise 99\.1: (solution markers do not pair up|the answer cell needs)"):
        cut(source, exercise)


def test_branch_without_solutions_cannot_generate(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="this is a student branch"):
        assignments.generate(root=tmp_path)


@needs_solutions
def test_unknown_assignment_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no assignment '99_none'; the assignments are"):
        assignments.generate(["99_none"], root=ROOT, into=ROOT / "nowhere")


def test_differences_name_each_file(tmp_path: Path) -> None:
    fresh, exercises = tmp_path / "fresh", tmp_path / "exercises"
    for folder, name, text in ((fresh, "01_new", "a"), (fresh, "02_same", "a"), (fresh, "03_other", "a")):
        (folder / name).mkdir(parents=True)
        (folder / name / "file.ipynb").write_text(text)
    for name, text in (("02_same", "a"), ("03_other", "b"), ("98_old", "a")):
        (exercises / name / ".ipynb_checkpoints").mkdir(parents=True)
        (exercises / name / ".ipynb_checkpoints" / "file.ipynb").write_text("not looked at")
        (exercises / name / "file.ipynb").write_text(text)
    assert assignments.differences(fresh, exercises) == [
        "exercises/01_new/file.ipynb is missing",
        "exercises/98_old/file.ipynb has no source in solutions/",
        "exercises/03_other/file.ipynb differs",
    ]


def test_loading_every_judge_does_not_load_torch() -> None:
    program = (
        "import sys; from mlacademy.grading import judges; judges.all_exercises(); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
