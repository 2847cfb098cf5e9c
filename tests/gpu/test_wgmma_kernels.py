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
        assert caught.value.other_source_line == (14 if rule == "wgmma-wait" else 0)


PROMOTION = """#include "fence.cuh"
#include "wgmma.cuh"
using namespace mla;
extern "C" __global__ void __launch_bounds__(128) k(const uint4* a, const uint4* b, const float* scale, float* out) {
    __shared__ alignas(1024) uint8_t tiles[2][2][8192];
    float total[32] = {}, d[32];
    for (int block = 0; block < 4; ++block) {
        auto& [left, right] = tiles[block % 2];
        for (uint32_t i = threadIdx.x; i < 512; i += 128) {
            const uint32_t place = i * 16 ^ (i * 16 >> 3 & 0x70);
            *reinterpret_cast<uint4*>(left + place) = a[block * 512 + i];
            *reinterpret_cast<uint4*>(right + place) = b[block * 512 + i];
        }
        fence_proxy_async_shared_cta();
        __syncthreads();
        const uint64_t x = matrix_descriptor<Swizzle::k128B, 1024>(left);
        const uint64_t y = matrix_descriptor<Swizzle::k128B, 1024>(right);
        wgmma_fence(d);
#pragma unroll
        for (int slice = 0; slice < 4; ++slice)
            wgmma_m64n64k32_f32_e4m3(d, advance(x, 32 * slice), advance(y, 32 * slice), slice > 0);
        wgmma_commit_group();
        wgmma_wait_group<0>(d);
        for (int i = 0; i < 32; ++i) total[i] = __fmaf_rn(d[i], scale[block], total[i]);
    }
    for (int i = 0; i < 32; ++i)
        out[accumulator_row(threadIdx.x, i) * 64 + accumulator_column(threadIdx.x, i)] = total[i];
}
"""


def promoted(device: Device, source: str, **options: object) -> tuple[np.ndarray, np.ndarray]:
    """What the kernel gives for 4 blocks of 128 FP8 codes, and what the tensor core and float32 make of them."""
    rng = np.random.default_rng(8)
    a, b = (rng.integers(0, 256, (4, 64, 128), dtype=np.uint8) & np.uint8(0xBF) for _ in range(2))
    scale = rng.random(4, dtype=np.float32)
    out = np.full((64, 64), np.nan, np.float32)
    device.launch(gpu.compile(source)["k"], LaunchPlan(1, 128), (a, b, scale, out), **options)
    numerics = native_module().numerics
    want = np.zeros((64, 64), np.uint64)
    for block in range(4):
        d = None
        for k in range(0, 128, 32):
            codes = (matrix[block, :, k : k + 32].astype(np.uint32) for matrix in (a, b))
            d = numerics.multiply_add("f32", "e4m3", "e4m3", *codes, d)
        factor = np.full(4096, scale[block].view(np.uint32), np.uint64)
        want = numerics.scalar("fma.rn.f32", d.astype(np.uint64).ravel(), factor, want.ravel()).reshape(64, 64)
    return out, want.astype(np.uint32).view(np.float32)


def test_fp8_blocks_are_promoted_to_float32(emulator: Device) -> None:
    for options in ({}, {"order": "lazy"}, *({"order": "seeded", "seed": seed} for seed in range(10))):
        got, want = promoted(emulator, PROMOTION, **options)
        assert np.array_equal(got, want)


@pytest.mark.parametrize(
    ("old", "rule"),
    [
        ("wgmma_fence(d);", "wgmma-fence"),
        ("wgmma_wait_group<0>(d);", "wgmma-wait"),
        ("wgmma_commit_group();", "wgmma-wait"),
        ("fence_proxy_async_shared_cta();", "proxy"),
        ("__syncthreads();", "race"),
    ],
)
def test_promotion_without_one_of_its_lines_is_reported(emulator: Device, old: str, rule: str) -> None:
    with pytest.raises(gpu.KernelTrap) as caught:
        promoted(emulator, PROMOTION.replace(old, ""))
    assert caught.value.rule == rule
