"""What an exercise is: its statement in data, its cases, its reference, and the mistakes it knows.

An ``Exercise`` is declared in ``mlacademy.grading.judges.chNN`` and holds everything the judge needs. Nothing of it
travels to the process that runs the answer except the inputs of the cases and the names in ``forbids``.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlacademy.grading.compare import EXACT, Compare, Difference

EXERCISE_ID = re.compile(r"\d\d\.\d+")
STREAMS = {"visible": 0, "hidden": 1, "regrade": 2}
"""Which random numbers draw the cases: those of the learner's check, of the hidden test, of the second judging."""


@dataclass(frozen=True)
class Case:
    """One call of the answer.

    ``inputs`` maps parameter names to values. ``axes`` names the axes of each output (one tuple an output) for
    messages like ``value[token 1, element 3]``. ``label`` says which property the case tests, without numbers that
    give a hidden case away. ``part`` is the part of the exercise that earns partial credit. ``data`` is for the
    exercise's own comparison and never leaves the judge. ``magnitude`` (one an output) replaces ``|expected|`` in the
    relative tolerance: the sum of the absolute terms, where large terms may cancel.
    """

    inputs: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    axes: tuple[tuple[str, ...], ...] = ()
    part: str | None = None
    magnitude: tuple[Any, ...] = ()
    data: Any = None


@dataclass(frozen=True)
class PassRule:
    """When an assignment is passed: at least ``points``, and none of the ``veto`` errors (found by the person who
    marks the prose; a comment that begins with "veto" in the gradebook)."""

    points: int
    veto: tuple[str, ...] = ()


@dataclass(frozen=True)
class Misconception:
    """A mistake with a name. It is recognised when the answer's output equals what the mistake would produce.

    ``model`` is a wrong implementation with the reference's signature, run in the judge on the failing case; ``when``
    is the alternative for mistakes that no model can imitate: ``when(case, expected, got) -> bool``.
    ``says`` is the sentence shown as the reason; ``hints`` are three steps, each about fifty words at most.
    """

    key: str
    says: str
    hints: tuple[str, str, str]
    model: Callable[..., Any] | None = None
    when: Callable[[Case, Any, Any], bool] | None = None

    def __post_init__(self) -> None:
        self._check_evidence()
        _three_hints(self.hints, f"misconception {self.key!r}")

    def _check_evidence(self) -> None:
        if (self.model is None) == (self.when is None):
            raise ValueError(f"misconception {self.key!r} needs exactly one of model and when")


@dataclass(frozen=True, kw_only=True, eq=False)
class Exercise:
    """One exercise. Three kinds, told apart by what is given:

    - a function: ``cases`` and ``reference``;
    - a value (a number, a list, a dict of predictions): ``reference`` alone, called without arguments; a dict earns
      its points key by key;
    - prose, marked by a person: ``rubric`` alone.

    ``lines`` is the honest size of the blank. ``points`` are the nbgrader points of the hidden cell. ``parts`` maps a
    part's name to its points when cases carry ``part`` (they must add up to ``points``). ``forbids`` names modules
    (``mlacademy.fp8``) or single attributes (``torch.softmax``) that an answer must not lean on. ``writes`` names
    parameters that are output buffers: the answer fills them in place and its return value is not looked at. ``show``
    maps the name of an output or parameter to a function that prints one of its numbers (``hex`` for codes).
    ``seconds`` is the longest that one call may take. ``samples`` are an instructor's answers to a prose question.
    """

    id: str
    title: str
    entry: str
    points: int
    lines: int = 1
    parameters: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ("value",)
    cases: Callable[[np.random.Generator, bool], Iterable[Case]] | None = None
    reference: Callable[..., Any] | None = None
    compare: Compare | tuple[Compare, ...] | Callable[[Case, Any, Any], Difference | None] = EXACT
    misconceptions: tuple[Misconception, ...] = ()
    hints: tuple[str, str, str] = ("", "", "")
    forbids: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    parts: Mapping[str, int] | None = None
    show: Mapping[str, Callable[[Any], str]] = field(default_factory=dict)
    seconds: float = 5.0
    rubric: str | None = None

    def __post_init__(self) -> None:
        if not EXERCISE_ID.fullmatch(self.id):
            raise ValueError(f"id must look like '02.3', got {self.id!r}")
        if not self.entry.isidentifier():
            raise ValueError(f"exercise {self.id}: entry must be a Python name, got {self.entry!r}")
        if self.points < 1 or self.lines < 1:
            raise ValueError(f"exercise {self.id}: points and lines must be at least 1")
        if (self.rubric is None) == (self.reference is None):
            raise ValueError(f"exercise {self.id}: give a reference, or a rubric for prose, but not both")
        if self.cases is not None and self.reference is None:
            raise ValueError(f"exercise {self.id}: cases need a reference")
        if self.kind != "prose":
            _three_hints(self.hints, f"exercise {self.id}")
        if isinstance(self.compare, tuple) and len(self.compare) != len(self.outputs):
            raise ValueError(f"exercise {self.id}: {len(self.outputs)} outputs but {len(self.compare)} comparisons")
        if self.parts is not None and sum(self.parts.values()) != self.points:
            raise ValueError(f"exercise {self.id}: parts add up to {sum(self.parts.values())}, not to {self.points}")
        keys = [m.key for m in self.misconceptions]
        if len(set(keys)) != len(keys):
            raise ValueError(f"exercise {self.id}: two misconceptions share a key: {keys}")

    @property
    def chapter(self) -> str:
        """The chapter's two digits."""
        return self.id.partition(".")[0]

    @property
    def cell(self) -> str:
        """The stem of its cells' names: ``02-3`` for exercise 02.3."""
        return self.id.replace(".", "-")

    @property
    def kind(self) -> str:
        """``"function"``, ``"value"`` or ``"prose"``; ``"cuda"`` for a kernel (``mlacademy.grading.cuda_exercise``)."""
        if self.rubric is not None:
            return "prose"
        return "value" if self.cases is None else "function"

    def make_cases(self, stream: str) -> list[Case]:
        """The cases of one stream (see ``STREAMS``); the same list at every call.

        Raises ``ValueError`` when a case's inputs or part do not fit the exercise: that is the author's mistake.
        """
        if self.cases is None:
            return [Case(label=self.title)]
        rng = np.random.default_rng([zlib.crc32(self.id.encode()), STREAMS[stream]])
        cases = list(self.cases(rng, stream != "visible"))
        if not cases:
            raise ValueError(f"exercise {self.id} has no {stream} cases")
        for case in cases:
            unknown = set(case.inputs) - set(self.parameters)
            if unknown or tuple(case.inputs) != self.parameters[: len(case.inputs)]:
                raise ValueError(
                    f"exercise {self.id}, case {case.label!r}: inputs {tuple(case.inputs)} must be the parameters "
                    f"{self.parameters} in their order (trailing ones may be left out)"
                )
            if self.parts is not None and case.part not in self.parts:
                raise ValueError(
                    f"exercise {self.id}, case {case.label!r}: part {case.part!r} is not in {[*self.parts]}"
                )
            if self.parts is None and case.part is not None:
                raise ValueError(f"exercise {self.id}, case {case.label!r}: has a part, but the exercise has no parts")
        return cases


def _three_hints(hints: tuple[str, ...], owner: str) -> None:
    if len(hints) != 3 or not all(isinstance(hint, str) and hint.strip() for hint in hints):
        raise ValueError(f"{owner} needs three hints, from a nudge to nearly the answer; got {hints!r}")
