"""The small harness every benchmark shares: time a call, print a table, write JSON.

A benchmark is one script that answers one question. It builds `Row`s and hands them to `finish`, which prints the
table and, on request, writes `benchmarks/results/<name>-<machine>.json` with the machine, the date, the commit and
the rows. Times are medians; the smallest and largest run are kept in the JSON.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"


@dataclass(frozen=True)
class Times:
    """Seconds of several runs of one call."""

    median: float
    least: float
    most: float
    runs: int

    def per_second(self, amount: float) -> float:
        """`amount` (bytes, tokens) through the median run, per second."""
        return amount / self.median


def measure(call: Callable[[], Any], *, runs: int = 15, at_least: float = 0.2) -> Times:
    """Time `call`: one warm-up, then `runs` runs, or more until `at_least` seconds have passed."""
    call()
    seconds: list[float] = []
    while len(seconds) < runs or sum(seconds) < at_least:
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return Times(statistics.median(seconds), min(seconds), max(seconds), len(seconds))


@dataclass(frozen=True)
class Row:
    """One line of a table. `peer` is what `peer_is` takes for the same work in the same run, None where there is none.

    `unit` is "GB/s" or "TF/s" (more is better), or a time, "ms" or "s" (less is better). `goal`: the value to reach.
    """

    what: str
    ours: float
    peer: float | None
    peer_is: str
    unit: str
    goal: float | None
    times: dict[str, Times]

    @property
    def more_is_better(self) -> bool:
        return self.unit.endswith("/s")

    @property
    def ratio(self) -> float | None:
        """How many times faster ours is."""
        if self.peer is None:
            return None
        return self.ours / self.peer if self.more_is_better else self.peer / self.ours

    @property
    def met(self) -> bool | None:
        if self.goal is None:
            return None
        return self.ours >= self.goal if self.more_is_better else self.ours <= self.goal


def machine() -> dict[str, Any]:
    """The processor, its cores, the system, and how busy it was."""
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        found = re.search(r"^model name\s*:\s*(.+)$", info.read_text(encoding="utf-8"), flags=re.MULTILINE)
        name = found.group(1) if found else name
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {"cpu": name.strip(), "cores": cores, "system": platform.platform(), "load_before": load}


def commit() -> str:
    """The commit of the working tree, with "+changes" where a tracked file differs."""
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--abbrev=12", "--dirty=+changes", "--exclude=*"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return described.stdout.strip()


def parser(question: str, name: str) -> argparse.ArgumentParser:
    """The options that every benchmark has."""
    options = argparse.ArgumentParser(description=question, formatter_class=argparse.RawDescriptionHelpFormatter)
    slug = re.sub(r"[^a-z0-9]+", "-", machine()["cpu"].lower()).strip("-")
    options.add_argument(
        "--json",
        type=Path,
        metavar="PATH",
        default=RESULTS / f"{name}-{slug}.json",
        help="where to write the result (default: %(default)s)",
    )
    return options


def finish(title: str, rows: Sequence[Row], path: Path, *, about: dict[str, Any], notes: Sequence[str] = ()) -> int:
    """Print the table, write the JSON, and return the exit status: 1 where a goal was missed."""
    head = ("what", "ours", "plain", "ratio", "goal", "met")
    lines = [head] + [
        (
            row.what,
            f"{row.ours:.3g} {row.unit}",
            "–" if row.peer is None else f"{row.peer:.3g} {row.unit}",
            "–" if row.ratio is None else f"{row.ratio:.2f}×",
            "–" if row.goal is None else f"{'≥' if row.more_is_better else '≤'} {row.goal:g} {row.unit}",
            {None: "–", True: "yes", False: "NO"}[row.met],
        )
        for row in rows
    ]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    print(title)
    for number, line in enumerate(lines):
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())
        if number == 0:
            print("  ".join("-" * width for width in widths))
    for peer in dict.fromkeys(row.peer_is for row in rows if row.peer is not None):
        print(f"plain, {' / '.join(row.what for row in rows if row.peer_is == peer)}: {peer}")
    for note in notes:
        print(note)
    report = {
        "title": title,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "python": platform.python_version(),
        **about,
        "rows": [asdict(row) | {"ratio": row.ratio, "met": row.met} for row in rows],
        "notes": list(notes),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"wrote {path}")
    return 0 if all(row.met is not False for row in rows) else 1


def progress(text: str) -> None:
    """Say on stderr what is being measured."""
    print(f"measuring: {text}", file=sys.stderr, flush=True)
