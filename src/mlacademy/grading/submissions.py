"""Judge the answers of a notebook file, outside of any notebook kernel.

The definitions in the notebook's cells are run in the worker, the answer is called there, and the judge sits here. So
neither the notebook's own ``check`` and ``hidden`` cells nor anything it does to this package has a say.
"""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlacademy import notebooks
from mlacademy.grading import judges
from mlacademy.grading.assignments import PROSE_BLANK
from mlacademy.grading.exercise import Exercise
from mlacademy.grading.judge import Source, judge
from mlacademy.grading.process import Worker
from mlacademy.grading.verdict import Verdict

Progress = Callable[[str], None]
_NOT_ANSWERS = re.compile(r"\d\d-\d+-(check|hidden|hint)")
_MAGIC = re.compile(r"^\s*[%!?]")


def exercises_of(path: str | Path) -> tuple[Exercise, ...]:
    """The exercises that an assignment notebook of this name holds. Raises ``ValueError`` when it holds none."""
    match = re.match(r"(\d\d)_", Path(path).name)
    if match is None or match[1] not in judges.chapters():
        raise ValueError(f"{path} is not an assignment: its name must begin like '02_'")
    return judges.chapter(match[1])


def check_notebook(path: str | Path, *, only: str | None = None, progress: Progress | None = None) -> list[Verdict]:
    """Check every exercise of an assignment notebook on the visible cases; one verdict each, in order.

    ``only`` is the name of a single exercise, as in ``"02.3"``. Raises ``ValueError`` when the file is not a notebook,
    is not an assignment, or has no such exercise.
    """
    notebook = notebooks.read(path)
    chosen = [exercise for exercise in exercises_of(path) if only in (None, exercise.id)]
    if not chosen:
        raise ValueError(f"{path} has no exercise {only}; it has {', '.join(e.id for e in exercises_of(path))}")
    verdicts = []
    for exercise in chosen:
        if progress is not None:
            progress(f"{exercise.id} {exercise.title}")
        verdicts.append(judge_notebook(notebook, exercise, streams=("visible",)))
    return verdicts


def judge_notebook(
    notebook: notebooks.Notebook, exercise: Exercise, *, streams: tuple[str, ...], worker: Worker | None = None
) -> Verdict:
    """The verdict on one exercise of a notebook. Prose is found answered or not; a person marks it."""
    if exercise.kind == "prose":
        return _prose(notebook, exercise)
    with _sources(notebook):
        verdict = judge(exercise, answer_in(notebook, exercise), streams=streams, worker=worker)
        if verdict.kind in ("timeout", "exit", "crash", "memory", "load"):  # was it another cell's doing?
            alone = answer_in(notebook, exercise, alone=True)
            verdict = judge(exercise, alone, streams=streams, worker=worker)
    return verdict


def answer_in(notebook: notebooks.Notebook, exercise: Exercise, *, alone: bool = False) -> Source:
    """The answer to an exercise as text: what the code cells define, from the first to the answer's own.

    Bare expressions and the course's own cells are left out, and so are cells that are not Python. With ``alone``,
    other cells give only their imports. Where the answer's cell is missing, all cells count. Line numbers are kept.
    """
    names = [_name(cell) for cell in notebook["cells"]]
    own = names.index(f"{exercise.cell}-answer") if f"{exercise.cell}-answer" in names else -1
    cells = []
    for number, cell in enumerate(notebook["cells"]):
        code = cell.get("cell_type") == "code" and not _NOT_ANSWERS.fullmatch(names[number])
        cells.append(_statements(notebooks.source(cell), imports_only=alone and number != own) if code else [])
    return Source(cells[: own + 1] if own >= 0 else cells, own)


def _name(cell: dict[str, Any]) -> str:
    graded = (cell.get("metadata") or {}).get("nbgrader") or {}
    return str(graded.get("grade_id") or cell.get("id") or "")


def _statements(source: str, *, imports_only: bool) -> list[str]:
    tree = _parse(source)
    if tree is None:  # magics; lines that begin like them are fine in the text of a kernel
        source = "\n".join("" if _MAGIC.match(line) else line for line in source.split("\n"))
        tree = _parse(source)
    if tree is None:
        return []
    statements = []
    for node in tree.body:
        if isinstance(node, ast.Expr) or (imports_only and not isinstance(node, (ast.Import, ast.ImportFrom))):
            continue
        lines = source.split("\n")
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        statements.append("\n" * (first - 1) + _segment(lines, node, first))
    return statements


def _parse(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _segment(lines: list[str], node: ast.stmt, first: int) -> str:
    """The text of a statement; columns count bytes of UTF-8, and several statements may share a line."""
    last = node.end_lineno or node.lineno
    text = lines[first - 1 : last]
    text[-1] = text[-1].encode()[: node.end_col_offset].decode()
    if first == node.lineno:
        text[0] = text[0].encode()[node.col_offset :].decode()
    return "\n".join(text)


class _sources:
    """While it is open, tracebacks can quote the cells of a notebook."""

    def __init__(self, notebook: notebooks.Notebook) -> None:
        self._texts = {f"<cell {number}>": notebooks.source(cell) for number, cell in enumerate(notebook["cells"])}

    def __enter__(self) -> None:
        for name, text in self._texts.items():
            linecache.cache[name] = (len(text), None, [line + "\n" for line in text.split("\n")], name)

    def __exit__(self, *_: object) -> None:
        for name in self._texts:
            linecache.cache.pop(name, None)


def _prose(notebook: notebooks.Notebook, exercise: Exercise) -> Verdict:
    verdict = judge(exercise, None)
    for cell in notebook["cells"]:
        if _name(cell) == f"{exercise.cell}-answer":
            words = len(notebooks.source(cell).replace(PROSE_BLANK, "").split())
            if words:
                return replace(verdict, summary=f"{words} words; a person reads this answer and gives the points.")
    return replace(verdict, state="unanswered", kind="unanswered", summary="There is no answer in its cell yet.")
