"""Run the command behind every criterion of the course and write what it printed to one page.

    python scripts/evidence.py                # all criteria -> docs/evidence.md
    python scripts/evidence.py --only scheduler --only widgets
    python scripts/evidence.py --list

The criteria lie in ``docs/criteria.toml``: each has a ``name``, the ``text`` of what is promised, the ``command``
that shows it, and how many ``lines`` of its output to keep (the last ones; 6 unless said). A run with ``--only``
prints to the terminal and leaves the page alone.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "evidence.md"
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True)
class Criterion:
    """A promise and the shell command that shows it kept."""

    name: str
    text: str
    command: str
    lines: int = 6


@dataclass(frozen=True)
class Outcome:
    """What a criterion's command printed (its last lines), its exit code and its wall time in seconds."""

    criterion: Criterion
    output: str
    code: int
    seconds: float


def load() -> list[Criterion]:
    entries = tomllib.loads((ROOT / "docs" / "criteria.toml").read_text(encoding="utf-8"))["criterion"]
    return [Criterion(**entry) for entry in entries]


def run(criterion: Criterion) -> Outcome:
    """Run the criterion's command in the repository's root with its environment on the path."""
    path = f"{ROOT / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "COLUMNS": "110", "NO_COLOR": "1"}
    start = time.monotonic()
    process = subprocess.run(
        ["bash", "-o", "pipefail", "-c", criterion.command],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    text = ESCAPE.sub("", process.stdout).replace(str(ROOT), ".").rstrip()
    kept = "\n".join(line.rstrip() for line in text.splitlines()[-criterion.lines :])
    return Outcome(criterion, kept, process.returncode, time.monotonic() - start)


def page(outcomes: list[Outcome]) -> str:
    """The evidence page: the machine, a table of outcomes, then each command with what it printed."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    parts = [
        "# Evidence",
        "",
        f"Written by `make evidence` on {datetime.now(UTC):%Y-%m-%d} at commit {commit}: {platform.system()} "
        f"{platform.machine()}, Python {platform.python_version()}, {os.cpu_count()} cores, no GPU.",
        "Times are wall times of the whole command.",
        "",
        "| criterion | kept | seconds |",
        "|---|---|---|",
    ]
    for outcome in outcomes:
        verdict = "yes" if outcome.code == 0 else f"**no** (exit {outcome.code})"
        parts.append(f"| [{outcome.criterion.name}](#{outcome.criterion.name}) | {verdict} | {outcome.seconds:.1f} |")
    for outcome in outcomes:
        criterion = outcome.criterion
        parts += ["", f"## {criterion.name}", "", criterion.text, "", "```console"]
        parts += [f"$ {line}" for line in criterion.command.strip().splitlines()]
        parts += [outcome.output, "```"]
    return "\n".join(parts) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], help="run the criteria whose name contains this")
    parser.add_argument("--list", action="store_true", help="list the criteria and their commands")
    options = parser.parse_args()
    criteria = [c for c in load() if not options.only or any(part in c.name for part in options.only)]
    if options.list:
        for criterion in criteria:
            print(f"{criterion.name}: {criterion.command}")
        return 0
    outcomes = []
    for number, criterion in enumerate(criteria, 1):
        print(f"[{number}/{len(criteria)}] {criterion.name} …", flush=True)
        outcome = run(criterion)
        print(f"    {'kept' if outcome.code == 0 else 'NOT KEPT'} in {outcome.seconds:.1f} s", flush=True)
        if options.only or outcome.code != 0:
            print(outcome.output)
        outcomes.append(outcome)
        if not options.only:  # after each, so that a run cut short leaves what it has
            PAGE.write_text(page(outcomes), encoding="utf-8")
    if not options.only:
        print(f"wrote {PAGE.relative_to(ROOT)}")
    return 0 if all(outcome.code == 0 for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
