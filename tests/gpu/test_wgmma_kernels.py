"""Kernels that multiply with wgmma, on the emulator: the tensor core's bits, and mistakes explained at their lines."""

from __future__ import annotations

import numpy as np
import pytest

from mlacademy import gpu
from mlacademy.gpu import Device, LaunchPlan, samples
from mlacademy.gpu.emulator_device import native_module

pytestmark = pytest.mark.usefixtures("compiler")


@pytest.fixture
def emulator() -> Device:
    obstacle = Device.obstacles()["emulator"]
    if obstacle:
        pytest.skip(obstacle)
    return Device("emulator")


def chained(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """c = a · bᵀ as one accumulator gets it, 16 elements of k at a time; bfloat16 codes in, float32 out."""
    multiply_add = native_module().numerics.multiply_add
    c = None
    for k in range(0, a.shape[1], 16):
        c = multiply_add(
            "f32", "bf16", "bf16", a[:, k : k + 16].astype(np.uint32), b[:, k : k + 16].astype(np.uint32), c
        )
    assert c is not None
    return c.view(np.float32)


@pytest.mark.parametrize("order", ["eager", "lazy", "seeded"])
def test_the_sample_has_the_tensor_cores_bits(emulator: Device, order: str) -> None:
    case = samples.wgmma_tile(3, 1)
    a, b, c = case.args[0].tensor, case.args[1].tensor, case.args[2]
    emulator.launch(gpu.compile("wgmma_tile.cu")["wgmma_tile"], case.plan, case.args, order=order, seed=4)
    assert np.array_equal(c, chained(a, b))


KERNEL = """#include "fence.cuh"
#include "wgmma.cuh"
using namespace mla;
extern "C" __global__ void __launch_bounds__(128) k(float* out, int more) {
    __shared__ alignas(1024) uint8_t tile[16384];
    for (uint32_t i = threadIdx.x; i < 4096; i += 128) reinterpret_cast<uint32_t*>(tile)[i] = 0x3f803f80;
    fence_proxy_async_shared_cta();
    __syncthreads();
    const uint64_t a = matrix_descriptor<Swizzle::k128B, 1024>(tile);
    float d[32] = {};
    float sum = 0;
    for (int round = 0; round < more; ++round) {
        @FENCE@
        wgmma_m64n64k16_f32_bf16(d, a, a, round % 2);
        wgmma_commit_group();
        @WAIT@
        sum += d[5];
        d[7] *= 2;
    }
    wgmma_wait_group<0>(d);
    for (int i = 0; i < 32; ++i) out[threadIdx.x * 32 + i] = d[i] + sum;
}
"""


def launch(emulator: Device, fence: str, wait: str, **options: object) -> np.ndarray:
    out = np.zeros((128, 32), np.float32)
    source = KERNEL.replace("@FENCE@", fence).replace("@WAIT@", wait)
    emulator.launch(gpu.compile(source)["k"], LaunchPlan(1, 128), (out, 3), **options)
    return out


RIGHT = ("wgmma_fence(d);", "wgmma_wait_group<0>(d);")


def test_a_right_kernel_is_silent_in_every_order(emulator: Device) -> None:
    want = launch(emulator, *RIGHT)
    assert want[0, 0] == 16 + 16 + 32 + 16
    for seed in range(20):
        assert np.array_equal(launch(emulator, *RIGHT, order="seeded", seed=seed), want)
    assert np.array_equal(launch(emulator, *RIGHT, order="lazy"), want)


@pytest.mark.parametrize(
    ("fence", "wait", "rule", "line", "words"),
    [
        (RIGHT[0], "", "wgmma-wait", 17, "reads an accumulator of 'wgmma.*kernel.cu line 17"),
        (RIGHT[0], "wgmma_wait_group<1>(d);", "wgmma-wait", 17, "reads an accumulator of 'wgmma.*at line 14"),
        ("", RIGHT[1], "wgmma-fence", 14, "A wgmma.fence is missing.*kernel.cu line 14"),
    ],
)
def test_a_wrong_kernel_is_explained_at_its_line(
    emulator: Device, fence: str, wait: str, rule: str, line: int, words: str
) -> None:
    for order in ("eager", "lazy"):
        with pytest.raises(gpu.HazardError, match=words) as caught:
            launch(emulator, fence, wait, order=order)
        assert (caught.value.rule, caught.value.source_line) == (rule, line)
