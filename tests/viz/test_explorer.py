"""A widget without a browser: moving a control redraws, presets set many at once, bad settings give a sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets
import pytest

from mlacademy import viz
from mlacademy.viz import studies
from mlacademy.viz.explorer import OWN_SETTINGS, Explorer

NAMES = ("token_bytes", "number_line", "compression", "splits", "softmax", "combine", "swizzle", "fragment")


@pytest.fixture
def explore(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Explorer]:
    monkeypatch.delenv("MLACADEMY_STATIC", raising=False)
    return lambda name: getattr(viz, f"explore_{name}")()


@pytest.mark.parametrize("name", NAMES)
def test_widget_opens_with_the_static_picture(explore: Callable[[str], Explorer], name: str) -> None:
    w = explore(name)
    static = w.study.picture()
    assert (w.view.svg, w.view.text, w.view.title, w.view.message) == (static.svg, static.text, static.title, "")
    assert w.settings == w.study.defaults


@pytest.mark.parametrize("name", NAMES)
def test_moving_a_control_changes_the_drawing_and_moving_back_restores_it(
    explore: Callable[[str], Explorer], name: str
) -> None:
    w = explore(name)
    before = w.view.svg
    key, value = {
        "token_bytes": ("offset", 5),
        "number_line": ("magnitude", 0.3),
        "compression": ("layers", 30),
        "splits": ("topk", 2048),
        "softmax": ("step", 4),
        "combine": ("lse0", -1.0),
        "swizzle": ("mode", "none"),
        "fragment": ("thread", 4),
    }[name]
    old = w.controls[key].value
    w.controls[key].value = value
    assert w.view.svg != before
    assert w.view.svg == w.study.picture(**{key: value}).svg
    w.controls[key].value = old
    assert w.view.svg == before


@pytest.mark.parametrize("name", NAMES)
def test_every_control_has_a_label_that_fits(explore: Callable[[str], Explorer], name: str) -> None:
    for control in explore(name).controls.values():
        assert control.description
        assert len(control.description) <= 20


@pytest.mark.parametrize("name", NAMES)
def test_every_preset_can_be_chosen_and_shows_its_name(explore: Callable[[str], Explorer], name: str) -> None:
    w = explore(name)
    for preset in w.study.presets:
        w.presets.value = preset
        assert w.view.message == ""
        assert w.presets.value == preset
        assert w.settings == w.study.preset(preset)
        assert w.view.svg == w.study.draw(**w.study.preset(preset)).svg


def test_leaving_a_preset_says_so(explore: Callable[[str], Explorer]) -> None:
    w = explore("splits")
    assert w.presets.value == "the running example: b = 2, top-k 128, 132 SMs"
    w.controls["sms"].value = 100
    assert w.presets.value == OWN_SETTINGS
    w.controls["sms"].value = 132
    assert w.presets.value == "the running example: b = 2, top-k 128, 132 SMs"


def test_rounding_of_a_slider_does_not_leave_the_preset(explore: Callable[[str], Explorer]) -> None:
    w = explore("combine")
    w.controls["lse0"].value = 4.2 + 4e-15
    w.controls["lse3"].value = 1e-15
    assert w.presets.value == "three splits, one empty"


def test_bad_settings_show_a_sentence_and_keep_the_last_picture(explore: Callable[[str], Explorer]) -> None:
    w = explore("compression")
    before = w.view.svg
    w.set(heads=8, groups=32)
    assert w.view.message == "groups must divide heads, each group serves equally many: 8 heads, 32 groups."
    assert w.view.svg == before
    w.controls["groups"].value = 4
    assert w.view.message == ""
    assert w.view.svg != before


def test_offset_cannot_leave_the_page(explore: Callable[[str], Explorer]) -> None:
    w = explore("token_bytes")
    w.controls["offset"].value = 63
    w.controls["page"].value = 16
    assert (w.controls["offset"].value, w.controls["offset"].max) == (15, 15)
    assert "offset 15 in a page of 16" in w.view.title
    w.controls["page"].value = 256
    w.controls["offset"].value = 200
    assert "offset 200 in a page of 256" in w.view.title


def test_step_follows_the_number_of_blocks(explore: Callable[[str], Explorer]) -> None:
    w = explore("softmax")
    w.controls["blocks"].value = 2
    assert w.controls["step"].max == 1
    w.set(blocks=8, step=7)
    assert w.view.title == "Online softmax, all 8 blocks"


def test_several_settings_are_drawn_once(explore: Callable[[str], Explorer]) -> None:
    w = explore("splits")
    drawn: list[Any] = []
    w.view.observe(drawn.append, names="svg")
    w.set(b=16, topk=2048, sms=78)
    assert len(drawn) == 1


def slider_beside(w: Explorer, name: str) -> Any:
    grid = w.children[0]
    (box,) = [b for b in grid.children if isinstance(b, ipywidgets.HBox) and b.children[0] is w.controls[name]]
    return box.children[1]


def test_exact_value_survives_the_slider_that_shows_its_logarithm(explore: Callable[[str], Explorer]) -> None:
    w = explore("number_line")
    slider = slider_beside(w, "magnitude")
    w.controls["magnitude"].value = 17.1
    # In the page the slider stands at a multiple of its step and reports that back.
    slider.value = round(slider.value / slider.step) * slider.step
    assert w.controls["magnitude"].value == 17.1
    slider.value = 3.0
    assert w.controls["magnitude"].value == 8.0
    assert "8 as E4M3" in w.view.title


def test_view_brings_its_own_script_and_style() -> None:
    view = viz.explore_combine().view
    assert "data-detail" in str(view._esm)
    assert ".mla-ring" in str(view._css)


def test_largest_schedule_is_drawn_within_a_slider_s_patience(explore: Callable[[str], Explorer]) -> None:
    w = explore("splits")
    w.set(b=1024, topk=4096, pattern="uniform", sms=160, h_q=64)
    assert w.view.message == ""
    assert len(w.view.svg) < 600_000
    assert studies.BATCHES[-1] == 1024
