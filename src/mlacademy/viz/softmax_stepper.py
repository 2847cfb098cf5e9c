"""The online-softmax stepper: running max, rescale and running sum, block after block."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mlacademy.viz.canvas import WIDTH, Canvas
from mlacademy.viz.numbers import plural, short
from mlacademy.viz.picture import Picture
from mlacademy.viz.theme import BLUE, INK, ORANGE, TEAL

if TYPE_CHECKING:
    from mlacademy.softmax import OnlineSoftmax

MAX_BLOCKS = 16
LEFT = 118.0
PLOT_Y, PLOT_HEIGHT = 66.0, 190.0
ROWS = ("block max", "running max", "rescale", "block sum", "running sum")


def softmax_steps(
    scores: Any,
    *,
    block: int = 64,
    valid: Sequence[bool] | None = None,
    scale: float = 1.0,
    step: int | None = None,
    log2: bool = False,
) -> Picture:
    """Draw one row of online softmax: the scores, the running max as it climbs, and the numbers of every block.

    Args:
        scores: `[n]`, one row of raw scores; `-inf` is a hole. At most 16 blocks.
        block: scores a step. valid: False marks a hole, whatever the score.
        scale: softmax scale in natural units (the picture is in log2 units: score · scale · log2 e).
        step: the block to stand at; later ones are faint. Default: the last.
        log2: scores are in log2 units already; `scale` must stay 1.

    Raises:
        ValueError: more than 16 blocks, a step that does not exist, shapes that do not fit.
    """
    result, units, holes = run_steps(scores, block=block, valid=valid, scale=scale, log2=log2)
    count = len(result.steps)
    at = count - 1 if step is None else step
    if not 0 <= at < count:
        raise ValueError(f"step must be 0 to {count - 1}, one for each block: it is {step}")
    canvas = Canvas()
    title = (
        f"Online softmax, block {at} of {count}" if at < count - 1 else f"Online softmax, all {plural(count, 'block')}"
    )
    summary = _summary(result, at, holes)
    canvas.text(0, 16, title, size=14, bold=True)
    canvas.text(0, 35, summary, dim=True)
    _scores(canvas, result, units, holes, at)
    _table(canvas, result, at)
    canvas.height = PLOT_Y + PLOT_HEIGHT + 40 + 24 * len(ROWS) + 34
    _ending(canvas, result, at, canvas.height - 12)
    return canvas.picture(title=title, summary=summary, text=_twin(result, units, holes, at))


def run_steps(
    scores: Any, *, block: int, valid: Sequence[bool] | None, scale: float, log2: bool = False
) -> tuple[OnlineSoftmax, list[float], list[bool]]:
    """Run the library's online softmax on one row; return it, the scores in log2 units, and which are holes."""
    import torch

    from mlacademy.softmax import LOG2E, online_softmax

    row = torch.as_tensor(scores, dtype=torch.float64)
    if row.ndim != 1 or len(row) == 0:
        raise ValueError(f"scores must be one row [n] with n ≥ 1: its shape is {list(row.shape)}")
    if block < 1:
        raise ValueError(f"block must be at least 1 score: it is {block}")
    if math.ceil(len(row) / block) > MAX_BLOCKS:
        raise ValueError(
            f"scores must make at most {MAX_BLOCKS} blocks to be readable: {len(row)} scores make "
            f"{math.ceil(len(row) / block)} blocks of {block}"
        )
    if valid is not None and len(valid) != len(row):
        raise ValueError(f"valid must say yes or no for each score: {len(row)} scores, {len(valid)} entries")
    if log2 and scale != 1.0:
        raise ValueError(f"scale must stay 1 where scores are in log2 units already: it is {scale}")
    factor = 1 / LOG2E if log2 else scale
    mask = None if valid is None else torch.tensor([bool(v) for v in valid])
    values = torch.zeros(len(row), 1, dtype=torch.float64)
    result = online_softmax(row, values, scale=factor, block=block, valid=mask, round_s=False)
    holes = [bool(v == -math.inf) or (mask is not None and not bool(mask[i])) for i, v in enumerate(row)]
    units = [-math.inf if hole else float(v) * factor * LOG2E for v, hole in zip(row, holes, strict=True)]
    return result, units, holes


def _numbers(result: OnlineSoftmax, index: int) -> tuple[float, ...]:
    s = result.steps[index]
    return tuple(float(v) for v in (s.block_max, s.running_max, s.rescale, s.block_sum, s.running_sum))


def _label(value: float, name: str, digits: int = 4) -> str:
    return "−1e30" if name == "running max" and value <= -1e29 else short(value, digits)


def _column(result: OnlineSoftmax) -> tuple[float, int]:
    """Width of a block's column in pixels, and the digits of a number that fit into it."""
    column = (WIDTH - LEFT) / len(result.steps)
    return column, 4 if column >= 60 else 3


def _summary(result: OnlineSoftmax, at: int, holes: list[bool]) -> str:
    _, running_max, rescale, block_sum, running_sum = _numbers(result, at)
    s = result.steps[at]
    before = _numbers(result, at - 1)[4] if at else 0.0
    if all(holes[s.start : s.stop]):
        return f"Block {at} holds only holes: the max stays {_label(running_max, 'running max')}, it adds 0 to the sum."
    return (
        f"Block {at}: old sum {short(before)} × rescale {short(rescale)} + block sum {short(block_sum)} = "
        f"{short(running_sum)}, counted from the max {short(running_max)}."
    )


def _scores(canvas: Canvas, result: OnlineSoftmax, units: list[float], holes: list[bool], at: int) -> None:
    finite = [v for v in units if math.isfinite(v)] or [0.0]
    low, high = min(finite), max(finite)
    pad = max((high - low) * 0.12, 0.5)
    low, high = low - pad, high + pad
    column, _ = _column(result)
    base = PLOT_Y + PLOT_HEIGHT
    hatch = canvas.hatch("hole")

    def y_of(v: float) -> float:
        return PLOT_Y + (high - v) / (high - low) * PLOT_HEIGHT

    step = next(n for n in (0.5, 1, 2, 5, 10, 20, 50, 100, 1e3, 1e4, 1e6, 1e9, 1e30) if (high - low) / n <= 7)
    tick = math.ceil(low / step) * step
    while tick <= high:
        canvas.line(LEFT, y_of(tick), WIDTH, y_of(tick), opacity=0.15)
        canvas.text(LEFT - 8, y_of(tick) + 4, short(tick), size=11, anchor="end", dim=True)
        tick += step
    canvas.text(0, PLOT_Y + 10, "score,", size=11, dim=True)
    canvas.text(0, PLOT_Y + 24, "log2 units", size=11, dim=True)
    previous: float | None = None
    for index, s in enumerate(result.steps):
        x = LEFT + index * column
        faint = index > at
        canvas.rect(x + 2, PLOT_Y, column - 4, PLOT_HEIGHT, tint=0.08 if index == at else 0.03)
        cell = (column - 8) / (s.stop - s.start)
        for place in range(s.start, s.stop):
            cx = x + 4 + (place - s.start + 0.5) * cell
            if holes[place]:
                canvas.rect(
                    cx - cell * 0.35,
                    base - 14,
                    cell * 0.7,
                    14,
                    fill=hatch,
                    stroke=INK,
                    stroke_width=0.6,
                    detail=f"score {place}: a hole, counts as −inf",
                )
                continue
            top = y_of(units[place])
            score, top_score = short(units[place]), short(float(s.running_max))
            weight = short(2.0 ** (units[place] - float(s.running_max)))
            canvas.rect(
                cx - cell * 0.35,
                top,
                cell * 0.7,
                base - top,
                fill=BLUE,
                tint=0.2 if faint else 0.7,
                detail=f"score {place}: {score}; block {index} adds 2^({score} − {top_score}) = {weight}",
            )
        running = float(s.running_max)
        if running > -1e29 and not faint:
            y = y_of(running)
            if previous is not None and previous != y:
                canvas.line(x, previous, x, y, stroke=ORANGE, width=2.5)
            canvas.line(
                x,
                y,
                x + column,
                y,
                stroke=ORANGE,
                width=2.5,
                detail=f"running max after block {index}: {short(running)}",
            )
            previous = y
        canvas.text(
            x + column / 2,
            base + 16,
            f"block {index}" if column >= 60 else str(index),
            size=11,
            anchor="middle",
            bold=index == at,
        )


def _table(canvas: Canvas, result: OnlineSoftmax, at: int) -> None:
    column, digits = _column(result)
    y = PLOT_Y + PLOT_HEIGHT + 40
    for row, name in enumerate(ROWS):
        line = y + row * 24
        canvas.line(0, line - 16, WIDTH, line - 16, opacity=0.2)
        canvas.text(0, line, name, bold=name == "running sum")
        for index in range(at + 1):
            value = _numbers(result, index)[row]
            text = ("×" if name == "rescale" else "") + _label(value, name, digits)
            canvas.text(
                LEFT + (index + 0.5) * column,
                line,
                text,
                size=12 if column >= 60 else 11,
                anchor="middle",
                bold=index == at,
            )
    canvas.rect(LEFT + at * column + 2, y - 16, column - 4, 24 * len(ROWS), fill=TEAL, tint=0.12)


def _ending(canvas: Canvas, result: OnlineSoftmax, at: int, y: float) -> None:
    if at < len(result.steps) - 1:
        canvas.text(0, y, "Each block: sum ← sum × 2^(old max − new max) + Σ 2^(score − new max)", size=12, dim=True)
    else:
        canvas.text(0, y, _result_line(result))


def _result_line(result: OnlineSoftmax) -> str:
    _, running_max, _, _, running_sum = _numbers(result, len(result.steps) - 1)
    if running_sum == 0:
        return "No score at all: sum 0, out = 0, lse = +inf"
    return (
        f"lse = log2({short(running_sum)}) + {short(running_max)} = {short(float(result.lse_log2))} in log2 units, "
        f"{short(float(result.lse))} natural"
    )


def _twin(result: OnlineSoftmax, units: list[float], holes: list[bool], at: int) -> str:
    _, digits = _column(result)
    lines = ["All in log2 units. The running max starts at −1e30, the running sum at 0."]
    for index in range(at + 1):
        s = result.steps[index]
        shown = [("hole" if holes[i] else short(units[i])) for i in range(s.start, s.stop)]
        if len(shown) > 12:
            shown = [*shown[:6], f"… {len(shown) - 6} more"]
        lines.append(f"Block {index}: scores {', '.join(shown)}")
        pairs = zip(ROWS, _numbers(result, index), strict=True)
        lines.append("  " + ", ".join(f"{name} {_label(value, name, digits)}" for name, value in pairs))
    if at == len(result.steps) - 1:
        lines.append(_result_line(result))
    return "\n".join(lines)
