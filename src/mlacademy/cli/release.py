"""Write what students get: a branch without solutions, or the exercises generated from them.

    mlacademy release --to student            move the branch `student` to the committed course without solutions/
    mlacademy release --exercises             write exercises/ anew from solutions/, all of them
    mlacademy release --exercises 02_fp8_cache

The branch has no history that ever held a solution, and every file of it is searched for text of one. The work tree
stays as it is.
"""

from __future__ import annotations

import argparse

from mlacademy.cli.terminal import CommandError, console
from mlacademy.workspace.course import course_root


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--to", metavar="BRANCH", help="the student branch to create or to move on")
    parser.add_argument("--exercises", nargs="*", metavar="NAME", help="generate these exercises (default: all)")


def run(options: argparse.Namespace) -> int:
    if options.to is None and options.exercises is None:
        raise CommandError("say what to release: --to BRANCH for a student branch, or --exercises")
    from rich.markup import escape

    from mlacademy.grading import generate, release

    root, out = course_root(), console()

    def say(text: str) -> None:
        out.print(escape(text))

    if options.exercises is not None:
        for path in generate(options.exercises or None, root=root, progress=say):
            say(f"wrote {path}")
    if options.to is not None:
        done = release(options.to, root=root, progress=say)
        if done.uncommitted:
            say("Note: the work tree has changes that are not committed; they were not released.")
        say(f"{done.branch}: {done.files} files at {done.commit[:10]}" + ("" if done.changed else ", unchanged"))
    return 0
