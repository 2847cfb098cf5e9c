"""A learner's work stays apart: answers and outputs in work/ touch nothing that git or the tests look at."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mlacademy.cli.execute import execute
from mlacademy.grading import check_notebook
from mlacademy.workspace import Workspace


def git_status(root: Path) -> str:
    return subprocess.run(["git", "status", "--porcelain"], cwd=root, capture_output=True, text=True, check=True).stdout


@pytest.mark.notebook
def test_answering_and_running_in_work_leaves_git_clean_and_the_checks_green(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tree)
    workspace = Workspace(tree)
    made = workspace.seed()
    exercise = next(workspace.work / path for path in made if path.parts[0] == "exercises" and path.suffix == ".ipynb")
    notebook = json.loads(exercise.read_text(encoding="utf-8"))
    answer = next(cell for cell in notebook["cells"] if cell["id"].endswith("-1-answer"))
    answer["source"] = ["def answered_by_the_learner():\n", "    return 7\n"]
    answer["outputs"] = [{"output_type": "stream", "name": "stdout", "text": ["7\n"]}]
    answer["execution_count"] = 12
    exercise.write_text(json.dumps(notebook), encoding="utf-8")
    assert check_notebook(exercise)

    lesson = next(workspace.work / path for path in made if path.name.startswith("00_"))
    assert execute(lesson).ok
    (lesson.parent / ".ipynb_checkpoints").mkdir()
    (lesson.parent / ".ipynb_checkpoints" / lesson.name).write_bytes(lesson.read_bytes())

    assert git_status(tree) == ""
    originals = [sys.executable, "-m", "pytest", "-n0", "tests/test_notebooks.py"]
    run = subprocess.run(originals, cwd=tree, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    linted = [sys.executable, "-m", "ruff", "check", "--show-files"]
    files = subprocess.run(linted, cwd=tree, capture_output=True, text=True, check=True).stdout
    assert str(tree / "lessons" / lesson.name) in files
    assert str(workspace.work) not in files
    assert git_status(tree) == ""
