"""RoPE and YaRN against complex numbers and plain math, one pair at a time."""

import cmath
import doctest
import math
import sys
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlacademy.config import YarnScaling, deepseek_v32
from mlacademy.mla import rope as rope_fn
from mlacademy.mla import rope_frequencies

# A rotation of float64 values: two products and a sum, with cos and sin correct to 1 ulp. 8 ulp is ample.
TOL = 8 * torch.finfo(torch.float64).eps


def turned_by_hand(values, position, frequencies, pairs):
    out = list(values)
    for (i, j), frequency in zip(pairs, frequencies, strict=True):
        z = complex(values[i], values[j]) * cmath.exp(1j * position * frequency)
        out[i], out[j] = z.real, z.imag
    return out


def pairs_of(d, pairing):
    return [(2 * i, 2 * i + 1) if pairing == "interleaved" else (i, i + d // 2) for i in range(d // 2)]


@settings(deadline=None)
@given(st.data())
def test_each_pair_turns_like_a_complex_number(data):
    d = 2 * data.draw(st.integers(1, 5))
    pairing = data.draw(st.sampled_from(["interleaved", "half"]))
    values = data.draw(st.lists(st.floats(-4, 4), min_size=d, max_size=d))
    position = data.draw(st.integers(0, 50))
    theta = data.draw(st.sampled_from([10_000.0, 7.0]))
    frequencies = [theta ** (-2 * i / d) for i in range(d // 2)]
    got = rope_fn(torch.tensor([values], dtype=torch.float64), torch.tensor([position]), theta, pairing=pairing)
    want = turned_by_hand(values, position, frequencies, pairs_of(d, pairing))
    # The angle itself carries up to position · eps of difference between two ways to compute the frequency.
    assert got[0].tolist() == pytest.approx(want, abs=4 * (TOL + 50 * 8 * 2**-52))


def test_the_score_depends_only_on_the_distance():
    generator = torch.Generator().manual_seed(1)
    q, k = torch.randn(2, 1, 64, dtype=torch.float64, generator=generator)
    frequencies = rope_frequencies(deepseek_v32())

    def score(at_q, at_k):
        return float(
            rope_fn(q, torch.tensor([at_q]), frequencies=frequencies)
            @ rope_fn(k, torch.tensor([at_k]), frequencies=frequencies).T
        )

    # Angles reach 163,840 rad, where float64 spacing is 2^-35; 64 terms of size about 1.
    assert score(10, 7) == pytest.approx(score(163_839, 163_836), abs=64 * 2**-33)
    assert abs(score(10, 7) - score(10, 6)) > 1e-3


def test_interleaved_and_half_differ_by_a_shuffle_of_the_values():
    x = torch.arange(1.0, 9.0, dtype=torch.float64).view(1, 8)
    shuffle = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])
    at = torch.tensor([5])
    assert torch.equal(rope_fn(x, at)[:, shuffle], rope_fn(x[:, shuffle], at, pairing="half"))


def test_position_zero_changes_nothing():
    x = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))
    assert torch.equal(rope_fn(x, torch.zeros(3, dtype=torch.int64)), x)


def test_positions_broadcast_over_heads():
    x = torch.randn(2, 3, 4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    positions = torch.tensor([[3, 1, 4], [1, 5, 9]])
    got = rope_fn(x, positions.unsqueeze(-1))
    for b in range(2):
        for s in range(3):
            for h in range(4):
                assert torch.equal(got[b, s, h], rope_fn(x[b, s, h : h + 1], positions[b, s].view(1))[0])


def test_dtype_stays():
    assert rope_fn(torch.ones(1, 2), torch.tensor([1])).dtype == torch.float32


def yarn_by_hand(d, theta, yarn):
    out = []
    for i in range(d // 2):
        plain = theta ** (-2 * i / d)
        pair = [
            d * math.log(yarn.original_max_position_embeddings / (t * 2 * math.pi)) / (2 * math.log(theta))
            for t in (yarn.beta_fast, yarn.beta_slow)
        ]
        low, high = max(math.floor(pair[0]), 0), min(math.ceil(pair[1]), d - 1)
        share = min(max((i - low) / (high - low), 0.0), 1.0)
        out.append((1 - share) * plain + share * plain / yarn.factor)
    return out


def test_yarn_of_v32_keeps_11_pairs_and_slows_9():
    v32 = deepseek_v32()
    got = rope_frequencies(v32)
    assert got.tolist() == pytest.approx(yarn_by_hand(64, 10_000, v32.rope_scaling), rel=1e-13)
    plain = rope_frequencies(replace(v32, rope_scaling=None))
    ratio = plain / got
    assert ratio[:11].tolist() == pytest.approx([1.0] * 11)
    assert ratio[23:].tolist() == pytest.approx([40.0] * 9)
    assert bool((ratio[10:23].diff() > 0).all())


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(64, 8192), st.floats(1, 64))
def test_yarn_lies_between_plain_and_fully_slowed(half, original, factor):
    yarn = YarnScaling(factor, original, 32, 1, 1.0, 1.0)
    config = replace(deepseek_v32(), qk_rope_head_dim=2 * half, rope_scaling=yarn)
    plain = rope_frequencies(replace(config, rope_scaling=None))
    got = rope_frequencies(config)
    assert bool((got <= plain * (1 + 1e-12)).all())
    assert bool((got >= plain / factor * (1 - 1e-12)).all())


def test_pairs_that_never_finish_a_turn_leave_a_step():
    # original = 4 positions: no pair turns once, both ends of the ramp fall on pair 0.
    yarn = YarnScaling(2.0, 4, 32, 1, 1.0, 1.0)
    config = replace(deepseek_v32(), qk_rope_head_dim=8, rope_scaling=yarn)
    plain = rope_frequencies(replace(config, rope_scaling=None))
    assert (plain / rope_frequencies(config)).tolist() == pytest.approx([1.0, 2.0, 2.0, 2.0])


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: rope_fn(torch.ones(2, 3), torch.tensor([1, 2])), r"even last dimension.*\(2, 3\)"),
        (lambda: rope_fn(torch.ones(2, 4), torch.tensor([1, 2, 3])), r"broadcast against \(2,\): got \(3,\)"),
        (lambda: rope_fn(torch.ones(2, 4), torch.tensor([1, 2]), frequencies=torch.ones(4)), r"shape \(2,\), one a"),
        (lambda: rope_fn(torch.ones(()), torch.tensor(1)), r"even last dimension.*\(\)"),
        (lambda: rope_fn(torch.ones(2, 4), torch.tensor([1, 2]), -1.0), "theta must be finite and above 0: got -1.0"),
        (
            lambda: rope_fn(torch.ones(2, 4), torch.tensor([1, 2]), math.nan),
            "theta must be finite and above 0: got nan",
        ),
        (
            lambda: rope_fn(torch.ones(2, 4), torch.tensor([1, 2]), pairing="both"),
            "'interleaved' or 'half': got 'both'",
        ),
    ],
)
def test_wrong_arguments_are_named(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            (torch.ones(2, 4).int(), torch.tensor([1, 2])),
            "x must be a floating-point tensor: got a tensor of torch.int32",
        ),
        (([1.0, 2.0], torch.tensor([1])), "x must be a floating-point tensor: got list"),
        ((torch.ones(2, 4), torch.tensor([1.0, 2.0])), "positions must be an int32 or int64 tensor: got a tensor of"),
        ((torch.ones(2, 4), [1, 2]), "positions must be an int32 or int64 tensor: got list"),
        ((torch.ones(2, 4), torch.tensor([1, 2]), "10000"), "theta must be a number: got '10000'"),
    ],
)
def test_other_types_are_named(arguments, sentence):
    with pytest.raises(TypeError, match=sentence):
        rope_fn(*arguments)


def test_the_docstring_example_holds():
    result = doctest.testmod(sys.modules[rope_fn.__module__])
    assert (result.attempted, result.failed) == (2, 0)
