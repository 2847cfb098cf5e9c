"""Bring your copies in work/ up to date with the course, without touching what you wrote.

Cells that you left alone take the course's newer text, new cells are put in place, and where you wrote in a cell that
changed, yours stays and the newer one is shown below it. Every file is first copied to work/.mlacademy/backups/. To
get a newer course, run `git pull` before.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from mlacademy.cli.terminal import complain, console
from mlacademy.workspace import Step, Workspace, course_root
from mlacademy.workspace.jupyter import open_notebooks

WORDS = {
    "refreshed": "{} refreshed",
    "inserted": "{} new",
    "dropped": "{} dropped",
    "kept": "{} of yours kept that the course no longer has",
    "offered": "{} of yours kept, with the newer text below",
    "moved": "order changed",
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="say what would be done and change nothing")


def describe(step: Step) -> str:
    """One line on what a step does, in a learner's words."""
    counts = Counter(change.kind for change in step.changes)
    cells = ", ".join(WORDS[kind].format(count) for kind, count in counts.items())
    details = "; ".join(text for text in (step.reason, f"cells: {cells}" if cells else "") if text)
    name = "updated" if step.action == "merged" else step.action
    return f"{name:<9} {step.path}" + (f" ({details})" if details else "")


def show(workspace: Workspace, done: list[Step], backup: Path | None, *, dry_run: bool = False) -> int:
    """Print what was done to the copies and return the exit status: 1 when one had to be skipped."""
    from rich.markup import escape

    out = console()
    shown = [step for step in done if step.action != "current"]
    for step in shown:
        out.print(escape(describe(step)))
        for change in step.changes:
            if change.kind in ("offered", "kept"):
                out.print(f"          yours kept: cell {change.cell}")
    if backup is not None:
        out.print(f"The files as they were: {escape(str(backup.relative_to(workspace.root)))}")
    changed = {(workspace.work / step.path).resolve() for step in shown if step.writes}
    for path in sorted(changed & open_notebooks(workspace.work)) if changed and not dry_run else []:
        name = path.relative_to(workspace.work.resolve())
        out.print(
            f"[yellow]Open in JupyterLab:[/] {escape(str(name))}: choose File > Reload Notebook from Disk.",
            soft_wrap=True,
        )
    skipped = [step for step in done if step.action == "skipped"]
    if skipped:
        complain(
            f"mlacademy: {len(skipped)} of your files could not be changed: {skipped[0].path}: {skipped[0].reason}"
        )
    return 1 if skipped else 0


def run(options: argparse.Namespace) -> int:
    workspace = Workspace(course_root())
    steps = workspace.plan_update()
    out = console()
    if not any(step.action != "current" for step in steps):
        out.print(f"All {len(steps)} copies in {workspace.work} are up to date.")
        return 0
    if options.dry_run:
        out.print("This is what an update would do:")
        return show(workspace, steps, None, dry_run=True)
    done, backup = workspace.apply(steps)
    return show(workspace, done, backup)
