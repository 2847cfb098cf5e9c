"""`Device`: where kernels run, a GPU or the emulator, by one contract."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from mlacademy.gpu.kernel import Kernel
from mlacademy.gpu.plan import LaunchPlan

if TYPE_CHECKING:
    from mlacademy.gpu.trace import Trace

_IMPLEMENTATIONS = {
    "emulator": ("mlacademy.gpu.emulator_device", "EmulatorDevice"),
    "cuda": ("mlacademy.gpu.cuda_device", "CudaDevice"),
}


@dataclass(frozen=True)
class LaunchReport:
    """What is known after a launch.

    Attributes:
        device: ``emulator`` or ``cuda``.
        kernel: the kernel's readable name.
        plan: how it was launched.
        statistics: what the emulator counted (instructions and more); empty on a GPU.
        output: what the kernel printed on the emulator, which is also printed; on a GPU it goes to the process's
            standard output alone.
        trace: what happened, in modelled cycles; of a launch on the emulator with ``trace=True``.
    """

    device: str
    kernel: str
    plan: LaunchPlan
    statistics: Mapping[str, int] = field(default_factory=dict)
    output: str = ""
    trace: Trace | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        counted = "".join(f"\n{name.replace('_', ' '):<22} {value:,}" for name, value in self.statistics.items())
        return f"{self.kernel} on the {'GPU' if self.device == 'cuda' else self.device}\n{self.plan}{counted}"


class Device:
    """``Device("emulator", arch="sm_90a")`` or ``Device("cuda", index=0)``.

    Attributes:
        kind: ``emulator`` or ``cuda``.
        arch: the architecture it runs, such as ``sm_90a``.
        name: what to call it: the GPU's name, or ``emulator``.

    Raises ``ValueError`` for another kind, ``RuntimeError`` with the reason where the device does not work here.
    """

    kind: ClassVar[str]
    arch: str
    name: str

    def __new__(cls, kind: str = "", **settings: Any) -> Device:
        if cls is Device:
            cls = _implementation(kind)
        return object.__new__(cls)

    def launch(self, kernel: Kernel, plan: LaunchPlan, args: Sequence[Any], **options: Any) -> LaunchReport:
        """Run ``kernel`` by ``plan``.

        ``args`` follow the kernel's parameters: numbers for scalars, tensors for pointers (or an address, or None), a
        `TensorMap`, and ``bytes`` for other structs. Raises ``TypeError`` and ``ValueError`` naming the argument or
        the plan's field.
        """
        raise NotImplementedError

    def address(self, tensor: Any, name: str = "") -> int:
        """The address of a tensor's first element, to be embedded in the bytes of a struct.

        The tensor's memory may be touched by launches while the tensor lives; ``name`` is what messages call it.
        """
        raise NotImplementedError

    def encode(self, tensor_map: Any, name: str = "") -> bytes:
        """A `TensorMap` as this device's 128 bytes, to be embedded in the bytes of a struct at a multiple of 64."""
        raise NotImplementedError

    def sequence(self) -> AbstractContextManager[None]:
        """A ``with`` block whose launches overlap where their plans are programmatic, on every device.

        On a GPU that is so everywhere. The emulator's launches are over when `launch` returns; those in the block run
        when it ends, in order, and a programmatic one starts as early as a GPU would let it: when every CTA of the one
        before it has executed ``griddepcontrol.launch_dependents`` or has ended. What it reads before its
        ``griddepcontrol.wait`` may be stale. A report's ``statistics`` are filled in when the block ends.
        """
        return nullcontext()

    def synchronize(self) -> None:
        """Wait until everything launched has ended."""
        raise NotImplementedError

    @classmethod
    def obstacle(cls) -> str | None:
        """Why this device does not work here, as one sentence; None where it does."""
        raise NotImplementedError

    @staticmethod
    def available() -> tuple[str, ...]:
        """The kinds that work on this machine."""
        return tuple(kind for kind, why in Device.obstacles().items() if why is None)

    @staticmethod
    def obstacles() -> dict[str, str | None]:
        """Each kind, with the reason why it does not work here or None."""
        return {kind: _implementation(kind).obstacle() for kind in _IMPLEMENTATIONS}

    def check(self, kernel: Kernel, plan: LaunchPlan) -> None:
        """Raise ``ValueError`` where ``kernel`` is for other GPUs than this device, or ``plan`` is not for the kernel.

        Raises ``TypeError`` where they are something else.
        """
        if not isinstance(kernel, Kernel):
            raise TypeError(f'kernel must be one of a module, such as module["name"]; got {type(kernel).__name__}')
        if not isinstance(plan, LaunchPlan):
            raise TypeError(f"plan must be a LaunchPlan, got {type(plan).__name__}")
        target = kernel.module.arch
        if not runs_on(target, self.arch):
            raise ValueError(
                f"{kernel.base_name} was compiled for {target}, this device is {self.arch}: "
                f'compile it with arch="{self.arch}"'
            )
        plan.check(kernel)


def runs_on(target: str, arch: str) -> bool:
    """Whether code for ``target`` runs on ``arch``: ``sm_90a`` on itself alone, ``sm_80`` on all that came after.

    >>> runs_on("sm_80", "sm_90a"), runs_on("sm_90a", "sm_100a")
    (True, False)
    """
    if target == arch:
        return True
    if target.endswith("f"):
        return int(target[3:-1]) // 10 == int(arch[3:].rstrip("af")) // 10
    return not target.endswith("a") and int(target[3:]) <= int(arch[3:].rstrip("af"))


def _implementation(kind: str) -> type[Device]:
    if kind not in _IMPLEMENTATIONS:
        raise ValueError(f'device must be "emulator" or "cuda", got {kind!r}')
    module, name = _IMPLEMENTATIONS[kind]
    found: type[Device] = getattr(importlib.import_module(module), name)
    return found
