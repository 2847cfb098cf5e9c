"""Mutated PTX: what goes wrong on purpose, and what the emulator may answer.

`attempt(text)` loads a text and runs each of its kernels within a step budget. Whatever the text is, the answer is a
result or an error that names what is wrong; a crash, a hang or any other exception is a finding.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import numpy as np

from mlacademy import _emulator

SHIPPED = Path(__file__).parents[2] / "src" / "mlacademy" / "kernels_ptx"
TOKEN = re.compile(r'"[^"\n]*"|[%$\w.:]+|\s+|.', re.DOTALL)
NUMBERS = (
    *("0", "1", "-1", "31", "32", "33", "255", "256", "4096", "65535", "65536", "16777216", "2147483647", "2147483648"),
    *("4294967295", "4294967296", "1099511627776", "9223372036854775807", "18446744073709551615"),
    *("18446744073709551616", "0x", "0x1ffffffffffffffff", "0f7fc00000", "0d7ff0000000000000", "1e999", "-0.0", "08"),
)
SMALL = """.version 9.0
.target sm_90a
.address_size 64
.const .align 4 .b32 table[4] = {1, 2, 3, 4};
.global .align 8 .u64 where[3] = {square, table, 0};
.func (.param .b32 r) square(.param .b32 x) { .reg .b32 %a<3>; ld.param.b32 %a1, [x]; mul.lo.s32 %a2, %a1, %a1;
    st.param.b32 [r], %a2; ret; }
.func (.reg .b32 r) down(.reg .b32 x) { .reg .pred %p; .reg .b32 t; mov.u32 r, 1; setp.le.s32 %p, x, 0; @%p ret;
    add.s32 t, x, -1; call (r), down, (t); add.s32 r, r, x; ret; }
.visible .entry k(.param .u64 data, .param .align 8 .b8 blob[24]) .maxntid 64, 1, 1 {
    .reg .pred %p<5>; .reg .b16 %h<9>; .reg .b32 %r<20>; .reg .f32 %f<9>; .reg .b64 %d<12>; .reg .b128 %q<3>;
    .shared .align 16 .b8 tile[512]; .shared .align 8 .b8 bar[16]; .local .align 8 .b8 mine[32];
    mov.u32 %r0, %tid.x; ld.param.u64 %d0, [data]; ld.param.u32 %r1, [blob+4]; mad.wide.u32 %d1, %r0, 4, %d0;
    ld.global.u32 %r2, [%d1]; and.b32 %r3, %r0, 3; mov.u32 %r4, tile; mad.lo.s32 %r5, %r0, 8, %r4;
    setp.eq.s32 %p1, %r0, 0;
    @%p1 mbarrier.init.shared::cta.b64 [bar], 1; st.shared.v2.u32 [%r5], {%r2, %r0}; bar.sync 0;
    ts: .branchtargets A, B, C, D; brx.idx %r3, ts;
    A: add.s32 %r6, %r2, 1; bra.uni E;
    B: shl.b32 %r6, %r2, 2; bra E;
    C: { .param .b32 x; .param .b32 y; st.param.b32 [x], %r2; call (y), square, (x); ld.param.b32 %r6, [y]; } bra E;
    D: ld.global.u64 %d2, [where]; { .param .b32 x; .param .b32 y; pt: .callprototype (.param .b32 _) _ (.param .b32 _);
       st.param.b32 [x], %r0; call (y), %d2, (x), pt; ld.param.b32 %r6, [y]; }
    E: call (%r7), down, (%r3); st.local.u32 [mine+4], %r7; ld.local.u32 %r7, [mine+4]; add.s32 %r6, %r6, %r7;
    shfl.sync.bfly.b32 %r8|%p2, %r6, 1, 31, -1; vote.sync.ballot.b32 %r9, %p2, -1; elect.sync %r10|%p3, -1;
    cvt.rn.f32.s32 %f1, %r8; ex2.approx.ftz.f32 %f2, %f1; cvt.rn.bf16x2.f32 %r11, %f2, %f1; mov.b32 {%h1, %h2}, %r11;
    atom.global.add.u32 %r12, [%d0], %r9; red.shared.max.u32 [%r5], %r6; cp.async.ca.shared.global [%r5], [%d1], 4;
    cp.async.commit_group; cp.async.wait_group 0; fence.proxy.async; bar.sync 0;
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 64;
    @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%d0], 64, [bar];
    W: mbarrier.try_wait.parity.shared::cta.b64 %p4, [bar], 0; @!%p4 bra W;
    ld.shared.u32 %r13, [%r5]; add.s32 %r6, %r6, %r13; ld.const.u32 %r14, [table+8]; xor.b32 %r6, %r6, %r14;
    bar.sync 0; shr.u32 %r15, %r0, 5; mad.lo.s32 %r15, %r15, 128, %r4; and.b32 %r16, %r0, 7;
    mad.lo.s32 %r15, %r16, 16, %r15;
    stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r15+256], %r6; alloca.u64 %d3, 16; st.local.u32 [%d3], %r6;
    st.global.u32 [%d1], %r6; exit;
}
"""


def seeds() -> list[str]:
    """The texts that mutation starts from."""
    return [SMALL, *(path.read_text() for path in sorted(SHIPPED.glob("*.sm_90a.ptx")))]


def mutate(text: str, chooser: random.Random, vocabulary: list[str]) -> str:
    """The text with one to a few things changed: tokens, numbers, lines, or raw characters."""
    for _ in range(chooser.choice((1, 1, 1, 2, 3, 8))):
        tokens = TOKEN.findall(text)
        if not tokens:
            return text
        at, other = chooser.randrange(len(tokens)), chooser.randrange(len(tokens))
        kind = chooser.randrange(12)
        if kind == 0:
            del tokens[at]
        elif kind == 1:
            tokens.insert(at, tokens[other])
        elif kind == 2:
            tokens[at], tokens[other] = tokens[other], tokens[at]
        elif kind in (3, 4):
            tokens[at] = chooser.choice(vocabulary)
        elif kind in (5, 6):
            numbers = [i for i, token in enumerate(tokens) if token[0].isdigit()]
            if numbers:
                tokens[chooser.choice(numbers)] = chooser.choice(NUMBERS)
        elif kind == 7:
            tokens[at:at] = [chooser.choice("{([<@!")] * chooser.choice((1, 3, 70, 2000))
        elif kind == 8:
            tokens = tokens[: at + 1]
        elif kind == 9:
            low, high = sorted((at, other))
            tokens[low:low] = tokens[low : min(high, low + 60)] * chooser.choice((1, 1, 5))
        elif kind == 10:
            tokens[at] = "".join(chr(chooser.randrange(256)) for _ in range(chooser.randrange(1, 9)))
        else:
            low, high = sorted((at, other))
            del tokens[low : min(high, low + 40)]
        text = "".join(tokens)
    return text


def vocabulary() -> list[str]:
    """Words of all seeds, each once."""
    return sorted({token for text in seeds() for token in TOKEN.findall(text) if not token.isspace()})


def name_of(error: Exception) -> str:
    """The error's name; one without words is a finding."""
    if not str(error).strip() and not isinstance(error, MemoryError):
        raise AssertionError(f"{type(error).__name__} without a word")
    return type(error).__name__


def attempt(text: str, budget: int = 20_000, **options: object) -> str:
    """What became of a text: the name of the error, or `ran`."""
    try:
        program = _emulator.Program(text)
    except (_emulator.PtxError, MemoryError) as error:
        return name_of(error)
    outcome = "loaded"
    for kernel in program.kernels:
        data = np.arange(1, 4097, dtype=np.uint32)
        out = np.zeros(4096, np.uint32)
        params = bytearray(kernel["param_bytes"])
        for param, array in zip(kernel["params"], (data, out, data, out), strict=False):
            if param["size"] >= 8:
                params[param["offset"] : param["offset"] + 8] = array.ctypes.data.to_bytes(8, "little")
        buffers = [(array.ctypes.data, array.nbytes, name, True) for array, name in ((data, "data"), (out, "out"))]
        cluster = (kernel["reqnctapercluster"][0] or 1, 1, 1)
        block = (min(kernel["reqntid"][0] or kernel["maxntid"][0] or 64, 1024), 1, 1)
        settings = {"step_budget": budget, "check": ["all"], **options}
        try:
            _emulator.launch(program, kernel["name"], cluster, block, cluster, 8192, bytes(params), buffers, settings)
            outcome = "ran"
        except (_emulator.RunError, ValueError, MemoryError) as error:
            outcome = name_of(error)
    return outcome
