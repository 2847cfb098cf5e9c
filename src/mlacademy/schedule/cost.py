"""What a schedule costs in a stated model: a calculator for "what if", not a measurement.

Unit: one block of 64 tokens in one partition is 1. A partition's time is the sum over its segments of
``blocks · block + segment``; partitions run side by side, so the main kernel takes as long as the busiest one. The
combine kernel runs after it and takes ``partial`` for each partial result. What both kernels cost to launch is left
out: both are always launched.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


class _Segment(Protocol):
    @property
    def partition(self) -> int: ...
    @property
    def blocks(self) -> int: ...
    @property
    def split(self) -> int | None: ...


@dataclass(frozen=True)
class CostModel:
    """Prices, in blocks.

    block: one block of work. segment: fixed cost of a request in a partition; None takes the schedule's own overhead.
    partial: the combine kernel's time for one partial result. The default 0.07 is the time to read one partial of 128
    heads (128·513·4 B) at 3.35 TB/s, over the ideal time of a block (2,176 cycles at 1.83 GHz): 0.066, rounded up.
    """

    block: float = 1.0
    segment: float | None = None
    partial: float = 0.07

    def __post_init__(self) -> None:
        for name, value in (("block", self.block), ("segment", self.segment), ("partial", self.partial)):
            if value is not None and not 0 <= value < float("inf"):
                raise ValueError(f"{name} must be a finite price of at least 0: it is {value}")
        if self.block == 0:
            raise ValueError("block must be above 0: it is the unit of work")


@dataclass(frozen=True)
class Cost:
    """Times in blocks, under the model they were computed with.

    busy: time of each partition ``[parts]``. makespan: the longest of them. combine: time of the combine kernel.
    total: makespan + combine. utilisation: blocks read / (parts · makespan), the share of the machine's time spent on
    blocks. balance: mean of busy / makespan; 1 when all partitions work equally long. ideal: no schedule of the main
    kernel can be faster (work spread evenly without a cut costing anything). no_split: makespan if every request stays
    whole and the longest are placed first.
    """

    busy: tuple[float, ...]
    makespan: float
    combine: float
    total: float
    utilisation: float
    balance: float
    ideal: float
    no_split: float


def cost_of(
    segments: Iterable[_Segment], blocks: npt.NDArray[np.int64], parts: int, overhead: int, model: CostModel
) -> Cost:
    """Cost of ``segments`` on ``parts`` partitions; ``blocks`` ``[b]`` (0 for a length of 0) gives the bounds."""
    per_segment = overhead if model.segment is None else model.segment
    busy: FloatArray = np.zeros(parts)
    work = 0.0
    partials = 0
    for segment in segments:
        busy[segment.partition] += segment.blocks * model.block + per_segment
        work += segment.blocks * model.block
        partials += segment.split is not None
    requests = blocks * model.block + per_segment
    makespan, combine = float(busy.max()), partials * model.partial
    return Cost(
        busy=tuple(busy.tolist()),
        makespan=makespan,
        combine=combine,
        total=makespan + combine,
        utilisation=work / (parts * makespan) if makespan else 0.0,
        balance=float(busy.mean()) / makespan if makespan else 0.0,
        ideal=max(float(requests.sum()) / parts, min(int(blocks.max()), 1) * model.block + per_segment),
        no_split=_longest_first(requests.tolist(), parts),
    )


def _longest_first(requests: list[float], parts: int) -> float:
    """Makespan of whole requests: each, longest first, goes to the partition that is free first."""
    loads = [0.0] * min(parts, len(requests))
    for request in sorted(requests, reverse=True):
        heapq.heapreplace(loads, loads[0] + request)
    return max(loads)
