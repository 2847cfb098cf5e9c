"""The exercises' judges, one module a chapter (``ch02`` holds 02.1, 02.2, …), found by name when first needed.

A chapter's module puts its exercises at its top level: each in a variable, or all in one tuple or list.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterable

from mlacademy.grading.exercise import EXERCISE_ID, Exercise, PassRule


def chapters() -> tuple[str, ...]:
    """The chapters that have exercises: ``("01", "02", …)``."""
    names = (module.name for module in pkgutil.iter_modules(__path__))
    return tuple(sorted(name.removeprefix("ch") for name in names if name.startswith("ch")))


@functools.cache
def chapter(number: str) -> tuple[Exercise, ...]:
    """The exercises of a chapter, in order. Raises ``ValueError`` for a chapter without exercises."""
    if number not in chapters():
        raise ValueError(f"chapter {number!r} has no exercises; the chapters are {', '.join(chapters())}")
    module = importlib.import_module(f"{__name__}.ch{number}")
    found: dict[str, Exercise] = {}
    for value in vars(module).values():
        items: Iterable[object] = value if isinstance(value, (tuple, list)) else (value,)
        for item in items:
            if isinstance(item, Exercise) and found.setdefault(item.id, item) is not item:
                raise ValueError(f"exercise {item.id} is declared twice in ch{number}")
    if any(exercise.chapter != number for exercise in found.values()):
        raise ValueError(f"ch{number} declares exercises of other chapters: {', '.join(found)}")
    return tuple(sorted(found.values(), key=lambda exercise: int(exercise.id.partition(".")[2])))


def exercise(name: str) -> Exercise:
    """The exercise called ``name``. Raises ``ValueError`` with the existing names when there is none."""
    if not isinstance(name, str) or not EXERCISE_ID.fullmatch(name):
        raise ValueError(f"an exercise's name is text like '02.3'; got {name!r}")
    number = name.partition(".")[0]
    for one in chapter(number):
        if one.id == name:
            return one
    raise ValueError(f"there is no exercise {name}; chapter {number} has {', '.join(e.id for e in chapter(number))}")


@functools.cache
def rule(number: str) -> PassRule | None:
    """When the assignment of a chapter counts as passed; None where every point counts alike."""
    chapter(number)
    module = importlib.import_module(f"{__name__}.ch{number}")
    return next((value for value in vars(module).values() if isinstance(value, PassRule)), None)


def all_exercises() -> tuple[Exercise, ...]:
    """Every exercise of the course, in order."""
    return tuple(exercise for number in chapters() for exercise in chapter(number))
