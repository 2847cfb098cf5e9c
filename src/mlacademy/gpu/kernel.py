"""A kernel's entry in PTX: its name, its parameters with their offsets, and what it asks of a launch."""

from __future__ import annotations

import ctypes
import functools
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mlacademy.gpu.resources import Resources
from mlacademy.gpu.signature import CParameter

if TYPE_CHECKING:
    from mlacademy.gpu.module import Module

_ENTRY = re.compile(
    r"\.entry\s+(?P<name>[\w$.]+)\s*(?:\((?P<params>[^)]*)\))?\s*(?P<directives>(?:\.\w+[^{;]*?)?)(?P<end>[{;])"
)
_PARAM = re.compile(
    r"\.param\s+(?:\.align\s+(?P<align>\d+)\s+)?\.(?P<type>[a-z]+\d+)\b(?P<pointer>\s+\.ptr\b[^,]*?)?\s+"
    r"(?P<name>[\w$]+)\s*(?:\[(?P<count>\d+)\])?\s*$"
)
_COMMENT = re.compile(r"//[^\n]*")


@dataclass(frozen=True)
class Param:
    """One parameter of a kernel.

    Attributes:
        name: as in the CUDA source where that is known, else ``argument 0``, ``argument 1``, …
        type: PTX's scalar type (``u32``, ``f32``), or ``b8`` for a blob of ``size`` bytes.
        size, align, offset: bytes; ``offset`` is the place in the parameter buffer.
        c_type: the CUDA source's type without qualifiers (of what a pointer points to), or "".
        pointer: True or False where the source or the PTX tells, else None.
        blob: declared as an array of bytes: a struct, a tensor map.
    """

    name: str
    type: str
    size: int
    align: int
    offset: int
    c_type: str = ""
    pointer: bool | None = None
    blob: bool = False

    def __str__(self) -> str:
        if self.c_type:
            return f"{self.c_type}{'*' if self.pointer else ''} {self.name}"
        return f".{self.type}{f'[{self.size}]' if self.blob else ''} {self.name}"


@dataclass(frozen=True)
class Kernel:
    """One entry point of a module; what `Device.launch` takes.

    Attributes:
        name: the symbol in PTX, mangled for C++.
        demangled: the readable name, with its parameter types.
        params: in order.
        max_threads: most threads a block (``__launch_bounds__``), or None.
        required_block, required_cluster: the only block or cluster it runs with, or None.
        cluster_launch: compiled for launches in clusters alone.
    """

    name: str
    demangled: str
    params: tuple[Param, ...]
    module: Module
    max_threads: int | None = None
    required_block: tuple[int, int, int] | None = None
    required_cluster: tuple[int, int, int] | None = None

    @functools.cached_property
    def base_name(self) -> str:
        """The function's name without namespaces, template arguments and parameter types."""
        return base_name(self.demangled)

    @property
    def resources(self) -> Resources | None:
        """Registers and static shared memory, where the assembler has told."""
        return self.module.resources.get(self.name)

    @property
    def param_bytes(self) -> int:
        """The size of the parameter buffer."""
        return self.params[-1].offset + self.params[-1].size if self.params else 0

    def __repr__(self) -> str:
        return f"<Kernel {self.base_name}({', '.join(str(param) for param in self.params)})>"


def base_name(demangled: str) -> str:
    """``foo::scale<3>(float*)`` → ``scale``."""
    depth, plain = 0, []
    for letter in demangled.replace("(anonymous namespace)", "anonymous"):
        if letter == "(" and depth == 0:
            break
        depth += (letter == "<") - (letter == ">")
        if depth == 0 and letter != ">":
            plain.append(letter)
    return "".join(plain).split("::")[-1].split()[-1]


def entries(ptx: str, signatures: dict[str, tuple[CParameter, ...]], module: Module) -> dict[str, Kernel]:
    """The kernels that ``ptx`` defines, by symbol; parameter names come from ``signatures`` where they fit."""
    text = _COMMENT.sub("", ptx)
    kernels = {}
    for found in _ENTRY.finditer(text):
        if found["end"] == ";":
            continue  # a declaration
        name, demangled = found["name"], demangle(found["name"])
        declared = signatures.get(base_name(demangled), ())
        directives = found["directives"]
        limit = _triple(directives, "maxntid")
        kernels[name] = Kernel(
            name,
            demangled,
            _params(found["params"] or "", declared),
            module,
            max_threads=math.prod(limit) if limit else None,
            required_block=_triple(directives, "reqntid"),
            required_cluster=_triple(directives, "reqnctapercluster"),
        )
    return kernels


def _triple(directives: str, name: str) -> tuple[int, int, int] | None:
    found = re.search(rf"\.{name}\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?", directives)
    if found is None:
        return None
    x, y, z = (int(value or 1) for value in found.groups())
    return x, y, z


def _params(text: str, declared: tuple[CParameter, ...]) -> tuple[Param, ...]:
    pieces = [piece.strip() for piece in text.split(",") if piece.strip()]
    fits = len(declared) == len(pieces)
    params: list[Param] = []
    offset = 0
    for index, piece in enumerate(pieces):
        found = _PARAM.match(piece)
        if found is None:
            raise ValueError(f"the PTX declares a parameter that is not understood: {piece!r}")
        width = int(re.sub(r"\D", "", found["type"])) // 8
        blob = found["count"] is not None
        size = width * int(found["count"]) if blob else width
        align = int(found["align"] or width)
        offset = -(-offset // align) * align
        spelled = declared[index] if fits else None
        pointer = spelled.pointer if spelled else True if found["pointer"] else None
        params.append(
            Param(
                name=spelled.name if spelled and spelled.name else f"argument {index}",
                type=found["type"],
                size=size,
                align=align,
                offset=offset,
                c_type=spelled.type if spelled else "",
                pointer=pointer if not blob else False,
                blob=blob,
            )
        )
        offset += size
    return tuple(params)


@functools.cache
def _cxa_demangle() -> Any:
    for library in ("libstdc++.so.6", "libc++.1.dylib"):
        try:
            function = ctypes.CDLL(library)["__cxa_demangle"]
        except (OSError, AttributeError):
            continue
        function.restype = ctypes.c_void_p
        function.argtypes = (ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int))
        return function
    return None


def demangle(symbol: str) -> str:
    """The C++ name of a symbol: by the C++ runtime where there is one, else its innermost plain name.

    >>> demangle("saxpy")
    'saxpy'
    """
    if not symbol.startswith("_Z"):
        return symbol
    function = _cxa_demangle()
    if function is not None:
        status = ctypes.c_int()
        result = function(symbol.encode(), None, None, ctypes.byref(status))
        if result and status.value == 0:
            text = ctypes.string_at(result).decode()
            free = ctypes.CDLL(None).free
            free.argtypes = (ctypes.c_void_p,)
            free(result)
            return text
    return _innermost(symbol)


def _innermost(symbol: str) -> str:
    """The last length-prefixed name at the start of a mangled symbol: ``_ZN3foo2k2EPf`` → ``foo::k2``."""
    position = 3 if symbol.startswith("_ZN") else 2
    names = []
    while found := re.match(r"\d+", symbol[position:]):
        start = position + found.end()
        position = start + int(found.group())
        names.append(symbol[start:position])
    return "::".join(names) or symbol
