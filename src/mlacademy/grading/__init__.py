"""Check answers, give hints, keep progress, grade a class.

In a notebook: ``check("02.1", decode_byte)``, ``hint("02.1")``, ``progress()``; the hidden test cell is
``hidden("02.1")``. A judge is an ``Exercise`` in ``mlacademy.grading.judges.chNN``. Importing this package in a
running notebook starts the worker process in the background.

For instructors and the command line: ``check_notebook(path)``, ``generate()``, ``grade(submissions, out)`` and
``release(branch)``; they are imported when first used.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from mlacademy.grading.board import progress, progress_file
from mlacademy.grading.compare import Close, Difference, Exact
from mlacademy.grading.cuda_exercise import Box, CudaExercise, KernelMistake, Launch, Out, Report, Run, Sign, stuck
from mlacademy.grading.exercise import Case, Exercise, Misconception, PassRule
from mlacademy.grading.judge import judge
from mlacademy.grading.session import check, hidden, hint
from mlacademy.grading.verdict import Verdict

if TYPE_CHECKING:
    from mlacademy.grading.assignments import generate
    from mlacademy.grading.branch import release
    from mlacademy.grading.gradebook import grade
    from mlacademy.grading.submissions import check_notebook

__all__ = [
    "Box",
    "Case",
    "Close",
    "CudaExercise",
    "Difference",
    "Exact",
    "Exercise",
    "KernelMistake",
    "Launch",
    "Misconception",
    "Out",
    "PassRule",
    "Report",
    "Run",
    "Sign",
    "Verdict",
    "check",
    "check_notebook",
    "generate",
    "grade",
    "hidden",
    "hint",
    "judge",
    "progress",
    "progress_file",
    "release",
    "stuck",
]

_LATER = {"check_notebook": "submissions", "generate": "assignments", "grade": "gradebook", "release": "branch"}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if "IPython" in sys.modules and sys.modules["IPython"].get_ipython() is not None:
    from mlacademy.grading.judge import preloads
    from mlacademy.grading.process import warm_up

    warm_up(preloads)
