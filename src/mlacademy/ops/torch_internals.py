"""Torch's own short cuts: undocumented functions that its generated code calls, each with a documented stand-in.

A short cut takes a fraction of the time of its stand-in, which serves where another version of torch lacks it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

_guards: Any = getattr(getattr(torch._C, "_dynamo", None), "guards", None)


def empty_on_gpu(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> Tensor:
    """A tensor on the current GPU whose elements nobody has written."""
    return torch.empty_strided(shape, strides, dtype=dtype, device="cuda")


def _stream_of(index: int) -> int:
    return int(torch.cuda.current_stream(index).cuda_stream)


def _allocate(size: int, stream: int) -> int:
    return int(torch.cuda.caching_allocator_alloc(size, stream=stream))


empty: Callable[[Sequence[int], Sequence[int], torch.dtype], Tensor]
empty = getattr(_guards, "_empty_strided_cuda", empty_on_gpu)

current_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", _stream_of)
"""The address of a GPU's current stream."""

current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
"""The number of the current GPU."""

allocate: Callable[[int, int], int] = getattr(torch._C, "_cuda_cudaCachingAllocator_raw_alloc", _allocate)
"""The address of memory of the current GPU: bytes, and the stream that will use it."""

data_ptr: Callable[[Tensor], int] = Tensor.data_ptr
"""The address of a tensor's first element."""

release: Callable[[int], None]
release = getattr(torch._C, "_cuda_cudaCachingAllocator_raw_delete", torch.cuda.caching_allocator_delete)
"""Give such memory back: later work of its stream may have it, whatever is still running there."""


def same_forms(*tensors: Tensor) -> Callable[..., bool]:
    """A function that says whether other tensors have the shapes, strides, dtypes, devices and types of these."""
    guards = getattr(_guards, "TensorGuards", None)
    if guards is None:
        forms = [form(tensor) for tensor in tensors]
        return lambda *others: [form(other) for other in others] == forms
    sizes, strides = [list(tensor.shape) for tensor in tensors], [list(tensor.stride()) for tensor in tensors]
    check: Callable[..., bool] = guards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
    return check


def form(tensor: Tensor) -> tuple[Any, ...]:
    """What `same_forms` compares: shape, strides, dtype, the GPU's number (−1 on the CPU), and how torch sees it."""
    seen = type(tensor), tensor.requires_grad, tensor.is_inference(), torch.is_inference_mode_enabled()
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.get_device(), *seen


def active_modes() -> bool:
    """Whether a dispatch mode or a transform such as `vmap` sees every call."""
    modes, transform = ACTIVE
    return bool(modes() or transform() is not None)


ACTIVE: tuple[Callable[[], int], Callable[[], Any]] = (
    getattr(torch._C, "_len_torch_dispatch_stack", lambda: 1),
    getattr(getattr(torch._C, "_functorch", None), "peek_interpreter_stack", lambda: 1),
)
"""How many dispatch modes there are; the transform at work, or None."""
