"""Make the course's environment in .venv/, or bring it up to date; `make setup` calls this through scripts/setup.sh.

    python3 scripts/setup_environment.py [--torch cpu|default]

Standard library only. What was done is noted in .venv/mlacademy-setup.json under hashes of what it was done from:
the declared packages and their constraints, and the sources of the native module. A second run with the same hashes
changes nothing; an environment that is broken, half made or moved is mended or made again.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 (older interpreters get this far and should hear why they are refused)
    sys.exit(f"MLAcademy needs Python 3.11 or newer; this is {sys.version.split()[0]} ({sys.executable}).")

import argparse
import collections
import contextlib
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import threading
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from mlacademy import machine  # noqa: E402 (from this clone; it imports nothing but the standard library)

VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "mlacademy-setup.json"
BUILD = ROOT / "build"
LOG = BUILD / "setup.log"
CONSTRAINTS = ROOT / "requirements" / "constraints.txt"

CPU_TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
"""PyTorch's own index of builds without CUDA libraries; used when TORCH=cpu is asked for on Linux."""

DOWNLOAD_GB = {"cpu": 0.6, "default": 3.1}
"""Sizes of the wheels for Python 3.11 on x86-64 Linux, added up for constraints.txt: 267 MB without torch, 192 MB for
torch's CPU build, 2,734 MB for torch with CUDA libraries."""
DISK_GB = {"cpu": 3.0, "default": 9.5}
"""What the environment takes when installed (2.3 and 7.8 GB measured), with room for pip to unpack."""


_OFFLINE = ("NewConnectionError", "NameResolutionError", "Could not fetch URL", "ProxyError", "from versions: none")


class SetupError(Exception):
    """The environment cannot be made; the message is one sentence that says why and what to do."""


class Steps:
    """Numbered steps with elapsed time; each runs commands and shows what they are at."""

    def __init__(self, count: int) -> None:
        self._count, self._number, self._live = count, 0, sys.stdout.isatty()
        self._last, self._started = "", time.monotonic()

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[None]:
        self._number += 1
        label, over, begun = f"[{self._number}/{self._count}] {title}", threading.Event(), time.monotonic()
        self._last = ""
        if not self._live:
            print(label, flush=True)

        def show() -> None:
            while not over.wait(0.5 if self._live else 20):
                seconds = f"{time.monotonic() - begun:.0f} s"
                if self._live:
                    line = f"{label} … {seconds} {self._last}"
                    width = shutil.get_terminal_size().columns - 1
                    print(f"\r{line[:width]:<{width}}", end="", flush=True)
                else:
                    print(f"      … {seconds} {self._last}".rstrip(), flush=True)

        shower = threading.Thread(target=show, daemon=True)
        shower.start()
        failed = True
        try:
            yield
            failed = False
        finally:
            over.set()
            shower.join()
            end = f"{'failed after' if failed else 'done in'} {time.monotonic() - begun:.1f} s"
            print(f"\r\033[K{label}: {end}" if self._live else f"      {end}", flush=True)

    def run(self, *command: str) -> None:
        """Run a command, its output going to the log; raises ``SetupError`` when it fails."""
        environment, tail, refused = _clean_environment(), collections.deque[str](maxlen=15), ""
        with LOG.open("a", encoding="utf-8") as log:
            print(f"\n$ {' '.join(command)}", file=log, flush=True)
            with subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            ) as child:
                try:
                    for line in child.stdout or ():
                        log.write(line)
                        tail.append(line.strip())
                        refused = refused or (line.strip() if ": error: " in line else "")
                        self._last = self._last if line.startswith("WARNING") else line.strip()[:100]
                except BaseException:
                    child.terminate()
                    raise
        if child.returncode != 0:
            told = refused or next((line for line in reversed(tail) if line.lower().startswith("error")), "")
            offline = any(word in line for line in tail for word in _OFFLINE)
            hint = "Is there a connection to the package index?" if offline else ""
            again = "" if refused else "Run it again to go on where it stopped."
            words = (f"`{' '.join(command[:4])} …` failed.", told, hint, f"The whole log: {LOG}.", again)
            raise SetupError(" ".join(word for word in words if word))

    def close(self) -> None:
        print(f"The environment is ready: {time.monotonic() - self._started:.0f} s in all.", flush=True)


def _clean_environment() -> dict[str, str]:
    """The user's environment without what would lead another Python's modules into ours."""
    return {key: value for key, value in os.environ.items() if key not in ("PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV")}


# -- what the environment is made from ---------------------------------------------------------------------------


def _project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def requirements() -> list[str]:
    """Everything pyproject.toml declares, in all extras, and what building the native module needs."""
    project = _project()
    extras = project["project"]["optional-dependencies"].values()
    declared = [*project["project"]["dependencies"], *(name for extra in extras for name in extra)]
    return sorted({*declared, *project["build-system"]["requires"]})


def _key(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def packages_key() -> str:
    """Changes when the declared packages or their constraints do."""
    return _key(requirements(), CONSTRAINTS.read_text(encoding="utf-8"))


def native_key() -> str:
    """Changes when the native module must be built again, or when a module of the package came or went."""
    sources = [ROOT / "CMakeLists.txt"]
    for pattern in ("CMakeLists.txt", "*.cmake", "*.cpp", "*.hpp", "*.h"):
        sources += (ROOT / "kernels").rglob(pattern)
    texts = [(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")) for path in sorted(sources)]
    modules = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "src").rglob("*.py"))
    project = _project()
    return _key(texts, modules, project["build-system"], project["tool"]["scikit-build"], project["project"]["scripts"])


def _constrained(name: str) -> str:
    found = re.search(rf"^{name}==([^\s;]+)", CONSTRAINTS.read_text(encoding="utf-8"), re.MULTILINE)
    if not found:
        raise SetupError(f"{CONSTRAINTS} does not pin {name}")
    return found.group(1)


# -- what is there -----------------------------------------------------------------------------------------------


def _distributions() -> set[str]:
    return {path.name for path in VENV.glob("lib/python*/site-packages/*.dist-info")}


def read_stamp() -> dict[str, Any]:
    """What the last complete setup noted; empty when there was none, or when the environment is not that one now."""
    try:
        stamp: dict[str, Any] = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if stamp.get("root") != str(ROOT):
        return {}
    if not set(stamp["distributions"]) <= _distributions():
        stamp["packages"] = ""
    if not _works("import mlacademy._core"):
        if not _works("pass"):
            return {}
        stamp["native"] = ""
    return stamp


def _works(statement: str) -> bool:
    try:
        tried = subprocess.run([PYTHON, "-c", statement], env=_clean_environment(), capture_output=True, check=False)
    except OSError:
        return False
    return tried.returncode == 0


def _usable() -> bool:
    """Whether .venv/ holds an interpreter, new enough, with a pip that starts, at the place it was made for."""
    scripts_fit = (VENV / "bin" / "pip").exists() and str(PYTHON.parent) in (VENV / "bin" / "pip").read_text(
        errors="replace"
    )
    return scripts_fit and _works("import pip._internal.cli.main, sys; sys.exit(sys.version_info < (3, 11))")


# -- what it needs -----------------------------------------------------------------------------------------------


def check_prerequisites(torch: str) -> None:
    """Raise ``SetupError`` with one sentence about the first thing that is missing."""
    version = ".".join(str(part) for part in sys.version_info[:2])
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        raise SetupError(
            f"{sys.executable} cannot make environments: its venv module is missing "
            f"(Debian, Ubuntu: apt-get install python{version}-venv)."
        )
    if not machine.python_headers():
        raise SetupError(
            f"The C headers of {sys.executable} are missing (Debian, Ubuntu: apt-get install python{version}-dev)."
        )
    found = machine.compiler()
    if found is None or not found.cxx20:
        what = "There is no C++ compiler" if found is None else f"{found.command} ({found.version}) does not take C++20"
        hint = "xcode-select --install" if sys.platform == "darwin" else "Debian, Ubuntu: apt-get install g++"
        raise SetupError(f"{what}, and MLAcademy builds a native module ({hint}).")
    if shutil.which("git") is None:
        raise SetupError(
            "git is missing, and the course's updates come through it (Debian, Ubuntu: apt-get install git)."
        )
    free = shutil.disk_usage(ROOT).free / 1e9
    needed = DISK_GB[torch]
    if not VENV.exists() and free < needed:
        raise SetupError(f"The environment takes {needed:.1f} GB and {ROOT} has {free:.1f} GB free: make room first.")


def choose_torch(asked: str | None, former: str | None) -> str:
    """``"cpu"`` or ``"default"``: as asked for, as installed already, or as the person at the terminal says.

    Off a terminal it is pip's default, with a sentence on how to choose.
    """
    if sys.platform != "linux":
        return "default"  # elsewhere the default build has no CUDA libraries
    if asked or former:
        return asked or former or "default"
    if machine.gpus():
        return "default"
    offer = "no NVIDIA GPU here; pip's default build of torch can bring CUDA libraries, up to 3.1 GB to download"
    if not sys.stdin.isatty() or not sys.stdout.isatty():
        print(f"Note: {offer}. For the CPU build (0.6 GB in all) run: make setup TORCH=cpu", flush=True)
        return "default"
    answer = input(f"There is {offer}. Take the CPU build instead (0.6 GB in all)? [Y/n] ")
    return "default" if answer.strip().lower() in ("n", "no") else "cpu"


# -- making it ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _only_setup() -> Iterator[None]:
    """Hold the clone's setup lock; a second setup waits for the first."""
    try:
        import fcntl
    except ImportError:
        raise SetupError("MLAcademy runs on Linux and macOS; on Windows use it inside WSL.") from None
    BUILD.mkdir(exist_ok=True)
    with (BUILD / "setup.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print("Another setup of this clone is running; waiting for it.", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def install_packages(steps: Steps, torch: str) -> None:
    """torch first, by its exact version, then everything else under the constraints."""
    pip = [str(PYTHON), "-m", "pip", "install", "--progress-bar", "off", "--no-input", "-c", str(CONSTRAINTS)]
    version = _constrained("torch")
    with steps.step(f"Installing torch {version}"):
        index = ["--extra-index-url", CPU_TORCH_INDEX] if torch == "cpu" and sys.platform == "linux" else []
        steps.run(*pip, *index, f"torch=={version}")
    with steps.step("Installing JupyterLab and the other packages"):
        steps.run(*pip, *requirements())


def build_native(steps: Steps) -> None:
    """Build the native module and install the package from this clone, so that edits to Python files are live."""
    with steps.step("Building the native module"):
        command = (str(PYTHON), "-m", "pip", "install", "--no-deps", "--no-build-isolation", "-e", str(ROOT))
        earlier = list(BUILD.glob("cp*"))
        try:
            steps.run(*command)
        except SetupError as refusal:
            if not earlier and "CI" in os.environ:
                raise
            for folder in BUILD.glob("cp*"):  # an earlier build may have been configured for another compiler or place
                shutil.rmtree(folder)
            if earlier:
                with contextlib.suppress(SetupError):
                    steps.run(*command)
                    return
                if "CI" in os.environ:
                    raise
            steps.run(*command, "-Ccmake.define.MLACADEMY_EMULATOR=OFF")
            print(f"Note: built without the emulator, which chapters 00 to 06 do not use. {refusal}", flush=True)


def make_environment(torch: str, stamp: dict[str, Any], *, fresh: bool) -> None:
    """Bring .venv/ from what ``stamp`` notes to what the clone's files ask for, and note it."""
    packages, native = packages_key(), native_key()
    todo_packages = fresh or stamp.get("packages") != packages
    steps = Steps(fresh + 2 * todo_packages + 2)
    if todo_packages:
        size = DOWNLOAD_GB["cpu" if torch == "cpu" or sys.platform != "linux" else "default"]
        limit = "" if torch == "cpu" else "up to "
        print(f"Setting up .venv/: {limit}{size} GB to download, less what pip has cached. Log: {LOG}", flush=True)
    LOG.write_text("", encoding="utf-8")
    STAMP.unlink(missing_ok=True)
    if fresh:
        with steps.step("Making an empty environment"):
            outside = sys.executable if Path(sys.prefix) != VENV else os.path.realpath(sys.executable)
            steps.run(outside, "-m", "venv", "--clear", str(VENV))
    if todo_packages:
        install_packages(steps, torch)
    build_native(steps)
    with steps.step("Checking it"):
        steps.run(str(PYTHON), "-m", "pip", "check")
        steps.run(str(PYTHON), "-c", "import mlacademy._core")
    noted = {"root": str(ROOT), "packages": packages, "native": native, "torch": torch}
    STAMP.write_text(json.dumps(noted | {"distributions": sorted(_distributions())}, indent=1), encoding="utf-8")
    steps.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", choices=("cpu", "default"), help="which build of torch to take on Linux")
    options = parser.parse_args()
    try:
        with _only_setup():
            stamp = read_stamp()
            switched = bool(stamp) and options.torch not in (None, stamp["torch"])
            if not switched and (stamp.get("packages"), stamp.get("native")) == (packages_key(), native_key()):
                print("The environment in .venv/ is up to date.", flush=True)
                return 0
            torch = choose_torch(options.torch, stamp.get("torch"))
            check_prerequisites(torch)
            make_environment(torch, stamp, fresh=switched or not _usable())
    except SetupError as error:
        print(f"make setup: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"make setup: {error.strerror}: {error.filename or ROOT}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nmake setup: stopped; run it again to go on.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
