"""How fast are the attention kernels on a Hopper GPU, and are they right?

Every case is first checked on fresh random inputs: decode against float64 on the GPU, with NaN left where the outputs
come to lie; the scheduler and the append bit by bit. Then it is timed:

  ours       decode and append: calls over several input sets (together four times the L2 where possible) captured in
             one CUDA graph of at least 2 ms, 20 replays after a pause of 0.35 s, median, over the calls. A decode call
             is the decode kernel and combine, with metadata made before. The scheduler: the kernel's own time by
             CUPTI, with an 8 GB memset before each call, median of 12.
  sustained  the graph replayed without a pause for 0.8 s, median of the second half.
  peer       FlashMLA 9241ae3 on an NVIDIA H200, recorded 2026-11-30 by the same methods and data: copied, not measured.

Two ceilings of the card are measured in the same run: a large copy, and a bfloat16 product of 8192 cubed.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _attention_cases
import _table
import torch
from _attention_cases import CASES, Call, Case, Pool

PEER = "FlashMLA 9241ae3, NVIDIA H200, 2026-11-30; copied from that record, not measured in this run"


@dataclass(frozen=True)
class Effort:
    """How long to measure: ``quick`` gives numbers to look at, not to keep."""

    contexts: int = 192
    length: int = 32_768
    sets: int = 512
    replays: int = 20
    graph_us: float = 2_000
    pause: float = 0.35
    sustained: float = 0.8
    copy_bytes: int = 8 * 2**30
    flush_bytes: int = 8_000_000_000
    kernel_calls: int = 12


QUICK = Effort(32, 8_192, 8, 5, 500, 0.0, 0.1, 2**30, 2**30, 5)


class Graph:
    """Calls, one after the other, in a CUDA graph."""

    def __init__(self, calls: Sequence[Call], least_us: float) -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for call in calls:
                call()
        torch.cuda.synchronize()
        once = self._capture(calls, 1, stream)
        self.calls = len(calls)
        once.replay()
        rounds = max(1, round(least_us / elapsed_us(once.replay) + 0.5))
        self.calls *= rounds
        self.graph = once if rounds == 1 else self._capture(calls, rounds, stream)

    @staticmethod
    def _capture(calls: Sequence[Call], rounds: int, stream: torch.cuda.Stream) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(rounds):
                for call in calls:
                    call()
        return graph

    def burst_us(self, effort: Effort) -> float:
        """Microseconds a call, from a rested card."""
        time.sleep(effort.pause)
        for _ in range(3):
            self.graph.replay()
        return statistics.median(elapsed_us(self.graph.replay) for _ in range(effort.replays)) / self.calls

    def sustained_us(self, effort: Effort) -> float:
        """Microseconds a call, in the second half of a time without pauses."""
        began, marks = time.perf_counter(), [torch.cuda.Event(enable_timing=True)]
        marks[0].record()
        while time.perf_counter() - began < effort.sustained:
            self.graph.replay()
            marks.append(torch.cuda.Event(enable_timing=True))
            marks[-1].record()
            if len(marks) > 8:
                marks[-8].synchronize()  # a few replays ahead, no more
        torch.cuda.synchronize()
        times = [start.elapsed_time(end) * 1e3 for start, end in itertools.pairwise(marks)]
        return statistics.median(times[len(times) // 2 :]) / self.calls


def elapsed_us(call: Call) -> float:
    """Microseconds from the begin to the end of what ``call`` starts."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3


def kernel_us(call: Call, effort: Effort) -> float:
    """The time of the one kernel of ``call``, as CUPTI sees it, with the L2 full of something else before."""
    flush = torch.empty(effort.flush_bytes, dtype=torch.uint8, device="cuda")
    call()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profile:
        for _ in range(effort.kernel_calls):
            flush.zero_()
            call()
        torch.cuda.synchronize()
    times = [event.device_time for event in profile.events() if event.name == "schedule"]
    if len(times) != effort.kernel_calls:
        raise RuntimeError(f"the profiler saw {len(times)} of {effort.kernel_calls} launches of the kernel")
    return statistics.median(times)


def ceilings(effort: Effort) -> tuple[float, float]:
    """Bytes read and written a microsecond by a large copy, and TFLOP/s of a bfloat16 product of 8192 cubed."""
    _table.progress("copy bandwidth and a bf16 product")

    def us(call: Call) -> float:
        time.sleep(effort.pause)
        return statistics.median([elapsed_us(call) for _ in range(3 + effort.replays // 2)][3:])

    source = torch.randint(0, 256, (effort.copy_bytes,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    a, b = (torch.randn(8192, 8192, device="cuda").to(torch.bfloat16) for _ in range(2))
    return 2 * effort.copy_bytes / us(lambda: target.copy_(source)), 2 * 8192**3 / us(lambda: a @ b.T) / 1e6


def measure(case: Case, pool: Pool, effort: Effort, ours: dict[str, float], copied: float) -> dict[str, Any]:
    """One row."""
    _table.progress(case.name)
    prepared = case.prepare(case.name, pool, effort.sets)
    error = prepared.check()
    graph = Graph(prepared.calls, effort.graph_us)
    ours[case.name] = kernel_us(prepared.calls[0], effort) if prepared.by_kernel else graph.burst_us(effort)
    goal = case.goal(ours, prepared.bytes_moved, copied)
    return {
        "case": case.name,
        "ours_us": round(ours[case.name], 2),
        "peer_us": case.peer_us,
        "goal_us": None if goal is None else round(goal, 2),
        "sustained_us": round(graph.sustained_us(effort), 2),
        "max_rel_err": error,
    }


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as text; `ratio` is how many times faster than the peer."""

    def text(value: float | None, form: str = ".2f") -> str:
        return "–" if value is None else format(value, form)

    lines = [("case", "ours µs", "peer µs", "ratio", "goal µs", "met", "sustained µs", "error")]
    for row in rows:
        peer, goal = row["peer_us"], row["goal_us"]
        ratio = None if peer is None else peer / row["ours_us"]
        met = "–" if goal is None else "yes" if row["ours_us"] <= goal else "no"
        numbers = text(row["ours_us"]), text(peer), text(ratio), text(goal), met, text(row["sustained_us"])
        lines.append((row["case"], *numbers, text(row["max_rel_err"], ".1e")))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def driver() -> str:
    found = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True
    )
    return found.stdout.split("\n")[0].strip() or "unknown"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"by default all: {', '.join(c.name for c in CASES)}")
    parser.add_argument(
        "--output", "--json", type=Path, metavar="PATH", help="default: benchmarks/results/, for a whole run"
    )
    parser.add_argument(
        "--quick", action="store_true", help="a small cache and few repetitions: to look at, not to keep"
    )
    parser.add_argument("--commit", default=_table.commit(), help="for a copy of the tree without its repository")
    options = parser.parse_args()
    try:
        cases = list(_attention_cases.chosen(options.cases))
    except ValueError as error:
        parser.error(str(error))
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
        print("skipped: this needs a Hopper GPU (compute capability 9.0)")
        return 0
    torch.manual_seed(20)
    effort, card = QUICK if options.quick else Effort(), torch.cuda.get_device_name()
    copied, product = ceilings(effort)
    pool = Pool(effort.contexts, effort.length, _table.progress)
    rows, ours, wrong = [], {}, 0
    for case in cases:
        try:
            rows.append(measure(case, pool, effort, ours, copied))
        except AssertionError as error:  # a wrong result has no time; the other cases have
            print(f"{case.name} is wrong: {error}", file=sys.stderr)
            wrong += 1
    print(f"{card}: copy {copied / 1e3:.0f} GB/s, bf16 product {product:.0f} TFLOP/s")
    print(table(rows))
    print(f"peer: {PEER}")
    report = {
        "card": card,
        "driver": driver(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": options.commit,
        "torch": torch.__version__,
        "quick": options.quick,
        "copy_gb_per_s": round(copied / 1e3),
        "bf16_tflop_per_s": round(product),
        "peer": PEER,
        "method": (__doc__ or "").strip(),
        "rows": rows,
    }
    path = options.output
    if path is None and not options.quick and not options.cases:
        path = _table.RESULTS / f"attention-{re.sub(r'[^a-z0-9]+', '-', card.lower()).strip('-')}.json"
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"wrote {path}")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
