"""What this machine is: processor, memory, GPUs, compiler and browser. Standard library only.

The setup script reads it before anything is installed, so nothing here may import a package.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import re
import shutil
import subprocess
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path

OLDEST_PYTHON = (3, 11)

_ARCHITECTURES = {
    7: "Volta or Turing",
    8: "Ampere or Ada",
    9: "Hopper",
    10: "Blackwell",
    11: "Blackwell (Thor)",
    12: "Blackwell (RTX)",
}


@dataclass(frozen=True)
class Gpu:
    """One NVIDIA GPU. ``capability`` is the compute capability, ``memory_bytes`` the size of its memory."""

    name: str
    capability: tuple[int, int]
    memory_bytes: int
    driver: str

    @property
    def architecture(self) -> str:
        """The name of the generation and the compiler's name for it: ``"Hopper, SM90"``."""
        major, minor = self.capability
        return f"{_ARCHITECTURES.get(major, 'unknown generation')}, SM{major}{minor}"


def _output(*command: str) -> str:
    """What a command prints; an empty string when it cannot run, fails, or takes longer than ten seconds."""
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return run.stdout.strip()


def _gpus_by_smi() -> list[Gpu]:
    query = "name,compute_cap,memory.total,driver_version"
    found = []
    for line in _output("nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits").splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 4 and re.fullmatch(r"\d+\.\d+", fields[1]) and fields[2].isdigit():
            major, minor = (int(part) for part in fields[1].split("."))
            found.append(Gpu(fields[0], (major, minor), int(fields[2]) << 20, fields[3]))
    return found


def _gpus_by_driver() -> list[Gpu]:
    """Ask the driver's library itself, for machines without the nvidia-smi program (containers, WSL)."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return []
    number = ctypes.c_int()
    if cuda.cuInit(0) != 0 or cuda.cuDeviceGetCount(ctypes.byref(number)) != 0:
        return []
    count, version, found = number.value, ctypes.c_int(), []
    cuda.cuDriverGetVersion(ctypes.byref(version))
    for index in range(count):
        device, name, memory = ctypes.c_int(), ctypes.create_string_buffer(128), ctypes.c_size_t()
        cuda.cuDeviceGet(ctypes.byref(device), index)
        cuda.cuDeviceGetName(name, len(name), device)
        cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
        capability = []
        for attribute in (75, 76):  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
            cuda.cuDeviceGetAttribute(ctypes.byref(number), attribute, device)
            capability.append(number.value)
        driver = f"for CUDA {version.value // 1000}.{version.value % 1000 // 10}"
        found.append(Gpu(name.value.decode(), (capability[0], capability[1]), memory.value, driver))
    return found


@functools.cache
def gpus() -> tuple[Gpu, ...]:
    """The NVIDIA GPUs of this machine; none is a normal answer."""
    return tuple(_gpus_by_smi() or _gpus_by_driver())


def processor() -> str:
    """The processor's name as people know it, or the machine type where the system does not tell."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        found = None
    if found:
        return found.group(1)
    return _output("sysctl", "-n", "machdep.cpu.brand_string") or platform.machine()


def cores() -> int:
    """How many processors this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_bytes() -> int:
    """The size of the machine's memory in bytes; 0 where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return 0


def system() -> str:
    """Name and version of the operating system: ``"Debian GNU/Linux 12 (bookworm), x86_64"``."""
    try:
        name = platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:
        mac = platform.mac_ver()[0]
        name = f"macOS {mac}" if mac else f"{platform.system()} {platform.release()}"
    return f"{name}, {platform.machine()}"


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler: its command, what it calls itself, and whether it takes C++20."""

    command: str
    version: str
    cxx20: bool


_PROBE = "#include <bit>\n#include <span>\nint main() { return std::has_single_bit(std::span<const int>().size()); }\n"


def compiler() -> Compiler | None:
    """The C++ compiler that a build would take (``$CXX``, then the usual names), tried on four words of C++20."""
    for name in (os.environ.get("CXX", ""), "c++", "g++", "clang++"):
        command = shutil.which(name) if name else None
        if command is None:
            continue
        version = _output(command, "--version").splitlines()
        with tempfile.TemporaryDirectory() as folder:
            probe = Path(folder, "probe.cpp")
            probe.write_text(_PROBE, encoding="utf-8")
            tried = subprocess.run(
                [command, "-std=c++20", "-fsyntax-only", str(probe)], capture_output=True, check=False
            )
        return Compiler(command, version[0] if version else name, tried.returncode == 0)
    return None


def python_headers() -> bool:
    """Whether the C headers that an extension module needs are installed for this Python."""
    return Path(sysconfig.get_path("include"), "Python.h").is_file()


_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_MAC_BROWSER = Path("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome")


def chromium() -> str | None:
    """The path of Chromium or Chrome (``$MLACADEMY_CHROMIUM`` first), which the browser tests drive; None without."""
    for name in (os.environ.get("MLACADEMY_CHROMIUM", ""), *_BROWSERS):
        found = shutil.which(name) if name else None
        if found:
            return found
    return str(_MAC_BROWSER) if _MAC_BROWSER.exists() else None
