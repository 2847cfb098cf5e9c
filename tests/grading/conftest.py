"""One small exercise to try the engine on, and progress kept out of the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from mlacademy.grading import Case, Close, Exercise, Misconception, board

HINTS = ("first step", "second step", "third step")


@pytest.fixture(autouse=True)
def progress_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLACADEMY_PROGRESS", "off")
    monkeypatch.setattr(board, "_unsaved", {})


def scale_cases(rng: np.random.Generator, hidden: bool) -> Iterator[Case]:
    for size in (3, 5) if not hidden else (0, 1, 9):
        x = rng.normal(size=size).astype(np.float32)
        yield Case({"x": x, "factor": 3}, label="no rows" if size == 0 else "a few rows", axes=(("row",),))


def scale(x: Any, factor: int) -> Any:
    return x * np.float32(factor)


@pytest.fixture
def make() -> Callable[..., Exercise]:
    """Build the exercise ``y = scale(x, factor)``, with changes."""

    def build(**changes: Any) -> Exercise:
        fields: dict[str, Any] = {
            "id": "99.1",
            "title": "Scale a row",
            "entry": "scale",
            "points": 2,
            "lines": 3,
            "parameters": ("x", "factor"),
            "outputs": ("y",),
            "cases": scale_cases,
            "reference": scale,
            "compare": Close(rtol=2**-22, why="two roundings"),
            "misconceptions": (
                Misconception(
                    "added", "You added the factor.", ("add 1", "add 2", "add 3"), lambda x, factor: x + factor
                ),
            ),
            "hints": HINTS,
            "forbids": ("mlacademy.fp8",),
        }
        return Exercise(**{**fields, **changes})

    return build


@pytest.fixture
def exercise(make: Callable[..., Exercise]) -> Exercise:
    return make()
