"""The picture of a decode's bounds shows the roofline's numbers, and measured times beside them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from svg_reading import details

from mlacademy import measured
from mlacademy.roofline import H200, Machine, Shape, roofline
from mlacademy.viz import decode_bounds
from mlacademy.viz.kernel_studies import BOUNDS


@pytest.mark.parametrize("shape", [Shape(128), Shape(128, 64), Shape(1), Shape(3, 16, 2, 100)])
def test_every_part_is_a_bar_with_its_time(shape: Shape) -> None:
    picture = decode_bounds(shape)
    bars = [text for text in details(picture.svg) if " µs" in text]
    for part, seconds in roofline(shape).seconds.items():
        assert sum(text.startswith(f"{part}: ") for text in bars) == 1
        assert f"{part:<14} {1e6 * seconds:8.2f} µs" in picture.text
    assert f"set by {roofline(shape).binding}" in picture.text


def test_a_measured_time_is_drawn_as_a_multiple_of_the_bound() -> None:
    bound = 1e6 * roofline(Shape(128)).floor
    picture = decode_bounds(Shape(128), measured_us={"ours": 2 * bound})
    assert "measured: 2.00 times the bound" in picture.text
    assert any(text.startswith("ours: ") and text.endswith("measured") for text in details(picture.svg))


def test_the_widget_shows_kept_times_only_for_the_measured_card(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    row = dict.fromkeys(measured.FIELDS, 1.0) | {"case": "h128_s1_b128", "ours_us": 200.5, "peer_us": None}
    kept = {"card": "a", "driver": "b", "date": "c", "commit": "d", "rows": [row]}
    file = tmp_path / "kept.json"
    file.write_text(json.dumps(kept), encoding="utf-8")
    monkeypatch.setattr(measured, "results_file", lambda: file)
    assert "200.50 µs  measured" in BOUNDS.picture().text
    assert "measured:" not in BOUNDS.picture(card="H800 SXM, data sheet").text
    assert "measured:" not in BOUNDS.picture(b=2).text
    file.unlink()
    assert "measured:" not in BOUNDS.picture().text


def test_another_card_has_other_bounds() -> None:
    half = Machine("half", H200.sms, H200.clock_hz / 2, H200.copy_bytes_per_s)
    assert decode_bounds(Shape(128), half).svg != decode_bounds(Shape(128)).svg
