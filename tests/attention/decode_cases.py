"""Random sparse-decode calls, and the answer computed another way: bytes read one by one, sums in Python loops.

Every cache starts as 0xFF bytes (NaN as E4M3, as float32 and as bf16; 2^128 as E8M0), and only slots that some list
names are written: whatever reads an unused slot, or multiplies it by 0, turns into NaN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mlacademy.cache import CacheLayout, append, new_cache


@dataclass
class Case:
    """Arguments of one call: `sparse_decode(**case.arguments)`."""

    layout: CacheLayout
    arguments: dict[str, Any] = field(default_factory=dict)


def read_token(cache: Tensor, slot: int, layout: CacheLayout) -> np.ndarray:
    """d_qk float64 values of one token, from its bytes and the layout's published offsets."""
    page = cache.shape[1]
    stride = cache.stride(0)
    raw = cache.as_strided((cache.shape[0], stride), (stride, 1))[slot // page]
    offset = slot % page
    if layout.bytes_per_token == 656:
        token = raw[656 * offset : 656 * offset + 656]
        codes, rope = token[:512], token[528:]
        scales = token[512:528].clone().view(torch.float32).double().repeat_interleave(128)
    else:
        body = raw[576 * offset : 576 * offset + 576]
        codes, rope = body[:448], body[448:]
        exponents = raw[576 * page + 8 * offset : 576 * page + 8 * offset + 7].double()
        scales = torch.exp2(exponents - 127).repeat_interleave(64)
    nope = codes.clone().view(torch.float8_e4m3fn).double() * scales
    return torch.cat([nope, rope.clone().view(torch.bfloat16).double()]).numpy()


def loop_attention(
    q: np.ndarray, tokens: list[np.ndarray], scale: float, d_v: int, sink: float | None
) -> tuple[np.ndarray, float, np.ndarray]:
    """One query row over a list of tokens (a token listed twice stands twice): out, lse, and Σ p·|v|."""
    if not tokens:
        return np.zeros(d_v), math.inf, np.zeros(d_v)
    logits = [scale * float(np.dot(q, token)) for token in tokens]
    top = max(logits)
    lse = top + math.log(math.fsum(math.exp(x - top) for x in logits))
    out, size = np.zeros(d_v), np.zeros(d_v)
    for x, token in zip(logits, tokens, strict=True):
        out += math.exp(x - lse) * token[:d_v]
        size += math.exp(x - lse) * np.abs(token[:d_v])
    share = 1.0 if sink is None else _share(lse, sink)
    return out * share, lse, size * share


def _share(lse: float, sink: float) -> float:
    """e^lse / (e^lse + e^sink) with the limits spelled out."""
    if sink == math.inf:
        return 0.0
    return 1.0 if sink == -math.inf else 1.0 / (1.0 + math.exp(min(sink - lse, 700.0)))


def loop_decode(case: Case) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """out [b, s_q, h_q, d_v], lse [b, h_q, s_q] and Σ p·|v| of a whole call."""
    a, layout = case.arguments, case.layout
    q = a["q"].double().numpy()
    b, s_q, h_q, _ = q.shape
    out, size = np.zeros((2, b, s_q, h_q, layout.d_v))
    lse = np.zeros((b, h_q, s_q))
    sink = a.get("attn_sink")
    for r in range(b):
        for i in range(s_q):
            tokens = []
            for prefix in ("", "extra_"):
                lists = a.get(f"{prefix}indices")
                if lists is None:
                    continue
                lengths = a.get(f"{prefix}topk_length")
                length = lists.shape[2] if lengths is None else int(lengths[r])
                chosen = [slot for slot in lists[r, i, :length].tolist() if slot != -1]
                tokens += [read_token(a[f"{prefix}cache"], slot, layout) for slot in chosen]
            for h in range(h_q):
                head_sink = None if sink is None else float(sink[h])
                out[r, i, h], lse[r, h, i], size[r, i, h] = loop_attention(
                    q[r, i, h], tokens, a["softmax_scale"], layout.d_v, head_sink
                )
    return out, lse, size


def poisoned_cache(layout: CacheLayout, num_pages: int, page: int, slots: Tensor, generator: torch.Generator) -> Tensor:
    """A cache of 0xFF bytes with random tokens in the named slots."""
    cache = new_cache(layout, num_pages, page)
    cache.as_strided((num_pages * cache.stride(0),), (1,)).fill_(0xFF)
    used = torch.unique(slots[slots != -1]).long()
    values = torch.randn(len(used), layout.d_qk, generator=generator)
    values *= 4.0 ** torch.randint(-1, 2, (len(used), 1), generator=generator)  # several scales
    append(cache, used, values[:, : layout.d_nope], values[:, layout.d_nope :], layout)
    return cache


def random_lists(shape: tuple[int, int, int], num_slots: int, holes: str, generator: torch.Generator) -> Tensor:
    """Slots with repetitions, and holes: none, front, middle, back, rows, blocks, all or scattered."""
    b, s_q, topk = shape
    lists = torch.randint(0, num_slots, shape, generator=generator, dtype=torch.int32)
    place = torch.arange(topk)
    mask = {
        "none": torch.zeros(shape, dtype=torch.bool),
        "front": (place < topk // 3 + 1).expand(shape),
        "middle": ((place >= topk // 3) & (place < topk // 2)).expand(shape),
        "back": (place >= topk // 2).expand(shape),
        "rows": (torch.arange(b * s_q) % 2 == 0).view(b, s_q, 1).expand(shape),
        "blocks": (place // 64 % 2 == 0).expand(shape),
        "all": torch.ones(shape, dtype=torch.bool),
        "scattered": torch.rand(shape, generator=generator) < 0.5,
    }[holes]
    return lists.masked_fill(mask, -1)


HOLES = ("none", "front", "middle", "back", "rows", "blocks", "all", "scattered")
SINKS = ("none", "values", "plus infinity", "minus infinity")


def random_case(
    layout: CacheLayout,
    seed: int,
    *,
    b: int = 2,
    s_q: int = 1,
    h_q: int = 3,
    topk: int = 64,
    page: int = 5,
    holes: str = "scattered",
    lengths: bool = False,
    sink: str = "none",
    extra_topk: int = 0,
    extra_page: int = 3,
    extra_lengths: bool = False,
) -> Case:
    """A call with the given options; what stands past a length is garbage on purpose."""
    generator = torch.Generator().manual_seed(seed)
    arguments: dict[str, Any] = {
        "q": (torch.randn(b, s_q, h_q, layout.d_qk, generator=generator) / 2).bfloat16(),
        "layout": layout,
        "softmax_scale": 0.0442,
    }
    for prefix, width, size, short in (("", topk, page, lengths), ("extra_", extra_topk, extra_page, extra_lengths)):
        if not width:
            continue
        num_pages = 1 + 40 // size
        lists = random_lists((b, s_q, width), num_pages * size, holes, generator)
        arguments[f"{prefix}cache"] = poisoned_cache(layout, num_pages, size, lists, generator)
        if short:
            limit = torch.randint(0, width + 1, (b,), generator=generator, dtype=torch.int32)
            past = torch.arange(width) >= limit[:, None, None]
            garbage = torch.tensor([2**31 - 1, -(2**31), -7, 10**6], dtype=torch.int32)
            lists = torch.where(past, garbage[torch.arange(width) % 4], lists)
            arguments[f"{prefix}topk_length"] = limit
        arguments[f"{prefix}indices"] = lists
    if sink != "none":
        values = torch.randn(h_q, generator=generator) * 3
        if sink != "values":
            values[::2] = math.inf if sink == "plus infinity" else -math.inf
        arguments["attn_sink"] = values
    return Case(layout, arguments)
