"""Split, combine and sink against one float64 pass over everything, and against numbers worked out by hand."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlacademy.softmax import (
    LOG2E,
    apply_sink,
    combine,
    combine_weights,
    combined_lse_log2,
    online_softmax,
    partials,
    two_pass,
)

U64, U32 = 2.0**-53, 2.0**-24
BASE2 = 1 / LOG2E


def rows(seed, *shape, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def bound(n, largest, u):
    """Like the online tests' bound, plus one more exp2 and product for the combine step; ``largest`` in log2 units."""
    return u * (2 * (4 * math.log(2) * largest + 4 + n + 6 * n) + 4 + 2 * (4 * math.log(2) * largest + 10))


@pytest.mark.parametrize(("dtype", "u"), [(torch.float64, U64), (torch.float32, U32)])
@pytest.mark.parametrize("bounds", [(0, 96), (0, 64, 96), (0, 1, 2, 96), (0, 0, 40, 40, 96, 96)])
@pytest.mark.parametrize("with_sink", [False, True])
def test_splits_combined_equal_one_pass(dtype, u, bounds, with_sink):
    scores, values = 4 * rows(0, 2, 1, 3, 96, dtype=dtype), rows(1, 96, 5, dtype=dtype)
    valid = rows(2, 2, 1, 3, 96) < 0.5
    valid[0, 0, 0] = False  # one row empty in every split
    sink = torch.tensor([-2.5, 0.0, 3.0], dtype=dtype) if with_sink else None
    outs, lses = partials(scores, values, bounds, scale=1.0, valid=valid, block=16, round_s=False)
    assert outs.shape == (len(bounds) - 1, 2, 1, 3, 5)
    got, got_lse = combine(outs, lses, sink)
    want, want_lse = two_pass(scores.double(), values.double(), scale=1.0, valid=valid)
    if with_sink:  # by the definition: one more logit, whose value row is zero
        kept = torch.where(valid, scores.double(), -math.inf)
        longer = torch.cat([kept, sink.double().expand(2, 1, 3).unsqueeze(-1)], dim=-1)
        want, _ = two_pass(longer, torch.cat([values.double(), torch.zeros(1, 5).double()]), scale=1.0)
    limit = bound(96, float(scores.abs().max()) * LOG2E, u)
    assert (got - want).abs().max() <= limit * values.abs().max()
    assert torch.equal(torch.isinf(got_lse), torch.isinf(want_lse))
    finite = torch.isfinite(want_lse)
    assert ((got_lse - want_lse)[finite].abs() <= limit * (1 + want_lse[finite].abs())).all()


@given(
    exponents=st.lists(st.integers(-12, 12), min_size=2, max_size=20),
    cuts=st.lists(st.integers(0, 20), max_size=5),
    order=st.randoms(use_true_random=False),
)
@settings(max_examples=60, deadline=None)
def test_any_cut_and_any_order_of_the_splits_give_the_exact_fraction(exponents, cuts, order):
    n = len(exponents)
    values = [(3 * i) % 7 - 3 for i in range(n)]
    weights = [Fraction(2) ** x for x in exponents]
    want = sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)
    edges = sorted({0, n, *(c for c in cuts if c < n)})
    outs, lses = partials(
        torch.tensor(exponents, dtype=torch.float64),
        torch.tensor(values, dtype=torch.float64).unsqueeze(-1),
        edges,
        scale=BASE2,
        block=3,
        round_s=False,
    )
    shuffled = list(range(len(edges) - 1))
    order.shuffle(shuffled)
    out, lse = combine(outs[shuffled], lses[shuffled])
    # log2, exp2 and the sums over at most 20 splits: |l| <= 17, so an exponent is off by 3 * 17 u, a weight by 36 u.
    assert abs(Fraction(out.item()) - want) <= Fraction(4 * 100) * Fraction(U64)
    assert lse.item() == pytest.approx(float(math.log(sum(weights))), abs=100 * U64 * 17)


def test_example_of_three_splits():
    lse_log2 = torch.tensor([4.2, 3.8, 2.1], dtype=torch.float64)
    assert [round(w, 4) for w in combine_weights(lse_log2).tolist()] == [0.5022, 0.3806, 0.1171]
    assert round(combined_lse_log2(lse_log2).item(), 4) == 5.1936
    _, lse = combine(torch.zeros(3, 1, dtype=torch.float64), lse_log2)
    assert round(lse.item(), 4) == 3.5999


@pytest.mark.parametrize(
    ("scale_log2", "partial", "total", "with_sink"),
    [
        (0.06010, [5.6209, 5.4671], 6.5460, 6.5473),  # the first article's rounded scale
        (LOG2E / 24, [5.6210, 5.4671], 6.5461, 6.5474),  # 1/24 itself
    ],
)
def test_running_example_of_two_splits_with_and_without_a_sink(scale_log2, partial, total, with_sink):
    top, own_top = 3.52 * scale_log2, 1.75 * scale_log2  # the two blocks' maxima; both sums are measured from the first
    lses = [math.log2(42.5) + top, math.log2(38.2 * 2 ** (top - own_top)) + own_top]
    lse_log2 = torch.tensor(lses, dtype=torch.float64)
    assert [round(x, 4) for x in lses] == partial
    got = combined_lse_log2(lse_log2).item()
    assert got == pytest.approx(math.log2(42.5 + 38.2) + top, rel=8 * U64)
    assert round(got, 4) == total
    assert round(got / LOG2E, 4) == 4.5374
    assert [round(w, 4) for w in combine_weights(lse_log2).tolist()] == [0.5266, 0.4734]
    assert round(combined_lse_log2(lse_log2, -2.5).item(), 4) == with_sink
    assert [round(w, 4) for w in combine_weights(lse_log2, -2.5).tolist()] == [0.5262, 0.4729]


def test_weights_sum_to_one_without_a_sink_and_to_the_rest_with_one():
    lse_log2 = 3 * rows(4, 6, 7)
    sums = combine_weights(lse_log2).sum(dim=0)
    assert (sums - 1).abs().max() <= 6 * 20 * U64
    sink = rows(5, 7)
    kept = combine_weights(lse_log2, sink).sum(dim=0)
    lse = combined_lse_log2(lse_log2) / LOG2E
    want = np.exp(lse.numpy()) / (np.exp(lse.numpy()) + np.exp(sink.numpy()))
    assert np.abs(kept.numpy() - want).max() <= 6 * 20 * U64


@given(st.lists(st.floats(-40, 40), min_size=1, max_size=6), st.floats(-60, 60))
@settings(max_examples=40, deadline=None)
def test_shift_of_every_lse_leaves_the_weights(lses, shift):
    lse_log2 = torch.tensor(lses, dtype=torch.float64)
    difference = combine_weights(lse_log2) - combine_weights(lse_log2 + shift)
    assert difference.abs().max() <= 12 * 100 * U64  # exponents up to 100, rounded a few times


def test_empty_split_weighs_nothing():
    lse_log2 = torch.tensor([1.0, -math.inf, 1.0])
    assert combine_weights(lse_log2).tolist() == [0.5, 0, 0.5]
    out, lse = combine(torch.tensor([[2.0], [0.0], [4.0]]), lse_log2)
    assert (out.item(), lse.item()) == (3, pytest.approx(2 / LOG2E, rel=2 * U32))


@pytest.mark.parametrize("sink", [None, -math.inf, 0.0, 5.0, math.inf])
def test_every_split_empty_gives_zero_and_infinite_lse_with_any_sink(sink):
    out, lse = combine(torch.zeros(3, 2, 4), torch.full((3, 2), -math.inf), sink)
    assert torch.equal(out, torch.zeros(2, 4))
    assert torch.equal(lse, torch.full((2,), math.inf))


def test_infinite_sinks():
    outs, lse_log2 = rows(6, 2, 3, 4), rows(7, 2, 3)
    plain, lse = combine(outs, lse_log2)
    nothing, lse_nothing = combine(outs, lse_log2, -math.inf)
    everything, lse_everything = combine(outs, lse_log2, math.inf)
    assert torch.equal(nothing, plain)
    assert torch.equal(everything, torch.zeros(3, 4))
    assert torch.equal(lse, lse_nothing)
    assert torch.equal(lse, lse_everything)


def test_sink_is_per_head_and_does_not_enter_the_lse():
    scores, values = rows(8, 2, 1, 3, 32), rows(9, 32, 4)  # [b, s_q, h_q, n]
    sink = torch.tensor([-1.0, 0.5, 2.0], dtype=torch.float64)
    outs, lses = partials(scores, values, (0, 16, 32), scale=1.0, round_s=False)
    out, lse = combine(outs, lses, sink)
    for head in range(3):
        alone, lse_alone = combine(outs[..., head, :], lses[..., head], float(sink[head]))
        assert torch.equal(out[..., head, :], alone)
        assert torch.equal(lse[..., head], lse_alone)
    assert torch.equal(lse, combine(outs, lses)[1])


@pytest.mark.parametrize("sink", [-math.inf, -30.0, -2.5, 0.0, 8.0, 300.0, math.inf])
def test_sink_after_one_pass_equals_sink_in_combine(sink):
    scores, values = rows(10, 5, 32), rows(11, 32, 4)
    scores[4] = -math.inf
    whole = online_softmax(scores, values, scale=1.0, round_s=False)
    unsplit = apply_sink(whole.out, whole.lse, sink)
    split, _ = combine(*partials(scores, values, (0, 16, 32), scale=1.0, round_s=False), sink)
    # Where the sink is large, the share is 2^-x with x up to 300 log2(e): its exponent is rounded at that size.
    assert (unsplit - split).abs().max() <= bound(32, 40 + (abs(sink) if math.isfinite(sink) else 0), U64) * 4
    assert unsplit[4].tolist() == [0, 0, 0, 0]


def test_base_two_lse_read_as_natural_gives_other_weights():
    # The unit slip this module's names guard against: e instead of 2 as the base sharpens the weights.
    lse_log2 = torch.tensor([4.2, 3.8, 2.1], dtype=torch.float64)
    slipped = combine_weights(lse_log2 * LOG2E)
    assert [round(w, 4) for w in slipped.tolist()] == [0.5578, 0.3739, 0.0683]


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (
            lambda: combine(torch.zeros(2, 3, 4), torch.zeros(2, 4)),
            ValueError,
            r"outs are \[2, 3, 4\], lse_log2 \[2, 4\]",
        ),
        (lambda: combine(torch.zeros(2, 4), torch.zeros(2).double()), TypeError, "outs are torch.float32, lse_log2"),
        (lambda: combine_weights(torch.zeros(0, 3)), ValueError, r"at least one split: got shape \[0, 3\]"),
        (lambda: combine_weights(torch.zeros(2).half()), TypeError, "lse_log2 must be float32 or float64"),
        (lambda: combine_weights(torch.tensor([1.0, math.inf])), ValueError, "an empty split is -inf"),
        (lambda: apply_sink(torch.zeros(2, 3, 4), torch.zeros(3, 2), 0.0), ValueError, "transpose it first"),
        (lambda: combine([[0.0]], torch.zeros(2)), TypeError, "outs must be a torch tensor: got list"),
        (lambda: combine_weights([0.0, 1.0]), TypeError, "lse_log2 must be a torch tensor: got list"),
        (lambda: apply_sink(3.0, torch.zeros(1), 0.0), TypeError, "out must be a floating-point tensor: got float"),
        (
            lambda: apply_sink(torch.zeros(1), torch.zeros(()).int(), 0.0),
            TypeError,
            "lse must be a floating-point tensor",
        ),
        (
            lambda: partials(torch.zeros(4), torch.zeros(4, 1), (0, 2.5, 4), scale=1.0),
            TypeError,
            "bounds must be whole",
        ),
        (lambda: partials(torch.zeros(4), torch.zeros(4, 1), 4, scale=1.0), TypeError, "bounds must be whole"),
    ],
)
def test_bad_arguments_are_named(call, error, says):
    with pytest.raises(error, match=says):
        call()


@pytest.mark.parametrize(
    ("sink", "error", "says"),
    [
        (math.nan, ValueError, "sink must not be NaN. -inf means no sink"),
        (torch.zeros(3), ValueError, r"sink must broadcast against \[2, 4\], one a row: got shape \[3\]"),
        (torch.zeros(1, 2, 4), ValueError, "sink must broadcast against"),
        (
            torch.zeros(4, dtype=torch.complex64),
            TypeError,
            "sink must be a number or a floating-point tensor: got torch.c",
        ),
        (torch.zeros(4, dtype=torch.int64), TypeError, "sink must be a number or a floating-point tensor"),
        ([0.0] * 4, TypeError, "sink must be a number or a floating-point tensor: got list"),
        (True, TypeError, "sink must be a number"),
    ],
)
def test_bad_sink_is_named_everywhere(sink, error, says):
    outs, lse = torch.zeros(3, 2, 4, 5), torch.zeros(3, 2, 4)
    calls = [
        lambda: combine(outs, lse, sink),
        lambda: combine_weights(lse, sink),
        lambda: apply_sink(outs[0], lse[0], sink),
    ]
    for call in calls:
        with pytest.raises(error, match=says):
            call()


@pytest.mark.parametrize("bounds", [(), (0,), (0, 3), (1, 4), (0, 3, 2, 4), (0, 5)])
def test_bounds_must_run_from_zero_to_n(bounds):
    with pytest.raises(ValueError, match="bounds must run from 0 to n = 4 without falling: got"):
        partials(torch.zeros(4), torch.zeros(4, 1), bounds, scale=1.0)
