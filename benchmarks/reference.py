"""How fast is the reference library beside plain torch doing the same?

Codec and cache on one core, the tile scheduler, the decode oracle on two cores, and the import. Each row has a goal;
the exit status is 1 where one is missed.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import _table
import torch
from torch import Tensor

from mlacademy import __version__, cache, schedule
from mlacademy._native import core
from mlacademy.attention import sparse_decode
from mlacademy.cache import MODEL1, V32, CacheLayout

PAGE, TOKENS = 64, 8192


def plain_append(pages: Tensor, slots: Tensor, nope: Tensor, rope: Tensor, layout: CacheLayout) -> None:
    """Quantise and pack with torch operations only, for V3.2 and MODEL1, without any check."""
    tiles = nope.float().unflatten(-1, (-1, layout.tile))
    scale = (tiles.abs().amax(-1, keepdim=True) / 448).clamp(min=1e-4).log2().ceil().exp2()
    codes = (tiles / scale).to(torch.float8_e4m3fn).view(torch.uint8).flatten(-2)
    rope_bytes = rope.to(torch.bfloat16).view(torch.uint8)
    if layout is V32:
        record = torch.cat([codes, scale.squeeze(-1).view(torch.uint8), rope_bytes], dim=-1)
        pages.view(-1, 656)[slots] = record
        return
    block, page = layout.block_stride(PAGE), PAGE
    front = pages.as_strided((len(pages), page, 576), (block, 576, 1))
    back = pages.as_strided((len(pages), page, 8), (block, 8, 1), 576 * page)
    index, offset = slots // page, slots % page
    front[index, offset] = torch.cat([codes, rope_bytes], dim=-1)
    exponents = scale.squeeze(-1).to(torch.float8_e8m0fnu).view(torch.uint8)
    back[index, offset] = torch.nn.functional.pad(exponents, (0, 1))


def plain_gather(pages: Tensor, slots: Tensor, layout: CacheLayout) -> Tensor:
    """Gather and dequantise with torch operations only, without any check; a hole is cleared afterwards."""
    index, offset = slots.clamp(min=0) // PAGE, slots.clamp(min=0) % PAGE
    if layout is V32:
        record = pages[index, offset, 0]
        codes, scale, rope = record.split([512, 16, 128], dim=-1)
        scale = scale.contiguous().view(torch.float32)
    else:
        block = layout.block_stride(PAGE)
        record = pages.as_strided((len(pages), PAGE, 576), (block, 576, 1))[index, offset]
        codes, rope = record.split([448, 128], dim=-1)
        exponents = pages.as_strided((len(pages), PAGE, 7), (block, 8, 1), 576 * PAGE)[index, offset]
        scale = exponents.contiguous().view(torch.float8_e8m0fnu).float()
    values = codes.view(torch.float8_e4m3fn).float().unflatten(-1, (-1, layout.tile)) * scale.unsqueeze(-1)
    out = torch.cat([values.flatten(-2), rope.contiguous().view(torch.bfloat16).float()], dim=-1)
    return out.masked_fill_((slots < 0).unsqueeze(-1), 0.0)


def cache_rows(layout: CacheLayout) -> list[_table.Row]:
    """Quantise+pack and unpack, in bytes of the cache per second, on one core, tokens in random slots."""
    generator = torch.Generator().manual_seed(0)
    nope = torch.randn(TOKENS, layout.d_nope, generator=generator).bfloat16()
    rope = torch.randn(TOKENS, layout.d_rope, generator=generator).bfloat16()
    slots = torch.randperm(TOKENS, generator=generator)
    ours, plain = (cache.new_cache(layout, TOKENS // PAGE, PAGE) for _ in range(2))
    cache.append(ours, slots, nope, rope, layout)
    plain_append(plain, slots, nope, rope, layout)
    assert torch.equal(ours, plain), "the plain writer must store the same bytes"
    assert torch.equal(cache.gather(ours, slots, layout), plain_gather(plain, slots, layout))
    out = torch.empty(TOKENS, layout.d_qk)
    calls: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "quantise and pack": (
            lambda: cache.append(ours, slots, nope, rope, layout),
            lambda: plain_append(plain, slots, nope, rope, layout),
        ),
        "unpack": (lambda: cache.gather(ours, slots, layout), lambda: plain_gather(plain, slots, layout)),
        "unpack into a given tensor": (
            lambda: cache.gather(ours, slots, layout, out=out),
            lambda: plain_gather(plain, slots, layout),
        ),
    }
    rows, gigabytes = [], TOKENS * layout.bytes_per_token / 1e9
    for name, (our_call, plain_call) in calls.items():
        what = f"{layout.name}: {name}"
        _table.progress(what)
        times = {"ours": _table.measure(our_call), "plain": _table.measure(plain_call)}
        rows.append(
            _table.Row(
                what=what,
                ours=times["ours"].per_second(gigabytes),
                peer=times["plain"].per_second(gigabytes),
                peer_is=f"torch operations without checks, {TOKENS:,} tokens in bfloat16, page {PAGE}, one core",
                unit="GB/s",
                goal=0.5,
                times=times,
            )
        )
    return rows


def plain_schedule(lengths: Tensor, parts: int) -> tuple[Tensor, Tensor]:
    """The greedy walk on torch tensors: records int32 [parts, 7] and the prefix sum of splits int32 [b + 1]."""
    num_blocks = (lengths.clamp(min=1) + 63) // 64
    b, payload = len(lengths), int(-(-(num_blocks + 5).sum() // parts)) + 5
    records, prefix = torch.zeros(parts, 7, dtype=torch.int32), torch.zeros(b + 1, dtype=torch.int32)
    request = done = split = 0
    for p in range(parts):
        first, room = done > 0, payload
        begin = (request, done, split)
        while request < b:
            need = int(num_blocks[request]) - done + 5
            if room < need:
                if room > 5:
                    done, split = done + room - 5, split + 1
                break
            prefix[request + 1] = prefix[request] + split + 1
            room -= need
            request, done, split = request + 1, 0, 0
        end = request if done else request - 1
        end_block = done or int(num_blocks[end])
        last = end_block != int(num_blocks[end])
        if begin[0] == end:
            first = last = first or last
        records[p] = torch.tensor([begin[0], end, begin[1], end_block, begin[2], first, last])
    return records, prefix


def schedule_row() -> _table.Row:
    """The tile scheduler for 1,024 requests on 132 SMs at 128 heads."""
    what = "schedule b=1024"
    _table.progress(what)
    lengths = torch.randint(1, 65_536, (1024,), generator=torch.Generator().manual_seed(1))
    parts, array = schedule.num_sm_parts(132), lengths.numpy()
    records, prefix = plain_schedule(lengths, parts)
    plan = schedule.schedule(array, parts)
    assert torch.equal(torch.from_numpy(plan.records()[:, :7]), records)
    assert prefix.tolist() == plan.num_splits.tolist()
    times = {
        "ours": _table.measure(lambda: schedule.schedule(array, parts).records(), runs=100),
        "plain": _table.measure(lambda: plain_schedule(lengths, parts)),
    }
    return _table.Row(
        what=what,
        ours=times["ours"].median * 1e3,
        peer=times["plain"].median * 1e3,
        peer_is=f"the same walk on torch tensors, {parts} partitions, lengths 1 to 65,535",
        unit="ms",
        goal=1.0,
        times=times,
    )


def plain_decode(q: Tensor, pages: Tensor, slots: Tensor, scale: float) -> Tensor:
    """Sparse decode in float64 with torch operations only."""
    keys = plain_gather(pages, slots.long(), V32).double()
    scores = q.double() @ keys.transpose(-1, -2) * scale
    weights = torch.softmax(scores.masked_fill((slots < 0).unsqueeze(2), -torch.inf), dim=-1)
    return weights @ keys[..., :512]


def decode_row() -> _table.Row:
    """The float64 oracle of sparse decode at V3.2's sizes on two cores."""
    what = "decode oracle b=2 h=128 topk=2048"
    _table.progress(what)
    generator, tokens = torch.Generator().manual_seed(2), 32_768
    pages = cache.new_cache(V32, tokens // PAGE, PAGE)
    nope, rope = torch.randn(tokens, 512, generator=generator), torch.randn(tokens, 64, generator=generator)
    cache.append(pages, torch.arange(tokens), nope, rope, V32)
    q = torch.randn(2, 1, 128, 576, generator=generator).bfloat16()
    slots = torch.stack([torch.randperm(tokens, generator=generator)[:2048] for _ in range(2)])[:, None].int()
    scale = 192**-0.5
    ours, _ = sparse_decode(q, pages, slots, layout=V32, softmax_scale=scale)
    # float64 both: the order of sums differs, over 2,048 terms
    torch.testing.assert_close(ours, plain_decode(q, pages, slots, scale), rtol=1e-10, atol=1e-12)
    times = {
        "ours": _table.measure(lambda: sparse_decode(q, pages, slots, layout=V32, softmax_scale=scale), runs=5),
        "plain": _table.measure(lambda: plain_decode(q, pages, slots, scale), runs=5),
    }
    return _table.Row(
        what=what,
        ours=times["ours"].median,
        peer=times["plain"].median,
        peer_is="gather, matmul, softmax and matmul in float64 torch, no lse, no checks, two cores",
        unit="s",
        goal=1.5,
        times=times,
    )


def import_row() -> _table.Row:
    """`import mlacademy` in a fresh interpreter, less what an empty program takes."""
    what = "import mlacademy"
    _table.progress(what)

    def fresh(program: str) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, "-c", program], check=True)

    times = {
        "empty": _table.measure(fresh("pass")),
        "ours": _table.measure(fresh("import mlacademy")),
        "plain": _table.measure(fresh("import torch"), runs=5),
    }
    empty = times["empty"].median
    return _table.Row(
        what=what,
        ours=times["ours"].median - empty,
        peer=times["plain"].median - empty,
        peer_is="import torch in a fresh interpreter",
        unit="s",
        goal=0.3,
        times=times,
    )


def main() -> int:
    options = _table.parser(__doc__ or "", "reference").parse_args()
    about = {"machine": _table.machine(), "mlacademy": __version__, "torch": torch.__version__}
    if core() is None:
        print("the native module is off (MLACADEMY_NATIVE=0 or not compiled): these are the twins' numbers")
    torch.set_num_threads(1)
    rows = [*cache_rows(V32), *cache_rows(MODEL1), schedule_row()]
    torch.set_num_threads(2)
    rows += [decode_row(), import_row()]
    title = f"reference library on {about['machine']['cpu']}"
    notes = ["GB/s counts bytes of the cache: 656 (V3.2) or 584 (MODEL1) a token."]
    return _table.finish(title, rows, options.json, about={**about, "native": core() is not None}, notes=notes)


if __name__ == "__main__":
    sys.exit(main())
