"""Registers of wgmma touched too early, missing fences, warps that disagree: each wrong kernel and its right twin."""

from __future__ import annotations

import numpy as np
import pytest
from test_wgmma_forms import every_order, expected, pack, random_case
from wgmma_ptx import COMMIT, FENCE, Form, Place, run, wait

from mlacademy import _emulator

FORM = Form("f32", "bf16", "bf16", 8)
RS = Form("f32", "bf16", "bf16", 8, rs=True)
MULTIPLY, AGAIN = FORM.line("%a", "%b", "%p"), FORM.line("%a", "%b", "1")
ORDERS = ("eager", "lazy")


def go(*lines: str, form: Form = FORM, order: str = "eager", **options: object) -> np.ndarray:
    image, _, _, c, fragments = random_case(form, 1)
    a, b = None if form.rs else Place(0, 16, 1024, 128), Place(20480, 16, 1024, 128)
    return run(form, image, a, b, c, fragments, body="\n".join(lines), order=order, **options)


def refused(rule: str, words: str, *lines: str, form: Form = FORM) -> None:
    for order in ORDERS:
        with pytest.raises(_emulator.HazardError, match=words) as caught:
            go(*lines, form=form, order=order)
        assert caught.value.rule == rule


ADD = "add.f32 %f0, %c1, %c1;"


def test_an_accumulator_is_read_after_the_wait_only() -> None:
    go(FENCE, MULTIPLY, COMMIT, wait(), ADD)
    words = r"'add\.f32' reads an accumulator of 'wgmma\.mma_async\S+' at PTX line \d+, which no wgmma\.wait_group"
    refused("wgmma-wait", words, FENCE, MULTIPLY, COMMIT, ADD, wait())


def test_an_accumulator_is_written_after_the_wait_only() -> None:
    write = "mov.f32 %c1, 0f00000000;"
    go(FENCE, MULTIPLY, COMMIT, wait(), write)
    refused("wgmma-wait", r"'mov\.f32' writes an accumulator", FENCE, MULTIPLY, COMMIT, write, wait())


def test_a_wait_that_leaves_the_group_pending_covers_nothing() -> None:
    go(FENCE, MULTIPLY, COMMIT, COMMIT, wait(1), ADD)  # an empty group is the newest
    refused("wgmma-wait", "no wgmma.wait_group has waited for", FENCE, MULTIPLY, COMMIT, wait(1), ADD)


def test_a_group_that_was_never_committed_is_not_waited_for() -> None:
    refused("wgmma-wait", r"belongs to no group yet: wgmma\.commit_group is missing", FENCE, MULTIPLY, wait(), ADD)


def test_registers_of_a_are_written_after_the_wait_only() -> None:
    multiply, write = RS.line("%x", "%b", "%p"), "mov.b32 %x2, 7;"
    go(FENCE, multiply, COMMIT, wait(), write, form=RS)
    refused("wgmma-wait", "writes a register of A", FENCE, multiply, COMMIT, write, wait(), form=RS)
    go(FENCE, multiply, COMMIT, "xor.b32 %t4, %x2, 7;", wait(), form=RS)  # reading does no harm


def test_a_result_feeds_the_next_multiply_after_the_wait_only() -> None:
    first = FORM.line("%a", "%b", "%p")
    second = RS.line("%c", "%b", "0", d="%e")
    go(FENCE, first, COMMIT, wait(), FENCE, second, COMMIT, wait())
    refused("wgmma-wait", "takes as A an accumulator", FENCE, first, second, COMMIT, wait())


def test_the_first_multiply_needs_a_fence() -> None:
    refused("wgmma-fence", "is the first wgmma of this warp", MULTIPLY, COMMIT, wait())


def test_accumulators_that_were_touched_need_a_fence() -> None:
    scale = "mul.f32 %c1, %c1, %c1;"
    once = (FENCE, MULTIPLY, COMMIT, wait())
    go(*once, scale, FENCE, AGAIN, COMMIT, wait())
    words = r"an accumulator of 'wgmma\S+' was touched by 'mul\.f32' at PTX line \d+, and no wgmma\.fence"
    refused("wgmma-fence", words, *once, scale, AGAIN, COMMIT, wait())
    refused("wgmma-fence", "was touched by 'add.f32'", *once, ADD, FORM.line("%a", "%b", "0"), COMMIT, wait())


def test_registers_of_a_that_were_written_need_a_fence() -> None:
    multiply = RS.line("%x", "%b", "%p")
    once, again = (FENCE, multiply, COMMIT, wait()), (multiply, COMMIT, wait())
    go(*once, "xor.b32 %t4, %x2, 7;", *again, form=RS)
    go(*once, "xor.b32 %x2, %x2, 7;", FENCE, *again, form=RS)
    refused("wgmma-fence", "a register of A of 'wgmma", *once, "xor.b32 %x2, %x2, 7;", *again, form=RS)
    refused("wgmma-fence", "a register of A", *once, "mov.b32 %x2, 7; xor.b32 %t4, %x2, 7;", *again, form=RS)


def test_accumulating_on_needs_no_second_fence() -> None:
    go(FENCE, MULTIPLY, AGAIN, COMMIT, wait(), AGAIN, COMMIT, wait())
    go("add.f32 %e0, %c0, %c1;", FENCE, MULTIPLY, COMMIT, wait(), FORM.line("%a", "%b", "0", d="%e"), COMMIT, wait())


def test_another_shape_on_the_same_accumulators_needs_a_fence() -> None:
    other = Form("f32", "f16", "f16", 8).line("%a", "%b", "1")
    go(FENCE, MULTIPLY, COMMIT, wait(), FENCE, other, COMMIT, wait())
    refused("wgmma-fence", "which has another shape", FENCE, MULTIPLY, other, COMMIT, wait())


@every_order
def test_copies_of_accumulators_follow_the_multiply(order: dict[str, object]) -> None:
    # What a compiler writes: the accumulators move to other registers between two multiplies of a chain.
    image, a, b, c, fragments = random_case(FORM, 4)
    there = "\n".join(f"mov.b32 %e{r}, %c{r};" for r in range(4))
    back = "\n".join(f"mov.b32 %c{r}, %e{r};" for r in range(4))
    body = [FENCE, MULTIPLY, there, FORM.line("%a", "%b", "1", d="%e"), COMMIT, back, wait()]
    got = run(FORM, image, a, b, c, fragments, body="\n".join(body), **order)
    once = pack(FORM, expected(FORM, image, a, b, c, fragments))
    assert np.array_equal(got, pack(FORM, expected(FORM, image, a, b, once, fragments)))


def test_a_copy_in_flight_must_not_be_read_either() -> None:
    refused("wgmma-wait", "reads an accumulator", FENCE, MULTIPLY, "mov.b32 %e0, %c1;", COMMIT,
            "add.u32 %t4, %e0, 1;", wait())  # fmt: skip


@every_order
def test_registers_between_multiply_and_wait_keep_their_slots(order: dict[str, object]) -> None:
    # D is never named again after the multiply; forty new registers must not be given its place while it is in flight.
    image, a, b, c, fragments = random_case(FORM, 6)
    fill = "\n".join(f"mov.b32 %e{r}, {r};" for r in range(10, 50))
    total = "mov.b32 %t4, 0;\n" + "\n".join(f"add.u32 %t4, %t4, %e{r};" for r in range(10, 50))
    spare = FORM.line("%a", "%b", "0", d="%e")
    body = [FENCE, spare, COMMIT, fill, wait(), total, *(f"mov.b32 %c{r}, %t4;" for r in range(4))]
    got = run(FORM, image, a, b, c, fragments, body="\n".join(body), **order)
    assert (got == sum(range(10, 50))).all()


# ---- four warps, one multiply ---------------------------------------------------------------------------------------


def disagree(words: str, *lines: str) -> None:
    for order in ORDERS:
        with pytest.raises(_emulator.KernelTrap, match=words) as caught:
            go(*lines, order=order)
        assert caught.value.rule == "aligned-divergence"


def test_warps_must_pass_the_same_operands() -> None:
    tail = (FENCE, MULTIPLY, COMMIT, wait())
    disagree("descriptor of A is 0x", "setp.ge.u32 %q0, %t0, 64; @%q0 add.u64 %a, %a, 64;", *tail)
    disagree("descriptor of B is 0x", "setp.ge.u32 %q0, %t0, 64; @%q0 add.u64 %b, %b, 64;", *tail)
    disagree("scale-d is", "setp.ge.u32 %p, %t0, 32;", *tail)
    disagree("lane 0 passes 0x", "setp.eq.u32 %q0, %t0, 40; @%q0 add.u64 %b, %b, 64;", *tail)
    disagree("one scale-d for all threads", "and.b32 %t4, %t0, 1; setp.eq.u32 %p, %t4, 0;", *tail)


def test_warps_must_execute_the_same_multiply() -> None:
    away = "setp.ge.u32 %q0, %t0, 96; @%q0 bra OTHER;"
    disagree("another executes", away, FENCE, MULTIPLY, "bra JOIN; OTHER:", FENCE, AGAIN,
             "JOIN:", COMMIT, wait())  # fmt: skip


def test_a_warp_that_lost_threads_cannot_multiply() -> None:
    disagree("needs all 32 threads", "setp.eq.u32 %q0, %t0, 40; @%q0 exit;", FENCE, MULTIPLY, COMMIT, wait())


def test_a_warp_that_never_comes_is_named() -> None:
    body = ("setp.ge.u32 %q0, %t0, 96; @%q0 bra OUT;", FENCE, MULTIPLY, COMMIT, wait(), "OUT:")
    for order in ORDERS:
        with pytest.raises(_emulator.Deadlock, match=r"warp 3 has executed 0 of 1 wgmma[\s\S]*one of them never comes"):
            go(*body, order=order)


def test_half_a_warp_that_stays_away_is_named() -> None:
    away = ("and.b32 %t4, %t0, 16; setp.ne.u32 %q0, %t4, 0; @%q0 bra AWAY;", FENCE, MULTIPLY, COMMIT, wait())
    for order in ORDERS:
        with pytest.raises(_emulator.KernelTrap, match="is executed by 16 of the 32 lanes of warp 0") as caught:
            go(*away, "AWAY: bar.sync 0;", order=order, check=("all",))
        assert caught.value.rule == "aligned-divergence"


def test_lanes_that_are_late_are_waited_for() -> None:
    # Lane 5 goes round a loop first; the other lanes stand at the fence until it comes.
    late = "setp.ne.u32 %q0, %t0, 5; @%q0 bra JOIN; mov.u32 %t4, 50; W: sub.u32 %t4, %t4, 1; setp.ne.u32 %q1, %t4, 0;"
    got = go(late, "@%q1 bra W; JOIN:", FENCE, MULTIPLY, COMMIT, wait())
    assert np.array_equal(got, go(FENCE, MULTIPLY, COMMIT, wait()))


def test_half_a_warpgroup_is_refused() -> None:
    with pytest.raises(_emulator.KernelTrap, match="needs a warpgroup of four warps, but the block has only 2"):
        go(FENCE, MULTIPLY, COMMIT, wait(), block=(64, 1, 1))


# ---- operands in shared memory --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("line", "byte"), [(0, 0), (0, 31), (0, 32), (0, 127), (7, 16), (7, 40), (8, 0)])
def test_a_tile_must_stay_as_it_is_until_the_wait(line: int, byte: int) -> None:
    touched = line < 8 and byte < 32  # B has 8 lines, of which this multiply takes the first 32 bytes
    place = Place(20480, 16, 1024, 128).address(line, 0, byte, 1, False)
    spoil = f"mov.u32 %t4, smem; setp.eq.u32 %q0, %t0, 5; @%q0 st.shared.b8 [%t4+{place}], %h0;"
    lines = (".reg .b16 %h0; mov.b16 %h0, 0;", FENCE, MULTIPLY, COMMIT, spoil, wait())
    late = (*lines[:4], wait(), spoil)
    go(*late, "bar.sync 0;", check=("all",))
    for order in ORDERS:
        if touched:
            with pytest.raises(_emulator.KernelTrap) as caught:
                go(*lines, order=order, check=("all",))
            assert caught.value.rule == "race"
        else:
            go(*lines, order=order, check=("all",))


# ---- descriptors ----------------------------------------------------------------------------------------------------


def with_descriptor(bits: int) -> tuple[str, ...]:
    return (f"mov.b64 %a, {bits};", FENCE, MULTIPLY, COMMIT, wait())


def test_wrong_descriptors_are_explained() -> None:
    right = Place(1024, 16, 1024, 128)
    go(*with_descriptor(right.bits))
    cases = {
        "sets bits 0x8000, which must be zero: was an address": right.bits | 1 << 15,
        r"reads A at shared offset \d+, but the CTA has 65536 bytes": Place(65536 - 1024, 16, 1024, 128).bits,
    }
    for words, bits in cases.items():
        with pytest.raises(_emulator.KernelTrap, match=words) as caught:
            go(*with_descriptor(bits))
        assert caught.value.rule in ("matrix-descriptor", "bounds")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (MULTIPLY.replace("1, 1, 0, 0", "1, 2, 0, 0"), "the scale of B must be -1 or 1, not 2"),
        (MULTIPLY.replace("1, 1, 0, 0", "1, 1, 2, 0"), "the transpose of A must be 0 or 1, not 2"),
        (MULTIPLY.replace("n8k16", "n12k16"), "Unknown form"),
        (MULTIPLY.replace("f32.bf16.bf16", "bf16.bf16.f32"), "Unknown form"),
        (MULTIPLY.replace("{%c0, %c1, %c2, %c3}", "{%c0, %c1}"), "a vector of 4 is needed"),
        (
            "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.bf16.bf16 {%c0, %c1, %c2, %c3}, %a, %b, %t0, 0, %p, 1, 1;",
            r"'wgmma\.mma_async\.sp\S+' is not supported yet",
        ),
    ],
)
def test_forms_that_do_not_exist_or_do_not_run_are_named(line: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        go(FENCE, line)
