"""The fragment map: which thread of a warpgroup holds which element of a wgmma operand, and in which register."""

from __future__ import annotations

from mlacademy.gpu.fragments import ROWS, WARPGROUP, Fragment, fragment
from mlacademy.viz.canvas import WIDTH, Canvas
from mlacademy.viz.numbers import plural
from mlacademy.viz.picture import Picture
from mlacademy.viz.theme import BLUE, BROWN, INK, ORANGE, PURPLE, TEAL

WARP_ROWS = 16
LANES = (BLUE, TEAL, PURPLE, BROWN)  # the four lanes that share a row
GRID_X, GRID_WIDTH = 50.0, WIDTH - 50.0
ROW = 21.0
MAP_WIDTH, MAP_ROW = 384.0, 2.0
LISTED = 12


def fragment_map(
    operand: str = "D",
    *,
    dtype: str | None = None,
    n: int = 64,
    thread: int = 0,
    first_column: int = 0,
    title: str | None = None,
) -> Picture:
    """Draw the register fragment of a wgmma operand: the whole matrix, and one warp's 16 rows element by element.

    The small map shows 64 rows and all columns: the chosen thread's warp and every element that the thread holds. The
    large one shows the warp's rows and a window of columns; each cell names the lane and, in the chosen thread's cells,
    the register. Four lanes share a row; eight rows further down come the same lanes again.

    Args:
        operand: "D", the accumulator, 64×N; or "A" in registers, 64×K.
        dtype: D: "f32", "s32" or "f16" (two elements a register). A: "bf16", "f16", "tf32", "e4m3", "e5m2", "s8", "u8".
        n: columns of D, 8 to 256 in steps of 8; ignored for A, whose K follows from the type.
        thread: 0 to 127, the thread of the warpgroup that is marked.
        first_column: where the window of columns starts, a multiple of 8 inside the matrix.

    Raises:
        ValueError: an operand, type, N, thread or column that does not exist.
    """
    it = fragment(operand, dtype, n)
    if not 0 <= thread < WARPGROUP:
        raise ValueError(f"thread must be 0 to {WARPGROUP - 1}, a thread of the warpgroup: it is {thread}")
    if not 0 <= first_column < it.columns or first_column % 8:
        raise ValueError(
            f"first_column must be a multiple of 8 below {it.columns}, the columns of {it.operand}: "
            f"it is {first_column}"
        )
    columns = range(first_column, min(first_column + (32 if it.packed == 4 else 16), it.columns))
    heading = title or f"Fragment {it.operand}, {ROWS} × {it.columns} {it.dtype}: thread {thread}"
    summary = (
        f"Each of 128 threads holds {plural(it.values, 'element')} in {plural(it.registers, 'register')}; "
        f"thread {thread} is lane {thread % 32} of warp {thread // 32}, rows {_rows(thread)}."
    )
    canvas = Canvas()
    canvas.text(0, 16, heading, size=14, bold=True)
    canvas.text(0, 35, summary, dim=True)
    below = _overview(canvas, it, thread, columns)
    _held(canvas, it, thread)
    canvas.height = _grid(canvas, it, thread, columns, below + 62)
    return canvas.picture(title=heading, summary=summary, text=_twin(it, thread))


def _rows(thread: int) -> str:
    row = 16 * (thread // 32) + thread % 32 // 4
    return f"{row} and {row + 8}"


def _overview(canvas: Canvas, it: Fragment, thread: int, columns: range) -> float:
    """Draw the whole matrix small: four warps, the thread's elements, the window; return the y below."""
    top, unit = 72.0, min(MAP_WIDTH / it.columns, 8.0)
    warp = thread // 32
    canvas.text(GRID_X, top - 8, f"columns 0–{it.columns - 1}", size=11, dim=True)
    for w in range(4):
        y = top + w * WARP_ROWS * MAP_ROW
        canvas.rect(
            GRID_X,
            y,
            it.columns * unit,
            WARP_ROWS * MAP_ROW - 1,
            fill=ORANGE if w == warp else INK,
            tint=0.22 if w == warp else 0.09,
            detail=f"warp {w} of the warpgroup: rows {WARP_ROWS * w}–{WARP_ROWS * w + WARP_ROWS - 1}, all columns",
        )
        canvas.text(GRID_X - 6, y + 20, f"warp {w}", size=11, anchor="end", dim=w != warp, bold=w == warp)
    for start in range(0, it.values, it.run):
        row, column = it.element(thread, start)
        canvas.rect(GRID_X + column * unit, top + row * MAP_ROW, it.run * unit, MAP_ROW, fill=ORANGE)
    bottom = top + ROWS * MAP_ROW
    canvas.rect(
        GRID_X + columns.start * unit,
        top + warp * WARP_ROWS * MAP_ROW - 1.5,
        len(columns) * unit,
        WARP_ROWS * MAP_ROW + 2,
        fill="none",
        stroke=INK,
        stroke_width=1.5,
    )
    canvas.text(GRID_X, bottom + 14, "framed: the window below", size=11, dim=True)
    return bottom


def _held(canvas: Canvas, it: Fragment, thread: int) -> None:
    """List the first elements of the thread beside the small map."""
    x, y = GRID_X + MAP_WIDTH + 30, 64.0
    canvas.text(x, y, f"thread {thread} holds (row, column):", size=11, bold=True)
    for value in range(min(it.values, LISTED)):
        row, column = it.element(thread, value)
        canvas.text(
            x + value // 6 * 170,
            y + 19 + value % 6 * 18,
            f"{it.register(value)} = ({row}, {column})",
            size=11,
            mono=True,
        )
    if it.values > LISTED:
        canvas.text(
            x, y + 19 + 6 * 18, f"… {it.values - LISTED} more, up to {it.register(it.values - 1)}", size=11, dim=True
        )


def _grid(canvas: Canvas, it: Fragment, thread: int, columns: range, y: float) -> float:
    """Draw the warp's 16 rows in the window, a cell for each element; return the y below."""
    width = min(GRID_WIDTH / len(columns), 54.0)
    first = thread // 32 * WARP_ROWS
    canvas.text(0, y - 26, f"rows {first}–{first + WARP_ROWS - 1}: the lane that holds each element", size=11, dim=True)
    for place, column in enumerate(columns):
        canvas.text(GRID_X + (place + 0.5) * width, y - 6, str(column), size=11, anchor="middle", dim=True)
    for row in range(first, first + WARP_ROWS):
        gap = 4.0 if row - first >= 8 else 0.0
        top = y + (row - first) * ROW + gap
        canvas.text(GRID_X - 8, top + 14, str(row), size=11, anchor="end", dim=True)
        for place, column in enumerate(columns):
            owner, value = it.owner(row, column)
            mine, x = owner == thread, GRID_X + place * width
            name = it.register(value)
            who = f"thread {owner} (warp {owner // 32}, lane {owner % 32})"
            with canvas.group(detail=f"row {row}, column {column}: {who}, register {name}"):
                canvas.rect(
                    x + 0.5,
                    top,
                    width - 1,
                    ROW - 1,
                    fill=ORANGE if mine else LANES[owner % 4],
                    tint=0.85 if mine else 0.3,
                )
                label = _label(it, owner % 32, name) if mine and width > 40 else str(owner % 32)
                canvas.text(x + width / 2, top + 14, label, size=11, anchor="middle", bold=mine)
    bottom = y + WARP_ROWS * ROW + 4
    canvas.text(
        GRID_X,
        bottom + 14,
        f"one colour a lane of four; orange: thread {thread}, {plural(it.run, 'neighbouring column')} at a time"
        if it.run > 1
        else f"one colour a lane of four; orange: thread {thread}",
        size=11,
        dim=True,
    )
    return bottom + 22


def _label(it: Fragment, lane: int, register: str) -> str:
    whole = f"{lane}: {register}"
    return whole if it.packed == 1 and len(whole) <= 7 else register


def _twin(it: Fragment, thread: int) -> str:
    lines = ["Elements of the thread, register = (row, column):"]
    held = [f"{it.register(value)} = {it.element(thread, value)}" for value in range(it.values)]
    lines += [", ".join(held[start : start + 8]) for start in range(0, len(held), 8)]
    first = thread // 32 * WARP_ROWS
    lines.append(f"Lanes of warp {thread // 32}, one for each column, repeating every {4 * it.run} columns:")
    for row in range(first, first + 8):
        lanes = " ".join(str(it.owner(row, column)[0] % 32) for column in range(4 * it.run))
        lines.append(f"rows {row} and {row + 8}: {lanes}")
    upper, lower = (it.register(it.owner(row, 0)[1]) for row in (first, first + 8))
    lines.append(f"Where row {first} is {upper} of its lane, row {first + 8} is {lower}.")
    return "\n".join(lines)
