"""The swizzle map: where each 16-byte chunk of a tile lands in shared memory, and what three accesses cost there."""

from __future__ import annotations

from dataclasses import dataclass

from mlacademy.gpu.shared_memory import (
    CHUNK_BYTES,
    GROUP_BANKS,
    LINE_BYTES,
    WARP,
    BankConflicts,
    Swizzle,
    bank_conflicts,
    swizzle_mode,
)
from mlacademy.viz.canvas import WIDTH, Canvas
from mlacademy.viz.numbers import plural
from mlacademy.viz.picture import Picture
from mlacademy.viz.theme import INK, PALETTE, TEAL

GROUPS = LINE_BYTES // CHUNK_BYTES
MAX_ROWS, MAX_ROW_BYTES = 32, 256
LEFT_X, RIGHT_X, PANEL = 42.0, 456.0, 344.0
TOP = 88.0
# Eight bank groups: the six accents and two greys; the group's number stands in every cell as well.
FILLS = (*((colour, 0.55) for colour in PALETTE), (INK, 0.32), (INK, 0.1))


@dataclass(frozen=True)
class Tile:
    """A tile of `rows` rows of `row_bytes` bytes at shared-memory address `base`, stored under a swizzle mode."""

    mode: str
    row_bytes: int
    rows: int
    base: int

    @property
    def swizzle(self) -> Swizzle:
        """The mode as a function of addresses."""
        return swizzle_mode(self.mode)

    @property
    def chunks(self) -> int:
        """16-byte chunks of a row."""
        return self.row_bytes // CHUNK_BYTES

    def address(self, row: int, byte: int) -> int:
        """Where byte `byte` of a row lies."""
        return int(self.swizzle(self.base + row * self.row_bytes + byte))

    def group(self, row: int, chunk: int) -> int:
        """The bank group, 0 to 7, that holds a chunk."""
        return self.address(row, chunk * CHUNK_BYTES) % LINE_BYTES // CHUNK_BYTES


@dataclass(frozen=True)
class Access:
    """One access of a warp to the tile: what it is, in words, and what it costs."""

    name: str
    words: str
    cost: BankConflicts


def accesses(tile: Tile, column: int) -> tuple[Access, ...]:
    """Return the three accesses of the picture; where the tile is too short they run on into the rows below it."""
    chunk = column * CHUNK_BYTES
    in_order = [divmod(lane, tile.chunks) for lane in range(WARP)]
    return (
        Access(
            "row read",
            "32 lanes × 16 bytes, chunk after chunk",
            bank_conflicts([tile.address(row, c * CHUNK_BYTES) for row, c in in_order], 16),
        ),
        Access(
            "column of chunks",
            f"8 lanes × 16 bytes, chunk {column} of 8 rows: a core matrix",
            bank_conflicts([tile.address(row, chunk) for row in range(8)], 16),
        ),
        Access(
            "strided store",
            f"32 lanes × 4 bytes, at byte {chunk} of 32 rows",
            bank_conflicts([tile.address(row, chunk) for row in range(WARP)], 4),
        ),
    )


def swizzle_map(
    mode: str = "128B", *, row_bytes: int = 128, rows: int = 8, column: int = 0, base: int = 0, title: str | None = None
) -> Picture:
    """Draw a tile twice: as the kernel names it (row, chunk) and as it lies in shared memory; colour is the bank group.

    A column of one colour on the left is a bank conflict: the eight chunks of a core matrix, as `ldmatrix` and wgmma
    read them, come from the same four banks. Below: the passes that the banks need for three accesses of a warp, with
    this mode and without swizzle, by the rule of `bank_conflicts`.

    Args:
        mode: "none", "32B", "64B", "128B", "128B_ATOM_32B" or "128B_ATOM_64B", as in a `TensorMap`.
        row_bytes: bytes from row to row, a multiple of 16 up to 256. A tensor copy has rows of the mode's span (64
            bytes in mode 64B); other widths show what the formula does to a tile laid out by the kernel itself.
        rows: 1 to 32. column: the chunk column that is outlined and read.
        base: shared-memory address of the tile, a multiple of 16.

    Raises:
        ValueError: an unknown mode; a size, a column or a base outside the above.
    """
    swizzle_mode(mode)
    if not CHUNK_BYTES <= row_bytes <= MAX_ROW_BYTES or row_bytes % CHUNK_BYTES:
        raise ValueError(f"row_bytes must be a multiple of 16 from 16 to {MAX_ROW_BYTES}: it is {row_bytes}")
    if not 1 <= rows <= MAX_ROWS:
        raise ValueError(f"rows must be 1 to {MAX_ROWS}: it is {rows}")
    if base < 0 or base % CHUNK_BYTES:
        raise ValueError(f"base must be a multiple of 16 from 0 on: it is {base}")
    tile = Tile(mode, row_bytes, rows, base)
    if not 0 <= column < tile.chunks:
        raise ValueError(
            f"column must be 0 to {tile.chunks - 1}, one for each 16 bytes of a row: it is {column}. "
            f"Rows have {row_bytes} bytes."
        )
    here = accesses(tile, column)
    plain = accesses(Tile("none", row_bytes, rows, base), column)
    heading = title or f"{rows} × {row_bytes} bytes, " + ("no swizzle" if mode == "none" else f"swizzle {mode}")
    summary = _summary(tile, here, plain)
    canvas = Canvas()
    canvas.text(0, 16, heading, size=14, bold=True)
    canvas.text(0, 35, summary, dim=True)
    bottom = max(_named(canvas, tile, column), _stored(canvas, tile, column))
    canvas.height = _costs(canvas, tile, here, plain, bottom + 44)
    return canvas.picture(title=heading, summary=summary, text=_twin(tile, here, plain, column))


def _summary(tile: Tile, here: tuple[Access, ...], plain: tuple[Access, ...]) -> str:
    passes = ", ".join(f"{access.name} {access.cost.passes}" for access in here)
    without = ", ".join(str(access.cost.passes) for access in plain)
    return f"Passes over the banks: {passes}" + ("." if tile.mode == "none" else f" (without swizzle {without}).")


def _named(canvas: Canvas, tile: Tile, column: int) -> float:
    """Draw the tile in the kernel's order; return the y below."""
    width = min(PANEL / tile.chunks, 44.0)
    height = _row_height(tile.rows)
    canvas.text(0, 58, "as the kernel names it: row, chunk of 16 bytes", size=11, dim=True)
    canvas.text(0, TOP - 7, "row", size=11, dim=True)
    for chunk in range(tile.chunks):
        canvas.text(
            LEFT_X + (chunk + 0.5) * width,
            TOP - 7,
            str(chunk),
            size=11,
            anchor="middle",
            dim=chunk != column,
            bold=chunk == column,
        )
    for row in range(tile.rows):
        y = TOP + row * height
        canvas.text(LEFT_X - 10, y + height / 2 + 4, str(row), size=11, anchor="end", dim=True)
        for chunk in range(tile.chunks):
            x = LEFT_X + chunk * width
            _cell(canvas, tile, row, chunk, x, y, width, height, str(tile.group(row, chunk)), chunk == column)
    bottom = TOP + tile.rows * height
    canvas.text(LEFT_X, bottom + 15, "number and colour: the bank group it lands in", size=11, dim=True)
    return bottom


def _stored(canvas: Canvas, tile: Tile, column: int) -> float:
    """Draw the lines of shared memory that hold the tile; return the y below."""
    width, height = PANEL / GROUPS, _row_height(tile.rows)
    first = tile.base // LINE_BYTES
    stop = -(-(tile.base + tile.rows * tile.row_bytes) // LINE_BYTES)
    canvas.text(
        RIGHT_X - 46, 58, "as it lies: 128-byte lines, a column for each group of four banks", size=11, dim=True
    )
    for group in range(GROUPS):
        banks = f"{group * GROUP_BANKS}–{group * GROUP_BANKS + GROUP_BANKS - 1}"
        canvas.text(RIGHT_X + (group + 0.5) * width, TOP - 7, banks, size=11, anchor="middle", dim=True)
    canvas.text(RIGHT_X - 46, TOP - 7, "banks", size=11, dim=True)
    for line in range(first, stop):
        y = TOP + (line - first) * height
        canvas.text(RIGHT_X - 6, y + height / 2 + 4, f"{line * LINE_BYTES:,}", size=11, anchor="end", dim=True)
        canvas.rect(RIGHT_X, y, PANEL, height - 1, tint=0.05)
    for row in range(tile.rows):
        for chunk in range(tile.chunks):
            address = tile.address(row, chunk * CHUNK_BYTES)
            x = RIGHT_X + address % LINE_BYTES // CHUNK_BYTES * width
            y = TOP + (address // LINE_BYTES - first) * height
            _cell(canvas, tile, row, chunk, x, y, width, height, f"{row}·{chunk}", chunk == column)
    bottom = TOP + (stop - first) * height
    canvas.text(RIGHT_X, bottom + 15, "row·chunk; left of each line its address in bytes", size=11, dim=True)
    return bottom


def _row_height(rows: int) -> float:
    return 24.0 if rows <= 8 else 20.0 if rows <= 16 else 16.0


def _cell(
    canvas: Canvas,
    tile: Tile,
    row: int,
    chunk: int,
    x: float,
    y: float,
    width: float,
    height: float,
    label: str,
    outlined: bool,
) -> None:
    colour, tint = FILLS[tile.group(row, chunk)]
    with canvas.group(detail=describe(tile, row, chunk)):
        canvas.rect(x + 0.5, y, width - 1, height - 1, fill=colour, tint=tint)
        if outlined:
            canvas.rect(x + 1.5, y + 1, width - 3, height - 3, fill="none", stroke=INK, stroke_width=2)
        canvas.text(x + width / 2, y + height / 2 + 3.5, label, size=11, anchor="middle", bold=outlined)


def describe(tile: Tile, row: int, chunk: int) -> str:
    """Say where a chunk lies."""
    first, group = chunk * CHUNK_BYTES, tile.group(row, chunk)
    linear, address = tile.base + row * tile.row_bytes + first, tile.address(row, first)
    moved = "stays there" if linear == address else f"moves to {address:,}"
    return (
        f"row {row}, chunk {chunk} (bytes {first}–{first + CHUNK_BYTES - 1} of the row): address {linear:,} {moved}, "
        f"bank group {group}, banks {group * GROUP_BANKS}–{group * GROUP_BANKS + GROUP_BANKS - 1}"
    )


def _costs(canvas: Canvas, tile: Tile, here: tuple[Access, ...], plain: tuple[Access, ...], y: float) -> float:
    """Draw two bars for each access: the passes in this mode and, below it, without swizzle; return the y below."""
    left, unit = 440.0, (WIDTH - 440.0 - 128) / WARP
    canvas.text(0, y, "passes over the banks for one access of a warp", size=11, dim=True)
    y += 12
    for access, other in zip(here, plain, strict=True):
        canvas.text(0, y + 15, access.name, bold=True)
        canvas.text(128, y + 15, access.words, size=11, dim=True)
        with canvas.group(detail=_cost_sentence(tile, access, other)):
            passes = access.cost.passes
            canvas.rect(left, y + 4, passes * unit, 9, fill=TEAL, tint=0.85)
            canvas.text(left + passes * unit + 6, y + 12, plural(passes, "pass"), size=11)
            if tile.mode != "none":
                without = other.cost.passes
                canvas.rect(left, y + 17, without * unit, 7, tint=0.3)
                canvas.text(left + without * unit + 6, y + 24, f"{without} without swizzle", size=11, dim=True)
        y += 32 if tile.mode != "none" else 22
    return y + 2


def _cost_sentence(tile: Tile, access: Access, other: Access) -> str:
    cost = access.cost
    lost = f"{cost.conflicts} lost to bank conflicts" if cost.conflicts else "no bank conflict"
    without = "" if tile.mode == "none" else f"; without swizzle {plural(other.cost.passes, 'pass')}"
    return f"{access.name} ({access.words}): {plural(cost.passes, 'pass')}, {cost.groups} at best, {lost}{without}"


def _twin(tile: Tile, here: tuple[Access, ...], plain: tuple[Access, ...], column: int) -> str:
    lines = [_cost_sentence(tile, access, other) for access, other in zip(here, plain, strict=True)]
    repeat = "" if tile.mode == "none" else f" The pattern repeats every {tile.swizzle.repeat_bytes:,} bytes."
    lines.append(f"The tile starts at address {tile.base:,}.{repeat}")
    span = tile.swizzle.span_bytes
    if span is not None and span != tile.row_bytes:
        lines.append(f"A tensor copy in mode {tile.mode} has rows of {span} bytes; these have {tile.row_bytes}.")
    lines.append(f"Bank group of each chunk, chunks 0–{tile.chunks - 1} from left to right; column {column} is read:")
    lines += [
        f"row {row}: " + " ".join(str(tile.group(row, chunk)) for chunk in range(tile.chunks))
        for row in range(tile.rows)
    ]
    return "\n".join(lines)
