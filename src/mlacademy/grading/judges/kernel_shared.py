"""What the judges of kernels share: how poison and early reads look."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlacademy.grading.exercise import Case

EARLY = ("race", "uninitialized")
"""What the emulator reports where shared memory is read before the copy into it is known to be over."""


def poisoned(case: Case, expected: Any, got: Any) -> bool:
    """Whether an output holds NaN where numbers were expected: the emulator's mark for bytes not yet there."""
    values = got if isinstance(got, (list, tuple)) else [got]
    return any(bool(np.isnan(np.asarray(value, dtype=np.float64)).any()) for value in values)
