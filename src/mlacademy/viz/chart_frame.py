"""The frame of a chart: matplotlib in the house style, and its SVG made fit for any page.

matplotlib draws with a placeholder where the page's ink belongs; afterwards the SVG loses its fixed size, fonts,
metadata and style sheet, and the placeholder becomes `currentColor`.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from mlacademy.viz.picture import SVG, XLINK, Picture, make_picture
from mlacademy.viz.theme import SANS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#010203"  # stands for currentColor while matplotlib draws; replaced in the SVG
DPI = 72  # matplotlib's SVG unit is the point, so one unit of the drawing is one CSS pixel
MAX_TWIN_VALUES = 48

STYLE: dict[Any, Any] = {  # matplotlib's own key type is private
    "svg.fonttype": "none",
    "svg.hashsalt": "mlacademy",
    "font.family": "sans-serif",
    "font.size": 12,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 1,
    "axes.titlesize": 13,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "figure.facecolor": "none",
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 11,
    "ytick.labelsize": 11,
    "legend.frameon": False,
    "legend.fontsize": 11,
    "lines.linewidth": 2,
    "hatch.linewidth": 0.8,
    "hatch.color": INK,
    "mathtext.default": "regular",
}


class Chart:
    """An open chart: draw on `axes`, leave the plotted numbers in `values`, find the `picture` after closing."""

    figure: Figure
    axes: Axes
    picture: Picture
    values: list[tuple[str, Any, Any]]


@contextmanager
def chart(title: str, text: str, height: float, xlabel: str, ylabel: str) -> Iterator[Chart]:
    """Open a styled figure; on leaving, turn it into a `Picture` with the twin `text`."""
    if not text.strip():
        raise ValueError(
            "text must say what the chart shows, in words and numbers: it is what a reader without the picture gets"
        )
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    frame = Chart()
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        # Measuring text in matplotlib's own font can miss glyphs (中文); the browser has them.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        warnings.filterwarnings("ignore", message="Creating legend with loc")
        frame.figure = Figure(figsize=(800 / DPI, height / DPI), dpi=DPI, layout="constrained")
        FigureCanvasSVG(frame.figure)
        frame.axes = frame.figure.add_subplot()
        frame.axes.set_title(title)
        frame.axes.set_xlabel(xlabel)
        frame.axes.set_ylabel(ylabel)
        frame.axes.grid(visible=True, color=INK, alpha=0.15, linewidth=0.8)
        frame.axes.xaxis.set_major_formatter(lambda value, _: tick_text(value))
        frame.axes.yaxis.set_major_formatter(lambda value, _: tick_text(value))
        yield frame
        stream = io.StringIO()
        frame.figure.savefig(stream, format="svg", dpi=2 * DPI, metadata={"Date": None, "Creator": None})
    root = ElementTree.fromstring(stream.getvalue())
    _adapt(root)
    frame.picture = make_picture(
        root, title=title, summary=text.strip(), text=_value_lines(frame.values, xlabel, ylabel)
    )


def tick_text(value: float) -> str:
    """A number on an axis: thousands grouped, a real minus sign, exponents only where digits would run on."""
    if value != 0 and not 1e-4 <= abs(value) < 1e7:
        return f"{value:.3g}".replace("-", "−")
    return f"{value:,.10g}".replace("-", "−")


def _adapt(root: ElementTree.Element) -> None:
    """Rewrite matplotlib's SVG for the page: ink, fonts, no fixed size, no metadata."""
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.set("font-family", SANS)
    for child in list(root):
        if child.tag.endswith("metadata"):
            root.remove(child)
    for element in root.iter():
        if element.tag == f"{{{SVG}}}style":
            # matplotlib's sheet would apply to the whole page; the root takes it over for this drawing alone.
            element.text = ""
        style = element.get("style")
        if style is None:
            continue
        rules = [rule.strip() for rule in style.replace(INK, "currentColor").split(";") if rule.strip()]
        kept = [_font_rule(rule) for rule in rules]
        element.set("style", "; ".join(rule for rule in kept if rule))
    root.set("stroke-linejoin", "round")
    root.set("stroke-linecap", "butt")
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag == f"{{{SVG}}}style" and not child.text:
                parent.remove(child)
    for element in root.iter():
        for name in (f"{{{XLINK}}}href",):
            target = element.attrib.pop(name, None)
            if target is not None:
                element.set("href", target)


def _font_rule(rule: str) -> str:
    """Reduce matplotlib's `font:` shorthand, which names its own families, to weight and size."""
    if rule.startswith("font-family:"):
        return ""
    if not rule.startswith("font:"):
        return rule
    words = rule[len("font:") :].split("'")[0].split()
    size = next(word.split("/")[0] for word in words if "px" in word)
    weight = "; font-weight: 600" if any(word in ("bold", "700") for word in words) else ""
    return f"font-size: {size}{weight}"


def _value_lines(values: Sequence[tuple[str, Any, Any]], xlabel: str, ylabel: str) -> str:
    """Spell out what was plotted, unless that is more than a reader can use."""
    if sum(len(ys) for _, _, ys in values) > MAX_TWIN_VALUES:
        return ""
    head = f"{ylabel or 'values'} by {xlabel}:" if xlabel else f"{ylabel or 'values'}:"
    rows = [
        f"  {name}: "
        + ", ".join(
            f"{x if isinstance(x, str) else format(float(x), ',g')} → {float(y):,.6g}"
            for x, y in zip(xs, ys, strict=True)
        )
        for name, xs, ys in values
    ]
    return "\n".join([head, *rows])
