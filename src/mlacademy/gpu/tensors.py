"""Where a tensor lies in memory: one description for NumPy arrays and torch tensors, without importing torch."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class TensorView:
    """The memory of one tensor.

    Attributes:
        address: of element ``[0, …, 0]``; a host address, or a device address when ``on_gpu``.
        shape: elements an axis, outermost first.
        strides: bytes between neighbours of an axis.
        dtype: NumPy's name of the element type (``float32``, ``bfloat16``, ``float8_e4m3fn``).
        itemsize: bytes an element.
        writable: False for a read-only array.
        on_gpu: the memory belongs to a GPU.
        owner: the tensor itself.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    itemsize: int
    writable: bool
    on_gpu: bool
    owner: Any = field(repr=False, compare=False)

    @property
    def span(self) -> tuple[int, int]:
        """The first byte of the tensor and the one after its last; equal for a tensor without elements."""
        if 0 in self.shape:
            return self.address, self.address
        reach = [(size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True)]
        low = sum(step for step in reach if step < 0)
        high = sum(step for step in reach if step > 0)
        return self.address + low, self.address + high + self.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes from the first to the last element, gaps included."""
        start, stop = self.span
        return stop - start


def find_view(value: object, name: str = "tensor") -> TensorView | None:
    """Describe the memory of ``value``, or return None where it is no tensor (a NumPy scalar is none).

    Raises ``TypeError`` naming ``name`` for a tensor whose memory a kernel cannot be pointed at.
    """
    if isinstance(value, TensorView):
        return value
    if value is None or isinstance(value, (int, float, bytes)):
        return None
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(value, torch.Tensor):
        return _torch_view(value, name)
    if numpy is not None and isinstance(value, numpy.generic):
        return None
    interface = _interface(value)
    return None if interface is None else _interface_view(value, *interface)


def view_of(value: object, name: str = "tensor") -> TensorView:
    """Describe the memory of ``value``, a NumPy array, a torch tensor, or anything with one of their interfaces.

    Raises ``TypeError`` naming ``name`` for anything else.
    """
    view = find_view(value, name)
    if view is None:
        raise TypeError(f"{name} must be a NumPy array or a torch tensor, got {type(value).__name__}")
    return view


def _interface(value: object) -> tuple[dict[str, Any], bool] | None:
    for attribute, on_gpu in (("__array_interface__", False), ("__cuda_array_interface__", True)):
        found = getattr(value, attribute, None)
        if isinstance(found, dict):
            return found, on_gpu
    return None


def _interface_view(value: Any, interface: dict[str, Any], on_gpu: bool) -> TensorView:
    dtype = value.dtype
    shape = tuple(interface["shape"])
    strides = interface.get("strides")
    if strides is None:
        strides = _dense_strides(shape, dtype.itemsize)
    address, read_only = interface["data"]
    return TensorView(address, shape, tuple(strides), dtype.name, dtype.itemsize, not read_only, on_gpu, owner=value)


def _torch_view(value: Any, name: str) -> TensorView:
    if value.layout is not sys.modules["torch"].strided:
        raise TypeError(f"{name} must be a dense torch tensor, got layout {value.layout}")
    if value.device.type not in ("cpu", "cuda"):
        raise TypeError(f"{name} must be in the memory of the CPU or of a CUDA GPU, got device {value.device}")
    itemsize = value.element_size()
    return TensorView(
        address=value.data_ptr(),
        shape=tuple(value.shape),
        strides=tuple(step * itemsize for step in value.stride()),
        dtype=str(value.dtype).removeprefix("torch."),
        itemsize=itemsize,
        writable=True,
        on_gpu=value.device.type == "cuda",
        owner=value,
    )


def _dense_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    strides, step = [], itemsize
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))
