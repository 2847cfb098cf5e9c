"""The CUDA driver through NVIDIA's Python bindings: loaded at first use, its errors turned into sentences."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from mlacademy.gpu.errors import DeviceError
from mlacademy.gpu.nvrtc import INSTALL

_MEANINGS = {
    "CUDA_ERROR_INVALID_VALUE": "a value is out of range for this GPU",
    "CUDA_ERROR_OUT_OF_MEMORY": "the GPU has too little free memory",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "the code was compiled for another GPU generation",
    "CUDA_ERROR_INVALID_PTX": "the driver does not understand the PTX",
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": "the driver is older than the PTX: update it, or compile with an older NVRTC",
    "CUDA_ERROR_ILLEGAL_ADDRESS": "a kernel touched memory that belongs to nobody; run it on the emulator to see where",
    "CUDA_ERROR_MISALIGNED_ADDRESS": "a kernel used an address that is not a multiple of the access's size",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": "an instruction got operands it does not take; the emulator says which",
    "CUDA_ERROR_LAUNCH_FAILED": "a kernel broke off; run it on the emulator to see where",
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": "a block needs more registers or shared memory than an SM has",
    "CUDA_ERROR_INVALID_CLUSTER_SIZE": "clusters of this size do not fit on this GPU",
    "CUDA_ERROR_NO_DEVICE": "there is no NVIDIA GPU",
    "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED": "this cannot be part of a CUDA graph",
    "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED": "an earlier call has spoilt the capture of this CUDA graph",
}


@functools.cache
def driver() -> ModuleType:
    """``cuda.bindings.driver``, initialised.

    Raises ``DeviceError`` where the bindings, the driver or a GPU are missing.
    """
    try:
        from cuda.bindings import driver as found
    except ImportError as error:
        raise DeviceError(f"NVIDIA's Python bindings are not installed ({error}): {INSTALL}") from error
    try:
        (status,) = found.cuInit(0)
    except RuntimeError as error:  # the bindings open libcuda at the first call
        raise DeviceError("there is no NVIDIA driver on this machine (libcuda is missing)") from error
    if int(status) != 0:
        raise DeviceError(f"the NVIDIA driver does not start: {sentence(found, status)}")
    module: ModuleType = found
    return module


def ask(function: str, *arguments: Any, doing: str) -> Any:
    """Call a driver function; return its value, or raise ``DeviceError`` saying what failed while ``doing``."""
    cuda = driver()
    status, *values = getattr(cuda, function)(*arguments)
    if int(status) != 0:
        raise DeviceError(f"{doing} failed: {sentence(cuda, status)}")
    return values[0] if len(values) == 1 else tuple(values)


def load_ptx(ptx: str, name: str) -> Any:
    """The loaded module of PTX text, assembled by the driver; ``DeviceError`` quotes what its assembler says."""
    cuda, log = driver(), bytearray(8192)
    wanted = [cuda.CUjit_option.CU_JIT_ERROR_LOG_BUFFER, cuda.CUjit_option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
    status, module = cuda.cuModuleLoadDataEx(ptx.encode() + b"\0", len(wanted), wanted, [log, len(log)])
    if int(status) != 0:
        said = bytes(log).split(b"\0")[0].decode(errors="replace").strip()
        raise DeviceError(f"loading {name} failed: {sentence(cuda, status)}{': ' + said if said else ''}")
    return module


def sentence(cuda: ModuleType, status: Any) -> str:
    """What a status of the driver means."""
    meaning = _MEANINGS.get(status.name)
    if meaning is None:
        answered, text = cuda.cuGetErrorString(status)
        meaning = text.decode() if int(answered) == 0 and text else "the driver gives no reason"
    return f"{meaning} ({status.name})"
