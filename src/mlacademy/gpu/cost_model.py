"""The constants that turn an event log into cycles: one table, each with its meaning and where it was measured.

>>> CostModel().replace(bulk_latency=900.0).bulk_latency
900.0
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any


def _constant(value: float, unit: str, meaning: str, measured: str) -> Any:
    return field(default=value, metadata={"unit": unit, "meaning": meaning, "measured": measured})


@dataclass(frozen=True)
class CostModel:
    """What instructions and operations cost on an H200, in cycles of a multiprocessor's clock.

    ``measured`` of a constant names the row of ``benchmarks/results/cost-nvidia-h200.json``, which
    ``benchmarks/gpu/costs.py`` writes; "design" stands for a figure of the vendor's documents, "assumed" for one that
    is neither measured nor documented.
    """

    integer_issue: float = _constant(2, "cycles", "an integer instruction occupies the pipe of a sub-partition", "add")
    multiply_issue: float = _constant(2, "cycles", "an integer multiply-add occupies its pipe", "mad")
    float32_issue: float = _constant(1, "cycles", "a float32 instruction occupies its pipe", "fma")
    half_issue: float = _constant(1, "cycles", "an instruction on two 16-bit floats occupies its pipe", "hfma2")
    float64_issue: float = _constant(2, "cycles", "a float64 instruction occupies its pipe", "dfma")
    convert_issue: float = _constant(4, "cycles", "a conversion between formats occupies its pipe", "cvt")
    special_issue: float = _constant(8, "cycles", "ex2, rcp, sin and their like occupy their pipe", "ex2")
    shuffle_issue: float = _constant(2, "cycles", "an exchange between lanes occupies the multiprocessor's", "shfl")
    alu_latency: float = _constant(4, "cycles", "from an arithmetic instruction to one that uses its result", "fma")
    convert_latency: float = _constant(8, "cycles", "the same for a conversion", "cvt")
    special_latency: float = _constant(18, "cycles", "the same for ex2, rcp, sin and their like", "ex2")
    float64_latency: float = _constant(8, "cycles", "the same for float64", "dfma")
    shuffle_latency: float = _constant(23, "cycles", "the same for an exchange between lanes", "shfl")
    divide_instructions: float = _constant(12, "instructions", "a division or a square root is a sequence", "div")
    clock_latency: float = _constant(16, "cycles", "reading a clock", "clock")
    branch_latency: float = _constant(8, "cycles", "a branch, until the next instruction issues", "branch")
    shared_latency: float = _constant(29, "cycles", "a load from shared memory without conflicts", "ld.shared")
    shared_bytes: float = _constant(128, "bytes/cycle", "what shared memory serves", "ld.shared")
    shared_atomic_latency: float = _constant(60, "cycles", "an atomic on shared memory", "atom.shared")
    matrix_latency: float = _constant(33, "cycles", "ldmatrix and stmatrix", "ldmatrix")
    l1_latency: float = _constant(
        38, "cycles", "a load of what the multiprocessor loaded before", "ld.global, first cache"
    )
    l2_latency: float = _constant(260, "cycles", "a load that the second cache serves", "ld.global, second cache")
    l2_bytes: float = _constant(64, "bytes/cycle", "between the second cache and one multiprocessor", "ld.global")
    l2_total: float = _constant(2800, "bytes/cycle", "between the second cache and all multiprocessors", "ld.global")
    dram_latency: float = _constant(620, "cycles", "a load that device memory serves", "ld.global, device memory")
    dram_bytes: float = _constant(2200, "bytes/cycle", "what device memory serves", "design")
    global_atomic_latency: float = _constant(350, "cycles", "an atomic on global memory", "atom.global")
    remote_latency: float = _constant(190, "cycles", "a load from another CTA's shared memory", "ld.shared::cluster")
    remote_bytes: float = _constant(32, "bytes/cycle", "between two multiprocessors of a cluster", "ld.shared::cluster")
    fence_latency: float = _constant(20, "cycles", "a fence between threads", "fence")
    proxy_fence_latency: float = _constant(20, "cycles", "a fence between proxies", "fence.proxy.async")
    mbarrier_issue: float = _constant(2, "cycles", "an arrival holds its warp", "mbarrier.arrive")
    mbarrier_lane: float = _constant(2, "cycles", "each further lane that arrives with it", "mbarrier.arrive, 32 lanes")
    mbarrier_arrive_latency: float = _constant(20, "cycles", "from an arrival to the barrier's new state", "mbarrier")
    mbarrier_wait_latency: float = _constant(20, "cycles", "a wait for a phase that is over", "mbarrier.try_wait")
    mbarrier_wake_latency: float = _constant(20, "cycles", "from the end of a phase to the warp that waits", "mbarrier")
    remote_arrive_latency: float = _constant(200, "cycles", "an arrival at another CTA's barrier", "mapa")
    barrier_latency: float = _constant(20, "cycles", "from the last arrival at a named barrier to all", "bar.sync")
    cluster_latency: float = _constant(
        200, "cycles", "from the last arrival at the cluster's barrier to all", "cluster"
    )
    bulk_issue: float = _constant(30, "cycles", "the start of a bulk or tensor copy holds its warp", "bulk")
    bulk_latency: float = _constant(600, "cycles", "a bulk load from the second cache, apart from its bytes", "bulk")
    bulk_bytes: float = _constant(60, "bytes/cycle", "bulk copies of one multiprocessor", "bulk")
    bulk_gap: float = _constant(30, "cycles", "the least between two bulk copies", "bulk")
    tensor_latency: float = _constant(60, "cycles", "what a tensor copy takes longer than a bulk copy", "tensor")
    tensor_row: float = _constant(2, "cycles", "a row of a box", "tensor")
    bulk_read_latency: float = _constant(200, "cycles", "until a bulk store has read its source", "bulk store")
    bulk_store_latency: float = _constant(400, "cycles", "from then until it has written", "bulk store")
    copy_latency: float = _constant(300, "cycles", "a cp.async from the second cache", "cp.async")
    wgmma_macs: float = _constant(2048, "1/cycle", "multiply-adds of 16-bit floats by the tensor cores", "wgmma")
    wgmma_latency: float = _constant(32, "cycles", "from the last multiply-add to the result", "wgmma")
    wgmma_gap: float = _constant(16, "cycles", "the least between two wgmma of a warpgroup", "wgmma")
    wgmma_wait_latency: float = _constant(10, "cycles", "from the result to the warp that waits", "wgmma")
    mma_latency: float = _constant(18, "cycles", "the same for mma.sync", "mma")
    mma_macs: float = _constant(1024, "1/cycle", "multiply-adds by mma.sync", "mma")
    registers_latency: float = _constant(20, "cycles", "setmaxnreg", "assumed")
    start_latency: float = _constant(0, "cycles", "from a CTA's start to its first instruction", "start")
    cta_gap: float = _constant(
        300, "cycles", "from the end of a CTA to the start of the one that takes its place", "assumed"
    )
    sms: float = _constant(132, "", "multiprocessors", "design")
    cold: float = _constant(0, "", "1: nothing is in the second cache when the kernel starts", "design")

    def replace(self, **constants: float) -> CostModel:
        """The same with other values of some constants."""
        return dataclasses.replace(self, **constants)

    def as_dict(self) -> dict[str, float]:
        """Constant → value."""
        return dataclasses.asdict(self)

    def table(self) -> str:
        """The constants with their meaning, as a Markdown table."""
        rows = ["| constant | value | unit | meaning | measured by |", "|---|---:|---|---|---|"]
        for one in dataclasses.fields(self):
            about = one.metadata
            value = getattr(self, one.name)
            rows.append(f"| `{one.name}` | {value:g} | {about['unit']} | {about['meaning']} | {about['measured']} |")
        return "\n".join(rows)
