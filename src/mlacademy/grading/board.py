"""The learner's progress: which exercises were tried, which are right; kept in a file that survives restarts.

The file is ``.mlacademy/progress.json`` in the course's ``work/`` folder, or beside the notebook when there is no
course around it. ``MLACADEMY_PROGRESS`` names another file, or is ``off``. Several notebooks may write at once: every
change is read, changed and replaced under a lock. A damaged file is set aside, never overwritten.
"""

from __future__ import annotations

import contextlib
import fcntl
import html
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mlacademy.grading import judges
from mlacademy.grading.verdict import Verdict

FOLDER = ".mlacademy"
Record = dict[str, Any]


def progress_file(start: str | Path | None = None) -> Path | None:
    """Where progress is kept for work in the folder ``start`` (by default the current one); None when it is off."""
    named = os.environ.get("MLACADEMY_PROGRESS")
    if named:
        return None if named == "off" else Path(named)
    here = Path(start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if (folder / FOLDER).is_dir():
            return folder / FOLDER / "progress.json"
        if (folder / "lessons").is_dir() and (folder / "pyproject.toml").is_file():
            return folder / "work" / FOLDER / "progress.json"
    return here / FOLDER / "progress.json"


def read(path: Path | None) -> dict[str, Record]:
    """The records by exercise; empty when there are none. A damaged file is renamed and reported by name."""
    if path is None:
        return {}
    try:
        return _load(path)
    except OSError:
        return {}


def _load(path: Path) -> dict[str, Record]:
    """As :func:`read`; raises ``OSError`` where the file can be neither read nor set aside."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        records = content["exercises"]
        if not isinstance(records, dict) or not all(map(_is_record, records.values())):
            raise ValueError("records are not of the form")
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, RecursionError):
        aside = path.with_name(f"progress.damaged-{time.time_ns()}.json")
        os.replace(path, aside)
        print(f"The progress file could not be read; it is kept as {aside}, and a new one begins.")
        return {}
    return dict(records)


def _is_record(value: Any) -> bool:
    """Whether the fields that this module reads have the types that it writes."""
    return isinstance(value, dict) and all(
        isinstance(value[field], kind)
        for field, kind in (("tries", int), ("hint", int), ("state", str), ("kind", str), ("passed", str))
        if field in value
    )


@contextlib.contextmanager
def _changing(exercise: str) -> Iterator[Record]:
    """The record of one exercise, to be changed in place.

    Where the file cannot be read or written, it stays as it is, and the change is kept until it can be saved or the
    notebook's process ends.
    """
    path = progress_file()
    records: dict[str, Record] | None = None
    with contextlib.ExitStack() as stack:
        if path is not None:
            with contextlib.suppress(OSError):
                records = {**stack.enter_context(_locked(path)), **_unsaved}
        entry = (_unsaved if records is None else records).setdefault(exercise, {})
        yield entry
        if path is None or records is None:
            return
        try:
            _save(path, records)
            _unsaved.clear()
        except OSError:
            _unsaved[exercise] = entry


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[dict[str, Record]]:
    """The records in the file, which no other process changes meanwhile. Raises ``OSError``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield _load(path)
    finally:
        os.close(lock)


def _save(path: Path, records: dict[str, Record]) -> None:
    text = json.dumps({"version": 1, "exercises": records}, indent=1, sort_keys=True) + "\n"
    draft = path.with_name(f"progress.{os.getpid()}.tmp")
    try:
        draft.write_text(text, encoding="utf-8")
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


_unsaved: dict[str, Record] = {}


def record(verdict: Verdict, *, handed_in: bool = False) -> None:
    """Note the outcome of a check or of a hidden test; that this machine cannot run an answer is none."""
    if verdict.state == "not run":
        return
    now = datetime.now(UTC).isoformat(timespec="seconds")
    with _changing(verdict.exercise) as entry:
        if verdict.state != "unanswered":
            entry["tries"] = int(entry.get("tries", 0)) + 1
            entry.setdefault("first", now)
        entry["last"] = now
        entry["state"] = verdict.state
        if entry.get("kind") != verdict.kind:
            entry["hint"] = 0
        entry["kind"] = verdict.kind
        if verdict.hint:
            entry["hint"] = max(1, int(entry.get("hint", 0)))
        if verdict:
            entry.setdefault("passed", now)
        if handed_in:
            entry["points"] = verdict.points


def last_kind(exercise: str) -> str:
    """What the last check of an exercise found; empty when it was not checked yet."""
    records = {**read(progress_file()), **_unsaved}
    return str(records.get(exercise, {}).get("kind", ""))


def next_hint(exercise: str, kind: str, level: int | None) -> int:
    """The level to show now (the one asked for, else one more than before, at most 3), noted as shown."""
    with _changing(exercise) as entry:
        shown = int(entry.get("hint", 0))
        now = level if level is not None else min(3, shown + 1)
        entry["hint"] = max(shown, now)
    return now


@dataclass(frozen=True)
class Row:
    """One exercise on the board."""

    exercise: str
    title: str
    state: str
    tries: int
    points: int


class Board:
    """A table of all exercises and a bar; shows as text or HTML."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows

    @property
    def passed(self) -> int:
        """How many exercises are right."""
        return sum(row.state == "right" for row in self.rows)

    def __str__(self) -> str:
        full = round(20 * self.passed / max(1, len(self.rows)))
        lines = [f"{self.passed} of {len(self.rows)} exercises right  [{'#' * full}{'.' * (20 - full)}]"]
        for row in self.rows:
            tries = f"{row.tries} {'try' if row.tries == 1 else 'tries'}" if row.tries else ""
            lines.append(f"  {row.exercise}  {row.title[:48]:<48}  {row.state:<14}  {tries}".rstrip())
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        share = round(100 * self.passed / max(1, len(self.rows)))
        bar = (
            '<div style="height:0.6em;max-width:30em;background:var(--jp-layout-color3,#9994)">'
            f'<div style="height:100%;width:{share}%;background:var(--jp-success-color1,#2e7d32)"></div></div>'
        )
        cells = "".join(
            f"<tr><td>{row.exercise}</td><td style='text-align:left'>{html.escape(row.title)}</td>"
            f"<td style='text-align:left'>{row.state}</td><td>{row.tries or ''}</td><td>{row.points}</td></tr>"
            for row in self.rows
        )
        left = " style='text-align:left'"
        head = f"<tr><th>exercise</th><th{left}>title</th><th{left}>state</th><th>tries</th><th>points</th></tr>"
        text = f"<b>{self.passed} of {len(self.rows)} exercises right</b>"
        return f'<div style="color:var(--jp-content-font-color1,inherit)">{text}{bar}<table>{head}{cells}</table></div>'


_STATES = {"passed": "right", "failed": "not right yet", "unanswered": "open", "manual": "handed in"}


def progress(start: str | Path | None = None) -> Board:
    """All exercises with their state, as the progress file for ``start`` has them."""
    records = {**read(progress_file(start)), **_unsaved}
    rows = []
    for exercise in judges.all_exercises():
        entry = records.get(exercise.id, {})
        state = "right" if entry.get("passed") else _STATES.get(str(entry.get("state")), "open")
        rows.append(Row(exercise.id, exercise.title, state, int(entry.get("tries", 0)), exercise.points))
    return Board(rows)
