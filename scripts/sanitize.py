"""Build the emulator with address and undefined-behaviour sanitizers and run its tests on that build.

    python scripts/sanitize.py [--jobs 2] [PYTEST ARGUMENT …]        default: tests/emulator tests/gpu

The build lies in build/sanitize and leaves the ordinary one alone. The sanitizers end the run at the first finding,
with a stack. Needs GCC or Clang, CMake and Ninja, on Linux.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "sanitize"
SHADOW = BUILD / "python"
INSIDE = "--inside"


def tool(name: str) -> str:
    """A program of this Python's environment, or of the system."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise SystemExit(f"{name} is not installed: make setup")
    return found


def build(jobs: int) -> None:
    import pybind11

    configure = [
        *(tool("cmake"), "-S", str(ROOT), "-B", str(BUILD), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"),
        *("-DMLACADEMY_SANITIZE=ON", f"-DPython_EXECUTABLE={sys.executable}"),
        f"-Dpybind11_DIR={pybind11.get_cmake_dir()}",
    ]
    if shutil.which("ccache"):
        configure.append("-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
    subprocess.run(configure, check=True)
    subprocess.run([tool("ninja"), "-C", str(BUILD), f"-j{jobs}", "_emulator"], check=True)


def shadow() -> None:
    """The package again, by links, with the sanitized module in place of the other."""
    package = SHADOW / "mlacademy"
    shutil.rmtree(SHADOW, ignore_errors=True)
    package.mkdir(parents=True)
    for item in (ROOT / "src" / "mlacademy").iterdir():
        if not item.name.startswith("_emulator.") or item.suffix == ".pyi":
            (package / item.name).symlink_to(item)
    (module,) = (BUILD / "kernels" / "emulator").glob("_emulator*.so")
    (package / module.name).symlink_to(module)


def runtime(name: str) -> str:
    found = subprocess.run(
        [os.environ.get("CXX", "g++"), f"-print-file-name={name}"], capture_output=True, text=True, check=True
    )
    return found.stdout.strip()


def inside(arguments: list[str]) -> int:
    """In the process with the sanitizers loaded: pytest on the shadow package."""
    import pytest

    # An editable install finds modules by a hook of its own, which comes before the path.
    sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in type(finder).__module__.lower()]
    sys.path.insert(0, str(SHADOW))
    from mlacademy import _emulator

    if not str(_emulator.__file__).startswith(str(BUILD / "kernels")) and str(SHADOW) not in str(_emulator.__file__):
        raise SystemExit(f"the tests would run on {_emulator.__file__}, which has no sanitizers")
    return int(pytest.main(arguments))


def main() -> int:
    if sys.argv[1:2] == [INSIDE]:
        return inside(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2, help="compilers at a time")
    options, chosen = parser.parse_known_args()
    build(options.jobs)
    shadow()
    environment = {
        **os.environ,
        "LD_PRELOAD": f"{runtime('libasan.so')} {runtime('libubsan.so')} {runtime('libstdc++.so')}",
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        "PYTHONMALLOC": "malloc",
    }
    arguments = chosen or ["tests/emulator", "tests/gpu"]
    command = [sys.executable, str(Path(__file__).resolve()), INSIDE, "-q", "-n0", *arguments]
    return subprocess.run(command, env=environment, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
