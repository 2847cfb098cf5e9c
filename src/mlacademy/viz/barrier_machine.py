"""An mbarrier as a state machine, driven by the log of a real run: phase, arrivals, bytes owed, and who did what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlacademy.viz.barrier_log import BarrierEvent, barrier_log, barriers_of, waiting_at
from mlacademy.viz.canvas import WIDTH, Canvas
from mlacademy.viz.numbers import plural, tenths
from mlacademy.viz.picture import Picture
from mlacademy.viz.theme import BLUE, INK, ORANGE, PINK, TEAL
from mlacademy.viz.timeline import Run, run_of

TOP = 62.0
WINDOW = 11  # events listed at a time
ROW = 20.0
SLOTS = 16
COLUMNS = {"event": 0, "cycle": 44, "what": 110, "by": 228, "line": 400, "phase": 590, "due": 645, "bytes owed": 708}


@dataclass(frozen=True)
class View:
    """The log of one barrier and the event that it stands at."""

    cta: int
    name: str
    log: tuple[BarrierEvent, ...]
    at: int

    @property
    def now(self) -> BarrierEvent:
        """The event that has just happened."""
        return self.log[self.at]


def barrier_states(
    trace: Any, barrier: str, *, cta: int | None = None, step: int | None = None, title: str | None = None
) -> Picture:
    """Draw the state of an mbarrier after one event of a traced run, and the events around it.

    On top: the phase and its parity, the arrivals still due, the bytes still owed, and which warps wait. A phase ends
    in the moment when no arrival is due and no byte is owed. Below: who did what, in the order in which it happened.

    Args:
        trace: from a launch with `trace=True`; its report, or the error that ended it, will do.
        barrier: its name in the kernel. cta: default: the first CTA that has it.
        step: the event to stand at, from 0; default: the last.

    Raises:
        TypeError: something that holds no trace.
        ValueError: a barrier, CTA or step that the run has not.
    """
    run = run_of(trace)
    chosen = _cta_of(run.trace, barrier, cta)
    return draw_event(run, chosen, barrier, barrier_log(run.trace, barrier, chosen), step, title)


def draw_event(
    run: Run, cta: int, name: str, log: tuple[BarrierEvent, ...], step: int | None, title: str | None = None
) -> Picture:
    """Draw a barrier whose log is known already: what `barrier_states` does after finding it."""
    at = len(log) - 1 if step is None else step
    if not 0 <= at < len(log):
        raise ValueError(f"step must be 0 to {len(log) - 1}, one for each event of {name}: it is {step}")
    view = View(cta, name, log, at)
    heading = title or f"Barrier {name} of CTA {cta}, event {at} of 0–{len(log) - 1}"
    summary = _sentence(view)
    canvas = Canvas()
    canvas.text(0, 16, heading, size=14, bold=True)
    canvas.text(0, 35, summary if len(summary) < 124 else summary[:122] + "…", dim=True)
    _phases(canvas, view)
    _gauges(canvas, view)
    _waiting(canvas, view)
    canvas.height = _events(canvas, view, TOP + 176)
    return canvas.picture(title=heading, summary=summary, text=_twin(view, run.died))


def _cta_of(trace: Any, barrier: str, cta: int | None) -> int:
    found = barriers_of(trace)
    names = list(dict.fromkeys(name for _, name in found))
    if barrier not in names:
        shown = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
        raise ValueError(f"barrier must be one of the run's: {shown or 'it has none'}; it is {barrier!r}")
    ctas = [c for c, name in found if name == barrier]
    if cta is not None and cta not in ctas:
        raise ValueError(f"cta must be one with a barrier {barrier}: {', '.join(map(str, ctas[:12]))}; it is {cta}")
    return ctas[0] if cta is None else cta


def _sentence(view: View) -> str:
    now = view.now
    due = "no arrival due" if now.pending == 0 else f"{plural(now.pending, 'arrival')} due"
    owed = "nothing owed" if now.tx == 0 else f"{plural(now.tx, 'byte')} owed"
    return f"Cycle {tenths(now.time)}: {now.words}. Phase {now.phase} (parity {now.phase % 2}), {due}, {owed}."


def _phases(canvas: Canvas, view: View) -> None:
    """Draw the two parities as states, with the current one filled, and the arrows between them."""
    now, y = view.now, TOP + 58
    canvas.text(0, TOP + 8, "phase", size=11, dim=True)
    for parity, x in ((0, 48.0), (1, 196.0)):
        here = now.phase % 2 == parity
        with canvas.group(
            detail=f"parity {parity}: a wait for parity {parity} "
            + ("stands still until this phase ends" if here else "goes on at once")
        ):
            canvas.element(
                "circle",
                cx=x,
                cy=y,
                r=38,
                fill=BLUE if here else "none",
                fill_opacity=0.3 if here else None,
                stroke=INK,
                stroke_width=2 if here else 1,
                stroke_opacity=1 if here else 0.5,
            )
            canvas.text(x, y - 3, f"phase {now.phase}" if here else "parity", anchor="middle", bold=here, dim=not here)
            canvas.text(x, y + 13, f"parity {parity}" if here else str(parity), size=11, anchor="middle", dim=not here)
    for x1, x2, bend in ((48.0, 196.0, -1), (196.0, 48.0, 1)):
        side = 1 if x2 > x1 else -1
        start, stop = x1 + side * 33, x2 - side * 33
        canvas.path(
            [(start, y + bend * 19), ((start + stop) / 2, y + bend * 28), (stop, y + bend * 19)], width=1.2, opacity=0.6
        )
        canvas.path(
            [(stop - side * 8, y + bend * 25), (stop, y + bend * 19), (stop - side * 8, y + bend * 17)],
            width=1.2,
            opacity=0.6,
        )
    flips = sum(event.kind == "phase" for event in view.log[: view.at + 1])
    canvas.text(122, y + 62, f"{plural(flips, 'phase')} completed", size=11, anchor="middle", bold=now.kind == "phase")


def _gauges(canvas: Canvas, view: View) -> None:
    """Draw the arrivals as slots and the bytes as a bar around zero."""
    now, left, width = view.now, 276.0, 262.0
    expected = max(now.expected, now.pending, 1)
    canvas.text(left, TOP + 8, "arrivals", size=11, dim=True)
    came = expected - now.pending
    detail = f"{came} of {plural(expected, 'arrival')} came in this phase, {now.pending} due"
    with canvas.group(detail=detail):
        if expected <= SLOTS:
            step = min(width / expected, 26.0)
            for slot in range(expected):
                x = left + slot * step
                canvas.rect(
                    x,
                    TOP + 18,
                    step - 4,
                    20,
                    fill=ORANGE,
                    tint=0.8 if slot < came else 0.08,
                    stroke=INK,
                    stroke_width=0.7,
                )
        else:
            canvas.rect(left, TOP + 18, width, 20, fill=INK, tint=0.08, stroke=INK, stroke_width=0.7)
            canvas.rect(left, TOP + 18, width * came / expected, 20, fill=ORANGE, tint=0.8)
    canvas.text(left, TOP + 53, f"{came} of {expected} came", size=11)
    _mark(canvas, left + width, TOP + 53, now.pending == 0, "none due" if now.pending == 0 else f"{now.pending:,} due")
    most = max((abs(event.tx) for event in view.log), default=0) or 1
    canvas.text(left, TOP + 80, "bytes owed: expected minus landed", size=11, dim=True)
    zero = left if all(event.tx >= 0 for event in view.log) else left + width / 2
    unit = (left + width - zero) / most
    with canvas.group(detail=f"{now.tx:,} bytes owed; the most in this run: {most:,}"):
        canvas.rect(left, TOP + 88, width, 20, tint=0.08, stroke=INK, stroke_width=0.7)
        x = zero + min(now.tx, 0) * unit
        canvas.rect(x, TOP + 88, abs(now.tx) * unit, 20, fill=TEAL if now.tx >= 0 else PINK, tint=0.8)
        canvas.line(zero, TOP + 84, zero, TOP + 112, width=1.5)
    canvas.text(left, TOP + 124, f"tx = {now.tx:,}".replace("-", "−"), size=11)
    _mark(canvas, left + width, TOP + 124, now.tx == 0, "none owed" if now.tx == 0 else "not zero")
    canvas.text(left, TOP + 148, "The phase ends when both are zero.", size=11, dim=True)


def _mark(canvas: Canvas, x: float, y: float, good: bool, words: str) -> None:
    canvas.text(x, y, ("✓ " if good else "✕ ") + words, size=11, anchor="end", bold=good, dim=not good)


def _waiting(canvas: Canvas, view: View) -> None:
    left = 574.0
    canvas.text(left, TOP + 8, "who stands at it", size=11, dim=True)
    waiting = waiting_at(view.log, view.at)
    if not waiting:
        canvas.text(left, TOP + 30, "nobody")
    for place, (who, since) in enumerate(waiting[:5]):
        detail = f"{who} waits since cycle {tenths(since)}"
        with canvas.group(detail=detail):
            canvas.rect(left, TOP + 18 + 24 * place, WIDTH - left, 20, fill=BLUE, tint=0.16)
            shown = who if len(who) < 18 else who[:17] + "…"
            canvas.text(left + 6, TOP + 32 + 24 * place, f"{shown}, since {tenths(since)}", size=11)
    if len(waiting) > 5:
        canvas.text(left, TOP + 18 + 24 * 5 + 10, f"and {len(waiting) - 5} more", size=11, dim=True)


def _events(canvas: Canvas, view: View, y: float) -> float:
    """List the events around the current one; return the y below."""
    first = max(0, min(view.at - WINDOW // 2, len(view.log) - WINDOW))
    for name, x in COLUMNS.items():
        canvas.text(x, y, name, size=11, dim=True)
    canvas.line(0, y + 5, WIDTH, y + 5, opacity=0.3)
    for index in range(first, min(first + WINDOW, len(view.log))):
        event, row, now = view.log[index], y + 22 + (index - first) * ROW, index == view.at
        cells = (
            str(index),
            tenths(event.time),
            event.kind,
            event.by,
            event.source,
            str(event.phase),
            f"{event.pending:,}",
            f"{event.tx:,}".replace("-", "−"),
        )
        detail = f"event {index}, cycle {tenths(event.time)}: {event.words}"
        with canvas.group(detail=detail + (f", {event.source}" if event.source else "")):
            canvas.rect(0, row - 14, WIDTH, ROW - 1, fill=BLUE, tint=0.22 if now else 0.0)
            for (name, x), cell in zip(COLUMNS.items(), cells, strict=True):
                most = 26 if name == "by" else 30 if name == "line" else 24
                text = cell if len(cell) <= most else cell[: most - 1] + "…"
                canvas.text(x, row, text, size=11, bold=now, dim=index > view.at, mono=name == "what")
    return y + 22 + min(WINDOW, len(view.log)) * ROW


def _twin(view: View, died: str) -> str:
    waiting = waiting_at(view.log, view.at)
    lines = [
        "Waiting: " + (", ".join(f"{who} since cycle {tenths(since)}" for who, since in waiting) or "nobody"),
        "Events, with the state after each (phase, arrivals due of expected, bytes owed):",
    ]
    first, stop = max(0, view.at - 30), min(len(view.log), view.at + 31)
    if first:
        lines.append(f"… {plural(first, 'event')} before")
    for index in range(first, stop):
        event = view.log[index]
        mark = ">" if index == view.at else " "
        lines.append(
            f"{mark} {index}. cycle {tenths(event.time)}: {event.words}"
            + (f", {event.source}" if event.source else "")
            + f" → phase {event.phase}, {event.pending:,} of {event.expected:,}, {event.tx:,}".replace("-", "−")
        )
    if stop < len(view.log):
        lines.append(f"… {plural(len(view.log) - stop, 'event')} after")
    if died:
        lines.append(f"The run ended in: {died}.")
    return "\n".join(lines)
