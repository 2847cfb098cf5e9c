"""Cycles that the cost model gives for the course's kernels, beside cycles that a GPU took.

python3 benchmarks/gpu/cycles.py --measure     on a GPU: writes benchmarks/results/cycles-<card>.json
python benchmarks/gpu/cycles.py                anywhere: runs the emulator, prints the table, adds what it models

Cycles are those of a CTA, from its first instruction to its last, of the CTA that took longest. On the GPU it is the
median over launches, the inputs being in the second cache from the launches before.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _table import RESULTS

from mlacademy.gpu import Device, DeviceError, LaunchPlan, Module, TensorMap, compile, samples
from mlacademy.gpu.includes import header_layer

SCALES = (1, 2, 4)
LAUNCHES, WARM_UP = 40, 10
GOAL = 0.25
EMPTY = 'extern "C" __global__ void empty(float* out, int n) { if (n < 0) out[threadIdx.x] = n; }'


@dataclass(frozen=True)
class Run:
    """A launch that is measured and modelled."""

    kernel: str
    scale: int
    source: str | Path
    plan: LaunchPlan
    args: tuple[Any, ...]


def one_copy(chunks: int) -> Run:
    """bulk_copy by one CTA: how the time grows with the chunks."""
    size = 4096 * chunks
    args = (np.zeros(size, np.uint8), np.zeros(size, np.uint8), size)
    return Run("bulk_copy", chunks, header_layer() / "bulk_copy.cu", LaunchPlan(grid=1, block=64), args)


def cases() -> list[tuple[str, Run]]:
    """Label and launch of everything in the table."""
    found = []
    for name, make in samples.SAMPLES.items():
        for scale in SCALES:
            case = make(0, scale)
            found.append((name, Run(name, scale, header_layer() / f"{name}.cu", case.plan, case.args)))
    found += [("bulk_copy, one CTA, chunks", one_copy(chunks)) for chunks in (1, 4, 16)]
    empty = Run("empty", 1, EMPTY, LaunchPlan(grid=1, block=128), (np.zeros(128, np.float32), 3))
    return [*found, ("empty", empty)]


def measure() -> list[dict[str, Any]]:
    """Rows with the measured cycles; needs a GPU and torch."""
    import torch
    from _clocked import clocked

    device, rows = Device("cuda"), []
    for label, run in cases():
        module = Module.from_ptx(clocked(compile(run.source).ptx, run.kernel))
        args = []
        for arg in run.args:
            if isinstance(arg, TensorMap):
                there = torch.from_numpy(arg.tensor).cuda()
                args.append(TensorMap.of(there, arg.box[::-1], dtype=arg.dtype, swizzle=arg.swizzle))
            else:
                args.append(torch.from_numpy(arg).cuda() if isinstance(arg, np.ndarray) else arg)
        ctas = int(np.prod(run.plan.grid))
        clocks = torch.zeros((ctas, 2), dtype=torch.int64, device="cuda")
        took = []
        for launch in range(WARM_UP + LAUNCHES):
            clocks[:, 0], clocks[:, 1] = (1 << 63) - 1, 0
            try:
                device.launch(module[run.kernel], run.plan, (*args, clocks))
            except DeviceError as error:
                print(f"{label:>26} x{run.scale}  does not launch: {error}")
                break
            torch.cuda.synchronize()
            if launch >= WARM_UP:
                took.append((clocks[:, 1] - clocks[:, 0]).cpu().numpy())
        if not took:
            continue
        longest = [int(one.max()) for one in took]
        row = {"kernel": label, "scale": run.scale, "ctas": ctas, "measured": statistics.median(longest)}
        row |= {"least": min(longest), "most": max(longest), "mean": round(float(np.mean(took)), 1)}
        rows.append(row)
        print(
            f"{label:>26} x{run.scale}  {row['measured']:>10,.0f} cycles  ({row['least']:,} to {row['most']:,})",
            flush=True,
        )
    return rows


def modelled(run: Run) -> tuple[float, float]:
    """Cycles of the longest CTA and of the mean one, by the emulator and the cost model."""
    device = Device("emulator", check=())
    report = device.launch(compile(run.source)[run.kernel], run.plan, run.args, trace=True, trace_limit=20_000_000)
    assert report.trace is not None
    took = report.trace.ctas.t1 - report.trace.ctas.t0
    return float(took.max()), float(took.mean())


def compare(rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], int]:
    outside, runs = 0, {(label, run.scale): run for label, run in cases()}
    print(f"{'kernel':>26} {'size':>5} {'CTAs':>5} {'measured':>10} {'modelled':>10} {'error':>7}")
    for row in rows:
        longest, mean = modelled(runs[row["kernel"], row["scale"]])
        row["modelled"], row["modelled_mean"] = round(longest, 1), round(mean, 1)
        row["error"] = round(longest / row["measured"] - 1, 3)
        far = abs(row["error"]) > GOAL
        outside += far
        print(
            f"{row['kernel']:>26} {row['scale']:>5} {row['ctas']:>5} {row['measured']:>10,.0f} {longest:>10,.0f} "
            f"{row['error']:>+7.0%}{'  outside' if far else ''}"
        )
    print(f"{len(rows) - outside} of {len(rows)} within {GOAL:.0%}")
    return rows, outside


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--measure", action="store_true", help="measure on the GPU")
    options.add_argument("--json", type=Path, default=RESULTS / "cycles-nvidia-h200.json")
    chosen = options.parse_args()
    if chosen.measure:
        from _report import write

        about = {"title": "Cycles of the course's kernels, measured and modelled", "launches": LAUNCHES}
        write("cycles", chosen.json, about, measure())
        return 0
    document = json.loads(chosen.json.read_text(encoding="utf-8"))
    rows, _ = compare(document.pop("rows"))
    lines = [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in document.items()]
    body = ",\n".join("  " + json.dumps(row) for row in rows)
    chosen.json.write_text("{\n" + "\n".join(lines) + '\n "rows": [\n' + body + "\n ]\n}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
