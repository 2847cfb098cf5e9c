"""What mutation studies share: run a mutant until it is caught, count, print, keep."""

from __future__ import annotations

import datetime
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from _table import commit, machine

from mlacademy.gpu import Deadlock, KernelTrap, Runaway

WANTED = 0.95
REPORTS = (KernelTrap, Deadlock, Runaway)


class Named(Protocol):
    """A mutant: which kernel it alters, and what it is called."""

    @property
    def kernel(self) -> str: ...
    @property
    def name(self) -> str: ...


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: the rule that was reported, "wrong result", or "survived"; and in which run."""

    mutant: Any
    outcome: str
    order: str = ""

    @property
    def caught(self) -> bool:
        return self.outcome != "survived"


def orders(seeds: int) -> tuple[dict[str, Any], ...]:
    """The orders of completion under which mutants run."""
    return (
        {"order": "eager"},
        {"order": "lazy", "seed": 1},
        *({"order": "seeded", "seed": seed} for seed in range(1, seeds + 1)),
    )


def judged(mutant: Named, runs: Iterable[tuple[str, Callable[[], bool]]]) -> Verdict:
    """Run a mutant until a run catches it. Each run has a name and says whether its results are right."""
    for name, run in runs:
        try:
            outcome = "" if run() else "wrong result"
        except REPORTS as report:
            outcome = report.rule
        if outcome:
            return Verdict(mutant, outcome, name)
    return Verdict(mutant, "survived")


def trouble(run: Callable[[], bool]) -> str:
    """What a kernel that is right does wrong: its report's first line, "wrong result", or ""."""
    try:
        return "" if run() else "wrong result"
    except REPORTS as report:
        return str(report).splitlines()[0]


def shown(items: Iterable[Any], what: str) -> Iterator[Any]:
    """The items, under a progress bar where somebody watches."""
    items = list(items)
    for number, item in enumerate(items):
        if sys.stderr.isatty():
            done = 40 * number // len(items)
            print(f"\r[{'#' * done}{'.' * (40 - done)}] {number}/{len(items)} {what}", end="", file=sys.stderr)
        yield item
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)


def report(
    verdicts: list[Verdict], why: dict[str, str], silent: int, seeds: int, troubles: list[str]
) -> dict[str, Any]:
    """The figures, printed, and as they are kept. `why` says by name why a mutant may survive."""
    survivors = [
        {"mutant": v.mutant.name, "reason": why.get(v.mutant.name, "not understood")} for v in verdicts if not v.caught
    ]
    caught = len(verdicts) - len(survivors)
    by_kernel = {
        name: {
            "mutants": sum(v.mutant.kernel == name for v in verdicts),
            "caught": sum(v.mutant.kernel == name and v.caught for v in verdicts),
        }
        for name in dict.fromkeys(v.mutant.kernel for v in verdicts)
    }
    widest = max(map(len, by_kernel))
    for name, row in by_kernel.items():
        print(f"{name:{widest}} {row['caught']:4} of {row['mutants']:4} caught")
    outcomes = Counter(v.outcome for v in verdicts if v.caught)
    print("caught by: " + ", ".join(f"{outcome} {count}" for outcome, count in outcomes.most_common()))
    print(f"{caught} of {len(verdicts)} mutants caught: {caught / len(verdicts):.1%}")
    for survivor in survivors:
        print(f"  survived: {survivor['mutant']}\n            {survivor['reason']}")
    print(f"kernels as they are: silent and right under {silent} of {seeds} seeds")
    for line in troubles[:10]:
        print(f"  {line}")
    return {
        "mutants": len(verdicts),
        "caught": caught,
        "share": round(caught / len(verdicts), 4),
        "silent_seeds": silent,
        "seeds": seeds,
        "kernels": by_kernel,
        "outcomes": dict(outcomes.most_common()),
        "survivors": survivors,
        "verdicts": [{"mutant": v.mutant.name, "outcome": v.outcome, "order": v.order} for v in verdicts],
    }


def keep(path: Path, question: str, figures: dict[str, Any]) -> None:
    """Write the figures with the date, the commit and the machine."""
    head = {
        "title": question.splitlines()[0],
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": machine(),
    }
    path.write_text(json.dumps({**head, **figures}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"wrote {path}")


def status(figures: dict[str, Any]) -> int:
    """The exit status: 1 below the share wanted, or where a kernel is not silent."""
    return int(figures["share"] < WANTED or figures["silent_seeds"] < figures["seeds"])
