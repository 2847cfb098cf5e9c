"""One decode step at DeepSeek-V3.2's sizes, end to end on a CPU.

Write the contexts into a paged FP8 cache, score all tokens with the indexer, pick the best, translate them to slots,
schedule the blocks over a GPU's partitions, attend in the kernel's arithmetic, and compare with exact answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from mlacademy.attention.blocked import sparse_decode_blocked
from mlacademy.attention.oracle import dense_decode, sparse_decode
from mlacademy.attention.report import Comparison, DecodeReport, Stage, compare
from mlacademy.attention.workload import Request, make_request
from mlacademy.cache import V32, append, new_cache
from mlacademy.config import MLAConfig, deepseek_v32
from mlacademy.fp8 import V32_RULE, decode_e4m3, quantize_tiles
from mlacademy.schedule import effective_lengths, num_sm_parts, schedule
from mlacademy.sparse import indexer_logits, mask_of, pad_indices, to_slots, topk_positions

Progress = Callable[[str, float], None]

_APPEND_TOKENS = 8192  # tokens quantised at a time, which bounds the temporaries


def decode_step(
    *,
    contexts: Sequence[int] = (32_768, 32_768),
    config: MLAConfig | None = None,
    page: int = 64,
    sms: int = 132,
    seed: int = 0,
    progress: Progress | None = None,
) -> DecodeReport:
    """Run one decode step (one new token a request) and report its errors, bytes and times.

    Args:
        contexts: cached tokens of each request, ≥ 1 each; one shorter than topk is padded with holes.
        config: DeepSeek-V3.2 by default; d_qk 576 and d_v 512 are required, because the cache is V3.2's.
        page: tokens a page. The requests' pages lie scattered over one pool, as in a server.
        sms: streaming multiprocessors of the GPU the schedule is made for; 132 is an H100, H800 or H200.
        seed: of the synthetic inputs (`attention.workload`).
        progress: called as `progress(stage, share)` while a stage runs, with share going to 1.
    Returns: a `DecodeReport`; `print` it. Takes seconds, under 2 GB of memory.
    Raises: ValueError naming the argument.
    """
    config = deepseek_v32() if config is None else config
    contexts = tuple(contexts)
    if not contexts or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in contexts):
        raise ValueError(f"contexts must hold one whole number ≥ 1 a request: got {list(contexts)}")
    if (config.d_qk, config.d_v) != (V32.d_qk, V32.d_v) or config.index_topk is None:
        raise ValueError(
            f"config must have d_qk {V32.d_qk}, d_v {V32.d_v} and an indexer: got {config.d_qk}, {config.d_v}, "
            f"index_topk {config.index_topk}"
        )
    clock = _Clock(progress)
    topk, heads = config.index_topk, config.num_attention_heads

    generator = torch.Generator().manual_seed(seed)
    requests = []
    for i, tokens in enumerate(contexts):
        requests.append(make_request(config, tokens, generator))
        clock.tick("make inputs", (i + 1) / len(contexts))
    table, num_pages = _block_table(contexts, page, generator)
    clock.stop("make inputs", f"{sum(contexts):,} latents of {config.d_qk} values")

    cache = new_cache(V32, num_pages, page)
    _write(cache, table, requests, page, clock)
    clock.stop("append to cache", f"{num_pages} pages of {page} tokens, {V32.bytes_per_token} B each")

    positions, index_bytes = _select(requests, topk, clock)
    clock.stop("score and pick", f"{topk:,} best of each context")

    indices = pad_indices(to_slots(positions, table, page))[:, None]
    picked = mask_of(indices)
    plan = schedule(effective_lengths(len(contexts), indices.shape[-1]), num_sm_parts(sms, h_q=heads))
    clock.stop("slots and schedule", f"{plan.used} of {plan.parts} partitions work")

    q = torch.stack([request.q for request in requests])[:, None]
    clock.tick("blocked FP8 decode", 0.0)
    scale = config.softmax_scale
    result = sparse_decode_blocked(
        q, cache, indices, layout=V32, softmax_scale=scale, schedule=plan, out_dtype=torch.bfloat16
    )
    clock.tick("blocked FP8 decode", 1.0)
    clock.stop("blocked FP8 decode", f"{int(picked.sum()):,} tokens × {heads} heads")

    comparisons = _comparisons(result, q, cache, indices, requests, positions, scale, clock)
    kept = torch.cat([_kept_mass(r, p, scale) for r, p in zip(requests, positions, strict=True)])
    clock.tick("compare", 1.0)
    clock.stop("compare", "float64 on FP8, bf16 and unrounded latents")
    return DecodeReport(
        contexts=contexts,
        heads=heads,
        topk=topk,
        stages=tuple(clock.stages),
        comparisons=comparisons,
        cache_bytes=sum(contexts) * V32.bytes_per_token,
        attention_bytes=int(picked.sum()) * V32.bytes_per_token,
        indexer_bytes=index_bytes,
        dense_bf16_bytes=sum(contexts) * config.d_qk * 2,
        kept_mass=(float(kept.min()), float(kept.mean())),
        schedule=plan,
        indices=indices,
        out=result[0],
        lse=result[1],
    )


class _Clock:
    """Times the stages one after another and passes progress on."""

    def __init__(self, progress: Progress | None) -> None:
        self.stages: list[Stage] = []
        self._progress = progress
        self._start = time.perf_counter()

    def tick(self, stage: str, share: float) -> None:
        if self._progress is not None:
            self._progress(stage, share)

    def stop(self, stage: str, note: str) -> None:
        now = time.perf_counter()
        self.stages.append(Stage(stage, now - self._start, note))
        self._start = now


def _block_table(contexts: Sequence[int], page: int, generator: torch.Generator) -> tuple[Tensor, int]:
    """Random pages of one pool: int32 [b, max_pages], −1 where a request needs no more; and the number of pages."""
    needed = [-(-tokens // page) for tokens in contexts]
    shuffled = torch.randperm(sum(needed), generator=generator).to(torch.int32)
    table = torch.full((len(contexts), max(needed)), -1, dtype=torch.int32)
    for row, pages in zip(table, torch.split(shuffled, needed), strict=True):
        row[: len(pages)] = pages
    return table, sum(needed)


def _write(cache: Tensor, table: Tensor, requests: list[Request], page: int, clock: _Clock) -> None:
    total, done = sum(len(request.keys) for request in requests), 0
    for pages, request in zip(table, requests, strict=True):
        slots = to_slots(torch.arange(len(request.keys)), pages, page)
        for start in range(0, len(slots), _APPEND_TOKENS):
            keys = request.keys[start : start + _APPEND_TOKENS]
            append(cache, slots[start : start + len(keys)], keys[:, : V32.d_nope], keys[:, V32.d_nope :], V32)
            done += len(keys)
            clock.tick("append to cache", done / total)


def _select(requests: list[Request], topk: int, clock: _Clock) -> tuple[Tensor, int]:
    """Positions int32 [b, topk] picked by the indexer from FP8 keys, and the bytes of keys and scales that it read."""
    rows, read = [], 0
    for i, request in enumerate(requests):
        key_codes, key_scales = quantize_tiles(request.index_keys, V32_RULE)
        q_codes, q_scales = quantize_tiles(request.index_q, V32_RULE)
        logits = indexer_logits(
            decode_e4m3(q_codes)[None],
            decode_e4m3(key_codes),
            (request.index_weights * q_scales[:, 0])[None],  # a query's scale is positive, so it may leave the relu
            k_scales=key_scales[:, 0],
        )
        rows.append(topk_positions(logits[0], topk))
        read += key_codes.numel() + 4 * key_scales.numel()
        clock.tick("score and pick", (i + 1) / len(requests))
    return torch.stack(rows), read


def _comparisons(
    result: tuple[Tensor, Tensor],
    q: Tensor,
    cache: Tensor,
    indices: Tensor,
    requests: list[Request],
    positions: Tensor,
    scale: float,
    clock: _Clock,
) -> tuple[Comparison, ...]:
    on_fp8 = sparse_decode(q, cache, indices, layout=V32, softmax_scale=scale)
    clock.tick("compare", 0.3)
    on_bf16 = _on_keys(q, [r.keys.bfloat16() for r in requests], positions, scale)
    clock.tick("compare", 0.6)
    exact = _on_keys(q, [r.keys for r in requests], positions, scale)
    clock.tick("compare", 0.9)
    return (
        compare("this step vs float64, same FP8 cache", on_fp8, result),
        compare("this step vs BF16 cache", on_bf16, result),
        compare("this step vs float64, exact latents", exact, result),
        compare("BF16 cache vs float64, exact latents", exact, on_bf16),
    )


def _on_keys(q: Tensor, keys: list[Tensor], positions: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """float64 attention over the picked tokens of un-quantised keys, each request's list packed into one page."""
    results = []
    for row, own, picked in zip(q, keys, positions, strict=True):
        chosen = own[picked[picked >= 0].long()].double()[None, :, None]
        length, table = torch.tensor([chosen.shape[1]]), torch.zeros(1, 1, dtype=torch.int64)
        results.append(dense_decode(row[None].double(), chosen, table, length, softmax_scale=scale))
    outs, lses = zip(*results, strict=True)
    return torch.cat(outs), torch.cat(lses)


def _kept_mass(request: Request, positions: Tensor, scale: float) -> Tensor:
    """Share of the softmax over the whole context that the picked positions hold, [h_q]."""
    weights = torch.softmax(request.q.float() @ request.keys.T * scale, dim=-1)
    return weights[:, positions[positions >= 0].long()].sum(dim=-1)
