"""What the judges of kernels share: how poison and early reads look."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlacademy.grading.cuda_exercise import KernelMistake, Report, Sign
from mlacademy.grading.exercise import Case

EARLY = ("race", "uninitialized")
"""What the emulator reports where shared memory is read before the copy into it is known to be over."""

INIT_NOT_FENCED = KernelMistake(
    key="init-not-fenced",
    says="The barrier was initialised by an ordinary store, and nothing lets the copy engine see that store.",
    hints=(
        "Who besides the threads looks at the barrier?",
        "The copy engine reaches shared memory through another proxy. A fence carries the initialisation over.",
        "fence_mbarrier_init() right after mbarrier_init, in the same thread.",
    ),
    signs=(Sign("proxy", object="landed"),),
)
"""For exercises whose barrier is called `landed`."""


def never_written(report: Report) -> bool:
    """Whether a read found bytes that no store and no copy writes at any time; an early read is reported otherwise."""
    return "nothing has been written" in report.text and "Later" not in report.text


def poisoned(case: Case, expected: Any, got: Any) -> bool:
    """Whether an output holds NaN where numbers were expected: the emulator's mark for bytes not yet there."""
    values = got if isinstance(got, (list, tuple)) else [got]
    return any(bool(np.isnan(np.asarray(value, dtype=np.float64)).any()) for value in values)
