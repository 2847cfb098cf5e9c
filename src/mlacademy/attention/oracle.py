"""Attention in float64: the answers everything else is measured against.

Three functions, one formula. For a query row with valid tokens T, keys k and values v,

    x_j = softmax_scale · q·k_j        lse = ln Σ_{j∈T} e^{x_j}        out = Σ_{j∈T} e^{x_j − lse} · v_j

They differ in how a row finds its tokens: `sparse_decode` through a list of slots into an FP8 cache, `dense_decode`
through a block table and a length, `sparse_prefill` through a list of rows of one flat bf16 tensor.

Shared rules. `lse` is natural. A row without a valid token gives `out = 0`, `lse = +inf`. An attention sink multiplies
`out` by `e^lse / (e^lse + e^sink)` and never enters `lse`. What stands in slots that no list names (NaN included) does
not matter. Results are float64 whatever the inputs were.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mlacademy.attention import checks
from mlacademy.cache import CacheLayout, gather
from mlacademy.softmax import apply_sink

_PREFILL_ROWS = 16  # query rows at a time: bounds the gathered float64 keys to 16 · topk · d_qk · 8 bytes


def sparse_decode(
    q: Tensor,
    cache: Tensor,
    indices: Tensor,
    *,
    layout: CacheLayout,
    softmax_scale: float,
    topk_length: Tensor | None = None,
    extra_cache: Tensor | None = None,
    extra_indices: Tensor | None = None,
    extra_topk_length: Tensor | None = None,
    attn_sink: Tensor | None = None,
    kernel_limits: bool = False,
) -> tuple[Tensor, Tensor]:
    """Attend each query row to the cached tokens its index list names.

    Args:
        q: [b, s_q, h_q, d_qk] float; the absorbed queries.
        cache: bytes [num_pages, page, 1, layout.bytes_per_token], any page size (`cache.new_cache`).
        indices: int32 [b, s_q, topk] physical slots; exactly −1 is a hole. A slot named twice counts twice.
        layout: `cache.V32` (V = the first 512 of 576 dims) or `cache.MODEL1` (V = all 512 dims).
        softmax_scale: multiplies q·k, natural units. No default: DeepSeek's is not d_qk^-0.5.
        topk_length: int32 [b], 0 … topk; places at or beyond it are holes whatever they hold.
        extra_cache, extra_indices, extra_topk_length: a second cache of the same layout with its own page size, lists
            and lengths; its tokens join the same softmax.
        attn_sink: float32 [h_q], natural-log units, ±inf allowed.
        kernel_limits: also refuse what only the GPU kernels refuse (see `attention.checks`).
    Returns: out float64 [b, s_q, h_q, d_v], lse float64 [b, h_q, s_q].
    Raises: TypeError or ValueError naming the argument.
    """
    main, extra = checks.sparse_sources(
        q,
        cache,
        indices,
        layout=layout,
        softmax_scale=softmax_scale,
        topk_length=topk_length,
        extra_cache=extra_cache,
        extra_indices=extra_indices,
        extra_topk_length=extra_topk_length,
        attn_sink=attn_sink,
        kernel_limits=kernel_limits,
    )
    b, s_q, h_q, _ = q.shape
    out = torch.empty(b, s_q, h_q, layout.d_v, dtype=torch.float64)
    lse = torch.empty(b, s_q, h_q, dtype=torch.float64)
    for request in range(b):
        keys, valid = [], []
        for source in (main, extra):
            if source is not None:
                slots = source.slots[request]
                keys.append(gather(source.cache, slots, layout).double())
                valid.append(slots != -1)
        k = torch.cat(keys, dim=1)
        out[request], lse[request], _ = _attend(
            q[request].double(), k, k[..., : layout.d_v], torch.cat(valid, dim=1)[:, None], softmax_scale
        )
    if attn_sink is not None:
        out = apply_sink(out, lse, attn_sink)
    return out, lse.transpose(1, 2)


def dense_decode(
    q: Tensor,
    k_cache: Tensor,
    block_table: Tensor,
    cache_seqlens: Tensor,
    *,
    softmax_scale: float,
    d_v: int = 512,
    causal: bool = False,
    kernel_limits: bool = False,
) -> tuple[Tensor, Tensor]:
    """Attend each query row to its request's whole context, read page by page.

    Args:
        q: [b, s_q, h_q, d_qk] bf16 or fp16 for the kernel; any float here.
        k_cache: [num_pages, page, h_k, d_qk], q's dtype; V is the first `d_v` of each key. h_q is a multiple of h_k;
            query head h reads KV head h // (h_q / h_k).
        block_table: int32 [b, max_pages]; entries past the context may hold anything.
        cache_seqlens: int32 [b] tokens in each context, 0 allowed.
        causal: align the triangle at the bottom right: row i of s_q sees the first `seqlen − s_q + i + 1` tokens. It
            changes nothing when s_q = 1.
        kernel_limits: also require page 64, d_qk 576, d_v 512 and bf16 or fp16.
    Returns: out float64 [b, s_q, h_q, d_v], lse float64 [b, h_q, s_q].
    """
    checks.scale(softmax_scale)
    checks.floating("k_cache", k_cache)
    if k_cache.dim() != 4:
        raise ValueError(f"k_cache must be [num_pages, page, h_k, d_qk]: got {list(k_cache.shape)}")
    num_pages, page, h_k, d_qk = k_cache.shape
    checks.query(q, d_qk, "[b, s_q, h_q, d_qk]", 4)
    b, s_q, h_q, _ = q.shape
    if q.dtype != k_cache.dtype:
        raise TypeError(f"q and k_cache must have one dtype: q is {q.dtype}, k_cache {k_cache.dtype}")
    if h_k < 1 or h_q % h_k:
        raise ValueError(f"h_q must be a multiple of h_k: got h_q = {h_q}, h_k = {h_k}")
    if not 1 <= d_v <= d_qk:
        raise ValueError(f"d_v must lie in 1 … d_qk = {d_qk}: got {d_v}")
    if kernel_limits:
        _dense_kernel_limits(q, page, d_v)
    checks.integer("cache_seqlens", cache_seqlens, (b,), "[b]")
    if not isinstance(block_table, Tensor) or block_table.dim() != 2:
        raise ValueError("block_table must be an int32 tensor [b, max_pages]")
    checks.integer("block_table", block_table, (b, block_table.shape[1]), "[b, max_pages]")

    out = torch.empty(b, s_q, h_q, d_v, dtype=torch.float64)
    lse = torch.empty(b, h_q, s_q, dtype=torch.float64)
    for request in range(b):
        n = int(cache_seqlens[request])
        k = _context(k_cache, block_table[request], n, request, num_pages).permute(1, 0, 2)  # [h_k, n, d_qk]
        rows = q[request].double().view(s_q, h_k, h_q // h_k, d_qk).permute(1, 2, 0, 3)  # [h_k, h_q/h_k, s_q, d_qk]
        seen = n - s_q + 1 + torch.arange(s_q) if causal and s_q > 1 else torch.full((s_q,), n)
        valid = torch.arange(n) < seen[:, None]
        o, row_lse, _ = _attend(rows, k[:, None], k[:, None, :, :d_v], valid, softmax_scale)
        out[request] = o.permute(2, 0, 1, 3).reshape(s_q, h_q, d_v)
        lse[request] = row_lse.reshape(h_q, s_q)
    return out, lse


def sparse_prefill(
    q: Tensor,
    kv: Tensor,
    indices: Tensor,
    *,
    softmax_scale: float,
    d_v: int = 512,
    attn_sink: Tensor | None = None,
    topk_length: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Attend each query row to rows of one flat key tensor; there is no batch axis and there are no pages.

    Args:
        q: [s_q, h_q, d_qk]; kv: [s_kv, 1, d_qk], V is the first `d_v` dims.
        indices: int32 [s_q, 1, topk] rows of kv. A hole is any value below 0 or at or above s_kv (unlike decode, where
            only −1 is one), and every place at or beyond the row's length.
        attn_sink: float32 [h_q] or None; topk_length: int32 [s_q], 0 … topk, or None.
    Returns: out float64 [s_q, h_q, d_v], max_logits float64 [s_q, h_q] (the largest x_j; −inf for an empty row),
        lse float64 [s_q, h_q].
    """
    checks.scale(softmax_scale)
    checks.floating("kv", kv)
    if kv.dim() != 3 or kv.shape[1] != 1:
        raise ValueError(f"kv must be [s_kv, 1, d_qk]: got {list(kv.shape)}")
    s_kv, _, d_qk = kv.shape
    checks.query(q, d_qk, "[s_q, h_q, d_qk]", 3)
    s_q, h_q, _ = q.shape
    checks.sink(attn_sink, h_q)
    if not 1 <= d_v <= d_qk:
        raise ValueError(f"d_v must lie in 1 … d_qk = {d_qk}: got {d_v}")
    if not isinstance(indices, Tensor) or indices.dim() != 3 or indices.shape[2] < 1:
        got = list(indices.shape) if isinstance(indices, Tensor) else type(indices).__name__
        raise ValueError(f"indices must be [s_q, 1, topk] with topk ≥ 1: got {got}")
    topk = indices.shape[2]
    checks.integer("indices", indices, (s_q, 1, topk), "[s_q, 1, topk]")
    rows = indices[:, 0]
    valid = (rows >= 0) & (rows < s_kv)
    if topk_length is not None:
        checks.integer("topk_length", topk_length, (s_q,), "[s_q]")
        if bool(((topk_length < 0) | (topk_length > topk)).any()):
            raise ValueError(f"topk_length must lie in 0 … {topk}: got {topk_length.tolist()}")
        valid &= torch.arange(topk) < topk_length[:, None]

    out = torch.zeros(s_q, h_q, d_v, dtype=torch.float64)
    max_logits = torch.full((s_q, h_q), -math.inf, dtype=torch.float64)
    lse = torch.full((s_q, h_q), math.inf, dtype=torch.float64)
    for start in range(0, s_q if s_kv else 0, _PREFILL_ROWS):
        part = slice(start, start + _PREFILL_ROWS)
        safe = torch.where(valid[part], rows[part], 0).long()
        # A hole borrows row 0, whose values (NaN perhaps) must then be wiped, not multiplied by 0.
        k = kv[safe, 0].double().masked_fill_(~valid[part][..., None], 0.0)
        out[part], lse[part], max_logits[part] = _attend(
            q[part].double(), k, k[..., :d_v], valid[part][:, None], softmax_scale
        )
    if attn_sink is not None:
        out = apply_sink(out, lse, attn_sink)
    return out, max_logits, lse


def _attend(q: Tensor, k: Tensor, v: Tensor, valid: Tensor, softmax_scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """Plain softmax attention in float64 over the valid tokens.

    q [..., m, d], k [..., n, d], v [..., n, d_v], valid bool broadcastable to [..., m, n]; values of holes are finite.
    Returns out [..., m, d_v], lse [..., m] and the largest logit [..., m].
    """
    logits = (q @ k.transpose(-1, -2)).mul_(softmax_scale).masked_fill_(~valid, -math.inf)
    nothing = logits.new_full((*logits.shape[:-1], 1), -math.inf)  # so that an empty context has a largest logit too
    largest = torch.cat([logits, nothing], dim=-1).amax(dim=-1)
    empty = largest == -math.inf
    weights = logits.sub_(torch.where(empty, 0.0, largest)[..., None]).exp_()
    total = weights.sum(dim=-1)
    out = (weights @ v) / torch.where(empty, 1.0, total)[..., None]
    return out, torch.where(empty, math.inf, largest + torch.log(total)), largest


def _context(k_cache: Tensor, table: Tensor, n: int, request: int, num_pages: int) -> Tensor:
    """The first `n` tokens of one request in float64, [n, h_k, d_qk], through its row of the block table."""
    page = k_cache.shape[1]
    if not 0 <= n <= table.shape[0] * page:
        raise ValueError(
            f"cache_seqlens must lie in 0 … {table.shape[0] * page} ({table.shape[0]} pages of {page}): "
            f"request {request} has {n}"
        )
    pages = table[: -(-n // page)].long()
    outside = (pages < 0) | (pages >= num_pages)
    if bool(outside.any()):
        at = int(outside.nonzero()[0])
        raise ValueError(
            f"block_table must name pages 0 … {num_pages - 1} within the context: "
            f"block_table[{request}, {at}] is {int(pages[at])}"
        )
    return k_cache[pages].flatten(0, 1)[:n].double()


def _dense_kernel_limits(q: Tensor, page: int, d_v: int) -> None:
    if page != 64:
        raise ValueError(f"k_cache must have pages of 64 tokens for the dense kernel: got {page}")
    if q.shape[-1] != 576 or d_v != 512:
        raise ValueError(f"the dense kernel takes d_qk = 576 and d_v = 512: got {q.shape[-1]} and {d_v}")
    if q.dtype not in (torch.bfloat16, torch.float16):
        raise TypeError(f"q must be bfloat16 or float16 for the dense kernel: got {q.dtype}")
