"""Release a student branch: the committed course without ``solutions/``, with no history that ever held them.

Everything is done with git's plumbing in a private index: the work tree and the index stay as they are, and what is not
committed is not released. Before the branch moves, every blob of the new tree is scanned for text of the solutions.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mlacademy import notebooks
from mlacademy.grading.assignments import ANSWER_CELL, repository

Progress = Callable[[str], None]
PRIVATE = "solutions"
WINDOW = 3
"""How many lines in a row are a leak."""

_MIN_LETTERS = 60
_MIN_WORDS = 12
_TRIVIAL = re.compile(r"^(#.*|import .*|from .* import .*|[\W\d_]*|return( \w+)?|pass|else:|try:|\"{3}.*|@.*)$")


@dataclass(frozen=True)
class Release:
    """What a release did. ``commit`` is the branch's new tip (the old one when nothing changed), ``files`` counts the
    tree, ``uncommitted`` says that the work tree has changes which were not released."""

    branch: str
    commit: str
    files: int
    changed: bool
    uncommitted: bool


def release(branch: str, *, root: Path | None = None, progress: Progress | None = None) -> Release:
    """Move (or create) ``branch`` to the committed course without its solutions.

    The first release is a commit without parents; later ones follow it, so that students can pull. Raises
    ``ValueError`` when the name is no branch name, is checked out, has solutions in its history, when there is nothing
    to remove, or when text of a solution is left somewhere.
    """
    root, say = root or repository(), progress or (lambda text: None)
    git = Git(root)
    if branch == "@" or branch.startswith("refs/") or git.fails("check-ref-format", "--branch", branch):
        raise ValueError(f"{branch!r} is not a branch name")
    reference = f"refs/heads/{branch}"
    checked_out = [
        line.split(" ", 1)[1] for line in git.lines("worktree", "list", "--porcelain") if line[:7] == "branch "
    ]
    if reference in checked_out:
        raise ValueError(f"{branch} is checked out; switch to another branch first")
    previous = "" if git.fails("rev-parse", "--verify", "-q", reference) else git.text("rev-parse", reference)
    if previous and git.lines("rev-list", "-n1", previous, "--", PRIVATE):
        raise ValueError(f"the history of {branch} holds {PRIVATE}/: it is not a student branch; choose another name")
    if not git.lines("ls-tree", "HEAD", PRIVATE):
        raise ValueError(f"the current commit has no {PRIVATE}/: release from the instructor's branch")
    say("taking the solutions out of the tree")
    tree = _tree(git)
    say("looking for text of the solutions in what is left")
    found = leaks(tree, root=root)
    if found:
        raise ValueError("text of the solutions is left in the student branch:\n  " + "\n  ".join(found[:20]))
    files = len(git.lines("ls-tree", "-r", tree))
    uncommitted = bool(git.lines("status", "--porcelain"))
    if previous and git.text("rev-parse", f"{previous}^{{tree}}") == tree:
        return Release(branch, previous, files, False, uncommitted)
    date = git.text("log", "-1", "--format=%cI")
    parents = ["-p", previous] if previous else []
    commit = git.text("commit-tree", tree, *parents, "-m", f"Course material of {date[:10]}", dates=date)
    git.text("update-ref", "-m", "course release", reference, commit, previous or "0" * 40)
    say(f"{branch} is now at {commit[:10]} with {files} files")
    return Release(branch, commit, files, True, uncommitted)


class Git:
    """git in one repository."""

    def __init__(self, root: Path, index: Path | None = None) -> None:
        self._command = ["git", "-C", str(root)]
        self._environment = {**os.environ, **({"GIT_INDEX_FILE": str(index)} if index else {})}

    def text(self, *arguments: str, dates: str = "") -> str:
        """What git prints, stripped. Raises ``ValueError`` with git's own words when it fails."""
        environment = dict(self._environment)
        if dates:
            environment |= {"GIT_AUTHOR_DATE": dates, "GIT_COMMITTER_DATE": dates}
        done = subprocess.run([*self._command, *arguments], capture_output=True, text=True, env=environment)
        if done.returncode:
            raise ValueError(f"git {arguments[0]} failed: {done.stderr.strip()}")
        return done.stdout.strip()

    def lines(self, *arguments: str) -> list[str]:
        """The lines that git prints."""
        return self.text(*arguments).splitlines()

    def fails(self, *arguments: str) -> bool:
        """Whether git ends with an error."""
        return subprocess.run([*self._command, *arguments], capture_output=True, env=self._environment).returncode != 0

    def blobs(self, tree: str) -> Iterator[tuple[str, bytes]]:
        """Path and content of every file of a tree."""
        entries = [line.split("\t", 1) for line in self.text("ls-tree", "-r", "-z", tree).split("\0") if line]
        wanted = [(head.split()[2], path) for head, path in entries if head.split()[1] == "blob"]
        process = subprocess.Popen(
            [*self._command, "cat-file", "--batch"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self._environment,
        )
        with process:
            assert process.stdin is not None
            assert process.stdout is not None
            for name, path in wanted:
                process.stdin.write(f"{name}\n".encode())
                process.stdin.flush()
                size = int(process.stdout.readline().split()[2])
                yield path, process.stdout.read(size + 1)[:size]
            process.stdin.close()


def _tree(git: Git) -> str:
    """The tree of HEAD without the private folder, written as an object."""
    root = Path(git.text("rev-parse", "--show-toplevel"))
    with tempfile.TemporaryDirectory(prefix="mlacademy-release-") as folder:
        private = Git(root, Path(folder) / "index")
        private.text("read-tree", "HEAD")
        private.text("rm", "-r", "-q", "--cached", PRIVATE)
        return private.text("write-tree")


def leaks(tree: str, *, root: Path | None = None) -> list[str]:
    """Where text of HEAD's solutions stands in the files of ``tree``: one sentence a place.

    A leak is a solution marker in a notebook, ``WINDOW`` telling lines in a row of a solution or of a right answer,
    or a run of ``_MIN_WORDS`` words of a sample answer in prose.
    """
    git = Git(root or repository())
    secrets: dict[tuple[str, ...], str] = {}
    phrases: dict[tuple[str, ...], str] = {}
    for path, data in git.blobs(f"HEAD:{PRIVATE}"):
        code, prose = _secrets(path, data.decode("utf-8", "replace"))
        for block in code:
            secrets.update(dict.fromkeys(_windows(block), path))
        for text in prose:
            phrases.update(dict.fromkeys(_phrases(text), path))
    found = []
    for path, data in git.blobs(tree):
        if b"\0" in data[:8000]:
            continue
        text = data.decode("utf-8", "replace")
        if path.endswith(".ipynb"):
            text = _notebook_text(text)
            if "### BEGIN SOLUTION" in text or "### END SOLUTION" in text:
                found.append(f"{path}: a solution marker")
        for window in _windows(text):
            if window in secrets:
                found.append(f"{path}: lines of {PRIVATE}/{secrets[window]}: {window[0]!r} …")
                break
        for phrase in _phrases(text):
            if phrase in phrases:
                found.append(f"{path}: words of {PRIVATE}/{phrases[phrase]}: {' '.join(phrase)!r}")
                break
    return found


def _secrets(path: str, text: str) -> tuple[list[str], list[str]]:
    """The blocks of code and the prose of one private file that must not be found elsewhere."""
    if path.endswith(".py") and path.endswith("answers.py"):
        lines = text.splitlines()
        nodes = [n for n in ast.parse(text).body if isinstance(n, (ast.FunctionDef, ast.ClassDef)) and not _is_wrong(n)]
        return ["\n".join(lines[node.lineno - 1 : node.end_lineno]) for node in nodes], []
    if path.endswith(".md"):
        return [], [text]
    if not path.endswith(".ipynb"):
        return [], []
    code, prose = [], []
    for cell in json.loads(text)["cells"]:
        source = notebooks.source(cell)
        if cell["cell_type"] == "code":
            code += re.findall(r"### BEGIN SOLUTION.*?\n(.*?)### END SOLUTION", source, re.DOTALL)
        elif ANSWER_CELL.fullmatch(cell["id"]):
            prose.append(source)
    return code, prose


def _is_wrong(node: ast.FunctionDef | ast.ClassDef) -> bool:
    """Whether a function is recorded as a wrong answer: those may look like the library, with a mistake in it."""
    calls = [decorator.func for decorator in node.decorator_list if isinstance(decorator, ast.Call)]
    return any(isinstance(call, ast.Name) and call.id == "wrong" for call in calls)


def _notebook_text(text: str) -> str:
    try:
        return "\n".join(notebooks.source(cell) for cell in json.loads(text)["cells"])
    except (ValueError, KeyError, TypeError):
        return text


def _windows(text: str) -> Iterator[tuple[str, ...]]:
    lines = [" ".join(line.split()) for line in text.splitlines()]
    telling = [line for line in lines if not _TRIVIAL.match(line)]
    for first in range(len(telling) - WINDOW + 1):
        window = tuple(telling[first : first + WINDOW])
        if sum(map(len, window)) >= _MIN_LETTERS:
            yield window


def _phrases(text: str) -> Iterable[tuple[str, ...]]:
    words = re.findall(r"[\w²⁻]+", text.casefold())
    return (tuple(words[first : first + _MIN_WORDS]) for first in range(len(words) - _MIN_WORDS + 1))
