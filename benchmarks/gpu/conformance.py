"""Does the emulator give what the GPU gives, row by row of the form table?

    python benchmarks/gpu/conformance.py prepare build/conformance.npz    where the emulator is built
    python benchmarks/gpu/conformance.py run build/conformance.npz        on a GPU; needs NumPy alone
    python benchmarks/gpu/conformance.py keep FOUND.json                  writes results/conformance-<card>.json

`prepare` makes kernels of up to twelve spellings of every row: rows that compute on registers run over 96 adversarial
and random operand tuples each (tests/emulator/conformance.py), the others in a small kernel each
(tests/emulator/minikernels.py). It keeps their PTX, their inputs and what the emulator gives. `run` loads the same PTX
on the GPU, in worker processes, since a kernel may end or stop its context, and compares bit by bit. `keep` adds the
rows that no kernel was made for, with the reason. Rows of tensor copies and of wgmma are compared by tma.py and mma.py.
"""

from __future__ import annotations

import argparse
import collections
import json
import multiprocessing
import subprocess
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
TESTS = HERE.parents[1] / "tests" / "emulator"
LIMIT = 12  # spellings of a row
PATIENCE = 20  # seconds for one kernel on the GPU
# What comes before an instruction that reads the condition code: every other thread has a carry or borrow.
CARRY = {
    **dict.fromkeys(("addc", "madc"), "and.b32 %t, %idx, 1; add.cc.u32 %t, %t, 0xffffffff; "),
    "subc": "and.b32 %t, %idx, 1; sub.cc.u32 %t, 0, %t; ",
}
ELSEWHERE = {
    **dict.fromkeys(("tensor_load", "tensor_store", "tensor_reduce", "map_replace", "map_copy"), "compared by tma.py"),
    **dict.fromkeys(("map_acquire", "map_release"), "runs inside the copies that tma.py compares"),
    **dict.fromkeys(("wgmma_mma", "wgmma_fence", "wgmma_commit", "wgmma_wait"), "compared by mma.py"),
    "mma": "compared by mma_sync.py",
    **dict.fromkeys(("tensor_prefetch", "prefetch_map"), "has no result"),
    **dict.fromkeys(("trap", "exit", "ret"), "ends the thread or the context; every kernel here ends so"),
}


def prepare(path: Path) -> None:
    """Make the kernels, run them on the emulator, keep everything in one file."""
    sys.path.insert(0, str(TESTS))
    from conformance import spellings
    from formtable import BITS, FORMS, sample, types_of
    from minikernels import MAKER_OF, mini
    from ptxrun import elementwise, run_elementwise
    from test_minikernels import inputs, run

    table: list[dict[str, Any]] = []
    kept: dict[str, np.ndarray] = {}
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=HERE, check=True
    )

    def keep(
        form: Any, mods: tuple[str, ...], text: str, ins: list[np.ndarray], outs: list[np.ndarray], **how: Any
    ) -> None:
        number = len(table)
        table.append(
            {"row": form.where, "spelling": ".".join([form.opcode, *(m for m in mods if m)]), "text": text, **how}
            | {"inputs": len(ins), "outputs": len(outs)}
        )
        kept.update({f"{number}/in{i}": array for i, array in enumerate(ins)})
        kept.update({f"{number}/out{i}": array for i, array in enumerate(outs)})

    for number, form in enumerate(FORMS):
        if form.handler in MAKER_OF:
            for mods in sample(form, LIMIT):
                kernel = mini(form, mods)
                if kernel is not None:
                    keep(
                        form,
                        mods,
                        kernel.text,
                        [inputs()],
                        [run(kernel, inputs())],
                        block=kernel.block,
                        grid=kernel.cluster,
                    )
        elif form.handler != "-" and form.handler not in ELSEWHERE and form.operands:
            plain = all(o.count == "" and o.type != "[]" for o in form.operands)
            for one in spellings(form, LIMIT) if plain and "b128" not in str(form.slots) else ():
                if any(BITS[kind] < 8 and kind != "pred" for kind in types_of(one.mods)) and form.opcode != "cvt":
                    continue
                line = CARRY.get(form.opcode, "") + one.line
                outs = run_elementwise(line, one.arrays, one.outputs)
                raw = [a.view(np.uint8) if a.dtype == bool else a for a in one.arrays]
                widths = [1 if a.dtype == bool else a.dtype.itemsize * 8 for a in one.arrays]
                keep(form, one.mods, elementwise(line, widths, one.outputs), raw, outs, block=128, grid=0)
        if number % 40 == 0:
            print(f"{number} of {len(FORMS)} rows, {len(table)} kernels", flush=True)
    kept["table"] = np.array(json.dumps({"commit": commit.stdout.strip(), "kernels": table}))
    np.savez_compressed(path, **kept)
    print(f"{len(table)} kernels in {path}, {path.stat().st_size / 1e6:.1f} MB")


def compare(gpu: Any, one: dict[str, Any], data: Any, number: int) -> dict[str, Any]:
    """Run one kernel on the GPU: `equal`, or how much differs and the first place of it."""
    ins = [data[f"{number}/in{i}"] for i in range(one["inputs"])]
    wanted = [data[f"{number}/out{i}"] for i in range(one["outputs"])]
    try:
        kernel = gpu.load(one["text"], ["k"])["k"]
    except RuntimeError as error:
        lines = [line for line in str(error).splitlines() if "error" in line]
        return {"outcome": "refused", "why": (lines or [str(error)])[0].split("; ")[-1][:160]}
    places = [gpu.upload(array) for array in ins]
    if one["grid"]:
        places.append(gpu.upload(np.full(wanted[0].size - ins[0].size, 0xEEEEEEEE, np.uint32)))
        gpu.launch(kernel, grid=one["grid"], block=one["block"], args=places)
        got = [np.concatenate([gpu.download(places[n], np.uint32, places[n].nbytes // 4) for n in (1, 0)])]
    else:
        count = len(wanted[0])
        places += [gpu.upload(np.full(count, 0xEE, array.dtype)) for array in wanted]
        gpu.launch(kernel, grid=(count + 127) // 128, block=128, args=[*places, np.uint32(count)])
        got = [gpu.download(place, array.dtype, count) for place, array in zip(places[len(ins) :], wanted, strict=True)]
    gpu.free(*places)
    wrong = [np.flatnonzero(a != b) for a, b in zip(got, wanted, strict=True)]
    total = sum(len(w) for w in wrong)
    if total == 0:
        return {"outcome": "equal"}
    which = next(i for i, w in enumerate(wrong) if len(w))
    at = int(wrong[which][0])
    operands = [] if one["grid"] else [hex(int(array[at])) for array in ins]
    example = {"at": at, "operands": operands, "gpu": hex(int(got[which][at])), "emulator": hex(int(wanted[which][at]))}
    return {"outcome": "differs", "elements": total, "of": sum(a.size for a in wanted), "first": example}


def work(pipe: Connection, path: Path, number: int) -> None:
    from _driver import Gpu

    gpu = Gpu()
    data = np.load(path)
    table = json.loads(str(data["table"]))["kernels"]
    pipe.send(gpu.name)
    for n in range(number, len(table)):
        pipe.send(n)
        pipe.send(compare(gpu, table[n], data, n))


def run(path: Path, target: Path) -> None:
    """Every kernel on the GPU; a worker that fails or hangs is replaced by one that goes on behind."""
    described = json.loads(str(np.load(path)["table"]))
    table = described["kernels"]
    results: list[dict[str, Any]] = [{"outcome": "not reached"} for _ in table]
    name, number = "", 0
    while number < len(table):
        ours, theirs = multiprocessing.Pipe()
        worker = multiprocessing.get_context("spawn").Process(target=work, args=(theirs, path, number), daemon=True)
        worker.start()
        theirs.close()
        try:
            while number < len(table):
                if not ours.poll(PATIENCE + 40 * (not name)):
                    results[number] = {"outcome": "hangs"}
                    break
                said = ours.recv()
                if isinstance(said, str):
                    name = said
                elif isinstance(said, int):
                    number = said
                else:
                    results[number] = said
                    number += 1
        except EOFError:
            results[number] = {"outcome": "fails"}
        worker.kill()
        worker.join()
        if number < len(table) and results[number]["outcome"] in ("hangs", "fails"):
            print(f"{table[number]['spelling']}: {results[number]['outcome']}", flush=True)
            number += 1
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    listed = [{"row": one["row"], "spelling": one["spelling"], **r} for one, r in zip(table, results, strict=True)]
    record = {"card": name, "driver": driver, "commit": described["commit"]}
    target.write_text(json.dumps({**record, "spellings": listed}) + "\n")
    print(collections.Counter(r["outcome"] for r in results))
    for one in listed:
        if one["outcome"] == "differs":
            print(f"{one['row']:20} {one['spelling']:60} {one['elements']} of {one['of']} {one['first']}")


def keep(found: Path) -> int:
    """One outcome for each row of the table, with the spellings that are not equal."""
    sys.path.insert(0, str(TESTS))
    from _report import write
    from formtable import FORMS

    record = json.loads(found.read_text())
    by_row: dict[str, list[dict[str, Any]]] = collections.defaultdict(list)
    for one in record.pop("spellings"):
        by_row[one.pop("row")].append(one)
    rows = []
    for form in FORMS:
        ran = [one for one in by_row[form.where] if one["outcome"] not in ("refused", "not reached")]
        bad = [one for one in ran if one["outcome"] != "equal"]
        row: dict[str, Any] = {"row": form.where, "opcode": form.opcode, "spellings": len(ran)}
        if bad:
            row |= {"outcome": "differs", "differing": bad}
            if all("approx" in one["spelling"] or "full" in one["spelling"] for one in bad):
                row["why"] = "an approximate function: approx-nvidia-h200.json has the largest error"
        elif ran:
            row |= {"outcome": "equal"}
        elif by_row[form.where]:
            row |= {"outcome": "not run", "why": f"ptxas: {by_row[form.where][0].get('why', '')}"}
        elif form.handler == "-":
            row |= {"outcome": "not run", "why": "refused by name: not an instruction of sm_90a, or not supported"}
        else:
            other = (
                "needs multicast memory of several GPUs" if form.opcode == "multimem" else "no kernel was made for it"
            )
            row |= {"outcome": "not run", "why": ELSEWHERE.get(form.handler, other)}
        rows.append(row)
    counts = collections.Counter(row["outcome"] for row in rows)
    about = {"emulator_commit": record["commit"], "rows_of_the_table": len(rows), "outcomes": dict(counts)}
    about["spellings_compared"] = sum(row["spellings"] for row in rows)
    write("conformance", None, about, rows, gpu=(record["card"], record["driver"]))
    print(dict(counts))
    return 1 if counts["differs"] else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["prepare", "run", "keep"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--out", type=Path, default=Path("conformance.json"), help="where `run` writes what it found")
    options = parser.parse_args()
    if options.what == "prepare":
        prepare(options.file)
    elif options.what == "run":
        run(options.file, options.out)
    else:
        return keep(options.file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
