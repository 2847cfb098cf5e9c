"""The scheduler's plan as a picture: one column a partition, blocks stacked upwards, cuts and idle partitions shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlacademy.viz.canvas import WIDTH, Canvas
from mlacademy.viz.numbers import plural, short
from mlacademy.viz.picture import Picture
from mlacademy.viz.theme import INK, accent

if TYPE_CHECKING:
    from mlacademy.schedule import Schedule, Segment

PLOT_X, PLOT_WIDTH = 44.0, WIDTH - 44.0
PLOT_Y, PLOT_HEIGHT = 92.0, 230.0
MIN_PIXELS = 2.5  # a column's piece lower than this is merged with its neighbours
TWIN_PARTITIONS = 40


@dataclass(frozen=True)
class Run:
    """Consecutive segments of one partition drawn as one piece: from height `bottom` to `top`, in blocks."""

    segments: tuple[Segment, ...]
    bottom: float
    top: float


def splits(schedule: Schedule, *, ctas_per_partition: int | None = None, title: str | None = None) -> Picture:
    """Draw who reads what: partitions across, cost in blocks upwards, one colour a request.

    A hatched foot is the fixed overhead of starting a request; a thick cut edge marks a request that goes on in the next
    partition. The dashed line is the payload, which no partition exceeds. Where pieces are too low to see they are
    drawn together, and say so in their detail.

    Args:
        schedule: from `mlacademy.schedule.schedule`.
        ctas_per_partition: 1 or 2 (a cluster), to count idle SMs as well as idle partitions.
        title: default: what the plan is.
    """
    s = schedule
    cost = s.cost()
    heading = title or f"{plural(s.b, 'request')} on {plural(s.parts, 'partition')}"
    pieces = int(s.splits[s.splits > 1].sum())
    summary = (
        f"{s.used} partitions work, {s.idle} idle"
        + (f" ({s.idle * ctas_per_partition} SMs)" if ctas_per_partition else "")
        + f"; payload {s.payload} blocks; "
        + (f"{plural(s.split_requests, 'request')} split into {pieces} pieces." if pieces else "no request is split.")
    )
    canvas = Canvas()
    canvas.text(0, 16, heading, size=14, bold=True)
    canvas.text(0, 35, summary, dim=True)
    _cost_line(canvas, s)
    top = max(s.payload, cost.makespan)
    unit = PLOT_HEIGHT / top
    _axis(canvas, s, top, unit)
    hatch = canvas.hatch("overhead", spacing=4, opacity=0.6)
    step = PLOT_WIDTH / s.parts
    width = min(step * (0.86 if step > 8 else 0.8), 120.0)
    by_partition: dict[int, list[Segment]] = {}
    for segment in s.segments():
        by_partition.setdefault(segment.partition, []).append(segment)
    for partition, segments in by_partition.items():
        x = PLOT_X + partition * step + (step - width) / 2
        for run in _runs(segments, s.overhead, MIN_PIXELS / unit):
            _draw_run(canvas, s, run, x, width, unit, hatch)
        if step >= 16:
            canvas.text(x + width / 2, PLOT_Y + PLOT_HEIGHT + 15, str(partition), size=11, anchor="middle", dim=True)
    _partition_labels(canvas, s, step)
    _idle(canvas, s, step, ctas_per_partition)
    bottom = _requests(canvas, s, PLOT_Y + PLOT_HEIGHT + 62)
    canvas.height = bottom
    return canvas.picture(title=heading, summary=summary, text=_twin(s))


def _runs(segments: list[Segment], overhead: int, least: float) -> Iterator[Run]:
    """Group a partition's segments so that every drawn piece is at least `least` blocks high."""
    group: list[Segment] = []
    bottom = height = 0.0
    for segment in segments:
        group.append(segment)
        height += overhead + segment.blocks
        if height >= least:
            yield Run(tuple(group), bottom, bottom + height)
            bottom, height, group = bottom + height, 0.0, []
    if group:
        yield Run(tuple(group), bottom, bottom + height)


def _draw_run(canvas: Canvas, s: Schedule, run: Run, x: float, width: float, unit: float, hatch: str) -> None:
    base = PLOT_Y + PLOT_HEIGHT
    low, high = base - run.bottom * unit, base - run.top * unit
    first = run.segments[0]
    colour = accent(first.request)
    detail = _describe(s, run)
    gap = 0.6 if (low - high) > 4 else 0.0
    if len(run.segments) > 1:
        canvas.rect(x, high + gap, width, low - high - gap, fill=colour, tint=0.55, detail=detail)
        return
    foot = s.overhead * unit
    canvas.rect(x, high + gap, width, low - high - gap, fill=colour, tint=0.18)
    canvas.rect(x, high + gap, width, max(low - high - foot - gap, 0), fill=colour, tint=0.75)
    if foot > 2:
        canvas.rect(x, low - foot, width, foot, fill=hatch)
    canvas.rect(x, high + gap, width, low - high - gap, fill=INK, tint=0, detail=detail)
    blocks = int(s.num_blocks[first.request])
    if first.end_block < blocks and first.split is not None:
        canvas.line(x, high + 1, x + width, high + 1, width=2.5)
    if first.begin_block > 0:
        canvas.line(x, low - foot, x + width, low - foot, width=2.5)
    room = low - high - foot
    if width >= 58 and room >= 13:
        canvas.text(
            x + width / 2,
            high + room / 2 + 4,
            f"r{first.request}: {first.begin_block}–{first.end_block - 1}",
            size=11,
            anchor="middle",
        )
    elif width >= 20 and room >= 13:
        canvas.text(x + width / 2, high + room / 2 + 4, f"r{first.request}", size=11, anchor="middle")


def _describe(s: Schedule, run: Run) -> str:
    """The sentence of one drawn piece."""
    first, last = run.segments[0], run.segments[-1]
    where = f"partition {first.partition}"
    if len(run.segments) > 1:
        blocks = sum(segment.blocks for segment in run.segments)
        return (
            f"{where}: requests {first.request}–{last.request}, {len(run.segments)} of them drawn together, "
            f"{plural(blocks, 'block')} + {len(run.segments)} × {s.overhead} overhead"
        )
    total = int(s.num_blocks[first.request])
    span = (
        f"all {plural(total, 'block')}"
        if first.split is None
        else f"blocks {first.begin_block}–{first.end_block - 1} of {total}"
    )
    fate = "writes the final result" if first.split is None else f"writes partial result {first.split}"
    return f"{where}: request {first.request}, {span} + {s.overhead} overhead; {fate}"


def _axis(canvas: Canvas, s: Schedule, top: float, unit: float) -> None:
    base = PLOT_Y + PLOT_HEIGHT
    step = next(
        n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10**4, 10**5, 10**6, 10**7) if top / n <= 6
    )
    value = 0
    while value <= top:
        y = base - value * unit
        canvas.line(PLOT_X, y, WIDTH, y, opacity=0.15 if value else 0.8)
        canvas.text(PLOT_X - 6, y + 4, f"{value:,}", size=11, anchor="end", dim=True)
        value += step
    y = base - s.payload * unit
    canvas.line(
        PLOT_X, y, WIDTH, y, dash="6 4", width=1.5, detail=f"payload: no partition may exceed {s.payload} blocks"
    )
    canvas.text(WIDTH, y - 5, f"payload {s.payload:,}", size=11, anchor="end")
    canvas.text(0, PLOT_Y - 10, "cost, in blocks", size=11, dim=True)


def _partition_labels(canvas: Canvas, s: Schedule, step: float) -> None:
    y = PLOT_Y + PLOT_HEIGHT + 15
    if step < 16:
        every = 10 if s.parts <= 200 else 10 ** len(str(s.parts // 20))
        for partition in range(0, s.parts, every):
            canvas.text(PLOT_X + (partition + 0.5) * step, y, str(partition), size=11, anchor="middle", dim=True)
    canvas.text(PLOT_X - 6, y, "partition", size=11, anchor="end", dim=True)


def _idle(canvas: Canvas, s: Schedule, step: float, ctas: int | None) -> None:
    if not s.idle:
        return
    left, right, base = PLOT_X + s.used * step, WIDTH, PLOT_Y + PLOT_HEIGHT
    text = plural(s.idle, "idle partition") + (f" ({s.idle * ctas} SMs)" if ctas else "")
    canvas.rect(left + 1, base - 26, right - left - 2, 26, fill="none", stroke=INK, dash="3 3", detail=text)
    if right - left > 8 * len(text) * 0.8:
        canvas.text((left + right) / 2, base - 9, text, size=11, anchor="middle")
    else:
        canvas.text(right, base + 31, text, size=11, anchor="end")


def _cost_line(canvas: Canvas, s: Schedule) -> None:
    cost = s.cost()
    canvas.text(
        0,
        54,
        f"cost model, in blocks: busiest partition {short(cost.makespan)} + combine {short(cost.combine)} = "
        f"{short(cost.total)}; without splits {short(cost.no_split)}; lower bound {short(cost.ideal)}; "
        f"blocks take {cost.utilisation * 100:.0f} % of the time",
        size=11,
        dim=True,
    )


def _requests(canvas: Canvas, s: Schedule, y: float) -> float:
    """Draw the requests as one line of stretches, wide as they are long; return the y below."""
    canvas.text(0, y - 8, "requests, wide as they are long; below: pieces", size=11, dim=True)
    total, height = float((s.num_blocks + s.overhead).sum()), 16.0
    unit = WIDTH / total
    x = 0.0
    start = 0
    while start < s.b:
        stop, width = start, 0.0
        while stop < s.b and (width < MIN_PIXELS or stop == start):
            width += float(s.num_blocks[stop] + s.overhead) * unit
            stop += 1
        count = stop - start
        pieces = int(s.splits[start:stop].sum())
        blocks = int(s.num_blocks[start:stop].sum())
        name = f"request {start}" if count == 1 else f"requests {start}–{stop - 1}"
        length = f"{int(s.lengths[start]):,} tokens, " if count == 1 else ""
        canvas.rect(
            x + 0.4,
            y,
            max(width - 0.8, 0.8),
            height,
            fill=accent(start),
            tint=0.75 if count == 1 else 0.55,
            detail=f"{name}: {length}{plural(blocks, 'block')}, {plural(pieces, 'piece')}",
        )
        if width >= 26:
            canvas.text(x + width / 2, y + 12, f"r{start}", size=11, anchor="middle")
            canvas.text(x + width / 2, y + height + 13, str(pieces), size=11, anchor="middle", dim=True)
        x += width
        start = stop
    return y + height + 22


def _twin(s: Schedule) -> str:
    cost = s.cost()
    lines = [
        f"Blocks: {int(s.num_blocks.sum()):,} of {s.block} tokens; overhead {s.overhead} for each request in a partition.",
        f"Cost model, in blocks: busiest partition {short(cost.makespan)}, combine {short(cost.combine)}, total "
        f"{short(cost.total)}; without splits {short(cost.no_split)}; lower bound {short(cost.ideal)}; blocks take "
        f"{cost.utilisation * 100:.0f} % of the time.",
    ]
    shown = [p for p in range(min(s.used, TWIN_PARTITIONS))]
    for partition in shown:
        segments = [segment for segment in s.segments() if segment.partition == partition]
        run = Run(tuple(segments), 0, 0)
        lines.append(_describe(s, run) if len(segments) == 1 else _listed(s, segments))
    if s.used > len(shown):
        lines.append(f"… and {s.used - len(shown)} more partitions with work.")
    if s.idle:
        lines.append(f"Partitions {s.used}–{s.parts - 1} are idle.")
    pieces = s.splits.tolist()
    if s.b <= TWIN_PARTITIONS:
        lines.append("Pieces of each request: " + ", ".join(f"{r}: {n}" for r, n in enumerate(pieces)))
    else:
        counts = sorted({n: pieces.count(n) for n in pieces}.items())
        lines.append("Pieces: " + ", ".join(f"{plural(count, 'request')} in {n}" for n, count in counts))
    return "\n".join(lines)


def _listed(s: Schedule, segments: list[Segment]) -> str:
    parts = [
        f"request {g.request} " + ("whole" if g.split is None else f"blocks {g.begin_block}–{g.end_block - 1}")
        for g in (segments if len(segments) <= 6 else segments[:6])
    ]
    more = f", … {len(segments) - 6} more" if len(segments) > 6 else ""
    blocks = sum(g.blocks for g in segments)
    return (
        f"partition {segments[0].partition}: {', '.join(parts)}{more}; {plural(blocks, 'block')} + "
        f"{len(segments)} × {s.overhead} overhead"
    )
