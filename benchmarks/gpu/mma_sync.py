"""Do mma.sync and wgmma's descriptors give on the emulator what they give on a GPU?

On a GPU, `mma_sync.py record FILE` keeps the outputs of every mma.sync form on random tiles, and those of wgmma with
random descriptors: layouts, swizzles, transposes, starts inside the swizzle's pattern, base offsets. Elsewhere,
`mma_sync.py compare FILE` runs the same PTX on the emulator and writes benchmarks/results/mma-sync-<card>.json: per
form or kind of descriptor, outputs and mismatches. Exits with 1 where anything differs that the emulator runs.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "emulator"))
from _report import card, write
from mma_ptx import FORMS, HEADER, MmaForm, tiles
from wgmma_ptx import Form, Place, kernel, plain_body

SMEM, TILES, CASES = 49152, 24, 8


def descriptor_cases() -> list[tuple[str, Form, Place | None, Place]]:
    """(kind, form, A, B): what the layout tables say, and what they leave open."""
    out: list[tuple[str, Form, Place | None, Place]] = []
    rng = np.random.default_rng(1)
    bf16 = Form("f32", "bf16", "bf16", 32)
    kinds = [bf16, Form("f32", "f16", "f16", 16), Form("f32", "tf32", "tf32", 24), Form("f32", "e4m3", "e5m2", 40),
             Form("s32", "s8", "u8", 32), Form("s32", "b1", "b1", 16)]  # fmt: skip
    free = Place(20480, 16, 1024, 128)
    for form in kinds:
        out.append((f"registers {form.a}", replace(form, rs=True), None, free))
        for span in (0, 32, 64, 128):
            for _ in range(3):
                odd = [int(x) * 16 for x in rng.integers(1, 90, 4)]
                steps = [8 * span * int(x) if span else odd[n] for n, x in enumerate(rng.integers(1, 3, 4))]
                start = 32 * int(rng.integers(max(span // 32, 1)))
                places = (Place(start, odd[0], steps[1], span), Place(20480 + start, odd[2], steps[3], span))
                out.append((f"K-major, swizzle {span}, {form.a}", form, *places))
                if span:  # groups of rows that do not begin where the pattern does
                    places = (Place(start, 16, odd[1], span), Place(20480 + start, 16, odd[3], span))
                    out.append((f"K-major, swizzle {span}, stride off the pattern", form, *places))
    for span in (0, 32, 64, 128):
        for transpose in ((True, False), (False, True), (True, True)):
            for _ in range(3):
                odd = [int(x) * 16 for x in rng.integers(1, 90, 4)]
                steps = [8 * span * int(x) if span else odd[n] for n, x in enumerate(rng.integers(1, 3, 4))]
                places = [Place(0, steps[0], steps[1], span), Place(20480, steps[2], steps[3], span)]
                form = replace(bf16, transpose=transpose)
                out.append((f"MN-major, swizzle {span}", form, *places))
    for span in (32, 64, 128):
        for row in (1, 2, 3, 5, 7):
            for base in range(8):
                place = Place(row * span, 16, 8 * span, span, base)
                out.append((f"start in row {row} of swizzle {span}, base {base}", bf16, place, free))
    return out


def mma_inputs(form: MmaForm) -> dict[str, np.ndarray]:
    cases = [tiles(form, TILES, seed) for seed in range(CASES)]
    return {name: np.concatenate([case[name] for case in cases]) for name in "abc"}


def image(case: int) -> np.ndarray:
    return np.random.default_rng(1000 + case).integers(0, 256, SMEM, dtype=np.uint8) & np.uint8(0xBF)


def wgmma_inputs(form: Form, case: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(case)
    c = rng.integers(0, 1 << 32, (form.registers, 128), dtype=np.uint32) & np.uint32(0x3FFFFFFF)
    return image(case), rng.integers(0, 1 << 32, (4, 128), dtype=np.uint32) & np.uint32(0xBFBFBFBF), c


def record(path: Path) -> None:
    from _driver import Gpu

    gpu = Gpu()
    kept: dict[str, np.ndarray] = {}
    for form in FORMS:
        found = gpu.load(HEADER + form.kernel(), [form.name])[form.name]
        inputs = mma_inputs(form)
        out = gpu.upload(np.full_like(inputs["c"], 0xEE))
        blocks = [gpu.upload(inputs[name]) for name in "abc"]
        gpu.launch(found, grid=TILES * CASES, block=32, args=(*blocks, out))
        kept[form.name] = gpu.download(out, inputs["c"].dtype, inputs["c"].size).reshape(inputs["c"].shape)
    loaded: dict[Form, Any] = {}
    for number, (_, form, a, b) in enumerate(descriptor_cases()):
        if form not in loaded:
            loaded[form] = gpu.load(HEADER + kernel(form, plain_body(form), smem=SMEM), ["k"])["k"]
        smem, fragments, c = wgmma_inputs(form, number)
        out = gpu.upload(np.full_like(c, 0xEE))
        args = (gpu.upload(smem), gpu.upload(fragments), gpu.upload(c), out)
        bits = (np.uint64(0 if a is None else a.bits), np.uint64(b.bits), np.uint32(1))
        gpu.launch(loaded[form], grid=1, block=128, args=(*args, *bits))
        kept[f"wgmma{number}"] = gpu.download(out, np.uint32, c.size).reshape(c.shape)
    np.savez_compressed(path, card=np.array(json.dumps(card())), **kept)
    print(f"kept {len(kept)} results in {path}")


def on_emulator(text: str, args: tuple[Any, ...], out: np.ndarray, **options: Any) -> str:
    """Empty, or why the emulator refuses."""
    from ptxrun import launch

    try:
        launch(text, *args[:3], out, *args[3:], **options)
    except Exception as error:  # its words are the result
        return str(error).splitlines()[0][:200]
    return ""


def compare(path: Path, target: Path | None) -> int:
    kept = np.load(path)
    name, driver = json.loads(str(kept["card"]))
    rows: dict[str, dict[str, Any]] = {}
    for form in FORMS:
        inputs = mma_inputs(form)
        got = np.zeros_like(inputs["c"])
        refused = on_emulator(HEADER + form.kernel(), tuple(inputs[n] for n in "abc"), got, grid=(TILES * CASES, 1, 1))
        add(rows, form.opcode, got, kept[form.name], refused)
    for number, (kind, form, a, b) in enumerate(descriptor_cases()):
        smem, fragments, c = wgmma_inputs(form, number)
        got = np.zeros_like(c)
        args = (smem, fragments, c, 0 if a is None else a.bits, b.bits, 1)
        refused = on_emulator(kernel(form, plain_body(form), smem=SMEM), args, got, block=(128, 1, 1))
        add(rows, f"wgmma: {kind}", got, kept[f"wgmma{number}"], refused)
    for row in rows.values():
        print(row)
    write("mma-sync", target, {"question": __doc__.splitlines()[0]}, list(rows.values()), gpu=(name, driver))
    return int(any(row["mismatches"] for row in rows.values()))


def add(rows: dict[str, dict[str, Any]], kind: str, got: np.ndarray, want: np.ndarray, refused: str) -> None:
    row = rows.setdefault(kind, {"kind": kind, "outputs": 0, "mismatches": 0})
    if refused:
        row["refused"] = refused
        return
    row["outputs"] += got.size
    row["mismatches"] += int(np.count_nonzero(got != want))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["record", "compare"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--out", type=Path, help="where to write the results")
    args = parser.parse_args()
    if args.what == "record":
        record(args.file)
        return 0
    return compare(args.file, args.out)


if __name__ == "__main__":
    sys.exit(main())
