"""The weights drawn are those of the combine rule, computed here in float64 from the definition."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from svg_reading import details, numbers, written

from mlacademy.viz.merge_weights import combine_weights, merge_of

LSE = st.one_of(st.floats(-50, 50), st.just(-math.inf))


@given(st.lists(LSE, min_size=1, max_size=8), st.one_of(st.none(), st.floats(-40, 40)))
def test_weights_follow_from_the_definition(lse_log2: list[float], sink: float | None) -> None:
    m = merge_of(lse_log2, sink)
    terms = [2.0**v for v in lse_log2]
    extra = 0.0 if sink is None else math.exp(sink)
    if sum(terms) == 0:
        assert m.lse == math.inf
        assert m.sink_share == 0
        assert set(m.weights) == {0.0}
        return
    # A few float64 operations each: relative errors of 1e-12 leave room for the exponentials' own.
    for weight, term in zip(m.weights, terms, strict=True):
        assert weight == pytest.approx(term / (math.fsum(terms) + extra), rel=1e-12, abs=1e-300)
    assert m.lse == pytest.approx(math.log(math.fsum(terms)), rel=1e-12, abs=1e-12)
    assert m.sink_share == pytest.approx(extra / (math.fsum(terms) + extra), rel=1e-9, abs=1e-12)


def test_worked_example_of_the_combine_kernel() -> None:
    text = combine_weights([4.2, 3.8, 2.1]).text
    for weight in ("0.5022", "0.3806", "0.1171"):
        assert f"weight {weight}" in text
    assert "3.5999 (natural) = 5.1936 (base 2)" in text


def test_sink_takes_a_share_and_leaves_the_lse() -> None:
    without, with_sink = merge_of([4.0, 4.0]), merge_of([4.0, 4.0], sink=5 * math.log(2))
    assert with_sink.lse == without.lse
    assert with_sink.sink_share == pytest.approx(0.5)  # 2^4 + 2^4 = 2^5 = e^sink
    text = combine_weights([4.0, 4.0], sink=5 * math.log(2)).text
    assert "takes 0.5" in text
    assert "the sink is not in the lse" in text


@pytest.mark.parametrize("sink", [math.inf, -math.inf])
def test_infinite_sinks_take_all_or_nothing(sink: float) -> None:
    assert merge_of([1.0, 2.0], sink).sink_share == pytest.approx(1.0 if sink > 0 else 0.0)


def test_empty_split_is_named_and_weighs_nothing() -> None:
    picture = combine_weights([1.0, -math.inf])
    assert "split 1: lse_log2 −inf, 2^(l − max) 0, weight 0 (empty)" in picture.text
    assert any("(empty)" in d for d in details(picture.svg))


def test_all_empty_is_the_empty_row_with_or_without_sink() -> None:
    for sink in (None, 2.0):
        assert "out = 0, lse = +inf" in combine_weights([-math.inf] * 3, sink).text


@given(st.lists(LSE, min_size=1, max_size=32), st.one_of(st.none(), st.floats(-40, 40)))
def test_twin_has_the_numbers_of_the_drawing(lse_log2: list[float], sink: float | None) -> None:
    picture = combine_weights(lse_log2, sink)
    assert numbers(" ".join(written(picture.svg))) <= numbers(picture.text)


@pytest.mark.parametrize(
    ("lse_log2", "sink", "sentence"),
    [
        ([], None, "lse_log2 must be one row of 1 to 32 splits"),
        ([0.0] * 33, None, "lse_log2 must be one row of 1 to 32 splits"),
        ([math.nan], None, "must not be NaN"),
        ([1.0], math.nan, "must not be NaN"),
        ([math.inf], None, r"lse_log2 must not hold \+inf"),
    ],
)
def test_wrong_arguments_are_refused_by_name(lse_log2: list[float], sink: float | None, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        combine_weights(lse_log2, sink)
