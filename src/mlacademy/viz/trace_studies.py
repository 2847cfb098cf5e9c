"""The studies of a traced run: its timeline under filters, and its barriers event by event."""

from __future__ import annotations

from typing import Any

from mlacademy.viz.barrier_log import BarrierEvent, barrier_log, barriers_of
from mlacademy.viz.barrier_machine import draw_event
from mlacademy.viz.picture import Picture
from mlacademy.viz.study import Choice, Settings, Slider, Study, show
from mlacademy.viz.timeline import Run, run_of, timeline
from mlacademy.viz.timeline_facts import role_of

ALL = "all"


def selected(settings: Settings) -> Settings:
    """Return the filters that name something."""
    return {name: value for name, value in settings.items() if value != ALL}


def explore_timeline(trace: Any) -> Any:
    """Timeline of a traced run with zoom, details of every bar, and filters by CTA, role, barrier and buffer.

    `trace` is what `timeline` takes: a trace, a report that has one, or the error that ended a traced launch.
    """
    run = run_of(trace)
    study = timeline_study(run)

    def widget() -> Any:
        from mlacademy.viz.timeline_explorer import TimelineExplorer

        return TimelineExplorer(run, study)

    return show(study, widget)


def timeline_study(run: Run) -> Study:
    """Make the study of one run: a choice of CTA, role, barrier and buffer, as far as there is more than one."""
    trace = run.trace
    have: dict[str, list[Any]] = {
        "cta": list(dict.fromkeys(int(cta) for cta in trace.warps.cta)),
        "role": list(dict.fromkeys(role_of(trace, row) for row in range(len(trace.warps.cta)))),
        "barrier": list(dict.fromkeys(str(name) for name in trace.barriers.name)),
        "buffer": list(dict.fromkeys(str(name) for name in trace.buffers.name)),
    }
    words = {"cta": "CTA"}
    controls = tuple(
        Choice(name, words.get(name, name), ALL, {ALL: ALL} | {str(value): value for value in values})
        for name, values in have.items()
        if len(values) > 1
    )

    def draw(**settings: Any) -> Picture:
        return timeline(run, **selected(settings))

    return Study(draw, controls)


def explore_barrier(trace: Any) -> Any:
    """Barrier stepper on a traced run: choose a barrier, and go through its events one by one."""
    return show(barrier_study(trace))


def barrier_study(trace: Any) -> Study:
    """Make the study of the barriers of one run; raise `ValueError` where it has none."""
    run = run_of(trace)
    found = barriers_of(run.trace)
    if not found:
        raise ValueError("trace must hold an mbarrier to step through: this run initialised none")
    several = len({cta for cta, _ in found}) > 1
    choices = {f"{name} of CTA {cta}" if several else name: (cta, name) for cta, name in found}
    logs: dict[tuple[int, str], tuple[BarrierEvent, ...]] = {}

    def log_of(which: tuple[int, str]) -> tuple[BarrierEvent, ...]:
        if which not in logs:
            logs[which] = barrier_log(run.trace, which[1], which[0])
        return logs[which]

    def draw(*, barrier: tuple[int, str], step: int) -> Picture:
        return draw_event(run, *barrier, log_of(barrier), step)

    def limits(settings: Settings) -> dict[str, int]:
        return {"step": len(log_of(settings["barrier"])) - 1}

    first = len(log_of(found[0])) - 1
    controls = (Choice("barrier", "barrier", found[0], choices), Slider("step", "event", 0, 0, first))
    return Study(draw, controls, limits=limits)
