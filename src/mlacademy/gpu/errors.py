"""What can go wrong between a kernel's source and its launch, and what the compiler said."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

_HEADER = re.compile(
    r"^(?P<file>.+?)\((?P<line>\d+)\): (?P<severity>catastrophic error|error|warning|remark)"
    r"(?: #(?P<code>\d+)(?:-D)?)?: (?P<message>.*)$"
)
_PTXAS = re.compile(r"^ptxas .*?, line (?P<line>\d+); (?P<severity>error|warning)\s*: (?P<message>.*)$")
_PTXAS_REMARK = re.compile(r"^ptxas (?:info\s*: (?P<code>\(C\d+\))|warning\s*:) (?P<message>.*)$")
_AROUND = re.compile(r"around line (\d+)")
_CARET = re.compile(r"^\s+\^\s*$")
_SHOWN = 5  # errors in the message; the first are the ones to mend
_INDENT = 2  # columns that NVRTC puts before a quoted source line


@dataclass(frozen=True)
class Diagnostic:
    """One message of the compiler.

    Attributes:
        file: the source's name, or a header's.
        line: counted from 1 in that file; 0 where the compiler named none.
        column: counted from 1; 0 where the compiler marked none.
        severity: ``error`` or ``warning``.
        message: what is wrong, in the compiler's words.
        source: the line itself, or "" where it is not known.
    """

    file: str
    line: int
    column: int
    severity: str
    message: str
    source: str = ""

    def __str__(self) -> str:
        place = f"{self.file}, line {self.line}" if self.line else self.file
        text = f"{place}: {self.severity}: {self.message}"
        if not self.source:
            return text
        margin = f"{self.line:5d} | "
        text += f"\n{margin}{self.source}"
        if self.column:
            before = "".join("\t" if letter == "\t" else " " for letter in self.source[: self.column - 1])
            text += f"\n{'|':>{len(margin) - 1}} {before}^"
        return text


class CompileError(Exception):
    """CUDA C++ that does not compile; `diagnostics` holds every message, the first error's sentence comes first."""

    def __init__(self, diagnostics: Iterable[Diagnostic], log: str = "") -> None:
        self.diagnostics = tuple(diagnostics)
        self.log = log
        errors = [one for one in self.diagnostics if one.severity == "error"]
        shown = [str(one) for one in errors[:_SHOWN]]
        if len(errors) > _SHOWN:
            shown.append(f"and {len(errors) - _SHOWN} more errors, in .diagnostics")
        super().__init__("\n\n".join(shown) or log.strip() or "compilation failed")

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: the messages alone, since the fault lies in the kernel and not in Python."""
        return [f"CompileError: {self}"]


class CompilerMissing(RuntimeError):
    """There is no NVRTC on this machine; the message says how to get it, or that there is none for it."""


class DeviceError(RuntimeError):
    """The GPU or its driver refused something; the message says what and, where it is known, why."""


def parse_log(
    log: str, *, name_of: Callable[[str], str], place_of: Callable[[int], tuple[str, int, str]]
) -> list[Diagnostic]:
    """Read NVRTC's log.

    Args:
        log: the text of ``nvrtcGetProgramLog``.
        name_of: turns a path of the log into the name to show.
        place_of: turns a line of the PTX into the file, line and text of the source that it came from.
    """
    found: list[Diagnostic] = []
    block: list[str] = []
    for line in [*log.splitlines(), ""]:
        if _PTXAS.match(line):
            found.append(_from_ptxas(line, place_of))
        elif remark := _PTXAS_REMARK.match(line):
            around = _AROUND.search(remark["message"])
            file, number, source = place_of(int(around[1]) if around else 0)
            found.append(Diagnostic(file, number, 0, "warning", remark["message"], source))
        elif _HEADER.match(line) and not block:
            block = [line]
        elif block and (not line.strip() or _CARET.match(line)):
            found.append(_from_front_end([*block, line], name_of))
            block = []
        elif block:
            block.append(line)
    return found


def _from_front_end(block: list[str], name_of: Callable[[str], str]) -> Diagnostic:
    head = _HEADER.match(block[0])
    assert head is not None
    body, column, source = block[1:], 0, ""
    if _CARET.match(body[-1]):
        column = body[-1].index("^") - _INDENT + 1
        source = body[-2][_INDENT:] if len(body) > 1 else ""
        body = body[:-2]
    message = " ".join([head["message"], *(line.strip() for line in body if line.strip())])
    severity = "error" if head["severity"].endswith("error") else "warning"
    return Diagnostic(name_of(head["file"]), int(head["line"]), column, severity, message, source)


def _from_ptxas(line: str, place_of: Callable[[int], tuple[str, int, str]]) -> Diagnostic:
    found = _PTXAS.match(line)
    assert found is not None
    file, source_line, source = place_of(int(found["line"]))
    message = f"{found['message']} (the assembler, at line {found['line']} of the PTX)"
    return Diagnostic(file, source_line, 0, found["severity"], message, source)
