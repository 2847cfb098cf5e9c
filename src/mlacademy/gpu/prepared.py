"""`PreparedLaunch`: a kernel that is launched again and again by one plan, with nothing left to look up.

`Device.launch` checks and packs every time, which is fine in a lesson. An operator in a model's inner loop prepares
once, then writes its parameters into a buffer and calls the driver.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any, NoReturn

from mlacademy.gpu.driver import driver, sentence
from mlacademy.gpu.errors import DeviceError
from mlacademy.gpu.plan import LaunchPlan

CONFIG_BYTES = 56
"""Size of the driver's ``CUlaunchConfig``."""

_STREAM_AT = 32  # of hStream in it, after seven numbers and a gap


class PreparedLaunch:
    """``prepared(stream)`` launches the kernel with what its parameter buffer holds then.

    The driver copies the buffer before the call returns. Nobody else may write the buffer or launch meanwhile.
    """

    def __init__(self, function: Any, name: str, plan: LaunchPlan, buffer: int) -> None:
        """``function``: the driver's handle; ``buffer``: the address of the kernel's only parameter."""
        self.name = name
        self._config = launch_config(plan)
        self._pointer = ctypes.c_void_p(buffer)
        address = self._config.getPtr()
        self._stream = ctypes.c_void_p.from_address(address + _STREAM_AT)
        handles = (address, int(function), ctypes.addressof(self._pointer), None)
        self._arguments = tuple(ctypes.c_void_p(handle) for handle in handles)
        self._launch = _library().cuLaunchKernelEx

    @property
    def record(self) -> tuple[bytes, int]:
        """The driver's launch config, whose stream is for the caller to set, and the function's handle."""
        config, function, _, _ = self._arguments
        assert config.value is not None
        assert function.value is not None
        return ctypes.string_at(config.value, CONFIG_BYTES), function.value

    def refuse(self, status: int) -> NoReturn:
        """Raise what a status of the driver means."""
        raise DeviceError(f"launching {self.name} failed: {sentence(driver(), driver().CUresult(status))}")

    def __call__(self, stream: int) -> None:
        """Put the kernel into ``stream``, a stream's address. Raises ``DeviceError``."""
        self._stream.value = stream
        status = self._launch(*self._arguments)
        if status:
            self.refuse(status)


def launch_address() -> int:
    """The address of the driver's ``cuLaunchKernelEx``."""
    return ctypes.cast(_library().cuLaunchKernelEx, ctypes.c_void_p).value or 0


def launch_config(plan: LaunchPlan) -> Any:
    """The driver's ``CUlaunchConfig`` of a plan; its stream is the default one."""
    config = _types().CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = plan.grid
    config.blockDimX, config.blockDimY, config.blockDimZ = plan.block
    config.sharedMemBytes = plan.smem_bytes
    config.attrs = launch_attributes(plan)
    config.numAttrs = len(config.attrs)
    return config


@functools.lru_cache(maxsize=256)
def launch_attributes(plan: LaunchPlan) -> list[Any]:
    """A launch's cluster and its early start, as the driver takes them."""
    cuda, attributes = _types(), []
    if plan.ctas_per_cluster > 1:
        cluster = cuda.CUlaunchAttribute()
        cluster.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        size = cluster.value.clusterDim
        size.x, size.y, size.z = plan.cluster
        attributes.append(cluster)
    if plan.programmatic:
        early = cuda.CUlaunchAttribute()
        early.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        early.value.programmaticStreamSerializationAllowed = 1
        attributes.append(early)
    return attributes


def _types() -> Any:
    """The bindings, which need no driver for their structs."""
    from cuda.bindings import driver as found

    return found


@functools.cache
def _library() -> ctypes.CDLL:
    """The driver's library, which the bindings have loaded already."""
    driver()
    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
