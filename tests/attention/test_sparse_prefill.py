"""The float64 oracle of sparse prefill against loops over rows."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import torch
from decode_cases import SINKS, loop_attention
from hypothesis import given, settings
from hypothesis import strategies as st

from mlacademy.attention import sparse_prefill

SCALE, D_V = 0.2, 5
GARBAGE = (-(2**31), -123456, -1, 114514, 1919810, 2**30, 2**31 - 1)


def make(seed: int, s_q: int, s_kv: int, topk: int, sink: str = "none", lengths: bool = False) -> dict[str, object]:
    """A call whose lists hold every kind of invalid index, and whose kv is NaN where no valid entry points."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randint(-3, s_kv + 3, (s_q, topk), generator=generator, dtype=torch.int32)
    wild = torch.rand(s_q, topk, generator=generator) < 0.2
    rows[wild] = torch.tensor(GARBAGE, dtype=torch.int32)[torch.randint(0, len(GARBAGE), (int(wild.sum()),))]
    limit = torch.full((s_q,), topk, dtype=torch.int32)
    if lengths:
        limit = torch.randint(0, topk + 1, (s_q,), generator=generator, dtype=torch.int32)
    used = [r for row, n in zip(rows.tolist(), limit.tolist(), strict=True) for r in row[:n] if 0 <= r < s_kv]
    kv = torch.full((s_kv, 1, 8), math.nan, dtype=torch.bfloat16)
    kv[used] = torch.randn(len(used), 1, 8, generator=generator).bfloat16()
    call = {"q": torch.randn(s_q, 2, 8, generator=generator).bfloat16(), "kv": kv, "indices": rows[:, None]}
    if sink != "none":
        call["attn_sink"] = torch.tensor([0.3, {"values": -1.0, "plus infinity": math.inf}.get(sink, -math.inf)])
    if lengths:
        call["topk_length"] = limit
    return call | {"softmax_scale": SCALE, "d_v": D_V}


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(1, 20),
    st.integers(0, 9),
    st.integers(1, 7),
    st.sampled_from(SINKS),
    st.booleans(),
)
def test_every_option_agrees_with_loops_over_rows(
    seed: int, s_q: int, s_kv: int, topk: int, sink: str, lengths: bool
) -> None:
    call = make(seed, s_q, s_kv, topk, sink, lengths)
    out, max_logits, lse = sparse_prefill(**call)
    for i in range(s_q):
        n = int(call["topk_length"][i]) if lengths else topk
        rows = [r for r in call["indices"][i, 0, :n].tolist() if 0 <= r < s_kv]
        tokens = [call["kv"][r, 0].double().numpy() for r in rows]
        for h in range(2):
            q = call["q"][i, h].double().numpy()
            head_sink = None if sink == "none" else float(call["attn_sink"][h])
            expected, expected_lse, _ = loop_attention(q, tokens, SCALE, D_V, head_sink)
            top = max((SCALE * float(q @ token) for token in tokens), default=-math.inf)
            # float64 sums of at most 8 products of numbers below 20 each: far below 1e-12 relative
            np.testing.assert_allclose(out[i, h].numpy(), expected, rtol=1e-11, atol=1e-12)
            np.testing.assert_allclose(lse[i, h].item(), expected_lse, rtol=1e-11, atol=1e-12)
            np.testing.assert_allclose(max_logits[i, h].item(), top, rtol=1e-11, atol=1e-12)


def test_row_without_a_valid_index_gives_zero_output_infinite_lse_and_no_largest_logit() -> None:
    call = make(1, 2, 4, 3)
    call["indices"][1] = torch.tensor([-1, 4, -5])
    out, max_logits, lse = sparse_prefill(**call)
    assert (out[1] == 0).all()
    assert (lse[1] == math.inf).all()
    assert (max_logits[1] == -math.inf).all()


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"kv": torch.zeros(4, 2, 8)}, ValueError, "kv must be [s_kv, 1, d_qk]: got [4, 2, 8]"),
        ({"kv": torch.zeros(4, 1, 8, dtype=torch.int8)}, TypeError, "kv must be bfloat16, float16, float32 or float64"),
        ({"q": torch.zeros(1, 2, 2, 8)}, ValueError, "q must be [s_q, h_q, d_qk]: got [1, 2, 2, 8]"),
        ({"indices": torch.zeros(2, 3, dtype=torch.int32)}, ValueError, "indices must be [s_q, 1, topk] with topk ≥ 1"),
        (
            {"indices": torch.zeros(3, 1, 3, dtype=torch.int32)},
            ValueError,
            "indices must be [s_q, 1, topk] = [2, 1, 3]",
        ),
        ({"topk_length": torch.tensor([4, 0])}, ValueError, "topk_length must lie in 0 … 3: got [4, 0]"),
        ({"topk_length": torch.tensor([1])}, ValueError, "topk_length must be [s_q] = [2]: got [1]"),
        ({"attn_sink": torch.zeros(1)}, ValueError, "attn_sink must have one logit a head, [2]: got [1]"),
        ({"d_v": 0}, ValueError, "d_v must lie in 1 … d_qk = 8: got 0"),
        ({"softmax_scale": -1.0}, ValueError, "softmax_scale must be finite and above 0: got -1.0"),
    ],
)
def test_refuses(change: dict[str, object], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=re.escape(message)):
        sparse_prefill(**(make(2, 2, 4, 3) | change))
