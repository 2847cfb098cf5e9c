"""Random sparse-decode calls on a GPU, and the float64 oracle that their results are compared with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from mlacademy.cache import MODEL1, CacheLayout

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
FILL = 1 << 16  # tokens quantised at a time
CHUNK_BYTES = 2 << 30  # of float64 keys that the oracle gathers at a time


def empty_cache(layout: CacheLayout, pages: int, page: int, gap: int = 0) -> Tensor:
    """A cache of 0xFF bytes: every code, scale and bfloat16 in it is NaN. Pages stand ``gap`` bytes further apart."""
    stride, per_token = layout.block_stride(page) + gap, layout.bytes_per_token
    storage = torch.full((pages * stride,), 0xFF, dtype=torch.uint8, device=DEVICE)
    return storage.as_strided((pages, page, 1, per_token), (stride, per_token, per_token, 1))


def parts(kv: Tensor, layout: CacheLayout) -> tuple[Tensor, Tensor, Tensor]:
    """Views [pages, page, bytes] of the codes, the scales and the RoPE part."""
    page, stride = kv.shape[1], kv.stride(0)
    columns = layout.columns(page)
    views = (
        kv.as_strided((kv.shape[0], page, width), (stride, step, 1), kv.storage_offset() + base)
        for base, step, width in (columns[name] for name in ("nope", "scale", "rope"))
    )
    nope, scale, rope = views
    return nope, scale, rope


def fill(kv: Tensor, layout: CacheLayout, slots: Tensor, generator: torch.Generator) -> None:
    """Give the tokens of ``slots`` values of about a tenth, tile by tile of another size; all others stay NaN."""
    views, page, tiles = parts(kv, layout), kv.shape[1], (layout.num_tiles, layout.tile)
    for some in slots.long().split(FILL):
        where, n = (some // page, some % page), len(some)
        sizes = torch.randint(-2, 2, (n, layout.num_tiles, 1), generator=generator, device=DEVICE).exp2() * 0.1
        values = torch.randn(n, *tiles, generator=generator, device=DEVICE) * sizes
        exponents = (values.abs().amax(dim=-1) / 448).clamp(min=1e-4).log2().ceil()
        codes = (values / exponents.exp2()[..., None]).flatten(1).to(torch.float8_e4m3fn)
        scales = (exponents + 127).to(torch.uint8) if layout is MODEL1 else exponents.exp2().view(torch.uint8)
        rope = (torch.randn(n, layout.d_rope, generator=generator, device=DEVICE) * 0.1).bfloat16()
        for view, content in zip(views, (codes.view(torch.uint8), scales, rope.view(torch.uint8)), strict=True):
            view[where] = content


def read(kv: Tensor, layout: CacheLayout, slots: Tensor) -> Tensor:
    """The tokens of ``slots`` in float64, holes as zeros."""
    held, page = slots >= 0, kv.shape[1]
    safe = slots.clamp(min=0).long()
    codes, scales, rope = (view[safe // page, safe % page] for view in parts(kv, layout))
    values = codes.view(torch.float8_e4m3fn).double().unflatten(-1, (layout.num_tiles, layout.tile))
    factors = (scales.double() - 127).exp2() if layout is MODEL1 else scales.view(torch.float32).double()
    keys = torch.cat([(values * factors[..., None]).flatten(-2), rope.view(torch.bfloat16).double()], dim=-1)
    return keys.masked_fill_(~held[..., None], 0.0)


@dataclass
class Call:
    """The arguments of `ops.sparse_decode`; ``options`` holds those that may be left out."""

    layout: CacheLayout
    q: Tensor
    kv_cache: Tensor
    indices: Tensor
    scale: float
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def sources(self) -> list[tuple[Tensor, Tensor, Tensor | None]]:
        options = self.options
        found = [(self.kv_cache, self.indices, options.get("topk_length"))]
        if "extra_kv_cache" in options:
            found.append((options["extra_kv_cache"], options["extra_indices"], options.get("extra_topk_length")))
        return found

    def oracle(self) -> tuple[Tensor, Tensor]:
        """out [b, s_q, h_q, 512] and lse [b, h_q, s_q], float64."""
        b = self.q.shape[0]
        width = sum(indices[0].numel() for _, indices, _ in self.sources) * self.layout.d_qk * 8
        chunk = max(1, min(b, CHUNK_BYTES // width))
        pieces = [self._rows(slice(start, start + chunk)) for start in range(0, b, chunk)]
        out, lse = (torch.cat(kind) for kind in zip(*pieces, strict=True))
        return out, lse.transpose(1, 2)

    def _rows(self, rows: slice) -> tuple[Tensor, Tensor]:
        lists = []
        for kv, indices, lengths in self.sources:
            slots = indices[rows].clone()
            slots[(slots < 0) | (slots >= kv.shape[0] * kv.shape[1])] = -1
            if lengths is not None:
                place = torch.arange(slots.shape[-1], device=DEVICE)
                slots[(place >= lengths[rows, None]).unsqueeze(1).expand_as(slots)] = -1
            lists.append((kv, slots))
        keys = torch.cat([read(kv, self.layout, slots) for kv, slots in lists], dim=2)
        holes = torch.cat([slots < 0 for _, slots in lists], dim=2)[:, :, None]
        logits = (self.q[rows].double() @ keys.transpose(-1, -2)).mul_(self.scale).masked_fill_(holes, -torch.inf)
        lse = logits.logsumexp(dim=-1)
        empty = lse == -torch.inf
        weights = (logits - lse.masked_fill(empty, 0.0)[..., None]).exp_()
        out = weights @ keys[..., : self.layout.d_v]
        sink = self.options.get("attn_sink")
        if sink is not None:
            out *= torch.sigmoid(lse - sink.double())[..., None]
        out[empty] = 0.0
        return out, lse.masked_fill(empty, torch.inf)


def rows_of_slots(
    b: int, s_q: int, topk: int, lengths: Tensor, page: int, generator: torch.Generator
) -> tuple[Tensor, int]:
    """Lists of distinct tokens of each request, holes where it has fewer, through a shuffled block table; the pages."""
    longest = max(int(lengths.max()), 1)
    width = max(longest, topk)
    score = torch.rand(b, s_q, width, generator=generator, device=DEVICE)
    score[(torch.arange(width, device=DEVICE) >= lengths[:, None]).unsqueeze(1).expand_as(score)] = -1.0
    best, positions = score.topk(topk, dim=-1)
    per_request = -(-width // page)
    table = torch.randperm(b * per_request, generator=generator, device=DEVICE).view(b, per_request)
    request = torch.arange(b, device=DEVICE)[:, None, None]
    slots = table[request, positions // page] * page + positions % page
    return slots.masked_fill_(best < 0, -1).int(), b * per_request


def one_source(
    layout: CacheLayout,
    b: int,
    s_q: int,
    topk: int,
    tokens: int,
    page: int,
    generator: torch.Generator,
    *,
    varied: bool = True,
    zero: bool = False,
    nothing: bool = False,
    with_lengths: bool = False,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """A cache, lists with gaps between their rows, and lengths. What no list names within its length is NaN."""
    device = DEVICE
    lengths = torch.full((b,), tokens, device=device)
    if varied:
        spread = torch.randn(b, generator=generator, device=device)
        lengths = (tokens + spread * tokens / 2).clamp(min=s_q).long()
    if zero:
        lengths[torch.rand(b, generator=generator, device=device) < 0.5] = 0
    slots, pages = rows_of_slots(b, s_q, topk, lengths, page, generator)
    if nothing:
        slots.fill_(-1)
    given = torch.randint(0, topk + 1, (b,), generator=generator, device=device).int() if with_lengths else None
    kv = empty_cache(layout, pages, page, gap=0 if layout is MODEL1 else layout.bytes_per_token)
    named = (
        slots
        if given is None
        else slots[(torch.arange(topk, device=device) < given[:, None])[:, None].expand_as(slots)]
    )
    used = named[named >= 0].unique()
    fill(kv, layout, used, generator)
    wide = torch.full((b + 1, s_q + 1, topk + 128), 2**31 - 1, dtype=torch.int32, device=device)[:b, :s_q, :topk]
    wide.copy_(slots)
    return kv, wide, given


def random_call(
    layout: CacheLayout,
    *,
    b: int,
    s_q: int,
    h_q: int,
    main: dict[str, Any],
    extra: dict[str, Any] | None = None,
    sink: bool = False,
    seed: int = 0,
) -> Call:
    """A call; ``main`` and ``extra`` are the arguments of `one_source`."""
    generator = torch.Generator(device=DEVICE).manual_seed(seed)
    wide = torch.randn(b + 1, s_q + 1, h_q + 1, layout.d_qk + 128, generator=generator, device=DEVICE).clamp_(-1, 1)
    q = wide.bfloat16()[:b, :s_q, :h_q, : layout.d_qk]
    kv, indices, lengths = one_source(layout, b, s_q, generator=generator, **main)
    call = Call(layout, q, kv, indices, layout.d_qk**-0.55)
    if lengths is not None:
        call.options["topk_length"] = lengths
    if extra is not None:
        other, lists, other_lengths = one_source(layout, b, s_q, generator=generator, **extra)
        call.options |= {"extra_kv_cache": other, "extra_indices": lists}
        if other_lengths is not None:
            call.options["extra_topk_length"] = other_lengths
    if sink:
        values = torch.randn(h_q, generator=generator, device=DEVICE)
        chance = torch.rand(h_q, generator=generator, device=DEVICE)
        call.options["attn_sink"] = values.masked_fill_(chance < 0.3, torch.inf).masked_fill_(chance > 0.7, -torch.inf)
    return call
