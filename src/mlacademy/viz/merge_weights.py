"""Combine weights: how much of each split's partial result goes into the output, and what a sink takes away."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mlacademy.viz.canvas import WIDTH, Canvas
from mlacademy.viz.numbers import short
from mlacademy.viz.picture import Picture
from mlacademy.viz.theme import INK, accent

MAX_SPLITS = 32


@dataclass(frozen=True)
class Merge:
    """One row of splits merged by the library: weights, the sink's share, and the log-sum-exp in both units."""

    lse_log2: tuple[float, ...]
    sink: float | None
    weights: tuple[float, ...]
    sink_share: float
    total_log2: float
    lse: float


def merge_of(lse_log2: Sequence[float], sink: float | None = None) -> Merge:
    """Merge one row with `softmax.combine_weights` and `softmax.combine` (the logic of `combine_weights`)."""
    import torch

    from mlacademy import softmax

    row = torch.as_tensor(lse_log2, dtype=torch.float64)
    if row.ndim != 1 or not 1 <= len(row) <= MAX_SPLITS:
        raise ValueError(f"lse_log2 must be one row of 1 to {MAX_SPLITS} splits: its shape is {list(row.shape)}")
    if torch.isnan(row).any() or (sink is not None and math.isnan(sink)):
        raise ValueError("lse_log2 and sink must not be NaN")
    weights = softmax.combine_weights(row, sink)
    _, lse = softmax.combine(torch.zeros(len(row), 1, dtype=torch.float64), row)
    natural = float(lse)
    share = 0.0 if sink is None else 1.0 - float(weights.sum())
    total = -math.inf if natural == math.inf else natural * softmax.LOG2E
    if natural == math.inf:
        share = 0.0
    return Merge(tuple(row.tolist()), sink, tuple(weights.tolist()), share, total, natural)


def combine_weights(lse_log2: Sequence[float], sink: float | None = None) -> Picture:
    """Draw the weight of each split in the merged output.

    Args:
        lse_log2: one base-2 log-sum-exp a split, `-inf` for an empty split; 1 to 32 of them.
        sink: the attention sink's logit in *natural* units, or None. It takes a share of the output and leaves the
            written lse as it is.

    Raises:
        ValueError: no split or too many, `+inf` or NaN.
    """
    m = merge_of(lse_log2, sink)
    canvas = Canvas()
    title = f"Combining {len(m.weights)} splits" if len(m.weights) > 1 else "Combining one split"
    summary = _summary(m)
    canvas.text(0, 16, title, size=14, bold=True)
    canvas.text(0, 35, summary, dim=True)
    y = _bars(canvas, m, 76.0)
    y = _share_bar(canvas, m, y + 26)
    for line in _results(m):
        canvas.text(0, y + 22, line)
        y += 20
    canvas.height = y + 14
    return canvas.picture(title=title, summary=summary, text=_twin(m))


def _summary(m: Merge) -> str:
    if m.lse == math.inf:
        return "Every split is empty: out = 0, lse = +inf, and a sink changes nothing."
    top = max(range(len(m.weights)), key=lambda i: m.weights[i])
    lse = f"lse {short(m.lse)} natural = {short(m.total_log2)} in base 2"
    return f"{lse}; split {top} weighs most, {short(m.weights[top])}" + (
        f"; the sink takes {short(m.sink_share * 100, 3)} % of the output." if m.sink is not None else "."
    )


def _bars(canvas: Canvas, m: Merge, y: float) -> float:
    left, right = 236.0, WIDTH - 76
    height = 22.0 if len(m.weights) <= 12 else 14.0
    for x, label, anchor in (
        (0.0, "split", "start"),
        (130.0, "lse_log2", "end"),
        (220.0, "2^(l − max)", "end"),
        (left, "weight", "start"),
    ):
        canvas.text(x, y - 10, label, size=11, anchor=anchor, dim=True)
    top = max(m.lse_log2)
    hatch = canvas.hatch("sink")
    for index, (value, weight) in enumerate(zip(m.lse_log2, m.weights, strict=True)):
        row = y + index * (height + 6)
        middle = row + height / 2 + 4
        relative = 0.0 if value == -math.inf else 2.0 ** (value - top)
        detail = f"split {index}: lse_log2 {short(value)}, weight {short(weight)}" + (
            " (empty)" if value == -math.inf else ""
        )
        canvas.text(0, middle, f"{index}" + ("  empty" if value == -math.inf else ""))
        canvas.text(130, middle, short(value), anchor="end")
        canvas.text(220, middle, short(relative), anchor="end")
        canvas.rect(left, row, right - left, height, tint=0.06, radius=2)
        canvas.rect(left, row, (right - left) * weight, height, fill=accent(index), tint=0.8, radius=2, detail=detail)
        canvas.text(right + 8, middle, short(weight))
    bottom = y + len(m.weights) * (height + 6)
    if m.sink is not None:
        middle = bottom + height / 2 + 4
        canvas.text(0, middle, "sink")
        canvas.text(220, middle, f"{short(m.sink)} natural", anchor="end", dim=True)
        canvas.rect(left, bottom, right - left, height, tint=0.06, radius=2)
        canvas.rect(
            left,
            bottom,
            (right - left) * m.sink_share,
            height,
            fill=hatch,
            stroke=INK if m.sink_share else None,
            detail=f"sink {short(m.sink)} (natural) takes {short(m.sink_share)} of the output",
        )
        canvas.text(right + 8, middle, short(m.sink_share))
        bottom += height + 6
    return bottom


def _share_bar(canvas: Canvas, m: Merge, y: float) -> float:
    """Draw all weights end to end: they fill the bar, up to the sink's share."""
    canvas.text(0, y - 6, "the output, by where it comes from", size=11, dim=True)
    x = 0.0
    canvas.rect(0, y, WIDTH, 20, tint=0.06)
    for index, weight in enumerate(m.weights):
        canvas.rect(x, y, WIDTH * weight, 20, fill=accent(index), tint=0.8, detail=f"split {index}: {short(weight)}")
        if WIDTH * weight > 18:
            canvas.text(x + WIDTH * weight / 2, y + 14, str(index), size=11, anchor="middle")
        x += WIDTH * weight
    if m.sink_share * WIDTH > 0.5:
        canvas.rect(x, y, WIDTH * m.sink_share, 20, fill="url(#sink)", stroke=INK)
        if m.sink_share * WIDTH > 60:
            canvas.text(x + WIDTH * m.sink_share / 2, y + 14, "sink", size=11, anchor="middle", bold=True)
    return y + 20


def _results(m: Merge) -> list[str]:
    if m.lse == math.inf:
        return ["No split has a token: out = 0, lse = +inf"]
    lines = [f"lse written: {short(m.lse, 5)} (natural) = {short(m.total_log2, 5)} (base 2) / log2 e"]
    if m.sink is not None:
        lines.append(f"weights sum to {short(sum(m.weights))}; the sink is not in the lse")
    return lines


def _twin(m: Merge) -> str:
    top = max(m.lse_log2)
    lines = []
    for index, (value, weight) in enumerate(zip(m.lse_log2, m.weights, strict=True)):
        relative = 0.0 if value == -math.inf else 2.0 ** (value - top)
        lines.append(
            f"split {index}: lse_log2 {short(value)}, 2^(l − max) {short(relative)}, weight {short(weight)}"
            + (" (empty)" if value == -math.inf else "")
        )
    if m.sink is not None:
        lines.append(f"sink {short(m.sink)} (natural): takes {short(m.sink_share)}")
    return "\n".join([*lines, *_results(m)])
