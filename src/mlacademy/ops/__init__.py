"""The operators: torch in, torch out, over the compiled kernels.

>>> metadata = schedule(b, topk, device="cuda")                                            # doctest: +SKIP
>>> out, lse = sparse_decode(q, kv_cache, indices, softmax_scale=0.1352, metadata=metadata)  # doctest: +SKIP

Where a call runs follows from its tensors: on a Hopper GPU the compiled kernels, on the CPU the float64 oracles. Inside
``with on("emulator") as run`` CPU tensors go through the compiled kernels on the emulator, and ``run.launches`` keeps
what was launched. What kernels notice and cannot raise, `check` raises.

Modules: ``operators`` (the public functions), ``arguments`` (what they take), ``library`` (torch's view of them),
``plan`` (launch constants), ``params`` (the parameter blocks), ``metadata``, ``notices``; ``reference``,
``emulated`` and ``cuda`` are the implementations.
"""

from mlacademy.ops.emulated import Launched, Run, on
from mlacademy.ops.metadata import Metadata
from mlacademy.ops.notices import SlotOutOfRange, StaleMetadata, check, checked
from mlacademy.ops.operators import cache_append, combine, schedule, sparse_decode
from mlacademy.ops.plan import source

__all__ = [
    "Launched",
    "Metadata",
    "Run",
    "SlotOutOfRange",
    "StaleMetadata",
    "cache_append",
    "check",
    "checked",
    "combine",
    "on",
    "schedule",
    "source",
    "sparse_decode",
]
