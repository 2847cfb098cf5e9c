"""The peers of benchmarks/emulator.py in Numba's CUDA simulator: prints the seconds of each kernel as JSON.

Runs under a Python that has Numba: `NUMBA_ENABLE_CUDASIM=1 python _numba_simulator.py`.
"""

from __future__ import annotations

import json
import time

import numpy as np
from numba import cuda, float32

N, TILE, THREADS = 4096, 16, 128


@cuda.jit
def saxpy(n, a, x, y):
    i = cuda.grid(1)
    if i < n:
        y[i] = a * x[i] + y[i]


@cuda.jit
def product(a, b, c, n):
    left = cuda.shared.array((TILE, TILE), float32)
    right = cuda.shared.array((TILE, TILE), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    row, col = cuda.blockIdx.y * TILE + ty, cuda.blockIdx.x * TILE + tx
    total = float32(0)
    for k in range(0, n, TILE):
        left[ty, tx] = a[row, k + tx]
        right[ty, tx] = b[k + ty, col]
        cuda.syncthreads()
        for j in range(TILE):
            total += left[ty, j] * right[j, tx]
        cuda.syncthreads()
    c[row, col] = total


@cuda.jit
def reduction(x, out, n):
    part = cuda.shared.array(THREADS, float32)
    t = cuda.threadIdx.x
    total = float32(0)
    i = cuda.grid(1)
    while i < n:
        total += x[i]
        i += cuda.gridsize(1)
    part[t] = total
    cuda.syncthreads()
    step = THREADS // 2
    while step > 0:
        if t < step:
            part[t] += part[t + step]
        cuda.syncthreads()
        step //= 2
    if t == 0:
        cuda.atomic.add(out, 0, part[0])


def least(call, runs: int = 3) -> float:
    seconds = []
    for _ in range(runs):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def main() -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(N).astype(np.float32) for _ in range(2))
    a, b = (rng.integers(-8, 8, (48, 48)).astype(np.float32) for _ in range(2))
    c, out = np.zeros((48, 48), np.float32), np.zeros(1, np.float32)
    seconds = {
        "saxpy": least(lambda: saxpy[N // THREADS, THREADS](N, np.float32(2), x, y)),
        "tiled matmul": least(lambda: product[(3, 3), (TILE, TILE)](a, b, c, 48)),
        "reduction": least(lambda: reduction[4, THREADS](x, out, N)),
    }
    assert (c == a @ b).all()
    print(json.dumps(seconds))


if __name__ == "__main__":
    main()
