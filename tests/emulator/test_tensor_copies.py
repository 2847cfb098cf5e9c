"""Tensor loads, stores, multicasts and prefetches against a model that moves one element at a time."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from ptxrun import launch
from tensor_model import Bytes, Copy, aligned, random_copy

from mlacademy.gpu import map_record
from mlacademy.gpu.tensor_map import TensorMap

SHARED = 8192
ORDERS = [{"order": "eager"}, {"order": "lazy", "seed": 3}, *({"order": "seeded", "seed": s} for s in (1, 2))]
every_order = pytest.mark.parametrize("order", ORDERS, ids=lambda o: f"{o['order']}{o.get('seed', '')}")

# Every thread brings `init` to shared memory; one copies a tensor; shared memory goes to `out`.
KERNEL = """.visible .entry k(.param .align 64 .b8 map[128], .param .u64 tensor, .param .u64 init, .param .u64 out,
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
{copy}
READ: {wait} barrier.cluster.arrive; barrier.cluster.wait; mov.u32 %r30, %r0;
OUT: mad.lo.s32 %r32, %r30, 4, %r10; ld.shared.u32 %r31, [%r32];
mul.wide.u32 %d3, %r30, 4; add.s64 %d4, %d1, %d3; st.global.u32 [%d4], %r31;
add.s32 %r30, %r30, 32; setp.lt.u32 %p2, %r30, 2048; @%p2 bra OUT;
ret; }}"""
WAIT = "W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r12], 0; @!%p2 bra W;"
LOAD = """cp.async.bulk.tensor.{rank}d.shared::{space}.global{tile}.mbarrier::complete_tx::bytes{more}
[%r11], {at}, [%r12]{mask};"""
STORE = """cp.async.bulk.tensor.{rank}d.global.shared::cta{tile}.bulk_group {at}, [%r11];
cp.async.bulk.commit_group; {done}"""


def operand(rank: int) -> str:
    return f"[%d2, {{{', '.join(f'%r{k}' for k in range(1, rank + 1))}}}]"


def run(
    copy: Copy, body: str, tensor: Bytes, shared: Bytes, *, wait: str = "", record: bytes = b"", **options: Any
) -> Bytes:
    """Shared memory after `body`; the tensor's bytes lie in the map's tensor meanwhile."""
    it = copy.tensor_map
    memory = it.tensor
    memory[:] = tensor
    out = np.zeros_like(shared)
    launch(
        KERNEL.format(copy=body, wait=wait),
        record or map_record.encode(it, memory.ctypes.data),
        memory,
        shared,
        out,
        copy.offset,
        it.box_bytes,
        np.array((*copy.at, 0, 0, 0, 0)[:5], np.int32).tobytes(),
        **options,
    )
    tensor[:] = memory
    return out


def noise(count: int, seed: int) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8)


def load(copy: Copy, **how: str) -> str:
    rank = copy.tensor_map.rank
    defaults = {"space": "cluster", "tile": "", "more": "", "mask": ""}
    return LOAD.format(rank=rank, at=operand(rank), **(defaults | how))


@every_order
@pytest.mark.parametrize("batch", range(6))
def test_loads_bring_every_element_to_its_place(batch: int, order: dict[str, Any]) -> None:
    chooser = random.Random(f"load {batch}")
    for number in range(20):
        copy = random_copy(chooser)
        tensor, shared = noise(copy.tensor_map.tensor.size, number), noise(SHARED, 99 + number)
        body = load(copy, space=chooser.choice(["cluster", "cta"]), tile=chooser.choice(["", ".tile"]))
        got = run(copy, body, tensor.copy(), shared, wait=WAIT, **order)
        expected = shared.copy()
        copy.load(tensor, expected)
        assert np.array_equal(got, expected), copy


@every_order
@pytest.mark.parametrize("batch", range(4))
def test_stores_write_what_is_inside_and_nothing_else(batch: int, order: dict[str, Any]) -> None:
    chooser = random.Random(f"store {batch}")
    for number in range(20):
        copy = random_copy(chooser, store=True)
        rank = copy.tensor_map.rank
        tensor, shared = noise(copy.tensor_map.tensor.size, number), noise(SHARED, 99 + number)
        expected = tensor.copy()
        copy.store(expected, shared)
        done = chooser.choice(["cp.async.bulk.wait_group 0;", "cp.async.bulk.wait_group.read 0;", ""])
        body = STORE.format(rank=rank, at=operand(rank), tile=chooser.choice(["", ".tile"]), done=done)
        # The kernel waits at the end in any case: the CTA's shared memory is read until then.
        got = run(copy, body + "cp.async.bulk.wait_group.read 0;", tensor, shared, **order)
        assert np.array_equal(tensor, expected), copy
        assert np.array_equal(got, shared), copy


@every_order
def test_multicast_brings_a_box_to_the_ctas_of_the_mask(order: dict[str, Any]) -> None:
    chooser = random.Random("multicast")
    for number in range(12):
        copy = random_copy(chooser)
        size = chooser.choice([2, 4, 8])
        mask = chooser.randrange(1, 1 << size)
        tensor, shared = noise(copy.tensor_map.tensor.size, number), noise(SHARED * size, 99 + number)
        body = load(copy, more=".multicast::cluster", mask=", %h1")
        issuer = f"mov.u16 %h1, {mask}; setp.ne.u32 %p3, %r20, {chooser.randrange(size)}; @%p3 bra READ; {body}"
        chosen = f"shr.u32 %r33, {mask}, %r20; and.b32 %r33, %r33, 1; setp.eq.u32 %p3, %r33, 0;"
        wait = f"{chosen} @%p3 bra SKIP; {WAIT} SKIP:"
        shape = {"grid": (size, 1, 1), "cluster": (size, 1, 1)}
        got = run(copy, issuer, tensor.copy(), shared, wait=wait, **shape, **order)
        expected = shared.copy().reshape(size, SHARED)
        for rank in range(size):
            if mask >> rank & 1:
                copy.load(tensor, expected[rank])
        assert np.array_equal(got.reshape(size, SHARED), expected), (copy, mask)


def test_without_the_wait_a_late_load_leaves_poison_in_the_box_only() -> None:
    copy = plain()
    tensor, shared = noise(copy.tensor_map.tensor.size, 1), noise(SHARED, 2)
    got = run(copy, load(copy), tensor, shared, order="lazy")
    expected = shared.copy()
    expected[256 : 256 + 1024] = 0xFF
    assert np.array_equal(got, expected)


def test_a_source_overwritten_before_it_is_read_shows_under_lazy_completion() -> None:
    copy = plain()
    tensor, shared = noise(copy.tensor_map.tensor.size, 1), noise(SHARED, 2)
    body = STORE.format(rank=2, at=operand(2), tile="", done="st.shared.u32 [%r11], 0x01020304;")
    run(copy, body, tensor, shared, order="lazy")
    assert tensor[:4].tolist() == [4, 3, 2, 1]


def test_parts_of_a_load_arrive_one_after_the_other() -> None:
    # The barrier's tx count, read until the phase ends, goes down in several steps under some seed.
    copy = plain()
    look = """mov.u32 %r34, 0; mov.u32 %r35, 0x7fffffff;
    LOOK: ld.shared.u64 %d5, [%r12]; shl.b64 %d5, %d5, 3; shr.s64 %d5, %d5, 43; cvt.u32.u64 %r33, %d5;
    setp.eq.s32 %p4, %r33, %r35; @%p4 bra SAME; add.s32 %r34, %r34, 1; mov.u32 %r35, %r33; SAME:
    setp.ne.s32 %p4, %r33, 0; @%p4 bra LOOK; st.shared.u32 [%r10], %r34;"""
    steps = set()
    for seed in range(1, 12):
        tensor, shared = noise(copy.tensor_map.tensor.size, 1), noise(SHARED, 2)
        got = run(copy, load(copy) + look, tensor, shared, order="seeded", seed=seed)
        steps.add(int(got[:4].view(np.uint32)[0]))
    assert max(steps) >= 3
    assert len(steps) >= 3


def plain(dtype: str = "float32", **fields: Any) -> Copy:
    """A box of 16 rows of 64 bytes inside of a tensor of 32 rows of 128 bytes."""
    size = {"float32": 4, "uint8": 1, "uint64": 8}[dtype]
    tensor_map = TensorMap(aligned(32 * 128), dtype, (128 // size, 32), (128,), (64 // size, 16), **fields)
    return Copy(tensor_map, (0, 0), 256)
