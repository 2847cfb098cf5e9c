"""What the references of chapter 12 claim holds: for real roundings, real optima, the bytes a C compiler lays out."""

from __future__ import annotations

import ctypes
import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlacademy import fp8
from mlacademy.grading.judges import decode_bound, error_bounds, kernel_params, kernel_splits, stale_lengths
from mlacademy.grading.judges.ch12 import EXERCISES
from mlacademy.roofline import Machine, Shape, roofline


@pytest.mark.parametrize("seed", range(5))
def test_real_roundings_stay_within_the_bound_and_come_near_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    v = rng.standard_normal((64, 32)) * np.exp2(2 * rng.standard_normal((64, 1)))
    p = rng.random(64)
    p /= p.sum()
    scale = 2.0 ** math.ceil(math.log2(np.abs(v).max() / 448))
    stored = fp8.decode_e4m3(fp8.encode_e4m3(v / scale)).astype(np.float64) * scale
    weights = np.asarray(fp8.round_bf16(p), np.float64)
    bounds, worst = error_bounds.BOUNDS.reference(
        p=p, v=v, pipelines=[((3, -6, scale), error_bounds.BF16), (error_bounds.BF16, error_bounds.BF16)]
    )
    assert worst == 0
    single = error_bounds.half_spacing(v, (3, -6, scale))
    assert (np.abs(stored - v) <= single).all()
    assert (np.abs(stored - v) > 0.9 * single).any()
    assert np.abs(weights @ stored - p @ v).max() <= bounds[0]


@given(st.lists(st.integers(1, 6), min_size=1, max_size=3), st.integers(1, 4), st.integers(0, 9), st.integers(0, 9))
def test_splits_are_the_cheapest_of_all_sizes(blocks: list[int], parts: int, enter: int, partial: int) -> None:
    splits, time = kernel_splits.SPLITS.reference(blocks=blocks, parts=parts, block=4, enter=enter, partial=partial)
    prices = {}
    for size in range(1, max(blocks) + 1):
        cut = kernel_splits.pieces_of(blocks, size)
        assert [sum(pieces) for pieces in cut] == blocks
        assert all(max(pieces) <= size and max(pieces) - min(pieces) <= 1 for pieces in cut)
        prices[size] = kernel_splits.price(cut, parts, 4, enter, partial)
    assert time == min(prices.values())
    largest = max(size for size, price in prices.items() if price == time)
    assert splits == [-(-n // largest) for n in blocks]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 3))
def test_longest_first_is_within_a_third_of_the_best_placement(costs: list[int], parts: int) -> None:
    best = min(
        max(sum(c for c, at in zip(costs, places, strict=True) if at == part) for part in range(parts))
        for places in itertools.product(range(parts), repeat=len(costs))
    )
    assert best <= kernel_splits.makespan(costs, parts) <= (4 / 3) * best  # Graham 1969: 4/3 - 1/(3 parts)


class Query(ctypes.Structure):
    _fields_ = (
        ("q", ctypes.c_uint64),
        ("q_stride_b", ctypes.c_int64),
        ("q_stride_s", ctypes.c_int64),
        ("q_stride_h", ctypes.c_int64),
        ("scale_log2", ctypes.c_float),
        ("b", ctypes.c_int32),
        ("s_q", ctypes.c_int32),
        ("h_q", ctypes.c_int32),
    )


def test_the_block_lies_as_a_c_compiler_lays_it() -> None:
    assert ctypes.sizeof(Query) == kernel_params.BLOCK.size == 48
    assert tuple(getattr(Query, name).offset for name in kernel_params.FIELDS) == kernel_params.STARTS


def test_packed_strides_are_those_of_the_view() -> None:
    for case in kernel_params.PACK.make_cases("hidden"):
        given_ = dict(case.inputs)
        block = kernel_params.PACK.reference(**given_)
        s_q, b, heads, width = given_["pool"]
        if block is None or b * heads * width > 10**7:
            continue
        pool = np.zeros((s_q, b, heads, width), np.uint16)
        first, step, column, h_q = (given_[n] for n in ("first_head", "head_step", "first_column", "h_q"))
        view = pool[:, :, first : first + step * h_q : step, column : column + 576].transpose(1, 0, 2, 3)
        fields = Query.from_buffer_copy(block.tobytes())
        assert view.shape == (fields.b, fields.s_q, fields.h_q, 576)
        assert [2 * n for n in (fields.q_stride_b, fields.q_stride_s, fields.q_stride_h)] == list(view.strides[:3])
        offset = view.__array_interface__["data"][0] - pool.__array_interface__["data"][0]
        assert fields.q == given_["address"] + offset
        assert fields.scale_log2 == pytest.approx(given_["scale"] / math.log(2), rel=2**-23)


def test_hidden_queries_are_readable_and_not() -> None:
    blocks = [kernel_params.PACK.reference(**case.inputs) for case in kernel_params.PACK.make_cases("hidden")]
    assert 3 <= sum(block is None for block in blocks) <= len(blocks) - 3


@pytest.mark.parametrize("stream", ["visible", "hidden"])
def test_the_bound_of_full_lists_is_the_librarys_where_the_schedule_is_even(stream: str) -> None:
    parts = set()
    for case in decode_bound.ROOF.make_cases(stream):
        part, seconds = decode_bound.ROOF.reference(**case.inputs)
        parts.add(part)
        card = case.inputs["card"]
        machine = Machine("a card", card["sms"], card["clock_hz"], card["bytes_per_s"])
        shape = Shape(*(case.inputs[name] for name in ("b", "h_q", "s_q", "topk")))
        library = roofline(shape, machine, convert_cycles=card["convert_cycles"])
        mine = {name: time for name, time in library.seconds.items() if name != "shared memory"}
        assert seconds <= max(mine.values()) * (1 + 1e-12)  # the scheduler may load its busiest partition more
    assert len(parts) >= 2


def test_no_two_batches_of_a_stream_are_alike() -> None:
    for stream in ("visible", "hidden"):
        for case in stale_lengths.STALE.make_cases(stream):
            batches, order = case.data
            assert len(set(batches)) == len(batches)
            assert sorted(order) == list(range(len(case.inputs["lengths"])))


def test_points_of_the_chapter() -> None:
    assert [exercise.id for exercise in EXERCISES] == [f"12.{i}" for i in range(1, 7)]
    assert sum(exercise.points for exercise in EXERCISES) == 20
