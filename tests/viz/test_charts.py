"""Charts draw what they are given, say it in words, and refuse what they cannot draw with a sentence."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from svg_reading import parse, written

from mlacademy.viz import bars, heatmap, lines, scatter
from mlacademy.viz.chart_frame import tick_text
from mlacademy.viz.theme import PALETTE

LABELS: dict[str, Any] = {"xlabel": "tokens", "ylabel": "bytes", "title": "T", "text": "What it says: 7."}
BARS: dict[str, Any] = {"labels": ["p", "q"], "ylabel": "bytes", "title": "T", "text": "What it says: 7."}


def texts(svg: str) -> list[str]:
    return [re.sub(r"\s+", " ", t) for t in written(svg, dim=True)]


def test_twin_is_title_words_and_the_values_plotted() -> None:
    picture = lines({"a": [1.5, 2], "b": [3, 4096]}, x=[1, 2], **LABELS)
    assert picture.text.splitlines() == [
        "T",
        "What it says: 7.",
        "bytes by tokens:",
        "  a: 1 → 1.5, 2 → 2",
        "  b: 1 → 3, 2 → 4,096",
    ]


def test_long_series_leave_the_twin_to_its_words() -> None:
    picture = lines({"a": range(100)}, x=range(100), **LABELS)
    assert picture.text == "T\nWhat it says: 7."


def test_series_differ_by_colour_and_by_dash_and_marker() -> None:
    svg = lines({str(i): [i, i + 1] for i in range(6)}, x=[0, 1], **LABELS).svg
    assert all(colour in svg for colour in PALETTE)
    dashes = set(re.findall(r"stroke-dasharray: ([^;\"]+)", svg))
    assert len(dashes) == 5  # and one solid


def test_bars_are_as_high_as_their_values() -> None:
    svg = bars({"a": [100.0, 50.0]}, values=False, **BARS).svg
    heights = []
    for path in parse(svg).iter("{http://www.w3.org/2000/svg}path"):
        if "fill: #177cef" in path.get("style", ""):
            ys = [float(y) for y in re.findall(r"[ML] [\d.]+ ([\d.]+)", path.get("d", ""))]
            heights.append(max(ys) - min(ys))
    assert len(heights) == 2
    assert heights[0] == pytest.approx(2 * heights[1], rel=1e-4)


@pytest.mark.parametrize("horizontal", [False, True])
@pytest.mark.parametrize("stacked", [False, True])
def test_bars_carry_labels_values_and_reference_lines(horizontal: bool, stacked: bool) -> None:
    picture = bars(
        {"a": [1152, 656], "b": [10, 20]}, horizontal=horizontal, stacked=stacked, levels={"limit": 900}, **BARS
    )
    shown = texts(picture.svg)
    for word in ("p", "q", "a", "b", "1,152", "656", "10", "20", "limit", "bytes"):
        assert word in shown
    assert "  a: p → 1,152, q → 656" in picture.text


def test_reference_lines_are_labelled() -> None:
    shown = texts(lines({"a": [1, 2]}, x=[0, 10], marks={"page": 4}, levels={"peak": 1.5}, **LABELS).svg)
    assert {"page", "peak"} <= set(shown)


def test_axes_in_powers_of_two_say_plain_numbers() -> None:
    shown = texts(lines({"a": [1, 2, 4]}, x=[1, 64, 4096], logx=True, logy=True, **LABELS).svg)
    assert "4,096" in shown


def test_whole_numbers_get_whole_ticks() -> None:
    shown = texts(lines({"a": [1, 2, 3]}, x=[1, 2, 3], **LABELS).svg)
    assert shown[: shown.index("tokens")] == ["1", "2", "3"]


def test_chinese_and_mathematics_draw_without_a_warning() -> None:
    picture = lines({"朴素": [1, 2]}, x=[1, 2], xlabel="词元", ylabel="$2^x$", title="缓存", text="字节。")
    assert "缓存" in texts(picture.svg)
    assert picture.title == "缓存"


def test_large_clouds_and_matrices_become_images_and_stay_small() -> None:
    rng = np.random.default_rng(0)
    cloud = scatter({"a": tuple(rng.normal(size=(2, 20_000)))}, **LABELS)
    matrix = heatmap(rng.normal(size=(128, 128)), title="T", text="Words.")
    for picture in (cloud, matrix):
        assert "data:image/png;base64" in picture.svg
        assert len(picture.svg) < 400_000
    assert "<image" not in scatter({"a": ([1, 2], [3, 4])}, **LABELS).svg


def test_heatmap_names_rows_columns_and_values() -> None:
    picture = heatmap(
        [[1, 2.5], [math.nan, 4]], rows=["u", "v"], columns=["p", "q"], unit="bytes", title="T", text="Words."
    )
    shown = texts(picture.svg)
    for word in ("u", "v", "p", "q", "1", "2.5", "4", "bytes"):
        assert word in shown
    assert "nan" not in shown
    assert "  u: p → 1, q → 2.5" in picture.text


def test_signed_heatmap_uses_two_colours() -> None:
    signed = heatmap([[-1.0, 1.0]], title="T", text="Words.").svg
    assert "#177cef" in signed
    assert "#db7815" in signed
    assert "#db7815" not in heatmap([[0.5, 1.0]], title="T", text="Words.").svg


def test_all_equal_or_all_missing_matrices_are_drawn() -> None:
    for matrix in ([[0, 0]], [[math.nan]]):
        assert heatmap(matrix, title="T", text="Words.").svg


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1200, "1,200"), (-0.25, "−0.25"), (0.30000000000000004, "0.3"), (2e7, "2e+07"), (3e-6, "3e−06")],
)
def test_tick_text(value: float, text: str) -> None:
    assert tick_text(value) == text


def refusals() -> list[tuple[Any, str]]:
    a = {"a": [1, 2]}
    return [
        (lambda: lines({}, x=[1], **LABELS), "series needs at least one"),
        (lambda: scatter({}, **LABELS), "series needs at least one"),
        (lambda: bars({}, **BARS), "series needs at least one"),
        (
            lambda: lines(a, x=[1], **LABELS),
            r"series 'a' must have one y for each x: x has shape \(1,\), y has shape \(2,\)",
        ),
        (lambda: lines({"a": []}, x=[], **LABELS), "series 'a' is empty"),
        (lambda: lines(a, x=[0, 1], logx=True, **LABELS), "logx needs values above 0: x reaches down to 0"),
        (lambda: lines({"a": [-1, 2]}, x=[1, 2], logy=True, **LABELS), "logy needs values above 0"),
        (lambda: lines(a, x=[1, 2], **(LABELS | {"text": " "})), "text must say what the chart shows"),
        (lambda: bars(a, stacked=True, log=True, **BARS), "stacked bars have no meaning on a logarithmic axis"),
        (lambda: bars({"a": [1]}, **BARS), "one y for each x"),
        (lambda: heatmap([1, 2], title="T", text="W"), r"values must be a matrix \[rows, columns\], got shape \(2,\)"),
        (lambda: heatmap(np.zeros((200, 200)), title="T", text="W"), "at most 16,384 cells, got 40,000"),
        (lambda: heatmap([[1, 2]], rows=["a", "b"], title="T", text="W"), "rows must name each of the 1 rows, got 2"),
    ]


@pytest.mark.parametrize("index", range(len(refusals())))
def test_what_cannot_be_drawn_is_refused_in_a_sentence(index: int) -> None:
    draw, sentence = refusals()[index]
    with pytest.raises(ValueError, match=sentence):
        draw()
