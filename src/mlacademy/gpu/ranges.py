"""The stretches of memory that a launch may touch, merged where tensors share memory."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod
from typing import Any

from mlacademy.gpu.tensors import TensorView


@dataclass(frozen=True)
class Range:
    """Bytes ``start`` to ``stop`` of global memory, what messages call them, and whether a kernel may write there.

    ``shape`` and ``itemsize`` let messages name an element; they are known where one dense tensor fills the range.
    """

    start: int
    stop: int
    name: str
    writable: bool
    shape: tuple[int, ...] = field(default=(), compare=False)
    itemsize: int = field(default=0, compare=False)

    @classmethod
    def of(cls, view: TensorView, name: str) -> Range:
        """The range that ``view`` fills."""
        start, stop = view.span
        dense = stop - start == prod(view.shape) * view.itemsize and list(view.strides) == sorted(
            view.strides, reverse=True
        )
        return cls(start, stop, name, view.writable, *((view.shape, view.itemsize) if dense else ((), 0)))


def merged(ranges: Iterable[Range]) -> list[Range]:
    """The ranges in the order of their addresses, those that overlap made one; empty ones are left out."""
    result: list[Range] = []
    for one in sorted(ranges, key=lambda it: (it.start, -it.stop)):
        if one.start == one.stop:
            continue
        last = result[-1] if result else None
        if last is None or one.start >= last.stop:
            result.append(one)
            continue
        names = last.name if one.name in last.name.split(" / ") else f"{last.name} / {one.name}"
        merged_stop = max(last.stop, one.stop)
        shape = (last.shape, last.itemsize) if merged_stop == last.stop and names == last.name else ((), 0)
        result[-1] = Range(last.start, merged_stop, names, last.writable or one.writable, *shape)
    return result


class Registry:
    """Tensors whose address was given out by `Device.address`; each stays known while it lives."""

    def __init__(self) -> None:
        self._entries: list[tuple[weakref.ref[Any], Range]] = []

    def add(self, view: TensorView, name: str) -> None:
        """Know the memory of ``view`` under ``name`` from now on."""
        self._entries.append((weakref.ref(view.owner), Range.of(view, name)))

    def alive(self) -> list[Range]:
        """The ranges of the tensors that still live."""
        self._entries = [entry for entry in self._entries if entry[0]() is not None]
        return list(dict.fromkeys(found for _, found in self._entries))

    def owners(self) -> list[Any]:
        """The tensors that still live."""
        return [owner for reference, _ in self._entries if (owner := reference()) is not None]
