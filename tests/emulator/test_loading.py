"""From text to a program: what the loader accepts, what it refuses and in which words; every row of the table loads."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from conformance import row_id
from formtable import BITS, FORMS, REGISTERS, Form, line_of, sample, types_of
from ptxrun import HEADER, launch, run_elementwise

from mlacademy import _emulator


def entry(body: str, params: str = "", directives: str = "") -> str:
    return f"{HEADER}.visible .entry k({params}) {directives} {{\n{REGISTERS}{body}\nret;\n}}\n"


def fits_sm90(mods: tuple[str, ...]) -> bool:
    count = next((int(mod[1]) for mod in mods if mod in ("v2", "v4", "v8")), 1)
    return count * max((BITS[kind] for kind in types_of(mods)), default=0) <= 128


PLAIN = [form for form in FORMS if "custom" not in form.flags and form.handler != "-"]


@pytest.mark.parametrize("form", PLAIN, ids=row_id)
def test_every_spelling_of_a_row_loads(form: Form) -> None:
    lines = [line_of(form, mods) for mods in sample(form, 60) if fits_sm90(mods)]
    assert lines
    assert _emulator.Program(entry("\n".join(lines))).kernels[0]["instructions"] == len(lines) + 2


@pytest.mark.parametrize(
    "form", [form for form in FORMS if form.handler == "-" and "custom" not in form.flags], ids=row_id
)
def test_a_known_form_that_does_not_run_says_so(form: Form) -> None:
    with pytest.raises(_emulator.PtxUnsupported, match="is not supported yet: kernel k"):
        _emulator.Program(entry(line_of(form, next(sample(form, 1)))))


@pytest.mark.parametrize(
    ("line", "error", "words"),
    [
        ("frobnicate.u32 %r1, %r2;", "PtxUnsupported", "Unknown instruction 'frobnicate.u32': kernel k (PTX line 10)"),
        (
            "add.u33 %r1, %r2, %r3;",
            "PtxUnsupported",
            "Unknown form 'add.u33' of instruction 'add': kernel k (PTX line 10)",
        ),
        ("add.u32 %r1, %r2;", "PtxInvalid", "'add.u32': an operand is missing"),
        ("add.u32 %r1, %r2, %r3, %r4;", "PtxInvalid", "'add.u32': too many operands"),
        (
            "add.u32 %r1, %r2, %d3;",
            "PtxInvalid",
            "'add.u32': operand 3: register '%d3' has 64 bits, type .u32 needs 32",
        ),
        ("add.u32 %r1, %r2, %x;", "PtxInvalid", "'add.u32': operand 3: '%x' is not declared"),
        ("add.u32 5, %r2, %r3;", "PtxInvalid", "operand 1: a number cannot be a destination"),
        ("add.f32 %r1, %r2, 1;", "PtxInvalid", "operand 3: the number does not suit type .f32"),
        ("add.s32 %r1, %r2, 0f3F800000;", "PtxInvalid", "operand 3: the number does not suit type .s32"),
        ("ld.global.u32 %r1, %d1;", "PtxInvalid", "operand 2: an address in [ ] is needed"),
        ("ld.global.v2.u32 %r1, [%d1];", "PtxInvalid", "operand 1: a vector of 2 is needed"),
        ("bra NOWHERE;", "PtxInvalid", "There is no label 'NOWHERE' in reach"),
        ("@%r1 bra NOWHERE;", "PtxInvalid", "The guard '%r1' is no predicate register"),
        ("A: A: mov.u32 %r1, 0;", "PtxInvalid", "The label 'A' stands twice in one scope"),
        ("lop3.b32 %r1, %r2, %r3, %r4, 256;", "PtxInvalid", "the truth table must be 0 to 255"),
        ("cvt.sat.u64.u32 %d1, %r1;", "PtxInvalid", ".sat where every value fits"),
        ("call missing;", "PtxUnsupported", "Call of 'missing', which has no body in this module"),
        ("add.u32 %r1, %r2 %r3;", "PtxSyntaxError", "Expected ';', found '%r3' at PTX line 10"),
        ("add.u32 %r1, %r2, 0x;", "PtxSyntaxError", "Cannot read the number '0x' at PTX line 10"),
        ("add.u32 %r1, `2`;", "PtxSyntaxError", "Unexpected character '`' at PTX line 10"),
        ("/* open", "PtxSyntaxError", "A comment is not closed at PTX line 10"),
        ("mov.u32 %r1, {%r2;", "PtxSyntaxError", "Expected '}', found ';' at PTX line 10"),
    ],
)
def test_each_mistake_is_named_with_its_line(line: str, error: str, words: str) -> None:
    with pytest.raises(getattr(_emulator, error), match=re.escape(words)) as caught:
        _emulator.Program(entry(line))
    assert caught.value.ptx_line == 10
    assert isinstance(caught.value, ValueError)


def test_an_error_names_the_line_of_the_cuda_source() -> None:
    text = (
        entry(".loc 1 42 7\n.loc 1 43 7, function_name $L__info0, inlined_at 1 99 3\nfrobnicate.u32 %r1;")
        + '.file 1 "dir/kernel.cu"\n'
    )
    with pytest.raises(_emulator.PtxUnsupported, match=r"kernel k, kernel\.cu line 43 \(PTX line 12\)") as caught:
        _emulator.Program(text)
    assert (caught.value.source_file, caught.value.source_line) == ("dir/kernel.cu", 43)


def test_code_inlined_from_a_header_belongs_to_the_line_that_called_it() -> None:
    # An access in base.cuh, inlined into wait.cuh, inlined into the helper at line 9, inlined into the kernel at 20.
    text = """.visible .entry k(.param .u64 out) { .reg .b64 %d0; .reg .b32 %r0;
.loc 1 18 0
.loc 1 9 5, function_name $L__info_string0, inlined_at 1 20 5
.loc 2 57 5, function_name $L__info_string1, inlined_at 1 9 5
.loc 3 25 5, function_name $L__info_string2+16, inlined_at 2 57 5
ld.shared.u32 %r0, [4096]; ret; }
.file 1 "dir/kernel.cu"
.file 2 "wait.cuh"
.file 3 "base.cuh"
"""
    with pytest.raises(_emulator.KernelTrap, match=r"kernel.cu line 9, in base.cuh line 25 \(PTX") as caught:
        launch(text, 0)
    assert (caught.value.source_file, caught.value.source_line) == ("dir/kernel.cu", 9)
    assert (caught.value.inner_file, caught.value.inner_line) == ("base.cuh", 25)
    assert caught.value.rule == "bounds"


def test_inner_scopes_have_registers_and_labels_of_their_own() -> None:
    code = """
    mov.u32 %d0, 1;
    { .reg .b32 t; .reg .pred p; mov.u32 t, 10; setp.eq.s32 p, t, 10; @p bra DONE2; mov.u32 t, 0;
    DONE2: add.s32 %d0, %d0, t; }
    { .reg .b32 t; .reg .pred p; mov.u32 t, 100; setp.eq.s32 p, t, 10; @p bra DONE2; add.s32 t, t, 1;
      { .reg .b32 t; mov.u32 t, 5000; add.s32 %d0, %d0, t; } DONE2: add.s32 %d0, %d0, t; }
    """
    assert run_elementwise(code, [], [32])[0].tolist() == [1 + 10 + 5000 + 101] * 32


@pytest.mark.parametrize(
    ("literal", "bits", "want"),
    [
        ("-1", 32, 0xFFFFFFFF), ("0x1F", 32, 31), ("0xFFFFFFFFFFFFFFFF", 64, (1 << 64) - 1), ("017", 32, 15),
        ("0b101", 32, 5), ("7U", 32, 7),
        ("0f3F800000", 32, 0x3F800000), ("-0f3F800000", 32, 0xBF800000),
        ("0d3FF0000000000000", 64, 0x3FF0000000000000), ("1.5", 32, 0x3FC00000),
    ],
)  # fmt: skip
def test_literals_of_every_spelling(literal: str, bits: int, want: int) -> None:
    assert run_elementwise(f"mov.b{bits} %d0, {literal};", [], [bits])[0][0] == want


def test_vectors_pack_low_element_first_and_drop_sinks() -> None:
    a = np.array([0x1111222233334444], np.uint64)
    code = (
        ".reg .b16 %x<5>;\nmov.b64 {%x1, %x2, %x3, %x4}, %a0; mov.b32 %d0, {%x2, %x1}; .reg .b32 %y; "
        "mov.b64 {_, %y}, %a0; mov.b32 %d1, %y;"
    )
    low, high = run_elementwise(code, [a], [32, 32])
    assert (low[0], high[0]) == (0x44443333, 0x11112222)


def test_variables_have_their_initial_values_and_live_between_launches() -> None:
    text = HEADER + """.global .align 4 .u32 counter = 5; .const .align 2 .b8 letters[4] = {1, 2, 3, 0xFF};
    .global .align 8 .u64 where[2] = {counter, letters+1};
    .visible .entry k(.param .u64 out) { .reg .b32 %r<9>; .reg .b64 %d<9>; ld.param.u64 %d1, [out];
    atom.global.add.u32 %r1, [counter], 1; ld.const.u8 %r2, [letters+3]; ld.global.u64 %d2, [where+8];
    ld.u8 %r3, [%d2]; mov.u64 %d4, where; ld.u64 %d5, [%d4]; ld.u32 %r4, [%d5];
    st.global.v4.u32 [%d1], {%r1, %r2, %r3, %r4}; ret; }"""  # fmt: skip
    program = _emulator.Program(text)
    for count in (5, 6):
        out = np.zeros(8, np.uint32)[:4]
        launch(program, out, block=(1, 1, 1))
        assert out.tolist() == [count, 255, 2, count + 1]
    assert [(name, size, writable) for name, _, size, writable in program.variables] == [
        ("counter", 4, True),
        ("letters", 4, False),
        ("where", 16, True),
    ]


def test_dynamic_shared_memory_begins_after_the_static_objects() -> None:
    text = HEADER + """.extern .shared .align 1024 .b8 dynamic[];
    .visible .entry k(.param .u64 out) { .shared .align 4 .b8 fixed[20];
    .reg .b32 %r<9>; .reg .b64 %d<9>; ld.param.u64 %d1, [out]; mov.u32 %r1, fixed; mov.u32 %r2, dynamic;
    mov.u32 %r3, %dynamic_smem_size; mov.u32 %r4, dynamic+8;
    st.shared.u32 [dynamic+96], %r1; st.global.u32 [%d1], %r1; st.global.u32 [%d1+4], %r2;
    st.global.u32 [%d1+8], %r3; st.global.u32 [%d1+12], %r4; ret; }"""  # fmt: skip
    out = np.zeros(4, np.uint32)
    launch(text, out, smem_bytes=100, block=(1, 1, 1))
    assert out.tolist() == [0, 1024, 100, 1032]


def test_a_kernel_describes_itself() -> None:
    text = entry(
        "mov.u32 %r1, 0;",
        ".param .u32 n, .param .align 64 .b8 map[128], .param .u64 p",
        ".maxntid 256, 1, 1 .minnctapersm 2 .reqnctapercluster 2, 1, 1",
    )
    (kernel,) = _emulator.Program(text).kernels
    assert [(p["name"], p["offset"], p["size"], p["type"]) for p in kernel["params"]] == [
        ("n", 0, 4, "u32"),
        ("map", 64, 128, "blob"),
        ("p", 192, 8, "u64"),
    ]
    assert (kernel["maxntid"], kernel["minnctapersm"], kernel["reqnctapercluster"]) == ([256, 1, 1], 2, [2, 1, 1])
    assert kernel["param_bytes"] == 200


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"grid": (0, 1, 1)}, "grid: every size must be at least 1, got (0, 1, 1)"),
        ({"block": (1025, 1, 1)}, "block: at most 1024 threads"),
        ({"block": (512, 1, 1)}, "block: the kernel allows at most 256 threads, got (512, 1, 1)"),
        ({"cluster": (2, 1, 1)}, "grid: (1, 1, 1) is no multiple of the cluster (2, 1, 1)"),
        ({"smem_bytes": 300000}, "smem_bytes: a block may have 232448 bytes of shared memory"),
        ({"order": "late"}, "order: 'eager', 'lazy' or 'seeded', got 'late'"),
        ({"speed": 9}, "options: unknown option 'speed'"),
    ],
)
def test_a_launch_that_cannot_be_is_refused(change: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        launch(entry("mov.u32 %r1, 0;", "", ".maxntid 256, 1, 1"), **change)


# ---- mutated text --------------------------------------------------------------------------------------------------

SEED_TEXT = entry(
    """.shared .align 8 .b64 bar; .local .align 4 .b8 slots[16]; .reg .pred p;
    mov.u32 %r1, %tid.x; setp.lt.u32 p, %r1, 7; @p bra A; shl.b32 %r2, %r1, 3; A: { .reg .b32 q; mov.u32 q, 3;
    add.s32 %r1, q, %r1; }
    st.local.u32 [slots+4], %r1; mov.b64 %d1, {%r1, %r2}; cvt.rn.f16x2.f32 %r3, %r1, 0f3F800000;
    shfl.sync.bfly.b32 %r4|p, %r1, 1, 31, -1;
    mbarrier.init.shared.b64 [bar], 1; bar.sync 0; TABLE: .branchtargets B, C; brx.idx %r5, TABLE;
    B: bar.warp.sync -1; C: exit;""",
    ".param .u64 data, .param .align 8 .b8 blob[24]",
)  # fmt: skip
PIECES = re.findall(r"[\w%$.]+|\s+|.", SEED_TEXT)


@pytest.mark.parametrize("seed", range(8))
def test_mutated_text_is_loaded_or_refused_and_never_worse(seed: int) -> None:
    chooser = random.Random(seed)
    outcomes = set()
    for _ in range(150):
        pieces = list(PIECES)
        for _ in range(chooser.randrange(1, 5)):
            at = chooser.randrange(len(pieces))
            kind = chooser.randrange(5)
            if kind == 0:
                del pieces[at : at + chooser.randrange(1, 4)]
            elif kind == 1:
                pieces[at] = chooser.choice(PIECES)
            elif kind == 2:
                pieces.insert(
                    at,
                    chooser.choice(
                        ["{", "}", ";", "[", "]", "0x", "-", "%r1", ".b32", "99999999999", "\x80", "(", '"']
                    ),
                )
            elif kind == 3:
                pieces[at] = pieces[at][: chooser.randrange(len(pieces[at]) + 1)]
            else:
                pieces[at] = pieces[at] * 2
        text = "".join(pieces)
        try:
            program = _emulator.Program(text)
            if program.kernels:
                kernel = program.kernels[0]
                _emulator.launch(
                    program,
                    kernel["name"],
                    (1, 1, 1),
                    (40, 1, 1),
                    (1, 1, 1),
                    0,
                    bytes(kernel["param_bytes"]),
                    [],
                    {"step_budget": 5000},
                )
            outcomes.add("ran")
        except (_emulator.PtxError, _emulator.RunError, ValueError) as error:
            outcomes.add(type(error).__name__)
    assert "PtxSyntaxError" in outcomes
    assert len(outcomes) > 2


def test_deep_nesting_is_refused() -> None:
    for text in (entry("{" * 100000), entry("mov.b64 %d1, " + "{" * 100000), ".global .b8 x[4] = " + "{" * 100000):
        with pytest.raises(_emulator.PtxSyntaxError):
            _emulator.Program(HEADER + text.removeprefix(HEADER))
