"""The compression calculator's numbers are those of the library and of the published ratios."""

from __future__ import annotations

from fractions import Fraction

import pytest
from svg_reading import rectangles

from mlacademy import cache
from mlacademy.config import deepseek_v32
from mlacademy.viz.cache_sizes import compression, storage_forms

V32 = {"heads": 128, "nope": 128, "rope": 64, "v": 128, "latent": 512, "groups": 8, "dtype": "bf16"}


def test_defaults_are_the_numbers_of_deepseek_v32() -> None:
    c = deepseek_v32()
    assert V32["heads"] == c.num_attention_heads
    assert (V32["nope"], V32["rope"], V32["v"]) == (c.qk_nope_head_dim, c.qk_rope_head_dim, c.v_head_dim)
    assert V32["latent"] == c.kv_lora_rank
    assert compression() == compression(**V32, layers=c.num_hidden_layers)


def test_bytes_and_ratios_are_the_published_ones() -> None:
    multi_head, grouped, latent, fp8 = storage_forms(**V32)
    assert (multi_head.values, latent.values) == (40960, 576)
    assert (multi_head.bytes_per_token, grouped.bytes_per_token, latent.bytes_per_token) == (81920, 5120, 1152)
    assert fp8.bytes_per_token == cache.V32.bytes_per_token == 656
    text = compression().text
    assert f"{Fraction(40960, 576).__float__():.1f}× less" in text  # 71.1
    assert "124.9× less" in text


@pytest.mark.parametrize(("layers", "context", "gib"), [(61, 32768, 80), (1, 1, 0.001), (62, 131072, 131.3)])
def test_budget_is_whole_tokens_in_whole_layers(layers: int, context: int, gib: float) -> None:
    text = compression(layers=layers, context=context, gib=gib).text
    for form in storage_forms(**V32):
        tokens = int(Fraction(gib) * 2**30 // (form.bytes_per_token * layers))
        assert f"{tokens:,} tokens fit in" in text
        assert f"({tokens // context:,} requests)" in text
        assert f"{form.bytes_per_token * layers * context / 2**30:,.2f} GiB for {context:,} tokens" in text


def test_bars_are_as_long_as_the_bytes() -> None:
    svg = compression().svg
    widths = [rectangles(svg, f"{form.name}: {form.formula}")[0][2] for form in storage_forms(**V32)]
    for form, width in zip(storage_forms(**V32), widths, strict=True):
        # coordinates are written with two decimals
        assert width == pytest.approx(widths[0] * form.bytes_per_token / 81920, abs=0.02)


def test_a_latent_wider_than_the_heads_costs_more() -> None:
    assert "× more than" in compression(heads=1, nope=32, rope=0, v=32, groups=1, latent=1024).text


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"heads": 0}, "heads must be at least 1: it is 0"),
        ({"rope": -1}, "rope must be 0 or more: it is -1"),
        ({"groups": 3}, "groups must divide heads, each group serves equally many: 128 heads, 3 groups"),
        ({"latent": 100}, "latent must be a multiple of 128"),
        ({"dtype": "int4"}, "dtype must be one of bf16, fp8, fp32: it is 'int4'"),
        ({"layers": 0}, "layers must be at least 1"),
        ({"context": 0}, "context must be at least 1"),
        ({"gib": 0}, "gib must be finite and above 0"),
        ({"gib": float("nan")}, "gib must be finite and above 0"),
    ],
)
def test_wrong_arguments_are_refused_by_name(wrong: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        compression(**wrong)  # type: ignore[arg-type]
