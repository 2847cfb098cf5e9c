"""The byte map of a cached token: which byte of a page is what, in either cache layout."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mlacademy.fp8 import E4M3_MAX, decode_e4m3, decode_e8m0
from mlacademy.viz.canvas import WIDTH, Canvas
from mlacademy.viz.numbers import plural, scale_text, short
from mlacademy.viz.picture import Picture
from mlacademy.viz.theme import BLUE, INK, ORANGE, TEAL

if TYPE_CHECKING:
    from mlacademy.cache import CacheLayout

COLUMNS = 64  # bytes a row
CELL = 10.0
GAP = 4.0  # after every 16 bytes, the width of a vector load
GRID_X = 126.0
ROW = 17.0

NAMES = {"nope": "NoPE", "scale": "scale", "rope": "RoPE", "pad": "pad"}
COLOURS = {"nope": BLUE, "scale": ORANGE, "rope": TEAL, "pad": INK}


@dataclass(frozen=True)
class Cell:
    """One stored value: `width` bytes at `address` in the page. `value` and `raw` are None without data."""

    field: str
    index: int
    tile: int | None
    address: int
    width: int
    raw: bytes | None
    value: float | None


def token_bytes(layout: CacheLayout | str = "V32", page: int = 64, offset: int = 0, *, data: Any = None) -> Picture:
    """Draw the bytes of the token at `offset` in a page of `page` tokens.

    Args:
        layout: a `cache.CacheLayout`, or its name: "V32" (656 bytes) or "MODEL1" (584 bytes, in two places).
        data: the page's bytes, uint8 with at least `page * bytes_per_token` elements in address order, such as
            `cache[page_index]`; then each cell is decoded, and its depth of colour is its size within its tile.

    Raises:
        ValueError: an unknown layout, an offset outside the page, or too few bytes in `data`.
        TypeError: `data` that is not uint8.
    """
    from mlacademy.cache import layout as layout_named

    chosen = layout_named(layout) if isinstance(layout, str) else layout
    cells = token_cells(chosen, page, offset, data)
    canvas = Canvas()
    title = f"One token of the {chosen.name} cache: offset {offset} in a page of {page}"
    scale_kind = "float32" if chosen.rule.scale_format == "float32" else "E8M0"
    summary = (
        f"{chosen.bytes_per_token} bytes: {chosen.d_nope} × E4M3, {chosen.num_tiles} × {scale_kind} scale "
        f"(one for {chosen.tile} values), {chosen.d_rope} × bfloat16 RoPE"
        + (f", {chosen.scale_bytes - chosen.num_tiles} pad byte." if chosen.split else ".")
    )
    canvas.text(0, 16, title, size=14, bold=True)
    canvas.text(0, 35, summary, dim=True)
    _page_strip(canvas, chosen, page, offset)
    bottom = _grid(canvas, cells)
    canvas.text(GRID_X, bottom + 12, "64 bytes a row, a gap after every 16 bytes (one vector load)", size=11, dim=True)
    canvas.height = bottom + 20
    return canvas.picture(title=title, summary=summary, text=_twin(chosen, page, offset, cells))


def token_cells(layout: CacheLayout, page: int, offset: int, data: Any = None) -> list[Cell]:
    """Return the stored values of one token in the order of their addresses (the logic of `token_bytes`)."""
    fields = layout.fields(page, offset)
    buffer = None if data is None else _page_buffer(data, page * layout.bytes_per_token)
    widths = {"nope": 1, "scale": 4 if layout.rule.scale_format == "float32" else 1, "rope": 2, "pad": 1}
    scales = _scales(layout, fields["scale"], buffer)
    cells = []
    for field, (start, stop) in fields.items():
        width = widths[field]
        for index, address in enumerate(range(start, stop, width)):
            tile = {"nope": index // layout.tile, "scale": index}.get(field)
            raw = None if buffer is None else buffer[address : address + width].tobytes()
            value = None
            if raw is not None and scales is not None:
                if field == "nope":
                    assert tile is not None
                    value = float(decode_e4m3(raw[0])) * scales[tile]
                elif field == "scale":
                    value = scales[index]
                elif field == "rope":
                    value = struct.unpack("<f", b"\0\0" + raw)[0]
                else:
                    value = float(raw[0])
            cells.append(Cell(field, index, tile, address, width, raw, value))
    return cells


def describe(cell: Cell) -> str:
    """Say what a cell is: field, index, address in the page, and its value where data was given."""
    span = f"byte {cell.address:,}" if cell.width == 1 else f"bytes {cell.address:,}–{cell.address + cell.width - 1:,}"
    where = f"{span} of the page (0x{cell.address:X})"
    if cell.field == "nope":
        text = f"{where}: NoPE value {cell.index}, E4M3, tile {cell.tile}, multiplied by scale {cell.tile}"
        if cell.raw is not None and cell.value is not None:
            code = float(decode_e4m3(cell.raw[0]))
            text += f"; code 0x{cell.raw[0]:02X} = {short(code)}, times scale = {short(cell.value, 6)}"
    elif cell.field == "scale":
        kind = "float32" if cell.width == 4 else "E8M0"
        text = f"{where}: scale {cell.index}, {kind} multiplier of tile {cell.index}"
        if cell.value is not None:
            text += f"; value {scale_text(cell.value)} = {short(cell.value, 6)}"
    elif cell.field == "rope":
        text = f"{where}: RoPE value {cell.index}, bfloat16, stored as it is"
        if cell.value is not None:
            text += f"; value {short(cell.value, 6)}"
    else:
        text = f"{where}: pad byte, always 0"
    return text


def _page_buffer(data: Any, needed: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    array = np.asarray(data)
    if array.dtype != np.uint8:
        raise TypeError(f"data must be the page's bytes as uint8: its dtype is {array.dtype}")
    if array.size < needed:
        raise ValueError(f"data must hold the whole page, {needed:,} bytes: it has {array.size:,}")
    return array.reshape(-1)


def _scales(layout: CacheLayout, span: tuple[int, int], buffer: Any) -> list[float] | None:
    if buffer is None:
        return None
    raw = buffer[span[0] : span[1]]
    values = raw.view("<f4") if layout.rule.scale_format == "float32" else decode_e8m0(raw)
    return [float(v) for v in values]


def _page_strip(canvas: Canvas, layout: CacheLayout, page: int, offset: int) -> None:
    """Draw the whole page as one bar, with this token's bytes in their places."""
    y, height, total = 62.0, 14.0, layout.block_stride(page)
    unit = WIDTH / total
    used = page * layout.bytes_per_token
    canvas.rect(0, y, WIDTH, height, fill="none", stroke=INK, stroke_width=1)
    if layout.split:
        body = page * (layout.d_nope + 2 * layout.d_rope)
        canvas.line(body * unit, y, body * unit, y + height)
        canvas.text(0, y - 6, f"values of all tokens: {body:,} bytes", size=11, dim=True)
        canvas.text(
            WIDTH, y - 6, f"scales {used - body:,} bytes, padding {total - used:,}", size=11, anchor="end", dim=True
        )
        if total > used:
            canvas.rect(used * unit, y, (total - used) * unit, height, fill=canvas.hatch("tail"))
    else:
        canvas.text(0, y - 6, f"the page: {page} tokens, {total:,} bytes", size=11, dim=True)
    for field, (start, stop) in layout.fields(page, offset).items():
        if field != "pad":
            canvas.rect(
                start * unit,
                y - 2,
                max((stop - start) * unit, 1.5),
                height + 4,
                fill=COLOURS[field],
                detail=f"{NAMES[field]} of this token: bytes {start:,}–{stop - 1:,} of the page",
            )
    canvas.text(0, y + height + 14, "0", size=11, mono=True, dim=True)
    canvas.text(WIDTH, y + height + 14, f"{total:,}", size=11, anchor="end", mono=True, dim=True)


def _grid(canvas: Canvas, cells: list[Cell]) -> float:
    """Draw one cell a value, 64 bytes a row; a new field starts a new row. Return the y below the last row."""
    y, column, previous = 104.0, 0, None
    pad = canvas.hatch("pad", spacing=4)
    for cell in cells:
        row_of = (cell.field if cell.field != "pad" else "scale", cell.tile if cell.field == "nope" else None)
        if row_of != previous or column >= COLUMNS:
            if previous is not None:
                y += ROW + (7 if row_of[0] != previous[0] else 2 if row_of != previous else 0)
            column = 0
            _row_label(canvas, cell, y, first=row_of != previous)
            previous = row_of
        x = GRID_X + column * CELL + (column // 16) * GAP
        canvas.rect(
            x + 0.5,
            y,
            cell.width * CELL - 1,
            ROW - 3,
            fill=COLOURS[cell.field] if cell.field != "pad" else pad,
            tint=_depth(cell),
            radius=1.5,
            detail=describe(cell),
        )
        if cell.field == "scale" and cell.width == 4 and cell.value is not None:
            canvas.text(x + 20, y + 11, scale_text(cell.value), size=11, anchor="middle")
        column += cell.width
    return y + ROW


def _row_label(canvas: Canvas, cell: Cell, y: float, *, first: bool) -> None:
    if first:
        name = f"NoPE tile {cell.tile}" if cell.field == "nope" else "scales" if cell.field == "scale" else "RoPE"
        canvas.rect(0, y + 2, 9, 9, fill=COLOURS[cell.field], radius=2)
        canvas.text(14, y + 11, name, size=11)
    canvas.text(GRID_X - 8, y + 11, f"{cell.address:,}", size=11, anchor="end", mono=True, dim=True)


def _depth(cell: Cell) -> float:
    """Opacity of a cell: alternating by tile without data, growing with the size of the code with it."""
    if cell.field == "nope":
        if cell.raw is None:
            return 0.75 if (cell.tile or 0) % 2 == 0 else 0.5
        code = abs(float(decode_e4m3(cell.raw[0])))
        return 0.15 + 0.8 * math.sqrt(code / E4M3_MAX) if math.isfinite(code) else 1.0
    return 1.0 if cell.field == "pad" else 0.65


def _twin(layout: CacheLayout, page: int, offset: int, cells: list[Cell]) -> str:
    lines = [f"Page: {plural(page, 'token')}, {layout.block_stride(page):,} bytes to the next page."]
    if layout.split:
        used = page * layout.bytes_per_token
        body = page * (layout.d_nope + 2 * layout.d_rope)
        lines.append(
            f"Values of all tokens: {body:,} bytes. Scales: {used - body:,} bytes. "
            f"Padding at the end: {layout.block_stride(page) - used:,} bytes."
        )
    for field, (start, stop) in layout.fields(page, offset).items():
        lines.append(f"{NAMES[field]}: bytes {start:,}–{stop - 1:,} of the page ({plural(stop - start, 'byte')})")
        if field == "nope":
            for tile in range(layout.num_tiles):
                low = start + tile * layout.tile
                lines.append(
                    f"  tile {tile}: values {tile * layout.tile}–{(tile + 1) * layout.tile - 1}, "
                    f"bytes {low:,}–{low + layout.tile - 1:,}, scale {tile}"
                )
    values = {
        field: [c for c in cells if c.field == field and c.value is not None] for field in ("scale", "nope", "rope")
    }
    if values["scale"]:
        lines.append("Scales: " + ", ".join(f"{c.index}: {scale_text(c.value or 0)}" for c in values["scale"]))
        for field in ("nope", "rope"):
            head = ", ".join(short(c.value or 0.0) for c in values[field][:4])
            lines.append(f"{NAMES[field]} values begin {head}")
    return "\n".join(lines)
