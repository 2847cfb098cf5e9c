"""CUDA C++ compiled by NVRTC and run on the emulator: whole kernels against NumPy."""

from __future__ import annotations

import functools
import re
import signal
import threading

import numpy as np
import pytest
from ptxrun import launch

from mlacademy import _emulator, gpu

pytest.importorskip("cuda.bindings.nvrtc")


@functools.cache
def compile_cuda(source: str) -> _emulator.Program:
    """The program that NVRTC makes of `source` for sm_90a, with line numbers."""
    return _emulator.Program(gpu.compile(source, arch="sm_90a").ptx)


BASICS = r"""
extern "C" __global__ void saxpy(int n, float a, const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
extern "C" __global__ void product(const float* a, const float* b, float* c, int n) {
    __shared__ float left[16][16], right[16][16];
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 16 + ty, col = blockIdx.x * 16 + tx;
    float sum = 0;
    for (int k = 0; k < n; k += 16) {
        left[ty][tx] = a[row * n + k + tx];
        right[ty][tx] = b[(k + ty) * n + col];
        __syncthreads();
        for (int j = 0; j < 16; ++j) sum += left[ty][j] * right[j][tx];
        __syncthreads();
    }
    c[row * n + col] = sum;
}
extern "C" __global__ void block_sum(const float* x, float* out, int n) {
    __shared__ float part[32];
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += x[i];
    for (int step = 16; step; step >>= 1) sum += __shfl_xor_sync(~0u, sum, step);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0;
        for (int step = 16; step; step >>= 1) sum += __shfl_xor_sync(~0u, sum, step);
        if (threadIdx.x == 0) atomicAdd(out, sum);
    }
}
extern "C" __global__ void collatz(const int* x, int* steps, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int v = x[i], count = 0;
    while (v != 1) { if (v & 1) v = 3 * v + 1; else v >>= 1; ++count; }
    steps[i] = count;
}
"""


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_saxpy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = (rng.standard_normal(1000).astype(np.float32) for _ in range(2))
    want = np.float64(2.5) * x + y
    stats = launch(compile_cuda(BASICS), 1000, 2.5, x, y, kernel="saxpy", grid=(8, 1, 1), block=(128, 1, 1), seed=seed)
    # One rounding of a fused product: half an ulp of a result below 16.
    assert np.abs(y - want).max() <= 16 * 2.0**-24
    assert stats["clusters"] == 8


@pytest.mark.parametrize("seed", [0, 5])
@pytest.mark.parametrize("threads", [1, 2])
def test_tiled_product(seed: int, threads: int) -> None:
    n = 48
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(-8, 8, (n, n)).astype(np.float32) for _ in range(2))
    c = np.full((n, n), np.nan, np.float32)
    launch(
        compile_cuda(BASICS),
        a,
        b,
        c,
        n,
        kernel="product",
        grid=(3, 3, 1),
        block=(16, 16, 1),
        seed=seed,
        threads=threads,
    )
    assert (c == a @ b).all()  # small integers: every sum is exact


def test_block_reduction_with_shuffles() -> None:
    x = np.random.default_rng(0).integers(-100, 100, 5000).astype(np.float32)
    out = np.zeros(1, np.float32)
    launch(compile_cuda(BASICS), x, out, 5000, kernel="block_sum", grid=(3, 1, 1), block=(256, 1, 1))
    assert out[0] == x.sum(dtype=np.float64)


def test_divergent_loops() -> None:
    x = np.random.default_rng(1).integers(1, 2000, 100).astype(np.int32)
    steps = np.zeros(100, np.int32)
    launch(compile_cuda(BASICS), x, steps, 100, kernel="collatz", block=(128, 1, 1))

    def count(v: int) -> int:
        return 0 if v == 1 else 1 + count(3 * v + 1 if v % 2 else v // 2)

    assert steps.tolist() == [count(int(v)) for v in x]


def test_a_bad_index_names_the_cuda_line() -> None:
    x = np.zeros(100, np.float32)
    line = next(i for i, text in enumerate(BASICS.splitlines(), 1) if "y[i] = a" in text)
    words = (
        rf"'ld.global.*' reads 4 bytes just past the end of 'saxpy_param_2', which has 400 bytes: "
        rf"kernel saxpy, kernel.cu line {line} "
    )
    with pytest.raises(_emulator.KernelTrap, match=words):
        launch(compile_cuda(BASICS), 128, 1.0, x, x, kernel="saxpy", block=(128, 1, 1))


CALLS = r"""
__device__ __noinline__ float horner(float x, int k) { float r = 0; for (int i = 0; i < k; ++i) r = r * x + i;
return r; }
struct Pair { int a; double b; };
__device__ __noinline__ Pair both(Pair p, int k) { return {p.a * k, p.b + k}; }
extern "C" __global__ void calls(const float* x, float* y, double* z) {
    int i = threadIdx.x;
    float local[8];
    for (int k = 0; k < 8; ++k) local[k] = horner(x[i], k + 1);
    y[i] = local[i & 7] + horner(x[i], 3);
    Pair p = both(both({i, 0.5}, 3), i & 1 ? 2 : 5);
    z[i] = p.a + p.b;
    if (i == 3) printf("lane %d: %s %5.2f %lld %c%% %x\n", i, "text", 2.5, 123456789012LL, 'c', 255u);
}
"""


def test_functions_local_arrays_and_printf() -> None:
    x = np.linspace(-1, 1, 32, dtype=np.float32)
    y, z = np.zeros(32, np.float32), np.zeros(32)
    stats = launch(compile_cuda(CALLS), x, y, z, kernel="calls")

    def horner(v: float, k: int) -> float:
        r = 0.0
        for i in range(k):
            r = r * v + i
        return r

    want = [horner(float(v), (i & 7) + 1) + horner(float(v), 3) for i, v in enumerate(x)]
    assert np.allclose(y, want, rtol=0, atol=32 * 2.0**-20)  # 8 steps, values below 32, f32
    assert z.tolist() == [i * 3 * k + 3.5 + k for i, k in ((i, 2 if i & 1 else 5) for i in range(32))]
    assert stats["output"] == "lane 3: text  2.50 123456789012 c% ff\n"


FORMATS = r"""
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
extern "C" __global__ void formats(const float* x, unsigned char* fp8, float* back, float* halves, float* brains) {
    int i = threadIdx.x;
    __nv_fp8_e4m3 e(x[i]);
    fp8[i] = e.__x;
    back[i] = float(e);
    halves[i] = __half2float(__hfma(__float2half(x[i]), __float2half(0.5f), __float2half(1.0f)));
    brains[i] = __bfloat162float(__hmul(__float2bfloat16(x[i]), __float2bfloat16(3.0f)));
}
"""


def test_number_formats_of_the_toolkit_headers() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.concatenate(
        [np.random.default_rng(0).standard_normal(120) * 50, [0, -0.0, 448, 500, -1e9, 2**-9, 2**-10, 1e-5]]
    ).astype(np.float32)
    fp8, back, halves, brains = np.zeros(128, np.uint8), *(np.zeros(128, np.float32) for _ in range(3))
    launch(compile_cuda(FORMATS), x, fp8, back, halves, brains, block=(128, 1, 1))
    want = np.clip(x, -448, 448).astype(ml_dtypes.float8_e4m3fn)
    assert (fp8 == want.view(np.uint8)).all()
    assert (back == want.astype(np.float32)).all()
    half = np.clip(x, -65504, 65504).astype(np.float16).astype(np.float64)
    finite = np.abs(x) < 65000
    assert (halves[finite] == (half * 0.5 + 1).astype(np.float16)[finite]).all()
    brain = x.astype(ml_dtypes.bfloat16).astype(np.float64)
    assert (brains == (brain * 3).astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float32)).all()


PIPELINE = r"""
#include <cuda/barrier>
#include <cuda/ptx>
namespace ptx = cuda::ptx;
extern "C" __global__ void __cluster_dims__(2, 1, 1) pipeline(const float* x, float* out, int tiles) {
    __shared__ alignas(16) float tile[2][64];
    __shared__ uint64_t full[2], empty[2];
    if (threadIdx.x == 0)
        for (int s = 0; s < 2; ++s) { ptx::mbarrier_init(&full[s], 1); ptx::mbarrier_init(&empty[s], 64); }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
    if (threadIdx.x >= 64) {
        if (threadIdx.x == 64)
            for (int t = 0; t < tiles; ++t) {
                int s = t % 2;
                while (!ptx::mbarrier_try_wait_parity(&empty[s], (t / 2 & 1) ^ 1)) {}
                ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full[s], 256);
                ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, tile[s],
                                   x + (blockIdx.x * tiles + t) * 64, 256, &full[s]);
            }
        return;
    }
    float sum = 0;
    for (int t = 0; t < tiles; ++t) {
        int s = t % 2;
        while (!ptx::mbarrier_try_wait_parity(&full[s], t / 2 & 1)) {}
        sum += tile[s][threadIdx.x];
        ptx::mbarrier_arrive(&empty[s]);
    }
    out[blockIdx.x * 64 + threadIdx.x] = sum;
}
"""


@pytest.mark.parametrize(
    "options", [{"order": "eager"}, {"order": "lazy"}, *({"order": "seeded", "seed": s} for s in (1, 2, 3))]
)
def test_a_pipeline_of_bulk_copies(options: dict[str, object]) -> None:
    x = np.random.default_rng(0).integers(-99, 99, (4, 7, 64)).astype(np.float32)
    out = np.zeros((4, 64), np.float32)
    launch(compile_cuda(PIPELINE), x, out, 7, grid=(4, 1, 1), block=(96, 1, 1), cluster=(2, 1, 1), **options)
    assert (out == x.sum(1)).all()


def test_the_pipeline_without_its_expect_tx_deadlocks_with_a_story() -> None:
    program = compile_cuda(
        PIPELINE.replace("&full[s], 256);\n                ptx::cp", "&full[s], 512);\n                ptx::cp")
    )
    x, out = np.zeros((2, 7, 64), np.float32), np.zeros((2, 64), np.float32)
    with pytest.raises(_emulator.Deadlock) as caught:
        launch(program, x, out, 7, grid=(2, 1, 1), block=(96, 1, 1), cluster=(2, 1, 1))
    assert re.search(r"256 bytes were announced \(expect_tx\) that no copy will bring", str(caught.value))
    assert "kernel pipeline, " in str(caught.value)


def test_ctrl_c_stops_a_kernel() -> None:
    program = compile_cuda('extern "C" __global__ void forever(volatile int* p) { while (*p == 0) {} }')
    cell = np.zeros(1, np.int32)
    former = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a job in the background starts with SIGINT ignored
    timer = threading.Timer(0.2, signal.raise_signal, [signal.SIGINT])
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            launch(program, cell, step_budget=0)
    finally:
        signal.signal(signal.SIGINT, former)
    timer.join()
