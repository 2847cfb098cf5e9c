"""Grade a folder of submissions through nbgrader and write CSV files and a gradebook.

FOLDER holds one folder a student: STUDENT/ASSIGNMENT/NOTEBOOK.ipynb or STUDENT/NOTEBOOK.ipynb. Students' code runs
in a sandbox. A second run grades what is new or changed; marks given by hand stay.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from mlacademy.cli.terminal import CommandError, console
from mlacademy.workspace.course import course_root


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the submissions")
    parser.add_argument(
        "-o", "--out", type=Path, default=Path("grades"), help="where the results go (default: grades/)"
    )
    parser.add_argument("--trusted", action="store_true", help="run submissions without a sandbox: only code you trust")
    parser.add_argument("--cell-seconds", type=int, metavar="S", help="stop a cell that takes longer (default: 20)")


def run(options: argparse.Namespace) -> int:
    from rich.markup import escape
    from rich.table import Table

    from mlacademy.grading import grade

    if not options.folder.is_dir():
        raise CommandError(f"{options.folder} is not a folder of submissions")
    if options.cell_seconds is not None and options.cell_seconds < 1:
        raise CommandError(f"--cell-seconds must be at least 1; got {options.cell_seconds}")
    out = console()
    limits = {"cell_seconds": options.cell_seconds} if options.cell_seconds else {}
    grades = grade(
        options.folder,
        options.out,
        root=course_root(),
        trusted=options.trusted,
        progress=lambda text: out.print(escape(text)),
        **limits,
    )
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for heading in ("student", "assignment", "points", "passed", "note"):
        table.add_column(heading, justify="right" if heading == "points" else "left")
    for total in grades.totals:
        points = f"{total.points:g} of {total.max:g}"
        table.add_row(escape(total.student), total.assignment, points, total.passed, escape(total.note))
    out.print(table)
    manual = sum(row.needs_manual_grading for row in grades.rows)
    if manual:
        out.print(f"{manual} answers wait for a person: see needs_manual_grading in {grades.csv.name}.")
    for path in (grades.csv, grades.totals_csv, grades.gradebook):
        out.print(f"wrote {path}")
    return 0
