"""Safe handling of the files in ``work/``: whole-file writes, backups, and one writer at a time."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mlacademy.notebooks import Notebook


def parse_notebook(data: bytes, name: str) -> Notebook:
    """The notebook in ``data``; ``name`` is how errors call it.

    Raises ``ValueError`` when the bytes are no JSON, no version-4 notebook, or hold a cell without type or text or
    with metadata of another form.
    """
    try:
        notebook: Any = json.loads(data)
    except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, or JSON nested without end
        raise ValueError(f"{name} is not a notebook: {error}") from error
    if not isinstance(notebook, dict) or notebook.get("nbformat") != 4 or not isinstance(notebook.get("cells"), list):
        raise ValueError(f"{name} is not a version-4 notebook")
    if not isinstance(notebook.get("metadata", {}), dict) or not isinstance(notebook.get("nbformat_minor", 5), int):
        raise ValueError(f"{name} is not a notebook: its metadata or its minor version is of another form")
    for position, cell in enumerate(notebook["cells"]):
        if not isinstance(cell, dict) or not isinstance(cell.get("cell_type"), str) or not _is_text(cell.get("source")):
            raise ValueError(f"{name} is not a notebook: cell {position} lacks its type or its text")
        if not _is_metadata(cell.get("metadata", {})):
            raise ValueError(f"{name} is not a notebook: the metadata of cell {position} are of another form")
    return notebook


def _is_text(source: Any) -> bool:
    return isinstance(source, str) or (isinstance(source, list) and all(isinstance(line, str) for line in source))


def _is_metadata(value: Any) -> bool:
    forms = {"nbgrader": dict, "tags": list}
    return isinstance(value, dict) and all(isinstance(value.get(key, form()), form) for key, form in forms.items())


def notebook_bytes(notebook: Notebook) -> bytes:
    """The file of a learner's notebook, in the form in which Jupyter saves it.

    A text that UTF-8 cannot hold (half of a surrogate pair) is written in JSON's escapes.
    """
    try:
        return (json.dumps(notebook, ensure_ascii=False, indent=1, sort_keys=True) + "\n").encode()
    except UnicodeEncodeError:
        return (json.dumps(notebook, indent=1, sort_keys=True) + "\n").encode()


def is_read_only(path: Path) -> bool:
    """Whether the file's owner took its write permission away (root could write it all the same, and must not)."""
    return not path.stat().st_mode & stat.S_IWUSR


def write_whole(path: Path, data: bytes) -> None:
    """Put ``data`` at ``path`` so that a reader, or a crash, finds the old file or the new one and never a part."""
    target = path.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with draft.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        if target.exists():
            shutil.copymode(target, draft)
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)


class Backup:
    """One folder ``backups/<time>/``, made when the first file goes into it."""

    def __init__(self, backups: Path) -> None:
        self._backups = backups
        self._folder: Path | None = None

    @property
    def folder(self) -> Path | None:
        """Where the files went; None while there are none."""
        return self._folder

    def keep(self, file: Path, relative: Path) -> None:
        """Copy ``file`` into the backup under its path ``relative`` to ``work/``."""
        if self._folder is None:
            stem, count = time.strftime("%Y-%m-%dT%H-%M-%S"), 1
            while (folder := self._backups / (stem if count == 1 else f"{stem}-{count}")).exists():
                count += 1
            folder.mkdir(parents=True)
            self._folder = folder
        target = self._folder / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, target)


@contextlib.contextmanager
def only_writer(lock: Path) -> Iterator[None]:
    """Hold ``lock`` so that two commands never change ``work/`` at once; waits for the other to end."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
