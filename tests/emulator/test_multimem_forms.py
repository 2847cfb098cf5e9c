"""Rows on multicast memory, and a few that move data in ways of their own, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from conformance import row_id, rows
from formtable import BITS, FORMS, VECTOR, Form, sample, types_of
from ptxrun import launch

KERNEL = """.visible .entry k(.param .u64 data, .param .u64 out) {{
.reg .pred %p<9>; .reg .b16 %h<40>; .reg .b32 %r<40>; .reg .b64 %d<40>; .shared .align 16 .b8 tile[512];
mov.u32 %r0, %tid.x; ld.param.u64 %d0, [data]; ld.param.u64 %d1, [out];
mad.wide.u32 %d2, %r0, 16, %d0; mad.wide.u32 %d3, %r0, 16, %d1; mov.u32 %r20, tile; mad.lo.s32 %r21, %r0, 16, %r20;
{body}
ret; }}"""


def run(body: str, source: np.ndarray, **options: object) -> np.ndarray:
    out = np.zeros_like(source)
    launch(KERNEL.format(body=body), source, out, **options)
    return out


def names(bits: int, count: int) -> str:
    prefix = {16: "%h", 32: "%r", 64: "%d"}[bits]
    listed = [f"{prefix}{5 + i}" for i in range(count)]
    return listed[0] if count == 1 else "{" + ", ".join(listed) + "}"


def wide(bits: int, count: int) -> list[tuple[str, str]]:
    """Registers of one element after the other, as pieces of at most four, with the ordinary vector suffix."""
    prefix = {16: "%h", 32: "%r", 64: "%d"}[bits]
    pieces = [range(i, min(i + 4, count)) for i in range(0, count, 4)]
    return [
        (
            f".v{len(piece)}" if len(piece) > 1 else "",
            "{" + ", ".join(f"{prefix}{5 + i}" for i in piece) + "}" if len(piece) > 1 else f"{prefix}{5 + piece[0]}",
        )
        for piece in pieces
    ]


def shape(mods: tuple[str, ...]) -> tuple[int, int]:
    return BITS[types_of(mods)[0]], next((VECTOR[mod] for mod in mods if mod in VECTOR), 1)


@pytest.mark.parametrize("form", rows("multimem_load"), ids=row_id)
def test_the_reduction_over_one_replica_is_its_value(form: Form) -> None:
    source = np.random.default_rng(0).integers(0, 256, 512, dtype=np.uint8)
    for mods in sample(form, 16):
        bits, count = shape(mods)
        stores = [
            f"st.global{suffix}.b{bits} [%d3+{4 * i * bits // 8}], {part};"
            for i, (suffix, part) in enumerate(wide(bits, count))
        ]
        body = f"{'.'.join([form.opcode, *mods])} {names(bits, count)}, [%d2]; {' '.join(stores)}"
        got = run(body, source).reshape(32, 16)[:, : bits // 8 * count]
        assert (got == source.reshape(32, 16)[:, : bits // 8 * count]).all(), mods


@pytest.mark.parametrize("form", [f for f in FORMS if f.opcode == "multimem" and f.handler == "st"], ids=row_id)
def test_a_store_reaches_the_one_replica(form: Form) -> None:
    source = np.random.default_rng(1).integers(0, 256, 512, dtype=np.uint8)
    for mods in sample(form, 16):
        bits, count = shape(mods)
        loads = [
            f"ld.global{suffix}.b{bits} {part}, [%d2+{4 * i * bits // 8}];"
            for i, (suffix, part) in enumerate(wide(bits, count))
        ]
        body = f"{' '.join(loads)} {'.'.join([form.opcode, *mods])} [%d3], {names(bits, count)};"
        got = run(body, source).reshape(32, 16)[:, : bits // 8 * count]
        assert (got == source.reshape(32, 16)[:, : bits // 8 * count]).all(), mods


def test_an_8x8_matrix_is_transposed() -> None:
    values = np.random.default_rng(2).integers(0, 65536, (8, 8), dtype=np.uint16)
    fragments = np.zeros((32, 8), np.uint16)  # lane l holds row l / 4, columns 2 (l % 4) and the next
    for lane in range(32):
        fragments[lane, :2] = values[lane // 4, 2 * (lane % 4) : 2 * (lane % 4) + 2]
    body = "ld.global.u32 %r1, [%d2]; movmatrix.sync.aligned.m8n8.trans.b16 %r2, %r1; st.global.u32 [%d3], %r2;"
    got = run(body, fragments)
    for lane in range(32):
        assert got[lane, :2].tolist() == values.T[lane // 4, 2 * (lane % 4) : 2 * (lane % 4) + 2].tolist()


@pytest.mark.parametrize("order", ["eager", "lazy"])
@pytest.mark.parametrize("policy", ["", ", %d9"])
def test_a_predicate_makes_cp_async_ignore_its_source(order: str, policy: str) -> None:
    source = np.arange(1, 129, dtype=np.uint32)
    hint = ".L2::cache_hint" if policy else ""
    body = f"""and.b32 %r1, %r0, 1; setp.eq.u32 %p1, %r1, 1; mov.u64 %d9, 0;
    cp.async.cg.shared.global{hint} [%r21], [%d2], 16, %p1{policy}; cp.async.wait_all;
    ld.shared.v4.u32 {{%r5, %r6, %r7, %r8}}, [%r21]; st.global.v4.u32 [%d3], {{%r5, %r6, %r7, %r8}};"""
    got = run(body, source, order=order).reshape(32, 4)
    assert (got[::2] == source.reshape(32, 4)[::2]).all()
    assert (got[1::2] == 0).all()
