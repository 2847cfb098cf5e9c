"""What instructions, copies and meetings of threads cost on a GPU: the numbers behind the emulator's cost model.

Runs the microbenchmarks of `_cost_kernels.py`, prints the cycles of one step of each and writes them to
benchmarks/results/cost-<card>.json. Needs a GPU of compute capability 9.0, torch with CUDA and NVRTC:
PYTHONPATH=src python3 benchmarks/gpu/costs.py
"""

from __future__ import annotations

import argparse
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from _cost_kernels import REPETITIONS, Bench, every_bench, source
from _report import write

from mlacademy.gpu import Device, LaunchPlan, Module, TensorMap, compile

WARM_UP, LAUNCHES = 3, 5
BUFFER_BYTES = 4 << 30


class Bed:
    """The GPU with the memory that every bench gets."""

    def __init__(self) -> None:
        self.device = Device("cuda")
        self.out = torch.zeros((1 << 16) + 8, dtype=torch.int64, device="cuda")
        self.memory = torch.zeros(BUFFER_BYTES, dtype=torch.uint8, device="cuda")
        matrix = torch.zeros((4096, 64), dtype=torch.bfloat16, device="cuda")
        self.maps = [TensorMap.of(matrix, box=(rows, 64), dtype="bfloat16", swizzle="128B") for rows in (64, 8)]

    def cycles(self, module: Module, bench: Bench, count: int) -> float:
        """The median over launches of the median over repetitions, of the slowest CTA."""
        plan = LaunchPlan(grid=bench.grid, block=bench.threads, cluster=bench.cluster)
        found = []
        for launch in range(LAUNCHES):
            if "dram" in bench.name:
                self.memory[3 << 30 :].zero_()  # everything else leaves the second cache
            self.memory[:65536].zero_()
            self.device.launch(module[f"{bench.name}_{count}"], plan, (self.out, self.memory, 0, *self.maps))
            torch.cuda.synchronize()
            times = self.out[: bench.grid * REPETITIONS].reshape(bench.grid, REPETITIONS)
            timed = times[:: bench.cluster, WARM_UP:].max(dim=0).values
            if launch > 0:
                found.append(statistics.median(timed.tolist()))
        return statistics.median(found)


def measure(benches: list[Bench]) -> list[dict[str, Any]]:
    """One row a bench."""
    bed = Bed()
    with ThreadPoolExecutor(8) as pool:
        modules = list(pool.map(lambda bench: compile(source(bench), name=f"{bench.name}.cu"), benches))
    rows = []
    for bench, module in zip(benches, modules, strict=True):
        few, many = bench.counts
        try:
            short, long = (bed.cycles(module, bench, count) for count in bench.counts)
        except Exception as error:
            print(f"{bench.name:>22}  failed: {str(error).splitlines()[0]}")
            raise
        step = (long - short) / (many - few)
        row = {"bench": bench.name, "steps": [few, many], "cycles": [short, long], "step": round(step, 3)}
        row |= {"fixed": round(short - few * step, 1), "items": bench.items, "item": round(step / bench.items, 5)}
        rows.append(row)
        print(
            f"{bench.name:>22}  {step:>10.2f} a step  {row['item']:>10.4f} an item  {row['fixed']:>8.1f} fixed",
            flush=True,
        )
    return rows


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", default="", help="benches whose name contains this")
    options.add_argument("--json", type=Path, help="where to write (default: benchmarks/results/cost-<card>.json)")
    chosen = options.parse_args()
    rows = measure([bench for bench in every_bench() if chosen.only in bench.name])
    about = {
        "title": "Microbenchmarks of the cost model",
        "unit": "cycles of the multiprocessor's clock; fixed: what is left at no step",
    }
    write("cost", chosen.json, about, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
