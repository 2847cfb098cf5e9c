"""The course's small kernels with inputs, launch plans and independent answers: what `mlacademy kernels run` runs."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlacademy.fp8 import round_bf16
from mlacademy.gpu.compiler import compile
from mlacademy.gpu.device import Device, LaunchReport
from mlacademy.gpu.includes import header_layer
from mlacademy.gpu.plan import LaunchPlan
from mlacademy.gpu.tensor_map import TensorMap

UNIT = 2.0**-24
"""Half a unit in the last place of float32, relative: the most that one rounding to nearest changes."""


@dataclass(frozen=True)
class Outcome:
    """How a result compares with the independent answer.

    Attributes:
        elements: how many were compared.
        error: the largest distance, as a share of its bound; 0 for equal bits, at most 1 when right.
        bound: where the bound comes from, in words.
    """

    elements: int
    error: float
    bound: str

    @property
    def right(self) -> bool:
        """Whether every element is within its bound (NaN never is)."""
        return self.error <= 1.0


@dataclass(frozen=True)
class Case:
    """One launch: its plan, its arguments in host memory, and the comparison to make afterwards."""

    plan: LaunchPlan
    args: tuple[Any, ...]
    compare: Callable[[], Outcome]
    moved_bytes: int
    flops: int


def bulk_copy(seed: int, scale: int = 1) -> Case:
    """Odd tail on purpose: the last chunk is 48 bytes. The target lies in a poisoned buffer with a margin."""
    rng = np.random.default_rng(seed)
    count = scale * 10 * 4096 + 48
    source = rng.integers(0, 256, count, dtype=np.uint8)
    around = np.full(count + 128, 0xA5, dtype=np.uint8)
    target = around[64:-64]

    def compare() -> Outcome:
        wrong = int(np.count_nonzero(target != source))
        wrong += int(np.count_nonzero(around[:64] != 0xA5) + np.count_nonzero(around[-64:] != 0xA5))
        return Outcome(around.size, float(np.inf if wrong else 0), "a copy is exact")

    plan = LaunchPlan(grid=min(132, 3 * scale), block=64)
    return Case(plan, (source, target, count), compare, moved_bytes=2 * count, flops=0)


def cluster_sum(seed: int, scale: int = 1) -> Case:
    """Three clusters of four CTAs; the last thread's slice is shorter than the others'."""
    rng = np.random.default_rng(seed)
    size, clusters, threads = 4, min(33, 3 * scale), 128
    count = scale * 20_000 + 77
    values = rng.standard_normal(count).astype(np.float32)
    sums = np.full(clusters, np.nan, dtype=np.float32)
    owner = np.arange(count) // threads % (clusters * size) // size

    def compare() -> Outcome:
        exact = np.bincount(owner, values.astype(np.float64), clusters)
        weight = np.bincount(owner, np.abs(values.astype(np.float64)), clusters)
        longest = -(-count // (clusters * size * threads)) + 5 + 4 + size  # additions on the way of one value
        return Outcome(clusters, worst(sums, exact, longest * UNIT * weight), f"{longest} roundings a value")

    plan = LaunchPlan(grid=clusters * size, block=threads, cluster=size)
    return Case(plan, (values, sums, count), compare, moved_bytes=values.nbytes + sums.nbytes, flops=count)


def wgmma_tile(seed: int, scale: int = 1) -> Case:
    """m is no multiple of the tile, so that TMA fills rows and the kernel must not store them."""
    m, n, k = 64 * scale + 36, 128 * scale, 192 * scale
    product = _Product(seed, m, n, k)
    plan = LaunchPlan(grid=(n // 64, -(-m // 64)), block=128)
    return product.case(plan, (*product.maps, product.c, m, n, k))


def wgmma_ring(seed: int, scale: int = 1) -> Case:
    """Seven blocks of k: an odd number, so that the two stages end in different rounds."""
    m, n, k = 64 * scale, 128 * scale, 448 * scale
    product = _Product(seed, m, n, k)
    plan = LaunchPlan(grid=(n // 64, m // 64), block=160, smem_bytes=2 * 16_400)
    return product.case(plan, (*product.maps, product.c, n, k))


def wgmma_pingpong(seed: int, scale: int = 1) -> Case:
    """Five tiles: the warpgroups make three and two. The exponent is off by its sum's cuts, the power by 2 ulp more."""
    m = 64 * min(27, 5 * scale)
    product = _Product(seed, m, 64, 64)
    plan = LaunchPlan(grid=1, block=384, smem_bytes=8192 * (1 + m // 64))

    def compare() -> Outcome:
        exact_q, exact_keys = product.a.astype(np.float64), product.b.astype(np.float64)
        power = np.exp2(exact_q @ exact_keys.T / 32)
        cuts = _sum_bound(64, np.abs(exact_q) @ np.abs(exact_keys).T) / 32
        bound = power * (np.exp2(cuts) - 1 + 2.0**-21)  # and one rounding of the scaled exponent, below 2^-22 here
        error = worst(product.c, power, bound) if np.isnan(product.around[[0, -1]]).all() else float("inf")
        return Outcome(product.c.size, error, "truncated sums of 16 products and 2^x to 2 ulp")

    moved = 2 * 64 * (m + 64) + product.c.nbytes
    args = (*product.maps, product.c, m, 1 / 32)
    return Case(plan, args, compare, moved_bytes=moved, flops=2 * m * 64 * 64)


def wgmma_two_products(seed: int, scale: int = 1) -> Case:
    """The second product may differ by what the scores' rounding to bf16 does, up or down, times the values."""
    rng = np.random.default_rng([seed, scale])
    q, kv = (round_bf16(rng.standard_normal((64, 64)).astype(np.float32)) for _ in range(2))
    out = np.full((64, 64), np.nan, dtype=np.float32)

    def compare() -> Outcome:
        exact_q, exact_kv = q.astype(np.float64), kv.astype(np.float64)
        scores = exact_q @ exact_kv.T
        weight = np.abs(exact_q) @ np.abs(exact_kv).T
        off = _sum_bound(64, weight) + 2.0**-8 * (np.abs(scores) + _sum_bound(64, weight))
        bound = off @ np.abs(exact_kv) + _sum_bound(64, (np.abs(scores) + off) @ np.abs(exact_kv))
        return Outcome(out.size, worst(out, scores @ exact_kv, bound), "a bf16 rounding and truncated sums")

    maps = (_swizzled_map(q, "q"), _swizzled_map(kv, "kv"))
    moved = q.size * 2 + kv.size * 2 + out.nbytes
    return Case(LaunchPlan(grid=1, block=128), (*maps, out), compare, moved_bytes=moved, flops=4 * 64**3)


class _Product:
    """Random bf16 matrices a [m, k] and b [n, k], their maps, and room for c = a times b transposed with a margin."""

    def __init__(self, seed: int, m: int, n: int, k: int) -> None:
        rng = np.random.default_rng(seed)
        self.a, self.b = (round_bf16(rng.standard_normal((rows, k)).astype(np.float32)) for rows in (m, n))
        self.around = np.full((m + 2, n), np.nan, dtype=np.float32)
        self.c = self.around[1:-1]
        self.maps = (_swizzled_map(self.a, "a"), _swizzled_map(self.b, "b"))

    def case(self, plan: LaunchPlan, args: tuple[Any, ...]) -> Case:
        (m, k), n = self.a.shape, len(self.b)
        moved = 2 * (m + n) * k + 4 * m * n
        return Case(plan, args, self._compare, moved_bytes=moved, flops=2 * m * n * k)

    def _compare(self) -> Outcome:
        k = self.a.shape[1]
        exact = self.a.astype(np.float64) @ self.b.astype(np.float64).T
        bound = _sum_bound(k, np.abs(self.a).astype(np.float64) @ np.abs(self.b).astype(np.float64).T)
        error = worst(self.c, exact, bound) if np.isnan(self.around[[0, -1]]).all() else float("inf")
        return Outcome(self.c.size, error, f"{k // 16} truncated sums of 16 products")


def _sum_bound(k: int, weight: np.ndarray) -> np.ndarray:
    """An instruction aligns 17 terms and drops what is below 2^-25 of the largest, then below 2^-23 of the sum."""
    return k / 16 * (17 * 2.0**-25 + 2.0**-23) * weight


def _swizzled_map(matrix: np.ndarray, name: str) -> TensorMap:
    return TensorMap.of(_bf16_bits(matrix), box=(64, 64), dtype="bfloat16", swizzle="128B", name=name)


SAMPLES: dict[str, Callable[[int, int], Case]] = {
    "bulk_copy": bulk_copy,
    "cluster_sum": cluster_sum,
    "wgmma_tile": wgmma_tile,
    "wgmma_ring": wgmma_ring,
    "wgmma_pingpong": wgmma_pingpong,
    "wgmma_two_products": wgmma_two_products,
}


def worst(got: np.ndarray, exact: np.ndarray, bound: np.ndarray) -> float:
    """The largest error as a share of its bound; infinite where a value is missing or not a number."""
    share = np.abs(got.astype(np.float64) - exact) / np.maximum(bound, np.finfo(np.float64).tiny)
    return float("inf") if np.isnan(share).any() else float(share.max())


def run(name: str, device: Device, *, inputs: int = 0, scale: int = 1, **options: Any) -> tuple[LaunchReport, Outcome]:
    """Compile the kernel ``name`` for ``device``, launch it and compare its result.

    ``inputs`` seeds the inputs, ``scale`` makes them larger; ``options`` go to `Device.launch`.
    Raises ``KeyError`` for a name that is not in `SAMPLES`.
    """
    case = SAMPLES[name](inputs, scale)
    module = compile(header_layer() / f"{name}.cu", arch=device.arch)
    report = device.launch(module[name], case.plan, case.args, **options)
    device.synchronize()
    return report, case.compare()


def summary(source: str) -> str:
    """The first sentence of a kernel file's opening comment."""
    lines = itertools.takewhile(lambda line: line.startswith("//"), source.splitlines())
    comment = " ".join(line.lstrip("/ ") for line in lines)
    return re.split(r"(?<=\.)\s", comment, maxsplit=1)[0]


def _bf16_bits(values: np.ndarray) -> np.ndarray:
    """The upper halves of float32 values that are exact in bfloat16."""
    return (values.view(np.uint32) >> 16).astype(np.uint16)
