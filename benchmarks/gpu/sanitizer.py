"""Are the decode kernels clean under compute-sanitizer?

python benchmarks/gpu/sanitizer.py                  every case under memcheck, racecheck and synccheck, on the GPU
python benchmarks/gpu/sanitizer.py --emulator       the same cases here, on the emulator with all its checks

Needs a Hopper GPU and compute-sanitizer (it comes with the CUDA toolkit), or only the emulator. Each tool runs all
cases of _sanitizer_cases.py in one process. An error counts for the case that runs when it is reported; results are
compared with a float64 oracle as well. Every tensor has memory of its own from cudaMalloc, so that memcheck sees where
it ends. Keeps benchmarks/results/sanitizer-<card>.json; exits with 1 where anything was reported or wrong.

Racecheck gets the kernels with one constant changed, RACECHECK_ARRIVALS (kernels/cuda/decode/warp_arrival.cuh): every
lane of a warp arrives at an mbarrier, where else one arrives for its warp after __syncwarp. To racecheck an arrival
orders the thread that arrives and no other, so it takes every such order for a race; nothing else is different. What it
follows was learned from small kernels of one pattern each, right ones and wrong ones
(benchmarks/results/racecheck-patterns-nvidia-h200.json):

  followed       an arrival of every lane, in one buffer or in a ring; order through two mbarriers; cp.async with
                 cp.async.mbarrier.arrive.noinc; a bulk copy into shared memory; st.async with expect_tx; arrivals in
                 the other CTA; barriers of a cluster; bar.sync; a single bar.arrive with bar.sync
  not followed   one lane for its warp, whether by its number, by elect.sync or with a count of 32; order through a
                 named barrier and then another barrier, which these kernels do not need
  in 2026.4      a buffer that goes to and fro by two named barriers in a loop, as p and its factors do. 2025.3.1, which
                 comes with CUDA 13.0, reports that as a race: 8 times in the kernels for 64 and 128 heads
  in 2025.3.1    a ring that bulk copies fill and mbarriers give back, as the rows for few heads are; wrong ones it
                 reports. 2026.4 reports every such ring as a race: 64 times in these kernels
  not seen       what wgmma and bulk copies read from shared memory: a race with that is never reported. The emulator
                 looks at it

Newer tools work with the driver of CUDA 13.0: pip install "nvidia-cuda-sanitizer-api>=13.5", then --sanitizer with the
path of its compute-sanitizer.
"""

from __future__ import annotations

import argparse
import functools
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
PLACE = re.compile(r" in (?P<place>\S+:\d+)(?: \[\d+ hazards\])?$")
SUMMARY = re.compile(r"^========= (?:ERROR|RACECHECK) SUMMARY: (?P<count>\d+)")


def run_cases(emulated: bool, every_lane: bool) -> int:
    """Run every case and say so line by line; how many were wrong."""
    import torch
    from _sanitizer_cases import cases

    from mlacademy import gpu, ops
    from mlacademy.ops import plan

    if every_lane:
        options = ["-DRACECHECK_ARRIVALS=32"]
        plan.compiled = functools.cache(lambda name: gpu.compile(plan.source(name), options=options))
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


def under(sanitizer: str, tool: str, log: Path | None, limit: float) -> tuple[list[dict[str, Any]], int]:
    """The cases under one tool: a row each, and the number of errors that the tool sums up to (-1: no summary)."""
    command = [sanitizer, *options_of(tool), sys.executable, __file__, "--cases"]
    if tool == "racecheck":
        command.append("--every-lane")
    environment = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    began = time.perf_counter()
    done = subprocess.run(
        ["timeout", str(limit), *command],
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
        if line.startswith("=====") and rows and rows[-1]["errors"] and (found := PLACE.search(line)):
            places = rows[-1].setdefault("places", [])
            places += [found["place"]] if found["place"] not in places else []
    return rows, total


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--emulator", action="store_true", help="on the emulator, without compute-sanitizer")
    options.add_argument("--cases", action="store_true", help="the cases alone, without a tool")
    options.add_argument("--every-lane", action="store_true", help="with --cases or --emulator: as racecheck gets them")
    options.add_argument("--sanitizer", default="compute-sanitizer", help="the program (default: %(default)s)")
    options.add_argument("--tool", action="append", choices=TOOLS, help="this tool only; may be repeated")
    options.add_argument("--limit", type=float, default=600, help="seconds that a tool may take (default: 600)")
    options.add_argument("--json", type=Path, help="where to write the result")
    options.add_argument("--log", type=Path, help="a folder for what the tools printed")
    args = options.parse_args()
    if args.cases or args.emulator:
        wrong = run_cases(args.emulator, args.every_lane)
        print(f"{wrong} cases were wrong")
        return int(wrong > 0)

    from _report import write

    rows, totals = [], {}
    for tool in args.tool or TOOLS:
        found, totals[tool] = under(args.sanitizer, tool, args.log, args.limit)
        rows += found
    for row in rows:
        if row["errors"] or not row["right"]:
            print(
                f"{row['tool']}, {row['case']}: {row['errors']} errors, right: {row['right']}, {row.get('first', '')}"
            )
    version = subprocess.run([args.sanitizer, "--version"], capture_output=True, text=True, check=True).stdout
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
