"""Where the course is, and which pristine files a learner gets copies of."""

from __future__ import annotations

import re
from pathlib import Path

SHELVES = ("lessons", "exercises")
"""The tracked folders whose contents a learner works on."""

_NOT_COPIED = frozenset({"claims", "errata", "__pycache__"})
_CHAPTER = re.compile(r"(\d{2})_")


def course_root(start: Path | None = None) -> Path:
    """The folder of the course: the nearest one above ``start`` (default: the current folder), else this package's.

    A folder is the course's when it holds ``lessons/`` and ``src/mlacademy/``. Raises ``ValueError`` where neither
    leads to one, as when the package was installed without its repository.
    """
    origin = (start or Path.cwd()).resolve()
    for folder in (origin, *origin.parents, *Path(__file__).resolve().parents):
        if (folder / "lessons").is_dir() and (folder / "src" / "mlacademy" / "__init__.py").is_file():
            return folder
    raise ValueError(f"no course at or above {origin}: run this inside your clone of MLAcademy")


def documents(root: Path) -> list[Path]:
    """The pristine files that learners get copies of, as paths below ``root``, in reading order.

    Notebooks and what stands beside them (data, pictures); hidden files and the records that only the course's
    tests read are left out.
    """
    found = []
    for shelf in SHELVES:
        for path in (root / shelf).rglob("*"):
            relative = path.relative_to(root)
            hidden = any(part.startswith(".") or part in _NOT_COPIED for part in relative.parts)
            if path.is_file() and not hidden and path.suffix != ".pyc":
                found.append(relative)
    return sorted(found, key=lambda path: (SHELVES.index(path.parts[0]), path.as_posix()))


def chapter_of(path: Path) -> str | None:
    """The two digits that name a notebook's chapter (``"04"``), or None for a file outside the numbering."""
    found = _CHAPTER.match(path.name)
    return found.group(1) if found else None
