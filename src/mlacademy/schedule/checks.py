"""Argument checks of the scheduler: one number, or one row of numbers, named in the error."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]

INT32_MAX = 2**31 - 1


def whole(name: str, value: Any, minimum: int) -> int:
    """``value`` as an int. Raises ``TypeError`` for anything but a whole number, ``ValueError`` below ``minimum``."""
    if isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, not the truth value {value}")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {type(value).__name__} {value!r}") from None
    if number < minimum:
        raise ValueError(f"{name} must be at least {minimum}: it is {number}")
    return number


def whole_row(name: str, values: Any, *, size: int | None = None) -> Int64Array:
    """``values`` as a fresh int64 array ``[b]`` of numbers from 0 to 2^31 - 1, the range of the kernel's int32.

    Takes a list, a NumPy array or a CPU torch tensor. ``size``: the number of requests, where it is known.
    """
    row = np.asarray(values)
    if row.ndim != 1:
        raise ValueError(f"{name} must be one number per request, shape [b]: its shape is {list(row.shape)}")
    if row.size == 0:
        raise ValueError(f"{name} must hold at least one request: it is empty")
    if row.dtype.kind not in "iu":
        raise TypeError(f"{name} must hold integers: its dtype is {row.dtype}")
    if size is not None and row.size != size:
        raise ValueError(f"{name} must hold one number per request: b is {size}, {name} has {row.size}")
    low, high = int(row.min()), int(row.max())
    if low < 0:
        raise ValueError(f"{name} must not be negative: {name}[{int(row.argmin())}] is {low}")
    if high > INT32_MAX:
        raise ValueError(f"{name} must fit in int32 (at most {INT32_MAX}): {name}[{int(row.argmax())}] is {high}")
    return row.astype(np.int64)
