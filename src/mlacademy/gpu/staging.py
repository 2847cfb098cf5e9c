"""Host arrays for one launch on a GPU: copied there before it, and what the kernel may write copied back after it."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from mlacademy.gpu.driver import ask, driver
from mlacademy.gpu.ranges import Range, merged
from mlacademy.gpu.tensors import TensorView

_ALIGNMENT = 256  # of the driver's allocations; a host address keeps its remainder to this


class Staging:
    """Device copies of the memory of ``views``; views that share host memory share the copy.

    Used as a context: leaving it waits for ``stream``, copies back and frees. Without views it does nothing at all.
    """

    def __init__(self, views: list[TensorView], stream: int) -> None:
        self._stream = stream
        self._ranges = merged(Range(*view.span, "", view.writable) for view in views)
        self._copies: list[tuple[Range, Any, int]] = []  # host range, allocation, device address of its first byte

    def __enter__(self) -> Staging:
        try:
            for host in self._ranges:
                self._copy(host)
        except BaseException:
            self._free()
            raise
        return self

    def _copy(self, host: Range) -> None:
        lead, size = host.start % _ALIGNMENT, host.stop - host.start
        allocation = ask("cuMemAlloc", size + lead, doing="allocating a copy on the GPU")
        self._copies.append((host, allocation, int(allocation) + lead))
        ask("cuMemcpyHtoDAsync", int(allocation) + lead, host.start, size, self._stream, doing="copying to the GPU")

    def _free(self) -> None:
        for _, allocation, _ in self._copies:
            driver().cuMemFree(allocation)  # its answer repeats the error of a kernel that broke off
        self._copies.clear()

    def address(self, view: TensorView) -> int:
        """Where the first element of ``view`` is on the GPU; 0 for a tensor without elements."""
        for host, _, start in self._copies:
            if host.start <= view.address < host.stop:
                return start + view.address - host.start
        return 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._copies and error is None:
                self._copy_back()
        finally:
            self._free()

    def _copy_back(self) -> None:
        ask("cuStreamSynchronize", self._stream, doing="running the kernel")
        for host, _, start in self._copies:
            if host.writable:
                ask("cuMemcpyDtoH", host.start, start, host.stop - host.start, doing="copying from the GPU")
