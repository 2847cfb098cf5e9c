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
        )
    ]
    params = struct.pack("<4Q6iQ", *addresses, topk, extra_topk, b, parts, overhead, dense, 0)
    device.launch(kernel(), gpu.LaunchPlan(grid=1, block=1024, smem_bytes=4 * (b + 32)), [params])
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


@settings(max_examples=60)
@given(
    lengths=st.lists(st.integers(0, 5000), min_size=1, max_size=90),
    parts=st.integers(1, 150),
    overhead=st.sampled_from([0, 3, 5]),
)
def test_any_dense_lengths(lengths: list[int], parts: int, overhead: int) -> None:
    result = scheduled(len(lengths), parts, lengths=lengths, overhead=overhead, dense=True)
    agrees(np.array(lengths), parts, result, overhead)
