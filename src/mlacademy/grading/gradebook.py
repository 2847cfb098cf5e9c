"""Grade a folder of submissions: nbgrader runs and records, the judge looks again, a CSV comes out.

nbgrader executes each notebook in a sandboxed kernel and reads the points off the hidden cells. That kernel is the
student's own, so its points are only a claim. Every answer is judged a second time, outside the notebook and on other
inputs; where the two differ the lower counts and the row is marked "needs a look". A manual score always stands.
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any

from mlacademy import notebooks
from mlacademy.grading import judges
from mlacademy.grading.assignments import api, assignments, course_config, quiet, repository
from mlacademy.grading.exercise import Exercise
from mlacademy.grading.process import Worker
from mlacademy.grading.submissions import judge_notebook

Progress = Callable[[str], None]
CELL_SECONDS = 20
"""How long one cell of a submission may run."""

CONFIG = '''"""So that nbgrader's own programs (formgrader, generate_feedback) work in this folder."""

from pathlib import Path

from mlacademy.grading.assignments import course_config

here = Path(__file__).resolve().parent
c = get_config()  # noqa: F821 -- nbgrader defines it
c.merge(course_config(here, here.parent / "gradebook.db"))
'''

_COPY = re.compile(r"( \(\d+\)|-Copy\d*|\.copy)+$")


@dataclass(frozen=True)
class Row:
    """One line of ``grades.csv``. ``points`` is None while only a person can give them."""

    student: str
    assignment: str
    exercise: str
    points: float | None
    max: float
    needs_manual_grading: bool
    note: str = ""


@dataclass(frozen=True)
class Total:
    """One line of ``totals.csv``. ``passed`` is ``yes``, ``no``, ``pending`` (prose is not marked yet), or empty where
    the assignment has no rule."""

    student: str
    assignment: str
    points: float
    max: float
    passed: str
    note: str = ""


@dataclass(frozen=True)
class Grades:
    """Everything one run of ``grade`` found."""

    rows: list[Row]
    totals: list[Total]
    csv: Path
    totals_csv: Path
    gradebook: Path


@dataclass(frozen=True)
class _Submission:
    student: str
    assignment: str
    path: Path

    def content(self, folder: Path) -> bytes:
        """The bytes of the file, handed in under ``folder``.

        Empty for what is no file or cannot be read, and for a link that leads out of the student's own folder, say to
        another student's answers.
        """
        try:
            own = self.path.resolve().is_relative_to((folder / self.student).resolve())
            return self.path.read_bytes() if own and self.path.is_file() else b""
        except (OSError, RuntimeError):
            return b""


def grade(
    submissions: str | Path,
    out: str | Path,
    *,
    root: Path | None = None,
    trusted: bool = False,
    cell_seconds: int = CELL_SECONDS,
    progress: Progress | None = None,
) -> Grades:
    """Grade every notebook under ``submissions``; write ``grades.csv``, ``totals.csv`` and ``gradebook.db`` to ``out``.

    ``submissions`` holds ``<student>/<assignment>/<notebook>.ipynb`` or ``<student>/<notebook>.ipynb``. A second run
    grades what is new or changed and keeps manual scores. Notebooks run behind bubblewrap; where that is missing,
    ``trusted=True`` is needed to run them unprotected. Raises ``ValueError`` when there is nothing to grade, on a
    student branch, or without a sandbox.
    """
    from mlacademy.grading import sandbox

    root, out, folder = root or repository(), Path(out).resolve(), Path(submissions).resolve()
    say = progress or (lambda text: None)
    known = assignments(root)
    found = list(_find(folder, known))
    if not found:
        raise ValueError(f"no submissions in {folder}: expected <student>/<assignment>/<notebook>.ipynb")
    if not trusted and not sandbox.available():
        raise ValueError(
            "bubblewrap (bwrap) is not installed, so students' code would run unprotected; install it, or pass "
            "trusted=True (--trusted) when you trust every submission"
        )
    out.mkdir(parents=True, exist_ok=True)
    seen = _read_json(out / "seen.json")
    worker = Worker(() if trusted else sandbox.worker_prefix())
    try:
        with _course(root, out, {one.assignment for one in found}, trusted, cell_seconds, say) as course:
            for number, one in enumerate(found, 1):
                content = one.content(folder)
                mark = _mark(root, one, content)
                key = f"{one.student}/{one.assignment}"
                if seen.get(key, {}).get("sha256") == mark:
                    say(f"[{number}/{len(found)}] {key}: unchanged")
                    continue
                say(f"[{number}/{len(found)}] {key}")
                seen[key] = {"sha256": mark, "notes": _grade_one(course, one, content, worker)}
                _write_json(out / "seen.json", seen)
            return _export(course, out, seen)
    finally:
        worker.close()


def _mark(root: Path, one: _Submission, content: bytes) -> str:
    """A digest of everything that a submission's points depend on: itself, the assignment, the judges."""
    digest = hashlib.sha256(hashlib.sha256(content).digest())
    judging = sorted(Path(judges.__file__).parent.glob("*.py"))
    for path in [root / "solutions" / one.assignment / f"{one.assignment}.ipynb", *judging]:
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _find(folder: Path, known: list[str]) -> Iterator[_Submission]:
    """One submission for every student and assignment: the notebook of that name, else its newest copy."""
    for student in sorted(path for path in folder.glob("*") if path.is_dir() and not path.name.startswith(".")):
        by_name: dict[str, list[Path]] = {}
        for path in [*student.glob("*.ipynb"), *student.glob("*/*.ipynb")]:
            by_name.setdefault(_COPY.sub("", path.stem), []).append(path)
        for name in known:
            candidates = sorted(by_name.get(name, []), key=lambda path: (path.stem == name, path.lstat().st_mtime))
            if candidates:
                yield _Submission(student.name, name, candidates[-1])


@contextmanager
def _course(root: Path, out: Path, names: set[str], trusted: bool, cell_seconds: int, say: Progress) -> Iterator[Any]:
    """nbgrader's interface over a private course folder in ``out``, with the assignments entered in the gradebook."""
    from mlacademy.grading import sandbox

    course = out / "course"
    for part in ("solutions", "exercises"):
        shutil.rmtree(course / part, ignore_errors=True)
    (course / "submitted").mkdir(parents=True, exist_ok=True)
    (course / "nbgrader_config.py").write_text(CONFIG, encoding="utf-8")
    config = course_config(course, out / "gradebook.db")
    config.Execute.timeout = cell_seconds
    config.Execute.interrupt_on_timeout = True
    with ExitStack() as stack:
        stack.enter_context(quiet())
        if not trusted:
            config.Execute.kernel_name = stack.enter_context(sandbox.kernel())
        interface = api(config)
        for name in sorted(names):
            say(f"preparing {name}")
            shutil.copytree(root / "solutions" / name, course / "solutions" / name)
            result = interface.generate_assignment(name)
            if not result["success"]:
                raise ValueError(f"nbgrader could not prepare {name}:\n{result.get('log') or result.get('error')}")
        yield interface


def _grade_one(course: Any, one: _Submission, content: bytes, worker: Worker) -> dict[str, str]:
    """Autograde and judge again; returns notes by exercise (and ``""`` for the whole notebook)."""
    notes: dict[str, str] = {}
    folder = Path(course.coursedir.root)
    target = folder / "submitted" / one.student / one.assignment / f"{one.assignment}.ipynb"
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        notebook = _mended(notebooks.loads(content, one.path))
    except ValueError:
        _score_zero(course, one)
        return {"": "not a notebook: no points"}
    _restore(notebook, notebooks.read(folder / "exercises" / one.assignment / f"{one.assignment}.ipynb"))
    target.write_text(json.dumps(notebook), encoding="utf-8")
    result = course.autograde(one.assignment, one.student)
    if not result["success"]:
        notes[""] = "the notebook could not be run to its end; needs a look"
        _score_zero(course, one, readable=True)
    judged = notebooks.read(target)
    for exercise in judges.chapter(one.assignment[:2]):
        note = _judge_again(course, one, exercise, judged, worker)
        if note:
            notes[exercise.id] = note
    return notes


def _mended(notebook: notebooks.Notebook) -> notebooks.Notebook:
    """The notebook without what would stop nbgrader: cells that are no cells, ill-formed metadata, old outputs."""
    cells: list[dict[str, Any]] = []
    for cell in notebook["cells"] if isinstance(notebook["cells"], list) else []:
        if not isinstance(cell, dict) or cell.get("cell_type") not in ("code", "markdown", "raw"):
            continue
        name, metadata = str(cell.get("id")), cell.get("metadata")
        graded = metadata.get("nbgrader") if isinstance(metadata, dict) else None
        unique = re.fullmatch(r"[a-zA-Z0-9-_]{1,64}", name) and name not in [other["id"] for other in cells]
        clean = {
            "cell_type": cell["cell_type"],
            "id": name if unique else f"cell-{len(cells)}",
            "metadata": {"nbgrader": graded} if isinstance(graded, dict) else {},
            "source": _text(cell.get("source")),
        }
        if clean["cell_type"] == "code":
            clean |= {"outputs": [], "execution_count": None}
        cells.append(clean)
    _mark_once(cells)
    return {"cells": cells, "metadata": notebooks.METADATA, "nbformat": 4, "nbformat_minor": 5}


def _mark_once(cells: list[dict[str, Any]]) -> None:
    """Take the grading marks off copies of a cell: they stay on the cell that has the name, else on the first."""
    owners: dict[str, dict[str, Any]] = {}
    for cell in cells:
        name = str(cell["metadata"].get("nbgrader", {}).get("grade_id"))
        if name not in owners or (cell["id"] == name and owners[name]["id"] != name):
            owners[name] = cell
    for cell in cells:
        name = str(cell["metadata"].get("nbgrader", {}).get("grade_id"))
        if cell is not owners[name]:
            cell["metadata"] = {}


def _text(source: Any) -> str:
    lines = source if isinstance(source, list) else [source]
    return "".join(line for line in lines if isinstance(line, str))


def _restore(notebook: notebooks.Notebook, released: notebooks.Notebook) -> None:
    """Put deleted tests and prose cells back, each after the nearest cell before it that is still there.

    Cells that are there get back the metadata that an editor may have dropped, or a student changed.
    """
    names = [str(cell["metadata"].get("nbgrader", {}).get("grade_id") or cell["id"]) for cell in notebook["cells"]]
    at = 0
    for cell in released["cells"]:
        if cell["id"] in names:
            at = names.index(cell["id"]) + 1
            notebook["cells"][at - 1]["metadata"] = cell["metadata"]
        elif cell["metadata"].get("nbgrader", {}).get("grade"):
            notebook["cells"].insert(at, {**cell, "source": notebooks.source(cell)})
            names.insert(at, cell["id"])
            at += 1


def _judge_again(
    course: Any, one: _Submission, exercise: Exercise, notebook: notebooks.Notebook, worker: Worker
) -> str:
    """Compare nbgrader's points for an exercise with the judge's; the lower one goes into the gradebook."""
    if exercise.kind == "prose":
        return ""
    verdict = judge_notebook(notebook, exercise, streams=("visible", "hidden", "regrade"), worker=worker)
    with course.gradebook as gradebook:
        grade = gradebook.find_grade(f"{exercise.cell}-hidden", one.assignment, one.assignment, one.student)
        claimed = float(grade.auto_score or 0.0)
        if claimed == verdict.points:
            return "" if verdict else verdict.summary
        grade.auto_score = min(claimed, float(verdict.points))
        gradebook.db.commit()
    return f"needs a look: the notebook says {claimed:g}, judged again {verdict.points:g}. {verdict.summary}"


def _score_zero(course: Any, one: _Submission, *, readable: bool = False) -> None:
    """No points for the tests; the prose of a readable notebook still waits for a person."""
    with course.gradebook as gradebook:
        gradebook.update_or_create_student(one.student)
        submission = gradebook.update_or_create_submission(one.assignment, one.student)
        for notebook in submission.notebooks:
            for grade in notebook.grades:
                prose = readable and grade.cell.cell_type != "code"
                grade.auto_score, grade.needs_manual_grade = (None, True) if prose else (0.0, False)
        gradebook.db.commit()


def _export(course: Any, out: Path, seen: dict[str, Any]) -> Grades:
    rows: list[Row] = []
    totals: list[Total] = []
    with course.gradebook as gradebook:
        for key in sorted(seen):
            student, _, assignment = key.rpartition("/")
            notes = seen[key]["notes"]
            mine, vetoes = [], []
            for exercise in judges.chapter(assignment[:2]):
                cell = f"{exercise.cell}-{'answer' if exercise.kind == 'prose' else 'hidden'}"
                grade = gradebook.find_grade(cell, assignment, assignment, student)
                mine.append(_row(student, assignment, exercise, grade, notes))
                if exercise.kind == "prose":
                    comment = gradebook.find_comment(cell, assignment, assignment, student).manual_comment or ""
                    vetoes += [exercise.id] if comment.strip().casefold().startswith("veto") else []
            rows += mine
            totals.append(_total(student, assignment, mine, vetoes, notes.get("", "")))
    _write_csv(out / "grades.csv", Row, rows)
    _write_csv(out / "totals.csv", Total, totals)
    return Grades(rows, totals, out / "grades.csv", out / "totals.csv", out / "gradebook.db")


def _row(student: str, assignment: str, exercise: Exercise, grade: Any, notes: dict[str, str]) -> Row:
    manual = grade.manual_score is not None
    points = grade.manual_score if manual else grade.auto_score
    note = "; ".join(text for text in (notes.get("", ""), notes.get(exercise.id, "")) if text)
    if manual and exercise.kind != "prose":
        note = "; ".join(text for text in ("scored by hand", note) if text)
    waiting = bool(grade.needs_manual_grade) and points is None
    return Row(student, assignment, exercise.id, points, float(exercise.points), waiting, note)


def _total(student: str, assignment: str, rows: list[Row], vetoes: list[str], note: str) -> Total:
    points, most = sum(row.points or 0.0 for row in rows), sum(row.max for row in rows)
    total = Total(student, assignment, points, most, "", note)
    rule = judges.rule(assignment[:2])
    if rule is None:
        return total
    if vetoes:
        return replace(total, passed="no", note=f"veto in {', '.join(vetoes)}")
    open_points = sum(row.max for row in rows if row.points is None)
    if points >= rule.points:
        return replace(total, passed="pending" if open_points else "yes")
    return replace(total, passed="pending" if points + open_points >= rule.points else "no")


def _write_csv(path: Path, kind: type, lines: list[Any]) -> None:
    draft = path.with_suffix(".tmp")
    with draft.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([field.name.replace("_", " ") for field in fields(kind)])
        for line in lines:
            writer.writerow([_cell(value) for value in astuple(line)])
    draft.replace(path)


def _cell(value: Any) -> str:
    """A cell that a spreadsheet takes as text or number, never as a formula."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    text = "" if value is None else str(value)
    return "'" + text if text[:1] in ("=", "+", "-", "@", "\t") else text


def _read_json(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}


def _write_json(path: Path, content: dict[str, Any]) -> None:
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps(content, indent=1, sort_keys=True), encoding="utf-8")
    draft.replace(path)
