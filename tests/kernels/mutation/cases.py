"""Small calls of the decode kernels that show whether a kernel is right: what the mutation study runs.

A case is one call with its answer from an oracle; it is run with kernels that `find` brings by name, of which one may
be a mutant.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache as remember
from typing import Any

import numpy as np
import torch
from decode_case import Lists, decode, random_lists

from mlacademy import attention, cache, gpu, schedule, softmax

Find = Callable[[str], gpu.Kernel]
SCALE = 0.1352  # DeepSeek-V3.2's
STEP_BUDGET = 3_000_000  # of a launch; the longest right one takes a tenth

# A row's 512 outputs carry independent roundings of p and of the output to bfloat16, 2^-9 each, and an accumulator
# cut at 2^-10 at most: twice that for the worst of a few hundred rows.
ROW_TOLERANCE = 2 * (2**-9 * 2**0.5 + 2**-10)


@dataclass(frozen=True)
class Case:
    """`run(find, **options)`: whether the results are right. `uses`: the kernels it launches."""

    name: str
    uses: tuple[str, ...]
    run: Callable[..., bool]


@dataclass
class Call:
    """The arguments of one decode."""

    q: torch.Tensor
    main: Lists
    extra: Lists | None = None
    sink: torch.Tensor | None = None
    sms: int = 132


def rows_agree(out: np.ndarray, lse: np.ndarray, want: np.ndarray, want_lse: np.ndarray) -> bool:
    """Whether every row of out [..., 512] and every lse is right; a row without tokens is exactly 0 and +inf."""
    finite = np.isfinite(want_lse)
    if np.isnan(out).any() or not np.array_equal(lse[~finite], want_lse[~finite]):
        return False
    error = np.linalg.norm(out - want, axis=-1)
    close = np.allclose(lse[finite], want_lse[finite], atol=2e-6, rtol=2e-6)  # float32 sums of few hundred terms
    return close and bool((error <= ROW_TOLERANCE * np.linalg.norm(want, axis=-1)).all())


def queries(b: int, s_q: int, heads: int, layout: cache.CacheLayout, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(b, s_q, heads, layout.d_qk, generator=generator) * 0.5).to(torch.bfloat16)


def long_lists(layout: cache.CacheLayout, heads: int) -> Call:
    """Requests of 12, 2 and 3 blocks over three partitions, of which the second ends one request and does the next:
    buffers come round, and scores grow towards the end of a list, so that maxima do."""
    main = random_lists(layout, b=3, s_q=1, topk=768, page=16, pages=9, seed=heads)
    main.lengths = torch.tensor([768, 128, 130], dtype=torch.int32)
    growth = torch.linspace(0.5, 12, 144)[:, None]
    latents = torch.randn(144, layout.d_nope + layout.d_rope, generator=torch.Generator().manual_seed(heads)) * growth
    cache.append(main.kv, torch.arange(144), latents[:, : layout.d_nope], latents[:, layout.d_nope :], layout)
    main.indices[:2] = main.indices[:2].sort(-1).values
    main.indices[2, 0, :70] = -1
    return Call(queries(3, 1, heads, layout, 1), main, sms=3 if heads <= 64 else 6)


def options(layout: cache.CacheLayout, heads: int) -> Call:
    """Two query rows, lengths, a second cache with pages of its own, a sink, a strided q, lists of holes alone."""
    main = random_lists(layout, b=4, s_q=2, topk=128, page=13, pages=7, seed=2)
    extra = random_lists(layout, b=4, s_q=2, topk=64, page=5, pages=12, seed=3)
    main.lengths = torch.tensor([70, 1, 128, 0], dtype=torch.int32)
    extra.lengths = torch.tensor([64, 3, 0, 40], dtype=torch.int32)
    main.indices[0, 0, 70:] = 2**31 - 1  # beyond the length: not to be looked at
    main.indices[2, 1, :] = -1
    main.indices[1, 0, 0] = 13 * 7  # one too far: a hole
    extra.indices[3, 0, :] = -1
    sink = torch.linspace(-3, 6, heads)
    sink[5], sink[6] = float("inf"), float("-inf")
    wide = queries(4, 2, heads, layout, 2).repeat_interleave(2, dim=0).repeat_interleave(3, dim=2)
    return Call(wide[::2, :, ::3], main, extra, sink, sms=8)


def few(layout: cache.CacheLayout, heads: int) -> Call:
    """One partition takes one block of each request: every request is the first and the last of its buffers."""
    main = random_lists(layout, b=3, s_q=1, topk=64, page=64, pages=2, seed=4)
    return Call(queries(3, 1, heads, layout, 3), main, sms=max(heads // 64, 1))


@remember
def prepared(make: Callable[[cache.CacheLayout, int], Call], name: str, heads: int) -> tuple[Call, np.ndarray, Any]:
    """A call and its answers from the float64 oracle."""
    layout = cache.layout(name)
    call = make(layout, heads)
    extra, slots = call.extra, call.main.kv.shape[0] * call.main.kv.shape[1]
    out, lse = attention.sparse_decode(
        call.q,
        call.main.kv,
        call.main.indices.where(call.main.indices < slots, -1),
        layout=layout,
        softmax_scale=SCALE,
        topk_length=call.main.lengths,
        extra_cache=extra.kv if extra else None,
        extra_indices=extra.indices if extra else None,
        extra_topk_length=extra.lengths if extra else None,
        attn_sink=call.sink,
    )
    return call, out.double().numpy(), lse.transpose(1, 2).double().numpy()


def decode_case(make: Callable[[cache.CacheLayout, int], Call], name: str, heads: int, *uses: str) -> Case:
    def run(find: Find, **how: Any) -> bool:
        call, want, want_lse = prepared(make, name, heads)
        layout, how = cache.layout(name), {"step_budget": STEP_BUDGET, **how}
        extra, sink, sms = call.extra, call.sink, call.sms
        out, lse = decode(call.q, call.main, layout, scale=SCALE, extra=extra, sink=sink, sms=sms, find=find, **how)
        return rows_agree(out, lse, want, want_lse)

    return Case(f"{make.__name__}, {name}, {heads} heads", uses, run)


# ---- combine


def combine_case(heads: int, b: int, with_sink: bool) -> Case:
    """Partial results of up to 40 splits, some without any token; a request with one split is left alone."""
    generator = np.random.default_rng(heads)
    counts = np.array([2, 1, 40, 5][:b])
    starts = np.concatenate([[0], counts.cumsum()]).astype(np.int32)
    partial = generator.standard_normal((starts[-1], 2, heads, 512)).astype(np.float32)
    lse = (generator.standard_normal((starts[-1], 2, heads)) * 20).astype(np.float32)
    lse[0, :, ::3] = -np.inf
    lse[3:30, 1, ::2] = -np.inf
    lse[starts[2] : starts[3], 0, 1] = -np.inf  # no token in any split
    partial[np.isneginf(lse)] = 0
    sink = np.linspace(-30, 30, heads).astype(np.float32) if with_sink else None
    want, want_lse = np.zeros((b, 2, heads, 512)), np.zeros((b, 2, heads))
    for request in range(b):
        part = slice(starts[request], starts[request + 1])
        given = None if sink is None else torch.from_numpy(sink).double()
        out, total = softmax.combine(
            torch.from_numpy(partial[part]).double(), torch.from_numpy(lse[part]).double(), sink=given
        )
        want[request], want_lse[request] = out.numpy(), total.numpy()
    alone = counts == 1

    def run(find: Find, **how: Any) -> bool:
        device = gpu.Device("emulator", arch="sm_90a", step_budget=STEP_BUDGET, **how)
        out, got = np.full((b, 2, heads, 512), 0x7FC0, np.uint16), np.full((b, 2, heads), np.nan, np.float32)
        tensors = (sink, starts, out, got, partial, lse)
        names = ("sink", "num_splits", "out", "lse", "out_partial", "lse_partial")
        at = [0 if one is None else device.address(one, name) for one, name in zip(tensors, names, strict=True)]
        params = bytes(160) + struct.pack("<7Qf3i", at[0], 0, *at[1:], 1.0, b, 2, heads)
        device.launch(find("combine"), gpu.LaunchPlan(grid=(min(heads, 8), 2, b), block=(128, 1, 1)), [params])
        values = torch.from_numpy(out.view(np.int16)).view(torch.bfloat16).float().numpy()
        untouched = (out[alone] == 0x7FC0).all() and np.isnan(got[alone]).all()
        return bool(untouched) and rows_agree(values[~alone], got[~alone], want[~alone], want_lse[~alone])

    return Case(f"combine, {heads} heads, sink {with_sink}", ("combine",), run)


# ---- schedule


def schedule_case(name: str, b: int, parts: int, **given: Any) -> Case:
    lengths, extra = given.get("lengths"), given.get("extra_lengths")
    topk, extra_topk = given.get("topk", 0), given.get("extra_topk", 0)
    dense = lengths is not None and not topk
    effective = (
        np.array(lengths)
        if dense
        else schedule.effective_lengths(
            b, topk, topk_length=lengths, extra_topk=extra_topk or None, extra_topk_length=extra
        )
    )
    plan = schedule.schedule(effective, parts)

    def run(find: Find, **how: Any) -> bool:
        device = gpu.Device("emulator", arch="sm_90a", step_budget=STEP_BUDGET, **how)
        records, starts = np.full((parts, 8), -7, np.int32), np.full(b + 1, -7, np.int32)
        lists = [None if one is None else np.array(one, np.int32) for one in (lengths, extra)]
        at = [0 if one is None else device.address(one) for one in (*lists, records, starts)]
        params = struct.pack("<4Q6i", *at, topk, extra_topk, b, parts, 5, dense)
        device.launch(find("schedule"), gpu.LaunchPlan(grid=1, block=1024, smem_bytes=4 * (b + 32)), [params])
        return np.array_equal(records, plan.records()) and np.array_equal(starts, plan.num_splits)

    return Case(f"schedule, {name}", ("schedule",), run)


DECODES = [
    decode_case(make, name, heads, f"sparse_decode_{name.lower().replace('.', '')}{pair}", "combine")
    for name in ("V3.2", "MODEL1")
    for heads, pair in ((48, ""), (64, ""), (128, "_pair"))
    for make in (long_lists, options, few)
    if heads != 48 or make is options
]
COMBINES = [combine_case(16, 4, False), combine_case(10, 4, True)]
SCHEDULES = [
    schedule_case("the first article's", 2, 66, topk=128),
    schedule_case("b=128", 128, 66, topk=2048),
    schedule_case("one partition", 33, 1, topk=64),
    schedule_case("lengths", 4, 7, topk=2048, lengths=[2048, 100, 0, 1024]),
    schedule_case("a second list", 4, 66, topk=128, lengths=[1, 128, 65, 0], extra_topk=512, extra_lengths=[512, 0, 64, 300]),
    schedule_case("a second list, whole", 3, 5, topk=128, extra_topk=192),
    schedule_case("dense", 70, 40, lengths=[(37 * i * i) % 4100 for i in range(70)]),
    schedule_case("dense, empty requests", 9, 3, lengths=[0, 0, 0, 700, 0, 130, 0, 0, 0]),
    schedule_case("wide", 1100, 132, topk=256, lengths=[(31 * i) % 257 for i in range(1100)]),
]
CASES = {"sparse_decode.cu": DECODES, "combine.cu": COMBINES, "schedule.cu": SCHEDULES}
