"""The command line: help, errors in one sentence, and each command on a small course."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import mlacademy
from mlacademy import cli, notebooks
from mlacademy.cli import lab
from mlacademy.workspace import Workspace

MLACADEMY = str(Path(sys.executable).with_name("mlacademy"))


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [MLACADEMY, *arguments], cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run a command that must fail with status 1, and return its one sentence."""
    assert cli.main(arguments) == 1
    (sentence,) = capsys.readouterr().err.strip().splitlines()
    assert "Traceback" not in sentence
    return sentence


def test_help_lists_every_command_on_one_screen() -> None:
    shown = run("--help")
    assert shown.returncode == 0
    assert all(f"\n  {name} " in shown.stdout for name in cli.COMMANDS)
    assert len(shown.stdout.splitlines()) <= 24


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_help_of_each_command_fits_one_screen(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main([name, "--help"])
    shown = capsys.readouterr().out
    assert end.value.code == 0
    assert shown.startswith(f"usage: mlacademy {name}")
    assert len(shown.splitlines()) <= 24


def test_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"mlacademy {mlacademy.__version__}\n"


def test_the_package_runs_as_the_command() -> None:
    shown = subprocess.run([sys.executable, "-m", "mlacademy", "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout == run("--version").stdout


def test_help_loads_no_command() -> None:
    script = "import sys, mlacademy.cli as c\ntry: c.main(['--help'])\nfinally: print(*sys.modules, file=sys.stderr)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stderr.split()
    assert not {f"mlacademy.cli.{name}" for name in cli.COMMANDS} & set(loaded)
    assert "rich" not in loaded


def test_unknown_command_suggests_a_near_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["lesson"]) == 2
    assert capsys.readouterr().err == "mlacademy: there is no command 'lesson': did you mean `mlacademy lessons`?\n"
    assert cli.main(["xyz"]) == 2
    assert "`mlacademy --help` lists the commands" in capsys.readouterr().err


def test_no_command_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "commands:" in capsys.readouterr().out


def test_an_unforeseen_error_is_one_sentence_too(
    course: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (course / "lessons" / "00_start.ipynb").unlink()
    (course / "lessons" / "00_start.ipynb").symlink_to("/nowhere")
    monkeypatch.setattr(Workspace, "seed", lambda self: {}["lost"])
    assert "KeyError: 'lost' (set MLACADEMY_TRACEBACK=1 to see where)" in refused(capsys, "lab")
    monkeypatch.setenv("MLACADEMY_TRACEBACK", "1")
    with pytest.raises(KeyError):
        cli.main(["lab"])


def test_an_error_of_the_file_system_names_the_file(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (course / "work").write_text("a file where the folder should be")
    sentence = refused(capsys, "lab")
    assert sentence.startswith("mlacademy lab: ")
    assert str(course / "work") in sentence


def test_ctrl_c_ends_a_command_quietly(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(self: Workspace) -> list[Path]:
        raise KeyboardInterrupt

    monkeypatch.setattr(Workspace, "seed", interrupted)
    assert cli.main(["lab"]) == 130
    assert capsys.readouterr().err == "\nmlacademy lab: stopped.\n"


def test_a_reader_that_goes_away_is_no_error(repository: Path) -> None:
    command = f"{MLACADEMY} doctor --json | head -1; echo ${{PIPESTATUS[0]}}"
    shown = subprocess.run(["bash", "-c", command], cwd=repository, capture_output=True, text=True, check=True)
    assert "Traceback" not in shown.stderr
    assert shown.stdout.startswith("{\n")


# -- doctor ------------------------------------------------------------------------------------------------------


def test_doctor_reports_this_machine_as_json(repository: Path) -> None:
    shown = run("doctor", "--json", cwd=repository)
    report = json.loads(shown.stdout)
    assert shown.returncode == 0
    assert report["ready"] is True
    assert report["machine"]["cores"] >= 1
    assert {"Python", "torch", "native module", "GPU", "C++ compiler"} <= {f["name"] for f in report["findings"]}
    assert all(finding["fix"] for finding in report["findings"] if finding["state"] == "bad")
    assert [chapter["chapter"] for chapter in report["chapters"]] == sorted(
        path.name[:2] for path in (repository / "lessons").glob("*.ipynb")
    )


def test_doctor_names_versions_that_differ_and_ignores_other_platforms(
    course: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "1 of 1 differ: rich" in shown
    assert "(tried with 0.1)" in shown
    assert "versions: make setup" in shown


def test_doctor_fails_without_lessons(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for lesson in (course / "lessons").glob("*.ipynb"):
        lesson.unlink()
    assert "cannot run here yet: see lessons" in refused(capsys, "doctor")


def test_doctor_fails_when_a_package_is_missing(
    course: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from mlacademy import doctor

    monkeypatch.setattr(doctor, "_installed", lambda: {"numpy": "1.0", "rich": "14.0"})
    assert cli.main(["doctor"]) == 1
    captured = capsys.readouterr()
    assert "numpy (1.0, needs >=2.0)" in captured.out
    assert "jupyterlab" in captured.out
    assert "cannot run here yet: see packages" in captured.err


# -- lab ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The command lines that `lab` would have become."""
    lines: list[list[str]] = []
    monkeypatch.setattr(lab.os, "execve", lambda path, line, environment: lines.append(line))
    return lines


def test_lab_seeds_the_copies_and_opens_a_chapter(
    course: Path, started: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    cli.main(["lab", "--no-browser", "4"])
    assert (course / "work" / "exercises" / "02_fp8" / "02_fp8.ipynb").is_file()
    assert "Made 3 copies" in capsys.readouterr().out
    (line,) = started
    assert f"--ServerApp.root_dir={course / 'work'}" in line
    assert "--LabApp.default_url=/lab/tree/lessons/04_tiles.ipynb" in line
    assert "--no-browser" in line


def test_lab_without_chapter_00_opens_the_first(course: Path, started: list[list[str]]) -> None:
    cli.main(["lab"])
    assert "--LabApp.default_url=/lab/tree/lessons/00_start.ipynb" in started[0]


def test_lab_tells_of_newer_versions(
    course: Path, started: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    cli.main(["lab"])
    lesson = course / "lessons" / "00_start.ipynb"
    lesson.write_text(lesson.read_text().replace("1 + 1 == 2", "2 + 2 == 4"))
    capsys.readouterr()
    cli.main(["lab"])
    assert "One of your copies has a newer version: mlacademy update" in capsys.readouterr().out


def test_lab_refuses_what_it_cannot_open(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is no chapter 17; there are 00, 04" in refused(capsys, "lab", "17")
    assert "--port must lie in 1 to 65535; got 70000" in refused(capsys, "lab", "--port", "70000")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert f"port {port} cannot be used (Address already in use)" in refused(capsys, "lab", "--port", port)


def test_lab_settings_switch_news_off_and_follow_the_systems_theme() -> None:
    settings = json.loads((lab.SETTINGS / "labconfig" / "default_setting_overrides.json").read_text())
    assert settings["@jupyterlab/apputils-extension:notification"]["fetchNews"] == "false"
    assert settings["@jupyterlab/apputils-extension:themes"]["adaptive-theme"] is True
    assert lab.environment()["JUPYTER_CONFIG_PATH"].split(os.pathsep)[0] == str(lab.SETTINGS)


# -- lessons -----------------------------------------------------------------------------------------------------


@pytest.mark.notebook
def test_lessons_prints_a_table_and_the_first_failing_cell(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["lessons"]) == 1
    captured = capsys.readouterr()
    rows = [line.split() for line in captured.out.splitlines() if line.startswith(("00_start ", "04_tiles "))]
    assert [(row[0], row[1:4]) for row in rows] == [("00_start", ["1", "of", "1"]), ("04_tiles", ["2", "of", "2"])]
    assert [row[-1] for row in rows] == ["ok", "bad"]
    assert "04_tiles.ipynb failed at bad: ZeroDivisionError: division by zero" in captured.out
    assert "  | x / 0" in captured.out
    assert captured.err == "mlacademy lessons: 1 of 2 lessons failed: 04_tiles.ipynb\n"


@pytest.mark.notebook
def test_lessons_runs_chosen_chapters_of_the_copies(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Workspace(course).seed()
    (course / "lessons" / "00_start.ipynb").unlink()
    before = (course / "work" / "lessons" / "00_start.ipynb").read_bytes()
    assert cli.main(["lessons", "--work", "--only", "0"]) == 0
    assert "Running 1 lesson in" in capsys.readouterr().out
    assert (course / "work" / "lessons" / "00_start.ipynb").read_bytes() == before


def test_lessons_refuses_what_is_not_there(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is no chapter 07; there are 00, 04" in refused(capsys, "lessons", "--only", "7")
    assert "`mlacademy lab` makes the copies" in refused(capsys, "lessons", "--work")
    assert "--jobs must be at least 1; got 0" in refused(capsys, "lessons", "--jobs", "0")


# -- update and reset --------------------------------------------------------------------------------------------


@pytest.fixture
def answered(course: Path) -> Path:
    """A course with an answer written in the copy of exercise 02.3; the copy's path."""
    Workspace(course).seed()
    copy = course / "work" / "exercises" / "02_fp8" / "02_fp8.ipynb"
    copy.write_text(copy.read_text().replace("def f(): ...", "def f(): return 'mine'"))
    return copy


def test_update_says_what_it_did_and_where_the_backup_is(
    course: Path, answered: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    original = course / "exercises" / "02_fp8" / "02_fp8.ipynb"
    original.write_text(original.read_text().replace("def f(): ...", "def f(x): ..."))
    assert cli.main(["update", "--dry-run"]) == 0
    assert "what an update would do" in capsys.readouterr().out
    assert "newer" not in answered.read_text()
    assert cli.main(["update"]) == 0
    shown = capsys.readouterr().out
    assert "updated   exercises/02_fp8/02_fp8.ipynb (cells: 1 of yours kept, with the newer text below)" in shown
    assert "yours kept: cell 02-3-answer" in shown
    assert "work/.mlacademy/backups/" in shown
    assert "return 'mine'" in answered.read_text()
    assert cli.main(["update"]) == 0
    assert "All 3 copies" in capsys.readouterr().out


def test_update_fails_when_a_copy_had_to_be_left(
    course: Path, answered: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answered.write_text("{ half")
    sentence = refused(capsys, "update")
    assert "1 of your files could not be changed: exercises/02_fp8/02_fp8.ipynb:" in sentence
    assert answered.read_text() == "{ half"


def test_reset_needs_consent(course: Path, answered: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = run("reset", "02.3", cwd=course)
    assert shown.returncode == 1
    assert shown.stderr == ("mlacademy reset: this needs your consent and there is no terminal to ask on: add --yes\n")
    assert "mine" in answered.read_text()
    assert cli.main(["reset", "2.3", "--yes"]) == 0
    assert "mine" not in answered.read_text()
    assert "backups" in capsys.readouterr().out


@pytest.mark.parametrize("what", [["chapter", "4"], ["lessons/04_tiles.ipynb"], ["work/lessons/04_tiles.ipynb"]])
def test_reset_takes_a_chapter_or_a_path(course: Path, what: list[str]) -> None:
    Workspace(course).seed()
    copy = course / "work" / "lessons" / "04_tiles.ipynb"
    before = copy.read_bytes()
    copy.write_text("{ half")
    assert cli.main(["reset", *what, "--yes"]) == 0
    assert copy.read_bytes() == before


def test_reset_of_what_is_pristine_says_so(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Workspace(course).seed()
    assert cli.main(["reset", "chapter", "04"]) == 0
    assert "is as it came; nothing to restore" in capsys.readouterr().out


@pytest.mark.parametrize("columns", ["0", "-5", "wide", ""])
def test_a_width_that_is_none_is_ignored(
    course: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    Workspace(course).seed()
    monkeypatch.setenv("COLUMNS", columns)
    assert cli.main(["update"]) == 0
    assert "are up to date." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        (["02.9"], "there is no exercise 02.9"),
        (["4"], "say `chapter 4` for the notebook, or `04.1` for an exercise"),
        (["chapter", "9"], "there is no chapter 09; there are 00, 04"),
        (["nowhere.ipynb"], "nowhere.ipynb is neither an exercise such as 02.3 nor a notebook of the course"),
        (["02.3", "02.4"], "say one thing to restore"),
    ],
)
def test_reset_refuses_what_names_nothing(
    course: Path, capsys: pytest.CaptureFixture[str], what: list[str], sentence: str
) -> None:
    assert sentence in refused(capsys, "reset", *what)


# -- bench -------------------------------------------------------------------------------------------------------


def test_bench_lists_and_runs_scripts(course: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert "there are no benchmarks" in refused(capfd, "bench")
    (course / "benchmarks").mkdir()
    (course / "benchmarks" / "speed.py").write_text('"""How fast?\n\nMore."""\nimport sys\nprint(sys.argv[1:])\n')
    (course / "benchmarks" / "wrong.py").write_text('"""Does it fail?"""\nraise SystemExit(3)\n')
    assert cli.main(["bench"]) == 0
    assert "speed            How fast?" in capfd.readouterr().out
    assert cli.main(["bench", "speed", "--", "--size", "3"]) == 0
    assert "['--size', '3']" in capfd.readouterr().out
    assert "there is no benchmark 'slow'; there are speed, wrong" in refused(capfd, "bench", "slow")
    assert refused(capfd, "bench", "--all") == "mlacademy bench: wrong failed"


def test_book_refuses_zero_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--jobs must be at least 1; got 0" in refused(capsys, "book", "--jobs", "0")


def test_notebooks_are_left_as_they_are(course: Path) -> None:
    """`lab`, `update` and `doctor` read the pristine files and never write them."""
    before = {path: path.read_bytes() for path in course.rglob("*.ipynb")}
    Workspace(course).seed()
    cli.main(["update"])
    cli.main(["doctor"])
    assert all(path.read_bytes() == text for path, text in before.items())
    assert all(path.read_text() == notebooks.dumps(notebooks.read(path)) for path in before)
