"""The few calls of the CUDA driver that the measurements on a GPU need, through ctypes: no package, no toolkit.

gpu = Gpu()
kernel = gpu.load(ptx_text)["name"]
y = gpu.empty(nbytes)
gpu.launch(kernel, grid=16, block=128, args=(gpu.upload(x), y, np.uint32(3)))
out = gpu.download(y, np.uint32, count)
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
_ERROR_LOG, _ERROR_LOG_BYTES = 5, 6  # CU_JIT_ERROR_LOG_BUFFER and its size


@dataclass(frozen=True)
class Memory:
    """Device memory; freed with the context."""

    address: int
    nbytes: int


class Gpu:
    """Device 0 with a context of its own."""

    def __init__(self) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._call("cuInit", 0)
        device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)
        name = ctypes.create_string_buffer(100)
        self._call("cuDeviceGetName", name, 100, device)
        self.name = name.value.decode()
        self.capability = tuple(self._attribute(number, device) for number in (_MAJOR, _MINOR))

    def _attribute(self, number: int, device: ctypes.c_int) -> int:
        value = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(value), number, device)
        return value.value

    def _call(self, name: str, *args: Any) -> None:
        status = getattr(self._cuda, name)(*args)
        if status != 0:
            text = ctypes.c_char_p()
            self._cuda.cuGetErrorString(status, ctypes.byref(text))
            raise RuntimeError(f"{name}: {text.value.decode() if text.value else status}")

    def load(self, ptx: str, names: Sequence[str]) -> dict[str, ctypes.c_void_p]:
        """Compile PTX and return its kernels by name. The compiler's words are in the error."""
        log = ctypes.create_string_buffer(8192)
        options = (ctypes.c_int * 2)(_ERROR_LOG, _ERROR_LOG_BYTES)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), 8192)
        module = ctypes.c_void_p()
        try:
            self._call("cuModuleLoadDataEx", ctypes.byref(module), ptx.encode() + b"\0", 2, options, values)
        except RuntimeError as error:
            raise RuntimeError(f"{error}\n{log.value.decode()}") from None
        kernels = {name: ctypes.c_void_p() for name in names}
        for name, kernel in kernels.items():
            self._call("cuModuleGetFunction", ctypes.byref(kernel), module, name.encode())
        return kernels

    def empty(self, nbytes: int) -> Memory:
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(nbytes))
        return Memory(address.value, nbytes)

    def free(self, *blocks: Memory) -> None:
        for block in blocks:
            self._call("cuMemFree_v2", ctypes.c_uint64(block.address))

    def upload(self, array: np.ndarray) -> Memory:
        array = np.ascontiguousarray(array)
        memory = self.empty(array.nbytes)
        data = ctypes.c_void_p(array.ctypes.data)
        self._call("cuMemcpyHtoD_v2", ctypes.c_uint64(memory.address), data, ctypes.c_size_t(array.nbytes))
        return memory

    def pinned(self, nbytes: int) -> np.ndarray:
        """Host memory that the device copies to at full speed: uint8 [nbytes]."""
        address = ctypes.c_void_p()
        self._call("cuMemAllocHost_v2", ctypes.byref(address), ctypes.c_size_t(nbytes))
        return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address.value or 0))

    def download_into(self, memory: Memory, target: np.ndarray) -> None:
        data, size = ctypes.c_void_p(target.ctypes.data), ctypes.c_size_t(target.nbytes)
        self._call("cuMemcpyDtoH_v2", data, ctypes.c_uint64(memory.address), size)

    def download(self, memory: Memory, dtype: Any, count: int) -> np.ndarray:
        out = np.empty(count, dtype)
        self.download_into(memory, out)
        return out

    def launch(self, kernel: ctypes.c_void_p, *, grid: int, block: int, args: Sequence[Memory | np.generic]) -> None:
        """Launch and wait. `args`: device memory, or NumPy scalars of the parameter's width."""
        values = [np.uint64(arg.address) if isinstance(arg, Memory) else arg for arg in args]
        boxes = [np.array([value]) for value in values]
        pointers = (ctypes.c_void_p * len(boxes))(*(box.ctypes.data for box in boxes))
        self._call("cuLaunchKernel", kernel, grid, 1, 1, block, 1, 1, 0, None, pointers, None)
        self._call("cuCtxSynchronize")
