"""Right and wrong answers, kept beside the solutions so that every judge is proven on them.

    @right("02.1", "by arithmetic")
    def decode_byte(code): ...

    @wrong("02.1", "bias 8", says="bias")
    def decode_byte_bias_8(code): ...

For a value exercise the function takes no arguments and returns the value, for a CUDA exercise the kernel's text.
``solutions/<assignment>/answers.py`` is instructor's material and stays off the student branch.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import cloudpickle

from mlacademy.grading.exercise import Exercise

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Answer:
    """One recorded answer. ``says`` is None for a right one, else text that the verdict must contain."""

    exercise: str
    label: str
    function: Callable[..., Any]
    says: str | None

    def value(self, exercise: Exercise) -> Any:
        """What a notebook would hand to ``check``."""
        return self.function() if exercise.kind in ("value", "cuda") else self.function


_collected: list[Answer] = []


def right(exercise: str, label: str) -> Callable[[Function], Function]:
    """Record a right answer."""
    return _record(exercise, label, None)


def wrong(exercise: str, label: str, *, says: str) -> Callable[[Function], Function]:
    """Record a wrong answer and text that its verdict must contain."""
    if not says.strip():
        raise ValueError(f"wrong answer {label!r} to {exercise}: says must not be empty")
    return _record(exercise, label, says)


def _record(exercise: str, label: str, says: str | None) -> Callable[[Function], Function]:
    def keep(function: Function) -> Function:
        _collected.append(Answer(exercise, label, function, says))
        return function

    return keep


def load(path: str | Path) -> list[Answer]:
    """The answers recorded in a file, in order. They travel to the worker by value, as a notebook's do."""
    path = Path(path).resolve()
    name = "answers_" + "".join(c if c.isalnum() else "_" for c in path.parent.name)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    cloudpickle.register_pickle_by_value(module)
    _collected.clear()
    spec.loader.exec_module(module)
    return list(_collected)
