"""What of the course runs on this machine: an examination that ends in a plain dictionary.

Each finding has a state: ``ok``; ``note`` (the course runs, something is less good or optional is missing); ``bad``
(the course cannot run until it is mended). A finding that is not ``ok`` says which command mends it.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import mlacademy
from mlacademy import machine, notebooks
from mlacademy.workspace.course import chapter_of

State = Literal["ok", "note", "bad"]

NEEDED_EXTRAS = ("", "lab")
"""What reading the course needs; the other extras of the package serve its makers."""

OTHER_EXTRAS = {"book": "mlacademy book", "dev": "make test"}


@dataclass(frozen=True)
class Finding:
    """One line of the report: what was looked at, its state, what was found, and the command that mends it."""

    name: str
    state: State
    found: str
    fix: str = ""


def canonical_name(package: str) -> str:
    """The one spelling of a package's name: lower case, words joined by hyphens."""
    return re.sub(r"[-_.]+", "-", package).lower()


def constraints(root: Path) -> dict[str, str]:
    """The versions that were tried together and apply to this Python and system, by package name."""
    from packaging.requirements import Requirement

    pinned = {}
    for line in (root / "requirements" / "constraints.txt").read_text(encoding="utf-8").splitlines():
        text = line.split("#")[0].strip()
        if not text:
            continue
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate():
            pinned[canonical_name(requirement.name)] = next(iter(requirement.specifier)).version
    return pinned


def _requirements(extra: str) -> Iterator[Any]:
    """The requirements that ``mlacademy`` declares under one extra ("" for those it always has)."""
    from packaging.requirements import Requirement

    for line in importlib.metadata.requires("mlacademy") or []:
        requirement = Requirement(line)
        marker = requirement.marker
        always = marker is None or marker.evaluate({"extra": ""})
        if always if not extra else not always and marker is not None and marker.evaluate({"extra": extra}):
            yield requirement


def _installed() -> dict[str, str]:
    return {canonical_name(found.metadata["Name"]): found.version for found in importlib.metadata.distributions()}


def _unmet(requirements: Iterable[Any], installed: dict[str, str]) -> list[str]:
    """What is missing or too old, as ``"jupyterlab (3.6.0, needs <4.7,>=4.6)"``."""
    unmet = []
    for requirement in requirements:
        version = installed.get(canonical_name(requirement.name))
        if version is None:
            unmet.append(requirement.name)
        elif not requirement.specifier.contains(version, prereleases=True):
            unmet.append(f"{requirement.name} ({version}, needs {requirement.specifier})")
    return unmet


def _packages(root: Path) -> Iterator[Finding]:
    installed = _installed()
    unmet = _unmet((req for extra in NEEDED_EXTRAS for req in _requirements(extra)), installed)
    if unmet:
        yield Finding("packages", "bad", f"missing or unfit: {', '.join(unmet)}", "make setup")
    pinned = constraints(root)
    others = [
        f"{name} {installed[name]} (tried with {version})"
        for name, version in sorted(pinned.items())
        if name in installed and installed[name].split("+")[0] != version
    ]
    count = sum(name in installed for name in pinned)
    if others:
        yield Finding("versions", "note", f"{len(others)} of {count} differ: {'; '.join(others)}", "make setup")
    else:
        yield Finding("versions", "ok", f"all {count} packages as tried together")
    for extra, purpose in OTHER_EXTRAS.items():
        unmet = _unmet(_requirements(extra), installed)
        if unmet:
            yield Finding(f"extra {extra}", "note", f"for `{purpose}`: missing {', '.join(unmet)}", "make setup")


def _python() -> Finding:
    version = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info < machine.OLDEST_PYTHON:
        return Finding(
            "Python", "bad", f"{version}; the course needs 3.11 or newer", "install Python 3.11, then make setup"
        )
    return Finding("Python", "ok", f"{version} in {sys.prefix}")


def _torch() -> Finding:
    """The build of torch, read from its files: importing it would take seconds."""
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return Finding("torch", "bad", "not installed", "make setup")
    cuda = any(
        canonical_name(found.metadata["Name"]).startswith("nvidia-cu") for found in importlib.metadata.distributions()
    )
    build = "CPU build" if "cpu" in version else "with CUDA libraries" if cuda else "no CUDA libraries"
    return Finding("torch", "ok", f"{version} ({build})")


def _native() -> Finding:
    try:
        importlib.import_module("mlacademy._core")
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError)
        found = "not built" if missing else f"does not load ({error})"
        return Finding("native module", "note", f"{found}: the NumPy twins do its work, more slowly", "make setup")
    return Finding("native module", "ok", "built")


def _compiler() -> Finding:
    found = machine.compiler()
    fix = "xcode-select --install" if sys.platform == "darwin" else _apt("g++")
    if found is None:
        return Finding("C++ compiler", "note", "none; it is needed when the native module changes", fix)
    if not found.cxx20:
        return Finding("C++ compiler", "note", f"{found.version} does not take C++20", fix)
    return Finding("C++ compiler", "ok", found.version)


def _apt(package: str) -> str:
    sudo = "" if hasattr(os, "geteuid") and os.geteuid() == 0 else "sudo "
    return f"{sudo}apt-get install {package}"


def _programs() -> Iterator[Finding]:
    git = shutil.which("git")
    if git:
        yield Finding("git", "ok", git)
    else:
        yield Finding("git", "note", "none; it brings new versions of the course", _apt("git"))
    browser = machine.chromium()
    if browser:
        yield Finding("Chromium", "ok", browser)
    else:
        yield Finding("Chromium", "note", "none; only the browser tests need it", _apt("chromium"))
    sandbox = shutil.which("bwrap")
    if sandbox:
        yield Finding("bubblewrap", "ok", sandbox)
    elif sys.platform == "linux":
        yield Finding("bubblewrap", "note", "none; grading other people's answers is safer with it", _apt("bubblewrap"))


def _gpu() -> Finding:
    found = machine.gpus()
    if not found:
        return Finding("GPU", "ok", "no NVIDIA GPU: everything runs on the processor")
    names = [f"{g.name} ({g.architecture}, {g.memory_bytes / 2**30:.0f} GiB, driver {g.driver})" for g in found]
    return Finding("GPU", "ok", "; ".join(names))


def _title(path: Path) -> str:
    """The first heading of a notebook without its chapter's number, or the file's name."""
    for cell in notebooks.read(path)["cells"]:
        heading = re.search(r"^#\s+(?:\d\d\s*·\s*)?(.+)$", notebooks.source(cell), re.MULTILINE)
        if cell["cell_type"] == "markdown" and heading:
            return heading.group(1).strip()
    return path.stem


def _chapters(root: Path, ready: bool) -> list[dict[str, str]]:
    runs = "here, on the processor" if ready else "not yet: mend what is marked above"
    found = []
    for path in sorted((root / "lessons").glob("*.ipynb")):
        exercises = sorted((root / "exercises").glob(f"{chapter_of(path)}_*/*.ipynb"))
        count = sum(
            bool(cell["metadata"].get("nbgrader", {}).get("solution"))
            for exercise in exercises
            for cell in notebooks.read(exercise)["cells"]
        )
        found.append({"chapter": chapter_of(path) or "", "title": _title(path), "answers": str(count), "runs": runs})
    return found


def examine(root: Path) -> dict[str, Any]:
    """The report on this machine and the course at ``root``; plain values only, ready for JSON.

    ``ready`` is whether the course can run. Keys: ``version``, ``course``, ``machine``, ``findings``, ``chapters``,
    ``ready``.
    """
    findings = [_python(), *_packages(root), _torch(), _native(), _gpu(), _compiler(), *_programs()]
    if not list((root / "lessons").glob("*.ipynb")):
        findings.append(Finding("lessons", "bad", f"none in {root / 'lessons'}", "git checkout -- lessons"))
    ready = all(finding.state != "bad" for finding in findings)
    return {
        "version": mlacademy.__version__,
        "course": str(root),
        "machine": {
            "system": machine.system(),
            "processor": machine.processor(),
            "cores": machine.cores(),
            "memory_bytes": machine.memory_bytes(),
            "gpus": [asdict(gpu) | {"architecture": gpu.architecture} for gpu in machine.gpus()],
        },
        "findings": [asdict(finding) for finding in findings],
        "chapters": _chapters(root, ready),
        "ready": ready,
    }
