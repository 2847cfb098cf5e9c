"""The copies in ``work/``: make them, plan and apply an update, restore a notebook or one exercise.

Each copied notebook says in its metadata which pristine version it was made from (``mlacademy.base``, a digest), and
``base/`` keeps that version. The record travels with the file: when an editor that had the notebook open writes an
older state over an update, or a backup is put back, the next update still knows what the learner wrote.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mlacademy.notebooks import Notebook
from mlacademy.workspace.course import chapter_of, documents
from mlacademy.workspace.files import (
    Backup,
    is_read_only,
    notebook_bytes,
    only_writer,
    parse_notebook,
    write_whole,
)
from mlacademy.workspace.merge import Change, merge, named, restore, same

Action = Literal["new", "current", "merged", "replaced", "renamed", "retired", "kept", "skipped"]


@dataclass(frozen=True)
class Step:
    """What one command does to one file of ``work/``.

    ``path`` is relative to ``work/``. ``data`` is what will stand there (None: the file is left, or moved to the
    backup when ``action`` is "retired"); ``found`` is what stood there when the step was planned (None: nothing).
    ``pristine`` is the course's version to remember as the copy's base; ``forget`` is the document whose remembered
    versions go, because it left the course or has another name now.
    """

    path: Path
    action: Action
    reason: str = ""
    changes: tuple[Change, ...] = ()
    data: bytes | None = None
    found: bytes | None = None
    pristine: bytes | None = None
    renamed_from: Path | None = None
    forget: Path | None = None

    @property
    def writes(self) -> bool:
        """Whether applying the step changes a file of the learner's."""
        return self.data is not None or self.action == "retired"


def digest(data: bytes) -> str:
    """The name of a pristine version: the first twelve hexadecimal digits of its SHA-256."""
    return hashlib.sha256(data).hexdigest()[:12]


class Workspace:
    """The copies that belong to the course at ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.work = root / "work"
        self.records = self.work / ".mlacademy"

    # -- the pristine versions that copies were made from --------------------------------------------------------

    def _versions(self, path: Path) -> Path:
        return self.records / "base" / path

    def _known(self, path: Path) -> list[Path]:
        """The pristine versions seen of a document, newest first.

        A file that is not the version it is named after is passed over: a draft that a killed run left, or damage.
        """
        folder = self._versions(path)
        found = [file for file in folder.iterdir() if self._is_sound(file)] if folder.is_dir() else []
        return sorted(found, key=lambda file: file.stat().st_mtime, reverse=True)

    @staticmethod
    def _is_sound(version: Path) -> bool:
        return version.is_file() and digest(version.read_bytes()) == version.name

    def _base(self, path: Path, mine: Notebook) -> Notebook | None:
        """The version a copy was made from: the one it names, else the known one with most of its cells."""
        known = self._known(path)
        for file in known:
            if file.name == _told_base(mine):
                return parse_notebook(file.read_bytes(), str(file))
        texts = {(cell.get("id"), str(cell["source"])) for cell in mine["cells"]}
        candidates = [parse_notebook(file.read_bytes(), str(file)) for file in known]
        return max(
            candidates,
            key=lambda base: sum((cell["id"], str(cell["source"])) in texts for cell in base["cells"]),
            default=None,
        )

    def _remember(self, path: Path, pristine: bytes) -> None:
        file = self._versions(path) / digest(pristine)
        if not self._is_sound(file):
            write_whole(file, pristine)

    # -- making copies -------------------------------------------------------------------------------------------

    def copy_of(self, path: Path, pristine: bytes) -> bytes:
        """A learner's copy of a document: the same bytes, or for a notebook the same cells with its base noted."""
        if path.suffix != ".ipynb":
            return pristine
        notebook = parse_notebook(pristine, str(path))
        return notebook_bytes(_based_on(notebook, pristine))

    def seed(self) -> list[Path]:
        """Make the copies that ``work/`` lacks and return their paths below it; what is there stays as it is."""
        with only_writer(self.records / "lock"):
            made = []
            for path in documents(self.root):
                if not (self.work / path).exists():
                    pristine = (self.root / path).read_bytes()
                    self._remember(path, pristine)
                    write_whole(self.work / path, self.copy_of(path, pristine))
                    made.append(path)
            return made

    # -- bringing copies up to date ------------------------------------------------------------------------------

    def plan_update(self) -> list[Step]:
        """One step for each file, in reading order; nothing is written. Unreadable copies are steps "skipped"."""
        current = documents(self.root)
        renames = self._renames(current)
        steps = [self._plan_document(path, renames.get(path)) for path in current]
        gone = [path for path in self._recorded() if path not in current and path not in renames.values()]
        return steps + [self._plan_retirement(path) for path in gone]

    def _recorded(self) -> list[Path]:
        base = self.records / "base"
        return sorted({file.parent.relative_to(base) for file in base.rglob("*") if file.is_file()})

    def _renames(self, current: Sequence[Path]) -> dict[Path, Path]:
        """New path -> old path for notebooks that the course renamed: at least half of the cell names are shared."""
        found: dict[Path, Path] = {}
        lost = [path for path in self._recorded() if path not in current and (self.work / path).exists()]
        for old in lost:
            versions = self._known(old)
            for new in current if versions else ():
                if old.suffix == new.suffix == ".ipynb" and new not in found and self._replaceable(new):
                    ours = _names(parse_notebook(versions[0].read_bytes(), str(old)))
                    theirs = _names(parse_notebook((self.root / new).read_bytes(), str(new)))
                    if 2 * len(ours & theirs) >= len(ours | theirs):
                        found[new] = old
                        break
        return found

    def _replaceable(self, path: Path) -> bool:
        """Whether ``work/`` has no copy at ``path``, or one in which the learner wrote nothing."""
        try:
            return self._untouched(path, (self.work / path).read_bytes())
        except FileNotFoundError:
            return True
        except (OSError, ValueError):
            return False

    def _untouched(self, path: Path, found: bytes) -> bool:
        if path.suffix != ".ipynb":
            return any(file.name == digest(found) for file in self._known(path))
        mine = parse_notebook(found, str(path))
        base = self._base(path, mine)
        if base is None or len(base["cells"]) != len(mine["cells"]):
            return False
        cells = zip(named(mine["cells"], base["cells"]), base["cells"], strict=True)
        return all(ours["id"] == theirs["id"] and same(ours, theirs) for ours, theirs in cells)

    def _plan_document(self, path: Path, old: Path | None) -> Step:
        pristine, file = (self.root / path).read_bytes(), self.work / (old or path)
        try:
            found = file.read_bytes()
        except FileNotFoundError:
            return Step(path, "new", data=self.copy_of(path, pristine), pristine=pristine)
        except OSError as error:
            return Step(old or path, "skipped", reason=f"it cannot be read: {error.strerror}")
        if is_read_only(file):
            return Step(old or path, "skipped", reason="the file is read-only")
        try:
            if path.suffix != ".ipynb":
                return self._plan_file(path, found, pristine)
            mine = parse_notebook(found, str(file.relative_to(self.root)))
        except ValueError as error:
            return Step(old or path, "skipped", reason=str(error))
        merged = merge(self._base(old or path, mine), mine, parse_notebook(pristine, str(path)))
        data = notebook_bytes(_based_on(merged.notebook, pristine))
        if old is not None:
            return Step(path, "renamed", f"was {old}", merged.changes, data, found, pristine, old, old)
        recorded = self._is_sound(self._versions(path) / digest(pristine))
        if recorded and not merged.changes and _told_base(mine) == digest(pristine):
            return Step(path, "current")
        return Step(path, "merged", "", merged.changes, data, found, pristine)

    def _plan_file(self, path: Path, found: bytes, pristine: bytes) -> Step:
        if found == pristine:
            return Step(path, "current")
        if self._untouched(path, found):
            return Step(path, "replaced", data=pristine, found=found, pristine=pristine)
        known = any(file.name == digest(pristine) for file in self._known(path))
        reason = "you changed it" if known else f"you changed it, and the course has a newer one: {path}"
        return Step(path, "kept", reason)

    def _plan_retirement(self, path: Path) -> Step:
        file = self.work / path
        reason = "no longer part of the course"
        try:
            found = file.read_bytes()
        except FileNotFoundError:
            return Step(path, "retired", reason, forget=path)
        except OSError as error:
            return Step(path, "skipped", reason=f"it cannot be read: {error.strerror}")
        try:
            untouched = self._untouched(path, found)
        except ValueError:
            untouched = False
        if untouched and not is_read_only(file):
            return Step(path, "retired", reason, found=found, forget=path)
        return Step(path, "kept", f"{reason}, and you wrote in it", forget=path)

    # -- restoring -----------------------------------------------------------------------------------------------

    def plan_reset(self, path: Path) -> Step:
        """The step that makes the copy at ``path`` (below ``work/``) pristine again. Raises ``ValueError``."""
        pristine, found = self._for_reset(path)
        return Step(path, "replaced", data=self.copy_of(path, pristine), found=found, pristine=pristine)

    def plan_reset_exercise(self, exercise: str) -> Step:
        """The step that restores the answer cells of one exercise (``"02.3"``). Raises ``ValueError``.

        ``changes`` names the cells. A copy that is no readable notebook cannot be mended cell by cell and raises.
        """
        chapter, _, number = exercise.partition(".")
        for path in documents(self.root):
            if path.parts[0] != "exercises" or path.suffix != ".ipynb" or chapter_of(path) != chapter:
                continue
            pristine, found = self._for_reset(path)
            notebook = parse_notebook(pristine, str(path))
            cells = [cell for cell in notebook["cells"] if cell["id"].startswith(f"{chapter}-{number}-")]
            names = [cell["id"] for cell in cells if cell["metadata"].get("nbgrader", {}).get("solution")]
            if not names:
                continue
            if found is None:
                return Step(path, "new", data=self.copy_of(path, pristine), pristine=pristine)
            mine = restore(parse_notebook(found, f"work/{path}"), notebook, names)
            changes = tuple(Change("refreshed", name) for name in names)
            return Step(path, "merged", "", changes, notebook_bytes(mine), found)
        raise ValueError(f"there is no exercise {exercise} in {self.root / 'exercises'}")

    def _for_reset(self, path: Path) -> tuple[bytes, bytes | None]:
        if path not in documents(self.root):
            raise ValueError(f"the course has no file {path}; its files lie below lessons/ and exercises/")
        file = self.work / path
        if file.exists() and is_read_only(file):
            raise ValueError(f"work/{path} is read-only: give it write permission first")
        return (self.root / path).read_bytes(), file.read_bytes() if file.exists() else None

    # -- applying ------------------------------------------------------------------------------------------------

    def apply(self, steps: Iterable[Step]) -> tuple[list[Step], Path | None]:
        """Carry the steps out. Returns what was done (a file changed meanwhile becomes "skipped") and the backup.

        Every file is copied to the backup before it changes, its base is recorded before it names it, and it is
        replaced whole: a run killed at any moment has lost nothing and can be run again.
        """
        backup, done = Backup(self.records / "backups"), []
        with only_writer(self.records / "lock"):
            for step in steps:
                done.append(self._apply(step, backup))
        return done, backup.folder

    def _apply(self, step: Step, backup: Backup) -> Step:
        source = step.renamed_from or step.path
        file, target = self.work / source, self.work / step.path
        if step.writes and (file.read_bytes() if file.exists() else None) != step.found:
            return Step(step.path, "skipped", reason="it was saved while the update ran; run the command again")
        if step.writes and step.found is not None:
            backup.keep(file, source)
            if target != file and target.exists():
                backup.keep(target, step.path)
        if step.pristine is not None:
            self._remember(step.path, step.pristine)
        if step.data is not None:
            write_whole(target, step.data)
        if step.action == "retired" or target != file:
            file.unlink(missing_ok=True)
        if step.forget is not None:
            shutil.rmtree(self._versions(step.forget), ignore_errors=True)
        return step


def _told_base(notebook: Notebook) -> str | None:
    marks = notebook.get("metadata", {}).get("mlacademy")
    return marks.get("base") if isinstance(marks, dict) else None


def _based_on(notebook: Notebook, pristine: bytes) -> Notebook:
    return {**notebook, "metadata": {**notebook.get("metadata", {}), "mlacademy": {"base": digest(pristine)}}}


def _names(notebook: Notebook) -> set[str]:
    return {cell["id"] for cell in notebook["cells"]}
