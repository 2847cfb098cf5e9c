"""A launch's arguments as the bytes of a kernel's parameter buffer, checked one by one."""

from __future__ import annotations

import operator
import struct
from collections.abc import Sequence
from typing import Any, Protocol

from mlacademy.gpu.kernel import Kernel, Param
from mlacademy.gpu.signature import FLOAT_TYPES, INTEGER_RANGES
from mlacademy.gpu.tensor_map import TensorMap
from mlacademy.gpu.tensors import TensorView, find_view

_FLOATS = {"f32": "<f", "f64": "<d", "f16": "<e"}


class Addresses(Protocol):
    """What a device knows that arguments need: where a tensor is for the kernel, and its form of a tensor map."""

    def locate(self, view: TensorView, name: str) -> int:
        """The address of the tensor's first element as the kernel sees it."""

    def encode(self, tensor_map: TensorMap, name: str) -> bytes:
        """The 128 bytes of the map."""


def described(kernel: Kernel, args: Sequence[Any]) -> list[Any]:
    """The arguments with each tensor replaced by the description of its memory.

    Raises ``TypeError`` for a wrong number of arguments, or a tensor whose memory no kernel can be pointed at.
    """
    if len(args) != len(kernel.params):
        listed = ", ".join(str(param) for param in kernel.params)
        raise TypeError(f"{kernel.base_name} takes {len(kernel.params)} arguments ({listed}), got {len(args)}")
    return [find_view(value, param.name) or value for param, value in zip(kernel.params, args, strict=True)]


def pack(kernel: Kernel, args: Sequence[Any], device: Addresses) -> bytes:
    """The parameter buffer for ``args``.

    Raises ``TypeError`` for a wrong number of arguments or a kind that does not fit a parameter, ``ValueError`` for a
    value or size that does not; the message names the argument.
    """
    buffer = bytearray(kernel.param_bytes)
    for param, value in zip(kernel.params, described(kernel, args), strict=True):
        data = _bytes_of(param, value, device)
        assert len(data) == param.size
        buffer[param.offset : param.offset + param.size] = data
    return bytes(buffer)


def _bytes_of(param: Param, value: Any, device: Addresses) -> bytes:
    if isinstance(value, TensorMap):
        if not param.blob or param.size != 128:
            raise TypeError(f"{param.name} is a {_kind(param)}, not a tensor map of 128 bytes; got {value!r}")
        if param.align < 64:
            raise TypeError(f"{param.name} must be aligned to 64 bytes to hold a tensor map, it is to {param.align}")
        return device.encode(value, value.name or param.name)
    if param.blob:
        return _blob(param, value)
    if isinstance(value, TensorView):
        return _pointer(param, value, device)
    if param.type in _FLOATS:
        return _float(param, value)
    return _integer(param, value)


def _kind(param: Param) -> str:
    if param.blob:
        return f"blob of {param.size} bytes"
    if param.pointer:
        return f"pointer to {param.c_type}" if param.c_type else "pointer"
    return param.c_type or f".{param.type}"


def _blob(param: Param, value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(value)
    elif hasattr(value, "tobytes") and getattr(value, "shape", None) == ():  # a NumPy scalar, a structured one too
        data = value.tobytes()
    else:
        wanted = "a TensorMap or bytes" if param.size == 128 else "bytes"
        given = f"a {value.dtype} tensor" if isinstance(value, TensorView) else type(value).__name__
        raise TypeError(f"{param.name} is a {_kind(param)}: give {wanted}, got {given}")
    if len(data) != param.size:
        raise ValueError(f"{param.name} is a {_kind(param)}, got {len(data)} bytes")
    return data


def _pointer(param: Param, view: TensorView, device: Addresses) -> bytes:
    if param.size != 8 or param.type in _FLOATS or param.pointer is False:
        hint = " Take its value with .item()." if view.shape == () else ""
        raise TypeError(f"{param.name} is a {_kind(param)}, got a {view.dtype} tensor.{hint}")
    wanted = FLOAT_TYPES.get(param.c_type) if param.pointer else None
    if wanted and view.dtype != wanted:
        raise TypeError(f"{param.name} is a {_kind(param)}, got a tensor of {view.dtype}; {wanted} is what it reads")
    bounds = INTEGER_RANGES.get(param.c_type) if param.pointer else None
    if bounds:
        width = (bounds[1] - bounds[0]).bit_length() // 8
        if width not in (1, view.itemsize):
            raise TypeError(
                f"{param.name} is a {_kind(param)}, got a tensor of {view.dtype}: "
                f"its elements are {view.itemsize} bytes wide, the kernel's {width}"
            )
    return device.locate(view, param.name).to_bytes(8, "little")


def _float(param: Param, value: Any) -> bytes:
    if isinstance(value, (bool, str)) or not hasattr(value, "__float__"):
        raise TypeError(f"{param.name} is a {_kind(param)}, got {type(value).__name__}")
    try:
        return struct.pack(_FLOATS[param.type], float(value))
    except OverflowError:
        raise ValueError(f"{param.name} is a {_kind(param)} and cannot hold {value!r}") from None


def _integer(param: Param, value: Any) -> bytes:
    if value is None and param.size == 8 and param.pointer is not False:
        return bytes(8)
    if not hasattr(value, "__index__"):
        given = type(value).__name__
        hint = " Give a tensor, an address, or None." if param.pointer else ""
        raise TypeError(f"{param.name} is a {_kind(param)}, got {given} {value!r}.{hint}")
    number, bits = operator.index(value), 8 * param.size
    low, high = -(1 << (bits - 1)), (1 << bits) - 1
    if not param.pointer and param.c_type in INTEGER_RANGES:
        low, high = INTEGER_RANGES[param.c_type]
    elif param.type.startswith("s"):
        high >>= 1
    if param.c_type == "bool" and not param.pointer:
        low, high = 0, 1
    if not low <= number <= high:
        raise ValueError(f"{param.name} is a {_kind(param)} and holds {low:,} to {high:,}, got {number:,}")
    return (number & ((1 << bits) - 1)).to_bytes(param.size, "little")
