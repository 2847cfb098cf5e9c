"""What binds a sparse decode: the least time each part of the GPU needs for a call, and which part needs the most.

Four parts are priced. Memory brings the rows of the cache; the tensor cores multiply; the CUDA cores turn FP8 into
bfloat16; shared memory stores what was converted and feeds the multiplies. The call takes at least as long as the
slowest of them alone. What a kernel takes beyond that is waiting: for each other, for launches, for latency.

The work is counted on the partition that the scheduler gives the most blocks, as the others wait for it. Left out:
queries, outputs, softmax, the merge of splits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from mlacademy import gpus
from mlacademy.schedule import num_sm_parts, schedule

BLOCK = 64
"""Tokens of a block, and query heads of a CTA."""
D_QK, D_V = 576, 512
BYTES_PER_TOKEN = 656
BF16_BYTES = 2
TOPK = 2048
"""Slots of a list in DeepSeek-V3.2."""
OURS, FLASHMLA = 8, 50
"""Cycles that one SM takes to turn a token's 512 codes into bfloat16: our kernel's count, FlashMLA's published one."""

_CASE = re.compile(r"h(?P<h_q>\d+)_s(?P<s_q>\d+)_b(?P<b>\d+)(?:_k(?P<topk>\d+))?")


@dataclass(frozen=True)
class Machine:
    """What a card does at most. ``copy_bytes_per_s`` counts bytes read and bytes written of a large copy."""

    name: str
    sms: int
    clock_hz: float
    copy_bytes_per_s: float
    flops_per_clock_per_sm: int = gpus.H200.bf16_flops_per_clock_per_sm

    @classmethod
    def of(cls, card: gpus.GPU) -> Machine:
        """A card by its data sheet: bandwidth as promised, the clock at which its peak is reached."""
        return cls(
            f"{card.name}, data sheet", card.sms, card.clock_hz, card.hbm_bytes_per_s, card.bf16_flops_per_clock_per_sm
        )


H200 = Machine("NVIDIA H200", gpus.H200.sms, 1.98e9, 4.309e12)
"""Its highest clock, and its copy of 8 GiB as measured on 2026-11-30 (driver 580.159.04, torch 2.11)."""


@dataclass(frozen=True)
class Shape:
    """One call on a V3.2 cache: ``b`` requests, ``s_q`` query tokens each, ``h_q`` heads, ``topk`` slots a query token.

    >>> Shape.of_case("h64_s1_b16")
    Shape(b=16, h_q=64, s_q=1, topk=2048)
    """

    b: int
    h_q: int = 128
    s_q: int = 1
    topk: int = TOPK

    def __post_init__(self) -> None:
        for name in ("b", "s_q", "topk"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1: it is {getattr(self, name)}")
        if self.h_q not in (16, 32, 64, 128):
            raise ValueError(f"h_q must be 16, 32, 64 or 128: it is {self.h_q}")

    @classmethod
    def of_case(cls, case: str) -> Shape:
        """The shape of a benchmark's case, ``h128_s1_b2_k128``; without ``_k`` topk is 2,048."""
        found = _CASE.fullmatch(case)
        if found is None:
            raise ValueError(f"case must look like h128_s1_b16 or h128_s1_b2_k128: it is {case!r}")
        return cls(**{name: int(digits) for name, digits in found.groupdict().items() if digits is not None})

    @property
    def case(self) -> str:
        """The benchmark's name of this shape."""
        return f"h{self.h_q}_s{self.s_q}_b{self.b}" + (f"_k{self.topk}" if self.topk != TOPK else "")

    @property
    def ctas(self) -> int:
        """CTAs that share a partition's tokens: one for each 64 heads."""
        return max(self.h_q // BLOCK, 1)

    @property
    def cache_bytes(self) -> int:
        """Bytes of cache rows that the call reads when the CTAs of a cluster share them."""
        return self.b * self.s_q * self.topk * BYTES_PER_TOKEN

    @property
    def flops(self) -> int:
        """Multiplies and adds of both products."""
        return 2 * self.b * self.s_q * self.h_q * self.topk * (D_QK + D_V)


@dataclass(frozen=True)
class Roofline:
    """The least time of each part, in seconds, for one call."""

    shape: Shape
    machine: Machine
    blocks: int
    """Blocks of 64 tokens on the busiest partition."""
    seconds: Mapping[str, float]

    @property
    def binding(self) -> str:
        """The part that needs the most time."""
        return max(self.seconds, key=lambda part: self.seconds[part])

    @property
    def floor(self) -> float:
        """Seconds below which no kernel of this design gets."""
        return self.seconds[self.binding]

    def __str__(self) -> str:
        parts = ", ".join(f"{part} {1e6 * time:.1f}" for part, time in self.seconds.items())
        return f"at least {1e6 * self.floor:.1f} µs, bound by {self.binding} ({parts})"


def block_cycles(
    h_q: int, *, convert_cycles: float = OURS, flops_per_clock: int = H200.flops_per_clock_per_sm
) -> Mapping[str, float]:
    """Cycles that one block of 64 tokens costs each part of one SM.

    ``convert_cycles``: of one token's codes. With 128 heads the two CTAs of a cluster convert half of the block each.

    >>> dict(block_cycles(128))
    {'tensor cores': 2176.0, 'conversion': 320.0, 'shared memory': 2432.0}
    """
    heads = min(h_q, BLOCK)
    flops = 2 * BLOCK * heads * (D_QK + D_V)
    port = _port_bytes(heads) / gpus.H200.smem_bytes_per_clock_per_sm
    return MappingProxyType(
        {
            "tensor cores": flops / flops_per_clock,
            "conversion": BLOCK * convert_cycles / max(h_q // BLOCK, 1),
            "shared memory": port,
        }
    )


def _port_bytes(heads: int) -> int:
    """Bytes that a block moves through one SM's shared memory: what is stored, and the operands of both products."""
    k, v, q = (BLOCK * D_QK * BF16_BYTES, BLOCK * D_V * BF16_BYTES, heads * D_QK * BF16_BYTES)
    p = BLOCK * heads * BF16_BYTES
    if heads == BLOCK:
        # m64n64k16 reads q and k. p times v is four times m64n128k16 for each 16 tokens: each reads its columns of v,
        # and two of them, which have p not in registers, read p.
        return k + p + (q + k) + (v + 2 * p)
    # Tokens, then columns of the output, are the 64 rows of an instruction: k comes from registers, p is read for
    # each 64 columns. Rows are copied to shared memory as they are, and read from there.
    rows = 2 * BLOCK * BYTES_PER_TOKEN
    return rows + v + p + q + (v + D_V // BLOCK * p)


def roofline(shape: Shape, machine: Machine = H200, *, convert_cycles: float = OURS) -> Roofline:
    """The least times of one call with full lists.

    >>> print(roofline(Shape(b=128)))
    at least 78.6 µs, bound by shared memory (memory 39.9, tensor cores 70.3, conversion 10.3, shared memory 78.6)
    """
    parts = num_sm_parts(machine.sms, s_q=shape.s_q, h_q=max(shape.h_q, BLOCK))
    plan = schedule([shape.topk] * shape.b, parts)
    load = [0] * parts
    for segment in plan.segments():
        load[segment.partition] += segment.blocks
    # More CTAs than SMs take turns.
    turns = -(-parts * shape.ctas * shape.s_q // machine.sms)
    blocks = max(load) * turns
    seconds = {"memory": shape.cache_bytes / machine.copy_bytes_per_s}
    cycles = block_cycles(shape.h_q, convert_cycles=convert_cycles, flops_per_clock=machine.flops_per_clock_per_sm)
    seconds |= {part: blocks * count / machine.clock_hz for part, count in cycles.items()}
    return Roofline(shape, machine, blocks, MappingProxyType(seconds))
