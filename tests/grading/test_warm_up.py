"""The worker is warm before the first check: it has imported whatever some exercise needs."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from mlacademy.grading import judges, process
from mlacademy.grading.judge import preloads


class Recorder:
    def __init__(self, *, broken: bool = False) -> None:
        self.started: list[list[str]] = []
        self.broken = broken

    def start(self, preload: Sequence[str] = ()) -> None:
        if self.broken:
            raise OSError("no more processes")
        self.started.append(list(preload))


def _warmed(monkeypatch: pytest.MonkeyPatch, worker: Recorder) -> Recorder:
    monkeypatch.setattr(process, "shared", lambda: worker)
    process.warm_up(lambda: ["torch", "mlacademy.fp8"])
    for thread in threading.enumerate():
        if thread.name == "mlacademy-worker-start":
            thread.join(10)
    return worker


def test_the_worker_is_up_before_it_imports_what_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _warmed(monkeypatch, Recorder()).started == [[], ["torch", "mlacademy.fp8"]]


def test_a_worker_that_cannot_start_leaves_the_notebook_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _warmed(monkeypatch, Recorder(broken=True)).started == []


def test_every_module_that_an_exercise_refuses_is_imported_ahead() -> None:
    ahead = set(preloads())
    assert "torch" in ahead
    for exercise in judges.all_exercises():
        assert {name for name in exercise.forbids if name.startswith(("torch", "mlacademy"))} <= ahead
