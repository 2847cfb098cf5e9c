"""Judge an answer: draw the cases, run the answer in the worker, compare, and find out what went wrong.

The reference and every expected value stay in this process. The worker gets the inputs and returns plain data.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import cloudpickle
import numpy as np

from mlacademy.grading import failures, guard
from mlacademy.grading.compare import Compare, Difference, is_torch
from mlacademy.grading.exercise import Case, Exercise, Misconception
from mlacademy.grading.failures import Failure
from mlacademy.grading.process import Job, Reply, Worker, shared
from mlacademy.grading.verdict import Verdict
from mlacademy.grading.wire import Foreign, Tensor, WireError, decode

MAX_ANSWER = 256 << 20
PRINTED_LINES = 30
_PRELOAD_PREFIXES = ("torch", "mlacademy")


@dataclass(frozen=True)
class Source:
    """An answer as text: the statements of a notebook's cells, to be run in the worker; ``own`` is the position of the
    cell made for the answer (-1 when it is missing)."""

    cells: list[list[str]]
    own: int = -1


@dataclass(frozen=True)
class Outcome:
    """One case after the run: what came (None when nothing came) and what is wrong with it (None when nothing is)."""

    case: Case
    hidden: bool
    expected: Any
    got: Any = None
    failure: Failure | None = None


@dataclass(frozen=True)
class _Prepared:
    case: Case
    pickled: bytes
    expected: Any


def judge(
    exercise: Exercise, answer: Any, *, streams: tuple[str, ...] = ("visible",), worker: Worker | None = None
) -> Verdict:
    """The verdict on ``answer``: a function, a value or a ``Source``.

    ``streams`` are the case streams to run (``visible``, ``hidden``, ``regrade``). Raises only for an author's
    mistake in the exercise itself; whatever the answer does becomes a verdict.
    """
    begin = time.perf_counter()
    if exercise.kind == "prose":
        return _verdict(exercise, "manual", "A person reads this answer and gives the points.", begin=begin)
    early = _refuse_early(exercise, answer)
    if early is None:
        prepared = [(item, stream != "visible") for stream in streams for item in _prepare(exercise, stream)]
        job = _job(exercise, answer, [item for item, _ in prepared])
        if isinstance(job, Failure):
            early = job
        else:
            reply = (worker or shared()).run(job)
            with _own_randomness():
                outcomes = _outcomes(exercise, prepared, reply, answer)
                return _conclude(exercise, outcomes, reply, begin, more="hidden" not in streams)
    state = "unanswered" if early.kind == "unanswered" else "failed"
    return _verdict(exercise, state, early.sentence, failure=early, begin=begin)


@functools.lru_cache(maxsize=16)
def _prepare(exercise: Exercise, stream: str) -> list[_Prepared]:
    assert exercise.reference is not None
    prepared = []
    with _own_randomness():
        for case in exercise.make_cases(stream):
            pickled = cloudpickle.dumps(list(case.inputs.values()))
            prepared.append(_Prepared(case, pickled, exercise.reference(**_inputs(case, pickled))))
    return prepared


def _inputs(case: Case, pickled: bytes) -> dict[str, Any]:
    """A fresh copy of a case's inputs."""
    return dict(zip(case.inputs, pickle.loads(pickled), strict=True))


@contextlib.contextmanager
def _own_randomness() -> Iterator[None]:
    """Leave the learner's global generators as they were, whatever a judge does with them."""
    python, numpy = random.getstate(), np.random.get_state()
    torch = sys.modules.get("torch")
    state = torch.random.get_rng_state() if torch is not None else None
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        if torch is not None and state is not None:
            torch.random.set_rng_state(state)


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


def _job(exercise: Exercise, answer: Any, prepared: list[_Prepared]) -> Job | Failure:
    pickled = None
    if not isinstance(answer, Source):
        try:
            pickled = cloudpickle.dumps(answer)
        except Exception as error:
            return failures.unpicklable(exercise, error)
        if len(pickled) > MAX_ANSWER:
            return failures.oversized(exercise, len(pickled))
    calls = [item.pickled for item in prepared] if exercise.kind == "function" else None
    needs_torch = any(_holds_torch(item.expected) for item in prepared) or b"torch" in (pickled or b"")[:1_000_000]
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


def _outcomes(exercise: Exercise, prepared: list[tuple[_Prepared, bool]], reply: Reply, answer: Any) -> list[Outcome]:
    by_case: dict[int, tuple[dict[str, Any], list[bytes]]] = {}
    for message, buffers in reply.messages:
        if isinstance(message.get("case"), int):
            by_case.setdefault(message["case"], (message, buffers))
    library = _library_used(reply)
    outcomes: list[Outcome] = []
    ended = failures.of_end(exercise, reply)
    for number, (item, hidden) in enumerate(prepared):
        message, buffers = by_case.get(number, ({}, []))
        failure = failures.of_message(exercise, message, answer, reply) if message else None
        got: Any = None
        if library:
            failure = failures.library(exercise, library)
        elif not message:
            failure = ended or failures.lost(exercise)
        elif failure is None:
            try:
                got = decode(message.get("value") or {}, buffers)
            except WireError as error:
                failure = failures.malformed(exercise, str(error))
        if failure is None and exercise.kind == "value" and isinstance(item.expected, dict):
            outcomes += _keys(exercise, item.expected, got)
            continue
        if failure is None:
            failure = _wrong(exercise, item, got)
        outcomes.append(Outcome(item.case, hidden, item.expected, got, failure))
    return outcomes


def _library_used(reply: Reply) -> str:
    for message, _ in reply.messages:
        names = message.get("library")
        if isinstance(names, list) and names:
            return str(names[0])[:120]
    return ""


def _keys(exercise: Exercise, expected: dict[Any, Any], got: Any) -> list[Outcome]:
    """A dict of predictions, one outcome a key."""
    outcomes = []
    for key, value in expected.items():
        case = Case(label=str(key), part=str(key) if exercise.parts else None)
        name = f"{exercise.entry}[{key!r}]"
        failure: Failure | None = None
        if not isinstance(got, dict):
            failure = failures.unanswered(exercise) if got is Ellipsis else failures.not_a_dict(exercise, got, expected)
        elif key not in got:
            failure = Failure("key", f"{exercise.entry} has no key {key!r}.")
        elif got[key] is Ellipsis:
            failure = Failure("unanswered", f"{name} is not answered yet.")
        else:
            found = _difference(exercise, case, value, got[key])
            failure = failures.of_difference(exercise, replace(found, output=name)) if found else None
        outcomes.append(Outcome(case, False, value, got.get(key) if isinstance(got, dict) else got, failure))
    return outcomes


def _wrong(exercise: Exercise, item: _Prepared, got: Any) -> Failure | None:
    if got is Ellipsis:
        return failures.unanswered(exercise)
    if got is None and item.expected is not None:
        return failures.nothing(exercise, item.expected)
    difference = _difference(exercise, item.case, item.expected, got)
    return failures.of_difference(exercise, difference) if difference else None


def _difference(exercise: Exercise, case: Case, expected: Any, got: Any) -> Difference | None:
    names, how = exercise.outputs, exercise.compare
    if not isinstance(how, (Compare, tuple)):
        if isinstance(got, Foreign):
            return Difference(names[0], "type", "plain numbers, lists or arrays", f"is {got.what}")
        try:
            return how(case, expected, _friendly(got, expected))
        except Exception as error:  # an own comparison may meet any shape; it must not take the notebook down
            return Difference(names[0], "type", "a result of the stated form", f"cannot be compared ({error})")
    if exercise.kind == "value":
        names = (exercise.entry,)
    if len(names) == 1:
        axes = case.axes[0] if case.axes else ()
        magnitude = case.magnitude[0] if case.magnitude else None
        return (how if isinstance(how, Compare) else how[0])(names[0], expected, got, axes, magnitude)
    if not isinstance(got, (list, tuple)) or len(got) != len(names):
        came = f"{len(got)} results" if isinstance(got, (list, tuple)) else "one result"
        sentence = f"{exercise.entry} returned {came}; expected {len(names)}: {', '.join(names)}."
        return Difference(exercise.entry, "length", len(names), came, sentence=sentence)
    for position, name in enumerate(names):
        one = how if isinstance(how, Compare) else how[position]
        axes = case.axes[position] if position < len(case.axes) else ()
        magnitude = case.magnitude[position] if position < len(case.magnitude) else None
        found = one(name, expected[position], got[position], axes, magnitude)
        if found is not None:
            return found
    return None


def _holds_torch(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_holds_torch(item) for item in value)
    if isinstance(value, dict):
        return any(_holds_torch(item) for item in value.values())
    return is_torch(value)


def _friendly(got: Any, expected: Any) -> Any:
    """Tensors from the worker as torch tensors where torch is expected, as NumPy arrays elsewhere."""
    if isinstance(got, (list, tuple)):
        return type(got)(_friendly(item, expected) for item in got)
    if isinstance(got, dict):
        return {key: _friendly(item, expected) for key, item in got.items()}
    if isinstance(got, Tensor):
        if not _holds_torch(expected):
            return got.array
        torch = sys.modules["torch"]
        return torch.from_numpy(got.array).to(getattr(torch, got.dtype))
    return got


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
    known = _recognise(exercise, wrong) if first.failure.comparable else None
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


def _recognise(exercise: Exercise, wrong: list[Outcome]) -> Misconception | None:
    """The misconception that explains the first wrong case; among several, one that explains all wrong cases."""
    comparable = [outcome for outcome in wrong if outcome.failure is not None and outcome.failure.comparable]
    candidates = [known for known in exercise.misconceptions if _explains(exercise, known, comparable[0])]
    for known in candidates:
        if all(_explains(exercise, known, outcome) for outcome in comparable[1:]):
            return known
    return candidates[0] if candidates else None


def _explains(exercise: Exercise, known: Misconception, outcome: Outcome) -> bool:
    case = outcome.case
    try:
        if known.when is not None:
            return bool(known.when(case, outcome.expected, _friendly(outcome.got, outcome.expected)))
        assert known.model is not None
        imitated = known.model(**pickle.loads(cloudpickle.dumps(dict(case.inputs))))
        if exercise.kind == "value" and isinstance(imitated, dict) and not isinstance(outcome.expected, dict):
            imitated = imitated[next(key for key in imitated if str(key) == case.label)]
        return _difference(exercise, case, imitated, outcome.got) is None
    except Exception:  # a wrong model may well fail on some inputs; then it explains nothing
        return False


def _verdict(
    exercise: Exercise,
    state: str,
    summary: str,
    *,
    begin: float,
    failure: Failure | None = None,
    known: Misconception | None = None,
    outcome: Outcome | None = None,
    points: int = 0,
    parts: dict[str, bool] | None = None,
    reply: Reply | None = None,
) -> Verdict:
    visible = outcome is not None and not outcome.hidden and exercise.kind == "function" and state == "failed"
    hints: tuple[str, ...] = ()
    if state == "failed":
        hints = known.hints if known else (failure.hints if failure and failure.hints else exercise.hints)
    return Verdict(
        exercise=exercise.id,
        title=exercise.title,
        state=state,
        summary=summary,
        kind=known.key if known else failure.kind if failure else "",
        case=failures.describe_case(exercise, outcome.case) if visible and outcome else "",
        property_=outcome.case.label if outcome else "",
        reason=known.says if known else failure.why if failure else "",
        hints=hints,
        hint=hints[0] if hints else "",
        lines=failure.lines if failure else (),
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
