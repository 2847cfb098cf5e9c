"""A small class through nbgrader and the second judging: honest, lazy and hostile submissions."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mlacademy import notebooks
from mlacademy.grading import assignments, sandbox
from mlacademy.grading.gradebook import Grades, grade

ROOT = Path(__file__).parents[2]
NAME = "13_block_gemm"
pytestmark = pytest.mark.skipif(
    not (ROOT / "solutions" / NAME).is_dir(), reason="this branch has no solutions/, so there is nothing to grade by"
)
TRUSTED = not sandbox.available()  # without bubblewrap the same class is graded unprotected: it is ours


def cell(notebook: notebooks.Notebook, name: str) -> dict[str, Any]:
    return next(c for c in notebook["cells"] if c["id"] == name)


def code(name: str, source: str) -> dict[str, Any]:
    return {"cell_type": "code", "id": name, "metadata": {}, "source": source}


class Class:
    """Submissions in a folder, made from the released notebook."""

    def __init__(self, folder: Path, exercises: Path) -> None:
        self.submissions, self.out = folder / "submissions", folder / "out"
        self.released = exercises / NAME / f"{NAME}.ipynb"

    def released_notebook(self) -> notebooks.Notebook:
        return notebooks.read(self.released)

    def solved(self) -> notebooks.Notebook:
        notebook = self.released_notebook()
        source = notebooks.read(ROOT / "solutions" / NAME / f"{NAME}.ipynb")
        for one in source["cells"]:
            if one["id"].endswith("-answer"):
                cell(notebook, one["id"])["source"] = notebooks.source(one)
        return notebook

    def hand_in(
        self, student: str, notebook: notebooks.Notebook | str, *, flat: bool = False, name: str = NAME
    ) -> None:
        folder = self.submissions / student / ("" if flat else NAME)
        folder.mkdir(parents=True, exist_ok=True)
        if isinstance(notebook, str):
            (folder / f"{name}.ipynb").write_text(notebook)
        else:
            notebooks.write(notebook, folder / f"{name}.ipynb")

    def grade(self, said: list[str]) -> Grades:
        return grade(self.submissions, self.out, trusted=TRUSTED, cell_seconds=3, progress=said.append)


def hostile(group: Class) -> notebooks.Notebook:
    """Patches the package, edits and deletes tests, prints without end, and has no answer."""
    notebook = group.released_notebook()
    patch = "import mlacademy.grading, mlacademy.grading.session\nhidden = lambda name: 4\n"
    patch += "mlacademy.grading.hidden = mlacademy.grading.session.hidden = hidden\nprint('x' * 50_000_000)"
    notebook["cells"].insert(2, code("patch", patch))
    notebook["cells"] = [c for c in notebook["cells"] if c["id"] != "13-3-answer"]
    cell(notebook, "13-1-hidden")["source"] = "4"
    cell(notebook, "13-1-hidden")["metadata"]["nbgrader"]["points"] = 400
    return notebook


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Class:
    folder = tmp_path_factory.mktemp("class")
    assignments.generate([NAME], root=ROOT, into=folder / "exercises")
    made = Class(folder, folder / "exercises")
    solved = made.solved()
    for one in solved["cells"]:
        one["metadata"] = {}  # as an editor without nbgrader may save it
    made.hand_in("ada", solved, flat=True)
    made.hand_in("bob", made.released_notebook(), name=f"{NAME} (1)")
    made.hand_in("eve", hostile(made))
    exits = made.solved()
    cell(exits, "13-1-check")["source"] = "import os\nos._exit(0)"
    made.hand_in("dan", exits)
    hangs = made.solved()
    cell(hangs, "13-1-check")["source"] = "while True:\n    pass"
    hangs["cells"] = [c for c in hangs["cells"] if c["id"] != "13-1-hidden"]
    made.hand_in("hal", hangs)
    made.hand_in("joe", "this is not a notebook")
    made.hand_in("lea", "[" * 100_000)
    copied = made.solved()
    for position in (1, len(copied["cells"]) + 1):
        copied["cells"].insert(position, {**cell(copied, "13-1-answer"), "id": f"copy-{position}"})
    made.hand_in("mia", copied)
    for student, target in (("ned", "../../ada/13_block_gemm.ipynb"), ("oda", "nothing.ipynb")):
        (made.submissions / student / NAME).mkdir(parents=True)
        (made.submissions / student / NAME / f"{NAME}.ipynb").symlink_to(target)
    (made.submissions / "pia" / NAME).mkdir(parents=True)
    os.mkfifo(made.submissions / "pia" / NAME / f"{NAME}.ipynb")
    bare = '{"cell_type": "code", "source": "x = 1"}, {"cell_type": "magic"}'
    made.hand_in("kim", f'{{"cells": [{bare}], "metadata": {{}}, "nbformat": 4, "nbformat_minor": 5}}')
    return made


@pytest.fixture(scope="module")
def first(group: Class) -> tuple[Grades, list[str]]:
    said: list[str] = []
    return group.grade(said), said


def points(grades: Grades, student: str) -> list[float | None]:
    return [row.points for row in grades.rows if row.student == student]


def note(grades: Grades, student: str) -> str:
    return next(row.note for row in grades.rows if row.student == student and row.exercise == "13.1")


def test_right_answer_earns_its_points_and_prose_waits(first: Any) -> None:
    grades, _ = first
    assert points(grades, "ada") == [4, None, None, None]
    assert [row.needs_manual_grading for row in grades.rows if row.student == "ada"] == [False, True, True, True]
    assert note(grades, "ada") == ""


def test_blank_notebook_earns_nothing_and_waits_for_nobody(first: Any) -> None:
    grades, _ = first
    assert points(grades, "bob") == [0, 0, 0, 0]
    assert note(grades, "bob") == "block_gemm is not answered yet: about 8 lines are missing."


def test_notebook_that_patches_the_grader_gains_nothing(first: Any) -> None:
    grades, _ = first
    assert points(grades, "eve") == [0, 0, 0, 0]
    assert note(grades, "eve").startswith("needs a look: the notebook says 4, judged again 0.")
    assert all(row.max in (2, 4) for row in grades.rows)


def test_kernel_that_dies_is_flagged(first: Any) -> None:
    grades, _ = first
    assert points(grades, "dan") == [0, None, None, None]
    assert "could not be run to its end" in note(grades, "dan")
    assert "the notebook says 0, judged again 4" in note(grades, "dan")


def test_endless_cell_and_deleted_test_cost_nothing_else(first: Any) -> None:
    grades, _ = first
    assert points(grades, "hal") == [4, None, None, None]


def test_copied_answer_cell_costs_nothing(first: Any) -> None:
    grades, _ = first
    assert points(grades, "mia") == [4, None, None, None]
    assert note(grades, "mia") == ""


@pytest.mark.parametrize(
    ("student", "text"),
    [
        ("joe", "not a notebook: no points"),
        ("kim", "There is no block_gemm"),
        ("lea", "not a notebook: no points"),
        ("ned", "not a notebook: no points"),  # a link to ada's answers
        ("oda", "not a notebook: no points"),  # a link to nothing
        ("pia", "not a notebook: no points"),  # a pipe
    ],
)
def test_broken_file_is_a_row_with_a_note(first: Any, student: str, text: str) -> None:
    grades, _ = first
    assert points(grades, student) == [0, 0, 0, 0]
    assert text in note(grades, student)


def test_tables_are_written(first: Any) -> None:
    grades, said = first
    with grades.csv.open(newline="") as file:
        lines = list(csv.reader(file))
    assert lines[0] == ["student", "assignment", "exercise", "points", "max", "needs manual grading", "note"]
    assert lines[1] == ["ada", NAME, "13.1", "4", "4", "no", ""]
    assert lines[2] == ["ada", NAME, "13.2", "", "2", "yes", ""]
    assert len(lines) == 1 + 12 * 4
    passed = {total.student: total.passed for total in grades.totals}
    assert passed == {
        "ada": "pending",
        "hal": "pending",
        "mia": "pending",
        "dan": "no",
        **dict.fromkeys(["bob", "eve", "joe", "kim", "lea", "ned", "oda", "pia"], "no"),
    }
    assert said[0] == f"preparing {NAME}"
    assert said[1] == f"[1/12] ada/{NAME}"
    assert grades.gradebook.is_file()


def test_nothing_of_the_sandbox_is_left(first: Any) -> None:
    assert "JUPYTER_PATH" not in os.environ or "mlacademy" not in os.environ["JUPYTER_PATH"]


@contextmanager
def gradebook(grades: Grades) -> Iterator[Any]:
    from nbgrader.api import Gradebook

    with assignments.quiet(), Gradebook(f"sqlite:///{grades.gradebook}", "mlacademy") as book:
        yield book
        book.db.commit()


def test_second_run_grades_what_changed_and_keeps_manual_scores(group: Class, first: Any) -> None:
    grades, _ = first
    with gradebook(grades) as book:
        for number, score in ((2, 2.0), (3, 1.5), (4, 1.0)):
            for student in ("ada", "hal"):
                one = book.find_grade(f"13-{number}-answer", NAME, NAME, student)
                one.manual_score, one.needs_manual_grade = score, False
        book.find_comment("13-2-answer", NAME, NAME, "hal").manual_comment = "Veto: TMA does not multiply."
        book.find_grade("13-1-hidden", NAME, NAME, "dan").manual_score = 3.0
    shutil.rmtree(group.submissions / "eve")
    group.hand_in("bob", group.solved(), name=f"{NAME} (1)")
    said: list[str] = []
    again = group.grade(said)
    assert [line for line in said if line.endswith("unchanged")] == [
        f"[{n}/11] {who}/{NAME}: unchanged"
        for n, who in enumerate(("ada", "bob", "dan", "hal", "joe", "kim", "lea", "mia", "ned", "oda", "pia"), 1)
        if who != "bob"
    ]
    assert points(again, "ada") == [4, 2, 1.5, 1]
    assert points(again, "bob") == [4, None, None, None]
    assert points(again, "dan") == [3, None, None, None]
    assert note(again, "dan").startswith("scored by hand")
    assert points(again, "eve") == [0, 0, 0, 0]
    totals = {total.student: total for total in again.totals}
    assert (totals["ada"].points, totals["ada"].passed) == (8.5, "yes")
    assert (totals["hal"].points, totals["hal"].passed, totals["hal"].note) == (8.5, "no", "veto in 13.2")


def test_empty_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no submissions in .*: expected <student>/<assignment>/<notebook>\.ipynb"):
        grade(tmp_path, tmp_path / "out")


def test_without_a_sandbox_only_trusted_submissions_are_graded(group: Class, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(sandbox, "available", lambda: False)
    with pytest.raises(ValueError, match=r"bubblewrap \(bwrap\) is not installed"):
        grade(group.submissions, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_student_branch_cannot_grade(group: Class, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="this is a student branch"):
        grade(group.submissions, tmp_path / "out", root=tmp_path)


@pytest.mark.skipif(TRUSTED, reason="no bubblewrap here")
def test_sandbox_hides_files_network_and_judges() -> None:
    program = (
        "import os, socket, sys\n"
        f"print(os.path.exists({str(ROOT / 'solutions')!r}), os.path.exists('/root/.gitconfig'))\n"
        "try:\n    socket.create_connection(('1.1.1.1', 53), 2)\nexcept OSError:\n    print('no network')\n"
        "from mlacademy.grading import judges\nprint(judges.__file__, vars(judges).get('chapter'))\n"
        "import mlacademy.grading\n"
        "try:\n    open(mlacademy.grading.__file__, 'a')\nexcept OSError:\n    print('read-only')\n"
    )
    command = [*sandbox.worker_prefix(), sys.executable, "-P", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    lines = done.stdout.splitlines()
    assert lines[0] == "False False", done.stderr
    assert lines[1] == "no network"
    assert lines[2].endswith(" None")
    assert lines[3] == "read-only"
