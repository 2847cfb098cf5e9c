"""Write the PTX that the package ships: the course's unmodified kernels, compiled for the machines without NVRTC.

These are the files of kernels/cuda and its folders, and the kernels in cells of lessons that have the tag "kernel": a
string assigned to NAME is compiled there as NAME.cu.

python scripts/kernels_ptx.py           compile and write what has changed
python scripts/kernels_ptx.py --check   say what has drifted, and exit with 1 if anything has
"""

from __future__ import annotations

import argparse
import ast
import sys
from pathlib import Path

from mlacademy import notebooks
from mlacademy.gpu.compiler import compile as compile_kernel
from mlacademy.gpu.compiler import fingerprint
from mlacademy.gpu.includes import header_layer
from mlacademy.gpu.nvrtc import identity
from mlacademy.gpu.shipped import FOLDER, file_name, mark

ARCHITECTURES = ("sm_90a",)
LESSONS = Path(__file__).resolve().parents[1] / "lessons"


def sources() -> dict[str, Path | str]:
    """Name → the file, or the text of a lesson's cell."""
    found: dict[str, Path | str] = {path.name: path for path in header_layer().rglob("*.cu")}
    for chapter in sorted(LESSONS.glob("[0-9][0-9]_*.ipynb")):
        for cell in notebooks.read(chapter)["cells"]:
            if "kernel" not in cell["metadata"].get("tags", []):
                continue
            for name, text in kernels_in(notebooks.source(cell)).items():
                if found.setdefault(f"{name}.cu", text) != text:
                    raise SystemExit(f"{chapter.name} has a kernel {name} that differs from another one of that name")
    return found


def kernels_in(cell: str) -> dict[str, str]:
    """The strings with a kernel that a cell assigns, by name."""
    found = {}
    for node in ast.parse(cell).body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.targets[0], ast.Name)
        ):
            text = node.value.value
            if isinstance(text, str) and "__global__" in text:
                found[node.targets[0].id] = text
    return found


def wanted() -> dict[str, str]:
    """File name → contents, for every kernel and architecture."""
    compiler = identity()
    if compiler is None:
        raise SystemExit("this needs NVRTC: pip install 'mlacademy[kernels]'")
    version = compiler.split()[0].replace("nvidia-cuda-nvrtc=", "NVRTC ")
    files = {}
    for name, source in sorted(sources().items()):
        for arch in ARCHITECTURES:
            module = compile_kernel(source, arch=arch, name=name)
            first = mark(name, arch, fingerprint(source, arch=arch, name=name), version)
            files[file_name(name, arch)] = first + module.ptx
    return files


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--check", action="store_true", help="write nothing")
    check = options.parse_args().check
    files = wanted()
    present = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.ptx")}
    drifted = sorted(name for name in {*files, *present} if files.get(name) != present.get(name))
    for name in drifted:
        print(
            f"{name}: {'stale' if name in files and name in present else 'missing' if name in files else 'left over'}"
        )
    if check:
        return 1 if drifted else 0
    FOLDER.mkdir(exist_ok=True)
    for name in drifted:
        if name in files:
            (FOLDER / name).write_text(files[name], encoding="utf-8")
        else:
            (FOLDER / name).unlink()
    print(f"{len(files)} files in {FOLDER.name}/, {len(drifted)} changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
