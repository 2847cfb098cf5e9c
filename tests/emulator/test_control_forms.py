"""Branches, calls, divergence, warp collectives, named barriers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ptxrun import HEADER, launch

from mlacademy import _emulator

KERNEL = """.visible .entry k(.param .u64 data, .param .u64 out) {{
.reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<40>; .reg .b64 %d<20>;
{shared}
mov.u32 %r0, %tid.x; ld.param.u64 %d0, [data]; ld.param.u64 %d1, [out];
mad.wide.u32 %d2, %r0, 4, %d0; mad.wide.u32 %d3, %r0, 4, %d1; ld.global.u32 %r1, [%d2];
{body}
st.global.u32 [%d3], %r2;
ret; }}"""


def run(
    body: str, data: np.ndarray | None = None, *, count: int = 32, shared: str = "", **options: object
) -> np.ndarray:
    source = np.arange(count, dtype=np.uint32) if data is None else np.ascontiguousarray(data, np.uint32)
    out = np.full(len(source), 0xEEEEEEEE, np.uint32)
    options.setdefault("block", (len(source), 1, 1))
    launch(KERNEL.format(body=body, shared=shared), source, out, **options)
    return out


# ---- divergence ----------------------------------------------------------------------------------------------------


def test_lanes_that_went_different_ways_meet_again() -> None:
    body = """setp.lt.u32 %p1, %r1, 10; @%p1 bra LOW; mov.u32 %r2, 100; bra JOIN; LOW: mov.u32 %r2, 200;
    JOIN: activemask.b32 %r3; setp.ne.s32 %p2, %r3, -1; @%p2 mov.u32 %r2, 0;"""
    assert run(body).tolist() == [200] * 10 + [100] * 22


def test_every_lane_leaves_a_loop_in_its_own_turn() -> None:
    rng = np.random.default_rng(0)
    trips = rng.integers(1, 50, 32)
    body = "mov.u32 %r2, 0; LOOP: add.s32 %r2, %r2, 3; sub.s32 %r1, %r1, 1; setp.ne.s32 %p1, %r1, 0; @%p1 bra LOOP;"
    assert (run(body, trips) == 3 * trips).all()


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), depth=st.integers(1, 4))
def test_nested_branches_give_what_each_thread_alone_would(seed: int, depth: int) -> None:
    rng = np.random.default_rng(seed)
    data = rng.integers(0, 1 << 16, 32)
    lines, want = ["mov.u32 %r2, 0;"], np.zeros(32, np.int64)

    def block(level: int, mask: np.ndarray) -> None:
        bit, amount = int(rng.integers(16)), int(rng.integers(1, 1000))
        label = f"L{len(lines)}"
        taken = mask & ((data >> bit & 1) == 1)
        lines.append(f"shr.u32 %r3, %r1, {bit}; and.b32 %r3, %r3, 1; setp.eq.s32 %p1, %r3, 0; @%p1 bra {label};")
        lines.append(f"mad.lo.s32 %r2, %r2, 3, {amount};")
        want[taken] = want[taken] * 3 + amount
        if level:
            block(level - 1, taken)
        lines.append(f"{label}: add.s32 %r2, %r2, {bit};")
        want[mask] += bit
        if level and rng.integers(2):
            block(level - 1, mask)

    block(depth, np.ones(32, bool))
    for options in ({}, {"seed": seed + 1}):
        assert run("\n".join(lines), data, **options).tolist() == (want % (1 << 32)).tolist()


def test_a_spinning_lane_lets_the_lane_it_waits_for_run() -> None:
    # Lane 31 sets the flag, behind the loop of the others: the loop has the lower program counter.
    body = """mov.u32 %r4, flag; setp.eq.s32 %p1, %r0, 0; @%p1 st.shared.u32 [%r4], 0; bar.warp.sync -1;
    setp.eq.s32 %p2, %r0, 31; @%p2 bra SET;
    SPIN: ld.volatile.shared.u32 %r5, [%r4]; setp.eq.s32 %p3, %r5, 0; @%p3 bra SPIN; mov.u32 %r2, %r5; bra DONE;
    SET: mov.u32 %r2, 7; st.volatile.shared.u32 [%r4], %r2; DONE:"""
    assert (run(body, shared=".shared .align 4 .b32 flag;") == 7).all()


def test_branch_tables_send_each_lane_to_its_label() -> None:
    body = """and.b32 %r3, %r1, 3; TABLE: .branchtargets A, B, C, D; brx.idx %r3, TABLE;
    A: mov.u32 %r2, 10; bra OUT; B: mov.u32 %r2, 11; bra OUT; C: mov.u32 %r2, 12; bra OUT; D: mov.u32 %r2, 13; OUT:"""
    assert run(body).tolist() == [10 + i % 4 for i in range(32)]
    with pytest.raises(_emulator.KernelTrap, match="index 4 into a table of 4 labels"):
        run(body.replace("and.b32 %r3, %r1, 3", "mov.u32 %r3, 4"))


def test_device_functions_take_and_return_values() -> None:
    text = HEADER + """
    .func (.param .b32 ret) twice(.param .b32 x, .param .align 8 .b8 pair[8]) {
      .reg .b32 %r<5>; .reg .pred %p;
      ld.param.u32 %r1, [x]; ld.param.u32 %r2, [pair+4]; setp.gt.u32 %p, %r1, 20; @%p bra BIG;
      mad.lo.s32 %r3, %r1, 2, %r2; st.param.b32 [ret], %r3; ret;
      BIG: st.param.b32 [ret], 1; ret; }
    """ + KERNEL.format(shared="", body="""
      { .param .b32 a; .param .align 8 .b8 b[8]; .param .b32 r; st.param.b32 [a], %r1; st.param.b32 [b+4], 100;
        call.uni (r), twice, (a, b); ld.param.b32 %r2, [r]; }
      { .param .b32 a; .param .align 8 .b8 b[8]; .param .b32 r; st.param.b32 [a], %r2; st.param.b32 [b+4], 5;
        setp.lt.u32 %p1, %r0, 4; @%p1 call (r), twice, (a, b); @%p1 ld.param.b32 %r2, [r]; }""")  # fmt: skip
    data, out = np.arange(32, dtype=np.uint32), np.zeros(32, np.uint32)
    launch(text, data, out)
    first = [2 * i + 100 if i <= 20 else 1 for i in range(32)]
    assert out.tolist() == [1] * 4 + first[4:]


# ---- collectives ---------------------------------------------------------------------------------------------------


def shuffled(mode: str, lane: int, b: int, c: int) -> tuple[int, bool]:
    segment, clamp = c >> 8 & 31, c & 31
    low, high = lane & segment, (lane & segment) | (clamp & ~segment)
    j, ok = {
        "up": (lane - b, lane - b >= high), "down": (lane + b, lane + b <= high),
        "bfly": (lane ^ b, (lane ^ b) <= high), "idx": (low | (b & ~segment), (low | (b & ~segment)) <= high),
    }[mode]  # fmt: skip
    return (j, True) if ok else (lane, False)


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("width", [32, 16, 4])
def test_shuffles(mode: str, width: int) -> None:
    c = (32 - width) << 8 | (0 if mode == "up" else 31)
    for b in (0, 1, 2, 5, 16, 31):
        body = f"shfl.sync.{mode}.b32 %r2|%p1, %r1, {b}, {c}, -1; selp.u32 %r3, 1000, 0, %p1; add.s32 %r2, %r2, %r3;"
        want = [j + 1000 * ok for j, ok in (shuffled(mode, lane, b, c) for lane in range(32))]
        assert run(body).tolist() == want


def test_a_shuffle_that_reads_an_absent_lane_is_named() -> None:
    body = "setp.ge.u32 %p1, %r0, 16; @%p1 bra OUT; shfl.sync.idx.b32 %r2, %r1, 20, 31, 0xffff; OUT:"
    with pytest.raises(_emulator.KernelTrap, match="reads lane 20, which does not take part"):
        run(body)


def test_a_collective_waits_for_all_its_members() -> None:
    # The halves arrive by different ways; the vote still sees both.
    body = """setp.lt.u32 %p1, %r1, 16; @%p1 bra SLOW; bra VOTE;
    SLOW: mov.u32 %r4, 20; W: sub.s32 %r4, %r4, 1; setp.ne.s32 %p2, %r4, 0; @%p2 bra W;
    VOTE: setp.gt.u32 %p3, %r1, 29; vote.sync.ballot.b32 %r2, %p3, -1;"""
    assert (run(body) == 0xC0000000).all()


@pytest.mark.parametrize(
    ("mode", "bound", "want"),
    [("all", 99, 1), ("all", 5, 0), ("any", 0, 0), ("any", 1, 1), ("uni", 0, 1), ("uni", 9, 0)],
)
def test_votes(mode: str, bound: int, want: int) -> None:
    body = f"setp.lt.u32 %p1, %r1, {bound}; vote.sync.{mode}.pred %p2, %p1, -1; selp.u32 %r2, 1, 0, %p2;"
    assert (run(body) == want).all()


def test_match_finds_equal_lanes() -> None:
    data = np.array([i % 3 for i in range(32)])
    same = [sum(1 << k for k in range(32) if k % 3 == i % 3) for i in range(32)]
    assert run("match.any.sync.b32 %r2, %r1, -1;", data).tolist() == same
    assert (run("match.all.sync.b32 %r2|%p1, %r1, -1; @!%p1 mov.u32 %r2, 5;", data) == 5).all()
    assert (run("match.all.sync.b32 %r2|%p1, %r1, -1;", np.full(32, 9)) == 0xFFFFFFFF).all()
    wide = "cvt.u64.u32 %d5, %r1; match.any.sync.b64 %r2, %d5, -1;"
    assert run(wide, data).tolist() == same


@pytest.mark.parametrize(
    ("operation", "model"),
    [
        ("add.u32", lambda v: sum(v)), ("add.s32", lambda v: sum(v)), ("min.u32", min), ("max.u32", max),
        ("min.s32", lambda v: min(v, key=lambda x: x - (x >> 31 << 32))),
        ("max.s32", lambda v: max(v, key=lambda x: x - (x >> 31 << 32))),
        ("and.b32", lambda v: np.bitwise_and.reduce(v)), ("or.b32", lambda v: np.bitwise_or.reduce(v)),
        ("xor.b32", lambda v: np.bitwise_xor.reduce(v)),
    ],
)  # fmt: skip
def test_reductions(operation: str, model) -> None:
    data = np.random.default_rng(3).integers(0, 1 << 32, 32)
    want = int(model([int(x) for x in data])) % (1 << 32)
    assert (run(f"redux.sync.{operation} %r2, %r1, -1;", data) == want).all()


def test_election_always_takes_the_lowest_lane() -> None:
    body = "mov.u32 %r2, 0; elect.sync %r3|%p1, -256; @%p1 mov.u32 %r2, 1;"
    guarded = "setp.lt.u32 %p2, %r0, 8; @%p2 bra OUT; " + body + " OUT:"
    out = run(guarded.replace("OUT:", "OUT: @%p2 mov.u32 %r2, 0;"))
    assert out.tolist() == [0] * 8 + [1] + [0] * 23


def test_lane_masks_and_indices() -> None:
    for name, want in {
        "%laneid": range(32), "%lanemask_eq": [1 << i for i in range(32)],
        "%lanemask_lt": [(1 << i) - 1 for i in range(32)],
        "%lanemask_ge": [(0xFFFFFFFF << i) & 0xFFFFFFFF for i in range(32)], "%ntid.x": [32] * 32, "%warpid": [0] * 32,
    }.items():  # fmt: skip
        assert run(f"mov.u32 %r2, {name};").tolist() == list(want)


# ---- barriers ------------------------------------------------------------------------------------------------------


def test_a_barrier_separates_writes_from_reads() -> None:
    body = """mov.u32 %r4, buffer; mad.lo.s32 %r5, %r0, 4, %r4; st.shared.u32 [%r5], %r1; bar.sync 0;
    mov.u32 %r6, %ntid.x; sub.s32 %r6, %r6, 1; sub.s32 %r6, %r6, %r0; mad.lo.s32 %r5, %r6, 4, %r4;
    ld.shared.u32 %r2, [%r5];"""
    for count in (32, 100, 256):
        for seed in (0, 1, 2):
            out = run(body, count=count, shared=".shared .align 4 .b8 buffer[1024];", seed=seed)
            assert out.tolist() == list(range(count))[::-1]


def test_exited_threads_are_not_waited_for() -> None:
    body = (
        "mov.u32 %r2, 1; setp.ge.u32 %p1, %r0, 40; @%p1 st.global.u32 [%d3], %r2; @%p1 exit; bar.sync 0; "
        "mov.u32 %r2, 2;"
    )
    assert run(body, count=96).tolist() == [2] * 40 + [1] * 56


def test_producer_arrives_and_consumer_waits_at_a_named_barrier() -> None:
    body = """mov.u32 %r4, cell; mov.u32 %r2, 0; setp.ge.u32 %p1, %r0, 32; @%p1 bra CONSUME;
    st.shared.u32 [%r4], 42; bar.arrive 3, 64; bra OUT; CONSUME: bar.sync 3, 64; ld.shared.u32 %r2, [%r4]; OUT:"""
    for seed in range(4):
        assert run(body, count=64, shared=".shared .align 4 .b32 cell;", seed=seed).tolist() == [0] * 32 + [42] * 32


def test_a_guarded_barrier_holds_only_the_lanes_that_execute_it() -> None:
    # Lanes 0 to 15 wait for lanes 16 to 31, which come to the same barrier by another way.
    body = """mov.u32 %r2, 1; setp.lt.u32 %p1, %r0, 16; @%p1 barrier.sync 1; @%p1 bra OUT;
    mov.u32 %r2, 2; barrier.sync 1; OUT:"""
    assert run(body).tolist() == [1] * 16 + [2] * 16


@pytest.mark.parametrize(
    ("form", "want"), [("popc.u32 %r2, 0, %p1", 10), ("and.pred %p2, 0, %p1", 0), ("or.pred %p2, 0, %p1", 1)]
)
def test_reducing_barriers(form: str, want: int) -> None:
    tail = " selp.u32 %r2, 1, 0, %p2;" if "pred" in form else ""
    body = f"mov.u32 %r2, 0; setp.lt.u32 %p1, %r0, 10; barrier.red.{form};{tail}"
    assert (run(body, count=96) == want).all()


def test_barrier_misuse_is_named() -> None:
    with pytest.raises(_emulator.KernelTrap, match="a count of 33 threads, which is no multiple of 32"):
        run("bar.sync 1, 33; mov.u32 %r2, 0;")
    with pytest.raises(_emulator.KernelTrap, match="Barrier number 16 is not in 0 to 15"):
        run("mov.u32 %r4, 16; bar.sync %r4; mov.u32 %r2, 0;")
    body = "setp.ge.u32 %p1, %r0, 32; @%p1 bra B; bar.sync 1, 64; bra OUT; B: bar.sync 1, 96; OUT: mov.u32 %r2, 0;"
    with pytest.raises(_emulator.KernelTrap, match="used with two counts at once: 64 and 96"):
        run(body, count=64)


def test_a_trap_names_kernel_and_line() -> None:
    with pytest.raises(_emulator.KernelTrap, match=r"The kernel executed 'trap': kernel k \(PTX line 9\)") as caught:
        run("setp.eq.s32 %p1, %r0, 3; @%p1 trap; mov.u32 %r2, 0;")
    assert caught.value.lanes == 8


def test_a_runaway_loop_is_stopped_and_shown() -> None:
    with pytest.raises(
        _emulator.Runaway, match=r"budget of 1000 warp instructions: kernel k[\s\S]*loop from PTX line 9 to PTX line 9"
    ):
        run("LOOP: add.s32 %r2, %r2, 1; bra LOOP;", step_budget=1000)


def test_blocks_that_wait_for_each_other_through_memory_all_run() -> None:
    body = """setp.ne.s32 %p1, %r0, 0; @%p1 bra OUT; atom.global.add.u32 %r4, [%d0], 1;
    SPIN: ld.relaxed.gpu.global.u32 %r5, [%d0]; setp.lt.u32 %p2, %r5, 5; @%p2 bra SPIN; OUT: mov.u32 %r2, 1;"""
    text = KERNEL.format(body=body, shared="")
    data, out = np.zeros(32, np.uint32), np.zeros(32, np.uint32)
    launch(text, data, out, grid=(5, 1, 1))
    assert data[0] == 5


def test_the_same_seed_runs_the_same_way() -> None:
    body = "atom.global.add.u32 %r2, [%d0], 1; atom.global.exch.b32 %r2, [%d0+4], %r0;"
    text = KERNEL.format(body=body, shared="")

    def once(seed: int) -> list[int]:
        data, out = np.zeros(256, np.uint32), np.zeros(256, np.uint32)
        launch(text, data, out, block=(256, 1, 1), seed=seed)
        return out.tolist()

    assert once(7) == once(7)
    assert len({tuple(once(seed)) for seed in range(6)}) > 1
