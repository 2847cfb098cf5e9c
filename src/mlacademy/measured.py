"""Times of the attention kernels on a GPU: those that come with the course, or this machine's own.

``kept()`` reads what ``benchmarks/attention.py`` measured on an H200; ``attention()`` runs that benchmark where there
is a Hopper GPU, and replays the kept times where there is none. Every time says on which card and when it was taken.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mlacademy.workspace.course import course_root

FIELDS = ("case", "ours_us", "peer_us", "goal_us", "sustained_us", "max_rel_err")
Say = Callable[[str], Any]


@dataclass(frozen=True)
class Row:
    """One case. Times in microseconds a call: ours (median of graph replays), FlashMLA's as recorded on the same kind
    of card, the time aimed at, ours without a pause between calls; and the largest error, relative to the output's
    norm. None where something was not measured."""

    case: str
    ours_us: float
    peer_us: float | None
    goal_us: float | None
    sustained_us: float | None
    max_rel_err: float | None

    @property
    def speedup(self) -> float | None:
        """How many times faster ours is than FlashMLA."""
        return None if self.peer_us is None else self.peer_us / self.ours_us

    def __str__(self) -> str:
        peer = (
            ""
            if self.peer_us is None
            else f"   FlashMLA {self.peer_us:7.1f} µs, ours {self.speedup:4.2f} times as fast"
        )
        return f"{self.case:<20} {self.ours_us:7.1f} µs{peer}"


@dataclass(frozen=True)
class Results:
    """Rows of one run. ``replayed``: they were read from the course's files, not measured just now. ``note``: what
    else is to be known of them."""

    card: str
    driver: str
    date: str
    commit: str
    rows: tuple[Row, ...]
    replayed: bool
    note: str = ""

    def row(self, case: str) -> Row:
        """The row of a case. Raises ``KeyError`` with the cases there are."""
        for row in self.rows:
            if row.case == case:
                return row
        raise KeyError(f"no case {case!r}: there are {', '.join(row.case for row in self.rows)}")

    @property
    def origin(self) -> str:
        """Where the numbers come from, in one sentence."""
        how = "Recorded" if self.replayed else "Measured now"
        return f"{how}: {self.card}, driver {self.driver}, {self.date[:10]}, commit {self.commit[:12]}."


def results_file() -> Path:
    """The file with the kept times."""
    return course_root() / "benchmarks" / "results" / "attention-nvidia-h200.json"


def read(path: Path, *, replayed: bool = True) -> Results:
    """The results in a file that the benchmark wrote. Raises ``ValueError`` where a field is missing."""
    found = json.loads(path.read_text(encoding="utf-8"))
    missing = [name for name in ("card", "driver", "date", "commit", "rows") if name not in found]
    missing += [
        f"{name} of row {i}" for i, row in enumerate(found.get("rows", ())) for name in FIELDS if name not in row
    ]
    if missing:
        raise ValueError(f"{path.name} has no {missing[0]}: it was not written by benchmarks/attention.py")
    rows = tuple(Row(**{name: row[name] for name in FIELDS}) for row in found["rows"])
    return Results(
        found["card"], found["driver"], found["date"], found["commit"], rows, replayed, found.get("note", "")
    )


def kept() -> Results:
    """The times that come with the course. Raises ``FileNotFoundError`` where there are none."""
    path = results_file()
    if not path.is_file():
        raise FileNotFoundError(f"there are no kept times: {path} does not exist. Was it deleted?")
    return read(path)


def hopper() -> bool:
    """Whether this machine has a GPU that the kernels run on."""
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)


def attention(cases: Sequence[str] | None = None, *, quick: bool = True, say: Say = print) -> Results:
    """The times of ``cases`` (None: all), told line by line through ``say`` as they come.

    On a Hopper GPU the benchmark runs, in a process of its own; ``quick``: with a small cache and few repetitions.
    Elsewhere the kept times are replayed, and the first line says so. Raises ``ValueError`` for a case that does not
    exist, ``RuntimeError`` where the benchmark fails.
    """
    if hopper():
        return _measure([*(cases or ()), *(["--quick"] if quick else [])], say)
    results = kept()
    chosen = results.rows if cases is None else tuple(_known(results, cases))
    say("No Hopper GPU here, so these are not this machine's times.")
    say(results.origin)
    for row in chosen:
        say(str(row))
    if results.note:
        say(f"Note: {results.note}")
    return replace(results, rows=chosen)


def _known(results: Results, cases: Iterable[str]) -> Iterable[Row]:
    for case in cases:
        try:
            yield results.row(case)
        except KeyError as error:
            raise ValueError(str(error.args[0])) from None


def _measure(arguments: Sequence[str], say: Say) -> Results:
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "attention.json"
        script = course_root() / "benchmarks" / "attention.py"
        command = [sys.executable, "-u", str(script), *arguments, "--output", str(target)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                say(line.rstrip("\n"))
        if process.returncode or not target.is_file():
            raise RuntimeError(f"benchmarks/attention.py ended with status {process.returncode}; its output is above")
        return read(target, replayed=False)
