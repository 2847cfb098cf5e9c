"""Restore an exercise, or a whole notebook, as it came with the course.

    mlacademy reset 02.3                      the answer cells of exercise 02.3
    mlacademy reset chapter 04                the notebook of chapter 04
    mlacademy reset exercises/02_fp8_cache/02_fp8_cache.ipynb

The file is first copied to work/.mlacademy/backups/.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from mlacademy.cli.terminal import CommandError, confirm, console
from mlacademy.cli.update import show
from mlacademy.workspace import Step, Workspace, chapter_of, course_root
from mlacademy.workspace.course import documents


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", nargs="+", metavar="WHAT", help="02.3, chapter 04, or the path of a notebook")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def plan(workspace: Workspace, words: list[str]) -> Step:
    """The step that the words ask for. Raises ``CommandError`` or ``ValueError`` when they name nothing."""
    if words[0] == "chapter" and len(words) == 2 and re.fullmatch(r"\d{1,2}", words[1]):
        chapter = words[1].zfill(2)
        lessons = [path for path in documents(workspace.root) if path.parts[0] == "lessons" and len(path.parts) == 2]
        for path in lessons:
            if chapter_of(path) == chapter:
                return workspace.plan_reset(path)
        there = ", ".join(sorted({chapter_of(path) or path.name for path in lessons}))
        raise CommandError(f"there is no chapter {chapter}; there are {there}")
    if len(words) != 1:
        raise CommandError(f"say one thing to restore, such as 02.3 or chapter 04; got {' '.join(words)}")
    if re.fullmatch(r"\d{1,2}", words[0]):
        raise CommandError(f"say `chapter {words[0]}` for the notebook, or `{words[0].zfill(2)}.1` for an exercise")
    exercise = re.fullmatch(r"(\d{1,2})\.(\d{1,2})", words[0])
    if exercise:
        return workspace.plan_reset_exercise(f"{exercise.group(1).zfill(2)}.{int(exercise.group(2))}")
    return workspace.plan_reset(_below_work(workspace, words[0]))


def _below_work(workspace: Workspace, text: str) -> Path:
    """A path as a person may give it (from here, from the course, from ``work/``), as one below ``work/``."""
    for origin in (Path.cwd(), workspace.work, workspace.root):
        path = (origin / text).resolve()
        for shelf in (workspace.work.resolve(), workspace.root.resolve()):
            if path.is_relative_to(shelf) and path.relative_to(shelf) in documents(workspace.root):
                return path.relative_to(shelf)
    raise CommandError(f"{text} is neither an exercise such as 02.3 nor a notebook of the course")


def run(options: argparse.Namespace) -> int:
    workspace = Workspace(course_root())
    step = plan(workspace, options.what)
    if step.data is None or step.data == step.found:
        console().print(f"work/{step.path} is as it came; nothing to restore.")
        return 0
    cells = ", ".join(change.cell for change in step.changes)
    what = f"cell {cells} of work/{step.path}" if cells else f"work/{step.path}"
    if not options.yes and step.found is not None and not confirm(f"Restore {what}? Your version goes to the backups."):
        console().print("Nothing was changed.")
        return 1
    done, backup = workspace.apply([step])
    return show(workspace, done, backup)
