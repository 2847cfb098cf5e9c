"""The side of a CUDA exercise that runs apart: compile an answer, launch it, describe in plain data what came of it.

Both steps are callables that the worker's runner calls like an answer. The text of the answer is all they get of the
learner's: nothing of it is Python, so what comes back is the compiler's and the emulator's word.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from mlacademy import gpu
from mlacademy.gpu.device import runs_on
from mlacademy.gpu.disk_cache import DiskCache, Entry
from mlacademy.grading.cuda_exercise import Box, Launch, Out, Run

_PAD = 4096  # bytes of canary on both sides of every buffer
_CANARY = 0xA5
_ALIGN = 1024
_POISON = 0xFF
_TEXT = 6000  # characters of a report that travel


class _NoCache(DiskCache):
    """Nothing is found and nothing kept: the runner may not write files."""

    def get(self, key: str) -> Entry | None:
        return None

    def put(self, key: str, entry: Entry) -> None:
        """Keep nothing."""


@dataclasses.dataclass(frozen=True)
class CompileAnswer:
    """``CompileAnswer(name, arch)(text)``: the PTX, or the compiler's messages, or why there is no compiler."""

    name: str
    arch: str

    def __call__(self, text: str) -> dict[str, Any]:
        os.chdir("/")  # quoted headers are the course's, not those beside the notebook
        try:
            module = gpu.compile(text, arch=self.arch, name=self.name, cache=_NoCache())
        except gpu.CompileError as error:
            return {"errors": [dataclasses.asdict(one) for one in error.diagnostics], "log": error.log[:_TEXT]}
        except gpu.CompilerMissing as error:
            return {"missing": str(error)}
        return {"ptx": module.ptx}


@dataclasses.dataclass(frozen=True)
class RunAnswer:
    """``RunAnswer(…)(launch)``: one result for each of ``runs``, in order; the first runaway ends them.

    A result holds ``outputs`` and ``overrun`` (numbers of the buffers around which bytes changed), or ``report``, or
    ``refused`` where the launch does not fit the kernel.
    """

    ptx: str
    source: str
    name: str
    kernel: str
    arch: str
    runs: tuple[Run, ...]
    step_budget: int
    device: str = "emulator"

    def __call__(self, launch: Launch) -> list[dict[str, Any]]:
        device = gpu.Device("emulator", arch=self.arch) if self.device == "emulator" else gpu.Device(self.device)
        if not runs_on(self.arch, device.arch):
            raise RuntimeError(f"the exercise is for {self.arch}, this GPU is {device.arch}")
        module = gpu.Module(self.ptx, name=self.name, source=self.source)
        results = []
        for run in self.runs:
            results.append(self._once(device, module, launch, run))
            if results[-1].get("report", {}).get("rule") == "runaway" or "refused" in results[-1]:
                break
        return results

    def _once(self, device: gpu.Device, module: gpu.Module, launch: Launch, run: Run) -> dict[str, Any]:
        memory = _Memory()
        args = [memory.argument(value) for value in launch.args]
        options = {**run.options, "step_budget": self.step_budget, "threads": 1} if device.kind == "emulator" else {}
        try:
            device.launch(module[self.kernel], launch.plan, args, **options)
            device.synchronize()
        except gpu.PtxError as error:
            return {"report": described(error)}
        except (KeyError, ValueError, TypeError) as error:
            return {"refused": str(error.args[0] if error.args else error)[:_TEXT]}
        except RuntimeError as error:
            return {"report": described(error)}
        return {"outputs": memory.outputs, "overrun": memory.overrun()}


def described(error: Exception) -> dict[str, Any]:
    """An error of a launch as plain data: its stable key, its text, where it points, a deadlock's table."""
    rule = getattr(error, "rule", "") or type(error).__name__.casefold()
    return {
        "rule": str(rule),
        "text": str(error)[:_TEXT],
        "object": str(getattr(error, "object_name", "")),
        "source_file": str(getattr(error, "source_file", "")),
        "source_line": int(getattr(error, "source_line", 0)),
        "waits": [dict(row) for row in getattr(error, "waits", ())],
    }


class _Memory:
    """The buffers of one launch, each in the middle of an allocation of its own whose edges are watched."""

    def __init__(self) -> None:
        self.outputs: list[np.ndarray[Any, Any]] = []
        self._edges: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []

    def argument(self, value: Any) -> Any:
        """A launch's argument with its arrays in place."""
        if isinstance(value, Box):
            return gpu.TensorMap.of(self._tensor(value.tensor), value.box, **value.fields)
        return self._tensor(value) if isinstance(value, (Out, np.ndarray)) else value

    def _tensor(self, value: Out | np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        dtype = np.dtype(value.dtype)
        array = self._place(value.shape, dtype)
        if isinstance(value, Out):
            array.reshape(-1).view(np.uint8)[:] = _POISON
            self.outputs.append(array)
        else:
            array[...] = value
            array.flags.writeable = False
        return array

    def _place(self, shape: Sequence[int], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        space = np.full(size + 2 * _PAD + _ALIGN, _CANARY, np.uint8)
        start = _PAD + -(space.ctypes.data + _PAD) % _ALIGN
        self._edges.append((space[:start], space[start + size :]))
        return space[start : start + size].view(dtype).reshape(shape)

    def overrun(self) -> list[int]:
        """The numbers of the buffers whose surroundings have changed."""
        return [i for i, edges in enumerate(self._edges) if any(bool((edge != _CANARY).any()) for edge in edges)]
