"""Do the emulator's scalar conversions and arithmetic give the bits of the GPU's?

Each opcode runs on the GPU on every value of its operand (16 and 32 bits), or on 2^27 random and adversarial operand
tuples, and the model is compared result by result. `approx.py` does the same for the .approx functions.
Prints a table, writes benchmarks/results/convert-<card>.json, exits with 1 where a result differs.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from _driver import Gpu, Memory
from _model import Comparison, Model
from _report import write
from scalar_ptx import BLOCK, HEADER, Op

CHUNK = 1 << 28
RANDOM = 1 << 27
# 32-bit operands of which one in SPARSE runs, 2^28 in all: the rounding is that of forms that run on every value.
SAMPLED = re.compile(r"cvt\.r.i\.[su](8|16|64)|cvt\.r.\.b?f16\.s32|sqrt\.r.\.|rcp\.r.\.")
SPARSE = 16


def hard_values(rng: np.random.Generator, bits: int, count: int) -> np.ndarray:
    """Random bit patterns, half of them near the middle of the exponents; short mantissas and specials among them."""
    dtype = {16: np.uint16, 32: np.uint32, 64: np.uint64}[bits]
    mantissa = {16: 10, 32: 23, 64: 52}[bits]
    values = rng.integers(0, 2**bits, count, dtype=dtype)
    kind = rng.integers(0, 8, count, dtype=np.uint8)
    exponent = dtype((1 << (bits - 1)) - (1 << mantissa))
    middle = dtype(((1 << (bits - 2 - mantissa)) - 1) << mantissa)
    near = (values & ~exponent) | (
        middle + ((values >> dtype(3)) % dtype(32) << dtype(mantissa)) - dtype(16 << mantissa)
    )
    values = np.where(kind < 4, near, values)
    short = values & ~dtype((1 << (mantissa // 2)) - 1)
    values = np.where((kind == 4) | (kind == 3), short, values)
    special = np.array(
        [0, 1 << (bits - 1), int(exponent), int(exponent) | 1 << (bits - 1), int(exponent) + 1, 1, int(middle)], dtype
    )
    return np.where((kind == 5) & (values % dtype(4) == 0), rng.choice(special, count), values)


@dataclass(frozen=True)
class Chunk:
    """Operands of `count` results. Operand a is `base + i` where its array is None."""

    base: int
    count: int
    arrays: tuple[np.ndarray | None, ...]


def almost_cancel(rng: np.random.Generator, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """c, and in a quarter of the places minus the f32 product a · b, a few units in the last place off."""
    with np.errstate(all="ignore"):
        product = (a.view(np.float32) * b.view(np.float32)).view(np.uint32)
    near = (product ^ np.uint32(1 << 31)) + rng.integers(0, 3, a.size, dtype=np.uint32)
    return np.where(rng.random(a.size, np.float32) < 0.25, near, c)


class Operands:
    """The operand chunks of every signature, made once."""

    def __init__(self, seed: int, share: int) -> None:
        self.seed, self.share = seed, share
        self._random: dict[tuple[int, ...], list[Chunk]] = {}

    def chunks(self, op: Op) -> list[Chunk]:
        """All values of a 16- or 32-bit operand (beside a random one for pairs of conversions), or random tuples."""
        single = len(op.operands) == 1 or op.opcode.startswith("cvt.")
        if not single or op.operands[0] > 32:
            if op.operands not in self._random:
                with ThreadPoolExecutor(8) as pool:
                    self._random[op.operands] = list(pool.map(lambda n: self._make(op.operands, n), range(4)))
            return self._random[op.operands]
        total = 1 << op.operands[0]
        size = min(CHUNK, total)
        beside: tuple[np.ndarray, ...] = ()
        if len(op.operands) == 2:
            beside = (np.resize(hard_values(np.random.default_rng(self.seed), op.operands[1], 1 << 24), size),)
        share = self.share * (SPARSE if SAMPLED.match(op.opcode) else 1)
        count = size if total <= CHUNK else size // share
        return [Chunk(base, count, (None, *(x[:count] for x in beside))) for base in range(0, total, size)]

    def _make(self, bits: tuple[int, ...], number: int) -> Chunk:
        rng = np.random.default_rng([self.seed, number, *bits])
        count = RANDOM // 4 // self.share
        arrays = [hard_values(rng, width, count) for width in bits]
        if bits == (32, 32, 32):
            arrays[2] = almost_cancel(rng, *arrays)
        return Chunk(0, count, tuple(arrays))


class Runner:
    """Runs opcodes on the GPU and compares."""

    def __init__(self, gpu: Gpu, model: Model, operands: Operands) -> None:
        self.gpu, self.model, self.operands = gpu, model, operands
        self.host = gpu.pinned(8 * CHUNK // 2)
        self.out = gpu.empty(8 * CHUNK // 2)

    def compare(self, op: Op, kernel: Any) -> Iterator[tuple[int, Comparison]]:
        for chunk in self.operands.chunks(op):
            blocks = [np.uint64(0) if array is None else self.gpu.upload(array) for array in chunk.arrays]
            blocks += [np.uint64(0)] * (3 - len(blocks))
            args = (*blocks, self.out, np.uint64(chunk.base), np.uint64(chunk.count))
            self.gpu.launch(kernel, grid=-(-chunk.count // BLOCK), block=BLOCK, args=args)
            got = self.host[: chunk.count * op.result // 8]
            self.gpu.download_into(self.out, got)
            self.gpu.free(*(block for block in blocks if isinstance(block, Memory)))
            yield chunk.count, self.model.compare(op, got, base=chunk.base, operands=chunk.arrays)

    def row(self, op: Op, kernel: Any) -> dict[str, Any]:
        began = time.perf_counter()
        row: dict[str, Any] = {"opcode": op.opcode, "outputs": 0, "mismatches": 0, "nan_mismatches": 0}
        row |= {"every_value": False, "largest_ulp": 0, "ulp": {}, "examples": []}
        for count, found in self.compare(op, kernel):
            row["outputs"] += count
            row["mismatches"] += found.mismatches
            row["nan_mismatches"] += found.unlike
            row["largest_ulp"] = max(row["largest_ulp"], found.largest, key=abs)
            for distance, number in found.histogram.items():
                row["ulp"][distance] = row["ulp"].get(distance, 0) + number
            row["examples"] = (row["examples"] + [[f"{x:#x}" for x in e] for e in found.examples])[:4]
        worst = f"{row['largest_ulp']} ulp" if row["mismatches"] and op.result == 32 else ""
        row["every_value"] = len(op.operands) == 1 and row["outputs"] == 1 << op.operands[0]
        took = time.perf_counter() - began
        print(f"{op.opcode:36} {row['outputs']:>11} {row['mismatches']:>11} {worst:>12} {took:5.1f}s", flush=True)
        return row


def main(kind: str = "convert", wanted: Callable[[Op], bool] = lambda op: ".approx" not in op.opcode) -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seed", type=int, default=20)
    options.add_argument("--share", type=int, default=1, help="a trial run on one part in this many")
    options.add_argument("--only", default="", help="opcodes that contain this")
    options.add_argument(
        "--json", type=Path, help=f"where to write the result (default: benchmarks/results/{kind}-<card>.json)"
    )
    chosen = options.parse_args()
    gpu, model = Gpu(), Model()
    ops = [op for op in model.ops if wanted(op) and chosen.only in op.opcode]
    kernels = gpu.load(HEADER + "".join(op.kernel() for op in ops), [op.name for op in ops])
    runner = Runner(gpu, model, Operands(chosen.seed, chosen.share))
    rows = [runner.row(op, kernels[op.name]) for op in ops]
    wrong = sum(row["mismatches"] > 0 for row in rows)
    print(f"{len(rows)} opcodes, {sum(row['outputs'] for row in rows):,} results; {wrong} opcodes differ somewhere")
    write(kind, chosen.json, {"title": "scalar opcodes against the emulator's arithmetic", "seed": chosen.seed}, rows)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
