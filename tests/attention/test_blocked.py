"""The blocked float32 decode against the loops over bytes, within bounds that follow from its roundings.

Bound of `out`. Let u = 2^-24 and p_j the exact weights, D = Σ p_j·|v_j|. Errors of one output element:
  * a weight is rounded to bf16 once: relative 2^-9;
  * the logit of a token carries the float32 error of 576 products, δ = 577·u·Σ|q·k|·scale, so 2^x is off by δ relative;
  * sums of n weights and n products in float32: n·u each; rescaling adds one rounding a block, merging a few more.
In all |error| ≤ (2^-9 + 2δ + (2n + 64)·u)·D. `lse` has no bf16 in it: |error| ≤ δ + (n + 64)·u + 2u·|lse|.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from decode_cases import HOLES, SINKS, Case, loop_decode, random_case
from hypothesis import given, settings
from hypothesis import strategies as st

from mlacademy.attention import sparse_decode, sparse_decode_blocked
from mlacademy.cache import MODEL1, V32, CacheLayout, append, new_cache
from mlacademy.schedule import Schedule, effective_lengths, num_sm_parts, schedule

U = 2.0**-24


def delta(case: Case) -> float:
    """Upper bound of a logit's error: 577·u·scale·Σ|q·k| with |q| and |k| at their largest."""
    a = case.arguments
    largest_q = float(a["q"].abs().sum(-1).max())
    return 577 * U * a["softmax_scale"] * largest_q * 20.0  # keys are at most 4·N(0,1), and no N(0,1) here reaches 5


def out_bound(case: Case, size: np.ndarray) -> np.ndarray:
    """The module's bound of |out − exact|, with D = `size` from `loop_decode`."""
    return (2.0**-9 + 2 * delta(case) + (2 * tokens(case) + 64) * U) * size


def lse_bound(case: Case, lse: np.ndarray) -> np.ndarray:
    return delta(case) + (tokens(case) + 64) * U + 2 * U * np.abs(lse)


def tokens(case: Case) -> int:
    return sum(case.arguments[name].shape[2] for name in ("indices", "extra_indices") if name in case.arguments)


def agree(case: Case, plan: Schedule | None = None) -> None:
    out, lse = sparse_decode_blocked(**case.arguments, schedule=plan)
    exact_out, exact_lse, size = loop_decode(case)
    assert (np.abs(out.double().numpy() - exact_out) <= out_bound(case, size)).all()  # a NaN fails this too
    finite = np.isfinite(exact_lse)
    assert (lse.numpy()[~finite] == math.inf).all()
    error = np.abs(lse.double().numpy()[finite] - exact_lse[finite])
    assert (error <= lse_bound(case, exact_lse[finite])).all()


def plan_for(case: Case, parts: int) -> Schedule:
    a = case.arguments
    lengths = effective_lengths(
        a["q"].shape[0],
        a["indices"].shape[2],
        topk_length=a.get("topk_length"),
        extra_topk=a["extra_indices"].shape[2] if "extra_indices" in a else None,
        extra_topk_length=a.get("extra_topk_length"),
    )
    return schedule(lengths, parts)


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from([V32, MODEL1]),
    st.integers(0, 10**6),
    st.fixed_dictionaries(
        {
            "b": st.integers(1, 3),
            "s_q": st.integers(1, 2),
            "h_q": st.integers(1, 2),
            "topk": st.sampled_from([64, 128, 192]),
            "page": st.sampled_from([1, 2, 53, 64]),
            "holes": st.sampled_from(HOLES),
            "lengths": st.booleans(),
            "sink": st.sampled_from(SINKS),
            "extra_topk": st.sampled_from([0, 64, 128]),
            "extra_lengths": st.booleans(),
        }
    ),
    st.integers(0, 12),
)
def test_every_option_stays_within_the_bound_of_its_roundings(
    layout: CacheLayout, seed: int, options: dict[str, object], parts: int
) -> None:
    case = random_case(layout, seed, **options)
    agree(case, plan_for(case, parts) if parts else None)


@pytest.mark.parametrize("holes", HOLES)
@pytest.mark.parametrize("parts", [0, 1, 8])
def test_holes_anywhere_stay_within_the_bound(holes: str, parts: int) -> None:
    case = random_case(V32, 3, topk=256, s_q=2, h_q=2, holes=holes, sink="values")
    agree(case, plan_for(case, parts) if parts else None)


def test_splitting_changes_only_the_last_bits() -> None:
    case = random_case(V32, 20, b=2, topk=128, holes="scattered", sink="values")
    plan = schedule([128, 128], num_sm_parts(132))
    assert plan.num_splits.tolist() == [0, 2, 4]  # the running example: both requests in two pieces
    whole_out, whole_lse = sparse_decode_blocked(**case.arguments)
    split_out, split_lse = sparse_decode_blocked(**case.arguments, schedule=plan)
    _, exact_lse, size = loop_decode(case)
    # Each lies within the bound of exact, so they lie within twice the bound of each other.
    assert (np.abs((whole_out - split_out).double().numpy()) <= 2 * out_bound(case, size)).all()
    assert (np.abs((whole_lse - split_lse).double().numpy()) <= 2 * lse_bound(case, exact_lse)).all()


def test_same_schedule_gives_the_same_bits() -> None:
    case = random_case(V32, 21, b=3, s_q=2, topk=192, holes="scattered", extra_topk=64, sink="values")
    for plan in (None, plan_for(case, 7)):
        first = sparse_decode_blocked(**case.arguments, schedule=plan)
        again = sparse_decode_blocked(**case.arguments, schedule=plan)
        assert torch.equal(first[0], again[0])
        assert torch.equal(first[1], again[1])


def test_other_requests_in_the_batch_do_not_change_a_request() -> None:
    case = random_case(V32, 22, b=3, topk=64, holes="scattered")
    together = sparse_decode_blocked(**case.arguments)[0]
    one = Case(V32, case.arguments | {name: case.arguments[name][1:2] for name in ("q", "indices")})
    difference = np.abs((sparse_decode_blocked(**one.arguments)[0] - together[1:2]).double().numpy())
    assert (difference <= 2 * out_bound(one, loop_decode(one)[2])).all()


def test_weights_enter_the_product_as_bf16_and_the_sum_as_float32() -> None:
    # Two tokens, logits 0 and ln w: the exact output is (1·v0 + w·v1) / (1 + w); the kernel's uses bf16(w) above only.
    cache = new_cache(V32, 1, 64)
    nope = torch.zeros(2, 512)
    nope[1, 1] = 1.0  # token 1 alone has a value at element 1
    rope = torch.zeros(2, 64)
    rope[0, 0] = 1.0  # its logit is q·1 larger
    append(cache, torch.tensor([0, 1]), nope, rope, V32)
    q = torch.zeros(1, 1, 1, 576, dtype=torch.bfloat16)
    q[..., 512] = 1.0
    scale = 0.3
    lists = torch.tensor([0, 1] + [-1] * 62, dtype=torch.int32).view(1, 1, 64)
    out, lse = sparse_decode_blocked(q, cache, lists, layout=V32, softmax_scale=scale)
    weight = torch.tensor(math.exp(-scale))
    rounded = weight.bfloat16().double().item()
    assert rounded != pytest.approx(weight.item(), rel=1e-4)  # else this test shows nothing
    assert out[0, 0, 0, 1].item() == pytest.approx(rounded / (1 + math.exp(-scale)), rel=8 * U)
    assert lse.item() == pytest.approx(scale + math.log1p(math.exp(-scale)), rel=8 * U)


def test_output_may_be_rounded_to_bf16_once_at_the_end() -> None:
    case = random_case(V32, 23)
    exact = sparse_decode_blocked(**case.arguments)[0]
    rounded = sparse_decode_blocked(**case.arguments, out_dtype=torch.bfloat16)[0]
    assert torch.equal(rounded, exact.bfloat16())


@pytest.mark.parametrize("plan", ["whole", "cut"])
def test_public_tolerances_hold_on_inputs_like_the_public_tests(plan: str) -> None:
    # q ~ N(0,1) clamped to ±1, keys a tenth of that, scale d^-0.55; an element passes on abs 1e-3 or rel 2.01/128.
    # bf16 weights and a bf16 result are 2^-9 each of D; 2.01/128 = 2^-6 leaves room for cancellation up to D = 4·|out|,
    # and 1e-3 for what cancels further: D ≤ 0.08 here, so 2^-8·D ≤ 3.2e-4.
    generator = torch.Generator().manual_seed(24)
    cache = new_cache(V32, 10, 61)
    keys = torch.randn(610, 576, generator=generator).clamp(-1, 1) / 10
    append(cache, torch.arange(610), keys[:, :512], keys[:, 512:], V32)
    q = torch.randn(2, 1, 128, 576, generator=generator).clamp(-1, 1).bfloat16()
    lists = torch.randint(0, 610, (2, 1, 576), generator=generator, dtype=torch.int32)
    lists[torch.rand(lists.shape, generator=generator) < 0.2] = -1
    call = {"layout": V32, "softmax_scale": 576**-0.55, "kernel_limits": True}
    cut = schedule([576, 576], num_sm_parts(132)) if plan == "cut" else None
    out, lse = sparse_decode_blocked(q, cache, lists, **call, schedule=cut, out_dtype=torch.bfloat16)
    exact, exact_lse = sparse_decode(q, cache, lists, **call)
    error = (out.double() - exact).abs()
    assert ((error < 1e-3) | (error < 2.01 / 128 * exact.abs())).all()
    cosine = torch.nn.functional.cosine_similarity(out.double().flatten(), exact.flatten(), dim=0)
    assert 1 - cosine < 5e-6
    lse_error = (lse.double() - exact_lse).abs()
    assert ((lse_error < 1e-6) | (lse_error < 8.01 / 65536 * exact_lse.abs())).all()


# ---------------------------------------------------------------- refusals


def test_refuses_a_query_that_is_not_bf16() -> None:
    case = random_case(V32, 25)
    with pytest.raises(TypeError, match=r"q must be bfloat16, as the kernel reads it: got torch\.float32"):
        sparse_decode_blocked(**(case.arguments | {"q": case.arguments["q"].float()}))


def test_refuses_a_list_that_ends_inside_a_block() -> None:
    with pytest.raises(ValueError, match="indices must have a multiple of 64 entries a row: got 65"):
        sparse_decode_blocked(**random_case(V32, 26, topk=65).arguments)
    with pytest.raises(ValueError, match="extra_indices must have a multiple of 64 entries a row: got 3"):
        sparse_decode_blocked(**random_case(V32, 26, extra_topk=3).arguments)


def test_refuses_a_schedule_made_from_other_lengths() -> None:
    case = random_case(V32, 27, topk=128)
    with pytest.raises(ValueError, match=r"schedule was made for lengths \[128, 64\], this call has \[128, 128\]"):
        sparse_decode_blocked(**case.arguments, schedule=schedule([128, 64], 66))


def test_refuses_a_schedule_of_other_blocks_or_of_another_kind() -> None:
    case = random_case(V32, 28, topk=128)
    with pytest.raises(ValueError, match="schedule must be made for blocks of 64: got blocks of 32"):
        sparse_decode_blocked(**case.arguments, schedule=schedule([128, 128], 66, block=32))
    with pytest.raises(TypeError, match=r"schedule must be a schedule\.Schedule or None: got list"):
        sparse_decode_blocked(**case.arguments, schedule=[])


def test_refuses_an_output_dtype_the_kernel_does_not_write() -> None:
    with pytest.raises(ValueError, match=r"out_dtype must be torch\.float32 or torch\.bfloat16"):
        sparse_decode_blocked(**random_case(V32, 29).arguments, out_dtype=torch.float16)


def test_refuses_what_the_oracle_refuses() -> None:
    case = random_case(V32, 30)
    with pytest.raises(ValueError, match="Only −1 marks a hole"):
        sparse_decode_blocked(**(case.arguments | {"indices": torch.full((2, 1, 64), -2, dtype=torch.int32)}))
