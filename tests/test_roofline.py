"""The bounds follow from shapes and rates, counted here in other ways."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlacademy import gpus
from mlacademy.roofline import FLASHMLA, H200, Machine, Shape, block_cycles, roofline

CASES = {
    "h128_s1_b1": Shape(1),
    "h64_s1_b16": Shape(16, 64),
    "h128_s2_b128": Shape(128, 128, 2),
    "h128_s1_b2_k128": Shape(2, topk=128),
    "h16_s1_b128": Shape(128, 16),
}


@pytest.mark.parametrize(("case", "shape"), CASES.items())
def test_a_cases_name_gives_its_shape_and_back(case: str, shape: Shape) -> None:
    assert Shape.of_case(case) == shape
    assert shape.case == case


@pytest.mark.parametrize("case", ["schedule_b1", "append_4096", "h128_b1", "h128_s1_b2_k", ""])
def test_a_name_of_another_form_is_refused(case: str) -> None:
    with pytest.raises(ValueError, match="case must look like h128_s1_b16"):
        Shape.of_case(case)


def test_shapes_that_no_kernel_has_are_refused() -> None:
    with pytest.raises(ValueError, match="h_q must be 16, 32, 64 or 128: it is 48"):
        Shape(1, 48)
    with pytest.raises(ValueError, match="topk must be at least 1: it is 0"):
        Shape(1, topk=0)


def test_a_block_of_64_heads_costs_what_chapter_08_counts() -> None:
    cycles = block_cycles(64)
    instructions = 36 * 32 + 4 * 4 * 64  # m64n64k16 and m64n128k16, clocks each
    assert cycles["tensor cores"] == instructions == 2176
    assert cycles["conversion"] == 64 * (512 // 2 * 4 / 128)  # four operations for two values, 128 lanes
    # Operands of every instruction, read where they lie, and what is stored: k once, p once.
    reads = 36 * (2048 + 2048) + 8 * 4096 + 8 * (2048 + 4096)
    stores = 64 * 576 * 2 + 64 * 64 * 2
    assert cycles["shared memory"] == (reads + stores) / 128


@pytest.mark.parametrize("heads", [16, 32])
def test_few_heads_take_keys_from_registers_and_read_the_weights_for_each_64_columns(heads: int) -> None:
    reads = 36 * heads * 32 + 8 * 4 * (2048 + heads * 32)  # m64nNk16: 64 tokens or 64 columns by N heads
    stores = 64 * 512 * 2 + 64 * heads * 2
    rows = 64 * 656 * 2  # in by bulk copies, out by loads
    assert block_cycles(heads)["shared memory"] == (reads + stores + rows) / 128
    assert block_cycles(heads)["tensor cores"] == 2176 * heads / 64


def test_a_pair_converts_half_of_a_block_each() -> None:
    assert block_cycles(128, convert_cycles=FLASHMLA)["conversion"] == 64 * 50 / 2
    assert block_cycles(64, convert_cycles=FLASHMLA)["conversion"] == 64 * 50


@given(
    st.integers(1, 300),
    st.sampled_from([64, 128]),
    st.integers(1, 4),
    st.integers(1, 3000),
    st.integers(8, 160),
)
def test_the_busiest_partition_has_its_share_at_least(b: int, h_q: int, s_q: int, topk: int, sms: int) -> None:
    machine = Machine("a card", sms, 1e9, 1e12)
    found = roofline(Shape(b, h_q, s_q, topk), machine)
    blocks = b * s_q * math.ceil(topk / 64) * (h_q // 64)  # CTA times block
    assert blocks / sms <= found.blocks <= b * s_q * math.ceil(topk / 64) * (h_q // 64)
    assert found.seconds["memory"] == pytest.approx(b * s_q * topk * 656 / 1e12, rel=1e-12)
    assert found.floor == max(found.seconds.values()) == found.seconds[found.binding]


def test_more_ctas_than_sms_take_turns() -> None:
    machine = Machine("a small card", 8, 1e9, 1e15)
    once, twice = (roofline(Shape(1, 64, s_q, 64), machine).blocks for s_q in (8, 16))
    assert (once, twice) == (1, 2)


def test_no_time_is_shorter_than_its_flops_at_peak() -> None:
    for shape in CASES.values():
        peak = H200.sms * H200.flops_per_clock_per_sm * H200.clock_hz
        assert roofline(shape).seconds["tensor cores"] >= shape.flops / peak * (1 - 1e-12)


def test_a_data_sheet_gives_its_own_peak() -> None:
    for card in gpus.CATALOGUE.values():
        machine = Machine.of(card)
        assert machine.sms * machine.flops_per_clock_per_sm * machine.clock_hz == pytest.approx(card.bf16_flops)
        assert machine.copy_bytes_per_s == card.hbm_bytes_per_s


def test_the_sentence_names_the_binding_part() -> None:
    assert str(roofline(Shape(128, 64))).startswith("at least 39.9 µs, bound by memory (memory 39.9,")
