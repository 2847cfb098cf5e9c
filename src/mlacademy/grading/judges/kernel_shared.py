"""What the judges of kernels share: how poison and early reads look."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlacademy.grading.cuda_exercise import Report
from mlacademy.grading.exercise import Case

EARLY = ("race", "uninitialized")
"""What the emulator reports where shared memory is read before the copy into it is known to be over."""


def never_written(report: Report) -> bool:
    """Whether a read found bytes that no store and no copy writes at any time; an early read is reported otherwise."""
    return "nothing has been written" in report.text and "Later" not in report.text


def poisoned(case: Case, expected: Any, got: Any) -> bool:
    """Whether an output holds NaN where numbers were expected: the emulator's mark for bytes not yet there."""
    values = got if isinstance(got, (list, tuple)) else [got]
    return any(bool(np.isnan(np.asarray(value, dtype=np.float64)).any()) for value in values)
