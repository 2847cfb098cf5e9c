"""Which cached tokens one query attends to: score, pick, translate, pad, mask.

DeepSeek sparse attention never looks at the whole context. A small scorer, the lightning indexer, gives every cached
token one number; the `topk` best positions are picked; each position goes through the request's block table and
becomes a *slot*, the token's physical place in the pool of pages that all requests share:

    indexer_logits  →  topk_positions  →  to_slots  →  pad_indices  →  the attention kernel (`mlacademy.attention`)

A *position* counts the tokens of one request (0 is its first token). A *slot* is `page_index * page + offset` and says
nothing about which request owns it. −1 is a hole in either list: nothing to attend to here.

Left out on purpose: the projections that make the indexer's q, k and weights, and causal masking (a decode step's
queries carry their own lists, so there is nothing left to mask).
"""

from __future__ import annotations

import torch
from torch import Tensor

HOLE = -1
"""The only value that marks a hole in a list of positions or slots."""

SLOT_MULTIPLE = 64
"""The kernels walk an index list 64 entries at a time, so its length is a multiple of 64."""

_INT_TYPES = (torch.int32, torch.int64)
_INT32_MAX = 2**31 - 1
_CHUNK = 4096  # keys scored at a time: keeps the [s, heads, keys] products of a 64-head indexer within about 1 MB a row


def indexer_logits(
    q: Tensor,
    k: Tensor,
    weights: Tensor,
    *,
    k_scales: Tensor | None = None,
    starts: Tensor | None = None,
    ends: Tensor | None = None,
) -> Tensor:
    """Score every cached token for every query: `out[i, j] = Σ_h weights[i, h] · relu(q[i, h] · k[j] · k_scales[j])`.

    Args:
        q: [s, heads, d] queries of the indexer (V3.2: 64 heads, d = 128); decoded values, any float dtype.
        k: [n, d] one indexer key a cached token, shared by all heads; decoded values *before* their scale.
        weights: [s, heads], how much each head counts (any sign).
        k_scales: [n] multipliers of the keys, or None for 1.
        starts, ends: int [s] each; query i may see positions `starts[i] ≤ j < ends[i]` (default: all n).
    Returns: float32 [s, n]; −inf where a query may not look (the upstream option `clean_logits`).
    Raises: TypeError or ValueError that names the argument.

    The relu makes a head say "relevant" or nothing, never "irrelevant": with q = [[[1., 0.], [0., 1.]]],
    k = [[3., −2.]] and weights = [[1., 1.]] the score is 3, not 1.
    """
    for name, tensor in (("q", q), ("k", k), ("weights", weights)):
        _require_float(name, tensor)
    if q.dim() != 3 or k.dim() != 2 or weights.dim() != 2:
        raise ValueError(
            "q is [s, heads, d], k is [n, d] and weights is [s, heads]: "
            f"got {_shape(q)}, {_shape(k)} and {_shape(weights)}"
        )
    s, heads, d = q.shape
    n = k.shape[0]
    if k.shape[1] != d:
        raise ValueError(f"q and k must agree on d: q has {d}, k has {k.shape[1]}")
    if weights.shape != (s, heads):
        raise ValueError(f"weights must have one number a query and head, [{s}, {heads}]: got {_shape(weights)}")
    if k_scales is not None:
        _require_float("k_scales", k_scales)
        if k_scales.shape != (n,):
            raise ValueError(f"k_scales must have one multiplier a key, [{n}]: got {_shape(k_scales)}")
    first = _bounds("starts", starts, s, n, 0)
    stop = _bounds("ends", ends, s, n, n)

    rows, w = q.float().reshape(s * heads, d), weights.float()
    logits = torch.empty(s, n, dtype=torch.float32)
    for begin in range(0, n, _CHUNK):
        end = min(begin + _CHUNK, n)
        dots = rows @ k[begin:end].float().T
        if k_scales is not None:
            dots *= k_scales[begin:end].float()
        logits[:, begin:end] = torch.bmm(w[:, None, :], dots.relu_().view(s, heads, end - begin))[:, 0]
    position = torch.arange(n)
    seen = (position >= first[:, None]) & (position < stop[:, None])
    return logits.masked_fill_(~seen, float("-inf"))


def topk_positions(scores: Tensor, k: int, lengths: Tensor | int | None = None) -> Tensor:
    """Pick the `k` best-scored positions of each row, best first.

    Equal scores are taken in order of position (earlier first), so the answer never depends on the machine. A position
    at or beyond the row's length, or with score −inf, is never picked; places that stay empty hold −1, at the end.

    Args:
        scores: [..., n] float.
        k: how many to pick, ≥ 1 (it may exceed n).
        lengths: tokens in the context, 0 … n: one int, or int [...] of the rows' leading axes ([b] fits [b, s_q, n]).
    Returns: int32 [..., k] positions.
    Raises: ValueError for NaN scores (inside the length), k < 1, or lengths out of range.

    >>> topk_positions(torch.tensor([0.5, 2.0, 0.5, 9.0]), 4, lengths=3).tolist()
    [1, 0, 2, -1]
    """
    _require_float("scores", scores)
    if scores.dim() < 1:
        raise ValueError("scores must have a last axis of positions: got a scalar")
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise ValueError(f"k must be a whole number ≥ 1: got {k!r}")
    n = scores.shape[-1]
    ranked = scores
    if lengths is not None:
        inside = torch.arange(n) < _row_lengths(lengths, scores, n)
        ranked = scores.masked_fill(~inside, float("-inf"))
    nan = torch.isnan(ranked)
    if bool(nan.any()):
        raise ValueError(f"scores must not be NaN inside the length: first at index {nan.nonzero()[0].tolist()}")

    best = torch.sort(ranked, dim=-1, descending=True, stable=True)
    picked = best.indices[..., :k].masked_fill(best.values[..., :k] == float("-inf"), HOLE).to(torch.int32)
    if k > n:
        picked = torch.nn.functional.pad(picked, (0, k - n), value=HOLE)
    return picked


def to_slots(positions: Tensor, block_table: Tensor, page: int) -> Tensor:
    """Translate logical positions into physical slots: `block_table[r, p // page] * page + p % page`; −1 stays −1.

    Args:
        positions: int [b, ...] positions of each request's own tokens, or any shape for one request.
        block_table: int [b, max_pages] page indices of each request in order, or [max_pages] for one request.
            Entries that no position needs may hold anything.
        page: tokens a page, any whole number ≥ 1.
    Returns: int32, shape of `positions`.
    Raises: ValueError for a position below −1 or past the request's table, a table entry it needs that is negative, or
        a slot beyond int32.

    >>> to_slots(torch.tensor([0, 65, -1]), torch.tensor([7, 3]), 64).tolist()    # page 7 first, then page 3
    [448, 193, -1]
    """
    _require_int("positions", positions)
    _require_int("block_table", block_table)
    if isinstance(page, bool) or not isinstance(page, int) or page < 1:
        raise ValueError(f"page must be a whole number of tokens ≥ 1: got {page!r}")
    if block_table.dim() == 1:
        return to_slots(positions[None], block_table[None], page)[0]
    if block_table.dim() != 2:
        raise ValueError(f"block_table must be [b, max_pages] or [max_pages]: got {_shape(block_table)}")
    if positions.dim() < 1 or positions.shape[0] != block_table.shape[0]:
        raise ValueError(
            f"positions and block_table must agree on b: positions is {_shape(positions)}, "
            f"block_table has {block_table.shape[0]} rows"
        )
    flat = positions.reshape(positions.shape[0], -1).long()
    limit = block_table.shape[1] * page
    outside = (flat < HOLE) | (flat >= limit)
    if bool(outside.any()):
        request, at = outside.nonzero()[0].tolist()
        raise ValueError(
            f"positions must be −1 (a hole) or 0 … {limit - 1} ({block_table.shape[1]} pages of {page}): "
            f"request {request} asks for {int(flat[request, at])}. Is it a slot already?"
        )
    valid = flat != HOLE
    which = torch.where(valid, flat // page, 0)
    pages = block_table.long().gather(1, which) if limit else torch.zeros_like(flat)
    unset = valid & (pages < 0)
    if bool(unset.any()):
        request, at = unset.nonzero()[0].tolist()
        raise ValueError(
            f"block_table has no page for position {int(flat[request, at])} of request {request}: "
            f"entry {int(which[request, at])} is {int(pages[request, at])}. Was the page allocated?"
        )
    slots = torch.where(valid, pages * page + flat % page, HOLE)
    if bool((slots > _INT32_MAX).any()):
        raise ValueError(
            f"slots must fit in int32, as the kernels read them: page {int(pages.max())} of {page} tokens does not"
        )
    return slots.reshape(positions.shape).to(torch.int32)


def pad_indices(indices: Tensor, multiple: int = SLOT_MULTIPLE) -> Tensor:
    """Append holes until the last axis is a multiple of `multiple`: int [..., n] → [..., ceil(n / multiple)·multiple].

    Raises TypeError for non-integers and ValueError for `multiple` < 1. A list that fits is returned as it is.
    """
    _require_int("indices", indices)
    if isinstance(multiple, bool) or not isinstance(multiple, int) or multiple < 1:
        raise ValueError(f"multiple must be a whole number ≥ 1: got {multiple!r}")
    if indices.dim() < 1:
        raise ValueError("indices must have a last axis: got a scalar")
    missing = -indices.shape[-1] % multiple
    return torch.nn.functional.pad(indices, (0, missing), value=HOLE) if missing else indices


def mask_of(indices: Tensor, topk_length: Tensor | None = None) -> Tensor:
    """Which entries of an index list count: bool, shape of `indices` ([b, ..., topk]).

    An entry is a hole when it is exactly −1 or stands at place `topk_length[r]` or later, whatever it contains there.
    Any other value counts as a token; `check_slots` says whether it is one.

    Args:
        indices: int [b, ..., topk].
        topk_length: int [b], 0 … topk, or None for the whole list.

    >>> mask_of(torch.tensor([[5, -1, 7, 9]]), torch.tensor([3])).tolist()
    [[True, False, True, False]]
    """
    _require_int("indices", indices)
    valid = indices != HOLE
    if topk_length is None:
        return valid
    lengths = _list_lengths("topk_length", topk_length, indices)
    return valid & (torch.arange(indices.shape[-1]) < lengths)


def check_slots(indices: Tensor, num_slots: int, topk_length: Tensor | None = None, *, name: str = "indices") -> Tensor:
    """Return `mask_of(indices, topk_length)` after checking that every entry which counts is a slot 0 … num_slots−1.

    The GPU kernels do not check: an entry outside reads memory of somebody else. Here it raises a ValueError that
    names `name`, the place and the value.
    """
    valid = mask_of(indices, topk_length)
    if isinstance(num_slots, bool) or not isinstance(num_slots, int):
        raise TypeError(f"num_slots must be a whole number: got {num_slots!r}")
    outside = valid & ((indices < 0) | (indices >= num_slots))
    if bool(outside.any()):
        where = outside.nonzero()[0].tolist()
        raise ValueError(
            f"{name} must be −1 (a hole) or a slot 0 … {num_slots - 1}: "
            f"{name}{where} is {int(indices[tuple(where)])}. Only −1 marks a hole."
        )
    return valid


def _row_lengths(lengths: Tensor | int, scores: Tensor, n: int) -> Tensor:
    """`lengths` with a last axis of 1, ready to broadcast against `scores`; raises when out of shape or range."""
    if isinstance(lengths, bool) or not isinstance(lengths, int | Tensor):
        raise TypeError(f"lengths must be an int or an integer tensor: got {type(lengths).__name__}")
    if isinstance(lengths, int):
        lengths = torch.tensor(lengths)
    _require_int("lengths", lengths)
    leading = scores.shape[:-1]
    if lengths.shape != leading[: lengths.dim()]:
        raise ValueError(f"lengths must have the leading axes of scores, {list(leading)}: got {_shape(lengths)}")
    _require_range("lengths", lengths, n)
    return lengths.reshape(*lengths.shape, *(1,) * (scores.dim() - lengths.dim()))


def _list_lengths(name: str, lengths: Tensor, indices: Tensor) -> Tensor:
    """Lengths [b] as [b, 1, …, 1] against `indices` [b, ..., topk]."""
    _require_int(name, lengths)
    if indices.dim() < 2 or lengths.shape != indices.shape[:1]:
        raise ValueError(
            f"{name} must have one length a request, [b] for indices [b, ..., topk]: "
            f"got {_shape(lengths)} for indices {_shape(indices)}"
        )
    _require_range(name, lengths, indices.shape[-1])
    return lengths.reshape(-1, *(1,) * (indices.dim() - 1))


def _bounds(name: str, bounds: Tensor | None, s: int, n: int, default: int) -> Tensor:
    if bounds is None:
        return torch.full((s,), default)
    _require_int(name, bounds)
    if bounds.shape != (s,):
        raise ValueError(f"{name} must have one position a query, [{s}]: got {_shape(bounds)}")
    _require_range(name, bounds, n)
    return bounds


def _require_range(name: str, lengths: Tensor, most: int) -> None:
    outside = (lengths < 0) | (lengths > most)
    if bool(outside.any()):
        raise ValueError(f"{name} must lie in 0 … {most}: got {int(lengths[outside].flatten()[0])}")


def _require_float(name: str, tensor: Tensor) -> None:
    if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
        raise TypeError(f"{name} must be a floating-point tensor: got {_kind(tensor)}")


def _require_int(name: str, tensor: Tensor) -> None:
    if not isinstance(tensor, Tensor) or tensor.dtype not in _INT_TYPES:
        raise TypeError(f"{name} must be an int32 or int64 tensor: got {_kind(tensor)}")


def _kind(value: object) -> str:
    return f"a tensor of {value.dtype}" if isinstance(value, Tensor) else type(value).__name__


def _shape(tensor: Tensor) -> list[int]:
    return list(tensor.shape)
