"""`mlacademy check`, `grade` and `release`: what they print and when they fail. The grading itself is tested apart."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mlacademy import cli, grading
from mlacademy.grading import Verdict, board
from mlacademy.workspace import Workspace


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run a command that must fail with status 1, and return its one sentence."""
    assert cli.main(arguments) == 1
    (sentence,) = capsys.readouterr().err.strip().splitlines()
    return sentence


def verdict(state: str) -> Verdict:
    return Verdict(exercise="02.3", title="Pack [one] token", state=state, summary="off by [8]", hint="Mind the bias.")


@pytest.fixture
def verdicts(monkeypatch: pytest.MonkeyPatch) -> list[Verdict]:
    """What `check_notebook` will find."""
    found: list[Verdict] = []
    monkeypatch.setattr(grading, "check_notebook", lambda path, *, only, progress: list(found), raising=False)
    return found


def test_check_succeeds_when_every_answer_is_right_or_a_persons_to_read(
    course: Path, verdicts: list[Verdict], capsys: pytest.CaptureFixture[str]
) -> None:
    Workspace(course).seed()
    verdicts += [verdict("passed"), verdict("manual")]
    assert cli.main(["check", "2"]) == 0
    shown = capsys.readouterr().out
    assert "work/exercises/02_fp8/02_fp8.ipynb\n  02.3 Pack [one] token: right\n" in shown
    assert shown.endswith("1 of 2 right, 1 to be read by a person.\n")


def test_check_tells_what_is_wrong_and_notes_the_progress(
    course: Path, verdicts: list[Verdict], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLACADEMY_PROGRESS", raising=False)
    (course / "pyproject.toml").touch()
    Workspace(course).seed()
    verdicts += [verdict("failed")]
    monkeypatch.chdir(course / "work" / "exercises" / "02_fp8")
    assert cli.main(["check", "02_fp8.ipynb"]) == 1
    captured = capsys.readouterr()
    assert "    off by [8]\n    Hint: Mind the bias.\n" in captured.out
    assert captured.err == "mlacademy check: 1 of 1 answers are missing or not right yet\n"
    assert board.read(course / "work" / ".mlacademy" / "progress.json")["02.3"]["state"] == "failed"


def test_check_of_a_notebook_elsewhere_keeps_no_progress(
    course: Path, verdicts: list[Verdict], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "02_other.ipynb"
    other.write_bytes((course / "exercises" / "02_fp8" / "02_fp8.ipynb").read_bytes())
    verdicts += [verdict("passed")]
    assert cli.main(["check", str(other)]) == 0
    assert not list(course.rglob("progress.json"))


def test_check_really_judges_a_blank_notebook(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Workspace(course).seed()
    assert cli.main(["check"]) == 1
    captured = capsys.readouterr()
    assert "not answered yet" in captured.out
    assert captured.err.endswith("answers are missing or not right yet\n")


@pytest.mark.parametrize("name", ["02", "exercises/02_fp8", "work/exercises/02_fp8/02_fp8.ipynb"])
def test_check_takes_a_chapter_a_folder_and_a_path(
    course: Path, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Workspace(course).seed()
    monkeypatch.chdir(course)
    assert cli.main(["check", name]) == 1
    assert "work/exercises/02_fp8/02_fp8.ipynb" in capsys.readouterr().out


def test_check_takes_one_exercise(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Workspace(course).seed()
    assert cli.main(["check", "2.1"]) == 1
    captured = capsys.readouterr()
    assert "02.1" in captured.out
    assert "02.2" not in captured.out
    assert "1 of 1 answers" in captured.err
    assert "02_fp8.ipynb has no exercise 02.9; it has 02.1" in refused(capsys, "check", "02.9")


def test_check_refuses_what_is_not_there(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "`mlacademy lab` makes your copies" in refused(capsys, "check")
    Workspace(course).seed()
    assert "9 is neither a notebook nor a chapter of your exercises (02)" in refused(capsys, "check", "9")
    (course / "02_bad.ipynb").write_text("{ half")
    assert "02_bad.ipynb is not a notebook" in refused(capsys, "check", "02_bad.ipynb")


def test_grade_prints_totals_and_what_waits_for_a_person(
    course: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def grade(folder: Path, out: Path, **options: Any) -> Any:
        asked.update(options, folder=folder, out=out)
        options["progress"]("[1/1] ada/02_fp8")
        total = SimpleNamespace(student="ada", assignment="02_fp8", points=7.5, max=10, passed="pending", note="")
        rows = [SimpleNamespace(needs_manual_grading=True), SimpleNamespace(needs_manual_grading=False)]
        files = {name: out / name for name in ("grades.csv", "totals.csv", "gradebook.db")}
        return SimpleNamespace(
            rows=rows,
            totals=[total],
            csv=files["grades.csv"],
            totals_csv=files["totals.csv"],
            gradebook=files["gradebook.db"],
        )

    monkeypatch.setattr(grading, "grade", grade, raising=False)
    assert cli.main(["grade", str(tmp_path), "-o", str(tmp_path / "out"), "--cell-seconds", "5"]) == 0
    shown = capsys.readouterr().out
    assert "[1/1] ada/02_fp8" in shown
    assert "7.5 of 10" in shown
    assert "1 answers wait for a person" in shown
    assert f"wrote {tmp_path / 'out' / 'grades.csv'}" in shown
    assert (asked["root"], asked["trusted"], asked["cell_seconds"]) == (course, False, 5)


def test_grade_refuses_a_folder_that_is_not_there_and_a_limit_of_zero(
    course: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "nowhere is not a folder of submissions" in refused(capsys, "grade", "nowhere")
    assert "--cell-seconds must be at least 1; got 0" in refused(capsys, "grade", str(tmp_path), "--cell-seconds", "0")


def test_release_needs_to_know_what(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "say what to release: --to BRANCH for a student branch, or --exercises" in refused(capsys, "release")


def test_release_tells_the_branch_and_what_was_left_out(
    course: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = SimpleNamespace(branch="student", commit="0123456789abcdef", files=42, changed=True, uncommitted=True)
    monkeypatch.setattr(grading, "release", lambda branch, *, root, progress: done, raising=False)
    assert cli.main(["release", "--to", "student"]) == 0
    shown = capsys.readouterr().out
    assert "not committed; they were not released" in shown
    assert "student: 42 files at 0123456789\n" in shown


def test_release_generates_the_named_exercises(
    course: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def generate(names: Any, *, root: Path, progress: Any) -> list[Path]:
        asked.append(names)
        return [root / "exercises" / "one.ipynb"]

    monkeypatch.setattr(grading, "generate", generate, raising=False)
    assert cli.main(["release", "--exercises"]) == 0
    assert cli.main(["release", "--exercises", "02_fp8"]) == 0
    assert asked == [None, ["02_fp8"]]
    assert f"wrote {course / 'exercises' / 'one.ipynb'}" in capsys.readouterr().out


def test_release_passes_on_why_it_cannot(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sentence = refused(capsys, "release", "--to", "bad..name")
    assert sentence == "mlacademy release: 'bad..name' is not a branch name"
