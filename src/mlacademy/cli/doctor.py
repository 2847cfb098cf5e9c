"""Tell what this machine is, what of the course runs on it, and the command that mends what is missing.

Exits with 0 when the course can run here and with 1 when it cannot.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from mlacademy.cli.terminal import complain, console
from mlacademy.doctor import examine
from mlacademy.workspace.course import course_root

MARKS = {"ok": "[green]ok[/]", "note": "[yellow]note[/]", "bad": "[red]mend[/]"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the whole report as JSON")


def _print(report: dict[str, Any]) -> None:
    from rich.markup import escape
    from rich.table import Table

    out = console()
    computer = report["machine"]
    memory = computer["memory_bytes"] / 2**30
    out.print(f"[bold]MLAcademy {report['version']}[/] in {escape(report['course'])}")
    out.print(
        f"{escape(computer['system'])}; {escape(computer['processor'])}, {computer['cores']} cores, {memory:.0f} GiB\n"
    )
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for finding in report["findings"]:
        table.add_row(MARKS[finding["state"]], finding["name"], escape(finding["found"]))
    out.print(table)
    if report["chapters"]:
        out.print()
        chapters = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
        for heading in ("chapter", "title", "exercises", "runs"):
            chapters.add_column(heading)
        for chapter in report["chapters"]:
            chapters.add_row(chapter["chapter"], escape(chapter["title"]), chapter["answers"], chapter["runs"])
        out.print(chapters)
    fixes = [finding for finding in report["findings"] if finding["fix"]]
    if fixes:
        out.print("\n[bold]To mend[/]")
        for finding in fixes:
            out.print(f"  {finding['name']}: [bold]{escape(finding['fix'])}[/]")


def run(options: argparse.Namespace) -> int:
    report = examine(course_root())
    if options.json:
        print(json.dumps(report, ensure_ascii=False, indent=2))
    else:
        _print(report)
    if report["ready"]:
        if not options.json:
            console().print("\nThe course runs here. [bold]make lab[/] opens it.")
        return 0
    bad = [finding["name"] for finding in report["findings"] if finding["state"] == "bad"]
    complain(f"mlacademy doctor: the course cannot run here yet: see {', '.join(bad)}")
    return 1
