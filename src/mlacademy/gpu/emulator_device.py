"""The emulator as a device: it runs the PTX itself, on host memory."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, SupportsIndex

from mlacademy.gpu import map_record, uninitialized
from mlacademy.gpu.device import Device, LaunchReport
from mlacademy.gpu.kernel import Kernel
from mlacademy.gpu.nvrtc import check_arch
from mlacademy.gpu.packing import pack
from mlacademy.gpu.plan import LaunchPlan
from mlacademy.gpu.ranges import Range, Registry, merged
from mlacademy.gpu.tensor_map import TensorMap
from mlacademy.gpu.tensors import TensorView, view_of
from mlacademy.gpu.trace import LIMIT, Trace


class EmulatorDevice(Device):
    """Runs kernels on the CPU, bounds-checked, on NumPy arrays and torch CPU tensors.

    ``options`` are the emulator's (``seed``, ``order``, ``check``, ``step_budget``, …) and hold for every launch; a
    launch may give its own. ``check`` names what is looked for besides bounds and the registers of wgmma: ``init``,
    ``race``, ``proxy``, ``barrier``, or ``all`` of them, which is what holds where nothing is said. With
    ``trace=True`` the report, or the error of a failed launch, has a `Trace` as ``trace``; ``trace_limit`` bounds its
    events, ``cost_model`` gives other constants. Raises ``RuntimeError`` where the emulator is not built.
    """

    kind = "emulator"
    name = "emulator"

    def __init__(self, kind: str = "emulator", *, arch: str = "sm_90a", **options: Any) -> None:
        check_arch(arch)
        self.arch = arch
        self.options = {"check": ("all",), **options}
        _check_options(self.options)
        self._core = native_module()
        self._registry = Registry()
        self._waiting: list[tuple[LaunchReport, tuple[Any, ...], Sequence[Any]]] | None = None

    @classmethod
    def obstacle(cls) -> str | None:
        try:
            native_module()
        except RuntimeError as error:
            return str(error)
        return None

    def launch(self, kernel: Kernel, plan: LaunchPlan, args: Sequence[Any], **options: Any) -> LaunchReport:
        self.check(kernel, plan)
        memory = _Memory()
        params = pack(kernel, args, memory)
        _check_options(options)
        chosen = {**self.options, **options}
        tracing = {name: chosen.pop(name) for name in ("trace", "trace_limit", "cost_model") if name in chosen}
        log = self._core.EventLog(tracing.get("trace_limit", LIMIT)) if tracing.get("trace") else None
        resources = kernel.module.resources.get(kernel.name)

        def trace(error: BaseException | None = None) -> Trace | None:
            if log is None:
                return None
            registers = resources.registers if resources else 0
            return Trace(log, plan, cost_model=tracing.get("cost_model"), error=error, registers=registers)

        tracked = not {"all", "init"}.isdisjoint(chosen["check"])
        buffers = []
        for one in merged([*memory.ranges, *self._registry.alive()]):
            written = uninitialized.written_map(one.start, one.stop, checked=tracked)
            buffers.append((one.start, one.stop - one.start, one.name, one.writable, one.shape, one.itemsize, written))
        program = _program(kernel.module.ptx)
        call = (program, kernel.name, plan.grid, plan.block, plan.cluster, plan.smem_bytes, params, buffers, chosen)
        report = LaunchReport("emulator", kernel.demangled, plan, {})
        if self._waiting is not None:
            # The caller may drop a tensor before the launch runs: it is kept until then, as a stream would.
            self._waiting.append((report, (*call, plan.programmatic), (*args, *self._registry.owners())))
            return report
        try:
            statistics = self._core.launch(*call, log)
        except self._core.RunError as error:
            error.trace = trace(error)
            raise
        finally:
            uninitialized.launch_ended()
        return _finished(report, statistics, trace())

    @contextmanager
    def sequence(self) -> Iterator[None]:
        if self._waiting is not None:
            raise RuntimeError("a sequence of launches is open already; sequences do not nest")
        waiting: list[tuple[LaunchReport, tuple[Any, ...], Sequence[Any]]] = []
        self._waiting = waiting
        try:
            yield
        finally:
            self._waiting = None
        try:
            counted = self._core.launch_sequence([call for _, call, _ in waiting])
        finally:
            uninitialized.launch_ended()
        for (report, _, _), statistics in zip(waiting, counted, strict=True):
            _finished(report, statistics, None)

    def address(self, tensor: Any, name: str = "") -> int:
        view = _on_host(view_of(tensor), name or "tensor")
        self._registry.add(view, name or "tensor")
        return view.address

    def encode(self, tensor_map: TensorMap, name: str = "") -> bytes:
        address = self.address(tensor_map.tensor, name or tensor_map.name or "tensor of a map")
        return map_record.encode(tensor_map, address)

    def synchronize(self) -> None:
        """Nothing is left to wait for: a launch returns when the kernel has ended."""


def _check_options(options: Mapping[str, Any]) -> None:
    """Raise ``TypeError`` for options of the wrong type; what their values may be, the emulator says itself."""
    names = options.get("check", ())
    if isinstance(names, str) or not isinstance(names, Collection) or not all(isinstance(one, str) for one in names):
        raise TypeError(f"check must be several names, such as ('init', 'race'), got {names!r}")
    for name in ("seed", "step_budget", "threads"):
        value = options.get(name, 0)
        if isinstance(value, bool) or not isinstance(value, SupportsIndex) or value.__index__() < 0:
            raise TypeError(f"{name} must be a whole number, at least 0, got {value!r}")


def _finished(report: LaunchReport, statistics: dict[str, Any], trace: Trace | None) -> LaunchReport:
    """The report with what the emulator counted; what the kernel printed is printed."""
    output = statistics.pop("output", "")
    sys.stdout.write(output)
    for name, value in (("statistics", statistics), ("output", output), ("trace", trace)):
        object.__setattr__(report, name, value)
    return report


@functools.lru_cache(maxsize=64)
def _program(ptx: str) -> Any:
    """The loaded program of PTX text; kept, because a notebook compiles the same kernel again and again."""
    return native_module().Program(ptx)


class _Memory:
    """Collects the memory that one launch's arguments point to."""

    def __init__(self) -> None:
        self.ranges: list[Range] = []

    def locate(self, view: TensorView, name: str) -> int:
        self.ranges.append(Range.of(_on_host(view, name), name))
        return view.address

    def encode(self, tensor_map: TensorMap, name: str) -> bytes:
        return map_record.encode(tensor_map, self.locate(view_of(tensor_map.tensor, name), name))


def _on_host(view: TensorView, name: str) -> TensorView:
    if view.on_gpu:
        raise ValueError(f"{name} must be in host memory for the emulator, it is on a GPU: use .cpu()")
    return view


def native_module() -> ModuleType:
    """``mlacademy._emulator``; ``RuntimeError`` where it is not built."""
    try:
        return importlib.import_module("mlacademy._emulator")
    except ImportError as error:
        reason = "is not built" if isinstance(error, ModuleNotFoundError) else f"does not load ({error})"
        raise RuntimeError(f"the emulator's native module {reason}: make setup") from error
