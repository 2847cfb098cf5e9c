"""Check answers, give hints, keep progress, grade a class.

In a notebook: ``check("02.1", decode_byte)``, ``hint("02.1")``, ``progress()``; the hidden test cell is
``hidden("02.1")``. A judge is an ``Exercise`` in ``mlacademy.grading.judges.chNN``. Importing this package in a
running notebook starts the worker process in the background.
"""

from __future__ import annotations

import sys

from mlacademy.grading.board import progress, progress_file
from mlacademy.grading.compare import Close, Difference, Exact
from mlacademy.grading.exercise import Case, Exercise, Misconception, PassRule
from mlacademy.grading.judge import judge
from mlacademy.grading.session import check, hidden, hint
from mlacademy.grading.verdict import Verdict

__all__ = [
    "Case",
    "Close",
    "Difference",
    "Exact",
    "Exercise",
    "Misconception",
    "PassRule",
    "Verdict",
    "check",
    "hidden",
    "hint",
    "judge",
    "progress",
    "progress_file",
]

if "IPython" in sys.modules and sys.modules["IPython"].get_ipython() is not None:
    from mlacademy.grading.process import warm_up

    warm_up()
