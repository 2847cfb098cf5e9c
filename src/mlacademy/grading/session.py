"""What a notebook calls: ``check``, ``hint``, ``hidden``. Each takes an exercise's name and finds the rest."""

from __future__ import annotations

import html
import sys
import warnings
from typing import Any

from mlacademy.grading import board, failures, judges
from mlacademy.grading.exercise import Exercise
from mlacademy.grading.judge import judge
from mlacademy.grading.verdict import Verdict

_ABSENT = object()


def namespace() -> dict[str, Any]:
    """The names of the running notebook; outside of one, those of the main module."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell.user_ns if shell is not None else vars(sys.modules["__main__"])


def check(name: str, answer: Any = _ABSENT, *, device: str = "emulator") -> Verdict:
    """Judge the answer to exercise ``name`` on the visible cases; without ``answer``, the notebook's own is taken.

    The answer runs in a separate process: nothing it does can stop the notebook. A kernel runs on the emulator, or
    with ``device="cuda"`` on this machine's GPU. The outcome is kept in the progress file. Raises ``ValueError`` when
    there is no such exercise, or for a device that it does not run on.
    """
    exercise = judges.exercise(name)
    devices = ("emulator", "cuda") if exercise.kind == "cuda" else ("emulator",)
    if device not in devices:
        raise ValueError(f"device must be {' or '.join(map(repr, devices))} for exercise {name}, got {device!r}")
    answer = _find(exercise) if answer is _ABSENT else answer
    verdict = _missing(exercise) if answer is _ABSENT else judge(exercise, answer, device=device)
    board.record(verdict)
    return verdict


def hint(name: str, level: int | None = None) -> Hint:
    """The next hint for exercise ``name``: three steps, chosen by what the last check found.

    ``level`` (1 to 3) asks for a certain step. The first step is shown with the verdict already.
    """
    exercise = judges.exercise(name)
    if level is not None and level not in (1, 2, 3):
        raise ValueError(f"level must be 1, 2 or 3; got {level!r}")
    if exercise.kind == "prose":
        return Hint(exercise.id, 0, "This answer is read by a person; the question names what it has to cover.")
    kind = board.last_kind(name)
    known = next((m for m in exercise.misconceptions if m.key == kind), None)
    steps = known.hints if known else exercise.hints
    level = board.next_hint(name, kind if known else "", level)
    return Hint(exercise.id, level, steps[level - 1], known.says if known else "")


class Hint:
    """One hint, shown as text, Markdown or HTML like a verdict."""

    def __init__(self, exercise: str, level: int, text: str, about: str = "") -> None:
        self.exercise, self.level, self.text, self.about = exercise, level, text, about

    def __str__(self) -> str:
        step = f", hint {self.level} of 3" if self.level else ""
        more = f'\nThe next step: hint("{self.exercise}")' if 0 < self.level < 3 else ""
        about = f"\nAbout: {self.about}" if self.about else ""
        return f"{self.exercise}{step}{about}\n{self.text}{more}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head, *rest = str(self).split("\n")
        body = "".join(f'<div style="margin-top:0.3em">{html.escape(line)}</div>' for line in rest)
        style = "border-left:4px solid var(--jp-info-color1,#0277bd);padding:0.4em 0.8em;max-width:60em;"
        style += "color:var(--jp-content-font-color1,inherit)"
        return f'<div role="status" style="{style}"><b>{html.escape(head)}</b>{body}</div>'


def hidden(name: str) -> int:
    """The hidden test of exercise ``name``: run the visible and the hidden cases on the notebook's answer.

    Prints one sentence and returns the points earned, which nbgrader reads as the cell's score. It shows neither
    inputs nor expected values, and never raises because of an answer.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nbgrader takes anything on standard error for a failure
        exercise = judges.exercise(name)
        answer = _find(exercise)
        verdict = _missing(exercise) if answer is _ABSENT else judge(exercise, answer, streams=("visible", "hidden"))
    board.record(verdict, handed_in=True)
    print(sentence(verdict))
    return verdict.points


def sentence(verdict: Verdict) -> str:
    """The one sentence that a hidden test may print."""
    score = f"Exercise {verdict.exercise}: {verdict.points} of {verdict.max_points} points"
    if verdict:
        return f"{score}."
    if verdict.state != "failed":
        return f"{score}: {verdict.summary}"
    about = f" for {verdict.property_}" if verdict.property_ else ""
    if verdict.reason and verdict.comparable:
        return f"{score}: not right{about}. {verdict.reason}"
    return f"{score}: not right{about}." if verdict.comparable else f"{score}: {verdict.summary}"


def _find(exercise: Exercise) -> Any:
    return namespace().get(exercise.entry, _ABSENT)


def _missing(exercise: Exercise) -> Verdict:
    failure = failures.missing(exercise)
    return Verdict(
        exercise=exercise.id,
        title=exercise.title,
        state="unanswered",
        summary=failure.sentence,
        kind=failure.kind,
        max_points=exercise.points,
    )
