"""How many mistakes in the decode kernels do the emulator's checks and small cases catch?

Each mutant is a kernel of kernels/cuda/decode with one mistake in its source (tests/kernels/mutation/*.toml): a wait,
arrival, fence, byte count, parity, index, swizzle, scale, mask, maximum or lse left out or written wrongly. It is
compiled and runs small cases under several orders of completion with all checks on. It is caught where a run ends with
a report or with a result that the oracle does not have. Kernels as they are must run silently and rightly under many
seeds. Prints the share caught and each survivor, and keeps benchmarks/results/decode-mutation-<machine>.json. Exits
with 1 below 95 %, or where a kernel is not silent.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from _study import Verdict, judged, keep, orders, report, shown, status, trouble
from _table import ROOT, parser

sys.path.insert(0, str(ROOT / "tests" / "kernels" / "mutation"))
from cases import CASES, Case
from mutants import Build, Mutant, in_place, mutants

from mlacademy.gpu import CompileError
from mlacademy.gpu.disk_cache import DiskCache

ORDERS = orders(4)


def by_kernel(cases: Iterable[Case]) -> dict[str, list[Case]]:
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(case.kernel, []).append(case)
    return groups


def judge(mutant: Mutant, cache: DiskCache) -> Verdict:
    """Run a mutant's cases, kernel by kernel, those of its `entry` first, until one catches it."""
    groups = by_kernel(CASES[mutant.kernel])

    def runs() -> Iterator[Any]:
        for name in sorted(groups, key=lambda name: mutant.entry not in name):
            for order in ORDERS:
                for case in groups[name]:
                    yield f"{case.name}: {' '.join(map(str, order.values()))}", partial(case.run, **order)

    with in_place(Build(mutant.kernel, mutant.texts(), cache)):
        try:
            return judged(mutant, runs())
        except CompileError as error:
            error.add_note(f"This was the mutant {mutant.name}: its text must compile.")
            raise


def silent_seeds(sources: Iterable[str], seeds: int) -> tuple[int, list[str]]:
    """How many seeds a case of every kernel passes, silent and right, under each order; cases take turns."""
    passed, troubles = 0, []
    groups = by_kernel(case for source in sources for case in CASES[source])
    for seed in shown(range(1, seeds + 1), "seeds of the kernels as they are"):
        before = len(troubles)
        for cases in groups.values():
            case = cases[seed % len(cases)]
            for order in ("lazy", "seeded"):
                if line := trouble(partial(case.run, order=order, seed=seed)):
                    troubles.append(f"{case.name}, {order} {seed}: {line}")
        passed += len(troubles) == before
    return passed, troubles


def main() -> int:
    options = parser(__doc__ or "", "decode-mutation")
    options.add_argument("--kernel", action="append", choices=CASES, help="this file only; may be repeated")
    options.add_argument("--seeds", type=int, default=100, help="seeds of the kernels as they are (default: 100)")
    options.add_argument("--every", type=int, default=1, metavar="N", help="each N-th mutant only, and keep nothing")
    args = options.parse_args()
    sources = args.kernel or list(CASES)
    began = time.perf_counter()
    chosen = [mutant for source in sources for mutant in mutants(source)][:: args.every]
    with tempfile.TemporaryDirectory() as folder:  # mutants would push the learner's kernels out of their cache
        cache = DiskCache(Path(folder))
        verdicts = [judge(mutant, cache) for mutant in shown(chosen, "mutants")]
    silent, troubles = silent_seeds(sources, args.seeds)
    why = {mutant.name: mutant.survives for mutant in chosen if mutant.survives}
    figures = report(verdicts, why, silent, args.seeds, troubles)
    print(f"took {time.perf_counter() - began:.0f} s")
    if args.every == 1 and args.kernel is None:
        keep(args.json, __doc__ or "", figures)
    return status(figures)


if __name__ == "__main__":
    sys.exit(main())
