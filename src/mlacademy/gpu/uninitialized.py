"""`empty`: a tensor whose elements nobody has written yet, and of which the emulator knows that."""

from __future__ import annotations

import importlib
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np

POISON = 0xFF  # NaN in every float format, -1 in every signed one


@dataclass
class _Tracked:
    """An array of `empty`: which bytes a kernel has written (one byte each), and what it held after the last launch."""

    array: weakref.ref[np.ndarray[Any, Any]]
    start: int
    written: np.ndarray[Any, Any]
    seen: np.ndarray[Any, Any]

    @property
    def stop(self) -> int:
        return self.start + self.written.size

    def look(self) -> None:
        """Count what Python has written since the last look."""
        array = self.array()
        if array is None:
            return
        now = array.reshape(-1).view(np.uint8)
        changed = now != self.seen
        self.written[changed] = 1
        self.seen[changed] = now[changed]


_tracked: dict[int, _Tracked] = {}  # by address; threads make and drop arrays while others look through a copy


def empty(shape: int | tuple[int, ...], dtype: Any = "float32") -> np.ndarray[Any, Any]:
    """An array for kernels to write: on the emulator, reading an element before it was written is an error.

    ``dtype`` is NumPy's, or the name of one of ``ml_dtypes``. Every byte is 0xFF: NaN, or -1. What a kernel has written
    stays written for later launches; so does what Python assigns, except for the value that is there already. On a GPU
    it is an ordinary array.

    >>> empty((2, 3), "int32").tolist()
    [[-1, -1, -1], [-1, -1, -1]]
    """
    try:
        kind = np.dtype(dtype)
    except TypeError:
        kind = np.dtype(getattr(importlib.import_module("ml_dtypes"), str(dtype)))
    array = np.empty(shape, kind)
    flat = array.reshape(-1).view(np.uint8)
    flat[:] = POISON
    start = int(array.__array_interface__["data"][0])
    _tracked[start] = _Tracked(weakref.ref(array), start, np.zeros(flat.size, np.uint8), flat.copy())
    weakref.finalize(array, _tracked.pop, start, None)
    return array


def written_map(start: int, stop: int, *, checked: bool) -> int:
    """Where the bytes ``start`` to ``stop`` of memory have their map of written bytes; 0 where they are no `empty`'s.

    Unless the launch is ``checked``, nobody will keep the map, so everything counts as written from now on.
    """
    for one in _tracked.copy().values():
        if one.start <= start and stop <= one.stop:
            if not checked:
                one.written[:] = 1
            one.look()
            return int(one.written.__array_interface__["data"][0]) + start - one.start if checked else 0
    return 0


def launch_ended() -> None:
    """What the arrays hold now was written by kernels, which keep their own account."""
    for one in _tracked.copy().values():
        array = one.array()
        if array is not None:
            np.copyto(one.seen, array.reshape(-1).view(np.uint8))
