"""The kernels of the mutation study with their inputs and, computed apart, their answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mlacademy import gpu
from mlacademy.gpu import Device, LaunchPlan, Module, TensorMap

FOLDER = Path(__file__).parent
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Launch:
    """One launch: its arguments, which of them hold results, and the right results."""

    plan: LaunchPlan
    args: tuple[Any, ...]
    results: tuple[Array, ...]
    expected: tuple[Array, ...]

    def right(self) -> bool:
        """Whether the results are those expected; all answers are exact."""
        return all(np.array_equal(got, want) for got, want in zip(self.results, self.expected, strict=True))


def unwritten(*shape: int, dtype: Any = np.float32) -> Array:
    return np.full(shape, 0xABABABAB, np.uint32).view(dtype)


def integers(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).integers(-8, 9, shape).astype(np.float32)


def bfloat16(values: Array) -> Array:
    return (np.ascontiguousarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def tma_ring() -> Launch:
    steps = 8
    tensor, out = integers(1, 8 * steps, 32), unwritten(steps, 64)
    args = (TensorMap.of(tensor, box=(8, 32)), out, steps)
    return Launch(LaunchPlan(1, 96), args, (out,), (tensor.reshape(steps, 64, 4).sum(2),))


def wgmma_shared() -> Launch:
    blocks = 5
    a, b, c = integers(2, 64, 64 * blocks), integers(3, 8, 64 * blocks), unwritten(64, 8)
    maps = [
        TensorMap.of(bfloat16(matrix), box=(rows, 64), dtype="bfloat16", swizzle="128B")
        for matrix, rows in ((a, 64), (b, 8))
    ]
    return Launch(LaunchPlan(1, 160), (*maps, c, blocks), (c,), (a @ b.T,))


def wgmma_registers() -> Launch:
    k = 48
    a, b, c = integers(4, 64, k), integers(5, 64, k), unwritten(64, 64)
    a[a == 0] = 1  # doubling adds to exponents
    return Launch(LaunchPlan(1, 128), (bfloat16(a), bfloat16(b), c, k), (c,), (7 * (a @ b.T),))


def multicast() -> Launch:
    steps = 7
    tensor, out = integers(6, 8 * steps, 32), unwritten(2, steps, 32)
    weights = np.arange(1, 9, dtype=np.float32)[:, None]
    sums = (tensor.reshape(steps, 8, 32) * weights).sum(1)
    args = (TensorMap.of(tensor, box=(4, 32)), out, steps)
    return Launch(LaunchPlan(2, 64, cluster=2), args, (out,), (np.stack([sums, sums]),))


def st_async() -> Launch:
    rounds = 7
    start, out = np.arange(100, 164, dtype=np.uint32).reshape(2, 32), unwritten(2, 32, dtype=np.uint32)
    value = start
    for number in range(rounds):
        value = 3 * value + np.roll(value[::-1], -1, axis=1) + np.uint32(number)
    return Launch(LaunchPlan(2, 32, cluster=2), (start, out, rounds), (out,), (value,))


def named_barriers() -> Launch:
    rounds = 4
    out, shared = unwritten(64, dtype=np.uint32), np.arange(64, dtype=np.uint32)
    for _ in range(rounds):
        shared = 2 * shared[::-1] + 1
        shared = 3 * np.roll(shared, -32) + 5
    return Launch(LaunchPlan(1, 128), (out, rounds), (out,), (shared[::-1],))


def bulk_store() -> Launch:
    rows = 6
    values, out, check = integers(7, rows, 64), unwritten(rows, 64), unwritten(1)
    expected = values * np.arange(1, rows + 1, dtype=np.float32)[:, None]
    return Launch(LaunchPlan(1, 64), (values, out, check, rows), (out, check), (expected, expected[-1:].sum(1)))


KERNELS: dict[str, Callable[[], Launch]] = {
    make.__name__: make
    for make in (tma_ring, wgmma_shared, wgmma_registers, multicast, st_async, named_barriers, bulk_store)
}


def ptx(name: str) -> str:
    """The compiled kernel."""
    return gpu.compile(FOLDER / f"{name}.cu").ptx


def run(name: str, text: str, device: Device, **options: Any) -> bool:
    """Run the kernel `name` as `text` has it; whether it gives the right answers. Raises what the device reports."""
    launch = KERNELS[name]()
    device.launch(Module.from_ptx(text)[name], launch.plan, launch.args, **options)
    return launch.right()
