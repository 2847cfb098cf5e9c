"""When a CTA may end: after what others do in its shared memory is known there to be over, and not before."""

from __future__ import annotations

import numpy as np
import pytest

from mlacademy import gpu
from mlacademy.gpu import LaunchPlan, nvrtc

pytestmark = pytest.mark.skipif(nvrtc.identity() is None, reason="no NVRTC")

SOURCE = """
#include "bulk.cuh"
#include "cluster.cuh"
#include "fence.cuh"
using namespace mla;
extern "C" __global__ void k(const uint32_t* source, uint32_t* target) {
    __shared__ alignas(128) uint32_t box[32];
    __shared__ Mbarrier full;
    const uint32_t rank = cluster_ctarank(), peer = rank ^ 1;
    if (threadIdx.x == 0) {
        mbarrier_init(&full, ARRIVALS);
        fence_mbarrier_init();
    }
    cluster_sync();
    if (threadIdx.x == 0) {
        SEND
    }
    mbarrier_wait_parity_cluster(&full, 0);
    target[32 * blockIdx.x + threadIdx.x] = box[threadIdx.x];
    END
}
"""
STORES = """mbarrier_arrive_expect_tx(&full, 128);
for (int i = 0; i < 32; ++i)
    st_async_u32(mapa(smem_address(box + i), peer), source[32 * rank + i], mapa(smem_address(&full), peer));"""
MULTICAST = """mbarrier_arrive_expect_tx(&full, 128);
cp_async_bulk_shared_global_multicast(box + 16 * rank, source + 16 * rank, 64, &full, 3);"""
ORDINARY = """for (int i = 0; i < 32; ++i)
    st_shared_cluster_u32(mapa(smem_address(box + i), peer), source[32 * rank + i]);
mbarrier_arrive_cluster(mapa(smem_address(&full), peer));"""


def run(send: str, *, arrivals: int = 1, end: str = "", **options: object) -> np.ndarray:
    text = SOURCE.replace("SEND", send).replace("ARRIVALS", str(arrivals)).replace("END", end)
    source, target = np.arange(64, dtype=np.uint32), np.zeros((2, 32), np.uint32)
    kernel = gpu.compile(text)["k"]
    gpu.Device("emulator").launch(kernel, LaunchPlan(grid=2, block=32, cluster=2), (source, target), **options)
    return target


@pytest.mark.parametrize("order", ["eager", "lazy", "seeded"])
@pytest.mark.parametrize("send", [STORES, MULTICAST, ORDINARY], ids=["stores", "multicast", "ordinary"])
def test_a_cta_may_end_when_it_has_waited_for_what_others_send(send: str, order: str) -> None:
    expected = np.stack([np.arange(32)] * 2) if send == MULTICAST else np.arange(64).reshape(2, 32)[::-1]
    for seed in (1, 2, 3) if order == "seeded" else (0,):
        assert (run(send, order=order, seed=seed) == expected).all()


@pytest.mark.parametrize(
    "late",
    [
        "mbarrier_arrive_cluster(mapa(smem_address(&full), peer));",
        "target[blockIdx.x] = ld_shared_cluster_u32(mapa(smem_address(box), peer));",
        "st_shared_cluster_u32(mapa(smem_address(box), peer), 7);",
    ],
    ids=["arrive", "read", "write"],
)
def test_a_cta_may_not_end_while_others_may_still_reach_into_it(late: str) -> None:
    """The peer's access comes after the last thing that this CTA waits for."""
    late = f"cluster_sync(); if (threadIdx.x == 0) {{ {late} }}"
    with pytest.raises(gpu.KernelTrap) as caught:
        run(ORDINARY, end=late)
    assert caught.value.rule == "remote-exited"
    run(ORDINARY, end=f"{late} cluster_sync();")
