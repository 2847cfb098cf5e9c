"""How many mistakes in synchronisation does the emulator catch?

Takes small kernels (tests/emulator/mutation) apart: deletes or alters, one at a time, each fence, wait, arrival, byte
count, parity, commit and barrier of their PTX, and runs every such mutant under several orders of completion with all
checks on. A mutant is caught where a run ends with a report, or with a wrong result. Kernels as they are must run
silently and rightly under many seeds. Prints the share caught and each survivor, and keeps
benchmarks/results/mutation-<machine>.json. Exits with 1 below 95 %, or where a kernel is not silent.
"""

from __future__ import annotations

import datetime
import json
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _mutants import Mutant, mutants
from _table import commit, machine, parser

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "emulator" / "mutation"))
import kernels
from kernels import FOLDER, KERNELS
from mlacademy.gpu import Deadlock, Device, KernelTrap, Runaway

WANTED = 0.95
ORDERS: tuple[dict[str, Any], ...] = (
    {"order": "eager"},
    {"order": "lazy", "seed": 1},
    *({"order": "seeded", "seed": seed} for seed in range(1, 9)),
)


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: the rule that was reported, "wrong result", or "survived"; and in which order."""

    mutant: Mutant
    outcome: str
    order: str = ""

    @property
    def caught(self) -> bool:
        return self.outcome != "survived"


def emulator() -> Device:
    """A device that gives up soon: the kernels take a few thousand steps."""
    return Device("emulator", step_budget=300_000)


def judge(mutant: Mutant, device: Device, orders: Iterable[dict[str, Any]] = ORDERS) -> Verdict:
    """Run a mutant until an order catches it."""
    for order in orders:
        try:
            outcome = "" if kernels.run(mutant.kernel, mutant.text, device, **order) else "wrong result"
        except (KernelTrap, Deadlock, Runaway) as report:
            outcome = report.rule
        if outcome:
            return Verdict(mutant, outcome, " ".join(map(str, order.values())))
    return Verdict(mutant, "survived")


def silent_seeds(names: Iterable[str], device: Device, seeds: int) -> tuple[int, list[str]]:
    """How many seeds every kernel passes, silent and right, under each order; and what else happened."""
    texts = {name: kernels.ptx(name) for name in names}
    passed, troubles = 0, []
    for seed in shown(range(1, seeds + 1), "seeds of the kernels as they are"):
        before = len(troubles)
        for name, text in texts.items():
            for order in ("lazy", "seeded"):
                try:
                    if not kernels.run(name, text, device, order=order, seed=seed):
                        troubles.append(f"{name}, {order} {seed}: wrong result")
                except (KernelTrap, Deadlock, Runaway) as report:
                    troubles.append(f"{name}, {order} {seed}: {str(report).splitlines()[0]}")
        passed += len(troubles) == before
    return passed, troubles


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


def reasons() -> dict[str, str]:
    """Why a mutant may survive, by its name: tests/emulator/mutation/survivors.toml."""
    rows = tomllib.loads((FOLDER / "survivors.toml").read_text(encoding="utf-8"))["survivor"]
    return {f"{row['kernel']} line {row['line']}: {row['change']}": row["reason"] for row in rows}


def report(verdicts: list[Verdict], silent: int, seeds: int, troubles: list[str]) -> dict[str, Any]:
    """The figures, printed, and as they are kept."""
    why = reasons()
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
    for name, row in by_kernel.items():
        print(f"{name:18} {row['caught']:4} of {row['mutants']:4} caught")
    outcomes = Counter(v.outcome for v in verdicts if v.caught)
    print("caught by: " + ", ".join(f"{outcome} {count}" for outcome, count in outcomes.most_common()))
    print(f"{caught} of {len(verdicts)} mutants caught: {caught / len(verdicts):.1%}")
    for survivor in survivors:
        print(f"  survived: {survivor['mutant']}\n            {survivor['reason']}")
    print(f"kernels as they are: silent and right under {silent} of {seeds} seeds")
    for trouble in troubles[:10]:
        print(f"  {trouble}")
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


def main() -> int:
    options = parser(__doc__ or "", "mutation")
    options.add_argument("--kernel", action="append", choices=KERNELS, help="this kernel only; may be repeated")
    options.add_argument("--seeds", type=int, default=100, help="seeds of the kernels as they are (default: 100)")
    options.add_argument("--every", type=int, default=1, metavar="N", help="each N-th mutant only, and keep nothing")
    args = options.parse_args()
    names, device = args.kernel or list(KERNELS), emulator()
    began = time.perf_counter()
    chosen = [mutant for name in names for mutant in mutants(name, kernels.ptx(name))][:: args.every]
    verdicts = [judge(mutant, device) for mutant in shown(chosen, "mutants")]
    silent, troubles = silent_seeds(names, device, args.seeds)
    figures = report(verdicts, silent, args.seeds, troubles)
    print(f"took {time.perf_counter() - began:.0f} s")
    if args.every == 1 and args.kernel is None:
        head = {
            "title": (__doc__ or "").splitlines()[0],
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "commit": commit(),
            "machine": machine(),
        }
        args.json.write_text(json.dumps({**head, **figures}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"wrote {args.json}")
    return int(figures["share"] < WANTED or silent < args.seeds)


if __name__ == "__main__":
    sys.exit(main())
