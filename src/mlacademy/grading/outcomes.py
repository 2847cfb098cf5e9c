"""From what the worker sent back to what is wrong with each case, and which mistake explains it.

The reference and every expected value are made here, in the asking process.
"""

from __future__ import annotations

import contextlib
import functools
import pickle
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import cloudpickle
import numpy as np

from mlacademy.grading import failures
from mlacademy.grading.compare import Compare, Difference, is_torch
from mlacademy.grading.exercise import Case, Exercise, Misconception
from mlacademy.grading.failures import Failure
from mlacademy.grading.process import Reply
from mlacademy.grading.wire import Foreign, Tensor, WireError, decode


@dataclass(frozen=True)
class Outcome:
    """One case after the run: what came (None when nothing came) and what is wrong with it (None when nothing is)."""

    case: Case
    hidden: bool
    expected: Any
    got: Any = None
    failure: Failure | None = None


@dataclass(frozen=True)
class Prepared:
    """A case ready to be sent, and what the reference returns for it."""

    case: Case
    pickled: bytes
    expected: Any


@functools.lru_cache(maxsize=16)
def prepare(exercise: Exercise, stream: str) -> list[Prepared]:
    """The cases of a stream with their inputs pickled and their expected values."""
    assert exercise.reference is not None
    prepared = []
    with own_randomness():
        for case in exercise.make_cases(stream):
            pickled = cloudpickle.dumps(list(case.inputs.values()))
            prepared.append(Prepared(case, pickled, exercise.reference(**inputs_of(case, pickled))))
    return prepared


def inputs_of(case: Case, pickled: bytes) -> dict[str, Any]:
    """A fresh copy of a case's inputs."""
    return dict(zip(case.inputs, pickle.loads(pickled), strict=True))


@contextlib.contextmanager
def own_randomness() -> Iterator[None]:
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


def outcomes_of(exercise: Exercise, prepared: list[tuple[Prepared, bool]], reply: Reply, answer: Any) -> list[Outcome]:
    """What came of each prepared case (with whether it is hidden); a dict value gives one outcome a key."""
    by_case: dict[int, tuple[dict[str, Any], list[bytes]]] = {}
    for message, buffers in reply.messages:
        if isinstance(message.get("case"), int):
            by_case.setdefault(message["case"], (message, buffers))
    library = _library_used(reply)
    outcomes: list[Outcome] = []
    ended = _read_message(exercise, failures.of_end, reply)
    for number, (item, hidden) in enumerate(prepared):
        message, buffers = by_case.get(number, ({}, []))
        failure = _read_message(exercise, failures.of_message, message, answer) if message else None
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


def _read_message(exercise: Exercise, reader: Callable[..., Failure | None], *arguments: Any) -> Failure | None:
    """What a reader makes of the runner's words, which an answer may have forged."""
    try:
        return reader(exercise, *arguments)
    except (TypeError, ValueError, LookupError, AttributeError):
        return failures.malformed(exercise, "what it sent back is not a result")


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
            found = difference(exercise, case, value, got[key])
            failure = failures.of_difference(exercise, replace(found, output=name)) if found else None
        outcomes.append(Outcome(case, False, value, got.get(key) if isinstance(got, dict) else got, failure))
    return outcomes


def _wrong(exercise: Exercise, item: Prepared, got: Any) -> Failure | None:
    if got is Ellipsis:
        return failures.unanswered(exercise)
    if got is None and item.expected is not None:
        return failures.nothing(exercise, item.expected)
    found = difference(exercise, item.case, item.expected, got)
    return failures.of_difference(exercise, found) if found else None


def difference(exercise: Exercise, case: Case, expected: Any, got: Any) -> Difference | None:
    """How ``got``, plain data from the worker, first differs from ``expected`` in a case."""
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
        came = got.what if isinstance(got, Foreign) else came
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


def holds_torch(value: Any) -> bool:
    """Whether there is a torch tensor somewhere in ``value``."""
    if isinstance(value, (list, tuple)):
        return any(holds_torch(item) for item in value)
    if isinstance(value, dict):
        return any(holds_torch(item) for item in value.values())
    return is_torch(value)


def _friendly(got: Any, expected: Any) -> Any:
    """Tensors from the worker as torch tensors where torch is expected, as NumPy arrays elsewhere."""
    if isinstance(got, (list, tuple)):
        return type(got)(_friendly(item, expected) for item in got)
    if isinstance(got, dict):
        return {key: _friendly(item, expected) for key, item in got.items()}
    if isinstance(got, Tensor):
        if not holds_torch(expected):
            return got.array
        torch = sys.modules["torch"]
        return torch.from_numpy(got.array).to(getattr(torch, got.dtype))
    return got


def recognise(exercise: Exercise, wrong: list[Outcome]) -> Misconception | None:
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
        return difference(exercise, case, imitated, outcome.got) is None
    except Exception:  # a wrong model may well fail on some inputs; then it explains nothing
        return False
