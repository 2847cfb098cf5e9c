"""The float64 oracle of sparse decode against loops over bytes, its degenerate rows, and what it refuses."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import torch
from decode_cases import HOLES, SINKS, Case, loop_decode, random_case
from hypothesis import given, settings
from hypothesis import strategies as st

from mlacademy.attention import sparse_decode
from mlacademy.cache import MODEL1, V32, append, new_cache

# Two float64 evaluations of 576 products and at most 400 tokens differ by less than 1e3 · 2^-53 · Σ|q·k|·scale in a
# logit; |q·k|·scale stays below 1e3 here, so logits agree within 1.2e-10 and so do the weights.
CLOSE = {"rtol": 1e-9, "atol": 1e-9}


def agree(case: Case) -> None:
    out, lse = sparse_decode(**case.arguments)
    expected_out, expected_lse, _ = loop_decode(case)
    np.testing.assert_allclose(out.numpy(), expected_out, **CLOSE)
    np.testing.assert_allclose(lse.numpy(), expected_lse, **CLOSE)  # infinities must match exactly
    assert out.dtype == lse.dtype == torch.float64


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([V32, MODEL1]),
    st.integers(0, 10**6),
    st.fixed_dictionaries(
        {
            "b": st.integers(1, 2),
            "s_q": st.integers(1, 2),
            "h_q": st.integers(1, 3),
            "topk": st.integers(1, 20),
            "page": st.sampled_from([1, 2, 53, 61, 64]),
            "holes": st.sampled_from(HOLES),
            "lengths": st.booleans(),
            "sink": st.sampled_from(SINKS),
            "extra_topk": st.integers(0, 9),
            "extra_page": st.integers(1, 7),
            "extra_lengths": st.booleans(),
        }
    ),
)
def test_every_option_agrees_with_loops_over_bytes(layout: object, seed: int, options: dict[str, object]) -> None:
    agree(random_case(layout, seed, **options))


@pytest.mark.parametrize("holes", HOLES)
def test_holes_anywhere_agree_with_loops_over_bytes(holes: str) -> None:
    agree(random_case(V32, 3, topk=130, s_q=2, holes=holes))


@pytest.mark.parametrize("sink", SINKS)
def test_empty_row_gives_zero_output_and_infinite_lse(sink: str) -> None:
    case = random_case(MODEL1, 4, holes="all", sink=sink)
    out, lse = sparse_decode(**case.arguments)
    assert (out == 0).all()
    assert (lse == math.inf).all()


def test_length_zero_gives_zero_output_and_infinite_lse() -> None:
    case = random_case(V32, 5, holes="none")
    case.arguments["topk_length"] = torch.tensor([0, 64], dtype=torch.int32)
    out, lse = sparse_decode(**case.arguments)
    assert (out[0] == 0).all()
    assert (lse[0] == math.inf).all()
    assert torch.isfinite(lse[1]).all()


def test_length_zero_with_extra_tokens_attends_to_the_extra_tokens() -> None:
    case = random_case(MODEL1, 6, holes="none", extra_topk=4)
    case.arguments["topk_length"] = torch.zeros(2, dtype=torch.int32)
    a = case.arguments
    alone = sparse_decode(a["q"], a["extra_cache"], a["extra_indices"], layout=MODEL1, softmax_scale=0.0442)
    both = sparse_decode(**a)
    assert torch.equal(both[0], alone[0])
    assert torch.equal(both[1], alone[1])


def test_sink_never_enters_lse() -> None:
    case = random_case(V32, 7, sink="values")
    with_sink = sparse_decode(**case.arguments)
    sink = case.arguments.pop("attn_sink")
    without = sparse_decode(**case.arguments)
    assert torch.equal(with_sink[1], without[1])
    share = 1 / (1 + torch.exp(sink.double() - without[1].transpose(1, 2)))
    torch.testing.assert_close(with_sink[0], without[0] * share[..., None], **CLOSE)


def test_sink_of_plus_infinity_gives_zero_and_of_minus_infinity_changes_nothing() -> None:
    case = random_case(V32, 8, h_q=2)
    plain = sparse_decode(**case.arguments)[0]
    case.arguments["attn_sink"] = torch.tensor([math.inf, -math.inf])
    out = sparse_decode(**case.arguments)[0]
    assert (out[:, :, 0] == 0).all()
    assert torch.equal(out[:, :, 1], plain[:, :, 1])


def test_a_slot_named_twice_counts_twice() -> None:
    cache = new_cache(V32, 1, 4)
    append(cache, torch.tensor([0, 1]), torch.tensor([[1.0], [4.0]]).expand(2, 512), torch.zeros(2, 64), V32)
    q = torch.zeros(1, 1, 1, 576)  # every token gets the same weight
    for lists, mean in (([0, 1], 2.5), ([0, 1, 1], 3.0), ([0, 0, 0, 1], 1.75)):
        out, lse = sparse_decode(q, cache, torch.tensor([[lists]]), layout=V32, softmax_scale=1.0)
        assert out.flatten().tolist() == pytest.approx([mean] * 512)
        assert lse.item() == pytest.approx(math.log(len(lists)))


def test_rows_of_one_request_use_their_own_lists() -> None:
    case = random_case(V32, 9, s_q=2, holes="none")
    out, _ = sparse_decode(**case.arguments)
    a = case.arguments
    second = sparse_decode(a["q"][:, 1:], a["cache"], a["indices"][:, 1:], layout=V32, softmax_scale=0.0442)[0]
    torch.testing.assert_close(out[:, 1:], second, **CLOSE)


def test_cache_typed_as_float8_means_the_same_bytes() -> None:
    case = random_case(V32, 10)
    plain = sparse_decode(**case.arguments)
    case.arguments["cache"] = case.arguments["cache"].view(torch.float8_e4m3fn)
    assert torch.equal(sparse_decode(**case.arguments)[0], plain[0])


def test_inputs_need_not_be_contiguous_and_are_left_alone() -> None:
    case = random_case(V32, 11, h_q=4)
    plain = sparse_decode(**case.arguments)
    a = case.arguments
    wide = torch.full((2, 1, 8, 576), math.nan, dtype=torch.bfloat16)
    wide[:, :, ::2] = a["q"]
    lists = torch.full((2, 1, 128), 10**6, dtype=torch.int32)
    lists[..., ::2] = a["indices"]
    a["q"], a["indices"] = wide[:, :, ::2], lists[..., ::2]
    before = a["cache"].clone(), a["indices"].clone()
    assert torch.equal(sparse_decode(**a)[0], plain[0])
    assert torch.equal(a["cache"], before[0])
    assert torch.equal(a["indices"], before[1])


# ---------------------------------------------------------------- refusals


REFUSED = [
    ({"q": torch.zeros(2, 3, 576)}, ValueError, "q must be [b, s_q, h_q, d_qk]: got [2, 3, 576]"),
    ({"q": torch.zeros(2, 1, 3, 512)}, ValueError, "q must have d_qk = 576 numbers a head here: got 512"),
    ({"q": torch.zeros(2, 1, 0, 576)}, ValueError, "q must not be empty"),
    ({"q": torch.zeros(2, 1, 3, 576, dtype=torch.int32)}, TypeError, "q must be bfloat16, float16, float32 or float64"),
    ({"q": None}, TypeError, "q must be a torch tensor: got NoneType"),
    ({"layout": "V3.2"}, TypeError, "layout must be a CacheLayout such as cache.V32 or cache.MODEL1: got str"),
    ({"layout": MODEL1}, ValueError, "q must have d_qk = 512 numbers a head here: got 576"),
    ({"softmax_scale": 0.0}, ValueError, "softmax_scale must be finite and above 0: got 0.0"),
    ({"softmax_scale": math.nan}, ValueError, "softmax_scale must be finite and above 0: got nan"),
    ({"softmax_scale": None}, TypeError, "softmax_scale must be a number: got NoneType"),
    ({"cache": torch.zeros(9, 5, 1, 584, dtype=torch.uint8)}, ValueError, "cache must be [num_pages, page, 1, 656]"),
    ({"cache": torch.zeros(9, 5, 2, 656, dtype=torch.uint8)}, ValueError, "cache must have one KV head"),
    ({"cache": torch.zeros(9, 5, 1, 656)}, TypeError, "cache must hold bytes (uint8, int8 or float8_e4m3fn)"),
    ({"indices": torch.zeros(2, 64, dtype=torch.int32)}, ValueError, "indices must be [b, s_q, topk] with topk ≥ 1"),
    ({"indices": torch.zeros(2, 1, 0, dtype=torch.int32)}, ValueError, "indices must be [b, s_q, topk] with topk ≥ 1"),
    ({"indices": torch.zeros(2, 2, 4, dtype=torch.int32)}, ValueError, "indices must be [b, s_q, topk] = [2, 1, 4]"),
    ({"indices": torch.zeros(2, 1, 4)}, TypeError, "indices must be an int32 tensor (int64 is taken too)"),
    ({"indices": torch.tensor([[[0]], [[45]]])}, ValueError, "indices must be −1 (a hole) or a slot 0 … 44"),
    ({"indices": torch.tensor([[[-2]], [[0]]])}, ValueError, "indices[0, 0, 0] is -2. Only −1 marks a hole"),
    (
        {"topk_length": torch.tensor([65, 0])},
        ValueError,
        "topk_length must lie in 0 … 64 (the width of indices): got 65",
    ),
    ({"topk_length": torch.tensor([-1, 0])}, ValueError, "topk_length must lie in 0 … 64"),
    ({"topk_length": torch.tensor([[1], [2]])}, ValueError, "topk_length must be [b] = [2]: got [2, 1]"),
    ({"extra_cache": torch.zeros(1, 1, 1, 656)}, ValueError, "extra_cache was given without extra_indices"),
    ({"extra_indices": torch.zeros(2, 1, 4)}, ValueError, "extra_indices was given without extra_cache"),
    ({"extra_topk_length": torch.tensor([1, 1])}, ValueError, "extra_topk_length was given without extra_indices"),
    ({"attn_sink": torch.zeros(4)}, ValueError, "attn_sink must have one logit a head, [3]: got [4]"),
    ({"attn_sink": torch.tensor([0, math.nan, 0])}, ValueError, "attn_sink must not be NaN"),
]


@pytest.mark.parametrize(("change", "kind", "message"), REFUSED)
def test_refuses(change: dict[str, object], kind: type[Exception], message: str) -> None:
    case = random_case(V32, 12)
    assert case.arguments["cache"].shape == (9, 5, 1, 656)
    with pytest.raises(kind, match=re.escape(message)):
        sparse_decode(**(case.arguments | change))


def test_slots_are_checked_in_the_extra_cache_by_its_own_size() -> None:
    case = random_case(MODEL1, 13, extra_topk=4, extra_page=2)
    case.arguments["extra_indices"][1, 0, 2] = 42
    with pytest.raises(ValueError, match=re.escape("slot 0 … 41: extra_indices[1, 0, 2] is 42")):
        sparse_decode(**case.arguments)


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({}, ValueError, "h_q must be 64 or 128 for the kernels: got 3. Pad the heads with zeros"),
        ({"q": torch.zeros(2, 1, 64, 576)}, TypeError, "q must be bfloat16 for the kernels"),
        (
            {"q": torch.zeros(2, 1, 64, 576, dtype=torch.bfloat16), "indices": torch.full((2, 1, 65), -1)},
            ValueError,
            "indices must have a multiple of 64 entries a row: got 65. sparse.pad_indices appends the holes",
        ),
        (
            {"q": torch.zeros(2, 1, 64, 576, dtype=torch.bfloat16), "indices": torch.full((2, 1, 64), -1)},
            TypeError,
            "indices must be int32 for the kernels: got torch.int64",
        ),
        (
            {"q": torch.zeros(2, 1, 64, 576).bfloat16(), "attn_sink": torch.zeros(64).double()},
            TypeError,
            "attn_sink must be float32 for the kernels",
        ),
    ],
)
def test_kernel_limits_are_refused_on_request(change: dict[str, object], kind: type[Exception], message: str) -> None:
    case = random_case(V32, 14)
    with pytest.raises(kind, match=re.escape(message)):
        sparse_decode(**(case.arguments | change), kernel_limits=True)


def test_kernel_limits_accept_what_the_kernels_accept() -> None:
    case = random_case(V32, 15, b=1, h_q=64, sink="values")
    plain = sparse_decode(**case.arguments)
    assert torch.equal(sparse_decode(**case.arguments, kernel_limits=True)[0], plain[0])
