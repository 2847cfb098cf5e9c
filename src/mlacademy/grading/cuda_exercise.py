"""Exercises whose answer is CUDA: a kernel's source, compiled and run on the emulator.

    copy_tile = r'''
    #include "bulk.cuh"
    extern "C" __global__ void copy_tile(const float* source, float* target, uint32_t bytes) { … }
    '''
    check("07.1", copy_tile)

A judge declares a ``CudaExercise``: a ``launch`` that turns a case's inputs into a launch plan and arguments, the
``runs`` (in which order asynchronous operations complete), and what is known of wrong answers: by the ``Sign`` that
the emulator's report bears, or by the values that a wrong kernel leaves behind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlacademy.gpu.plan import LaunchPlan
from mlacademy.grading.exercise import Exercise, Misconception

BLANK = "YOUR CODE HERE"
STEP_BUDGET = 2_000_000


@dataclass(frozen=True)
class Run:
    """One way to run a launch: ``order`` says when asynchronous operations complete (``eager``, ``lazy`` or
    ``seeded``), ``seed`` in which order warps take turns."""

    order: str
    seed: int | None = None

    def __str__(self) -> str:
        when = {
            "eager": "copies complete at once",
            "lazy": "copies complete as late as they can",
            "seeded": "copies complete and warps run in random order",
        }[self.order]
        return when if self.seed is None else f"{when} (seed {self.seed})"

    @property
    def options(self) -> dict[str, Any]:
        """The emulator's options."""
        return {"order": self.order, **({} if self.seed is None else {"seed": self.seed})}


RUNS = (Run("eager"), Run("lazy"), Run("seeded", 1), Run("seeded", 2), Run("seeded", 3))


@dataclass(frozen=True)
class Out:
    """An output buffer: filled with 0xFF bytes (NaN as a float) before the launch, its surroundings watched."""

    shape: tuple[int, ...]
    dtype: Any = np.float32


@dataclass(frozen=True)
class Box:
    """A tensor map over an input or an output; the fields are those of `mlacademy.gpu.TensorMap.of`."""

    tensor: np.ndarray[Any, Any] | Out
    box: tuple[int, ...]
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Launch:
    """One launch: arrays are inputs (read-only), ``Out`` and ``Box`` as above, numbers scalars. The outputs of the
    exercise are the ``Out`` in the order of ``args``."""

    plan: LaunchPlan
    args: tuple[Any, ...]


@dataclass(frozen=True)
class Report:
    """What the emulator reported, in the judge's hands.

    ``rule`` is the emulator's stable key (``deadlock``, ``race``, ``bounds`` …), ``object`` the buffer or barrier,
    ``line`` the learner's line number and ``code`` its text, ``waits`` a deadlock's table, ``answer`` the learner's
    whole text without comments.
    """

    rule: str
    text: str
    object: str = ""
    line: int = 0
    code: str = ""
    waits: Sequence[Mapping[str, Any]] = ()
    answer: str = ""


@dataclass(frozen=True)
class Sign:
    """How a report looks that a known mistake brings about: every condition given must hold.

    ``rule`` is one key or several; ``object``, ``text`` and ``code`` are regular expressions, to be found in the
    report's object, in its text, and in the learner's line that it points at; ``answer`` in the learner's whole text
    without comments, for what a report alone cannot tell, such as a wrong count; ``lacks`` must not be found there.
    ``waits`` is asked about a deadlock's table, each row a mapping as in `mlacademy.gpu.Deadlock.waits`, and ``when``
    about the whole report.
    """

    rule: str | tuple[str, ...]
    object: str = ""
    text: str = ""
    code: str = ""
    answer: str = ""
    lacks: str = ""
    waits: Callable[[Sequence[Mapping[str, Any]]], bool] | None = None
    when: Callable[[Report], bool] | None = None

    def fits(self, report: Report) -> bool:
        """Whether ``report`` bears this sign."""
        rules = (self.rule,) if isinstance(self.rule, str) else self.rule
        parts = (
            (self.object, report.object),
            (self.text, report.text),
            (self.code, report.code),
            (self.answer, report.answer),
        )
        return (
            report.rule in rules
            and all(re.search(pattern, part) for pattern, part in parts if pattern)
            and not (self.lacks and re.search(self.lacks, report.answer))
            and (self.waits is None or self.waits(report.waits))
            and (self.when is None or self.when(report))
        )


def stuck(
    barrier: str, *, pending: bool | None = None, tx: str = "", parity: int | None = None, completed: int | None = None
) -> Sign:
    """The sign of a deadlock in which somebody waits for ``barrier`` (a regular expression for its name).

    ``pending``: whether arrivals are missing; ``tx``: whether bytes are still ``owed``, came ``unannounced`` or are
    ``even``; ``parity`` is waited for; ``completed`` is how many phases are over. What is not given does not matter.
    """

    def fits(row: Mapping[str, Any]) -> bool:
        state = "owed" if row["tx"] > 0 else "unannounced" if row["tx"] < 0 else "even"
        return (
            row["kind"] == "mbarrier"
            and re.search(barrier, row["object"]) is not None
            and pending in (None, row["pending"] > 0)
            and tx in ("", state)
            and parity in (None, row["parity"])
            and completed in (None, row["completed"])
        )

    return Sign("deadlock", waits=lambda rows: any(fits(row) for row in rows))


@dataclass(frozen=True)
class KernelMistake(Misconception):
    """A mistake in a kernel. It is recognised by any of its ``signs`` in the emulator's report, or, like every
    misconception, by what ``model`` or ``when`` say of the values."""

    signs: tuple[Sign, ...] = ()

    def _check_evidence(self) -> None:
        if not self.signs:
            super()._check_evidence()
        elif self.model is not None and self.when is not None:
            raise ValueError(f"misconception {self.key!r} has both model and when: give at most one beside its signs")


@dataclass(frozen=True, kw_only=True, eq=False)
class CudaExercise(Exercise):
    """An exercise whose answer is the text of a CUDA source with a kernel called ``kernel`` (by default ``entry``).

    ``launch`` gets the inputs of a case by name; ``reference`` gets the same and returns the expected outputs. Each
    case runs once under each of ``runs``, with at most ``step_budget`` warp instructions and all the emulator's checks.
    ``arch`` is the architecture compiled for. ``uses`` maps regular expressions that the kernel's PTX must contain to
    the sentence for a kernel that gives the right values without: the exercise is about that instruction. The compiler
    has dropped dead code by then.
    """

    launch: Callable[..., Launch]
    kernel: str = ""
    runs: tuple[Run, ...] = RUNS
    step_budget: int = STEP_BUDGET
    arch: str = "sm_90a"
    uses: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cases is None or self.parts is not None or self.writes or self.forbids:
            raise ValueError(f"exercise {self.id}: a CUDA exercise has cases, and neither parts, writes nor forbids")
        if not self.runs:
            raise ValueError(f"exercise {self.id}: runs must name at least one run")

    @property
    def kind(self) -> str:
        return "cuda"

    @property
    def kernel_name(self) -> str:
        """What the kernel is called in the source."""
        return self.kernel or self.entry
