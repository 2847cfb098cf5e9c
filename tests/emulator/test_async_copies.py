"""mbarriers, clusters, asynchronous copies under every completion order, and the reports when nothing can run."""

from __future__ import annotations

import re

import numpy as np
import pytest
from ptxrun import launch

from mlacademy import _emulator

KERNEL = """.visible .entry k(.param .u64 data, .param .u64 out) {{
.reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<40>; .reg .b64 %d<20>;
.shared .align 16 .b8 buffer[1024]; .shared .align 8 .b64 full; .shared .align 8 .b64 empty;
mov.u32 %r0, %tid.x; ld.param.u64 %d0, [data]; ld.param.u64 %d1, [out];
mad.wide.u32 %d2, %r0, 4, %d0; mad.wide.u32 %d3, %r0, 4, %d1; mov.u32 %r10, buffer; mad.lo.s32 %r11, %r0, 4, %r10;
mov.u32 %r12, full; mov.u32 %r13, empty; setp.eq.s32 %p1, %r0, 0; mov.u32 %r2, 0; mov.u32 %r20, %cluster_ctarank;
{body}
ret; }}"""
ORDERS = [{"order": "eager"}, {"order": "lazy"}, *({"order": "seeded", "seed": s} for s in range(1, 5))]
every_order = pytest.mark.parametrize("order", ORDERS, ids=lambda o: f"{o['order']}{o.get('seed', '')}")
WAIT = "{name}: mbarrier.try_wait.parity.shared::cta.b64 %p2, [{barrier}], {parity}; @!%p2 bra {name};"


def wait(barrier: str, parity: int | str, name: str = "W") -> str:
    return WAIT.format(barrier=barrier, parity=parity, name=name)


def run(
    body: str, data: np.ndarray | None = None, *, count: int = 32, out_count: int = 0, **options: object
) -> np.ndarray:
    source = np.arange(1, count + 1, dtype=np.uint32) if data is None else data
    out = np.zeros(out_count or count, np.uint32)
    options.setdefault("block", (count, 1, 1))
    launch(KERNEL.format(body=body), source, out, **options)
    return out


LOAD = """@%p1 mbarrier.init.shared::cta.b64 [%r12], 1;
fence.mbarrier_init.release.cluster; bar.sync 0; @!%p1 bra JOIN;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r12], {expect};
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r10], [%d0], 128, [%r12]; JOIN:
"""
READ = "ld.shared.u32 %r2, [%r11]; st.global.u32 [%d3], %r2;"


@every_order
def test_a_bulk_load_is_seen_after_the_wait(order: dict[str, object]) -> None:
    assert run(LOAD.format(expect=128) + wait("%r12", 0) + READ, **order).tolist() == list(range(1, 33))


@every_order
def test_a_loop_that_polls_the_barrier_ends(order: dict[str, object]) -> None:
    poll = "POLL: mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r12], 0; @!%p2 bra POLL;"
    got = run(LOAD.format(expect=128) + poll + READ, step_budget=1_000_000, **order)
    assert got.tolist() == list(range(1, 33))


def test_without_the_wait_a_late_copy_leaves_poison() -> None:
    body = LOAD.format(expect=128) + READ + wait("%r12", 0)
    assert (run(body, order="lazy", check=()) == 0xFFFFFFFF).all()
    assert run(body, order="eager", check=()).tolist() == list(range(1, 33))


@every_order
def test_a_ring_of_one_buffer_goes_round(order: dict[str, object]) -> None:
    # A producer warp and a consumer warp hand a buffer to and fro, four times: phases and parities of both barriers.
    body = f"""@%p1 mbarrier.init.shared::cta.b64 [%r12], 1; @%p1 mbarrier.init.shared::cta.b64 [%r13], 32;
    fence.mbarrier_init.release.cluster; bar.sync 0;
    mov.u32 %r5, 0; setp.ge.u32 %p3, %r0, 32; @%p3 bra CONSUME; @!%p1 bra DONE;
    PRODUCE: and.b32 %r6, %r5, 1; xor.b32 %r6, %r6, 1; {wait("%r13", "%r6", "WE")}
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r12], 128;
    cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r10], [%d0], 128, [%r12];
    add.s64 %d0, %d0, 128; add.s32 %r5, %r5, 1; setp.lt.s32 %p4, %r5, 4; @%p4 bra PRODUCE; bra DONE;
    CONSUME: and.b32 %r6, %r5, 1; {wait("%r12", "%r6", "WF")} add.s32 %r7, %r11, -128;
    ld.shared.u32 %r3, [%r7]; add.s32 %r2, %r2, %r3; mbarrier.arrive.shared::cta.b64 _, [%r13];
    add.s32 %r5, %r5, 1; setp.lt.s32 %p4, %r5, 4; @%p4 bra CONSUME; st.global.u32 [%d3+-128], %r2; DONE:"""
    data = np.arange(128, dtype=np.uint32)
    out = run(body, data, count=64, **order)
    assert out[:32].tolist() == data.reshape(4, 32).sum(0).tolist()


def test_mbarrier_words_follow_the_state_machine() -> None:
    body = """@!%p1 bra OUT; mbarrier.init.shared.b64 [%r12], 3; mbarrier.arrive.shared.b64 %d5, [%r12];
    mbarrier.pending_count.b64 %r3, %d5; st.global.u32 [%d1], %r3;
    mbarrier.test_wait.shared.b64 %p2, [%r12], %d5; selp.u32 %r3, 1, 0, %p2; st.global.u32 [%d1+4], %r3;
    mbarrier.arrive.shared.b64 %d6, [%r12], 2; mbarrier.pending_count.b64 %r3, %d6; st.global.u32 [%d1+8], %r3;
    mbarrier.test_wait.shared.b64 %p2, [%r12], %d5; selp.u32 %r3, 1, 0, %p2; st.global.u32 [%d1+12], %r3;
    mbarrier.arrive_drop.shared.b64 %d7, [%r12]; mbarrier.arrive.noComplete.shared.b64 %d8, [%r12], 1;
    mbarrier.pending_count.b64 %r3, %d8; st.global.u32 [%d1+16], %r3;
    mbarrier.complete_tx.shared::cta.b64 [%r12], 64; mbarrier.arrive.shared.b64 %d7, [%r12];
    mbarrier.test_wait.parity.shared.b64 %p2, [%r12], 1; selp.u32 %r3, 1, 0, %p2; st.global.u32 [%d1+20], %r3;
    mbarrier.expect_tx.shared::cta.b64 [%r12], 64; mbarrier.arrive.shared.b64 %d7, [%r12];
    mbarrier.arrive.shared.b64 %d7, [%r12]; OUT:"""
    # The tx of −64 keeps phase 1 open (parity 1 not passed); the drop leaves 2 expected.
    with pytest.raises(_emulator.KernelTrap, match="arrives 1 times"):
        run(body)
    out = run(body.replace("mbarrier.expect_tx", "// ").split("//")[0] + " OUT:")
    assert out[:6].tolist() == [3, 0, 2, 1, 2, 0]


@every_order
def test_bulk_stores_are_read_before_and_written_after(order: dict[str, object]) -> None:
    body = """st.shared.u32 [%r11], %r0; fence.proxy.async.shared::cta; bar.sync 0; @!%p1 bra OUT;
    cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r10], 128; cp.async.bulk.commit_group;
    cp.async.bulk.wait_group.read 0; st.shared.u32 [%r10], 999; OUT:"""
    assert run(body, **order).tolist() == list(range(32))


def test_a_source_overwritten_too_early_shows_under_lazy_completion() -> None:
    body = """st.shared.u32 [%r11], %r0; bar.sync 0; @!%p1 bra OUT;
    cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r10], 128; cp.async.bulk.commit_group;
    st.shared.u32 [%r10], 999; OUT:"""
    assert run(body, order="eager", check=())[0] == 0
    assert run(body, order="lazy", check=())[0] == 999


@every_order
def test_cp_async_groups_complete_in_order(order: dict[str, object]) -> None:
    body = """mad.wide.u32 %d4, %r0, 16, %d0; mad.lo.s32 %r11, %r0, 16, %r10;
    cp.async.cg.shared.global [%r11], [%d4], 16; cp.async.commit_group;
    cp.async.ca.shared.global [%r11+512], [%d4], 8, 4; cp.async.commit_group;
    cp.async.wait_group 1; ld.shared.u32 %r2, [%r11+12]; cp.async.wait_all; ld.shared.v2.u32 {%r3, %r4}, [%r11+512];
    mad.lo.s32 %r2, %r2, 1, %r4; st.global.u32 [%d3], %r2; st.global.u32 [%d3+128], %r3;"""
    data = np.arange(128, dtype=np.uint32)
    out = run(body, data, out_count=64, block=(32, 1, 1), **order)
    assert out[:32].tolist() == data[3::4].tolist()  # the second word of the short copy is zero-filled
    assert out[32:].tolist() == data[0::4].tolist()


@every_order
@pytest.mark.parametrize(("noinc", "count"), [(".noinc", 32), ("", 1)])
def test_cp_async_arrives_at_an_mbarrier(order: dict[str, object], noinc: str, count: int) -> None:
    body = f"""@%p1 mbarrier.init.shared::cta.b64 [%r12], {count}; bar.sync 0;
    cp.async.ca.shared.global [%r11], [%d2], 4; cp.async.mbarrier.arrive{noinc}.shared::cta.b64 [%r12];
    {"" if noinc else "bar.sync 0; @%p1 mbarrier.arrive.shared::cta.b64 _, [%r12];"} {wait("%r12", 0)}
    xor.b32 %r5, %r11, 4; ld.shared.u32 %r2, [%r5]; st.global.u32 [%d3], %r2;"""
    assert run(body, **order).tolist() == [(i ^ 1) + 1 for i in range(32)]


# ---- clusters ------------------------------------------------------------------------------------------------------

CLUSTER_SYNC = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"


def run_pair(body: str, **options: object) -> np.ndarray:
    """Two CTAs of one cluster; CTA r writes to out[32 r + lane]."""
    data, out = np.arange(1, 65, dtype=np.uint32), np.zeros(64, np.uint32)
    begin = (
        "mad.lo.s32 %r21, %r20, 32, %r0; mad.wide.u32 %d2, %r21, 4, %d0; mad.wide.u32 %d3, %r21, 4, %d1; "
        "xor.b32 %r22, %r20, 1;"
    )
    launch(KERNEL.format(body=begin + body), data, out, grid=(2, 1, 1), cluster=(2, 1, 1), **options)
    return out


SWAPPED = [*range(33, 65), *range(1, 33)]


@pytest.mark.parametrize(
    "peer",
    [
        "mapa.shared::cluster.u32 %r5, %r11, %r22; ld.shared::cluster.u32 %r2, [%r5];",
        "xor.b32 %r5, %r11, 16777216; ld.shared::cluster.u32 %r2, [%r5];",
        "cvt.u64.u32 %d5, %r11; cvta.shared.u64 %d5, %d5; xor.b64 %d5, %d5, 16777216; ld.u32 %r2, [%d5];",
        "cvt.u64.u32 %d5, %r11; cvta.shared.u64 %d5, %d5; mapa.u64 %d5, %d5, %r22; ld.u32 %r2, [%d5];",
    ],
)
def test_the_peers_shared_memory_is_reached_by_address(peer: str) -> None:
    body = (
        "ld.global.u32 %r1, [%d2]; st.shared.u32 [%r11], %r1; "
        f"{CLUSTER_SYNC} {peer} st.global.u32 [%d3], %r2; {CLUSTER_SYNC}"
    )
    for seed in range(3):
        assert run_pair(body, seed=seed).tolist() == SWAPPED


def test_an_exited_thread_counts_once_at_the_cluster_barrier() -> None:
    # CTA 1 arrives and leaves; CTA 0 dawdles before it arrives: the wait must still be for CTA 0's own arrival.
    body = """barrier.cluster.arrive.aligned; setp.eq.s32 %p3, %r20, 1; @%p3 exit;
    mov.u32 %r5, 200; L: sub.s32 %r5, %r5, 1; setp.ne.s32 %p4, %r5, 0; @%p4 bra L;
    barrier.cluster.wait.aligned; st.global.u32 [%d3], 7;"""
    for seed in range(3):
        assert run_pair(body, seed=seed).tolist() == [7] * 32 + [0] * 32
    late = body.replace(
        "barrier.cluster.arrive.aligned; setp", "setp.eq.s32 %p5, %r20, 1; @%p5 barrier.cluster.arrive; setp"
    )
    late = late.replace("barrier.cluster.wait.aligned;", "barrier.cluster.arrive; barrier.cluster.wait;")
    assert run_pair(late).tolist() == [7] * 32 + [0] * 32


def test_arriving_twice_at_the_cluster_barrier_is_named() -> None:
    with pytest.raises(_emulator.KernelTrap, match=r"twice without a barrier.cluster.wait between"):
        run_pair("barrier.cluster.arrive; barrier.cluster.arrive; barrier.cluster.wait;")


def test_remote_atomics_and_ranks() -> None:
    body = f"""@%p1 st.shared.u32 [%r10], 0; {CLUSTER_SYNC} mapa.shared::cluster.u32 %r5, %r10, 0;
    getctarank.shared::cluster.u32 %r6, %r5;
    red.shared::cluster.add.u32 [%r5], 1; {CLUSTER_SYNC} ld.shared::cluster.u32 %r2, [%r5]; add.s32 %r2, %r2, %r6;
    st.global.u32 [%d3], %r2; {CLUSTER_SYNC}"""
    assert (run_pair(body) == 64).all()


@every_order
def test_st_async_counts_on_the_receivers_barrier(order: dict[str, object]) -> None:
    body = f"""ld.global.u32 %r1, [%d2]; @%p1 mbarrier.init.shared::cta.b64 [%r12], 1;
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r12], 128; fence.mbarrier_init.release.cluster; {CLUSTER_SYNC}
    mapa.shared::cluster.u32 %r5, %r11, %r22; mapa.shared::cluster.u32 %r6, %r12, %r22;
    st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r5], %r1, [%r6]; {wait("%r12", 0)}
    ld.shared.u32 %r2, [%r11]; st.global.u32 [%d3], %r2; {CLUSTER_SYNC}"""
    assert run_pair(body, **order).tolist() == SWAPPED


@every_order
def test_red_async_adds_at_the_receiver(order: dict[str, object]) -> None:
    body = f"""st.shared.u32 [%r11], %r0; @%p1 mbarrier.init.shared::cta.b64 [%r12], 1;
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r12], 128; {CLUSTER_SYNC}
    mapa.shared::cluster.u32 %r5, %r11, %r22; mapa.shared::cluster.u32 %r6, %r12, %r22; mov.u32 %r7, 100;
    red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r5], %r7, [%r6]; {wait("%r12", 0)}
    ld.shared.u32 %r2, [%r11]; st.global.u32 [%d3], %r2; {CLUSTER_SYNC}"""
    assert run_pair(body, **order).tolist() == [100 + i for i in range(32)] * 2


@every_order
def test_multicast_reaches_every_cta_of_the_mask(order: dict[str, object]) -> None:
    body = f"""@%p1 mbarrier.init.shared::cta.b64 [%r12], 1;
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r12], 128; fence.mbarrier_init.release.cluster; {CLUSTER_SYNC}
    setp.eq.s32 %p3, %r20, 0; and.pred %p3, %p3, %p1; mov.u16 %h1, 3;
    @%p3 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
    [%r10], [%d0], 128, [%r12], %h1;
    {wait("%r12", 0)} ld.shared.u32 %r2, [%r11]; st.global.u32 [%d3], %r2; {CLUSTER_SYNC}"""
    assert run_pair(body, **order).tolist() == [*range(1, 33)] * 2


@every_order
def test_a_bulk_copy_to_the_peer(order: dict[str, object]) -> None:
    body = f"""ld.global.u32 %r1, [%d2]; st.shared.u32 [%r11], %r1; @%p1 mbarrier.init.shared::cta.b64 [%r12], 1;
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r12], 128; fence.proxy.async.shared::cta; {CLUSTER_SYNC}
    add.s32 %r5, %r10, 512; mapa.shared::cluster.u32 %r5, %r5, %r22; mapa.shared::cluster.u32 %r6, %r12, %r22;
    @%p1 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r5], [%r10], 128, [%r6];
    {wait("%r12", 0)}
    ld.shared.u32 %r2, [%r11+512]; st.global.u32 [%d3], %r2; {CLUSTER_SYNC}"""
    assert run_pair(body, **order).tolist() == SWAPPED


# ---- reports -------------------------------------------------------------------------------------------------------


def deadlock(body: str, **options: object) -> str:
    with pytest.raises(_emulator.Deadlock) as caught:
        run(body, **options)
    assert str(caught.value).startswith("Deadlock: no warp can run and no copy is in flight: kernel k (PTX line ")
    return str(caught.value)


@every_order
def test_too_many_expected_bytes(order: dict[str, object]) -> None:
    text = deadlock(LOAD.format(expect=256) + wait("%r12", 0), **order)
    assert re.search(
        r"warp 0 lanes 0xffffffff at PTX line \d+ \('mbarrier.try_wait.parity.shared::cta.b64'\) "
        r"waits on mbarrier at shared offset 1024 \(full\), parity 0: "
        r"phase parity 0, 0 of 1 arrival pending, 128 bytes owed",
        text,
    )
    assert "All arrivals are in, but 128 bytes were announced (expect_tx) that no copy will bring" in text


def test_too_few_expected_bytes() -> None:
    assert "copies brought 64 bytes more than were announced" in deadlock(LOAD.format(expect=64) + wait("%r12", 0))


def test_a_forgotten_expect_tx() -> None:
    body = LOAD.format(expect=128).replace("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r12], 128;", "")
    assert (
        "Copies brought 128 bytes that nobody announced, and 1 arrival is missing: was arrive.expect_tx forgotten?"
        in deadlock(body + wait("%r12", 0))
    )


def test_a_wrong_parity() -> None:
    body = LOAD.format(expect=128) + wait("%r12", 0, "A") + wait("%r12", 1, "B")
    assert (
        "1 arrival missing, and nobody who could still run arrives: is the parity wrong, or an arrive missing?"
        in deadlock(body)
    )


def test_a_barrier_that_a_warp_skips() -> None:
    text = deadlock("setp.ge.u32 %p2, %r0, 32; @%p2 bra B; bar.sync 2, 64; bra OUT; B: bar.sync 3, 64; OUT:", count=64)
    assert "barrier 2: 32 of 64 threads have come" in text
    assert "barrier 3: 32 of 64 threads have come" in text


def test_a_collective_whose_lanes_never_come() -> None:
    text = deadlock("setp.ge.u32 %p2, %r0, 8; @%p2 bra B; bar.warp.sync -1; bra OUT; B: barrier.sync 3, 64; OUT:")
    assert "warp-level sync: lanes 0xffffff00 have not come" in text


def test_a_barrier_that_was_never_initialised() -> None:
    with pytest.raises(
        _emulator.KernelTrap, match=r"on shared offset 1024 \(full\), where no mbarrier has been initialised"
    ):
        run(wait("%r12", 0))


def test_one_arrival_too_many() -> None:
    with pytest.raises(
        _emulator.KernelTrap,
        match=r"arrives 2 times at the mbarrier at shared offset 1024 \(full\), which waits for 1 of 1 arrivals",
    ):
        run("@%p1 mbarrier.init.shared::cta.b64 [%r12], 1; @%p1 mbarrier.arrive.shared::cta.b64 %d5, [%r12], 2;")


def test_bulk_sizes_and_alignment() -> None:
    with pytest.raises(_emulator.KernelTrap, match="of 100 bytes; the size must be a positive multiple of 16"):
        run(LOAD.format(expect=100).replace("[%d0], 128", "[%d0], 100"))
    with pytest.raises(_emulator.KernelTrap, match="Misaligned access"):
        run(LOAD.format(expect=128).replace("[%r10], [%d0]", "[%r10+8], [%d0]"))
    with pytest.raises(_emulator.KernelTrap, match="reads 256 bytes"):
        run(LOAD.format(expect=256).replace("[%d0], 128", "[%d0], 256"))


def test_tx_beyond_its_range() -> None:
    with pytest.raises(_emulator.KernelTrap, match="owe 2000000 bytes; the most is 1048575"):
        run("@%p1 mbarrier.init.shared::cta.b64 [%r12], 1; @%p1 mbarrier.expect_tx.shared::cta.b64 [%r12], 2000000;")


def test_a_deadlock_lists_who_waits_and_what_the_barrier_lacks() -> None:
    with pytest.raises(_emulator.Deadlock) as caught:
        run(LOAD.format(expect=256) + wait("%r12", 0))
    (waits,) = caught.value.waits
    assert waits["kind"] == "mbarrier"
    assert (waits["object"], waits["offset"]) == ("full", 1024)
    assert (waits["cta"], waits["warp"], waits["lanes"]) == (0, 0, 0xFFFFFFFF)
    assert (waits["parity"], waits["phase"], waits["completed"]) == (0, 0, 0)
    assert (waits["pending"], waits["expected"], waits["tx"]) == (0, 1, 128)
