"""The compiled scheduler gives what `mlacademy.schedule` gives, field by field."""

from __future__ import annotations

import struct
from functools import cache as remember
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlacademy import gpu, schedule

SOURCE = Path(__file__).parents[2] / "kernels" / "cuda" / "decode" / "schedule.cu"


@remember
def kernel() -> gpu.Kernel:
    return gpu.compile(SOURCE)["schedule"]


def scheduled(
    b: int,
    parts: int,
    *,
    topk: int = 0,
    extra_topk: int = 0,
    lengths: list[int] | None = None,
    extra_lengths: list[int] | None = None,
    overhead: int = 5,
    dense: bool = False,
    threads: int = 1024,
    planned_lengths: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    device = gpu.Device("emulator", arch="sm_90a")
    records, num_splits = np.full((parts, 8), -7, np.int32), np.full(b + 1, -7, np.int32)
    given_lengths = None if lengths is None else np.array(lengths, np.int32)
    extra = None if extra_lengths is None else np.array(extra_lengths, np.int32)
    addresses = [
        0 if tensor is None else device.address(tensor, name)
        for tensor, name in (
            (given_lengths, "lengths"),
            (extra, "extra_lengths"),
            (records, "records"),
            (num_splits, "num_splits"),
            (planned_lengths, "planned_lengths"),
        )
    ]
    params = struct.pack("<4Q6iQ", *addresses[:4], topk, extra_topk, b, parts, overhead, dense, addresses[4])
    device.launch(kernel(), gpu.LaunchPlan(grid=1, block=threads, smem_bytes=12 * (b + 1) + 16 * (parts + 1)), [params])
    return records, num_splits


def agrees(lengths: np.ndarray, parts: int, result: tuple[np.ndarray, np.ndarray], overhead: int = 5) -> None:
    plan = schedule.schedule(lengths, parts, overhead=overhead)
    np.testing.assert_array_equal(result[1], plan.num_splits)
    np.testing.assert_array_equal(result[0], plan.records())


@pytest.mark.parametrize(
    ("b", "topk", "parts"), [(2, 128, 66), (128, 2048, 66), (1, 2048, 66), (512, 2048, 132), (33, 64, 1)]
)
def test_worked_examples(b: int, topk: int, parts: int) -> None:
    agrees(schedule.effective_lengths(b, topk), parts, scheduled(b, parts, topk=topk))


def test_a_batch_wider_than_the_block() -> None:
    lengths = np.random.default_rng(1).integers(1, 2048, 2500).tolist()
    agrees(np.array(lengths), 132, scheduled(2500, 132, topk=2048, lengths=lengths))


def test_lengths_and_a_second_list() -> None:
    main, extra = [2048, 100, 0, 1024], [512, 0, 64, 300]
    agrees(schedule.effective_lengths(4, 2048, topk_length=main), 66, scheduled(4, 66, topk=2048, lengths=main))
    both = schedule.effective_lengths(4, 2048, topk_length=main, extra_topk=512, extra_topk_length=extra)
    agrees(both, 66, scheduled(4, 66, topk=2048, lengths=main, extra_topk=512, extra_lengths=extra))
    agrees(
        schedule.effective_lengths(4, 128, extra_topk=192),
        7,
        scheduled(4, 7, topk=128, extra_topk=192),
    )


def test_given_lengths_are_noted() -> None:
    main, extra = [2048, 100, 0, 1024], [512, 0, 64, 300]
    planned = np.full((2, 4), -7, np.int32)
    scheduled(4, 66, topk=2048, lengths=main, extra_topk=512, extra_lengths=extra, planned_lengths=planned)
    np.testing.assert_array_equal(planned, [main, extra])
    scheduled(4, 66, topk=2048, lengths=main, planned_lengths=planned)
    np.testing.assert_array_equal(planned, [main, [0] * 4])
    scheduled(4, 66, topk=2048, extra_topk=512, planned_lengths=planned)
    assert not planned.any()


@settings(max_examples=60)
@given(
    lengths=st.lists(st.integers(0, 5000), min_size=1, max_size=90),
    parts=st.integers(1, 150),
    overhead=st.sampled_from([0, 3, 5]),
    threads=st.sampled_from([32, 128, 1024]),
)
def test_any_dense_lengths(lengths: list[int], parts: int, overhead: int, threads: int) -> None:
    result = scheduled(len(lengths), parts, lengths=lengths, overhead=overhead, dense=True, threads=threads)
    agrees(np.array(lengths), parts, result, overhead)


def test_lengths_beyond_their_lists_count_as_the_whole_list() -> None:
    given, extra = [5000, 64, -3, 2048], [900, -1, 100, 512]
    result = scheduled(4, 66, topk=2048, lengths=given, extra_topk=512, extra_lengths=extra)
    lengths = schedule.effective_lengths(
        4, 2048, topk_length=[2048, 64, 0, 2048], extra_topk=512, extra_topk_length=[512, 0, 100, 512]
    )
    agrees(lengths, 66, result)


@settings(max_examples=60)
@given(
    b=st.sampled_from([1, 31, 32, 65, 257, 1030]),
    parts=st.sampled_from([1, 2, 31, 66, 132, 200]),
    longest=st.sampled_from([1, 64, 130, 5000, 10**6]),
    overhead=st.sampled_from([0, 1, 5, 40]),
    seed=st.integers(0, 2**31),
)
def test_lengths_that_are_equal_ragged_or_mostly_short(
    b: int, parts: int, longest: int, overhead: int, seed: int
) -> None:
    """Ends of requests in every distance from the ends of partitions: none is met, few, or every one."""
    rng = np.random.default_rng(seed)
    for lengths in (
        np.full(b, longest),
        rng.integers(0, longest + 1, b),
        np.where(rng.random(b) < 0.05, longest, rng.integers(0, 300, b)),
    ):
        result = scheduled(b, parts, lengths=lengths.tolist(), overhead=overhead, dense=True, threads=256)
        agrees(lengths, parts, result, overhead)


@pytest.mark.parametrize("parts", [1, 3, 150])
def test_a_sum_just_below_two_to_the_29(parts: int) -> None:
    lengths = [2**31 - 1] * 15 + [2**31 - 2**16]
    agrees(np.array(lengths), parts, scheduled(16, parts, lengths=lengths, dense=True))
