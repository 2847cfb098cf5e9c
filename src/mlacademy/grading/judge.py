"""Judge an answer: draw the cases, run the answer in the worker, compare, and find out what went wrong.

The reference and every expected value stay in this process. The worker gets the inputs and returns plain data.
"""

from __future__ import annotations

import functools
import io
import os
import sys
import time
from dataclasses import dataclass
from typing import Any

import cloudpickle

from mlacademy.grading import failures, guard, judges
from mlacademy.grading.cuda_exercise import CudaExercise
from mlacademy.grading.cuda_judge import PRELOAD, Examined, examine, text_of
from mlacademy.grading.exercise import Exercise, Misconception
from mlacademy.grading.failures import Failure
from mlacademy.grading.outcomes import Outcome, Prepared, holds_torch, outcomes_of, own_randomness, prepare, recognise
from mlacademy.grading.process import Job, Reply, Worker, shared
from mlacademy.grading.verdict import Verdict

MAX_ANSWER = 256 << 20
PRINTED_LINES = 30
_PRELOAD_PREFIXES = ("torch", "mlacademy")


def preloads() -> list[str]:
    """Every module that some exercise needs in the worker: torch, and what its answers must not lean on."""
    forbidden = (name for exercise in judges.all_exercises() for name in exercise.forbids)
    return sorted({"torch", *PRELOAD, *(name for name in forbidden if name.startswith(_PRELOAD_PREFIXES))})


@dataclass(frozen=True)
class Source:
    """An answer as text: the statements of a notebook's cells, to be run in the worker; ``own`` is the position of the
    cell made for the answer (-1 when it is missing)."""

    cells: list[list[str]]
    own: int = -1


def judge(
    exercise: Exercise,
    answer: Any,
    *,
    streams: tuple[str, ...] = ("visible",),
    worker: Worker | None = None,
    device: str = "emulator",
) -> Verdict:
    """The verdict on ``answer``: a function, a value, a kernel's text or a ``Source``.

    ``streams`` are the case streams to run (``visible``, ``hidden``, ``regrade``). A kernel runs on ``device``,
    ``emulator`` or ``cuda``. Raises only for an author's mistake in the exercise itself; whatever the answer does
    becomes a verdict.
    """
    begin = time.perf_counter()
    if exercise.kind == "prose":
        return _verdict(exercise, "manual", "A person reads this answer and gives the points.", begin=begin)
    if isinstance(exercise, CudaExercise):
        return _judge_kernel(exercise, answer, streams, worker or shared(), device, begin)
    early = _refuse_early(exercise, answer)
    if early is None:
        prepared = [(item, stream != "visible") for stream in streams for item in prepare(exercise, stream)]
        job = _job(exercise, answer, [item for item, _ in prepared])
        if isinstance(job, Failure):
            early = job
        else:
            reply = (worker or shared()).run(job)
            with own_randomness():
                outcomes = outcomes_of(exercise, prepared, reply, answer)
                return _conclude(exercise, outcomes, reply, begin, more="hidden" not in streams)
    state = "unanswered" if early.kind == "unanswered" else "failed"
    return _verdict(exercise, state, early.sentence, failure=early, begin=begin)


def _judge_kernel(
    exercise: CudaExercise, answer: Any, streams: tuple[str, ...], worker: Worker, device: str, begin: float
) -> Verdict:
    if isinstance(answer, Source):  # the notebook's cells are Python: they run first, and only the text comes back
        cells = _job(exercise, answer, [])
        assert isinstance(cells, Job)
        answer = text_of(exercise, worker.run(cells))
    with own_randomness():
        done = Examined(failure=answer) if isinstance(answer, Failure) else None
        done = done or examine(exercise, answer, streams, worker, device)
    if done.failure is None:
        where = "on the GPU" if device == "cuda" else f"in {done.runs} schedules"
        later = "" if "hidden" in streams else "; the hidden test tries others"
        summary = f"Right on {done.cases} case{'s' if done.cases > 1 else ''} {where}{later}."
        return _verdict(exercise, "passed", summary, points=exercise.points, reply=done.reply, begin=begin)
    return _verdict(
        exercise,
        {"unanswered": "unanswered", "device": "not run", "compiler": "not run"}.get(done.failure.kind, "failed"),
        done.failure.sentence,
        failure=done.failure,
        known=done.known,
        outcome=done.outcome,
        how=done.how,
        reply=done.reply,
        begin=begin,
    )


def _refuse_early(exercise: Exercise, answer: Any) -> Failure | None:
    """What can be said without running anything."""
    if answer is Ellipsis:
        return failures.unanswered(exercise)
    if isinstance(answer, Source) or exercise.kind == "value":
        return None
    if not callable(answer):
        return failures.not_a_function(exercise, answer)
    name = _library_name(answer, exercise.forbids)
    return failures.library(exercise, name) if name else None


def _library_name(answer: Any, forbids: tuple[str, ...]) -> str:
    """The library's name of ``answer`` when it is the library's own function (also inside a partial)."""
    while isinstance(answer, functools.partial):
        answer = answer.func
    home, name = getattr(answer, "__module__", None) or "", getattr(answer, "__name__", type(answer).__name__)
    if any(home == prefix or home.startswith(prefix + ".") for prefix in ("mlacademy", *forbids)):
        return f"{home}.{name}"
    for forbidden in forbids:
        owner, attribute = guard.resolve(forbidden)
        if attribute and owner is not None and getattr(owner, attribute) is answer:
            return forbidden
    return ""


def _job(exercise: Exercise, answer: Any, prepared: list[Prepared]) -> Job | Failure:
    pickled = None
    if not isinstance(answer, Source):
        try:
            pickled = _pickled(answer)
        except Exception as error:
            return failures.unpicklable(exercise, error)
        if len(pickled) > MAX_ANSWER:
            return failures.oversized(exercise, len(pickled))
    calls = [item.pickled for item in prepared] if exercise.kind == "function" else None
    needs_torch = any(holds_torch(item.expected) for item in prepared) or b"torch" in (pickled or b"")[:1_000_000]
    preload = ["torch"] if needs_torch or any(call.find(b"torch") >= 0 for call in calls or []) else []
    preload += [name for name in exercise.forbids if name.startswith(_PRELOAD_PREFIXES)]
    return Job(
        answer=pickled,
        cells=answer.cells if isinstance(answer, Source) else None,
        own=answer.own if isinstance(answer, Source) else -1,
        entry=exercise.entry,
        calls=calls,
        writes=[exercise.parameters.index(name) for name in exercise.writes],
        forbids=list(exercise.forbids),
        preload=preload,
        path=[] if isinstance(answer, Source) else [os.path.abspath(folder) for folder in sys.path],
        call_seconds=exercise.seconds,
        total_seconds=4 * exercise.seconds,
    )


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc, unused-ignore]
    """cloudpickle that also sends a function under ``functools.cache`` or ``lru_cache`` by value, its cache empty."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, functools._lru_cache_wrapper) and not _importable(value):
            return _cached, (value.__wrapped__, value.cache_parameters())
        return super().reducer_override(value)


def _importable(value: Any) -> bool:
    module = sys.modules.get(value.__module__)
    return value.__module__ != "__main__" and getattr(module, value.__qualname__, None) is value


def _cached(function: Any, parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def _pickled(answer: Any) -> bytes:
    with io.BytesIO() as file:
        _Pickler(file).dump(answer)
        return file.getvalue()


def _conclude(exercise: Exercise, outcomes: list[Outcome], reply: Reply, begin: float, *, more: bool) -> Verdict:
    parts: dict[str, bool] = dict.fromkeys(exercise.parts or {}, True)
    for outcome in outcomes:
        if outcome.case.part is not None and outcome.failure is not None:
            parts[outcome.case.part] = False
    wrong = [outcome for outcome in outcomes if outcome.failure is not None]
    if exercise.parts:
        points = sum(points for part, points in exercise.parts.items() if parts[part])
    else:
        points = 0 if wrong else exercise.points
    if not wrong:
        count = f"{len(outcomes)} case{'s' if len(outcomes) > 1 else ''}"
        later = "; the hidden test tries others" if more and exercise.kind == "function" else ""
        summary = f"Right on {count}{later}." if exercise.kind == "function" else "Right."
        return _verdict(exercise, "passed", summary, points=points, parts=parts, reply=reply, begin=begin)
    first = wrong[0]
    assert first.failure is not None
    known = recognise(exercise, wrong) if first.failure.comparable else None
    state = "unanswered" if first.failure.kind == "unanswered" else "failed"
    summary = first.failure.sentence
    if exercise.kind == "value" and len(outcomes) > 1 and state == "failed":
        summary += f" {len(outcomes) - len(wrong)} of {len(outcomes)} are right."
    return _verdict(
        exercise,
        state,
        summary,
        failure=first.failure,
        known=known,
        outcome=first,
        points=points,
        parts=parts,
        reply=reply,
        begin=begin,
    )


def _verdict(
    exercise: Exercise,
    state: str,
    summary: str,
    *,
    begin: float,
    failure: Failure | None = None,
    known: Misconception | None = None,
    outcome: Outcome | None = None,
    how: str = "",
    points: int = 0,
    parts: dict[str, bool] | None = None,
    reply: Reply | None = None,
) -> Verdict:
    called = exercise.kind in ("function", "cuda")
    visible = outcome is not None and not outcome.hidden and called and state == "failed"
    case = failures.describe_case(exercise, outcome.case) if visible and outcome else ""
    hints: tuple[str, ...] = ()
    if state == "failed":
        hints = known.hints if known else (failure.hints if failure and failure.hints else exercise.hints)
    return Verdict(
        exercise=exercise.id,
        title=exercise.title,
        state=state,
        summary=summary,
        kind=known.key if known else failure.kind if failure else "",
        case=f"{case}; {how}" if case and how else case,
        property_=outcome.case.label if outcome else "",
        reason=known.says if known else failure.why if failure else "",
        hints=hints,
        hint=hints[0] if hints else "",
        lines=failure.lines if failure else (),
        report=failure.report if failure else (),
        printed=_printed(reply) if reply else "",
        points=points,
        max_points=exercise.points,
        parts=parts or {},
        seconds=time.perf_counter() - begin,
        comparable=bool(failure and failure.comparable),
    )


def _printed(reply: Reply) -> str:
    """What the answer printed, as far as a reader wants it under a verdict."""
    lines = reply.printed.replace("<dynamic-code>", "your code").splitlines()
    left_out = len(lines) - PRINTED_LINES
    if left_out > 0 or reply.cut:
        more = f"{left_out} more lines" if left_out > 0 and not reply.cut else "much more"
        lines = [*lines[:PRINTED_LINES], f"… and {more}"]
    return "\n".join(lines)
