"""Which headers a kernel reaches: the course's own, the caller's and those of NVIDIA's wheels.

The text of every header of the first two kinds is part of a compilation's fingerprint; the wheels' headers are stood
for by the wheels' versions. Conditions are not evaluated: a header named in a branch that is not taken counts too,
which costs at most a needless compilation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_INCLUDE = re.compile(
    r"^[ \t]*#[ \t]*include[ \t]*(?:\"(?P<quoted>[^\"\n]+)\"|<(?P<angled>[^>\n]+)>|(?P<computed>\S.*))", re.MULTILINE
)
_PROBE = re.compile(r"__has_include\s*\(\s*(?:\"(?P<quoted>[^\"\n]+)\"|<(?P<angled>[^>\n]+)>)")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|(\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')", re.DOTALL)


def header_layer() -> Path:
    """The folder of the course's CUDA headers and kernels.

    Raises ``FileNotFoundError`` where the package was installed without them.
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package.parents[1] / "kernels" / "cuda", package / "kernels_cuda"):
        if (folder / "mbarrier.cuh").is_file():
            return folder
    raise FileNotFoundError("the course's CUDA headers (kernels/cuda) are not beside this installation of mlacademy")


@dataclass(frozen=True)
class Reached:
    """The headers a source reaches.

    Attributes:
        texts: name as included (or, for files, the path that it led to) → text, in the order they were met.
        closed: False when an ``#include`` names its file by a macro, so that the list may not be complete.
    """

    texts: dict[str, str]
    closed: bool


def without_comments(text: str) -> str:
    """``text`` with comments replaced by a space; string literals stay."""
    return _COMMENT.sub(lambda found: found.group(1) or " ", text)


def reach(source: str, folder: Path, *, headers: Mapping[str, str], folders: tuple[Path, ...]) -> Reached:
    """Follow the ``#include`` lines of ``source``, transitively.

    Args:
        source: the text to start from; a quoted name is looked for in ``folder`` first.
        headers: headers given as text, which NVRTC prefers to files.
        folders: where else files are looked for, in order; the wheels' folders are not among them.
    """
    texts: dict[str, str] = {}
    closed = True
    waiting: list[tuple[str, Path | None]] = [(source, folder)]
    while waiting:
        text, beside = waiting.pop()
        plain = without_comments(text) if "/*" in text or "//" in text else text
        closed = closed and not any(found["computed"] for found in _INCLUDE.finditer(plain))
        for found in (*_INCLUDE.finditer(plain), *_PROBE.finditer(plain)):
            name = found["quoted"] or found["angled"]
            if not name:
                continue
            if name in headers:
                if name not in texts:
                    texts[name] = headers[name]
                    waiting.append((headers[name], None))
                continue
            near = (beside,) if found["quoted"] and beside is not None else ()
            path = next((place / name for place in (*near, *folders) if (place / name).is_file()), None)
            if path is not None and str(path) not in texts:
                texts[str(path)] = path.read_text(encoding="utf-8", errors="replace")
                waiting.append((texts[str(path)], path.parent))
    return Reached(texts, closed)
