"""The float64 oracle of dense decode against loops over tokens."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import torch
from decode_cases import loop_attention
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mlacademy.attention import dense_decode

SCALE = 0.2
D_V = 5  # of d_qk = 8


def make(seed: int, lengths: list[int], s_q: int, h_q: int, h_k: int, page: int) -> tuple[Tensor, ...]:
    """q, k_cache full of NaN outside the contexts, block_table with garbage past them, cache_seqlens."""
    generator = torch.Generator().manual_seed(seed)
    most = max(-(-n // page) for n in lengths) + 1
    pages = torch.randperm(len(lengths) * most, generator=generator)
    table = torch.full((len(lengths), most), -77, dtype=torch.int32)
    cache = torch.full((len(pages), page, h_k, 8), math.nan, dtype=torch.bfloat16)
    for r, n in enumerate(lengths):
        for position in range(n):
            table[r, position // page] = pages[r * most + position // page]
            cache[table[r, position // page].item(), position % page] = torch.randn(h_k, 8, generator=generator)
    q = torch.randn(len(lengths), s_q, h_q, 8, generator=generator).bfloat16()
    return q, cache, table, torch.tensor(lengths, dtype=torch.int32)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6),
    st.lists(st.integers(0, 9), min_size=1, max_size=3),
    st.integers(1, 4),
    st.sampled_from([(1, 1), (3, 1), (4, 2), (9, 3), (2, 2)]),
    st.integers(1, 5),
    st.booleans(),
)
def test_every_option_agrees_with_loops_over_tokens(
    seed: int, lengths: list[int], s_q: int, heads: tuple[int, int], page: int, causal: bool
) -> None:
    h_q, h_k = heads
    q, cache, table, seqlens = make(seed, lengths, s_q, h_q, h_k, page)
    # A causal row may hide real tokens; loops leave them out, and so must we.
    out, lse = dense_decode(q, cache, table, seqlens, softmax_scale=SCALE, d_v=D_V, causal=causal)
    for r, n in enumerate(lengths):
        for i in range(s_q):
            seen = max(n - (s_q - 1 - i), 0) if causal and s_q > 1 else n
            for h in range(h_q):
                tokens = [
                    cache[int(table[r, p // page]), p % page, h * h_k // h_q].double().numpy() for p in range(seen)
                ]
                expected, expected_lse, _ = loop_attention(q[r, i, h].double().numpy(), tokens, SCALE, D_V, None)
                # float64 sums of at most 9 products of numbers below 20 each: far below 1e-12 relative
                np.testing.assert_allclose(out[r, i, h].numpy(), expected, rtol=1e-11, atol=1e-12)
                np.testing.assert_allclose(lse[r, h, i].item(), expected_lse, rtol=1e-11, atol=1e-12)


def test_empty_context_gives_zero_output_and_infinite_lse() -> None:
    q, cache, table, seqlens = make(1, [0, 3], 2, 4, 1, 2)
    out, lse = dense_decode(q, cache, table, seqlens, softmax_scale=SCALE, d_v=D_V)
    assert (out[0] == 0).all()
    assert (lse[0] == math.inf).all()
    assert torch.isfinite(lse[1]).all()


def test_causal_changes_nothing_for_one_query_row() -> None:
    q, cache, table, seqlens = make(2, [5], 1, 2, 1, 2)
    free = dense_decode(q, cache, table, seqlens, softmax_scale=SCALE, d_v=D_V)
    causal = dense_decode(q, cache, table, seqlens, softmax_scale=SCALE, d_v=D_V, causal=True)
    assert torch.equal(free[0], causal[0])


def test_causal_rows_before_the_first_token_are_empty() -> None:
    q, cache, table, seqlens = make(3, [2], 4, 1, 1, 2)
    out, lse = dense_decode(q, cache, table, seqlens, softmax_scale=SCALE, d_v=D_V, causal=True)
    assert (lse[0, 0] == math.inf).tolist() == [True, True, False, False]
    assert (out[0, :2] == 0).all()


def test_dense_over_the_picked_tokens_is_the_sparse_answer() -> None:
    # One page of 64 real V3.2 widths, all tokens picked: two oracles, one answer.
    from mlacademy.attention import sparse_decode
    from mlacademy.cache import V32, append, gather, new_cache

    generator = torch.Generator().manual_seed(4)
    fp8 = new_cache(V32, 1, 64)
    keys = torch.randn(64, 576, generator=generator)
    append(fp8, torch.arange(64), keys[:, :512], keys[:, 512:], V32)
    q = torch.randn(1, 1, 2, 576, generator=generator)
    slots = torch.arange(64, dtype=torch.int32)
    sparse = sparse_decode(q, fp8, slots.view(1, 1, 64), layout=V32, softmax_scale=0.05)
    flat = gather(fp8, slots, V32).view(1, 64, 1, 576)
    dense = dense_decode(q, flat, torch.tensor([[0]]), torch.tensor([64]), softmax_scale=0.05, kernel_limits=False)
    torch.testing.assert_close(dense[0], sparse[0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(dense[1], sparse[1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"k_cache": torch.zeros(4, 2, 8)}, ValueError, "k_cache must be [num_pages, page, h_k, d_qk]: got [4, 2, 8]"),
        ({"q": torch.zeros(1, 1, 3, 8).bfloat16()}, ValueError, "h_q must be a multiple of h_k: got h_q = 3, h_k = 2"),
        ({"q": torch.zeros(1, 1, 2, 8)}, TypeError, "q and k_cache must have one dtype"),
        ({"q": torch.zeros(1, 1, 2, 7).bfloat16()}, ValueError, "q must have d_qk = 8 numbers a head here: got 7"),
        ({"d_v": 9}, ValueError, "d_v must lie in 1 … d_qk = 8: got 9"),
        ({"cache_seqlens": torch.tensor([9])}, ValueError, "cache_seqlens must lie in 0 … 8 (4 pages of 2)"),
        ({"cache_seqlens": torch.tensor([-1])}, ValueError, "request 0 has -1"),
        ({"cache_seqlens": torch.tensor([1, 1])}, ValueError, "cache_seqlens must be [b] = [1]: got [2]"),
        ({"cache_seqlens": torch.tensor([1.0])}, TypeError, "cache_seqlens must be an int32 tensor"),
        ({"block_table": torch.tensor([[0, 9, 1, 2]])}, ValueError, "block_table[0, 1] is 9"),
        ({"block_table": torch.tensor([0])}, ValueError, "block_table must be an int32 tensor [b, max_pages]"),
        ({"kernel_limits": True}, ValueError, "k_cache must have pages of 64 tokens for the dense kernel: got 2"),
    ],
)
def test_refuses(change: dict[str, object], kind: type[Exception], message: str) -> None:
    q, cache, table, seqlens = make(5, [5], 1, 2, 2, 2)
    call = {
        "q": q,
        "k_cache": cache,
        "block_table": table,
        "cache_seqlens": seqlens,
        "softmax_scale": SCALE,
        "d_v": D_V,
    }
    with pytest.raises(kind, match=re.escape(message)):
        dense_decode(**(call | change))


def test_kernel_limits_name_width_and_dtype() -> None:
    def call(d_qk: int, dtype: torch.dtype) -> object:
        q, cache = torch.zeros(1, 1, 1, d_qk, dtype=dtype), torch.zeros(1, 64, 1, d_qk, dtype=dtype)
        table, seqlens = torch.zeros(1, 1, dtype=torch.int32), torch.ones(1, dtype=torch.int32)
        return dense_decode(q, cache, table, seqlens, softmax_scale=1.0, kernel_limits=True)

    with pytest.raises(ValueError, match="the dense kernel takes d_qk = 576 and d_v = 512: got 512 and 512"):
        call(512, torch.bfloat16)
    with pytest.raises(TypeError, match="q must be bfloat16 or float16 for the dense kernel"):
        call(576, torch.float32)
    call(576, torch.float16)
