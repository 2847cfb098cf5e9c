"""The parameters of a kernel as its CUDA source spells them: PTX keeps their sizes and forgets their names."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mlacademy.gpu.includes import without_comments

_CALLED = re.compile(r"(\w+)\s*\(")
_ATTRIBUTES = frozenset(
    {"__launch_bounds__", "__cluster_dims__", "__block_size__", "__maxnreg__", "__attribute__", "alignas"}
)
_QUALIFIERS = re.compile(r"\b(?:const|volatile|__grid_constant__|__restrict__|__restrict|struct)\b")
_OPENING, _CLOSING = "(<[{", ")>]}"

INTEGER_RANGES = {
    name: (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    for names, bits, signed in (
        (("int8_t", "signed char"), 8, True),
        (("uint8_t", "unsigned char"), 8, False),
        (("short", "int16_t"), 16, True),
        (("unsigned short", "uint16_t"), 16, False),
        (("int", "int32_t"), 32, True),
        (("unsigned", "unsigned int", "uint32_t"), 32, False),
        (("long long", "int64_t", "ptrdiff_t"), 64, True),
        (("unsigned long long", "uint64_t", "size_t"), 64, False),
    )
    for name in names
}
"""Values that a C integer type holds."""

FLOAT_TYPES = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "__half": "float16",
    "__nv_bfloat16": "bfloat16",
    "__nv_fp8_e4m3": "float8_e4m3fn",
    "__nv_fp8_e5m2": "float8_e5m2",
}
"""C floating-point type → NumPy's name of the same type."""


@dataclass(frozen=True)
class CParameter:
    """One parameter: its name and its type without qualifiers; for a pointer, ``type`` is what it points to."""

    name: str
    type: str
    pointer: bool


def signatures(source: str) -> dict[str, tuple[CParameter, ...]]:
    """The parameters of every ``__global__`` function that ``source`` declares, by the function's name."""
    text = without_comments(source)
    found = {}
    for start in re.finditer(r"\b__global__\b", text):
        position = start.end()
        while called := _CALLED.search(text, position):
            stop = _closing(text, called.end())
            if called.group(1) not in _ATTRIBUTES:
                found[called.group(1)] = tuple(_parameter(piece) for piece in _pieces(text[called.end() : stop]))
                break
            position = stop + 1
    return found


def _closing(text: str, start: int) -> int:
    """The index of the parenthesis that closes the one before ``start`` (the end of the text where none does)."""
    depth = 1
    for index in range(start, len(text)):
        depth += (text[index] == "(") - (text[index] == ")")
        if depth == 0:
            return index
    return len(text)


def _pieces(text: str) -> list[str]:
    """``text`` cut at the commas outside of brackets; empty for no parameters."""
    pieces, depth, start = [], 0, 0
    for index, letter in enumerate(text):
        depth += (letter in _OPENING) - (letter in _CLOSING)
        if letter == "," and depth == 0:
            pieces.append(text[start:index])
            start = index + 1
    pieces.append(text[start:])
    return [] if pieces in ([""], ["void"]) or not text.strip() else pieces


def _parameter(text: str) -> CParameter:
    declaration = _QUALIFIERS.sub(" ", text.split("=")[0])
    pointer = "*" in declaration or "[" in declaration
    words = re.findall(r"[A-Za-z_][\w:]*(?:<.*>)?", declaration.replace("*", " * ").split("[")[0])
    name = words[-1] if len(words) > 1 else ""
    kind = " ".join(words[:-1] if name else words)
    return CParameter(name, kind.removeprefix("std::").removeprefix("::"), pointer)
