"""Charts for chapters: lines, bars, scatter and heat map, drawn by matplotlib in the house style.

Every chart needs `text`: what the picture says, in words and numbers, for a reader who does not see it. The values
plotted are appended to the twin when there are few of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from mlacademy.viz.chart_frame import INK, chart, tick_text
from mlacademy.viz.picture import Picture
from mlacademy.viz.theme import PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable

DASHES = ("-", "--", "-.", ":", (0, (6, 1.5, 1, 1.5, 1, 1.5)), (0, (1, 1)))
MAX_VECTOR_MARKS = 1500  # points or cells; more of them are drawn as an image inside the SVG
MARKERS = ("o", "s", "^", "D", "v", "P")
HATCHES = ("", "///", "...", "\\\\\\", "xx", "--")

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
    with chart(title, text, height, xlabel, ylabel) as frame:
        axes = frame.axes
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
        _scales(axes, [xs for xs, _ in points.values()], [ys for _, ys in points.values()], logx, logy)
        _references(axes, marks, levels)
        _legend(axes, len(points))
        frame.values = [(name, xs, ys) for name, (xs, ys) in points.items()]
    return frame.picture


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
    with chart(title, text, height, xlabel, ylabel) as frame:
        for index, (name, (xs, ys)) in enumerate(points.items()):
            frame.axes.scatter(
                xs,
                ys,
                label=name,
                s=size,
                color=PALETTE[index % len(PALETTE)],
                marker=MARKERS[index % len(MARKERS)],
                alpha=0.8,
                linewidths=0,
                rasterized=len(xs) > MAX_VECTOR_MARKS,
            )
        _scales(frame.axes, [xs for xs, _ in points.values()], [ys for _, ys in points.values()], logx, logy)
        _references(frame.axes, marks, levels)
        _legend(frame.axes, len(points))
        frame.values = [(name, xs, ys) for name, (xs, ys) in points.items()]
    return frame.picture


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
    with chart(title, text, height, xlabel, ylabel) as frame:
        axes = frame.axes
        places = np.arange(len(labels), dtype=float)
        thickness = 0.7 if stacked else 0.8 / len(columns)
        base = np.zeros(len(labels))
        for index, (name, ys) in enumerate(columns.items()):
            shift = 0.0 if stacked else (index - (len(columns) - 1) / 2) * thickness
            style: dict[str, Any] = {
                "label": name,
                "facecolor": (*_rgb(PALETTE[index % len(PALETTE)]), 0.75 if index == 0 else 0.5),
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
                _upright(axes, label, level)
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
        frame.values = [(name, list(labels), ys) for name, ys in columns.items()]
    return frame.picture


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
    stops = [(0.0, (*blue, 0.05)), (1.0, (*blue, 0.85))]
    if signed:
        stops = [(0.0, (*blue, 0.85)), (0.5, (*blue, 0.04)), (0.5, (*orange, 0.04)), (1.0, (*orange, 0.85))]
    cmap = LinearSegmentedColormap.from_list("depth", stops)
    cells = height or min(520.0, max(180.0, 26.0 * matrix.shape[0] + 90))
    with chart(title, text, cells, xlabel, ylabel) as frame:
        axes = frame.axes
        style: dict[str, Any] = {"cmap": cmap, "norm": Normalize(-peak if signed else 0.0, peak)}
        shown = np.ma.masked_invalid(matrix)
        mesh: ScalarMappable
        if matrix.size > MAX_VECTOR_MARKS:
            extent = (0, matrix.shape[1], matrix.shape[0], 0)
            mesh = axes.imshow(shown, interpolation="none", aspect="auto", extent=extent, **style)
        else:
            mesh = axes.pcolormesh(shown, linewidth=0, **style)
            axes.invert_yaxis()
        axes.grid(visible=False)
        _cell_ticks(axes, matrix.shape, rows, columns)
        bar = frame.figure.colorbar(mesh, ax=axes, pad=0.02, fraction=0.05)
        bar.outline.set_visible(False)
        bar.set_label(unit)
        bar.ax.yaxis.set_major_formatter(lambda value, _: tick_text(value))
        if annotate if annotate is not None else matrix.size <= 200:
            for (r, c), value in np.ndenumerate(matrix):
                if math.isfinite(value):
                    axes.text(c + 0.5, r + 0.5, format(value, fmt), ha="center", va="center", fontsize=11)
        names = [str(i) for i in range(matrix.shape[1])] if columns is None else list(columns)
        frame.values = [(str(r) if rows is None else rows[r], names, matrix[r]) for r in range(matrix.shape[0])]
    return frame.picture


def _pair(name: str, xs: Any, ys: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return x and y of a series as float arrays of one dimension and equal length, or raise."""
    x, y = np.asarray(xs, dtype=float), np.asarray(ys, dtype=float)
    if x.ndim != 1 or y.ndim != 1 or len(x) != len(y):
        raise ValueError(f"series {name!r} must have one y for each x: x has shape {x.shape}, y has shape {y.shape}")
    if not len(x):
        raise ValueError(f"series {name!r} is empty")
    return x, y


def _scales(axes: Axes, xs: Sequence[Any], ys: Sequence[Any], logx: bool, logy: bool) -> None:
    """Make the axes logarithmic where asked, in base 2 for powers of two; whole x values get whole ticks."""
    from matplotlib.ticker import MaxNLocator

    if not logx and all((x % 1 == 0).all() for x in xs):
        axes.xaxis.set_major_locator(MaxNLocator(nbins="auto", steps=[1, 2, 5, 10], integer=True))
    for flag, data, axis, scale in ((logx, xs, "x", axes.set_xscale), (logy, ys, "y", axes.set_yscale)):
        if not flag:
            continue
        flat = np.concatenate(list(data))
        if (flat <= 0).any():
            raise ValueError(f"log{axis} needs values above 0: {axis} reaches down to {flat.min():g}")
        powers = bool((np.log2(flat) % 1 == 0).all())
        scale("log", base=2 if powers else 10)
        if powers:
            getattr(axes, f"{axis}axis").set_major_formatter(lambda value, _: tick_text(value))


def _references(axes: Axes, marks: Mapping[str, float] | None, levels: Mapping[str, float] | None) -> None:
    """Draw labelled reference lines: `marks` upright, `levels` across."""
    for label, place in (marks or {}).items():
        _upright(axes, label, place)
    for label, place in (levels or {}).items():
        axes.axhline(place, color=INK, alpha=0.6, linestyle="--", linewidth=1.2)
        axes.text(1.0, place, label, transform=axes.get_yaxis_transform(), va="bottom", ha="right", fontsize=11)


def _upright(axes: Axes, label: str, place: float) -> None:
    axes.axvline(place, color=INK, alpha=0.6, linestyle="--", linewidth=1.2)
    axes.annotate(
        label,
        (place, 1.0),
        xycoords=axes.get_xaxis_transform(),
        xytext=(4, 0),
        textcoords="offset points",
        va="top",
        fontsize=11,
    )


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


def _rgb(colour: str) -> tuple[float, float, float]:
    return int(colour[1:3], 16) / 255, int(colour[3:5], 16) / 255, int(colour[5:7], 16) / 255
