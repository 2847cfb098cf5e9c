"""Run the command behind every criterion of the course and write what it printed to one page.

    python scripts/evidence.py                # all criteria -> docs/evidence.md
    python scripts/evidence.py --only scheduler --only widgets
    python scripts/evidence.py --list

The criteria lie in ``docs/criteria.toml``: each has a ``name``, the ``text`` of what is promised, the ``command``
that shows it, and how many ``lines`` of its output to keep (the last ones; 6 unless said). Outcomes are kept in
``build/evidence/``, one file each, so that a run with ``--only`` replaces just those on the page. What was never run
here stays on the page as it is.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import time
import tomllib
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "evidence.md"
KEPT = ROOT / "build" / "evidence"
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
ROW = re.compile(
    r"\| \[(?P<name>[\w-]+)\]\(#[\w-]+\) \| (?:yes|\*\*no\*\* \(exit (?P<code>-?\d+)\)) "
    r"\| (?P<seconds>[\d.]+) \| (?P<commit>\w+) \|"
)
SECTION = re.compile(
    r"^## (?P<name>[\w-]+)\n.*?^```console\n(?:\$ [^\n]*\n)+(?P<output>.*?)\n?^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Criterion:
    """A promise and the shell command that shows it kept."""

    name: str
    text: str
    command: str
    lines: int = 6


@dataclass(frozen=True)
class Outcome:
    """What a criterion's command printed (its last lines), its exit code, its wall time in seconds, at which commit."""

    name: str
    output: str
    code: int
    seconds: float
    commit: str


def load() -> list[Criterion]:
    entries = tomllib.loads((ROOT / "docs" / "criteria.toml").read_text(encoding="utf-8"))["criterion"]
    return [Criterion(**entry) for entry in entries]


def run(criterion: Criterion) -> Outcome:
    """Run the criterion's command in the repository's root with its environment on the path."""
    path = f"{ROOT / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "COLUMNS": "110", "NO_COLOR": "1"}
    commit = head()
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
    last = "\n".join(line.rstrip() for line in text.splitlines()[-criterion.lines :])
    outcome = Outcome(criterion.name, last, process.returncode, time.monotonic() - start, commit)
    KEPT.mkdir(parents=True, exist_ok=True)
    (KEPT / f"{criterion.name}.json").write_text(json.dumps(asdict(outcome)), encoding="utf-8")
    return outcome


def kept(criterion: Criterion, told: dict[str, Outcome]) -> Outcome | None:
    """The last outcome of a criterion: of a run here, else what the page has ``told``, if anything."""
    file = KEPT / f"{criterion.name}.json"
    if not file.exists():
        return told.get(criterion.name)
    return Outcome(**json.loads(file.read_text(encoding="utf-8")))


def read(text: str) -> dict[str, Outcome]:
    """The outcomes that a page tells of, by name."""
    outputs = {section["name"]: section["output"] for section in SECTION.finditer(text)}
    return {
        row["name"]: Outcome(
            row["name"], outputs[row["name"]], int(row["code"] or 0), float(row["seconds"]), row["commit"]
        )
        for row in ROW.finditer(text)
    }


def head() -> str:
    """The short name of the commit that is checked out."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def page(criteria: list[Criterion], told: dict[str, Outcome]) -> str:
    """The evidence page: the machine, a table of outcomes, then each command with what it printed."""
    parts = [
        "# Evidence",
        "",
        f"Written by `make evidence` on {datetime.now(UTC):%Y-%m-%d}: {platform.system()} {platform.machine()}, "
        f"Python {platform.python_version()}, {os.cpu_count()} cores, no GPU.",
        "Times are wall times of the whole command; several may have run at once.",
        "",
        "| criterion | kept | seconds | at commit |",
        "|---|---|---|---|",
    ]
    outcomes = [(criterion, kept(criterion, told)) for criterion in criteria]
    for criterion, outcome in outcomes:
        name = f"[{criterion.name}](#{criterion.name})"
        if outcome is None:
            parts.append(f"| {name} | not run | | |")
        else:
            verdict = "yes" if outcome.code == 0 else f"**no** (exit {outcome.code})"
            parts.append(f"| {name} | {verdict} | {outcome.seconds:.1f} | {outcome.commit} |")
    for criterion, outcome in outcomes:
        parts += ["", f"## {criterion.name}", "", criterion.text, "", "```console"]
        parts += [f"$ {line}" for line in criterion.command.strip().splitlines()]
        parts += [outcome.output if outcome else "(not run)", "```"]
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
    failed, told = 0, read(PAGE.read_text(encoding="utf-8")) if PAGE.exists() else {}
    for number, criterion in enumerate(criteria, 1):
        print(f"[{number}/{len(criteria)}] {criterion.name} …", flush=True)
        outcome = run(criterion)
        print(f"    {'kept' if outcome.code == 0 else 'NOT KEPT'} in {outcome.seconds:.1f} s", flush=True)
        if options.only or outcome.code != 0:
            print(outcome.output)
        failed += outcome.code != 0
        PAGE.write_text(page(load(), told), encoding="utf-8")  # after each, so that a run cut short leaves what it has
    print(f"wrote {PAGE.relative_to(ROOT)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
