"""NVRTC, NVIDIA's run-time compiler, from its pip wheel: no CUDA toolkit, no driver and no GPU are needed."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlacademy.gpu.errors import CompilerMissing

INSTALL = "pip install 'mlacademy[kernels]'"

ARCHITECTURES = ("75", "80", "86", "87", "88", "89", "90", "90a", "100", "100a", "100f", "103a", "103f", "120a", "121a")
"""The GPU generations that NVRTC 13.0 compiles for, as they follow ``sm_``; those of the course are 90a and 100a."""


def check_arch(arch: str) -> None:
    """Raise ``ValueError`` for an architecture that is none of ``ARCHITECTURES``."""
    if not arch.startswith("sm_") or arch.removeprefix("sm_") not in ARCHITECTURES:
        raise ValueError(f"arch must be sm_ and one of {', '.join(ARCHITECTURES)}; got {arch!r}")


_WHEELS = ("nvidia-cuda-nvrtc", "nvidia-cuda-cccl", "nvidia-cuda-runtime", "nvidia-cuda-crt")


@dataclass(frozen=True)
class Compiled:
    """What NVRTC made: PTX text, CUBIN bytes (empty when compilation failed), its log, and whether it succeeded."""

    ptx: str
    cubin: bytes
    log: str
    succeeded: bool


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def identity() -> str | None:
    """The versions of the compiler and of the headers it finds, as one line; None where NVRTC is not installed.

    Reads package metadata only; ``MLACADEMY_NVRTC=0`` in the environment makes it None, to try a machine without.
    """
    return None if os.environ.get("MLACADEMY_NVRTC") == "0" else _installed()


@functools.cache
def _installed() -> str | None:
    versions = {package: _version(package) for package in (*_WHEELS, "cuda-bindings")}
    if versions["nvidia-cuda-nvrtc"] is None or versions["cuda-bindings"] is None:
        return None
    return " ".join(f"{package}={version}" for package, version in versions.items() if version)


def missing_sentence() -> str:
    """Why there is no compiler here and what to do about it."""
    if platform.system() == "Darwin":
        return (
            "NVRTC has no build for macOS, so CUDA C++ cannot be compiled here: "
            "the course's unmodified kernels run from the PTX it ships, changed ones need Linux or Windows"
        )
    return f"NVRTC, the CUDA compiler, is not installed: {INSTALL}"


@functools.cache
def include_folders() -> tuple[Path, ...]:
    """The header folders of NVIDIA's wheels that are installed."""
    try:
        spec = importlib.util.find_spec("nvidia.cu13")
    except ModuleNotFoundError:
        return ()
    roots = [] if spec is None else [Path(place) for place in spec.submodule_search_locations or ()]
    return tuple(
        folder for root in roots for folder in (root / "include", root / "include" / "cccl") if folder.is_dir()
    )


def tool(name: str) -> Path | None:
    """A program of NVIDIA's wheels (``nvdisasm``, ``cuobjdump``), or None."""
    try:
        spec = importlib.util.find_spec("nvidia.cu13")
    except ModuleNotFoundError:
        return None
    for root in [] if spec is None else spec.submodule_search_locations or ():
        for file in (Path(root) / "bin" / name, Path(root) / "bin" / f"{name}.exe"):
            if file.is_file():
                return file
    return None


def compile_source(
    source: str, name: str, *, arch: str, options: Sequence[str], headers: Mapping[str, str]
) -> Compiled:
    """Compile one translation unit for ``arch`` (``sm_90a``) to PTX and CUBIN.

    Raises ``CompilerMissing`` where NVRTC cannot be loaded; a source that does not compile is no exception here.
    """
    if identity() is None:
        raise CompilerMissing(missing_sentence())
    try:
        from cuda.bindings import nvrtc

        _ok(nvrtc.nvrtcVersion())
    except (ImportError, OSError, RuntimeError) as error:
        raise CompilerMissing(f"NVRTC is installed but does not load ({error}): {INSTALL}") from error
    program = _ok(
        nvrtc.nvrtcCreateProgram(
            source.encode(),
            name.encode(),
            len(headers),
            [text.encode() for text in headers.values()],
            [header.encode() for header in headers],
        )
    )
    try:
        arguments = [option.encode() for option in (f"--gpu-architecture={arch}", *options)]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(arguments), arguments)
        succeeded = status == nvrtc.nvrtcResult.NVRTC_SUCCESS
        if not succeeded and status != nvrtc.nvrtcResult.NVRTC_ERROR_COMPILATION:
            log = _text(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
            raise ValueError(f"NVRTC refused to compile {name}: {log.strip() or status.name}")
        return Compiled(
            ptx=_text(program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX),
            cubin=_bytes(program, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN) if succeeded else b"",
            log=_text(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog),
            succeeded=succeeded,
        )
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _ok(answer: tuple[Any, ...]) -> Any:
    status, *values = answer
    if int(status) != 0:
        raise RuntimeError(f"NVRTC answered {status.name}")
    return values[0] if len(values) == 1 else tuple(values)


def _bytes(program: Any, size_of: Any, read: Any) -> bytes:
    # NVRTC writes into the buffer, and Python shares one object among all bytes of length one: never hand that out.
    size = int(_ok(size_of(program)))
    buffer = bytes(size + 2)
    if size:
        _ok(read(program, buffer))
    return buffer[:size]


def _text(program: Any, size_of: Any, read: Any) -> str:
    """The text without the NUL that NVRTC ends it with."""
    return _bytes(program, size_of, read).rstrip(b"\0").decode("utf-8", errors="replace")
