"""Markers, the comments that name warps and shared memory: what they change, what they cost, how they fail."""

from __future__ import annotations

import re

import numpy as np
import pytest
from ptxrun import HEADER, launch

from mlacademy import _emulator

# Two warps; the second waits for an mbarrier that nobody completes, at `offset` bytes into the variable.
WAITING = """
.visible .entry k(.param .u32 offset) {{
.reg .pred %p<3>; .reg .b32 %r<9>;
.shared .align 8 .b8 _ZZ1kE4ring[256];
mov.u32 %r1, %tid.x;
mov.u32 %r2, _ZZ1kE4ring;
ld.param.u32 %r3, [offset];
add.u32 %r4, %r2, %r3;
setp.lt.u32 %p1, %r1, 32;
@%p1 bra done;
{markers}
mbarrier.init.shared.b64 [%r4], 32;
again:
mbarrier.try_wait.parity.shared.b64 %p2, [%r4], 0;
@!%p2 bra again;
done: ret;
}}
"""


def hang(markers: str, offset: int) -> str:
    with pytest.raises(_emulator.Deadlock) as caught:
        launch(WAITING.format(markers=markers), offset, block=(64, 1, 1))
    return str(caught.value)


@pytest.mark.parametrize(
    ("markers", "offset", "name"),
    [
        ("", 0, "ring"),
        ("", 16, "ring + 16"),
        ("// an ordinary comment", 8, "ring + 8"),
        ('// mla.buffer "full[0]", %r2, 8', 0, "full[0]"),
        ('// mla.buffer "full[0]", %r2, 8', 8, "ring + 8"),
        ('//  mla.buffer "stage", %r2, 128', 24, "stage + 24"),
        ('// mla.array "full", %r2, 8, 4', 24, "full[3]"),
        ('// mla.array "full", %r2, 8, 4', 32, "ring + 32"),
        ('// mla.element "empty", %r4, 8, 5', 40, "empty[5]"),
        ('// mla.buffer "all", %r2, 256\n// mla.buffer "inner", %r4, 8', 16, "inner"),
        ('// mla.buffer "old", %r2, 64\n// mla.buffer "new", %r2, 64', 0, "new"),
        ('// mla.buffer "inner", %r4, 8\n// mla.buffer "over it", %r2, 256', 16, "over it + 16"),
    ],
)
def test_a_report_calls_shared_memory_by_its_name(markers: str, offset: int, name: str) -> None:
    assert f"({name})" in hang(markers, offset)


def test_a_report_calls_a_warp_by_its_role() -> None:
    assert "warp 1 (math warpgroup) lanes" in hang('// mla.role "first"\n// mla.role "math warpgroup"', 0)
    assert "warp 1 lanes" in hang("", 0)


def test_names_in_a_loop_hold_for_each_pass() -> None:
    loop = """mov.u32 %r5, 0;
    next: mad.lo.u32 %r6, %r5, 64, %r2;
    // mla.element "stage", %r6, 64, %r5
    add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 4; @%p2 bra next;"""
    assert "(stage[2] + 8)" in hang(loop, 136)


def test_names_do_not_count_as_instructions() -> None:
    body = (
        ".visible .entry k() {{ .shared .b8 s[64]; .reg .b32 %r<3>; mov.u32 %r1, s;\n{}\nadd.u32 %r2, %r1, 1;\nret; }}"
    )
    marked = launch(body.format('// mla.role "all"\n// mla.buffer "b", %r1, 16\n// mla.array "a", %r1, 16, 4'))
    plain = launch(body.format(""))
    assert marked == plain
    assert plain["instructions"] == 3


@pytest.mark.parametrize(
    ("marker", "error", "words"),
    [
        ("// mla.role", "PtxSyntaxError", "The marker '// mla.role' needs a name in quotes, but the line ends"),
        ("// mla.role producer", "PtxSyntaxError", "needs a name in quotes, but 'producer' stands there"),
        ('// mla.role "producer", %r1', "PtxInvalid", "must read 'mla.role \"name\"'"),
        ('// mla.role ""', "PtxInvalid", "gives an empty name"),
        ('// mla.buffer "full"', "PtxInvalid", "must read 'mla.buffer \"name\", address, bytes'"),
        ('// mla.buffer "full", %r1,', "PtxSyntaxError", "needs a register or a number after ','"),
        ('// mla.buffer "full", %r1, 8;', "PtxSyntaxError", "needs the end of the line, but ';' stands there"),
        ('// mla.buffer "full", %r9, 8', "PtxInvalid", "'%r9' is not declared"),
        ('// mla.buffer "full, %r1, 8', "PtxSyntaxError", "A string is not closed"),
        ('// mla.bufer "full", %r1, 8', "PtxInvalid", "is unknown; there are mla.role"),
    ],
)
def test_a_malformed_marker_is_an_error_with_its_line(marker: str, error: str, words: str) -> None:
    text = f"{HEADER}.visible .entry k() {{\n.reg .b32 %r<4>;\n{marker}\nret;\n}}\n"
    with pytest.raises(getattr(_emulator, error), match=re.escape(words)) as caught:
        _emulator.Program(text)
    assert caught.value.ptx_line == 6


@pytest.mark.parametrize("where", ["// plain\n", "/* mla.role */", "// see mla.role\n", "// mla\n"])
def test_other_comments_stay_comments(where: str) -> None:
    assert _emulator.Program(f"{HEADER}{where} .visible .entry k() {{ {where} ret; }}").kernels


@pytest.mark.parametrize(("address", "size"), [(0, 0), (0, 65), (60, 8)])
def test_a_name_for_memory_that_is_not_there_is_a_trap(address: int, size: int) -> None:
    text = f'.visible .entry k() {{ .shared .b8 s[64];\n// mla.buffer "b", {address}, {size}\nret; }}'
    with pytest.raises(_emulator.KernelTrap, match=f"The name 'b' is given to {size} bytes at shared offset {address}"):
        launch(text)


def test_each_cta_of_a_cluster_has_names_of_its_own() -> None:
    out = np.zeros(2, np.uint32)
    text = """.visible .entry k(.param .u64 out) {
    .reg .b32 %r<4>; .reg .b64 %d<3>; .reg .pred %p<3>; .shared .align 8 .b8 s[64];
    mov.u32 %r1, s; mov.u32 %r2, %cluster_ctarank; setp.eq.u32 %p1, %r2, 0; @%p1 bra zero;
    // mla.buffer "of rank 1", %r1, 64
    bra both;
    zero:
    // mla.buffer "of rank 0", %r1, 64
    both: mbarrier.init.shared.b64 [%r1], 32;
    wait: mbarrier.try_wait.parity.shared.b64 %p2, [%r1], 0; @!%p2 bra wait;
    ret; }"""
    with pytest.raises(_emulator.Deadlock) as caught:
        launch(text, out, grid=(2, 1, 1), cluster=(2, 1, 1))
    lines = str(caught.value).splitlines()
    assert ["of rank 0" in lines[1], "of rank 1" in lines[2]] == [True, True]
