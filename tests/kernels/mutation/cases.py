"""Small calls of the operators that show whether the decode kernels are right: what the mutation study runs.

A case is one call on the emulator with its answer from an oracle, and says whether it came out.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache as remember
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mlacademy import attention, cache, ops, schedule, softmax
from mlacademy.ops import plan

STEP_BUDGET = 3_000_000  # of a launch; the longest right one takes a tenth

# A row's 512 outputs carry independent roundings of p and of the output to bfloat16, 2^-9 each, and an accumulator
# cut at 2^-10 at most: twice that for the worst of a few hundred rows.
ROW_TOLERANCE = 2 * (2**-9 * 2**0.5 + 2**-10)


@dataclass(frozen=True)
class Case:
    """`run(**options of the emulator)`: whether the results are right. `kernel` is the one that is looked at."""

    name: str
    source: str
    kernel: str
    run: Callable[..., bool]


def emulator(**how: Any) -> Any:
    """A block in which operators run on the emulator; a notice that an earlier run left is forgotten."""
    found_nothing()
    return ops.on("emulator", **{"step_budget": STEP_BUDGET, **how})


def found_nothing() -> bool:
    """Whether kernels had nothing to tell."""
    try:
        ops.check()
    except (ops.StaleMetadata, ValueError):
        return False
    return True


def rows_agree(out: Tensor, lse: Tensor, want: np.ndarray, want_lse: np.ndarray) -> bool:
    """Whether every row of out [..., 512] and every lse is right; a row without tokens is exactly 0 and +inf."""
    got, got_lse, finite = out.double().numpy(), lse.double().numpy(), np.isfinite(want_lse)
    if np.isnan(got).any() or not np.array_equal(got_lse[~finite], want_lse[~finite]):
        return False
    close = np.allclose(got_lse[finite], want_lse[finite], atol=2e-6, rtol=2e-6)  # float32 sums of few hundred terms
    error = np.linalg.norm(got - want, axis=-1)
    return close and bool((error <= ROW_TOLERANCE * np.linalg.norm(want, axis=-1)).all())


# ---- decode


@dataclass
class Call:
    """The arguments of one decode, and the SMs that its schedule is made for."""

    q: Tensor
    kv: Tensor
    indices: Tensor
    lengths: Tensor | None = None
    extra: tuple[Tensor, Tensor, Tensor] | None = None  # cache, lists, lengths
    sink: Tensor | None = None
    sms: int = 132

    @property
    def slots(self) -> int:
        return self.kv.shape[0] * self.kv.shape[1]


def filled(layout: cache.CacheLayout, pages: int, page: int, growth: float = 1, gaps: bool = False) -> Tensor:
    """A cache of normal latents, of which the last are `growth` times as large as the first; slot 0 is NaN alone.

    `gaps`: all that one lane of each quad has in its accumulators are zeros.
    """
    n, generator = pages * page, torch.Generator().manual_seed(pages)
    latents = torch.randn(n, layout.d_nope + layout.d_rope, generator=generator)
    latents *= 0.5 * torch.logspace(0, np.log10(growth), n)[:, None]
    if gaps:
        latents[:, 2:512:8] = latents[:, 3:512:8] = 0.0
    kv = cache.new_cache(layout, pages, page)
    cache.append(kv, torch.arange(n), latents[:, : layout.d_nope], latents[:, layout.d_nope :], layout)
    for start, stop in layout.fields(page, 0).values():
        kv.as_strided((kv.stride(0),), (1,))[start:stop] = 0xFF
    return kv


def lists(b: int, s_q: int, topk: int, slots: int, seed: int) -> Tensor:
    """Random slots but slot 0, a tenth of them holes."""
    generator = torch.Generator().manual_seed(seed)
    indices = torch.randint(1, slots, (b, s_q, topk), generator=generator, dtype=torch.int32)
    indices[torch.rand(indices.shape, generator=generator) < 0.1] = -1
    return indices


def queries(b: int, s_q: int, heads: int, layout: cache.CacheLayout, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(b, s_q, heads, layout.d_qk, generator=generator) * 0.5).to(torch.bfloat16)


def long_lists(layout: cache.CacheLayout, heads: int) -> Call:
    """Requests of 12, 2 and 3 blocks over three partitions, of which the second ends one request and does the next:
    buffers come round, and scores grow towards the end of a list, so that maxima do. Parts of rows are zeros."""
    kv, indices = filled(layout, 9, 16, growth=100, gaps=True), lists(3, 1, 768, 144, seed=heads)
    indices[:2] = indices[:2].sort(-1).values
    indices[2] = indices[2] % 29 + 1  # small scores after large ones
    indices[2, 0, :70] = -1
    lengths = torch.tensor([768, 128, 130], dtype=torch.int32)
    return Call(queries(3, 1, heads, layout, 1), kv, indices, lengths, sms=3 * plan.head_blocks(heads))


def options(layout: cache.CacheLayout, heads: int) -> Call:
    """Two query rows, lengths, a second cache with pages of its own, a sink, a strided q, lists of holes alone, slots
    out of range."""
    indices, more = lists(4, 2, 128, 91, seed=2), lists(4, 2, 64, 60, seed=3)
    indices[0, 0, 70:] = 2**31 - 1  # beyond the length: not to be looked at
    indices[1, 0, 0] = 91  # one too far: a hole
    indices[2, 1, :] = -1
    more[3, 0, :] = -1
    lengths = torch.tensor([70, 1, 128, 0], dtype=torch.int32)
    extra = (filled(layout, 12, 5), more, torch.tensor([64, 3, 0, 40], dtype=torch.int32))
    sink = torch.linspace(-3, 6, heads)
    sink[5], sink[6] = float("inf"), float("-inf")
    wide = queries(4, 2, heads, layout, 2).repeat_interleave(2, dim=0).repeat_interleave(3, dim=2)
    return Call(wide[::2, :, ::3], filled(layout, 7, 13), indices, lengths, extra, sink, sms=8)


def one_block_each(layout: cache.CacheLayout, heads: int) -> Call:
    """One partition takes three requests of one block, so that a block is a request's first and its last."""
    return Call(queries(3, 1, heads, layout, 3), filled(layout, 2, 64), lists(3, 1, 64, 128, seed=4), sms=1)


def many_slots(layout: cache.CacheLayout, heads: int) -> Call:
    """33 blocks of each of two requests, all in partitions of their own: more slots than four groups of warps ask for
    at once. One request's scores grow from slot to slot, by more than a float32's range from the first to the last."""
    kv, indices = filled(layout, 9, 16, growth=1000), lists(2, 1, 33 * 64, 144, seed=8)
    indices[0] = indices[0].sort(-1).values
    indices[1] = indices[1] % 29 + 1
    return Call(queries(2, 1, heads, layout, 4), kv, indices, sink=torch.linspace(-3, 30, heads))


def many_rows(layout: cache.CacheLayout, heads: int) -> Call:
    """So many rows with two slots each that a warp merges more than one piece of a row; one has no token."""
    indices, sink = lists(8, 2, 192, 144, seed=9), torch.linspace(-3, 6, heads)
    indices[5, 1, :] = -1
    return Call(queries(8, 2, heads, layout, 5), filled(layout, 9, 16), indices, sink=sink)


Make = Callable[[cache.CacheLayout, int], Call]


@remember
def prepared(make: Make, name: str, heads: int) -> tuple[Call, np.ndarray, np.ndarray]:
    """A call and its answers from the float64 oracle."""
    layout = cache.layout(name)
    call = make(layout, heads)
    extra, more, extra_lengths = call.extra or (None, None, None)
    out, lse = attention.sparse_decode(
        call.q,
        call.kv,
        call.indices.where(call.indices < call.slots, -1),
        layout=layout,
        softmax_scale=0.1352,
        topk_length=call.lengths,
        extra_cache=extra,
        extra_indices=more,
        extra_topk_length=extra_lengths,
        attn_sink=call.sink,
    )
    return call, out.double().numpy(), lse.double().numpy()


def decode(call: Call, name: str, planned: Tensor | None, how: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """The call on the emulator, with a schedule for the lengths `planned`."""
    extra, more, extra_lengths = call.extra or (None, None, None)
    b, s_q, h_q, _ = call.q.shape
    metadata = ops.schedule(
        b,
        call.indices.shape[-1],
        s_q=s_q,
        h_q=h_q,
        sms=call.sms,
        topk_length=planned,
        extra_topk=None if more is None else more.shape[-1],
        extra_topk_length=extra_lengths,
    )
    with emulator(**how):
        return ops.sparse_decode(
            call.q,
            call.kv,
            call.indices,
            layout=name,
            softmax_scale=0.1352,
            topk_length=call.lengths,
            extra_kv_cache=extra,
            extra_indices=more,
            extra_topk_length=extra_lengths,
            attn_sink=call.sink,
            metadata=metadata,
        )


def decode_case(make: Make, name: str, heads: int) -> Case:
    def run(**how: Any) -> bool:
        call, want, want_lse = prepared(make, name, heads)
        out, lse = decode(call, name, call.lengths, how)
        return rows_agree(out, lse, want, want_lse) and found_nothing()

    launch = plan.decode_launches(name, b=1, s_q=1, h_q=heads, parts=1)[0]
    return Case(f"{make.__name__}, {name}, {heads} heads", launch.source, launch.kernel, run)


def stale_case(name: str, heads: int) -> Case:
    """A schedule made for other lengths: the outputs are made NaN, and the check raises."""

    def run(**how: Any) -> bool:
        call, _, _ = prepared(long_lists, name, heads)
        assert call.lengths is not None
        planned = call.lengths.clone()
        planned[2] -= 1
        out, lse = decode(call, name, planned, how)
        written = (out.view(torch.int16) == 0x7FFF).all() and (lse.view(torch.int32) == 0x7FFFFFFF).all()
        return bool(written) and not found_nothing()

    launch = plan.decode_launches(name, b=1, s_q=1, h_q=heads, parts=1)[0]
    return Case(f"stale lengths, {name}, {heads} heads", launch.source, launch.kernel, run)


def checked_case() -> Case:
    """The checked mode names the index that is no slot and the length that its list does not have, and nothing else."""

    def refused(how: dict[str, Any], **change: tuple[tuple[int, ...], int]) -> str:
        indices, more = lists(2, 2, 64, 91, seed=6), lists(2, 2, 64, 60, seed=7)
        lengths = torch.tensor([64, 50], dtype=torch.int32)
        indices[1, :, 50:] = 2**31 - 1
        tensors = {"indices": indices, "extra_indices": more, "topk_length": lengths}
        for name, (place, value) in change.items():
            tensors[name][place] = value
        extra = (filled(cache.V32, 12, 5), more, torch.tensor([64, 64], dtype=torch.int32))
        call = Call(queries(2, 2, 16, cache.V32, 6), filled(cache.V32, 7, 13), indices, lengths, extra)
        try:
            with ops.checked():
                decode(call, "V3.2", lengths, how)
        except ValueError as error:
            return str(error)
        return ""

    def run(**how: Any) -> bool:
        return (
            refused(how) == ""
            and "indices[1, 1, 3] is 91" in refused(how, indices=((1, 1, 3), 91))
            and "indices[0, 1, 40] is -2" in refused(how, indices=((0, 1, 40), -2))
            and "extra_indices[1, 0, 63] is 60" in refused(how, extra_indices=((1, 0, 63), 60))
            and "topk_length[0] is 65" in refused(how, topk_length=((0,), 65))
        )

    return Case("checked mode", "check_slots.cu", "check_slots", run)


# ---- combine, schedule, append


def combine_case(heads: int, with_sink: bool) -> Case:
    """Partial results of up to 60 splits, some without any token, one request in one piece."""
    generator, counts = np.random.default_rng(heads), np.array([2, 1, 60, 5])
    starts = np.concatenate([[0], counts.cumsum()]).astype(np.int32)
    partial = generator.standard_normal((starts[-1], 2, heads, 512)).astype(np.float32)
    lse = (generator.standard_normal((starts[-1], 2, heads)) * 20).astype(np.float32)
    lse[0, :, ::3] = -np.inf
    lse[3:30, 1, ::2] = -np.inf
    lse[starts[2] : starts[3], 0, 1] = -np.inf  # no token in any split
    partial[np.isneginf(lse)] = 0
    sink = torch.linspace(-30, 30, heads) if with_sink else None
    want, want_lse = np.zeros((4, 2, heads, 512)), np.zeros((4, 2, heads))
    for request in range(4):
        part = slice(starts[request], starts[request + 1])
        given = None if sink is None else sink.double()
        out, total = softmax.combine(
            torch.from_numpy(partial[part]).double(), torch.from_numpy(lse[part]).double(), sink=given
        )
        want[request], want_lse[request] = out.numpy(), total.numpy()

    def run(**how: Any) -> bool:
        with emulator(**how):
            tensors = [torch.from_numpy(one) for one in (partial, lse, starts)]
            out, total = ops.combine(*tensors, attn_sink=sink)
        return rows_agree(out, total.transpose(1, 2), want, want_lse)

    return Case(f"combine, {heads} heads, sink {with_sink}", "combine.cu", "combine", run)


def schedule_case(name: str, b: int, sms: int, topk: int, extra_topk: int | None = None, **given: list[int]) -> Case:
    lengths = {key: torch.tensor(value, dtype=torch.int32) for key, value in given.items()}
    effective = schedule.effective_lengths(b, topk, extra_topk=extra_topk, **given)
    expected = schedule.schedule(effective, plan.partitions(sms))

    def run(**how: Any) -> bool:
        with emulator(**how):
            metadata = ops.schedule(b, topk, sms=sms, extra_topk=extra_topk, **lengths)
        planned = [given.get("topk_length", [0] * b), given.get("extra_topk_length", [0] * b)]
        return (
            np.array_equal(metadata.records.numpy(), expected.records())
            and np.array_equal(metadata.num_splits.numpy(), expected.num_splits)
            and (not given or metadata.lengths.tolist() == planned)
        )

    return Case(f"schedule, {name}", "schedule.cu", "schedule", run)


def dense_case(name: str, parts: int, lengths: list[int]) -> Case:
    """The scheduler for a dense cache, whose requests may be empty."""
    expected = schedule.schedule(np.array(lengths), parts)

    def run(**how: Any) -> bool:
        b, records = len(lengths), np.full((parts, 8), -7, np.int32)
        given, starts = np.array(lengths, np.int32), np.full(b + 1, -7, np.int32)
        with emulator(**how) as here:
            at = [here.device.address(one) for one in (given, records, starts)]
            block = struct.pack("<4Q6iQ", at[0], 0, *at[1:], 0, 0, b, parts, plan.OVERHEAD, 1, 0)
            here.launch(plan.schedule_launch(b, parts), block)
        return np.array_equal(records, expected.records()) and np.array_equal(starts, expected.num_splits)

    return Case(f"dense schedule, {name}", "schedule.cu", "schedule", run)


def append_case(name: str, wide_slots: bool) -> Case:
    """Tiles of many magnitudes, zeros and the borders of scales among them, into slots in any order, with holes."""
    layout, generator, n, page = cache.layout(name), torch.Generator().manual_seed(5), 13, 5
    magnitudes = 2.0 ** torch.randint(-20, 40, (n, layout.num_tiles, 1), generator=generator)
    tiles = torch.randn(n, layout.num_tiles, layout.tile, generator=generator) * magnitudes
    tiles[0] = 0
    tiles[1] = tiles[1] / tiles[1].abs().amax(-1, keepdim=True) * 448
    tiles[2] = tiles[2] / tiles[2].abs().amax(-1, keepdim=True) * 450
    tiles[3] = tiles[3].sign() * 2.0**-30
    nope = tiles.flatten(1).to(torch.bfloat16)
    rope = torch.randn(n, layout.d_rope, generator=generator).to(torch.bfloat16)
    slots = torch.randperm(4 * page, generator=generator)[:n]
    slots[5] = -1
    kept = slots >= 0
    want = cache.new_cache(layout, 4, page)
    cache.append(want, slots[kept], nope[kept], rope[kept], layout)

    def run(**how: Any) -> bool:
        kv = cache.new_cache(layout, 4, page)
        with emulator(**how):
            ops.cache_append(kv, slots if wide_slots else slots.int(), nope, rope, layout=name)
        return torch.equal(kv, want) and found_nothing()

    return Case(f"append, {name}", "cache_append.cu", plan.append_launch(name, n).kernel, run)


def refused_append(name: str) -> Case:
    """Slots beyond the cache and a value that is not finite: nothing strays, and the check raises."""
    layout = cache.layout(name)

    def run(**how: Any) -> bool:
        right = []
        for slot, value in ((3, 1.0), (2**32 + 1, 1.0), (1, float("inf"))):
            nope = torch.ones(2, layout.d_nope, dtype=torch.bfloat16)
            nope[1, 70] = value
            kv = cache.new_cache(layout, 1, 3)
            with emulator(**how):
                rope = torch.ones(2, layout.d_rope, dtype=torch.bfloat16)
                ops.cache_append(kv, torch.tensor([2, slot]), nope, rope, layout=name)
            right.append(not found_nothing())
            first, second = cache.gather(kv, torch.tensor([2, 1]), layout)
            right.append(bool((first == 1).all()) and bool(second[70].isnan() if slot == 1 else (second == 0).all()))
        return all(right)

    return Case(f"refused append, {name}", "cache_append.cu", plan.append_launch(name, 2).kernel, run)


LAYOUTS = ("V3.2", "MODEL1")
ALL = [
    *(decode_case(options, name, heads) for name in LAYOUTS for heads in (10, 32, 48, 100)),
    *(
        decode_case(make, name, heads)
        for name in LAYOUTS
        for heads in (16, 64, 128)
        for make in (one_block_each, long_lists)
    ),
    *(stale_case("V3.2", heads) for heads in (16, 64, 128)),
    *(
        replace(case, source="combine.cu", kernel="combine")
        for case in (decode_case(long_lists, "V3.2", 16), decode_case(options, "V3.2", 10), stale_case("V3.2", 16))
    ),
    *(
        replace(case, source="combine_tiles.cu", kernel="combine_tiles")
        for case in (
            decode_case(long_lists, "V3.2", 64),
            decode_case(many_rows, "V3.2", 100),
            stale_case("V3.2", 64),
            decode_case(many_slots, "V3.2", 64),
        )
    ),
    checked_case(),
    combine_case(40, False),
    combine_case(10, True),
    schedule_case("the first article's", 2, 132, 128),
    schedule_case("b=128", 128, 132, 2048),
    schedule_case("one partition", 33, 2, 64),
    schedule_case("lengths", 4, 14, 2048, topk_length=[2048, 100, 0, 1024]),
    schedule_case("a second list", 4, 132, 128, 512, topk_length=[1, 128, 65, 0], extra_topk_length=[512, 0, 64, 300]),
    schedule_case("a second list, whole", 3, 10, 128, 192),
    schedule_case("wide", 1100, 264, 256, topk_length=[(31 * i) % 257 for i in range(1100)]),
    dense_case("ragged", 40, [(37 * i * i) % 4100 for i in range(70)]),
    dense_case("empty requests", 3, [0, 0, 0, 700, 0, 130, 0, 0, 0]),
    append_case("V3.2", True),
    append_case("V3.2", False),
    append_case("MODEL1", True),
    *(refused_append(name) for name in LAYOUTS),
]
CASES: dict[str, list[Case]] = {}
for one in ALL:
    CASES.setdefault(one.source, []).append(one)
