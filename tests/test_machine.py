"""What the machine is: answers of programs and libraries that the tests put in place of the real ones."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mlacademy import machine
from mlacademy.machine import Gpu


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """No answer about GPUs is remembered from or for another test."""
    machine.gpus.cache_clear()
    yield
    machine.gpus.cache_clear()


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Put a shell script on an otherwise empty PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)

    def put(name: str, text: str) -> Path:
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
        return tmp_path / name

    return put


def test_gpus_are_read_from_nvidia_smi(program: Callable[[str, str], Path]) -> None:
    program("nvidia-smi", "echo 'NVIDIA H200, 9.0, 143771, 580.159.04'; echo 'NVIDIA B200, 10.0, 183359, 580.1'")
    first, second = machine.gpus()
    assert first == Gpu("NVIDIA H200", (9, 0), 143_771 * 2**20, "580.159.04")
    assert [first.architecture, second.architecture] == ["Hopper, SM90", "Blackwell, SM100"]


@pytest.mark.parametrize("answer", ["exit 9", "echo 'No devices were found'", "echo 'NVIDIA A, [N/A], 1, 2'", "echo"])
def test_an_answer_without_gpus_means_none(
    program: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    program("nvidia-smi", answer)
    monkeypatch.setattr(machine, "_gpus_by_driver", list)
    assert machine.gpus() == ()


class Driver:
    """A driver library with one GPU; every call succeeds."""

    def __init__(self, count: int = 1, state: int = 0) -> None:
        self.count, self.state = count, state

    def cuInit(self, flags: int) -> int:
        return self.state

    def cuDeviceGetCount(self, number: Any) -> int:
        number._obj.value = self.count
        return 0

    def cuDriverGetVersion(self, number: Any) -> int:
        number._obj.value = 13_010
        return 0

    def cuDeviceGet(self, device: Any, index: int) -> int:
        return 0

    def cuDeviceGetName(self, name: Any, size: int, device: Any) -> int:
        name.value = b"NVIDIA H100"
        return 0

    def cuDeviceTotalMem_v2(self, number: Any, device: Any) -> int:
        number._obj.value = 80 << 30
        return 0

    def cuDeviceGetAttribute(self, number: Any, attribute: int, device: Any) -> int:
        number._obj.value = {75: 9, 76: 0}[attribute]
        return 0


def test_gpus_are_read_from_the_driver_where_there_is_no_nvidia_smi(
    program: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver())
    assert machine.gpus() == (Gpu("NVIDIA H100", (9, 0), 80 << 30, "for CUDA 13.1"),)


@pytest.mark.parametrize("driver", [Driver(count=0), Driver(state=100)])
def test_a_driver_without_gpus_means_none(
    program: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch, driver: Driver
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    assert machine.gpus() == ()


def test_no_driver_means_no_gpus(program: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", absent)
    assert machine.gpus() == ()


def test_the_compiler_is_the_one_that_a_build_takes(
    program: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert machine.compiler() is None
    clang = program("clang++", "echo 'clang version 18'")
    assert machine.compiler() == machine.Compiler(str(clang), "clang version 18", True)
    gcc = program("c++", '[ "$1" = --version ] && echo "g++ 4.8" && exit 0; exit 1')
    assert machine.compiler() == machine.Compiler(str(gcc), "g++ 4.8", False)
    own = program("my-c++", "echo mine")
    monkeypatch.setenv("CXX", "my-c++")
    assert machine.compiler() == machine.Compiler(str(own), "mine", True)


def test_the_browser_is_the_named_one_or_the_first_found(
    program: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLACADEMY_CHROMIUM", raising=False)
    monkeypatch.setattr(machine, "_MAC_BROWSER", Path("/nowhere"))
    assert machine.chromium() is None
    chrome = program("google-chrome", "true")
    assert machine.chromium() == str(chrome)
    named = program("my-browser", "true")
    monkeypatch.setenv("MLACADEMY_CHROMIUM", str(named))
    assert machine.chromium() == str(named)


def test_this_machine_has_a_name_cores_and_memory() -> None:
    assert machine.processor()
    assert machine.system().endswith(("x86_64", "aarch64", "arm64"))
    assert machine.cores() >= 1
    assert machine.memory_bytes() > 2**28


def test_the_module_loads_nothing_but_the_standard_library() -> None:
    script = "import sys, mlacademy.machine\nprint(*{name.split('.')[0] for name in sys.modules})"
    command = [
        sys.executable,
        "-S",
        "-c",
        f"import sys; sys.path.insert(0, {str(Path(machine.__file__).parents[1])!r})\n{script}",
    ]
    loaded = set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    assert loaded <= set(sys.stdlib_module_names) | {"mlacademy", "__main__"}
