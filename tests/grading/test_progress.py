"""Progress survives restarts, several notebooks at once, and a damaged file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mlacademy.grading import Exercise, Verdict, board, judges


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "progress.json"
    monkeypatch.setenv("MLACADEMY_PROGRESS", str(path))
    return path


def verdict(state: str, exercise: str = "99.1", kind: str = "") -> Verdict:
    hint = "first" if state == "failed" else ""
    return Verdict(exercise=exercise, title="t", state=state, summary="s", kind=kind, hint=hint, points=1, max_points=2)


def test_record_is_kept_in_the_file(file: Path) -> None:
    board.record(verdict("failed", kind="bias"))
    board.record(verdict("passed"), handed_in=True)
    board.record(verdict("failed", kind="value"))
    entry = json.loads(file.read_text())["exercises"]["99.1"]
    assert (entry["tries"], entry["state"], entry["points"]) == (3, "failed", 1)
    assert entry["passed"]
    assert entry["first"] <= entry["last"]


def test_what_was_right_once_stays_right_on_the_board(
    file: Path, exercise: Exercise, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judges, "all_exercises", lambda: (exercise,))
    assert board.progress().rows[0].state == "open"
    board.record(verdict("failed"))
    assert board.progress().rows[0].state == "not right yet"
    board.record(verdict("passed"))
    board.record(verdict("failed"))
    shown = board.progress()
    assert shown.rows[0].state == "right"
    assert shown.passed == 1
    assert str(shown).startswith("1 of 1 exercises right  [####################]\n  99.1  Scale a row")
    assert "width:100%" in shown._repr_html_()


def test_blank_is_no_try(file: Path) -> None:
    board.record(verdict("unanswered"))
    assert "tries" not in json.loads(file.read_text())["exercises"]["99.1"]


def test_damaged_file_is_set_aside_and_kept(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text('{"exercises": {"01.1": ')
    board.record(verdict("passed"))
    assert list(json.loads(file.read_text())["exercises"]) == ["99.1"]
    (aside,) = file.parent.glob("progress.damaged-*.json")
    assert aside.read_text() == '{"exercises": {"01.1": '
    assert f"it is kept as {aside}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "{}",
        '{"exercises": [1]}',
        '{"exercises": {"01.1": 3}}',
        '{"exercises": {"01.1": {"tries": "x"}}}',
        '{"exercises": {"01.1": {"tries": null}}}',
        '{"exercises": {"01.1": {"hint": [1]}}}',
        '{"exercises": {"01.1": {"kind": 3}}}',
        "[" * 100_000,
        "\x00",
    ],
    ids=range(10),
)
def test_any_other_content_is_damage(file: Path, content: str) -> None:
    file.write_text(content)
    assert board.read(file) == {}
    assert len(list(file.parent.glob("progress.damaged-*.json"))) == 1


def test_notebooks_that_write_at_once_lose_nothing(file: Path) -> None:
    program = (
        "import sys; from mlacademy.grading import Verdict, board\n"
        "for n in range(25):\n"
        "    board.record(Verdict(exercise=sys.argv[1], title='t', state='failed', summary='s'))\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", program, f"0{n}.1"]) for n in range(1, 4)]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    exercises = json.loads(file.read_text())["exercises"]
    assert {name: entry["tries"] for name, entry in exercises.items()} == {"01.1": 25, "02.1": 25, "03.1": 25}
    assert not list(file.parent.glob("*.tmp"))


def test_file_lies_in_the_course_s_work_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLACADEMY_PROGRESS")
    course = tmp_path / "course"
    (course / "lessons").mkdir(parents=True)
    (course / "pyproject.toml").touch()
    inside = course / "work" / "exercises" / "02_fp8_cache"
    inside.mkdir(parents=True)
    want = course / "work" / ".mlacademy" / "progress.json"
    assert board.progress_file(inside) == want
    assert board.progress_file(course / "lessons") == want
    alone = tmp_path / "alone"
    alone.mkdir()
    assert board.progress_file(alone) == alone / ".mlacademy" / "progress.json"
    (tmp_path / ".mlacademy").mkdir()
    assert board.progress_file(alone) == tmp_path / ".mlacademy" / "progress.json"


def test_progress_can_be_off_and_still_serves_the_running_notebook(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MLACADEMY_PROGRESS", "off")
    monkeypatch.setattr(board, "_unsaved", {})
    monkeypatch.chdir(tmp_path)
    board.record(verdict("failed", kind="bias"))
    assert board.last_kind("99.1") == "bias"
    assert not list(tmp_path.iterdir())


def test_where_nothing_can_be_written_the_check_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv("MLACADEMY_PROGRESS", str(blocked / "progress.json"))
    monkeypatch.setattr(board, "_unsaved", {})
    board.record(verdict("failed", kind="bias"))
    assert board.last_kind("99.1") == "bias"


def test_change_that_could_not_be_saved_is_shown_and_saved_later(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    board.record(verdict("failed", "01.1"))
    kept = file.read_text()
    with monkeypatch.context() as full:
        full.setattr(os, "replace", lambda *paths: (_ for _ in ()).throw(OSError("no space left on device")))
        board.record(verdict("passed", "01.1"))
    assert file.read_text() == kept
    assert not list(file.parent.glob("*.tmp"))
    assert {row.exercise for row in board.progress().rows if row.state == "right"} == {"01.1"}
    board.record(verdict("failed", "02.1"))
    assert {name: entry["state"] for name, entry in json.loads(file.read_text())["exercises"].items()} == {
        "01.1": "passed",
        "02.1": "failed",
    }
    assert board._unsaved == {}


def test_file_that_cannot_be_read_is_not_overwritten(file: Path) -> None:
    file.mkdir()
    board.record(verdict("failed", kind="bias"))
    assert board.last_kind("99.1") == "bias"
    assert file.is_dir()


def test_the_real_board_lists_every_exercise(file: Path) -> None:
    assert [row.exercise for row in board.progress().rows] == [exercise.id for exercise in judges.all_exercises()]
