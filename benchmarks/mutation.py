"""How many mistakes in synchronisation does the emulator catch?

Takes small kernels (tests/emulator/mutation) apart: deletes or alters, one at a time, each fence, wait, arrival, byte
count, parity, commit and barrier of their PTX, and runs every such mutant under several orders of completion with all
checks on. A mutant is caught where a run ends with a report, or with a wrong result. Kernels as they are must run
silently and rightly under many seeds. Prints the share caught and each survivor, and keeps
benchmarks/results/mutation-<machine>.json. Exits with 1 below 95 %, or where a kernel is not silent.
"""

from __future__ import annotations

import sys
import time
import tomllib
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from _mutants import Mutant, mutants
from _study import Verdict, judged, keep, orders, report, shown, status, trouble
from _table import parser

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "emulator" / "mutation"))
import kernels
from kernels import FOLDER, KERNELS
from mlacademy.gpu import Device

ORDERS = orders(8)


def emulator() -> Device:
    """A device that gives up soon: the kernels take a few thousand steps."""
    return Device("emulator", step_budget=300_000)


def judge(mutant: Mutant, device: Device) -> Verdict:
    """Run a mutant under one order after another until it is caught."""

    def runs() -> Iterator[Any]:
        for order in ORDERS:
            name = " ".join(map(str, order.values()))
            yield name, partial(kernels.run, mutant.kernel, mutant.text, device, **order)

    return judged(mutant, runs())


def silent_seeds(names: Iterable[str], device: Device, seeds: int) -> tuple[int, list[str]]:
    """How many seeds every kernel passes, silent and right, under each order; and what else happened."""
    texts = {name: kernels.ptx(name) for name in names}
    passed, troubles = 0, []
    for seed in shown(range(1, seeds + 1), "seeds of the kernels as they are"):
        before = len(troubles)
        for name, text in texts.items():
            for order in ("lazy", "seeded"):
                if line := trouble(partial(kernels.run, name, text, device, order=order, seed=seed)):
                    troubles.append(f"{name}, {order} {seed}: {line}")
        passed += len(troubles) == before
    return passed, troubles


def reasons() -> dict[str, str]:
    """Why a mutant may survive, by its name: tests/emulator/mutation/survivors.toml."""
    rows = tomllib.loads((FOLDER / "survivors.toml").read_text(encoding="utf-8"))["survivor"]
    return {f"{row['kernel']} line {row['line']}: {row['change']}": row["reason"] for row in rows}


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
    figures = report(verdicts, reasons(), silent, args.seeds, troubles)
    print(f"took {time.perf_counter() - began:.0f} s")
    if args.every == 1 and args.kernel is None:
        keep(args.json, __doc__ or "", figures)
    return status(figures)


if __name__ == "__main__":
    sys.exit(main())
