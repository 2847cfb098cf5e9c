"""Are the decode kernels clean under compute-sanitizer?

python benchmarks/gpu/sanitizer.py                  every case under memcheck, racecheck and synccheck, on the GPU
python benchmarks/gpu/sanitizer.py --emulator       the same cases here, on the emulator with all its checks

Needs a Hopper GPU and compute-sanitizer (it comes with the CUDA toolkit), or only the emulator. Each tool runs all
cases of _sanitizer_cases.py in one process. An error counts for the case that runs when it is reported; results are
compared with a float64 oracle as well. Every tensor has memory of its own from cudaMalloc, so that memcheck sees where
it ends. Keeps benchmarks/results/sanitizer-<card>.json; exits with 1 where anything was reported or wrong.

NOTE: racecheck (2025.3.1) lets an mbarrier order only threads that arrive themselves. Where lane 0 arrives for its warp
after __syncwarp, as these kernels do, it reports a race; two warps, 32 values and one barrier are enough to see it,
and with an arrival of every lane the report is gone. The emulator follows such orders, and finds no race in any case.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

TOOLS = ("memcheck", "racecheck", "synccheck")
KERNELS = ("sparse_decode", "combine", "schedule", "cache_append", "check_slots")
BEGIN, END = "case begins: ", "case ends: "
HEAD = re.compile(r"^========= (?!COMPUTE-SANITIZER|Target application|.*SUMMARY|\s)(?P<what>\S.*)")
SUMMARY = re.compile(r"^========= (?:ERROR|RACECHECK) SUMMARY: (?P<count>\d+)")


def run_cases(emulated: bool) -> int:
    """Run every case and say so line by line; how many were wrong."""
    import torch
    from _sanitizer_cases import cases

    from mlacademy import ops

    wrong = 0
    for name, run in cases().items():
        print(f"{BEGIN}{name}", flush=True)
        if emulated:
            with ops.on("emulator"):
                good = run()
        else:
            good = run()
            torch.cuda.synchronize()
        wrong += not good
        print(f"{END}{'right' if good else 'wrong'}", flush=True)
    return wrong


def options_of(tool: str) -> list[str]:
    """Options that keep a tool from torch's own kernels."""
    chosen = [part for name in KERNELS for part in ("--kernel-name", f"kns={name}")]
    return ["--tool", tool, "--report-api-errors", "no", "--print-limit", "0", *chosen]


def under(tool: str, log: Path | None, limit: float) -> tuple[list[dict[str, Any]], int]:
    """The cases under one tool: a row each, and the number of errors that the tool sums up to (-1: no summary)."""
    command = ["compute-sanitizer", *options_of(tool)]
    environment = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    began = time.perf_counter()
    done = subprocess.run(
        ["timeout", str(limit), *command, sys.executable, __file__, "--cases"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(f"{tool}: {time.perf_counter() - began:.0f} s, exit status {done.returncode}", flush=True)
    if log is not None:
        (log / f"{tool}.log").write_text(done.stdout, encoding="utf-8")
    return read(tool, done.stdout)


def read(tool: str, text: str) -> tuple[list[dict[str, Any]], int]:
    """What a tool printed, as `under` returns it."""
    rows: list[dict[str, Any]] = []
    total = -1
    for line in text.splitlines():
        if line.startswith(BEGIN):
            rows.append({"case": line.removeprefix(BEGIN), "tool": tool, "errors": 0, "right": False})
        elif line.startswith(END):
            rows[-1]["right"] = line == f"{END}right"
        elif found := SUMMARY.match(line):
            total = int(found["count"])
        elif (found := HEAD.match(line)) and rows:
            rows[-1]["errors"] += 1
            rows[-1].setdefault("first", found["what"])
    return rows, total


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--emulator", action="store_true", help="on the emulator, without compute-sanitizer")
    options.add_argument("--cases", action="store_true", help="the cases alone, without a tool")
    options.add_argument("--tool", action="append", choices=TOOLS, help="this tool only; may be repeated")
    options.add_argument("--limit", type=float, default=600, help="seconds that a tool may take (default: 600)")
    options.add_argument("--json", type=Path, help="where to write the result")
    options.add_argument("--log", type=Path, help="a folder for what the tools printed")
    args = options.parse_args()
    if args.cases or args.emulator:
        wrong = run_cases(args.emulator)
        print(f"{wrong} cases were wrong")
        return int(wrong > 0)

    from _report import write

    rows, totals = [], {}
    for tool in args.tool or TOOLS:
        found, totals[tool] = under(tool, args.log, args.limit)
        rows += found
    for row in rows:
        if row["errors"] or not row["right"]:
            print(
                f"{row['tool']}, {row['case']}: {row['errors']} errors, right: {row['right']}, {row.get('first', '')}"
            )
    version = subprocess.run(["compute-sanitizer", "--version"], capture_output=True, text=True, check=True).stdout
    about = {
        "version": version.strip().splitlines()[-1],
        "cases": len({row["case"] for row in rows}),
        "summaries": totals,
    }
    print(about)
    write("sanitizer", args.json, about, rows)
    return int(any(row["errors"] or not row["right"] for row in rows) or any(totals.values()))


if __name__ == "__main__":
    sys.exit(main())
