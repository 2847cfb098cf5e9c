"""A picture says the same as drawing and as text, works in light and dark, and is the same bytes every time."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from svg_reading import SVG, details, numbers, parse, written

from mlacademy import viz
from mlacademy.schedule import schedule
from mlacademy.viz.canvas import Canvas, number
from mlacademy.viz.picture import Picture, make_picture, with_tooltips

DRAWN = {
    "token_bytes": lambda: viz.token_bytes("V32", 64, 3),
    "token_bytes split": lambda: viz.token_bytes("MODEL1", 64, 10),
    "number_line": lambda: viz.number_line(0.3, scale=2.0**-7),
    "compression": viz.compression,
    "splits": lambda: viz.splits(schedule([2048, 100, 1, 1024], 66)),
    "softmax_steps": lambda: viz.softmax_steps([1.0, 3.0, 2.0, 5.0, 0.5], block=2, step=1),
    "combine_weights": lambda: viz.combine_weights([4.2, 3.8, float("-inf")], sink=1.0),
    "swizzle_map": lambda: viz.swizzle_map("64B", row_bytes=64, column=1),
    "fragment_map": lambda: viz.fragment_map("A", dtype="e4m3", thread=70),
    "lines": lambda: viz.lines(
        {"a": [1, 2], "b": [3, 4]}, x=[1, 2], xlabel="x", ylabel="y", title="T", text="Two lines."
    ),
    "bars": lambda: viz.bars({"a": [1, 2], "b": [2, 3]}, labels=["p", "q"], ylabel="y", title="T", text="Four bars."),
    "scatter": lambda: viz.scatter({"a": ([1, 2], [3, 4])}, xlabel="x", ylabel="y", title="T", text="Two points."),
    "heatmap": lambda: viz.heatmap([[1, 2], [3, -4]], title="T", text="Four cells."),
}
CORE = list(DRAWN)[:9]


@pytest.fixture(scope="module", params=DRAWN)
def picture(request: pytest.FixtureRequest) -> Picture:
    drawn = DRAWN[request.param]()
    assert isinstance(drawn, Picture)
    return drawn


def test_svg_is_well_formed_scalable_and_named(picture: Picture) -> None:
    root = parse(picture.svg)
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    assert len(root.get("viewBox", "").split()) == 4
    assert root.get("width") is root.get("height") is None
    by_id = {e.get("id"): e for e in root.iter() if e.get("id")}
    name, description = by_id[root.get("aria-labelledby")], by_id[root.get("aria-describedby")]
    assert (name.tag, name.text) == (f"{SVG}title", picture.title)
    assert description.tag == f"{SVG}desc"
    assert description.text
    assert description.text in picture.text


def test_ids_are_unique_and_every_reference_has_its_target(picture: Picture) -> None:
    ids = re.findall(r'\sid="([^"]+)"', picture.svg)
    targets = re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', picture.svg)
    assert len(ids) == len(set(ids))
    assert {a or b for a, b in targets} <= set(ids)


def test_ids_of_different_pictures_do_not_clash() -> None:
    one, two = (re.findall(r'\sid="([^"]+)"', DRAWN[name]().svg) for name in ("softmax_steps", "combine_weights"))
    assert one
    assert not set(one) & set(two)


def test_ink_follows_the_page_in_light_and_dark(picture: Picture) -> None:
    assert "currentColor" in picture.svg
    for fixed in ("#000", "#fff", "#FFF", "black", "white", "#010203", "rgb("):
        assert fixed not in picture.svg
    # Text without a fill of its own takes the root's: currentColor in core pictures, a style in charts.
    for text in parse(picture.svg).iter(f"{SVG}text"):
        fill = text.get("fill") or dict(re.findall(r"(fill): ([^;]+)", text.get("style", ""))).get("fill")
        assert fill is None or fill == "currentColor" or re.fullmatch(r"#[0-9a-f]{6}", fill)


@pytest.mark.parametrize("name", DRAWN)
def test_drawing_twice_gives_the_same_bytes(name: str) -> None:
    assert DRAWN[name]() == DRAWN[name]()


def test_another_process_draws_the_same_bytes() -> None:
    source = (
        "from mlacademy import viz\nfrom mlacademy.schedule import schedule\n"
        "print(viz.splits(schedule([2048, 100, 1, 1024], 66)).svg)\n"
        "print(viz.bars({'a': [1, 2], 'b': [2, 3]}, labels=['p', 'q'], ylabel='y', title='T', text='Four bars.').svg)"
    )
    run = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert run.stdout == DRAWN["splits"]().svg + "\n" + DRAWN["bars"]().svg + "\n"


@pytest.mark.parametrize("name", CORE)
def test_twin_contains_every_number_of_the_drawing(name: str) -> None:
    picture = DRAWN[name]()
    drawn = numbers(" ".join(written(picture.svg)))
    assert drawn <= numbers(picture.text), f"only drawn: {sorted(drawn - numbers(picture.text))}"


@pytest.mark.parametrize("name", CORE)
def test_core_pictures_explain_their_parts(name: str) -> None:
    sentences = details(DRAWN[name]().svg)
    assert len(sentences) >= 4
    assert all(len(s) > 8 and "\n" not in s for s in sentences)


def test_notebook_gets_html_and_terminal_gets_the_twin(picture: Picture) -> None:
    bundle = picture._repr_mimebundle_()
    assert set(bundle) == {"text/html", "text/plain"}
    assert bundle["text/plain"] == picture.text == repr(picture)
    assert picture.text.startswith(picture.title)
    html = bundle["text/html"]
    assert html.startswith('<figure class="mla-figure"')
    assert "<script" not in html
    assert "<details><summary>Text version</summary>" in html
    assert "\n\n" not in html
    assert f"max-width:{parse(picture.svg).get('viewBox', '').split()[2]}px" in html


def test_details_become_tooltips_where_there_is_no_script() -> None:
    picture = DRAWN["combine_weights"]()
    static = parse(with_tooltips(picture.svg))
    assert not [e for e in static.iter() if e.get("data-detail")]
    tips = [e.text for e in static.iter(f"{SVG}title")][1:]
    assert tips == details(picture.svg)


def test_saved_file_is_a_standalone_svg_with_ink_for_both_grounds(tmp_path: Path) -> None:
    path = DRAWN["splits"]().save(tmp_path / "splits.svg")
    root = ElementTree.parse(path).getroot()
    style = root.find(f"{SVG}style")
    assert style is not None
    assert "prefers-color-scheme: dark" in (style.text or "")
    assert DRAWN["splits"]().save(str(tmp_path / "again.svg")).read_bytes() == path.read_bytes()


def test_text_is_escaped_in_drawing_and_twin() -> None:
    canvas = Canvas()
    canvas.height = 20
    canvas.text(0, 10, "a < b & c")
    picture = canvas.picture(title="<b>", summary="x & y", text="one\n\ntwo <script>")
    assert parse(picture.svg).findtext(f"{SVG}text") == "a < b & c"
    assert "<script>" not in picture.html()
    assert picture.text == "<b>\nx & y\none\n\ntwo <script>"


def test_ids_that_nothing_refers_to_are_dropped() -> None:
    root = ElementTree.fromstring(f'<svg xmlns="{SVG[1:-1]}" viewBox="0 0 10 10"><g id="axes_1"/></svg>')
    assert "axes_1" not in make_picture(root, title="T", summary="S", text="").svg


@pytest.mark.parametrize(
    ("value", "text"), [(1, "1"), (2.0, "2"), (0.125, "0.12"), (0.5, "0.5"), (-3.456, "-3.46"), (100, "100")]
)
def test_coordinates_are_short(value: float, text: str) -> None:
    assert number(value) == text


def test_coordinate_must_be_a_number() -> None:
    with pytest.raises(TypeError, match="must be a string or a number, got True"):
        number(True)
