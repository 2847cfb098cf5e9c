"""What a kernel takes of an SM, as the assembler reports it."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ENTRY = re.compile(r"Compiling entry function '(?P<name>[^']+)'")
_SPILLS = re.compile(
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill"
)
_USED = re.compile(r"Used (?P<registers>\d+) registers")
_SMEM = re.compile(r"(?P<smem>\d+) bytes smem")


@dataclass(frozen=True)
class Resources:
    """Of one kernel: registers a thread, static shared memory a CTA, and what did not fit into registers, in bytes."""

    registers: int
    smem_bytes: int = 0
    stack_bytes: int = 0
    spill_store_bytes: int = 0
    spill_load_bytes: int = 0

    def __str__(self) -> str:
        text = f"{self.registers} registers, {self.smem_bytes:,} bytes of static shared memory"
        if self.spill_store_bytes or self.spill_load_bytes:
            text += f", {self.spill_store_bytes} bytes of registers spilled"
        return text


def parse_resources(log: str) -> dict[str, Resources]:
    """The resources of each kernel, by symbol, from the assembler's verbose log."""
    found: dict[str, Resources] = {}
    name, spills = "", (0, 0, 0)
    for line in log.splitlines():
        if entry := _ENTRY.search(line):
            name, spills = entry["name"], (0, 0, 0)
        elif frame := _SPILLS.search(line):
            spills = (int(frame["stack"]), int(frame["stores"]), int(frame["loads"]))
        elif name and (used := _USED.search(line)):
            smem = _SMEM.search(line)
            found[name] = Resources(int(used["registers"]), int(smem["smem"]) if smem else 0, *spills)
    return found
