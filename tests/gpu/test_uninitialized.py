"""`gpu.empty`: what has been written, by whom, and how messages name an element."""

from __future__ import annotations

import gc
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from mlacademy import gpu
from mlacademy.gpu import Device, LaunchPlan, uninitialized

pytestmark = pytest.mark.usefixtures("compiler")
COPY = """extern "C" __global__ void copy(const float* source, float* target, int first, int n) {
    const int i = first + threadIdx.x;
    if (threadIdx.x < n) target[i] = source[i];
}
"""


def copy(source: np.ndarray, target: np.ndarray, first: int, n: int, **options: Any) -> None:
    Device("emulator").launch(gpu.compile(COPY)["copy"], LaunchPlan(1, 64), (source, target, first, n), **options)


def test_reading_what_nobody_wrote_names_the_element() -> None:
    source, target = gpu.empty((4, 3, 5)), np.zeros(60, np.float32)
    with pytest.raises(gpu.Uninitialized, match=r"reads 'source\[2, 1, 3\]' \(global memory\)") as caught:
        copy(source, target, 38, 1)
    assert (caught.value.rule, caught.value.object_name) == ("uninitialized", "'source[2, 1, 3]'")


def test_what_a_launch_wrote_stays_written() -> None:
    tensor, data, target = gpu.empty(64), np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    copy(data, tensor, 8, 16)
    copy(tensor, target, 8, 16)
    assert np.array_equal(target[8:24], data[8:24])
    with pytest.raises(gpu.Uninitialized, match=r"'source\[24\]'"):
        copy(tensor, target, 8, 17)


def test_what_python_assigns_counts_and_so_does_an_unchecked_launch() -> None:
    tensor, data, target = gpu.empty(64), np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    tensor[:4] = 1
    copy(tensor, target, 0, 4)
    tensor[4] = 2
    copy(tensor[4:], target, 0, 1)
    with pytest.raises(gpu.Uninitialized, match=r"'source\[1\]'"):
        copy(tensor[4:], target, 0, 2)
    copy(data, tensor, 60, 1, check=("race",))
    copy(tensor, target, 0, 64)


def test_an_ordinary_array_counts_as_written() -> None:
    source = np.empty(64, np.float32)
    copy(source, np.zeros(64, np.float32), 0, 64)


def test_a_tensor_that_is_gone_is_forgotten() -> None:
    gc.collect()
    before = len(uninitialized._tracked)
    tensor = gpu.empty((3, 3), "bfloat16")
    part = tensor[1]
    assert str(tensor.dtype) == "bfloat16"
    assert np.isnan(tensor.astype(np.float32)).all()
    assert len(uninitialized._tracked) == before + 1
    del tensor
    gc.collect()
    assert len(uninitialized._tracked) == before + 1
    del part
    gc.collect()
    assert len(uninitialized._tracked) == before


def test_an_access_past_the_end_tells_the_shape() -> None:
    with pytest.raises(gpu.KernelTrap, match=r"past the end of 'source', which has 240 bytes \(shape \[4, 15\]\)"):
        copy(np.zeros((4, 15), np.float32), np.zeros(64, np.float32), 0, 61)


def test_threads_make_arrays_while_others_launch() -> None:
    done = threading.Event()

    def make() -> None:
        while not done.is_set():
            gpu.empty(1)

    with ThreadPoolExecutor(1) as pool:
        making = pool.submit(make)
        kept = [gpu.empty(1) for _ in range(200)]
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            for _ in range(300):
                uninitialized.launch_ended()
        finally:
            sys.setswitchinterval(interval)
            done.set()
        making.result()
    assert all(np.isnan(one[0]) for one in kept)
