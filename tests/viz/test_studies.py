"""Every preset and every extreme of every control draws a picture or is refused in a sentence."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from svg_reading import parse

from mlacademy import fp8, viz
from mlacademy.config import deepseek_v32
from mlacademy.gpus import B200, H20, H200, H800
from mlacademy.schedule import KERNELS
from mlacademy.viz import kernel_studies, studies, study
from mlacademy.viz.picture import Picture
from mlacademy.viz.study import Choice, Slider, Stops, Study, Toggle

ALL: dict[str, Study] = {
    "token_bytes": studies.TOKEN_BYTES,
    "number_line": studies.NUMBER_LINE,
    "compression": studies.COMPRESSION,
    "splits": studies.SPLITS,
    "softmax": studies.SOFTMAX,
    "combine": studies.COMBINE,
    "swizzle": kernel_studies.SWIZZLE,
    "fragment": kernel_studies.FRAGMENT,
    "decode_bounds": kernel_studies.BOUNDS,
}


def values(control: study.Control) -> st.SearchStrategy[Any]:
    if isinstance(control, Toggle):
        return st.booleans()
    if isinstance(control, Choice):
        return st.sampled_from(list(control.options.values()))
    if isinstance(control, Stops):
        return st.sampled_from(control.options)
    if control.whole:
        return st.integers(int(control.low), int(control.high))
    return st.floats(control.low, control.high)


@pytest.mark.parametrize(("name", "preset"), [(n, p) for n, s in ALL.items() for p in s.presets])
def test_every_preset_draws_and_lies_within_the_controls(name: str, preset: str) -> None:
    s = ALL[name]
    chosen = s.preset(preset)
    assert chosen.keys() == s.defaults.keys()
    for control in s.controls:
        value = chosen[control.name]
        if isinstance(control, Slider):
            assert control.low <= value <= control.high
        elif isinstance(control, Stops):
            assert value in control.options
        elif isinstance(control, Choice):
            assert value in control.options.values()
    assert isinstance(s.draw(**chosen), Picture)
    assert s.name_of(chosen) == preset


@pytest.mark.parametrize("name", ALL)
def test_any_settings_draw_or_are_refused_in_a_sentence(name: str) -> None:
    s = ALL[name]
    sentences: list[str] = []

    @settings(max_examples=25)
    @given(st.fixed_dictionaries({c.name: values(c) for c in s.controls}))
    def draw(chosen: dict[str, Any]) -> None:
        try:
            picture = s.draw(**chosen)
        except ValueError as refused:
            sentences.append(str(refused))
        else:
            parse(picture.svg)
            assert picture.text.startswith(picture.title)

    draw()
    assert all(" must " in sentence for sentence in sentences)


@pytest.mark.parametrize("name", ALL)
def test_changing_any_control_can_change_the_picture(name: str) -> None:
    s = ALL[name]
    for control in s.controls:
        tried = {
            Toggle: lambda c: [not c.default],
            Choice: lambda c: list(c.options.values()),
            Stops: lambda c: list(c.options),
            Slider: lambda c: [c.low, c.high],
        }[type(control)](control)
        base = s.preset("H800 / H200, unequal lengths, b = 48") if name == "splits" else s.defaults
        if control.name == "overflow":
            base = base | {"magnitude": 500.0}
        if control.name == "sink":
            base = base | {"use_sink": True}
        if control.name == "lse3":
            base = base | {"empty3": False}
        pictures = set()
        for value in tried:
            try:
                pictures.add(s.draw(**(base | {control.name: value})).svg)
            except ValueError:
                continue
        assert pictures - {s.draw(**base).svg}, f"{control.name} changes nothing"


def test_settings_outside_the_study_are_refused() -> None:
    with pytest.raises(ValueError, match="no such setting: pages; there are layout"):
        studies.TOKEN_BYTES.picture(pages=3)


def test_presets_of_deployments_have_the_cards_sms() -> None:
    for preset in studies.SPLITS.presets:
        sms = studies.SPLITS.preset(preset)["sms"]
        for word, card in (("H800", H800), ("H200", H200), ("H20,", H20), ("B200", B200)):
            if word in preset:
                assert sms == card.sms


def test_presets_of_the_model_have_its_topk_and_layers() -> None:
    c = deepseek_v32()
    assert all(s["topk"] == c.index_topk for p, s in studies.SPLITS.presets.items() if "V3.2" in p)
    assert studies.COMPRESSION.defaults["layers"] == c.num_hidden_layers


@pytest.mark.parametrize("family", studies.KERNEL_FAMILIES.values())
@pytest.mark.parametrize("h_q", [64, 128])
def test_every_family_has_a_kernel_for_64_and_128_heads(family: str, h_q: int) -> None:
    kernel, ctas = studies.kernel_of(family, h_q)
    assert h_q in (KERNELS[kernel].heads or ())
    assert ctas in (1, 2)


@pytest.mark.parametrize("pattern", studies.PATTERNS.values())
@pytest.mark.parametrize(("b", "topk"), [(1, 64), (7, 128), (1024, 4096)])
def test_lengths_fit_in_the_index_list(pattern: str, b: int, topk: int) -> None:
    lengths = studies.request_lengths(b, topk, pattern, seed=3)
    assert lengths.shape == (b,)
    assert 0 <= lengths.min() <= lengths.max() <= topk
    np.testing.assert_array_equal(lengths, studies.request_lengths(b, topk, pattern, seed=3))


def of_the_plan(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in ("partial", "by")}


def test_plan_of_the_running_example_is_the_worked_one() -> None:
    chosen = of_the_plan(studies.SPLITS.defaults)
    plan, ctas = studies.plan_of(**chosen)
    assert (plan.parts, plan.payload, plan.used, ctas) == (66, 6, 4, 2)
    assert plan.num_splits.tolist() == [0, 2, 4]


def test_two_query_tokens_take_twice_the_sms() -> None:
    chosen = {
        k: v for k, v in studies.SPLITS.preset("H800 / H200, V3.2, b = 128").items() if k not in ("partial", "by")
    }
    plan, ctas = studies.plan_of(**(chosen | {"s_q": 2}))
    assert (plan.parts, plan.payload, ctas) == (33, 149, 4)


def test_outlier_coarsens_only_its_own_tile() -> None:
    calm, outlier = (
        studies.TOKEN_BYTES.picture(stored=s).text.split("Scales: ")[1].splitlines()[0] for s in ("normal", "outlier")
    )
    calm_scales, outlier_scales = calm.split(", "), outlier.split(", ")
    assert [a == b for a, b in zip(calm_scales, outlier_scales, strict=True)] == [True, False, True, True]
    assert fp8.V32_RULE.scale(300.0) == 1.0
    assert outlier_scales[1] == "1: 2⁰"


def test_zeros_stop_at_the_smallest_scale() -> None:
    assert "0: 2⁻¹³, 1: 2⁻¹³, 2: 2⁻¹³, 3: 2⁻¹³" in studies.TOKEN_BYTES.picture(stored="zeros").text


def test_holes_lie_where_they_are_said_to_lie() -> None:
    assert studies.valid_mask(6, 2, "block 1") == [True, True, False, False, True, True]
    assert studies.valid_mask(8, 2, "front") == [False] * 3 + [True] * 5
    assert not any(studies.valid_mask(5, 5, "everywhere"))
    assert all(studies.valid_mask(5, 5, "none"))
    assert studies.valid_mask(4, 2, "scattered") == [True, False, True, True]
    with pytest.raises(ValueError, match="there are 3 blocks, asked for block 3"):
        studies.valid_mask(6, 2, "block 3")


def test_all_splits_empty_shows_the_empty_row() -> None:
    assert "lse = +inf" in studies.COMBINE.picture(**{f"empty{i}": True for i in range(4)}).text
    assert math.isclose(sum(studies.SPLIT_DEFAULTS), 10.1)


@pytest.mark.parametrize("name", ALL)
def test_the_book_gets_the_static_picture_of_the_defaults(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLACADEMY_STATIC", "1")
    shown = getattr(viz, f"explore_{name}")()
    assert shown == ALL[name].picture()


@pytest.mark.parametrize("missing", ["anywidget", "ipywidgets"])
def test_without_a_widget_library_the_static_picture_is_shown(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLACADEMY_STATIC", raising=False)
    monkeypatch.setattr(study, "find_spec", lambda name: None if name == missing else object())
    assert isinstance(viz.explore_number_line(), Picture)
