"""Do the emulator's tensor copies give the bytes of the GPU's?

On a GPU, `tma.py record FILE` runs random tensor copies and keeps what they gave; elsewhere, `tma.py compare FILE` runs
the same copies on the emulator and writes benchmarks/results/tma-<card>.json: per kind of copy how many there were, how
many differed, and what a GPU does with copies that break a rule. Exits with 1 where anything differs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "emulator"))
from _report import card, write
from _tma_cases import BROKEN, Case, cases

from mlacademy.gpu import Device


def outcome(device: Device, case: Case) -> dict[str, Any]:
    """The bytes that a case leaves in the tensor and in shared memory, or why it was refused."""
    try:
        tensor, shared = case.run(device)
    except Exception as error:  # what refuses differs between devices: the driver, the GPU, the emulator
        return {"refused": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
    return {"tensor": tensor, "shared": shared}


def group(case: Case) -> str:
    """Cases that run in one process on the GPU: what goes wrong in one may end the others of its group."""
    return "linear" if case.kind.startswith("linear") else case.kind


def part(name: str, path: Path) -> None:
    """Run one group on the GPU and keep what it gives."""
    device = Device("cuda")
    kept: dict[str, np.ndarray] = {}
    for case in cases():
        if group(case) == name:
            for what, value in outcome(device, case).items():
                kept[f"{case.name}/{what}"] = np.array(value)
    np.savez(path, **kept)


def record(path: Path) -> None:
    """Run everything on the GPU; what breaks a rule runs in a process of its own, as it may end the context."""

    def call(*words: str) -> str:
        command = [sys.executable, __file__, *words]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
        return ((ended.stdout or ended.stderr).strip().splitlines() or [""])[-1]

    groups = sorted({group(case) for case in cases()})
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda name: call("part", name, "--out", f"{folder}/{name}.npz"), groups))
        kept = {name: value for file in Path(folder).iterdir() for name, value in np.load(file).items()}
        broken = dict(zip(BROKEN, pool.map(lambda name: call("probe", name), BROKEN), strict=True))
    name, driver = card()
    about = {"card": name, "driver": driver, "broken": broken}
    np.savez_compressed(path, about=np.frombuffer(json.dumps(about).encode(), np.uint8), **kept)
    print(f"kept {len(kept) // 2} copies, and {len(broken)} broken ones, in {path}")


def compare(path: Path, target: Path | None) -> int:
    """Run everything on the emulator and compare."""
    kept = np.load(path)
    about = json.loads(kept["about"].tobytes())
    device = Device("emulator")
    rows: dict[str, dict[str, Any]] = {}
    for case in cases():
        row = rows.setdefault(case.kind, {"kind": case.kind, "copies": 0, "different": 0, "refused": 0, "examples": []})
        row["copies"] += 1
        got = outcome(device, case)
        if f"{case.name}/tensor" not in kept:
            row["refused"] += 1
            row["refused_because"] = str(kept.get(f"{case.name}/refused", "not recorded"))
            continue
        wrong = case.differences(got, kept[f"{case.name}/tensor"], kept[f"{case.name}/shared"])
        row["different"] += bool(wrong)
        if wrong and len(row["examples"]) < 3:
            row["examples"].append(f"{case.name} {case.copy}: {wrong}")
    for name, case in BROKEN.items():
        got = outcome(device, case)
        emulator = got.get("refused", "ran")
        gpu = about["broken"][name]
        # The emulator may refuse what a GPU forgives; its tensor maps know no architecture, the driver's do.
        worse = gpu != "ran" and emulator == "ran" and not name.endswith("of Blackwell")
        rows[name] = {"kind": name, "gpu": gpu, "emulator": emulator, "different": int(worse)}
    for row in rows.values():
        print({key: value for key, value in row.items() if key != "examples"})
        for example in row.get("examples", []):
            print("   ", example)
    about_run = {"question": __doc__.splitlines()[0]}
    write("tma", target, about_run, list(rows.values()), gpu=(about["card"], about["driver"]))
    return int(any(row["different"] for row in rows.values()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["record", "compare", "probe", "part"])
    parser.add_argument("name", help="the file of recorded copies; the name of a part")
    parser.add_argument("--out", type=Path, help="where to write the results")
    args = parser.parse_args()
    if args.what == "record":
        record(Path(args.name))
        return 0
    if args.what == "probe":
        print(outcome(Device("cuda"), BROKEN[args.name]).get("refused", "ran"))
        return 0
    if args.what == "part":
        part(args.name, args.out)
        return 0
    return compare(Path(args.name), args.out)


if __name__ == "__main__":
    sys.exit(main())
