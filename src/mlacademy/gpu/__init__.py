"""Kernels: compile CUDA C++, and run it on a GPU or on the emulator.

>>> module = compile("bulk_copy.cu", arch="sm_90a")             # doctest: +SKIP
>>> device = Device("emulator", arch="sm_90a")                  # doctest: +SKIP
>>> device.launch(module["bulk_copy"], LaunchPlan(grid=4, block=64), (source, target, source.nbytes))  # doctest: +SKIP

Importing this loads neither torch nor a compiler, and needs no driver.
"""

from typing import Any

from mlacademy.gpu.compiler import compile
from mlacademy.gpu.cost_model import CostModel
from mlacademy.gpu.device import Device, LaunchReport
from mlacademy.gpu.disk_cache import DiskCache
from mlacademy.gpu.errors import CompileError, CompilerMissing, DeviceError, Diagnostic
from mlacademy.gpu.kernel import Kernel, Param
from mlacademy.gpu.module import Module
from mlacademy.gpu.plan import LaunchPlan
from mlacademy.gpu.resources import Resources
from mlacademy.gpu.tensor_map import Im2colMap, TensorMap
from mlacademy.gpu.uninitialized import empty

__all__ = [
    "CompileError",
    "CompilerMissing",
    "CostModel",
    "Device",
    "DeviceError",
    "Diagnostic",
    "DiskCache",
    "Im2colMap",
    "Kernel",
    "LaunchPlan",
    "LaunchReport",
    "Module",
    "Param",
    "Resources",
    "TensorMap",
    "compile",
    "empty",
]

_EMULATOR_ERRORS = frozenset(
    {
        "Deadlock",
        "HazardError",
        "KernelTrap",
        "ProxyError",
        "PtxError",
        "PtxInvalid",
        "PtxSyntaxError",
        "PtxUnsupported",
        "Race",
        "RunError",
        "Runaway",
        "TraceFull",
        "Uninitialized",
    }
)


def __getattr__(name: str) -> Any:
    """The emulator's errors, such as ``gpu.Deadlock``, are found in its native module when they are first named."""
    if name in _EMULATOR_ERRORS:
        from mlacademy.gpu.emulator_device import native_module

        return getattr(native_module(), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
