"""The switch between the native loops and their NumPy twins.

The two give the same bits; the native ones are faster. ``MLACADEMY_NATIVE=0`` in the environment selects the twins,
and so does an installation without a compiled module. The variable is read at every call, so a test can set it.
"""

from __future__ import annotations

import os
from types import ModuleType

try:
    from mlacademy import _core
except ImportError:  # pure-Python installation
    _loaded: ModuleType | None = None
else:
    _loaded = _core


def core() -> ModuleType | None:
    """The compiled module ``mlacademy._core``, or None when it is missing or switched off."""
    return None if os.environ.get("MLACADEMY_NATIVE") == "0" else _loaded
