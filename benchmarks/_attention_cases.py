"""The cases of `attention.py`: inputs, the call, what it must give, and how many bytes it touches.

Inputs are drawn as those were that FlashMLA was measured with: one V3.2 cache of 192 contexts of 32,768 tokens, whose
pages of 64 lie shuffled over all of it; normal values times a log-normal scale a token; every list a random subset of
its request's own context, not sorted; q normal. Each input set has its own q and its own lists over other contexts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mlacademy import ops
from mlacademy import schedule as reference_schedule
from mlacademy.cache import V32

PAGE = 64
ROW = V32.bytes_per_token
TILE = 128
L2_BYTES = 60 * 2**20
OUTPUT_TOLERANCE = 2.0**-8
"""Of the norm: p and the output are rounded to bfloat16, 2^-9 each, and sums are float32."""
LSE_TOLERANCE = 1e-5
DECODE = re.compile(r"h(\d+)_s(\d+)_b(\d+)(?:_k(\d+))?")

Call = Callable[[], Any]


@dataclass
class Prepared:
    """Calls, one an input set; ``check`` gives the largest error, or raises where something is wrong."""

    calls: list[Call]
    check: Callable[[], float]
    bytes_moved: int = 0
    by_kernel: bool = False  # timed by the kernel's own time and not by graph replays
    keep: list[Any] = field(default_factory=list)


class Pool:
    """The cache that all cases share."""

    def __init__(self, contexts: int, length: int, say: Callable[[str], None]) -> None:
        self.contexts, self.length = contexts, length
        self.pages = contexts * length // PAGE
        self.kv = torch.empty(self.pages, PAGE, 1, ROW, dtype=torch.uint8, device="cuda")
        rows = self.kv.view(-1, ROW)
        say(f"drawing a cache of {rows.numel() / 1e9:.1f} GB")
        for context in range(contexts):
            rows[context * length : (context + 1) * length] = quantised(*latents(length))
        self.page_of = torch.randperm(self.pages, device="cuda")

    def lists(self, first_context: int, b: int, s_q: int, topk: int) -> Tensor:
        """int32 [b, s_q, topk]: request r reads from context first_context + r."""
        context = (first_context + torch.arange(b, device="cuda")) % self.contexts
        places = torch.stack([torch.randperm(self.length, device="cuda")[:topk] for _ in range(b * s_q)])
        places = places.view(b, s_q, topk) + context[:, None, None] * self.length
        return (self.page_of[places // PAGE] * PAGE + places % PAGE).int()

    def rows(self, slots: Tensor) -> Tensor:
        """The tokens in some slots, float64 [n, 576]."""
        rows = self.kv.view(-1, ROW)[slots.long()]
        scales = rows[:, 512:528].contiguous().view(torch.float32).double()
        codes = rows[:, :512].contiguous().view(torch.float8_e4m3fn).double()
        nope = codes.view(-1, 4, TILE) * scales[..., None]
        return torch.cat([nope.flatten(1), rows[:, 528:].contiguous().view(torch.bfloat16).double()], dim=1)


def latents(n: int) -> tuple[Tensor, Tensor]:
    """nope [n, 512] and rope [n, 64], bfloat16."""
    size = torch.exp(0.3 * torch.randn(n, 1, device="cuda"))
    nope, rope = torch.randn(n, 512, device="cuda") * size, torch.randn(n, 64, device="cuda")
    return nope.to(torch.bfloat16), rope.to(torch.bfloat16)


def quantised(nope: Tensor, rope: Tensor) -> Tensor:
    """uint8 [n, 656], by torch's own conversions."""
    tiles = nope.float().view(len(nope), -1, TILE)
    fraction, power = torch.frexp((tiles.abs().amax(-1).double() / 448).clamp(min=1e-4))  # fraction: 0.5 up to 1
    scales = torch.ldexp(torch.ones_like(fraction), power - (fraction == 0.5).int()).float()
    codes = (tiles / scales[..., None]).to(torch.float8_e4m3fn)
    return torch.cat([codes.flatten(1).view(torch.uint8), scales.view(torch.uint8), rope.view(torch.uint8)], dim=1)


def decode(name: str, pool: Pool, sets: int) -> Prepared:
    h_q, s_q, b, topk = (int(number or 2048) for number in DECODE.fullmatch(name).groups())  # type: ignore[union-attr]
    metadata = ops.schedule(b, topk, s_q=s_q, h_q=h_q, device="cuda")
    touched = b * s_q * topk * ROW
    inputs = []
    for i in range(max(2, min(sets, -(-4 * L2_BYTES // touched)))):
        q = torch.randn(b, s_q, h_q, 576, device="cuda").to(torch.bfloat16)
        inputs.append((q, pool.lists(i * b, b, s_q, topk)))
    scale = 576**-0.5

    def call(q: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
        return ops.sparse_decode(q, pool.kv, indices, softmax_scale=scale, metadata=metadata)

    def check() -> float:
        worst = 0.0
        for q, indices in (inputs[0], inputs[-1]):
            for output in call(q, indices):
                output.fill_(torch.nan)  # freed now: the next call's outputs come to lie there
            out, lse = call(q, indices)
            ops.check()
            assert not out.isnan().any(), "an output is NaN"
            for request in sorted({0, b // 2, b - 1}):
                for query in range(s_q):
                    k = pool.rows(indices[request, query])
                    scores = q[request, query].double() @ k.T * scale
                    wanted = torch.softmax(scores, dim=-1) @ k[:, :512]
                    got = out[request, query].double()
                    worst = max(worst, float((got - wanted).norm() / wanted.norm()))
                    off = (lse[request, :, query].double() - torch.logsumexp(scores, dim=-1)).abs().max()
                    assert off < LSE_TOLERANCE, f"lse is off by {float(off):.1e}"
        assert worst < OUTPUT_TOLERANCE, f"the output is off by {worst:.1e} of its norm"
        return worst

    return Prepared([lambda one=one: call(*one) for one in inputs], check, touched, keep=inputs)  # type: ignore[misc]


def schedule(name: str, pool: Pool, sets: int) -> Prepared:
    b = int(name.removeprefix("schedule_b"))

    def check() -> float:
        ops.schedule(b, 2048, device="cuda").buffer.fill_(-7)
        made = ops.schedule(b, 2048, device="cuda")
        plan = reference_schedule.schedule(reference_schedule.effective_lengths(b, 2048), made.parts)
        np.testing.assert_array_equal(made.records.cpu().numpy(), plan.records())
        np.testing.assert_array_equal(made.num_splits.cpu().numpy(), plan.num_splits)
        return 0.0

    return Prepared([lambda: ops.schedule(b, 2048, device="cuda")], check, by_kernel=True)


def append(name: str, pool: Pool, sets: int) -> Prepared:
    """A decode step's tokens, each to a slot of its own somewhere; or a prefill's, page after page."""
    n = int(name.removeprefix("append_"))
    moved = n * ((512 + 64) * 2 + 8 + ROW)
    inputs = []
    for _ in range(max(2, min(sets, -(-4 * L2_BYTES // moved)))):
        if n < 100_000:
            slots = torch.randperm(pool.pages * PAGE, device="cuda")[:n]
        else:
            pages = torch.randperm(pool.pages, device="cuda")[: n // PAGE, None]
            slots = (pages * PAGE + torch.arange(PAGE, device="cuda")).flatten()
        inputs.append((slots, *latents(n)))

    def check() -> float:
        slots, nope, rope = inputs[0]
        rows = pool.kv.view(-1, ROW)
        rows[slots] = 0xFF
        ops.cache_append(pool.kv, slots, nope, rope)
        ops.check()
        assert torch.equal(rows[slots], quantised(nope, rope)), "the stored bytes differ"
        return 0.0

    calls = [lambda one=one: ops.cache_append(pool.kv, *one) for one in inputs]  # type: ignore[misc]
    return Prepared(calls, check, moved, keep=inputs)


@dataclass(frozen=True)
class Case:
    """``peer_us``: FlashMLA on a card of this kind, copied. ``goal_us``, or what it is computed from: a share of the
    time of another case, or of the copy bandwidth."""

    name: str
    prepare: Callable[[str, Pool, int], Prepared]
    peer_us: float | None = None
    goal_us: float | None = None
    share_of: str | None = None
    share: float = 0.0

    def goal(self, ours: dict[str, float], bytes_moved: int, copy_bytes_per_us: float) -> float | None:
        if self.share_of == "copy":
            return bytes_moved / (self.share * copy_bytes_per_us)
        if self.share_of is not None:
            return self.share * ours[self.share_of] if self.share_of in ours else None
        return self.goal_us


CASES = (
    Case("h128_s1_b1", decode, 17.41, 11),
    Case("h128_s1_b2", decode, 17.08, 11),
    Case("h128_s1_b16", decode, 38.93, 31),
    Case("h128_s1_b64", decode, 93.11, 78),
    Case("h128_s1_b128", decode, 181.78, 150),
    Case("h128_s2_b128", decode, 360.59, 295),
    Case("h64_s1_b1", decode, 18.11, 11),
    Case("h64_s1_b16", decode, 29.80, 24),
    Case("h64_s1_b128", decode, 113.53, 100),
    Case("h128_s1_b2_k128", decode, 10.66, 7),
    Case("h128_s1_b128_k512", decode, 57.66, 50),
    Case("h16_s1_b128", decode, share_of="h64_s1_b128", share=0.6),
    Case("schedule_b1", schedule, 12.9, 3),
    Case("schedule_b128", schedule, 20.9, 4),
    Case("schedule_b512", schedule, 36.1, 6),
    Case("append_4096", append, goal_us=5),
    Case("append_262144", append, share_of="copy", share=0.7),
)


def chosen(names: list[str]) -> Iterator[Case]:
    """The cases of these names, all for none; ``ValueError`` for a name that does not exist."""
    unknown = sorted(set(names) - {case.name for case in CASES})
    if unknown:
        raise ValueError(f"there is no case {unknown[0]}: choose from {', '.join(case.name for case in CASES)}")
    return (case for case in CASES if not names or case.name in names)
