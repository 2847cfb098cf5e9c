"""The scheduler's plan as a picture: one column a partition, blocks stacked upwards, cuts and idle partitions shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlacademy.viz.canvas import WIDTH, Canvas
from mlacademy.viz.numbers import plural, short
from mlacademy.viz.picture import Picture
from mlacademy.viz.theme import BLUE, INK, PALETTE, TEAL, accent

if TYPE_CHECKING:
    from mlacademy.schedule import Cost, CostModel, Schedule, Segment

PLOT_X, PLOT_WIDTH = 50.0, WIDTH - 50.0
PLOT_Y, PLOT_HEIGHT = 92.0, 220.0
BASE = PLOT_Y + PLOT_HEIGHT
MIN_PIXELS = 2.5  # a piece lower or narrower than this is drawn together with its neighbours
TWIN_PARTITIONS = 32
TICKS = tuple(digit * 10**power for power in range(9) for digit in (1, 2, 5))


@dataclass(frozen=True)
class Run:
    """Consecutive segments of one partition drawn as one piece: from height `bottom` to `top`, in blocks.

    `alternate` tells neighbours apart where a piece is several requests, grey, and not one in its colour.
    """

    segments: tuple[Segment, ...]
    bottom: float
    top: float
    alternate: bool = False


def splits(
    schedule: Schedule,
    *,
    ctas_per_partition: int | None = None,
    sms: int | None = None,
    model: CostModel | None = None,
    title: str | None = None,
) -> Picture:
    """Draw who reads what: partitions across, cost in blocks upwards, one colour a request.

    A hatched foot is the fixed overhead of a request in a partition; a thick edge is a cut, where a request goes on in
    the next partition. The dashed line is the payload, which no partition exceeds. Pieces too low to see are drawn
    together, and say so in their detail. Below: the requests with their number of pieces, and what the plan costs
    beside no splitting at all and beside the lower bound.

    Args:
        schedule: from `mlacademy.schedule.schedule`.
        ctas_per_partition: CTAs of one partition, `s_q * h_q / 64` on SM90; each runs on one SM.
        sms: SMs of the GPU; with `ctas_per_partition`, idle SMs are counted too.
        model: prices for the cost bars, a `schedule.CostModel`. title: default: what the plan is.

    Raises:
        ValueError: `sms` without `ctas_per_partition`.
    """
    if sms is not None and ctas_per_partition is None:
        raise ValueError("sms needs ctas_per_partition, to know how many SMs a partition takes")
    s, cost = schedule, schedule.cost(model)
    heading = title or f"{plural(s.b, 'request')} on {plural(s.parts, 'partition')}"
    summary = _summary(s, ctas_per_partition, sms)
    canvas = Canvas()
    canvas.text(0, 16, heading, size=14, bold=True)
    canvas.text(0, 35, summary, dim=True)
    hatches = {
        colour: canvas.hatch(f"overhead{i}", colour=colour, spacing=4, opacity=1.0) for i, colour in enumerate(PALETTE)
    }
    _legend(canvas, s, hatches[BLUE])
    _columns(canvas, s, hatches)
    y = _requests(canvas, s, BASE + 50)
    canvas.height = _cost_bars(canvas, cost, y + 30)
    return canvas.picture(title=heading, summary=summary, text=_twin(s, cost))


def _summary(s: Schedule, ctas: int | None, sms: int | None) -> str:
    idle = f"{s.used} of {s.parts} partitions work, {s.idle} idle"
    if ctas is not None and sms is not None:
        idle += f" ({max(sms - s.used * ctas, 0)} of {sms} SMs without work)"
    pieces = int(s.splits[s.splits > 1].sum())
    cut = f"{plural(s.split_requests, 'request')} split into {pieces:,} pieces" if pieces else "no request is split"
    return f"{idle}; payload {plural(s.payload, 'block')}; {cut}."


def _legend(canvas: Canvas, s: Schedule, hatch: str) -> None:
    y = 57.0
    canvas.rect(0, y - 9, 14, 10, fill=BLUE, tint=0.75)
    canvas.text(20, y, f"blocks of {s.block} tokens, one colour a request", size=11)
    canvas.rect(262, y - 9, 14, 10, fill=hatch)
    canvas.text(282, y, f"overhead: {s.overhead} for a request in a partition", size=11)
    canvas.line(520, y - 4, 534, y - 4, width=3)
    canvas.text(540, y, "cut: goes on in the next partition", size=11)


def _columns(canvas: Canvas, s: Schedule, hatches: Mapping[str, str]) -> None:
    top = float(s.payload)
    unit = PLOT_HEIGHT / top
    _grid(canvas, top, unit)
    step = PLOT_WIDTH / s.parts
    width = min(step * 0.84, 120.0)
    together = False
    by_partition: dict[int, list[Segment]] = {}
    for segment in s.segments():
        by_partition.setdefault(segment.partition, []).append(segment)
    for partition, segments in by_partition.items():
        x = PLOT_X + partition * step + (step - width) / 2
        for run in _runs(segments, s.overhead, MIN_PIXELS / unit):
            together |= len(run.segments) > 1
            _draw_run(canvas, s, run, x, width, unit, hatches)
    if together:
        canvas.rect(118, PLOT_Y - 19, 14, 10, tint=0.25)
        canvas.text(138, PLOT_Y - 10, "several requests, each too small to draw", size=11)
    y = BASE - s.payload * unit
    canvas.line(
        PLOT_X, y, WIDTH, y, dash="6 4", width=1.5, detail=f"payload: no partition exceeds {s.payload:,} blocks"
    )
    canvas.text(WIDTH, y - 6, f"payload {s.payload:,}", size=11, anchor="end")
    every = next(n for n in TICKS if n * step >= 28)
    for partition in range(0, s.parts, every):
        canvas.text(PLOT_X + (partition + 0.5) * step, BASE + 15, str(partition), size=11, anchor="middle", dim=True)
    canvas.text(0, BASE + 15, "partition", size=11, dim=True)
    _idle(canvas, s, step)


def _grid(canvas: Canvas, top: float, unit: float) -> None:
    step = next(n for n in TICKS if top / n <= 6)
    for value in range(0, int(top) + 1, step):
        y = BASE - value * unit
        canvas.line(PLOT_X, y, WIDTH, y, opacity=0.15 if value else 0.8)
        canvas.text(PLOT_X - 6, y + 4, f"{value:,}", size=11, anchor="end", dim=True)
    canvas.text(0, PLOT_Y - 10, "cost, in blocks", size=11, dim=True)


def _runs(segments: list[Segment], overhead: int, least: float) -> Iterator[Run]:
    """Group a partition's segments so that every drawn piece is at least `least` blocks high."""
    group: list[Segment] = []
    bottom = height = 0.0
    alternate = False
    for segment in segments:
        group.append(segment)
        height += overhead + segment.blocks
        if height >= least:
            yield Run(tuple(group), bottom, bottom + height, alternate)
            bottom, height, group, alternate = bottom + height, 0.0, [], not alternate
    if group:
        yield Run(tuple(group), bottom, bottom + height, alternate)


def _draw_run(
    canvas: Canvas, s: Schedule, run: Run, x: float, width: float, unit: float, hatches: Mapping[str, str]
) -> None:
    low, high = BASE - run.bottom * unit, BASE - run.top * unit
    high += 0.7 if low - high > 4 else 0.0  # a hair of space between neighbours
    first = run.segments[0]
    colour = accent(first.request)
    with canvas.group(detail=_describe(s, run)):
        if len(run.segments) > 1:
            canvas.rect(x, high, width, low - high, tint=0.3 if run.alternate else 0.2)
            return
        foot = low - s.overhead * unit
        canvas.rect(x, high, width, foot - high, fill=colour, tint=0.75)
        canvas.rect(x, foot, width, low - foot, fill=hatches[colour])
        if first.end_block < int(s.num_blocks[first.request]) and first.split is not None:
            canvas.line(x, high + 1, x + width, high + 1, width=3)
        if first.begin_block > 0:
            canvas.line(x, foot, x + width, foot, width=3)
        if foot - high >= 14 and width >= 22:
            blocks = f": {_span(first)}" if width >= 62 and first.blocks else ""
            canvas.text(x + width / 2, (high + foot) / 2 + 4, f"r{first.request}{blocks}", size=11, anchor="middle")


def _span(segment: Segment) -> str:
    last = segment.end_block - 1
    return f"{segment.begin_block}" if last == segment.begin_block else f"{segment.begin_block}–{last}"


def _describe(s: Schedule, run: Run) -> str:
    """The sentence of one drawn piece."""
    first, last = run.segments[0], run.segments[-1]
    where = f"partition {first.partition}"
    if len(run.segments) > 1:
        blocks = sum(segment.blocks for segment in run.segments)
        return (
            f"{where}: requests {first.request}–{last.request}, drawn together, "
            f"{plural(blocks, 'block')} + {len(run.segments)} × {s.overhead} overhead"
        )
    total = int(s.num_blocks[first.request])
    if not first.blocks:
        return f"{where}: request {first.request}, length 0, no block + {s.overhead} overhead; writes the result"
    if first.split is None:
        return (
            f"{where}: request {first.request}, all {plural(total, 'block')} + {s.overhead} overhead; writes the result"
        )
    noun = "block" if first.blocks == 1 else "blocks"
    return (
        f"{where}: request {first.request}, {noun} {_span(first)} of {total} + {s.overhead} overhead; "
        f"writes partial result {first.split}"
    )


def _idle(canvas: Canvas, s: Schedule, step: float) -> None:
    if not s.idle:
        return
    left, text = PLOT_X + s.used * step, plural(s.idle, "idle partition")
    canvas.rect(left + 1, PLOT_Y + 4, WIDTH - left - 2, PLOT_HEIGHT - 4, tint=0.04, stroke=INK, dash="3 3", detail=text)
    if WIDTH - left > 110:
        canvas.text((left + WIDTH) / 2, PLOT_Y + PLOT_HEIGHT / 2, text, anchor="middle")
    else:
        canvas.text(WIDTH, BASE + 30, text, size=11, anchor="end")


def _requests(canvas: Canvas, s: Schedule, y: float) -> float:
    """Draw the requests as one line of stretches, as wide as they are costly; return the y below."""
    canvas.text(0, y - 7, "requests in order, as wide as their cost; the number below: pieces", size=11, dim=True)
    weights = (s.num_blocks + s.overhead).tolist()
    pieces, blocks = s.splits.tolist(), s.num_blocks.tolist()
    unit = WIDTH / sum(weights)
    x, start = 0.0, 0
    while start < s.b:
        stop, width = start, 0.0
        while stop < s.b and width < MIN_PIXELS:
            width += weights[stop] * unit
            stop += 1
        alone = stop - start == 1
        name = (
            f"request {start}: {plural(int(s.lengths[start]), 'token')}, "
            if alone
            else f"requests {start}–{stop - 1}: "
        )
        detail = f"{name}{plural(sum(blocks[start:stop]), 'block')}, {plural(sum(pieces[start:stop]), 'piece')}"
        colour, tint = (accent(start), 0.75) if alone else (INK, 0.25)
        canvas.rect(x, y, max(width - min(1.0, width * 0.2), 0.5), 16, fill=colour, tint=tint, detail=detail)
        if width >= 28:
            canvas.text(x + width / 2, y + 12, f"r{start}", size=11, anchor="middle")
        if width >= 14:
            canvas.text(x + width / 2, y + 29, str(pieces[start]), size=11, anchor="middle", dim=True)
        x, start = x + width, stop
    return y + 34


def _cost_rows(cost: Cost) -> tuple[tuple[str, float, float], ...]:
    """Name, main-kernel time and combine time of the plan and of the two it is compared with."""
    return (
        ("this plan", cost.makespan, cost.combine),
        ("no request split", cost.no_split, 0.0),
        ("lower bound", cost.ideal, 0.0),
    )


def _cost_bars(canvas: Canvas, cost: Cost, y: float) -> float:
    rows = _cost_rows(cost)
    left, right = 112.0, WIDTH - 330
    unit = (right - left) / (max(main + combine for _, main, combine in rows) or 1.0)
    canvas.text(0, y - 10, "cost model, in blocks: busiest partition", size=11, dim=True)
    canvas.text(left + 112, y - 10, "+ combine", size=11, fill=TEAL)
    for index, (name, main, combine) in enumerate(rows):
        row = y + index * 20
        canvas.text(left - 8, row + 11, name, size=11, anchor="end")
        canvas.rect(left, row, main * unit, 14, tint=0.35, detail=f"{name}: busiest partition {short(main)} blocks")
        if combine:
            canvas.rect(
                left + main * unit,
                row,
                combine * unit,
                14,
                fill=TEAL,
                detail=f"{name}: combine {short(combine)} blocks",
            )
        label = f"{short(main)} + {short(combine)} = {short(main + combine)}" if combine else short(main)
        note = f" · blocks fill {cost.utilisation * 100:.0f} % of the partitions' time" if index == 0 else ""
        canvas.text(left + (main + combine) * unit + 6, row + 11, label + note, size=11)
    return y + 20 * len(rows) + 4


def _twin(s: Schedule, cost: Cost) -> str:
    lines = [
        f"Blocks: {int(s.num_blocks.sum()):,} of {s.block} tokens. "
        f"Overhead: {s.overhead} for each request in a partition.",
        "Cost model, in blocks: "
        + "; ".join(
            f"{name} {short(main)}" + (f" + combine {short(combine)} = {short(main + combine)}" if combine else "")
            for name, main, combine in _cost_rows(cost)
        )
        + f". Blocks fill {cost.utilisation * 100:.0f} % of the partitions' time.",
    ]
    by_partition: dict[int, list[Segment]] = {}
    for segment in s.segments():
        by_partition.setdefault(segment.partition, []).append(segment)
    lines += [_partition_line(s, by_partition[p]) for p in range(min(s.used, TWIN_PARTITIONS))]
    if s.used > TWIN_PARTITIONS:
        lines.append(f"… and {plural(s.used - TWIN_PARTITIONS, 'more partition')} with work.")
    if s.idle:
        which = f"Partition {s.used} is" if s.idle == 1 else f"Partitions {s.used}–{s.parts - 1} are"
        lines.append(f"{which} idle.")
    pieces = s.splits.tolist()
    if s.b <= TWIN_PARTITIONS:
        lines.append("Pieces of each request: " + ", ".join(f"r{r}: {n}" for r, n in enumerate(pieces)))
    else:
        counts = sorted({n: pieces.count(n) for n in set(pieces)}.items())
        lines.append("Pieces: " + ", ".join(f"{plural(count, 'request')} in {n}" for n, count in counts))
    return "\n".join(lines)


def _partition_line(s: Schedule, segments: list[Segment]) -> str:
    if len(segments) == 1:
        return _describe(s, Run((segments[0],), 0, 0))
    shown = [
        f"request {g.request} "
        + ("whole" if g.split is None else f"blocks {_span(g)} of {int(s.num_blocks[g.request])}")
        for g in segments[:6]
    ]
    more = f", … {len(segments) - 6} more" if len(segments) > 6 else ""
    blocks = sum(g.blocks for g in segments)
    return (
        f"partition {segments[0].partition}: {', '.join(shown)}{more}; "
        f"{plural(blocks, 'block')} + {len(segments)} × {s.overhead} overhead"
    )
