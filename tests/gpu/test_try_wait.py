"""A try_wait may answer "not yet" before the phase has ended: who does not ask again reads too early."""

from __future__ import annotations

import numpy as np
import pytest

from mlacademy import gpu
from mlacademy.gpu import LaunchPlan, nvrtc

pytestmark = pytest.mark.skipif(nvrtc.identity() is None, reason="no NVRTC")

SOURCE = """
#include "bulk.cuh"
#include "fence.cuh"
using namespace mla;
extern "C" __global__ void k(const float* source, float* target) {
    __shared__ alignas(128) float tile[256];
    __shared__ Mbarrier full;
    if (threadIdx.x == 0) {
        mbarrier_init(&full, 1);
        fence_mbarrier_init();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        mbarrier_arrive_expect_tx(&full, sizeof(tile));
        cp_async_bulk_shared_global(tile, source, sizeof(tile), &full);
    }
    WAIT
    target[threadIdx.x] = tile[threadIdx.x];
}
"""


def run(wait: str, **options: object) -> np.ndarray:
    source, target = np.arange(256, dtype=np.float32), np.zeros(256, np.float32)
    kernel = gpu.compile(SOURCE.replace("WAIT", wait))["k"]
    gpu.Device("emulator").launch(kernel, LaunchPlan(grid=1, block=256), (source, target), **options)
    return target


def test_a_wait_in_a_loop_is_right_under_every_seed() -> None:
    for seed in range(40):
        assert (run("mbarrier_wait_parity(&full, 0);", order="seeded", seed=seed) == np.arange(256)).all()


def test_a_single_try_is_reported_under_some_seed() -> None:
    rules = []
    for seed in range(40):
        try:
            assert (run("mbarrier_try_wait_parity(&full, 0);", order="seeded", seed=seed) == np.arange(256)).all()
        except gpu.RunError as error:
            rules.append(error.rule)
    # 8 warps try once each, and one try in 8 gives up where the copy is still on its way.
    assert len(rules) >= 10
    assert set(rules) <= {"race", "uninitialized"}


@pytest.mark.parametrize("order", ["eager", "lazy"])
def test_without_a_seed_a_try_sleeps_until_the_phase_ends(order: str) -> None:
    assert (run("mbarrier_try_wait_parity(&full, 0);", order=order) == np.arange(256)).all()
