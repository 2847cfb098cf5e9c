"""Check the answers in your exercise notebooks and print a verdict on each.

    mlacademy check 02                                       your copy of chapter 02's exercises
    mlacademy check 02.3                                     one exercise of it
    mlacademy check work/exercises/02_fp8_cache/02_fp8_cache.ipynb
    mlacademy check                                          all your copies

Exits with 0 when every answer is right.
"""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mlacademy.cli.terminal import CommandError, complain, console
from mlacademy.workspace.course import chapter_of, course_root

if TYPE_CHECKING:
    from mlacademy.grading import Verdict

STATES = {"passed": "green", "failed": "red", "unanswered": "yellow", "manual": "cyan", "not run": "yellow"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "notebook", nargs="*", metavar="NOTEBOOK", help="a notebook or its folder, a chapter, or an exercise"
    )


def _notebooks(root: Path, names: list[str]) -> list[tuple[Path, str | None]]:
    """What was named, or all copies: notebooks, each with the one exercise asked for, if one was.

    Raises ``CommandError`` for a name that leads nowhere.
    """
    shelf = root / "work" / "exercises"
    copies = sorted(path for path in shelf.glob("*/*.ipynb") if chapter_of(path))
    if not names and not copies:
        raise CommandError(f"there are no exercises in {shelf}: `mlacademy lab` makes your copies")
    found: list[tuple[Path, str | None]] = [] if names else [(path, None) for path in copies]
    for name in names:
        numbers = re.fullmatch(r"(\d{1,2})(?:\.(\d{1,2}))?", name)
        chapter = numbers[1].zfill(2) if numbers else None
        exercise = f"{chapter}.{int(numbers[2])}" if numbers and numbers[2] else None
        chosen = [path for path in copies if chapter_of(path) == chapter] if chapter else []
        places = [origin / name for origin in (root / "work", Path.cwd(), root)]
        places = [place / f"{place.resolve().name}.ipynb" if place.is_dir() else place for place in places]
        chosen = chosen or [place for place in places if place.is_file()][:1]
        if not chosen:
            there = ", ".join(str(chapter_of(path)) for path in copies)
            raise CommandError(f"{name} is neither a notebook nor a chapter of your exercises ({there or 'none yet'})")
        found += [(path, exercise) for path in chosen]
    return found


def _check(path: Path, exercise: str | None, root: Path) -> list[Verdict]:
    from rich.markup import escape

    from mlacademy.grading import board, check_notebook

    out = console()
    shown = path.resolve().relative_to(root) if path.resolve().is_relative_to(root) else path
    out.print(f"[bold]{escape(str(shown))}[/]")
    with out.status("starting") as status:
        verdicts = check_notebook(path, only=exercise, progress=lambda text: status.update(escape(text)))
    own = path.resolve().is_relative_to((root / "work").resolve())
    for verdict in verdicts:
        colour = STATES[verdict.state]
        text = verdict.heading if verdict else str(verdict)
        heading, _, rest = text.partition("\n")
        out.print(f"  [{colour}]{escape(heading)}[/]")
        for line in rest.splitlines():
            out.print(f"    {escape(line)}")
        if own:
            board.record(verdict)
    return verdicts


def run(options: argparse.Namespace) -> int:
    root = course_root()
    chosen = [(path.absolute(), exercise) for path, exercise in _notebooks(root, options.notebook)]
    os.chdir(root)  # progress is kept in this course's work/
    verdicts = [verdict for path, exercise in chosen for verdict in _check(path, exercise, root)]
    right = sum(bool(verdict) for verdict in verdicts)
    manual = sum(verdict.state == "manual" for verdict in verdicts)
    rest = len(verdicts) - right - manual
    console().print(
        f"{right} of {len(verdicts)} right" + (f", {manual} to be read by a person" if manual else "") + "."
    )
    if rest:
        complain(f"mlacademy check: {rest} of {len(verdicts)} answers are missing or not right yet")
    return 1 if rest else 0
