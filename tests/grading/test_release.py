"""The student branch: no solutions, no history of them, nothing of their text, and its tests pass."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mlacademy.grading import release
from mlacademy.grading.branch import Git, leaks

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(
    not (ROOT / "solutions" / "13_block_gemm").is_dir(), reason="this branch has no solutions/"
)


@pytest.fixture(autouse=True)
def committer(monkeypatch: pytest.MonkeyPatch) -> None:
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "Test")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "test@example.org")


def commit(tree: Path, path: str, text: str | None) -> None:
    if text is None:
        (tree / path).unlink()
    else:
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(text)
    Git(tree).text("add", "-A")
    Git(tree).text("commit", "-qm", f"Change {path}")


def test_no_blob_of_the_student_branch_holds_text_of_a_solution(tree: Path) -> None:
    done = release("students", root=tree)
    git = Git(tree)
    assert done.changed
    assert not done.uncommitted
    assert git.text("rev-parse", "students") == done.commit
    assert not git.lines("ls-tree", "-r", "students", "--", "solutions")
    assert git.lines("ls-tree", "-r", "students", "--", "exercises", "lessons", "src/mlacademy/grading/judges")
    assert leaks("students", root=tree) == []
    want = {path for path, _ in git.blobs("HEAD") if not path.startswith("solutions/")}
    assert {path for path, _ in git.blobs("students")} == want


def test_branch_has_no_parents_at_first_and_then_follows_itself(tree: Path) -> None:
    git = Git(tree)
    first = release("students", root=tree)
    assert git.lines("rev-list", "students") == [first.commit]
    assert release("students", root=tree) == type(first)("students", first.commit, first.files, False, False)
    commit(tree, "docs/new.md", "Something new.\n")
    second = release("students", root=tree)
    assert git.lines("rev-list", "students") == [second.commit, first.commit]
    assert git.text("show", "students:docs/new.md") == "Something new."
    commit(tree, "docs/new.md", None)
    assert "docs/new.md" not in [path for path, _ in git.blobs(release("students", root=tree).commit)]


def test_work_tree_and_index_stay_as_they_are(tree: Path) -> None:
    git = Git(tree)
    (tree / "README.md").write_text("changed, not committed\n")
    (tree / "staged.txt").write_text("staged\n")
    git.text("add", "staged.txt")
    before = git.text("status", "--porcelain=v2"), git.text("rev-parse", "HEAD"), git.text("branch", "--show-current")
    done = release("students", root=tree)
    assert done.uncommitted
    assert (
        git.text("status", "--porcelain=v2"),
        git.text("rev-parse", "HEAD"),
        git.text("branch", "--show-current"),
    ) == before
    assert git.text("show", "students:README.md") == git.text("show", "HEAD:README.md")
    assert not git.lines("ls-tree", "students", "staged.txt")


def solution_lines(tree: Path) -> str:
    notebook = json.loads((tree / "solutions/13_block_gemm/13_block_gemm.ipynb").read_text())
    source = "".join(next(cell for cell in notebook["cells"] if cell["id"] == "13-1-answer")["source"])
    return source.partition("### BEGIN SOLUTION\n")[2].partition("    ### END")[0]


def test_planted_leaks_are_found_wherever_they_are(tree: Path) -> None:
    lines = solution_lines(tree)
    prose = json.loads((tree / "solutions/13_block_gemm/13_block_gemm.ipynb").read_text())
    words = "".join(next(cell for cell in prose["cells"] if cell["id"] == "13-3-answer")["source"])
    marked = {"cells": [{"cell_type": "code", "id": "a", "metadata": {}, "source": ["### BEGIN SOLUTION\n", "1"]}]}
    answers = (tree / "solutions/13_block_gemm/answers.py").read_text()
    plants = {
        "docs/indented.md": "Try this:\n\n" + "\n\n".join("        " + line for line in lines.splitlines()),
        "src/mlacademy/helper.py": f"def helper(a, b, scale_a, scale_b):\n{lines}",
        "docs/words.md": words[200:500].replace("\n", " "),
        "lessons/marked.ipynb": json.dumps(marked),
        "tests/test_copied.py": answers[answers.index("def contraction") :],
    }
    for path, text in plants.items():
        (tree / path).write_text(text)
    Git(tree).text("add", "-A")
    Git(tree).text("commit", "-qm", "Plant")
    with pytest.raises(ValueError, match="text of the solutions is left") as error:
        release("students", root=tree)
    for path in plants:
        assert f"{path}: " in str(error.value)
    assert Git(tree).fails("rev-parse", "--verify", "-q", "refs/heads/students")


def test_refusals_are_sentences(tree: Path) -> None:
    git = Git(tree)
    here = git.text("branch", "--show-current")
    for name in ("two words", "refs/heads/students", "@", "HEAD", "-x", ""):
        with pytest.raises(ValueError, match=f"'{name}' is not a branch name"):
            release(name, root=tree)
    with pytest.raises(ValueError, match=f"{here} is checked out"):
        release(here, root=tree)
    git.text("branch", "old")
    with pytest.raises(ValueError, match="the history of old holds solutions/: it is not a student branch"):
        release("old", root=tree)
    release("students", root=tree)
    git.text("switch", "-q", "students")
    with pytest.raises(ValueError, match="the current commit has no solutions/"):
        release("others", root=tree)


def test_grading_tests_pass_on_the_student_branch(tree: Path, tmp_path: Path) -> None:
    release("students", root=tree)
    place = tmp_path / "students"
    Git(tree).text("worktree", "add", "-q", str(place), "students")
    tests = [f"tests/grading/test_{name}.py" for name in ("answers", "generate", "grade", "release")]
    environment = {**os.environ, "PYTHONPATH": str(place / "src"), "MLACADEMY_NATIVE": "0"}
    command = [sys.executable, "-m", "pytest", "-n0", "-rs", "-k", "not unfilled and not model", *tests]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert "this branch has no solutions/" in done.stdout
