"""Run an answer's kernel on this machine's GPU, in a process of its own: a kernel that hangs is stopped with it.

python -m mlacademy.grading.cuda_gpu < job > results
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from mlacademy.grading.cuda_exercise import Launch
from mlacademy.grading.cuda_run import RunAnswer

START_SECONDS = 30.0


class GpuMissing(RuntimeError):
    """This machine cannot run the kernel on a GPU; the message says why."""


class GpuHangs(RuntimeError):
    """The kernel had not ended in time."""


def run_on_gpu(answer: RunAnswer, launches: Sequence[Launch], seconds: float) -> list[list[dict[str, Any]]]:
    """The results of each launch, as `RunAnswer` gives them.

    Raises ``GpuMissing`` where there is no GPU or it refuses, ``GpuHangs`` where the kernel does not end.
    """
    job = pickle.dumps((answer, list(launches)))
    command = [sys.executable, "-P", "-m", "mlacademy.grading.cuda_gpu"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        done = subprocess.run(
            command, input=job, capture_output=True, timeout=START_SECONDS + seconds, env=environment, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise GpuHangs(f"the kernel had not ended after {seconds:g} s") from error
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise GpuMissing(said[-1] if said else "the process that drives the GPU ended without a word")
    results: list[list[dict[str, Any]]] = pickle.loads(done.stdout)
    return results


def main() -> int:
    """Read a job from standard input, write its results to standard output; what the kernel prints goes elsewhere."""
    results = os.dup(1)
    os.dup2(2, 1)
    answer, launches = pickle.loads(sys.stdin.buffer.read())
    try:
        data = pickle.dumps([answer(launch) for launch in launches])
    except (RuntimeError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    with os.fdopen(results, "wb") as sink:
        sink.write(data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
