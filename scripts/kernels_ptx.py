"""Write the PTX that the package ships: the course's unmodified kernels, compiled for the machines without NVRTC.

python scripts/kernels_ptx.py           compile and write what has changed
python scripts/kernels_ptx.py --check   say what has drifted, and exit with 1 if anything has
"""

from __future__ import annotations

import argparse
import sys

from mlacademy.gpu.compiler import compile as compile_kernel
from mlacademy.gpu.compiler import fingerprint
from mlacademy.gpu.includes import header_layer
from mlacademy.gpu.nvrtc import identity
from mlacademy.gpu.shipped import FOLDER, file_name, mark

ARCHITECTURES = ("sm_90a",)


def wanted() -> dict[str, str]:
    """File name → contents, for every kernel and architecture."""
    compiler = identity()
    if compiler is None:
        raise SystemExit("this needs NVRTC: pip install 'mlacademy[kernels]'")
    version = compiler.split()[0].replace("nvidia-cuda-nvrtc=", "NVRTC ")
    files = {}
    for source in sorted(header_layer().glob("*.cu")):
        for arch in ARCHITECTURES:
            module = compile_kernel(source, arch=arch)
            first = mark(source.name, arch, fingerprint(source, arch=arch), version)
            files[file_name(source.name, arch)] = first + module.ptx
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
