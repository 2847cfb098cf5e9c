"""The course map: one decode step of one layer, with the chapter that takes each part apart."""

from __future__ import annotations

from dataclasses import dataclass

from mlacademy.viz.canvas import Canvas
from mlacademy.viz.picture import Picture
from mlacademy.viz.theme import BLUE, INK

BOX_HEIGHT = 66
LAST_WRITTEN = 12


@dataclass(frozen=True)
class Part:
    """A box of the map: where it stands, which chapters open it, what it is in two short lines."""

    x: float
    y: float
    width: float
    chapters: tuple[int, ...]
    name: str
    note: str

    @property
    def label(self) -> str:
        """The chapters as they are printed: ``"03"``, ``"07–08"`` or nothing."""
        if not self.chapters:
            return ""
        first, last = self.chapters[0], self.chapters[-1]
        return f"{first:02d}" if first == last else f"{first:02d}–{last:02d}"


WRITE, READ, BELOW = 30, 152, 270

PARTS = (
    Part(2, WRITE, 166, (), "hidden state", "7,168 values a token"),
    Part(208, WRITE, 168, (1,), "compress", "to 512 + 64 values"),
    Part(416, WRITE, 168, (2,), "quantise, store", "656 bytes in FP8"),
    Part(624, WRITE, 174, (3,), "paged cache", "pages of 64 tokens"),
    Part(2, READ, 126, (3,), "pick and locate", "2,048 slots"),
    Part(160, READ, 128, (4,), "schedule", "blocks to SMs"),
    Part(320, READ, 320, (5,), "scores, online softmax, output", "block by block of 64 tokens"),
    Part(672, READ, 126, (6,), "combine", "partial results"),
    Part(160, BELOW, 128, (7, 8), "TMA, WGMMA", "the instructions"),
    Part(320, BELOW, 152, (9, 10, 11), "pipelines", "Hopper, Blackwell"),
    Part(488, BELOW, 152, (12,), "compiled kernels", "call and measure"),
    Part(672, BELOW, 126, (13, 14, 15, 16), "FP8 GEMM, JIT", "and beyond"),
)

ARROWS = (
    ((168, WRITE), (208, WRITE)),
    ((376, WRITE), (416, WRITE)),
    ((584, WRITE), (624, WRITE)),
    ((128, READ), (160, READ)),
    ((288, READ), (320, READ)),
    ((640, READ), (672, READ)),
)


def course_map(chapter: int | str | None = None) -> Picture:
    """Draw one decode step with the chapter of each part; ``chapter`` (4 or "04") is marked as the present one.

    Chapters 00 and none mark nothing. Raises ``ValueError`` for a chapter that is not 0 to 16.
    """
    number = None if chapter is None else int(chapter)
    if number is not None and not 0 <= number <= 16:
        raise ValueError(f"chapter must be 0 to 16, got {chapter!r}")
    canvas = Canvas()
    canvas.height = BELOW + BOX_HEIGHT + 4
    for y, title in (
        (WRITE, "Write: what a new token leaves behind"),
        (READ, "Read: what the next token looks at"),
        (BELOW, "Inside the kernels"),
    ):
        canvas.text(0, y - 14, title, bold=True)
    for part in PARTS:
        _box(canvas, part, number)
    for (x1, y), (x2, _) in ARROWS:
        _arrow(canvas, [(x1 + 4, y + BOX_HEIGHT / 2), (x2 - 4, y + BOX_HEIGHT / 2)])
    turn = WRITE + BOX_HEIGHT + 10
    _arrow(canvas, [(712, WRITE + BOX_HEIGHT + 2), (712, turn), (396, turn), (396, READ - 4)])
    canvas.text(404, READ - 14, "tokens by slot", size=11, dim=True)
    where = [part.name for part in PARTS if number in part.chapters]
    here = f"Chapter {number:02d} is here: {', '.join(where)}." if number is not None and where else ""
    text = "\n".join(f"{part.label or '--':>5}  {part.name}: {part.note}" for part in PARTS)
    return canvas.picture(title="One decode step of one layer, and its chapters", summary=here, text=text)


def _box(canvas: Canvas, part: Part, chapter: int | None) -> None:
    present = chapter is not None and chapter in part.chapters
    later = bool(part.chapters) and part.chapters[0] > LAST_WRITTEN
    canvas.rect(
        part.x,
        part.y,
        part.width,
        BOX_HEIGHT,
        fill=BLUE if present else INK,
        tint=0.22 if present else 0.04,
        stroke=BLUE if present else INK,
        stroke_width=2.5 if present else 1,
        dash="5 4" if later and not present else None,
        radius=6,
        detail=f"{part.label + ': ' if part.label else ''}{part.name}, {part.note}",
    )
    canvas.text(part.x + 12, part.y + 33, part.name, bold=True)
    canvas.text(part.x + 12, part.y + 52, part.note, dim=True)
    if part.label:
        canvas.text(part.x + part.width - 8, part.y + 16, part.label, size=11, anchor="end", mono=True)


def _arrow(canvas: Canvas, points: list[tuple[float, float]]) -> None:
    (x0, y0), (x1, y1) = points[-2:]
    canvas.path(points, width=1.5, opacity=0.7)
    along = (1, 0) if abs(x1 - x0) > abs(y1 - y0) else (0, 1)
    side = (along[1] * 4, along[0] * 4)
    back = (x1 - along[0] * 7, y1 - along[1] * 7)
    tip = [(x1, y1), (back[0] + side[0], back[1] + side[1]), (back[0] - side[0], back[1] - side[1])]
    canvas.path(tip, fill=INK, closed=True, width=1, opacity=0.7)
