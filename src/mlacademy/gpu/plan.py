"""`LaunchPlan`: how a kernel is launched, as one plain object that prints, compares and can be drawn."""

from __future__ import annotations

import html
import math
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlacademy.gpu.kernel import Kernel

Triple = tuple[int, int, int]

MAX_GRID = (2**31 - 1, 65_535, 65_535)
MAX_BLOCK = (1024, 1024, 64)
MAX_THREADS = 1024
MAX_CLUSTER = 16
PORTABLE_CLUSTER = 8
MAX_SMEM_BYTES = 227 * 1024
DEFAULT_SMEM_BYTES = 48 * 1024
"""Dynamic shared memory that needs no opt-in."""


@dataclass(frozen=True, init=False)
class LaunchPlan:
    """Grid, block and cluster as ``(x, y, z)``; shorter tuples and plain integers are filled up with ones.

    Attributes:
        grid: CTAs; must be a multiple of ``cluster`` along each axis.
        block: threads a CTA, at most 1,024 in all.
        cluster: CTAs a cluster, at most 16 in all (up to 8 run on every Hopper or Blackwell GPU).
        smem_bytes: dynamic shared memory a CTA, at most 227 KiB.
        programmatic: start before the kernel ahead in the stream has ended; the kernel itself waits for its results
            with ``griddepcontrol.wait``.

    Raises ``ValueError`` or ``TypeError`` naming the field.

    >>> LaunchPlan(grid=132, block=(128, 2), cluster=2).threads_per_cta
    256
    """

    grid: Triple
    block: Triple
    cluster: Triple = (1, 1, 1)
    smem_bytes: int = 0
    programmatic: bool = False

    def __init__(
        self,
        grid: int | tuple[int, ...],
        block: int | tuple[int, ...],
        cluster: int | tuple[int, ...] = 1,
        smem_bytes: int = 0,
        programmatic: bool = False,
    ) -> None:
        object.__setattr__(self, "grid", _triple("grid", grid, MAX_GRID))
        object.__setattr__(self, "block", _triple("block", block, MAX_BLOCK))
        object.__setattr__(self, "cluster", _triple("cluster", cluster, (MAX_CLUSTER,) * 3))
        object.__setattr__(self, "smem_bytes", _integer("smem_bytes", smem_bytes))
        object.__setattr__(self, "programmatic", programmatic)
        if self.threads_per_cta > MAX_THREADS:
            raise ValueError(f"block must have at most 1,024 threads, got {_by(self.block)} = {self.threads_per_cta:,}")
        if math.prod(self.cluster) > MAX_CLUSTER:
            raise ValueError(f"cluster must have at most 16 CTAs, got {_by(self.cluster)} = {math.prod(self.cluster)}")
        for axis, ctas, size in zip("xyz", self.grid, self.cluster, strict=True):
            if ctas % size:
                raise ValueError(
                    f"grid must be a multiple of cluster along {axis}: got {ctas} CTAs and clusters of {size}"
                )
        if not 0 <= self.smem_bytes <= MAX_SMEM_BYTES:
            raise ValueError(f"smem_bytes must be 0 to {MAX_SMEM_BYTES:,} (227 KiB a CTA), got {smem_bytes:,}")
        if not isinstance(programmatic, bool):
            raise TypeError(f"programmatic must be True or False, got {type(programmatic).__name__}")

    @property
    def ctas(self) -> int:
        """CTAs in all."""
        return math.prod(self.grid)

    @property
    def threads_per_cta(self) -> int:
        """Threads a CTA."""
        return math.prod(self.block)

    @property
    def ctas_per_cluster(self) -> int:
        """CTAs a cluster; 1 without clusters."""
        return math.prod(self.cluster)

    def check(self, kernel: Kernel) -> None:
        """Raise ``ValueError`` where ``kernel`` cannot be launched by this plan."""
        if kernel.required_block and self.block != kernel.required_block:
            raise ValueError(
                f"block must be {_by(kernel.required_block)} for {kernel.base_name}, got {_by(self.block)}"
            )
        if kernel.max_threads and self.threads_per_cta > kernel.max_threads:
            raise ValueError(
                f"block must have at most {kernel.max_threads} threads for {kernel.base_name} "
                f"(its __launch_bounds__), got {_by(self.block)} = {self.threads_per_cta}"
            )
        if kernel.required_cluster and self.cluster != kernel.required_cluster:
            raise ValueError(
                f"cluster must be {_by(kernel.required_cluster)} for {kernel.base_name} (its __cluster_dims__), "
                f"got {_by(self.cluster)}"
            )

    def rows(self) -> list[tuple[str, str]]:
        """The plan as labelled lines, for tables."""
        warps = -(-self.threads_per_cta // 32)
        rows = [
            ("grid", f"{_by(self.grid)} = {self.ctas:,} CTA{'s' if self.ctas != 1 else ''}"),
            ("block", f"{_by(self.block)} = {self.threads_per_cta:,} threads, {warps} warp{'s' if warps != 1 else ''}"),
        ]
        if self.ctas_per_cluster > 1:
            clusters = self.ctas // self.ctas_per_cluster
            rows.append(("cluster", f"{_by(self.cluster)} = {self.ctas_per_cluster} CTAs, {clusters:,} clusters"))
        rows.append(("dynamic shared memory", f"{self.smem_bytes:,} bytes a CTA"))
        if self.programmatic:
            rows.append(("start", "before the kernel ahead has ended (programmatic dependent launch)"))
        return rows

    def __str__(self) -> str:
        return "\n".join(f"{label:<22} {text}" for label, text in self.rows())

    def _repr_html_(self) -> str:
        cells = "".join(
            f'<tr><th scope="row" style="text-align:left">{html.escape(label)}</th><td>{html.escape(text)}</td></tr>'
            for label, text in self.rows()
        )
        return f"<table><caption>Launch plan</caption><tbody>{cells}</tbody></table>"


def _triple(name: str, value: Any, limits: Triple) -> Triple:
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if not 1 <= len(values) <= 3:
        raise ValueError(f"{name} must have 1 to 3 sizes (x, y, z), got {len(values)}: {values}")
    for axis, size, limit in zip("xyz", values, limits, strict=False):
        _integer(name, size)
        if not 1 <= size <= limit:
            raise ValueError(f"{name}.{axis} must be 1 to {limit:,}, got {size:,}")
    x, y, z = (*(int(size) for size in values), 1, 1)[:3]
    return x, y, z


def _integer(name: str, value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an int{'' if name == 'smem_bytes' else ' or a tuple of ints'}, got {value!r}")
    return operator.index(value)


def _by(sizes: Triple) -> str:
    """``(132, 1, 1)`` → ``132``; ``(8, 2, 1)`` → ``8 × 2``."""
    used = list(sizes)
    while len(used) > 1 and used[-1] == 1:
        used.pop()
    return " × ".join(f"{size:,}" for size in used)
