"""What the scheduler must know of a kernel: how many partitions it has, its fixed overhead, the lengths it reads.

Source: FlashMLA, commit 9241ae3: the decode dispatch in ``csrc/api`` and ``get_decoding_sched_meta.cu``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from mlacademy.schedule.checks import INT32_MAX, Int64Array, whole, whole_row

BLOCK = 64
"""Tokens (dense) or indices (sparse) that a kernel reads in one step of its main loop."""

MAX_BATCH = 11_622
"""Largest batch of the scheduling kernel: ``(5·b + 1)·4`` bytes must fit in the 227 KiB of shared memory of one CTA."""


@dataclass(frozen=True)
class KernelRule:
    """Scheduling facts of one kernel.

    overhead: fixed cost of one request in one partition, in blocks. heads: query heads that it accepts, or None for
    any. parts(sms, s_q, h_q, h_k): partitions before the floor of 1. formula: the same in words.
    """

    overhead: int
    heads: tuple[int, ...] | None
    parts: Callable[[int, int, int, int], int]
    formula: str


KERNELS = MappingProxyType(
    {
        "sm90_sparse": KernelRule(
            overhead=5,
            heads=(64, 128),
            parts=lambda sms, s_q, h_q, h_k: sms // s_q // (h_q // 64),
            formula="max(SMs // s_q // (h_q // 64), 1)",
        ),
        "sm100_head64": KernelRule(
            overhead=5, heads=(64,), parts=lambda sms, s_q, h_q, h_k: sms // s_q, formula="max(SMs // s_q, 1)"
        ),
        "sm100_head64x2": KernelRule(
            overhead=5, heads=(128,), parts=lambda sms, s_q, h_q, h_k: sms // s_q, formula="max(SMs // s_q, 1)"
        ),
        "sm100_head128": KernelRule(
            overhead=3,
            heads=(128,),
            parts=lambda sms, s_q, h_q, h_k: sms // s_q // 2,
            formula="max(SMs // s_q // 2, 1)",
        ),
        "sm90_dense": KernelRule(
            overhead=5,
            heads=None,
            parts=lambda sms, s_q, h_q, h_k: sms // h_k // -(-(s_q * h_q // h_k) // 64),
            formula="max(SMs // h_k // ceil(s_q * h_q // h_k / 64), 1)",
        ),
    }
)
"""The decode kernels by name. ``sm100_head64x2`` is 128 heads of width 576, run as two launches of 64 heads."""


def kernel_rule(kernel: str) -> KernelRule:
    """The rule called ``kernel``. Raises ``ValueError`` for an unknown name."""
    if kernel not in KERNELS:
        raise ValueError(f"kernel must be one of {', '.join(KERNELS)}: it is {kernel!r}")
    return KERNELS[kernel]


def num_sm_parts(sms: int, *, s_q: int = 1, h_q: int = 128, kernel: str = "sm90_sparse", h_k: int = 1) -> int:
    """Number of partitions a kernel has on a GPU with ``sms`` streaming multiprocessors; never below 1.

    >>> num_sm_parts(132), num_sm_parts(132, h_q=64), num_sm_parts(132, s_q=2)
    (66, 132, 33)

    s_q: query tokens of a request in this step. h_q, h_k: query and KV heads (``h_k`` other than 1: dense only).
    Divisions drop the remainder, in the order of ``KERNELS[kernel].formula``. Raises ``ValueError`` by name.
    """
    rule = kernel_rule(kernel)
    sms, s_q = whole("sms", sms, 1), whole("s_q", s_q, 1)
    h_q, h_k = whole("h_q", h_q, 1), whole("h_k", h_k, 1)
    if rule.heads is not None and h_q not in rule.heads:
        allowed = " or ".join(map(str, rule.heads))
        raise ValueError(f"h_q must be {allowed} for {kernel}: it is {h_q}. Callers pad the heads")
    if rule.heads is not None and h_k != 1:
        raise ValueError(f"h_k must be 1 for {kernel}, whose cache has one KV head: it is {h_k}")
    if h_q % h_k:
        raise ValueError(f"h_q must be a multiple of h_k: {h_q} query heads, {h_k} KV heads")
    return max(rule.parts(sms, s_q, h_q, h_k), 1)


def effective_lengths(
    b: int,
    topk: int,
    *,
    topk_length: Any = None,
    extra_topk: int | None = None,
    extra_topk_length: Any = None,
    block: int = BLOCK,
) -> Int64Array:
    """Lengths ``[b]`` (int64, in indices) that the sparse kernels schedule; dense decode takes ``cache_seqlens`` as is.

    >>> effective_lengths(4, 2048, topk_length=[2048, 100, 0, 1024]).tolist()
    [2048, 100, 1, 1024]
    >>> effective_lengths(4, 128, extra_topk=512, extra_topk_length=[512, 0, 64, 300]).tolist()
    [640, 128, 192, 428]

    topk: width of the index list. topk_length ``[b]``: valid prefix of each list; 0 becomes 1, so that no main loop is
    empty. extra_topk, extra_topk_length: a second list (extra cache), appended after the first one is rounded up to
    ``block``. Raises ``ValueError`` for a length beyond its list (the kernel does not check this), or extra lengths
    without ``extra_topk``.
    """
    b, topk, block = whole("b", b, 1), whole("topk", topk, 1), whole("block", block, 1)
    main = _prefix_lengths("topk_length", topk_length, "topk", topk, b)
    lengths = np.maximum(main, 1)
    if extra_topk is None:
        if extra_topk_length is not None:
            raise ValueError("extra_topk_length needs extra_topk, the width of the extra index list: it is None")
        return lengths
    extra_topk = whole("extra_topk", extra_topk, 1)
    extra = _prefix_lengths("extra_topk_length", extra_topk_length, "extra_topk", extra_topk, b)
    return -(-lengths // block) * block + extra


def _prefix_lengths(name: str, values: Any, width_name: str, width: int, b: int) -> Int64Array:
    if width > INT32_MAX:
        raise ValueError(f"{width_name} must fit in int32 (at most {INT32_MAX}): it is {width}")
    if values is None:
        return np.full(b, width, dtype=np.int64)
    row = whole_row(name, values, size=b)
    if int(row.max()) > width:
        worst = int(row.argmax())
        raise ValueError(
            f"{name} must not exceed {width_name}: {name}[{worst}] is {int(row[worst])}, the list has {width}"
        )
    return row


def scheduler_shared_bytes(b: int) -> int:
    """Dynamic shared memory of the scheduling kernel for ``b`` requests, in bytes: ``(5·b + 1)·4``.

    >>> scheduler_shared_bytes(MAX_BATCH) <= 227 * 1024 < scheduler_shared_bytes(MAX_BATCH + 1)
    True
    """
    return (5 * whole("b", b, 1) + 1) * 4
