"""Does the emulator's tensor core give the bits of the GPU's?

Runs every wgmma shape on random and adversarial tiles and compares each output with the model. Prints a table, writes
benchmarks/results/mma-<card>.json, and exits with 1 where any output differs. Needs a GPU of compute capability 9.0.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from _driver import Gpu
from _model import Model
from _report import write
from _tiles import FLOAT_FAMILIES, INTEGER_FAMILIES, Maker, Tiles
from wgmma_ptx import HEADER, Shape, every_shape

WIDTH = {"f16": np.uint16, "bf16": np.uint16, "tf32": np.uint32}


def on_gpu(gpu: Gpu, kernel: Any, shape: Shape, tiles: Tiles) -> np.ndarray:
    """The GPU's outputs: uint32 [tiles, 64, n]."""
    count, steps = tiles.a.shape[:2]
    a, b = (
        gpu.upload(shape.core_matrices(codes.astype(WIDTH.get(kind, np.uint8))))
        for codes, kind in ((tiles.a, shape.a), (tiles.b, shape.b))
    )
    c = np.zeros((count, 64, shape.n), np.uint32) if tiles.c is None else tiles.c
    addend = gpu.upload(shape.pack(c))
    poison = gpu.upload(np.full((count, shape.registers, 128), 0xDEADBEEF, np.uint32))
    flags = (np.uint32(steps), np.uint32(tiles.c is not None))
    gpu.launch(kernel, grid=count, block=128, args=(a, b, addend, poison, *flags))
    out = gpu.download(poison, np.uint32, count * shape.registers * 128)
    gpu.free(a, b, addend, poison)
    return shape.unpack(out.reshape(count, shape.registers, 128))


def examples(shape: Shape, tiles: Tiles, got: np.ndarray, want: np.ndarray, most: int) -> list[dict[str, Any]]:
    """The first differing outputs with everything that went into them."""
    rows = []
    for tile, i, j in np.argwhere(got != want)[:most]:
        rows.append(
            {
                "family": tiles.family,
                "a": tiles.a[tile, :, i].tolist(),
                "b": tiles.b[tile, :, j].tolist(),
                "c": None if tiles.c is None else int(tiles.c[tile, i, j]),
                "gpu": int(got[tile, i, j]),
                "model": int(want[tile, i, j]),
            }
        )
    return rows


def run(gpu: Gpu, model: Model, shapes: list[Shape], outputs: int, seed: int, keep: int) -> list[dict[str, Any]]:
    kernels = gpu.load(HEADER + "".join(shape.kernel() for shape in shapes), [shape.name for shape in shapes])
    rows = []
    for number, shape in enumerate(shapes):
        began = time.perf_counter()
        maker = Maker(shape, np.random.default_rng([seed, number]), lambda a, b, c, s=shape: model.matrix(s, a, b, c))
        families = len(INTEGER_FAMILIES if shape.d == "s32" else FLOAT_FAMILIES)
        row: dict[str, Any] = {"shape": f"m64n{shape.n}k{shape.k}", "type": shape.opcode.split(".", 5)[5]}
        row |= {"negate": list(shape.negate), "outputs": 0, "mismatches": 0, "families": {}, "examples": []}
        for tiles in maker.families(-(-outputs // (families * 64 * shape.n))):
            got, want = on_gpu(gpu, kernels[shape.name], shape, tiles), model.matrix(shape, tiles.a, tiles.b, tiles.c)
            wrong = int(np.count_nonzero(got != want))
            row["outputs"] += got.size
            row["mismatches"] += wrong
            row["families"][tiles.family] = [got.size, wrong]
            row["examples"] += examples(shape, tiles, got, want, keep)
        rows.append(row)
        bad = {family: wrong for family, (_, wrong) in row["families"].items() if wrong}
        took = time.perf_counter() - began
        print(
            f"{row['shape']:>12} {row['type']:24} {row['outputs']:>9} {row['mismatches']:>8} {took:5.1f}s {bad or ''}"
        )
    return rows


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--outputs", type=int, default=1_000_000, help="at least so many for every shape and type")
    options.add_argument("--seed", type=int, default=20)
    options.add_argument("--only", default="", help="shapes whose kernel name contains this")
    options.add_argument("--examples", type=int, default=4, help="keep so many differing outputs of a family")
    options.add_argument(
        "--json", type=Path, help="where to write the result (default: benchmarks/results/mma-<card>.json)"
    )
    chosen = options.parse_args()
    gpu, model = Gpu(), Model()
    shapes = [shape for shape in every_shape() if chosen.only in shape.name]
    rows = run(gpu, model, shapes, chosen.outputs, chosen.seed, chosen.examples)
    total, wrong = (sum(row[key] for row in rows) for key in ("outputs", "mismatches"))
    print(f"{total:,} outputs, {wrong:,} differ")
    write("mma", chosen.json, {"title": "wgmma against the emulator's tensor core", "seed": chosen.seed}, rows)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
