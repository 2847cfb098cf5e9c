"""Small calls that together use every option of the decode kernels; each says whether its results are right."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from _decode_data import DEVICE, Call, random_call
from torch import Tensor

from mlacademy import cache, ops, schedule
from mlacademy.cache import MODEL1, V32, CacheLayout
from mlacademy.ops import plan

PLAIN = {"tokens": 150, "topk": 128, "page": 13}
LONG = {"tokens": 700, "topk": 640, "page": 64, "varied": False}


def close(result: tuple[Tensor, Tensor], exact: tuple[Tensor, Tensor]) -> bool:
    """The output to 1 % of its norm, the lse to 1e-5, and the same rows empty."""
    (out, lse), (wanted, wanted_lse) = result, exact
    finite = wanted_lse.isfinite()
    if not torch.equal(lse[~finite].double(), wanted_lse[~finite]) or bool(out.isnan().any()):
        return False
    error, size = float((out.double() - wanted).norm()), float(wanted.norm())
    return error <= 0.01 * size and torch.allclose(lse[finite].double(), wanted_lse[finite], rtol=1e-5, atol=1e-5)


def decode(call: Call, *, sms: int | None = None, planned: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The call with a schedule for so many SMs, and for the lengths ``planned`` where these are others."""
    b, s_q, h_q, _ = call.q.shape
    lengths, extra = call.options.get("topk_length"), call.options.get("extra_indices")
    metadata = ops.schedule(
        b,
        call.indices.shape[-1],
        s_q=s_q,
        h_q=h_q,
        sms=sms,
        topk_length=lengths if planned is None else planned,
        extra_topk=None if extra is None else extra.shape[-1],
        extra_topk_length=call.options.get("extra_topk_length"),
        device=DEVICE,
    )
    more = call.options | {"layout": call.layout, "softmax_scale": call.scale}
    return ops.sparse_decode(call.q, call.kv_cache, call.indices, metadata=metadata, **more)


def right(sms: int | None = None, **case: Any) -> bool:
    call = random_call(**({"b": 3, "s_q": 1, "main": PLAIN} | case))
    result = decode(call, sms=sms)
    ops.check()
    return close(result, call.oracle())


def noticed(error: type[Exception], run: Callable[[], Any]) -> bool:
    """Whether `ops.check` or the call itself raises ``error``."""
    try:
        run()
        ops.check()
    except error:
        return True
    return False


def stale(heads: int) -> bool:
    call = random_call(V32, b=3, s_q=1, h_q=heads, main={**PLAIN, "with_lengths": True})
    result: list[Tensor] = []
    other = call.options["topk_length"] + 1
    found = noticed(ops.StaleMetadata, lambda: result.extend(decode(call, planned=other)))
    return found and all(bool(part.isnan().all()) for part in result)


def checked(wrong: bool) -> bool:
    call = random_call(V32, b=3, s_q=2, h_q=64, main=PLAIN)
    if wrong:
        call.indices[1, 1, 100] = call.kv_cache.shape[0] * call.kv_cache.shape[1]
    with ops.checked():
        return noticed(ops.SlotOutOfRange, lambda: decode(call)) == wrong


def scheduled(b: int, topk: int, with_lengths: bool) -> bool:
    generator = torch.Generator().manual_seed(b)
    lengths = torch.randint(0, topk + 1, (b,), generator=generator, dtype=torch.int32) if with_lengths else None
    given = None if lengths is None else lengths.to(DEVICE)
    made = ops.schedule(b, topk, sms=132, topk_length=given, device=DEVICE)
    effective = schedule.effective_lengths(b, topk, topk_length=None if lengths is None else lengths.numpy())
    wanted = schedule.schedule(effective, plan.partitions(132))
    records, splits = torch.from_numpy(wanted.records()), torch.from_numpy(wanted.num_splits.copy())
    return torch.equal(made.records.cpu(), records) and torch.equal(made.num_splits.cpu(), splits)


def combined(heads: int, counts: tuple[int, ...]) -> bool:
    generator = torch.Generator().manual_seed(heads)
    starts = torch.tensor([0, *itertools.accumulate(counts)], dtype=torch.int32)
    out = torch.randn(int(starts[-1]), 2, heads, 512, generator=generator)
    lse = torch.randn(int(starts[-1]), 2, heads, generator=generator) * 5
    lse[: counts[0], :, ::3] = -torch.inf
    out[lse.isneginf()] = 0
    sink = torch.randn(heads, generator=generator)
    merged, total = ops.combine(*(part.to(DEVICE) for part in (out, lse, starts)), attn_sink=sink.to(DEVICE))
    weights = torch.exp2(lse.double())
    for request, (start, stop) in enumerate(itertools.pairwise(starts.tolist())):
        some = weights[start:stop]
        norm = some.sum(0) + sink.double().exp()
        wanted = (some[..., None] * out[start:stop].double()).sum(0) / norm[..., None]
        wanted_lse = some.sum(0).log()
        empty = wanted_lse.isneginf()
        wanted[empty], wanted_lse[empty] = 0, torch.inf
        if not close((merged[request].cpu(), total[request].T.cpu()), (wanted, wanted_lse)):
            return False
    return True


def appended(layout: CacheLayout, wide: bool, wrong: bool) -> bool:
    generator = torch.Generator().manual_seed(3)
    nope = torch.randn(13, layout.d_nope, generator=generator).bfloat16()
    rope = torch.randn(13, layout.d_rope, generator=generator).bfloat16()
    slots = torch.randperm(20, generator=generator)[:13]
    slots[4] = -1
    wanted, kv = cache.new_cache(layout, 4, 5), cache.new_cache(layout, 4, 5)
    held = slots >= 0
    cache.append(wanted, slots[held], nope[held], rope[held], layout)
    if wrong:
        slots[4] = 20
    stored = kv.as_strided((4, kv.stride(0)), (kv.stride(0), 1)).to(DEVICE).as_strided(kv.shape, kv.stride())
    where = (slots if wide else slots.int()).to(DEVICE)
    found = noticed(
        ops.SlotOutOfRange, lambda: ops.cache_append(stored, where, nope.to(DEVICE), rope.to(DEVICE), layout=layout)
    )
    return found == wrong and torch.equal(stored.cpu(), wanted)


def cases() -> dict[str, Callable[[], bool]]:
    """Every case by name."""
    found: dict[str, Callable[[], bool]] = {}

    def add(name: str, run: Callable[..., bool], *args: Any, **more: Any) -> None:
        found[name] = lambda: run(*args, **more)

    for layout, heads in itertools.product((V32, MODEL1), (16, 32, 64, 128)):
        name = f"{layout.name} h{heads}"
        main = {**PLAIN, "with_lengths": True}
        add(f"{name} s2, lengths, sink, strided q", right, layout=layout, h_q=heads, s_q=2, main=main, sink=True)
        add(f"{name} many blocks, one partition", right, layout=layout, h_q=heads, main=LONG, b=2, sms=1)
    for heads in (16, 64, 128):
        add(f"V3.2 h{heads} split into ten", right, layout=V32, h_q=heads, main=LONG, b=1, sms=132)
        add(f"V3.2 h{heads} stale lengths", stale, heads)
        extra = {"tokens": 90, "topk": 64, "page": 5, "with_lengths": True}
        add(
            f"MODEL1 h{heads} second cache, lengths",
            right,
            layout=MODEL1,
            h_q=heads,
            main=PLAIN,
            extra=extra,
            sink=True,
        )
    add("V3.2 h64 second cache", right, layout=V32, h_q=64, main=PLAIN, extra={"tokens": 90, "topk": 192, "page": 64})
    add("V3.2 h10", right, layout=V32, h_q=10)
    add("MODEL1 h100 s3", right, layout=MODEL1, h_q=100, s_q=3)
    add("V3.2 h128 holes alone", right, layout=V32, h_q=128, main={**PLAIN, "nothing": True})
    add("V3.2 h16 empty requests", right, layout=V32, h_q=16, main={**PLAIN, "zero": True}, sink=True)
    add("checked, all in range", checked, False)
    add("checked, one slot beyond", checked, True)
    add("schedule b1", scheduled, 1, 2048, False)
    add("schedule b512, lengths", scheduled, 512, 2048, True)
    add("combine h128, up to 40 slots", combined, 128, (2, 40, 1))
    add("combine h10, one slot each", combined, 10, (1, 1))
    add("append V3.2, int64 slots", appended, V32, True, False)
    add("append MODEL1, int32 slots", appended, MODEL1, False, False)
    add("append V3.2, a slot beyond", appended, V32, False, True)
    return found
