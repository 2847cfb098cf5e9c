"""environment.yml, pyproject.toml and the constraints agree, and the conda file's pip part installs and works."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from clone import copy_tracked
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from mlacademy.doctor import canonical_name, constraints


@pytest.fixture(scope="module")
def project(repository: Path) -> dict[str, Any]:
    return tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def environment(repository: Path) -> dict[str, Any]:
    return yaml.safe_load((repository / "environment.yml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def pip_part(environment: dict[str, Any]) -> list[str]:
    parts = [entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict)]
    assert len(parts) == 1
    return parts[0]


def test_conda_part_is_minimal_and_well_formed(environment: dict[str, Any]) -> None:
    names = [entry for entry in environment["dependencies"] if isinstance(entry, str)]
    assert all(re.fullmatch(r"[a-z0-9-]+(=\d+(\.\d+)*)?", name) for name in names)
    assert {name.split("=")[0] for name in names} == {"python", "pip", "cmake", "ninja", "cxx-compiler"}
    assert environment["name"] == "mlacademy"
    assert environment["channels"] == ["conda-forge", "nodefaults"]


def test_conda_python_satisfies_requires_python(environment: dict[str, Any], project: dict[str, Any]) -> None:
    python = next(entry for entry in environment["dependencies"] if str(entry).startswith("python="))
    assert SpecifierSet(project["requires-python"]).contains(python.partition("=")[2])


def test_pip_part_names_the_packages_a_reader_looks_for_at_the_constrained_versions(
    pip_part: list[str], repository: Path
) -> None:
    pinned = constraints(repository)
    named = {Requirement(line).name: Requirement(line) for line in pip_part if not line.startswith("-")}
    assert {"jupyterlab", "torch", "numpy", "matplotlib", "ipywidgets", "pybind11"} <= named.keys()
    for name, requirement in named.items():
        assert str(requirement.specifier) == f"=={pinned[canonical_name(name)]}"


def test_pip_part_installs_this_package_under_the_constraints(
    pip_part: list[str], repository: Path, project: dict[str, Any]
) -> None:
    assert "-c requirements/constraints.txt" in pip_part
    assert (repository / "requirements" / "constraints.txt").is_file()
    editable = re.fullmatch(r"-e \.\[([a-z,]+)\]", next(line for line in pip_part if line.startswith("-e")))
    assert editable
    assert set(editable.group(1).split(",")) == project["optional-dependencies"].keys()


def test_every_declared_package_is_constrained_within_its_range(project: dict[str, Any], repository: Path) -> None:
    pinned = constraints(repository)
    declared = [
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
    ]
    for requirement in map(Requirement, declared):
        version = pinned[canonical_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement} excludes the constrained {version}"


def test_constraints_name_each_package_once_for_a_platform(repository: Path) -> None:
    lines = (repository / "requirements" / "constraints.txt").read_text(encoding="utf-8").splitlines()
    requirements = [Requirement(line) for line in lines if line.strip()]
    for platform in ("linux", "darwin"):
        here = {"sys_platform": platform, "python_version": "3.11", "python_full_version": "3.11.7"}
        names = [canonical_name(r.name) for r in requirements if r.marker is None or r.marker.evaluate(here)]
        assert len(names) == len(set(names))
    assert all(len(r.specifier) == 1 and next(iter(r.specifier)).operator == "==" for r in requirements)


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = ("torch", "numpy", "matplotlib", "IPython", "ipywidgets", "nbgrader", "rich")
    script = "import sys, mlacademy, mlacademy.cli, mlacademy.machine, mlacademy.notebooks\nprint(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not set(heavy) & set(loaded)


@pytest.mark.parametrize("module", ["config", "schedule", "notebooks", "fp8", "grading", "cli", "workspace", "doctor"])
def test_modules_that_promise_it_import_without_torch(module: str) -> None:
    script = f"import sys, mlacademy.{module}\nsys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@pytest.mark.timeout(900)
def test_pip_part_installs_in_a_fresh_environment_and_the_doctor_finds_it_well(
    pip_part: list[str], tmp_path: Path
) -> None:
    clone = copy_tracked(tmp_path / "clone")
    listed = clone / "conda-pip-part.txt"  # conda writes it beside environment.yml, so relative paths hold
    listed.write_text("\n".join(pip_part) + "\n", encoding="utf-8")
    python = tmp_path / "env" / "bin" / "python"
    base = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    subprocess.run([str(base), "-m", "venv", str(tmp_path / "env")], check=True)
    install = [str(python), "-m", "pip", "install", "-q", "--no-input", "-r", listed.name]
    installed = subprocess.run(install, cwd=clone, capture_output=True, text=True, check=False)
    assert installed.returncode == 0, installed.stderr[-2000:]
    doctor = [str(python.with_name("mlacademy")), "doctor", "--json"]
    run = subprocess.run(doctor, cwd=clone, capture_output=True, text=True, check=False)
    report = json.loads(run.stdout)
    assert (run.returncode, report["ready"], report["course"]) == (0, True, str(clone))
    states = {finding["name"]: finding["state"] for finding in report["findings"]}
    assert states["versions"] == states["native module"] == states["torch"] == "ok"
    shutil.rmtree(tmp_path / "env")  # two gigabytes that pytest would keep until its third run from now
