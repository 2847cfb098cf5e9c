"""The arithmetic of compression against counts made by listing every stored value."""

import doctest
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlacademy.config import deepseek_v32
from mlacademy.mla import attention_cost, break_even_queries, cache_sizes, costs

V32 = deepseek_v32()


def small(h, rank, nope, rope, v):
    return replace(
        V32, num_attention_heads=h, kv_lora_rank=rank, qk_nope_head_dim=nope, qk_rope_head_dim=rope, v_head_dim=v
    )


def test_values_of_v32():
    sizes = cache_sizes(V32)
    assert (sizes.mha_values, sizes.kv_without_rope_values, sizes.k_nope_values, sizes.latent_values) == (
        40_960,
        32_768,
        16_384,
        576,
    )


def test_ratios_of_v32():
    sizes = cache_sizes(V32)
    assert [round(r, 1) for r in (sizes.ratio, sizes.ratio_without_rope, sizes.ratio_of_k_nope)] == [71.1, 56.9, 28.4]


def test_bytes_of_v32():
    sizes = cache_sizes(V32)
    assert (sizes.mha_bytes, sizes.bf16_bytes, sizes.fp8_bytes) == (81_920, 1_152, 656)


def test_bytes_of_a_whole_model():
    sizes = cache_sizes(V32)
    assert sizes.model_bytes(1, "mha") == 61 * 81_920
    assert sizes.model_bytes(131_072, "fp8") == 61 * 131_072 * 656
    assert sizes.model_bytes(0, "bf16") == 0


@settings(deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.integers(1, 4), st.integers(1, 9))
def test_counts_equal_a_listing_of_the_values(h, rank, nope, half, v):
    rope = 2 * half
    stored = [("k", head, "nope", i) for head in range(h) for i in range(nope)]
    stored += [("k", head, "rope", i) for head in range(h) for i in range(rope)]
    stored += [("v", head, "", i) for head in range(h) for i in range(v)]
    sizes = cache_sizes(small(h, rank, nope, rope, v))
    assert sizes.mha_values == len(stored)
    assert sizes.kv_without_rope_values == len([x for x in stored if x[2] != "rope"])
    assert sizes.k_nope_values == len([x for x in stored if x[2] == "nope"])
    assert sizes.latent_values == rank + rope


def count_flops(config, form, s_q, s_kv):
    """Multiply-adds counted one product at a time, times two."""
    h, c = config.num_attention_heads, config.kv_lora_rank
    nope, rope, v = config.qk_nope_head_dim, config.qk_rope_head_dim, config.v_head_dim
    core = expand = 0
    for _ in range(h):
        if form == "naive":
            expand += s_kv * (nope * c + v * c)  # W_UK c and W_UV c for each cached token
        if form == "absorbed":
            expand += s_q * (nope * c + v * c)  # W_UK^T q and W_UV o for each query
        for _ in range(s_q):
            for _ in range(s_kv):
                core += (c + rope) + c if form == "absorbed" else (nope + rope) + v
    return 2 * core, 2 * expand


@pytest.mark.parametrize("form", ["mha", "naive", "absorbed"])
@pytest.mark.parametrize(("s_q", "s_kv"), [(1, 5), (3, 4), (7, 1)])
def test_flops_equal_a_count_of_products(form, s_q, s_kv):
    config = small(3, 7, 5, 2, 4)
    cost = attention_cost(config, form, s_q=s_q, s_kv=s_kv)
    assert (cost.core_flops, cost.expand_flops) == count_flops(config, form, s_q, s_kv)
    assert cost.flops == cost.core_flops + cost.expand_flops


def test_intensities_of_v32():
    def intensity(form, **kwargs):
        return attention_cost(V32, form, s_q=1, s_kv=4096, **kwargs).intensity

    assert intensity("mha") == 1.0
    assert intensity("absorbed") == pytest.approx(128 * 2 * (576 + 512) / 1152)
    assert round(intensity("absorbed"), 1) == 241.8
    assert round(intensity("absorbed", bytes_per_token=656), 1) == 424.6


def test_break_even_is_where_the_two_forms_cost_the_same():
    at = break_even_queries(V32)
    assert at == Fraction(512, 3)
    long = 10**9

    def flops(form, s_q):
        return attention_cost(V32, form, s_q=s_q, s_kv=long).flops

    assert flops("absorbed", 170) < flops("naive", 170)
    assert flops("absorbed", 171) > flops("naive", 171)


def test_no_break_even_when_the_latent_is_narrow():
    assert break_even_queries(small(4, 2, 8, 2, 8)) is None


def test_wrong_arguments_are_named():
    sizes = cache_sizes(V32)
    with pytest.raises(ValueError, match="kind must be 'mha', 'bf16' or 'fp8': got 'int4'"):
        sizes.model_bytes(1, "int4")
    with pytest.raises(ValueError, match="tokens must not be negative: got -1"):
        sizes.model_bytes(-1, "fp8")
    with pytest.raises(ValueError, match="kv_lora_rank must be a multiple of 128 for the FP8 layout: got 96"):
        _ = cache_sizes(replace(V32, kv_lora_rank=96)).fp8_bytes
    with pytest.raises(ValueError, match="form must be 'mha', 'naive' or 'absorbed': got 'mqa'"):
        attention_cost(V32, "mqa", s_q=1, s_kv=1)
    for name in ("s_q", "s_kv", "bytes_per_token"):
        with pytest.raises(ValueError, match=f"{name} must be at least 1: got 0"):
            attention_cost(V32, "absorbed", **({"s_q": 1, "s_kv": 1} | {name: 0}))


def test_the_docstring_examples_hold():
    result = doctest.testmod(costs)
    assert result.attempted >= 4
    assert result.failed == 0
