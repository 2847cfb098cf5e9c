"""The PTX that comes with the package: the course's unmodified kernels, for machines that have no NVRTC.

Each file of ``mlacademy/kernels_ptx`` starts with the fingerprint of the source and headers it was made from. It stands
in for the compiler as long as that source is unchanged.
"""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "kernels_ptx"
_MARK = re.compile(r"\A// (?P<name>\S+) for (?P<arch>\S+), source (?P<digest>[0-9a-f]{64}), by (?P<compiler>.+)\n")


def file_name(name: str, arch: str) -> str:
    """``bulk_copy.cu`` for ``sm_90a`` → ``bulk_copy.sm_90a.ptx``."""
    return f"{Path(name).stem}.{arch}.ptx"


def mark(name: str, arch: str, digest: str, compiler: str) -> str:
    """The first line of a shipped file."""
    return f"// {name} for {arch}, source {digest}, by {compiler}\n"


def shipped_ptx(name: str, digest: str) -> str | None:
    """The shipped PTX of the kernel ``name`` whose source has the fingerprint ``digest``, or None."""
    for file in sorted(FOLDER.glob(f"{Path(name).stem}.*.ptx")):
        text = file.read_text(encoding="utf-8")
        found = _MARK.match(text)
        if found and found["digest"] == digest:
            return text[found.end() :]
    return None


def opcodes(ptx: str) -> list[str]:
    """The instructions of ``ptx`` without operands, guards and labels: what two compilations must agree on."""
    plain = re.sub(r"//[^\n]*|^\s*\.(?:loc|file|pragma)\b[^\n]*", "", ptx, flags=re.MULTILINE)
    statements = re.split(r"[;{}]|:\s", plain)
    found = (re.match(r"\s*(?:@!?[\w%$]+\s+)?([a-z][\w.:]*)(?:\s|$)", text) for text in statements)
    return [one.group(1) for one in found if one]
