"""`compile`: CUDA C++ to a `Module`, by NVRTC, from the disk cache, or from the PTX that the package ships."""

from __future__ import annotations

import bisect
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from mlacademy.gpu import nvrtc
from mlacademy.gpu.disk_cache import DiskCache, Entry
from mlacademy.gpu.errors import CompileError, CompilerMissing, parse_log
from mlacademy.gpu.includes import Reached, header_layer, reach
from mlacademy.gpu.module import Module
from mlacademy.gpu.resources import parse_resources
from mlacademy.gpu.shipped import shipped_ptx

STANDARD_OPTIONS = ("--std=c++20", "-lineinfo", "--ptxas-options=--verbose")
_FILE = re.compile(r'(?m)^(\s*\.file\s+\d+\s+")([^"\n]*)(")')
_LOC = re.compile(r"^\s*\.loc\s+(?:.*\binlined_at\s+)?(\d+)\s+(\d+)\s")
"""A line of PTX that tells where the code after it came from: for an inlined function, where it was called."""

_SOURCE_SUFFIXES = (".cu", ".cuh", ".cpp")
_INCLUDING = ("-I", "--include-path", "-include", "--pre-include")  # options that would bring in text unseen


def compile(
    source: str | Path,
    *,
    arch: str = "sm_90a",
    name: str | None = None,
    options: Sequence[str] = (),
    headers: Mapping[str, str] | None = None,
    folders: Sequence[Path] = (),
    cache: DiskCache | None = None,
) -> Module:
    """Compile CUDA C++.

    Args:
        source: the text, or the path of a file: a ``Path``, or a string without line breaks that ends in ``.cu``. A
            bare file name that is not in the current folder is looked for among the course's kernels.
        arch: the GPU generation, ``sm_90a`` (Hopper) or ``sm_100a`` (Blackwell) in this course.
        name: what messages and line tables call the source; by default the file's name, or ``kernel.cu``.
        options: further options of NVRTC.
        headers: text of headers by the name they are included by; these win over files.
        folders: where else headers are looked for, before the course's header layer and NVIDIA's wheels.
        cache: where compiled kernels are kept; by default the user's cache folder.

    Raises:
        CompileError: the source does not compile; the message quotes the lines.
        CompilerMissing: NVRTC is not here, and the kernel is not one that the package ships compiled.
        FileNotFoundError: no such file. ValueError: an unknown ``arch``, an option NVRTC does not know or
            that brings in headers.
    """
    nvrtc.check_arch(arch)
    for option in options:
        if option.startswith(_INCLUDING):
            raise ValueError(
                f"options must not add headers, whose changes the cache would miss; got {option!r}: use folders="
            )
    unit = _Unit.of(source, name, dict(headers or {}), tuple(folders))
    all_options = (*STANDARD_OPTIONS, *options)
    compiler = nvrtc.identity()
    if compiler is None:
        ptx = None if headers or options else shipped_ptx(unit.name, unit.digest(arch))
        if ptx is None:
            raise CompilerMissing(nvrtc.missing_sentence())
        return Module(ptx, name=unit.name, source=unit.text, origin="shipped")
    store = cache or DiskCache()
    key = unit.digest(arch, compiler, *all_options)
    entry = store.get(key) if unit.reached.closed else None
    origin = "cache"
    if entry is None:
        origin = "compiled"
        entry = unit.compile(arch, all_options)
        if unit.reached.closed:
            store.put(key, entry)
    return Module(
        entry.ptx,
        name=unit.name,
        source=unit.text,
        cubin=entry.cubin,
        warnings=entry.diagnostics,
        resources=entry.resources,
        origin=origin,
    )


def fingerprint(source: str | Path, *, arch: str, name: str | None = None) -> str:
    """What shipped PTX is recognised by: the kernel's text and name, its headers' text, and ``arch``."""
    return _Unit.of(source, name, {}, ()).digest(arch)


class _Unit:
    """One translation unit: the text, what it is called, and everything that it includes."""

    def __init__(self, text: str, path: Path, name: str, headers: dict[str, str], folders: tuple[Path, ...]) -> None:
        self.text = text
        self.path = path  # where quoted headers are looked for first; need not exist
        self.name = name
        self.headers = headers
        self.folders = (*(folder.resolve() for folder in folders), header_layer())
        self.reached: Reached = reach(text, path.parent, headers=headers, folders=self.folders)

    @classmethod
    def of(cls, source: str | Path, name: str | None, headers: dict[str, str], folders: tuple[Path, ...]) -> _Unit:
        if isinstance(source, str) and ("\n" in source or not source.endswith(_SOURCE_SUFFIXES)):
            called = name or "kernel.cu"
            return cls(source, Path.cwd() / called, called, headers, folders)
        path = Path(source)
        if not path.is_file() and path.name == str(path):
            path = header_layer() / path
        if not path.is_file():
            raise FileNotFoundError(f"there is no CUDA source {source}, nor a kernel of that name in the course")
        path = path.resolve()
        return cls(path.read_text(encoding="utf-8"), path, name or path.name, headers, folders)

    def digest(self, *more: str) -> str:
        """The fingerprint of the unit's text and of the headers it reaches, by name and not by folder."""
        reached = [(Path(name).name, text) for name, text in self.reached.texts.items()]
        parts = json.dumps([self.name, self.text, reached, more])
        return hashlib.sha256(parts.encode()).hexdigest()

    def compile(self, arch: str, options: Sequence[str]) -> Entry:
        """PTX and CUBIN by NVRTC; raises ``CompileError``."""
        includes = [f"-I{folder}" for folder in (*self.folders, *nvrtc.include_folders())]
        done = nvrtc.compile_source(
            self.text, str(self.path), arch=arch, options=(*options, *includes), headers=self.headers
        )
        diagnostics = parse_log(done.log, name_of=self.shown, place_of=lambda line: self._place(done.ptx, line))
        if not done.succeeded:
            raise CompileError(diagnostics, done.log)
        ptx = _FILE.sub(lambda found: found[1] + self.shown(found[2]) + found[3], done.ptx)
        return Entry(ptx, done.cubin, tuple(diagnostics), parse_resources(done.log))

    def shown(self, file: str) -> str:
        """The name of a file as messages and line tables give it: never this machine's folders, where possible."""
        path = Path(file)
        if path == self.path:
            return self.name
        folders = (self.path.parent, Path.cwd(), *self.folders, *nvrtc.include_folders())
        around = [folder for folder in folders if path.is_relative_to(folder)]
        return path.relative_to(max(around, key=lambda folder: len(folder.parts))).as_posix() if around else file

    def _place(self, ptx: str, line: int) -> tuple[str, int, str]:
        """The source line that line ``line`` of the PTX came from: file, number, text."""
        lines = ptx.splitlines()
        located = [index for index, text in enumerate(lines) if _LOC.match(text)]
        before = bisect.bisect_left(located, line - 1)
        if before == 0:
            return self.name, 0, ""
        place = _LOC.match(lines[located[before - 1]])
        assert place is not None
        files = dict(re.findall(r'(?m)^\s*\.file\s+(\d+)\s+"([^"\n]*)"', ptx))
        file, number = files.get(place[1], ""), int(place[2])
        known = {str(self.path): self.text, **self.reached.texts}
        texts = known.get(file, "").splitlines()
        return self.shown(file) if file else self.name, number, texts[number - 1] if 0 < number <= len(texts) else ""
