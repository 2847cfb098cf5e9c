"""How long does a decode step take on the emulator?

Schedule, decode and combine at DeepSeek-V3.2's sizes, b = 2 and 128 heads, by `mlacademy.ops` on the emulator: the
first article's lists of 128 entries and real ones of 2048, with bounds checks alone and with the search for races.
Kernels are compiled before. Prints seconds beside the goals, and keeps
benchmarks/results/decode-emulator-<machine>.json.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from _table import Row, finish, machine, measure, parser, progress

from mlacademy import cache, ops

GOALS = (  # entries of a list; what is checked besides bounds; seconds
    (128, (), 1.0),
    (128, ("race",), None),
    (2048, (), 6.0),
    (2048, ("race",), 30.0),
    (2048, ("all",), None),
)


def call(topk: int) -> dict[str, Any]:
    """The arguments of one decode."""
    generator, slots = torch.Generator().manual_seed(topk), 64 * 64
    kv = cache.new_cache(cache.V32, 64, 64)
    latents = torch.randn(slots, 576, generator=generator)
    cache.append(kv, torch.arange(slots), latents[:, :512], latents[:, 512:], cache.V32)
    return {
        "q": torch.randn(2, 1, 128, 576, generator=generator).bfloat16(),
        "kv_cache": kv,
        "indices": torch.randint(0, slots, (2, 1, topk), generator=generator, dtype=torch.int32),
    }


def main() -> int:
    options = parser(__doc__ or "", "decode-emulator")
    options.add_argument("--runs", type=int, default=3, help="runs of each case (default: 3)")
    args = options.parse_args()
    about, rows = {"machine": machine()}, []
    for topk, check, goal in GOALS:
        what = f"b=2, h=128, topk={topk}, {' and '.join(('bounds', *check))}"
        progress(what)
        arguments = call(topk)
        with ops.on("emulator", check=check):
            times = measure(lambda arguments=arguments: ops.sparse_decode(**arguments), runs=args.runs)
        rows.append(Row(what, times.median, None, "", "s", goal, {"ours": times}))
    return finish("Decode steps on the emulator", rows, args.json, about=about)


if __name__ == "__main__":
    sys.exit(main())
