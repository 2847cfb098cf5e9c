"""A kernel around one tensor copy, for any device: shared memory is filled, the copy runs, shared memory comes back."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from tensor_model import Bytes, Copy, Im2colCopy, RowsCopy, aligned

from mlacademy.gpu import Device, LaunchPlan, Module

SHARED = 8192
HEADER = ".version 9.0\n.target sm_90a\n.address_size 64\n"
# Registers: %r11 the box's place, %r12 the mbarrier, %d2 the map, %r1 … %r5 the coordinates, %r20 the CTA's rank.
KERNEL = """.visible .entry k(.param .align 64 .b8 map[128], .param .u64 init, .param .u64 out,
.param .u32 offset, .param .u32 bytes, .param .align 4 .b8 at[20]) {{
.reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<40>; .reg .b64 %d<20>;
.shared .align 1024 .b8 box[8192]; .shared .align 8 .b64 full;
mov.u32 %r0, %tid.x; setp.eq.s32 %p1, %r0, 0; mov.u32 %r20, %cluster_ctarank;
mov.u32 %r10, box; ld.param.u32 %r11, [offset]; add.s32 %r11, %r10, %r11; mov.u32 %r12, full;
ld.param.u32 %r13, [bytes]; ld.param.u64 %d0, [init]; ld.param.u64 %d1, [out]; mov.b64 %d2, map;
cvta.param.u64 %d2, %d2; ld.param.u32 %r1, [at]; ld.param.u32 %r2, [at+4]; ld.param.u32 %r3, [at+8];
ld.param.u32 %r4, [at+12]; ld.param.u32 %r5, [at+16];
mul.wide.u32 %d3, %r20, 8192; add.s64 %d0, %d0, %d3; add.s64 %d1, %d1, %d3;
mov.u32 %r30, %r0;
IN: mul.wide.u32 %d3, %r30, 4; add.s64 %d4, %d0, %d3; ld.global.u32 %r31, [%d4];
mad.lo.s32 %r32, %r30, 4, %r10; st.shared.u32 [%r32], %r31;
add.s32 %r30, %r30, 32; setp.lt.u32 %p2, %r30, 2048; @%p2 bra IN;
@%p1 mbarrier.init.shared::cta.b64 [%r12], 1; @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r12], %r13;
fence.mbarrier_init.release.cluster; fence.proxy.async;
barrier.cluster.arrive; barrier.cluster.wait; @!%p1 bra READ;
{body}
READ: {wait} barrier.cluster.arrive; barrier.cluster.wait; mov.u32 %r30, %r0;
OUT: mad.lo.s32 %r32, %r30, 4, %r10; ld.shared.u32 %r31, [%r32];
mul.wide.u32 %d3, %r30, 4; add.s64 %d4, %d1, %d3; st.global.u32 [%d4], %r31;
add.s32 %r30, %r30, 32; setp.lt.u32 %p2, %r30, 2048; @%p2 bra OUT;
ret; }}"""
WAIT = "W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r12], 0; @!%p2 bra W;"


def operand(rank: int) -> str:
    """The map and its coordinates."""
    return f"[%d2, {{{', '.join(f'%r{k}' for k in range(1, rank + 1))}}}]"


def coordinates(copy: Copy) -> int:
    """How many an instruction gives."""
    return 5 if isinstance(copy, RowsCopy) else copy.tensor_map.rank


def load(copy: Copy, *, space: str = "cluster", tile: str = "", more: str = "", mask: str = "") -> str:
    """The load of a copy."""
    rank = copy.tensor_map.rank
    before = ""
    if isinstance(copy, RowsCopy):
        tile = ".tile::gather4"
    if isinstance(copy, Im2colCopy):
        names = [f"%h{2 + axis}" for axis in range(len(copy.offsets))]
        before = " ".join(f"mov.u16 {name}, {offset};" for name, offset in zip(names, copy.offsets, strict=True))
        tile, mask = ".im2col", f", {{{', '.join(names)}}}{mask}"
    opcode = f"cp.async.bulk.tensor.{rank}d.shared::{space}.global{tile}.mbarrier::complete_tx::bytes{more}"
    return f"{before} {opcode} [%r11], {operand(coordinates(copy))}, [%r12]{mask};"


def multicast(copy: Copy, size: int, mask: int, issuer: int) -> tuple[str, str]:
    """The load of a copy by one CTA of a cluster into those of the mask; and their wait."""
    body = load(copy, more=".multicast::cluster", mask=", %h1")
    wait = f"shr.u32 %r33, {mask}, %r20; and.b32 %r33, %r33, 1; setp.eq.u32 %p3, %r33, 0; @%p3 bra SKIP; {WAIT} SKIP:"
    return f"mov.u16 %h1, {mask}; setp.ne.u32 %p3, %r20, {issuer % size}; @%p3 bra READ; {body}", wait


DONE = "cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;"


def store(copy: Copy, *, tile: str = "", done: str = DONE) -> str:
    """The store of a copy."""
    rank = copy.tensor_map.rank
    if isinstance(copy, Im2colCopy):
        tile = ".im2col_no_offs"
    if isinstance(copy, RowsCopy):
        tile = ".tile::scatter4"
    place = operand(coordinates(copy))
    return f"cp.async.bulk.tensor.{rank}d.global.shared::cta{tile}.bulk_group {place}, [%r11]; {done}"


def reduce(copy: Copy, operation: str) -> str:
    """The reduction of a copy."""
    rank = copy.tensor_map.rank
    opcode = f"cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{operation}.bulk_group"
    return f"{opcode} {operand(rank)}, [%r11]; {DONE}"


@functools.lru_cache(maxsize=1024)
def module(body: str, wait: str) -> Module:
    """The kernel around `body`."""
    return Module.from_ptx(HEADER + KERNEL.format(body=body, wait=wait))


def run(
    device: Device, copy: Copy, body: str, tensor: Bytes, shared: Bytes, *, wait: str = "", **options: Any
) -> tuple[Bytes, Bytes]:
    """The tensor and shared memory (of all CTAs) after `body`, whose tensor holds these bytes before."""
    it = copy.tensor_map
    if tensor is not it.tensor:
        it.tensor[:] = tensor
    out = aligned(shared.size)  # a kernel may keep a tensor map there
    size = shared.size // SHARED
    at = np.array((*copy.at, 0, 0, 0, 0)[:5], np.int32).tobytes()
    device.launch(
        module(body, wait)["k"],
        LaunchPlan(grid=size, block=32, cluster=size),
        (it, shared, out, copy.offset, copy.box_bytes, at),
        **options,
    )
    device.synchronize()
    return it.tensor.copy(), out


def noise(count: int, seed: int) -> Bytes:
    """Random bytes."""
    return np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8)
