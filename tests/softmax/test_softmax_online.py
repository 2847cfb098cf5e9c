"""Online softmax against a two-pass float64 softmax, exact fractions, and its own invariances."""

import doctest
import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlacademy.softmax import LOG2E, MAX_INIT, online, online_softmax, splits, two_pass

BASE2 = 1 / LOG2E  # with this scale a score is its own base-2 exponent
ROUNDOFF = {torch.float32: 2.0**-24, torch.float64: 2.0**-53}


def tolerance(scores, dtype, *, block, weight_error=0.0):
    """Bound on |out - exact| / max|v|, from the rounding each weight and each sum can meet.

    A weight 2^(x - m): the product with the scale, the max and the difference are rounded once each, |x| and |m| up to
    X, so the exponent is off by at most 4 X u, the weight by 4 ln2 X u, and exp2 adds 2 ulp = 4 u. Numerator and
    denominator each add n terms (n u) and meet one rounded exp2 and product a block (6 u). The quotient doubles it,
    plus 4 u at the end.
    """
    finite = scores[torch.isfinite(scores)]
    largest = float(finite.abs().max()) * LOG2E if finite.numel() else 0.0
    n = scores.shape[-1]
    u = ROUNDOFF[dtype]
    return u * (2 * (4 * math.log(2) * largest + 4 + n + 6 * math.ceil(n / block)) + 4) + weight_error


def exact(scores, values, valid=None):
    """Two-pass softmax in NumPy float64, row by row: (out, lse), 0 and +inf for an empty row."""
    s = scores.double().numpy()
    if valid is not None:
        s = np.where(valid.numpy(), s, -np.inf)
    v = np.broadcast_to(values.double().numpy(), (*s.shape[:-1], *values.shape[-2:]))
    out, lse = np.zeros((*s.shape[:-1], v.shape[-1])), np.full(s.shape[:-1], np.inf)
    for row in np.ndindex(s.shape[:-1]):
        keep = np.isfinite(s[row])
        if keep.any():
            e = np.exp(s[row][keep] - s[row][keep].max())
            out[row] = e @ v[row][keep] / e.sum()
            lse[row] = s[row][keep].max() + np.log(e.sum())
    return torch.from_numpy(out), torch.from_numpy(lse)


def assert_same_lse(got, want, bound):
    assert torch.equal(torch.isinf(got), torch.isinf(want))
    finite = torch.isfinite(want)
    assert torch.all((got.double() - want)[finite].abs() <= bound * (1 + want[finite].abs()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("shape", "block"), [((1,), 1), ((3, 64), 64), ((2, 5, 200), 64), ((2, 1, 4, 130), 7)])
@pytest.mark.parametrize("seed", [0, 1])
def test_matches_a_two_pass_softmax_with_holes_anywhere(dtype, shape, block, seed):
    rng = torch.Generator().manual_seed(seed)
    scores = 8 * torch.randn(shape, generator=rng, dtype=dtype)
    values = torch.randn(shape[-1], 6, generator=rng, dtype=dtype)
    valid = torch.rand(shape, generator=rng) < 0.6
    want, want_lse = exact(scores, values, valid)
    got = online_softmax(scores, values, scale=1.0, block=block, valid=valid, round_s=False)
    bound = tolerance(scores, dtype, block=block)
    assert got.out.dtype == dtype
    assert (got.out - want).abs().max() <= bound * values.abs().max()
    assert_same_lse(got.lse, want_lse, bound)
    plain, plain_lse = two_pass(scores, values, scale=1.0, valid=valid)
    assert (plain - want).abs().max() <= bound * values.abs().max()
    assert_same_lse(plain_lse, want_lse, bound)


def test_every_row_may_have_values_of_its_own():
    rng = torch.Generator().manual_seed(2)
    scores = torch.randn(2, 3, 20, generator=rng, dtype=torch.float64)  # [b, h_q, n]
    values = torch.randn(2, 20, 4, generator=rng, dtype=torch.float64)  # [b, n, d_v]
    got = online_softmax(scores, values, scale=0.5, block=8, round_s=False).out
    for request in range(2):
        want, _ = exact(0.5 * scores[request], values[request])
        assert (got[request] - want).abs().max() <= tolerance(scores, torch.float64, block=8) * values.abs().max()


@given(
    exponents=st.lists(st.integers(-20, 20), min_size=1, max_size=24),
    block=st.integers(1, 9),
    data=st.data(),
)
@settings(max_examples=60, deadline=None)
def test_integer_exponents_agree_with_exact_fractions(exponents, block, data):
    values = data.draw(st.lists(st.integers(-8, 8), min_size=len(exponents), max_size=len(exponents)))
    weights = [Fraction(2) ** x for x in exponents]
    want = sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)
    got = online_softmax(
        torch.tensor(exponents, dtype=torch.float64),
        torch.tensor(values, dtype=torch.float64).unsqueeze(-1),
        scale=BASE2,
        block=block,
        round_s=False,
    )
    # Powers of two, sums within 2^41 of each other: all is exact but the last quotient (2 roundings of |out| <= 8).
    assert abs(Fraction(got.out.item()) - want) <= Fraction(8 * 3, 2**53)
    top = max(exponents)
    assert got.steps[-1].running_max.item() == top
    assert Fraction(got.steps[-1].running_sum.item()) == sum(weights) / Fraction(2) ** top


def test_steps_follow_the_recurrence_by_hand():
    scores = torch.tensor([0.0, 1.0, 3.0, 2.0, -math.inf, 1.0])
    steps = online_softmax(scores, torch.ones(6, 1), scale=BASE2, block=2).steps
    assert [(s.block, s.start, s.stop) for s in steps] == [(0, 0, 2), (1, 2, 4), (2, 4, 6)]
    assert [s.block_max.item() for s in steps] == [1, 3, 1]
    assert [s.running_max.item() for s in steps] == [1, 3, 3]
    assert [s.rescale.item() for s in steps] == [0, 0.25, 1]  # 2^(-1e30 - 1), 2^(1 - 3), 2^(3 - 3)
    assert [s.block_sum.item() for s in steps] == [1.5, 1.5, 0.25]
    assert [s.running_sum.item() for s in steps] == [1.5, 1.875, 2.125]


logits = st.lists(st.floats(-30, 30), min_size=2, max_size=40)


@given(logits=logits, block=st.integers(1, 16), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_order_of_the_tokens_does_not_matter(logits, block, seed):
    scores = torch.tensor(logits, dtype=torch.float64)
    rng = torch.Generator().manual_seed(seed)
    values = torch.rand(len(logits), 3, generator=rng, dtype=torch.float64)
    order = torch.randperm(len(logits), generator=rng)
    one = online_softmax(scores, values, scale=1.0, block=block, round_s=False)
    two = online_softmax(scores[order], values[order], scale=1.0, block=block, round_s=False)
    assert (one.out - two.out).abs().max() <= 2 * tolerance(scores, torch.float64, block=block)


@given(logits=logits, shift=st.floats(-100, 100), blocks=st.tuples(st.integers(1, 16), st.integers(1, 40)))
@settings(max_examples=40, deadline=None)
def test_shift_leaves_the_output_and_adds_to_the_lse_and_block_size_does_not_matter(logits, shift, blocks):
    scores = torch.tensor(logits, dtype=torch.float64)
    values = torch.linspace(-1, 1, len(logits), dtype=torch.float64).unsqueeze(-1)
    one = online_softmax(scores, values, scale=1.0, block=blocks[0], round_s=False)
    two = online_softmax(scores + shift, values, scale=1.0, block=blocks[1], round_s=False)
    bound = tolerance(scores, torch.float64, block=blocks[0]) + tolerance(
        scores + shift, torch.float64, block=blocks[1]
    )
    assert abs(one.out.item() - two.out.item()) <= bound
    assert abs(one.lse.item() + shift - two.lse.item()) <= bound * (1 + abs(two.lse.item()))


@given(logits=logits, threshold=st.floats(0, 12), block=st.integers(1, 8))
@settings(max_examples=40, deadline=None)
def test_lazy_rescale_gives_the_same_result_and_bounds_the_weights(logits, threshold, block):
    scores = torch.tensor(logits, dtype=torch.float64)
    values = torch.linspace(-1, 1, len(logits), dtype=torch.float64).unsqueeze(-1)
    eager = online_softmax(scores, values, scale=1.0, block=block, round_s=False)
    lazy = online_softmax(scores, values, scale=1.0, block=block, round_s=False, rescale_above=threshold)
    # A weight may grow to 2^threshold, which changes no relative error; the exponents grow by no more than the scores'.
    bound = 2 * tolerance(scores, torch.float64, block=block)
    assert abs(eager.out.item() - lazy.out.item()) <= bound
    assert abs(eager.lse.item() - lazy.lse.item()) <= bound * (1 + abs(eager.lse.item()))
    for step in lazy.steps:
        assert step.block_max <= step.running_max + threshold
        assert step.rescale == 1 or step.rescale < 2**-threshold


@pytest.mark.parametrize("holes", [slice(0, 4), slice(4, 8), slice(8, 12), slice(0, 8), slice(1, 11)])
def test_masked_blocks_anywhere_change_nothing(holes):
    scores = torch.linspace(-2, 3, 12, dtype=torch.float64)
    values = torch.arange(12, dtype=torch.float64).unsqueeze(-1)
    valid = torch.ones(12, dtype=torch.bool)
    valid[holes] = False
    got = online_softmax(scores, values, scale=1.0, block=4, valid=valid, round_s=False)
    want, want_lse = exact(scores[valid], values[valid])
    bound = tolerance(scores, torch.float64, block=4)
    assert abs(got.out.item() - want.item()) <= 11 * bound
    assert abs(got.lse.item() - want_lse.item()) <= bound * (1 + abs(want_lse.item()))


def test_fully_masked_first_block_leaves_the_guard_in_place():
    scores = torch.tensor([-math.inf, -math.inf, 5.0, 4.0])
    first, second = online_softmax(scores, torch.ones(4, 1), scale=BASE2, block=2).steps
    assert (first.running_max.item(), first.rescale.item(), first.running_sum.item()) == (np.float32(MAX_INIT), 1, 0)
    assert (second.running_max.item(), second.rescale.item(), second.running_sum.item()) == (5, 0, 1.5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_empty_row_gives_zero_output_and_infinite_lse(dtype):
    scores = torch.tensor([[1.0, 2.0, 3.0], [-math.inf, -math.inf, -math.inf]], dtype=dtype)
    got = online_softmax(scores, torch.ones(3, 2, dtype=dtype), scale=1.0, block=2)
    assert got.out[1].tolist() == [0, 0]
    assert (got.lse[1].item(), got.lse_log2[1].item()) == (math.inf, -math.inf)
    assert torch.isfinite(got.lse[0])
    plain, plain_lse = two_pass(scores, torch.ones(3, 2, dtype=dtype), scale=1.0)
    assert (plain[1].tolist(), plain_lse[1].item()) == ([0, 0], math.inf)


def test_score_of_a_hole_may_be_nan():
    scores = torch.tensor([1.0, math.nan, 2.0])
    valid = torch.tensor([True, False, True])
    got = online_softmax(scores, torch.zeros(3, 1), scale=1.0, valid=valid)
    assert got.lse.item() == pytest.approx(math.log(math.e + math.e**2), rel=4 * 2**-24)


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_nan_or_infinite_valid_score_is_not_hidden(poison):
    scores = torch.tensor([[1.0, poison, 2.0], [1.0, 0.0, 2.0]])
    got = online_softmax(scores, torch.ones(3, 1), scale=1.0, block=1)
    assert torch.isnan(got.out[0]).all()
    assert torch.isnan(got.lse[0])
    assert torch.isfinite(got.out[1]).all()


def test_weights_are_rounded_to_bf16_for_the_product_and_not_for_the_sum():
    rng = np.random.default_rng(5)
    x = rng.uniform(-3, 0, 64)
    x[0] = 0.0
    weights = np.exp2(x)
    rounded = weights.astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float64)
    want = rounded.sum() / weights.sum()  # with every value 1 the product is the sum of the rounded weights
    got = online_softmax(torch.from_numpy(x), torch.ones(64, 1, dtype=torch.float64), scale=BASE2)
    # The two exp2 may differ by an ulp of float64, which cannot move a bf16 rounding except at a tie nobody draws.
    assert got.out.item() == pytest.approx(want, rel=64 * 2.0**-52)
    assert got.out.item() != 1.0
    assert got.lse_log2.item() == pytest.approx(math.log2(weights.sum()), rel=64 * 2.0**-52)


def test_bf16_weights_cost_at_most_2_to_the_minus_8():
    rng = torch.Generator().manual_seed(3)
    scores = 3 * torch.randn(16, 512, generator=rng)
    values = torch.randn(512, 8, generator=rng)
    want, _ = exact(scores, values)
    got = online_softmax(scores, values, scale=1.0)
    # bf16 keeps 8 significant bits: nearest is within 2^-8 of each weight, and sum(w |v|) / sum(w) <= max|v|.
    bound = tolerance(scores, torch.float32, block=64, weight_error=2.0**-8)
    assert (got.out - want).abs().max() <= bound * values.abs().max()
    assert torch.equal(got.lse, online_softmax(scores, values, scale=1.0, round_s=False).lse)


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"scores": torch.zeros(3).half()}, TypeError, "scores must be float32 or float64: got torch.float16"),
        ({"values": torch.zeros(3, 2).double()}, TypeError, "must have one dtype: scores are torch.float32"),
        ({"values": torch.zeros(4, 2)}, ValueError, r"must agree on n: scores are \[3\], values \[4, 2\]"),
        ({"values": torch.zeros(3)}, ValueError, "must agree on n"),
        ({"scores": torch.zeros(0), "values": torch.zeros(0, 2)}, ValueError, "at least one score a row: n is 0"),
        ({"scale": -1.0}, ValueError, "scale must be finite and above 0: got -1.0"),
        ({"scale": math.inf}, ValueError, "scale must be finite and above 0: got inf"),
        ({"block": 0}, ValueError, "block must be at least 1 score: got 0"),
        ({"valid": torch.ones(3)}, TypeError, "valid must be bool: got torch.float32"),
        ({"valid": [True]}, TypeError, "valid must be bool: got list"),
        ({"valid": torch.ones(2, dtype=torch.bool)}, ValueError, r"valid must broadcast against scores \[3\]: got"),
        ({"valid": torch.ones(2, 3, dtype=torch.bool)}, ValueError, "valid must broadcast against scores"),
        ({"scores": [0.0] * 3}, TypeError, "scores must be a torch tensor: got list"),
        ({"values": None}, TypeError, "values must be a torch tensor: got NoneType"),
        ({"scale": "1"}, TypeError, "scale must be a number: got '1'"),
        ({"scale": True}, TypeError, "scale must be a number: got True"),
        ({"block": 64.0}, TypeError, "block must be a whole number of scores: got 64.0"),
        ({"rescale_above": -1.0}, ValueError, "rescale_above must be 0 or more, in log2 units: got -1.0"),
        ({"rescale_above": math.nan}, ValueError, "rescale_above must be 0 or more"),
    ],
)
def test_bad_arguments_are_named(change, error, says):
    arguments = {"scores": torch.zeros(3), "values": torch.zeros(3, 2), "scale": 1.0} | change
    with pytest.raises(error, match=says):
        online_softmax(**arguments)


@pytest.mark.parametrize("module", [online, splits])
def test_docstring_examples_run(module):
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0
