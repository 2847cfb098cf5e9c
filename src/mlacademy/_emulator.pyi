"""The PTX emulator (kernels/emulator). `mlacademy.gpu` is the friendly way in."""

from collections.abc import Sequence
from typing import Any, TypedDict

class Param(TypedDict):
    name: str
    offset: int
    size: int
    align: int
    type: str  # a PTX type such as "u64", or "blob" for .b8 name[N]

class Kernel(TypedDict):
    name: str
    params: list[Param]
    param_bytes: int
    maxntid: list[int]  # (0, 0, 0) where the PTX says nothing; the same for reqntid and reqnctapercluster
    reqntid: list[int]
    reqnctapercluster: list[int]
    minnctapersm: int
    maxclusterrank: int
    static_shared_bytes: int
    dynamic_shared_align: int
    uses_dynamic_shared: bool
    local_bytes: int
    instructions: int
    register_bytes: int  # of a warp, after numbering

class Statistics(TypedDict):
    instructions: int  # of warps
    lane_instructions: int
    clusters: int
    output: str  # of printf

class PtxError(ValueError):
    kernel: str
    ptx_line: int
    source_file: str
    source_line: int
    inner_file: str
    inner_line: int

class PtxSyntaxError(PtxError): ...
class PtxInvalid(PtxError): ...
class PtxUnsupported(PtxError): ...

class RunError(RuntimeError):
    kernel: str
    ptx_line: int
    source_file: str
    source_line: int  # of code inlined from another file: the line that called it
    inner_file: str  # where that code stands itself, or ""
    inner_line: int
    rule: str  # which rule was broken: bounds, race, deadlock, …
    role: str  # what the kernel calls the warp, or ""
    block: tuple[int, int, int]
    warp: int
    lanes: int
    address: int
    object_name: str

class Waiting(TypedDict):
    cta: int  # rank in the cluster
    warp: int
    lanes: int  # as a mask
    kind: str  # mbarrier, barrier, cluster, warp, copies, multiplies (of wgmma), registers (setmaxnreg)
    object: str
    offset: int  # of an mbarrier in shared memory; what follows is its state too
    parity: int  # waited for
    phase: int
    pending: int  # arrivals, or threads of a barrier
    expected: int
    tx: int  # bytes announced and not landed
    completed: int
    ptx_line: int
    source_line: int
    source_file: str

class KernelTrap(RunError):
    other_warp: int  # of a race: the access that came before; -1 where there is none
    other_ptx_line: int
    other_source_file: str
    other_source_line: int

class Race(KernelTrap): ...
class Uninitialized(KernelTrap): ...
class ProxyError(KernelTrap): ...
class HazardError(KernelTrap): ...

class Deadlock(RunError):
    waits: list[Waiting]

class Runaway(RunError): ...

class Program:
    def __init__(self, ptx: str) -> None: ...
    @property
    def kernels(self) -> list[Kernel]: ...
    @property
    def variables(self) -> list[tuple[str, int, int, bool]]:
        """Module variables: name, address, bytes, writable."""

def launch(
    program: Program,
    kernel: str,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    cluster: tuple[int, int, int],
    smem_bytes: int,
    params: bytes,
    buffers: Sequence[tuple[int, int, str, bool] | tuple[int, int, str, bool, tuple[int, ...], int, int]],
    options: dict[str, Any],
) -> Statistics:
    """Run a kernel.

    `buffers` are (address, bytes, name, writable), and where it is known (…, shape, bytes of an element, address of a
    map with one byte for each byte that has been written, or 0); options: check, seed, order, step_budget, threads.
    """

def launch_sequence(launches: Sequence[tuple[Any, ...]]) -> list[Statistics]:
    """Run kernels in stream order: tuples of `launch`'s arguments and whether the launch is programmatic."""
