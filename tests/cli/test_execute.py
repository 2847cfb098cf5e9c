"""Running notebooks without a browser: every lesson of the course, and how failures are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from clone import ROOT

from mlacademy import notebooks
from mlacademy.cli.execute import execute
from mlacademy.cli.lessons import lessons

pytestmark = pytest.mark.notebook


@pytest.mark.parametrize("path", lessons(ROOT), ids=lambda path: str(path.relative_to(ROOT / "lessons")))
def test_lesson_runs_from_top_to_bottom(path: Path) -> None:
    before = path.read_bytes()
    run = execute(path)
    assert run.ok, f"{run.failed}: {run.error}\n{run.source}\n{run.traceback}"
    assert len(run.cells) == run.code_cells
    assert path.read_bytes() == before, "running a lesson leaves its file as it is"


def write(path: Path, **cells: str) -> Path:
    made: list[dict[str, Any]] = [
        {"cell_type": "code", "id": name, "metadata": {}, "source": source} for name, source in cells.items()
    ]
    notebooks.write({"cells": made}, path)
    return path


def test_a_raising_cell_is_named_with_its_error_and_source(tmp_path: Path) -> None:
    seen = []
    path = write(tmp_path / "n.ipynb", first="x = 1", second="y = {}\ny['lost']", third="x")
    run = execute(path, progress=lambda run: seen.append(run.running))
    assert (run.ok, run.failed, run.error) == (False, "second", "KeyError: 'lost'")
    assert run.source == "y = {}\ny['lost']"
    assert run.traceback.endswith("KeyError: 'lost'")
    assert "\x1b" not in run.traceback
    assert seen == ["first", "second"]
    assert run.code_cells == 3


def test_a_hanging_cell_is_stopped(tmp_path: Path) -> None:
    run = execute(write(tmp_path / "n.ipynb", hang="import time\ntime.sleep(60)"), cell_seconds=1)
    assert (run.failed, run.error) == ("hang", "ran longer than 1 s")


def test_a_dying_kernel_is_told(tmp_path: Path) -> None:
    run = execute(write(tmp_path / "n.ipynb", first="1", fatal="import os\nos._exit(1)"))
    assert (run.failed, run.error) == ("fatal", "its kernel died")


def test_an_unreadable_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "n.ipynb"
    path.write_text("{ half", encoding="utf-8")
    run = execute(path)
    assert run.error is not None
    assert run.error.startswith("not a readable notebook")


def test_cells_run_in_the_notebooks_folder(tmp_path: Path) -> None:
    (tmp_path / "beside.txt").touch()
    run = execute(write(tmp_path / "n.ipynb", look="from pathlib import Path\nassert Path('beside.txt').exists()"))
    assert run.ok
    assert run.slowest is not None
    assert run.slowest[0] == "look"
