"""What an answer may not use up or touch: memory, processes, the network, files."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

from mlacademy.grading import Exercise, judge

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # as the names of a notebook are

linux = pytest.mark.skipif(sys.platform != "linux", reason="this limit exists on Linux only")


def hoards(x: Any, factor: int) -> Any:
    return bytearray(16 << 30)


def hoards_an_array(x: Any, factor: int) -> Any:
    return np.ones(1 << 40)


@linux
@pytest.mark.parametrize("answer", [hoards, hoards_an_array])
def test_memory_is_limited(exercise: Exercise, answer: Any) -> None:
    assert judge(exercise, answer).summary == "scale asked for more memory than the 2 GiB an answer may use."


@linux
@pytest.mark.parametrize(
    "answer",
    [
        lambda x, factor: os.fork(),
        lambda x, factor: subprocess.run(["ls"]),
        lambda x, factor: socket.create_connection(("127.0.0.1", 80)),
        lambda x, factor: Path("/tmp/mlacademy-answer").write_text("x"),
        lambda x, factor: os.remove(__file__),
    ],
    ids=["fork", "program", "network", "write", "delete"],
)
def test_processes_network_and_writing_are_refused(exercise: Exercise, answer: Any) -> None:
    assert "raised PermissionError" in judge(exercise, answer).summary


@linux
def test_threads_are_allowed(exercise: Exercise) -> None:
    def threaded(x: Any, factor: int) -> Any:
        results: list[Any] = []
        thread = threading.Thread(target=lambda: results.append(x * np.float32(factor)))
        thread.start()
        thread.join()
        return results[0]

    assert judge(exercise, threaded)
