"""What the judges of chapters 05 and 06 share: tolerance, forbidden names, and a mistake that all of them can meet."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlacademy.grading.compare import Close
from mlacademy.grading.exercise import Case, Misconception

Array = NDArray[np.float64]

LOG2E = float(np.log2(np.e))
FLOOR = -1e30
LIBRARY = ("mlacademy.softmax", "mlacademy.attention")
SOFTMAX = (*LIBRARY, "torch.softmax", "torch.nn.functional.softmax", "torch.logsumexp")
CLOSE = Close(
    atol=1e-9,
    rtol=1e-9,
    why="float64 keeps about 16 digits; exponents of up to 3,000 leave 12 of them in a weight",
)


def parts(result: Any) -> list[Array]:
    """The outputs of a result as float64 arrays. Raises TypeError or ValueError for what holds no numbers."""
    return [np.asarray(part, dtype=np.float64) for part in (result if isinstance(result, (tuple, list)) else [result])]


def holds_nan(got: Any) -> bool:
    """Whether any number of a result is NaN (False for what is no number)."""
    try:
        return any(bool(np.isnan(part).any()) for part in parts(got))
    except (TypeError, ValueError):
        return False


def agree(expected: Any, got: Any, rtol: float = 1e-9) -> bool:
    """Whether two outputs have one shape and, up to ``rtol`` of the largest number, equal values (infinities too).

    A list is no array, whatever it holds."""
    if isinstance(expected, np.ndarray) and isinstance(got, (list, tuple)):
        return False
    want, have = np.asarray(expected, dtype=np.float64), np.asarray(got, dtype=np.float64)
    finite = np.isfinite(want)
    if want.shape != have.shape or not np.array_equal(np.where(finite, 0.0, want), np.where(finite, 0.0, have)):
        return False
    size = np.abs(want[finite]).max(initial=0.0)
    return bool((np.abs(have[finite] - want[finite]) <= rtol * max(size, 1.0)).all())


def _lists(case: Case, expected: Any, got: Any) -> bool:
    return any(
        isinstance(want, np.ndarray) and isinstance(have, list) for want, have in zip(expected, got, strict=True)
    )


def _single_precision(case: Case, expected: Any, got: Any) -> bool:
    return all(agree(want, have, rtol=1e-5) for want, have in zip(expected, got, strict=True))


LISTS = Misconception(
    "list",
    "An output is a Python list where the statement asks for an array.",
    (
        "Which of your outputs is an array, and which a list?",
        "A list of numbers, or of arrays of one shape, becomes an array by np.array.",
        "return np.array(one), np.array(other)",
    ),
    when=_lists,
)
FLOAT32 = Misconception(
    "float32",
    "Your numbers are right to about 6 digits: somewhere they pass through float32. The inputs are float64, and so "
    "must be everything made from them.",
    (
        "Which dtype has each array that you create or convert?",
        "torch.tensor([1.0]) and torch.zeros(3) are float32 unless told otherwise; torch.from_numpy keeps float64.",
        "Add dtype=torch.float64, or leave out .astype(np.float32) and .float().",
    ),
    when=_single_precision,
)
