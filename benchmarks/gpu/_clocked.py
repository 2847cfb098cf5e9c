"""PTX with clocks put in: each CTA's cycles from its first thread's first instruction to its last thread's last.

The kernel gets one more parameter, an array of two 64-bit numbers a CTA: the smallest clock at entry, to be preset to
the largest number, and the largest clock at a `ret`, preset to 0.
"""

from __future__ import annotations

import re

_ENTRY = re.compile(r"(\.visible\s+\.entry\s+(?P<name>[\w$]+)\s*\()(?P<params>[^)]*)\)(?P<rest>[^{]*)\{", re.DOTALL)

_BEGIN = """
	.reg .b64 %mlaclk<8>;
	.reg .b32 %mlacta<8>;
	mov.u64 %mlaclk0, %clock64;
"""

_END = """
	mov.u64 %mlaclk1, %clock64;
	mov.u32 %mlacta0, %ctaid.x;
	mov.u32 %mlacta1, %ctaid.y;
	mov.u32 %mlacta2, %nctaid.x;
	mad.lo.u32 %mlacta3, %mlacta1, %mlacta2, %mlacta0;
	ld.param.u64 %mlaclk2, [mla_clocks];
	mad.wide.u32 %mlaclk3, %mlacta3, 16, %mlaclk2;
	red.global.min.u64 [%mlaclk3], %mlaclk0;
	red.global.max.u64 [%mlaclk3+8], %mlaclk1;
	ret;
"""


def _closing(ptx: str, start: int) -> int:
    """Where the brace that was opened before ``start`` closes."""
    depth = 1
    for brace in re.finditer(r"//[^\n]*|[{}]", ptx[start:]):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            return start + brace.start()
    raise ValueError("a brace is not closed")


def clocked(ptx: str, name: str) -> str:
    """``ptx`` with the kernel ``name`` clocked; `ValueError` where it is not in it."""
    for entry in _ENTRY.finditer(ptx):
        if entry["name"] != name:
            continue
        stop = _closing(ptx, entry.end())
        body = re.sub(r"^\s*ret;", lambda _: _END, ptx[entry.end() : stop], flags=re.MULTILINE)
        separator = ",\n" if entry["params"].strip() else ""
        head = f"{entry[1]}{entry['params'].rstrip()}{separator}\t.param .u64 mla_clocks\n){entry['rest']}{{{_BEGIN}"
        return ptx[: entry.start()] + head + body + ptx[stop:]
    raise ValueError(f"the PTX has no kernel {name}")
