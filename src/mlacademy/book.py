"""Build the book: the lessons, executed, with a static picture where a notebook has a widget; no network needed.

The book is built once a language from ``book/`` (configuration and title pages), ``lessons/`` and ``exercises/``.
Sphinx's warnings are errors: a dead link, a cell that raises or a missing picture fails the build.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

LANGUAGES = ("en", "zh_CN")
NEEDED = ("sphinx", "myst_nb", "sphinx_book_theme", "sphinx_copybutton", "sphinx_design", "jieba", "ipykernel")


class BookError(RuntimeError):
    """The book was not built; the message is one sentence, ``log`` what Sphinx printed."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


def missing_packages() -> list[str]:
    """The packages that building the book needs and this environment lacks."""
    return [name for name in NEEDED if find_spec(name) is None]


def assemble(root: Path, language: str, destination: Path) -> None:
    """Lay out one language's sources in ``destination``: configuration, title page, lessons and exercises."""
    shutil.rmtree(destination, ignore_errors=True)
    destination.mkdir(parents=True)
    book = root / "book"
    shutil.copy(book / "conf.py", destination)
    for folder in ("_static", "_templates"):
        shutil.copytree(book / folder, destination / folder)
    localized = "" if language == "en" else language
    shutil.copy(book / localized / "index.md", destination)
    other = shutil.ignore_patterns("zh_CN", "claims", "errata")
    shutil.copytree(root / "lessons" / localized, destination / "lessons", ignore=other)
    if language == "en":
        shutil.copytree(root / "exercises", destination / "exercises", ignore=shutil.ignore_patterns("*.py", "*.db"))


def build(
    root: Path, output: Path | None = None, *, progress: Callable[[str], None] = print, jobs: int = 1
) -> dict[str, Path]:
    """Build every language of the book and return its start pages by language.

    ``root`` is the repository, ``output`` where the HTML goes (``book/_build/html`` by default; English at its top,
    other languages below); sources, caches and doctrees lie beside it. Raises ``BookError`` when a package is missing
    or Sphinx stops.
    """
    missing = missing_packages()
    if missing:
        raise BookError(f"building the book needs {', '.join(missing)}: run `make setup`")
    output = output or root / "book" / "_build" / "html"
    build_folder = output.parent
    pages = {}
    for language in LANGUAGES:
        progress(f"building the book ({language}): executing the lessons and writing the pages")
        source = build_folder / "source" / language
        assemble(root, language, source)
        target = output if language == "en" else output / language
        command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-j", str(jobs)]
        command += ["-d", str(build_folder / "doctrees" / language), str(source), str(target)]
        environment = os.environ | {
            "BOOK_LANGUAGE": language,
            "BOOK_CACHE": str(build_folder / "cache"),
            "MLACADEMY_STATIC": "1",
            "MLACADEMY_PROGRESS": str(build_folder / "progress.json"),
            "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        }
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            raise BookError(f"Sphinx stopped while building the {language} book", run.stdout + run.stderr)
        pages[language] = target / "index.html"
        progress(f"  {pages[language]}")
    return pages
