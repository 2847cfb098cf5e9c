"""Charts for chapters: lines, bars, scatter and heat map, drawn by matplotlib in the house style.

Every chart needs `text`: what the picture says, in words and numbers, for a reader who does not see it. The values
plotted are appended to the twin when there are few of them.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal
from xml.etree import ElementTree

import numpy as np

from mlacademy.viz.picture import SVG, XLINK, Picture, make_picture
from mlacademy.viz.theme import ORANGE, PALETTE, SANS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#010203"  # stands for currentColor while matplotlib draws; replaced in the SVG
DPI = 72  # matplotlib's SVG unit is the point, so one unit of the drawing is one CSS pixel
MAX_TWIN_VALUES = 48
DASHES = ("-", "--", "-.", ":", (0, (6, 1.5, 1, 1.5, 1, 1.5)), (0, (1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P")
HATCHES = ("", "///", "...", "\\\\\\", "xx", "--")

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
    "mathtext.default": "regular",
}

Numbers = Sequence[float] | np.ndarray[Any, Any]


def lines(
    series: Mapping[str, Numbers],
    *,
    x: Numbers | Mapping[str, Numbers],
    xlabel: str,
    ylabel: str,
    title: str,
    text: str,
    logx: bool = False,
    logy: bool = False,
    marks: Mapping[str, float] | None = None,
    levels: Mapping[str, float] | None = None,
    step: bool = False,
    markers: bool | None = None,
    height: float = 320,
) -> Picture:
    """Draw one line a series.

    Args:
        series: name -> y values, e.g. `{"naive": [...], "absorbed": [...]}`. NaN leaves a gap.
        x: the x values shared by all series, or name -> x values.
        text: what the chart says, in words and numbers (required: it is the text twin).
        logx, logy: logarithmic axes (base 2 for x when all x are powers of two, else 10).
        marks: label -> x of a vertical reference line. levels: label -> y of a horizontal one.
        step: draw steps (the value holds until the next x). markers: dots on the points; default: up to 24 points.
        height: pixels; the width is 800.

    Raises:
        ValueError: no series, lengths that differ, an empty `text`, or a logarithmic axis with values ≤ 0.
    """
    if not series:
        raise ValueError("series needs at least one name -> values entry, got none")
    points = {name: _pair(name, x[name] if isinstance(x, Mapping) else x, y) for name, y in series.items()}
    with _chart(title, text, height, xlabel, ylabel) as chart:
        axes = chart.axes
        for index, (name, (xs, ys)) in enumerate(points.items()):
            dots = len(xs) <= 24 if markers is None else markers
            axes.plot(
                xs,
                ys,
                label=name,
                color=PALETTE[index % len(PALETTE)],
                linestyle=DASHES[index % len(DASHES)],
                marker=MARKERS[index % len(MARKERS)] if dots else None,
                markersize=5,
                drawstyle="steps-post" if step else "default",
            )
        _log_axes(axes, [xs for xs, _ in points.values()], [ys for _, ys in points.values()], logx, logy)
        _references(axes, marks, levels)
        _legend(axes, len(points))
        chart.values = [(name, xs, ys) for name, (xs, ys) in points.items()]
    return chart.picture


def scatter(
    series: Mapping[str, tuple[Numbers, Numbers]],
    *,
    xlabel: str,
    ylabel: str,
    title: str,
    text: str,
    logx: bool = False,
    logy: bool = False,
    marks: Mapping[str, float] | None = None,
    levels: Mapping[str, float] | None = None,
    size: float = 16,
    height: float = 320,
) -> Picture:
    """Draw points: `series` is name -> (x values, y values), e.g. `{"tile 0": (exact, error)}`.

    `size` is the area of a point in square pixels; the other arguments are those of `lines`.
    """
    if not series:
        raise ValueError("series needs at least one name -> (x, y) entry, got none")
    points = {name: _pair(name, xs, ys) for name, (xs, ys) in series.items()}
    with _chart(title, text, height, xlabel, ylabel) as chart:
        for index, (name, (xs, ys)) in enumerate(points.items()):
            chart.axes.scatter(
                xs,
                ys,
                label=name,
                s=size,
                color=PALETTE[index % len(PALETTE)],
                marker=MARKERS[index % len(MARKERS)],
                alpha=0.8,
                linewidths=0,
            )
        _log_axes(chart.axes, [xs for xs, _ in points.values()], [ys for _, ys in points.values()], logx, logy)
        _references(chart.axes, marks, levels)
        _legend(chart.axes, len(points))
        chart.values = [(name, xs, ys) for name, (xs, ys) in points.items()]
    return chart.picture


def bars(
    series: Mapping[str, Numbers],
    *,
    labels: Sequence[str],
    ylabel: str,
    title: str,
    text: str,
    xlabel: str = "",
    stacked: bool = False,
    horizontal: bool = False,
    log: bool = False,
    values: bool = True,
    fmt: str = ",.4g",
    levels: Mapping[str, float] | None = None,
    height: float = 320,
) -> Picture:
    """Draw bars: one group a label, one bar a series, e.g. `bars({"bytes": [1152, 656]}, labels=["BF16", "V3.2"], …)`.

    Args:
        series: name -> one value a label. labels: the groups.
        ylabel: the axis of the values (also when `horizontal`). xlabel: the axis of the labels.
        stacked: series on top of each other instead of side by side. log: logarithmic value axis.
        values: write each value at its bar, in format `fmt`.
        levels: label -> reference line at a value.
    """
    if not series:
        raise ValueError("series needs at least one name -> values entry, got none")
    columns = {name: _pair(name, np.arange(len(labels)), y)[1] for name, y in series.items()}
    if stacked and log:
        raise ValueError("stacked bars have no meaning on a logarithmic axis: pass stacked=False or log=False")
    with _chart(title, text, height, xlabel, ylabel) as chart:
        axes = chart.axes
        places = np.arange(len(labels), dtype=float)
        thickness = 0.7 if stacked else 0.8 / len(columns)
        base = np.zeros(len(labels))
        for index, (name, ys) in enumerate(columns.items()):
            shift = 0.0 if stacked else (index - (len(columns) - 1) / 2) * thickness
            style: dict[str, Any] = {
                "label": name,
                "facecolor": (*_rgb(PALETTE[index % len(PALETTE)]), 0.75),
                "edgecolor": PALETTE[index % len(PALETTE)],
                "hatch": HATCHES[index % len(HATCHES)],
            }
            # A bar of zero has no place on a logarithmic axis; its value is still written by the twin.
            if horizontal:
                drawn = axes.barh(places + shift, ys, thickness, left=base if stacked else None, **style)
            else:
                drawn = axes.bar(places + shift, ys, thickness, bottom=base if stacked else None, **style)
            if values:
                where: Literal["center", "edge"] = "center" if stacked else "edge"
                axes.bar_label(
                    drawn,
                    [format(float(v), fmt) for v in ys],
                    label_type=where,
                    padding=0 if stacked else 3,
                    fontsize=11,
                )
            if stacked:
                base = base + ys
        if horizontal:
            axes.set_yticks(places, labels)
            axes.invert_yaxis()
            axes.set_xlabel(ylabel)
            axes.set_ylabel(xlabel)
            if log:
                axes.set_xscale("log")
            for label, level in (levels or {}).items():
                axes.axvline(level, color=ORANGE, linestyle="--", linewidth=1.5)
                axes.text(
                    level, 1.0, f" {label}", transform=axes.get_xaxis_transform(), color=INK, va="top", fontsize=11
                )
            axes.margins(x=0.12)
        else:
            axes.set_xticks(places, labels)
            if log:
                axes.set_yscale("log")
            _references(axes, None, levels)
            axes.margins(y=0.12)
        axes.grid(axis="x" if horizontal else "y", visible=True)
        axes.grid(axis="y" if horizontal else "x", visible=False)
        _legend(axes, len(columns))
        chart.values = [(name, list(labels), ys) for name, ys in columns.items()]
    return chart.picture


def heatmap(
    values: Numbers | Sequence[Sequence[float]],
    *,
    title: str,
    text: str,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    xlabel: str = "",
    ylabel: str = "",
    unit: str = "",
    fmt: str = ".3g",
    annotate: bool | None = None,
    height: float | None = None,
) -> Picture:
    """Draw a matrix as cells whose depth of colour is the value; row 0 is on top; NaN leaves an empty cell.

    Args:
        values: [rows, columns]. Only values ≥ 0: blue, deeper is larger. Signed: blue below zero, orange above.
        rows, columns: names along the sides; default: indices.
        unit: what the colour bar measures. annotate: write the numbers (`fmt`); default: up to 200 cells.
    """
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    matrix = np.asarray(values, dtype=float)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ValueError(f"values must be a matrix [rows, columns], got shape {matrix.shape}")
    if matrix.size > 16384:
        raise ValueError(f"values must have at most 16,384 cells, got {matrix.size:,}: aggregate it first")
    for name, labels, expected in (("rows", rows, matrix.shape[0]), ("columns", columns, matrix.shape[1])):
        if labels is not None and len(labels) != expected:
            raise ValueError(f"{name} must name each of the {expected} {name}, got {len(labels)} names")
    blue, orange = _rgb(PALETTE[0]), _rgb(PALETTE[1])
    peak = float(np.nanmax(np.abs(matrix))) if np.isfinite(matrix).any() else 0.0
    peak = peak or 1.0
    signed = bool(np.nanmin(matrix) < 0) if np.isfinite(matrix).any() else False
    stops = [(*blue, 0.85), (*blue, 0.04), (*orange, 0.85)] if signed else [(*blue, 0.05), (*blue, 0.85)]
    cmap = LinearSegmentedColormap.from_list("depth", stops)
    cells = height or min(520.0, max(180.0, 26.0 * matrix.shape[0] + 90))
    with _chart(title, text, cells, xlabel, ylabel) as chart:
        axes = chart.axes
        mesh = axes.pcolormesh(
            np.ma.masked_invalid(matrix), cmap=cmap, norm=Normalize(-peak if signed else 0.0, peak), linewidth=0
        )
        axes.invert_yaxis()
        axes.grid(visible=False)
        _cell_ticks(axes, matrix.shape, rows, columns)
        bar = chart.figure.colorbar(mesh, ax=axes, pad=0.02, fraction=0.05)
        bar.outline.set_visible(False)
        bar.set_label(unit)
        if annotate if annotate is not None else matrix.size <= 200:
            for (r, c), value in np.ndenumerate(matrix):
                if math.isfinite(value):
                    axes.text(c + 0.5, r + 0.5, format(value, fmt), ha="center", va="center", fontsize=11)
        names = [str(i) for i in range(matrix.shape[1])] if columns is None else list(columns)
        chart.values = [(str(r) if rows is None else rows[r], names, matrix[r]) for r in range(matrix.shape[0])]
    return chart.picture


class _Chart:
    figure: Figure
    axes: Axes
    picture: Picture
    values: list[tuple[str, Any, Any]]


@contextmanager
def _chart(title: str, text: str, height: float, xlabel: str, ylabel: str) -> Iterator[_Chart]:
    """Open a styled figure; on leaving, turn it into a `Picture` with the twin `text`."""
    if not text.strip():
        raise ValueError(
            "text must say what the chart shows, in words and numbers: it is what a reader without the picture gets"
        )
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    chart = _Chart()
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        # Measuring text in matplotlib's own font can miss glyphs (中文); the browser has them.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        chart.figure = Figure(figsize=(800 / DPI, height / DPI), dpi=DPI, layout="constrained")
        FigureCanvasSVG(chart.figure)
        chart.axes = chart.figure.add_subplot()
        chart.axes.set_title(title)
        chart.axes.set_xlabel(xlabel)
        chart.axes.set_ylabel(ylabel)
        chart.axes.grid(visible=True, color=INK, alpha=0.15, linewidth=0.8)
        yield chart
        stream = io.StringIO()
        chart.figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    root = ElementTree.fromstring(stream.getvalue())
    _adapt(root)
    chart.picture = make_picture(
        root, title=title, summary=text.strip(), text=_value_lines(chart.values, xlabel, ylabel)
    )


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


def _pair(name: str, xs: Any, ys: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return x and y of a series as float arrays of one dimension and equal length, or raise."""
    x, y = np.asarray(xs, dtype=float), np.asarray(ys, dtype=float)
    if x.ndim != 1 or y.ndim != 1 or len(x) != len(y):
        raise ValueError(f"series {name!r} must have one y for each x: x has shape {x.shape}, y has shape {y.shape}")
    if not len(x):
        raise ValueError(f"series {name!r} is empty")
    return x, y


def _log_axes(axes: Axes, xs: Sequence[Any], ys: Sequence[Any], logx: bool, logy: bool) -> None:
    for flag, data, axis, scale in ((logx, xs, "x", axes.set_xscale), (logy, ys, "y", axes.set_yscale)):
        if not flag:
            continue
        flat = np.concatenate(list(data))
        if (flat <= 0).any():
            raise ValueError(f"log{axis} needs values above 0: {axis} reaches down to {flat.min():g}")
        powers = bool((np.log2(flat) % 1 == 0).all())
        scale("log", base=2 if powers else 10)
        if powers:
            getattr(axes, f"{axis}axis").set_major_formatter(lambda value, _: f"{value:,g}")


def _references(axes: Axes, marks: Mapping[str, float] | None, levels: Mapping[str, float] | None) -> None:
    """Draw labelled reference lines: `marks` upright, `levels` across."""
    for label, place in (marks or {}).items():
        axes.axvline(place, color=INK, alpha=0.6, linestyle="--", linewidth=1.2)
        axes.text(place, 1.0, f" {label}", transform=axes.get_xaxis_transform(), va="top", fontsize=11)
    for label, place in (levels or {}).items():
        axes.axhline(place, color=INK, alpha=0.6, linestyle="--", linewidth=1.2)
        axes.text(1.0, place, label, transform=axes.get_yaxis_transform(), va="bottom", ha="right", fontsize=11)


def _legend(axes: Axes, count: int) -> None:
    if count > 1:
        axes.legend(loc="best", handlelength=2.8)


def _cell_ticks(axes: Axes, shape: tuple[int, ...], rows: Sequence[str] | None, columns: Sequence[str] | None) -> None:
    """Put a tick at the middle of every cell, or of every n-th where they would collide."""
    for count, names, set_ticks, most in (
        (shape[0], rows, axes.set_yticks, 24),
        (shape[1], columns, axes.set_xticks, 24),
    ):
        stride = max(1, math.ceil(count / most))
        places = range(0, count, stride)
        set_ticks([i + 0.5 for i in places], [str(i) if names is None else names[i] for i in places])
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.tick_params(length=0)


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


def _rgb(colour: str) -> tuple[float, float, float]:
    return int(colour[1:3], 16) / 255, int(colour[3:5], 16) / 255, int(colour[5:7], 16) / 255
