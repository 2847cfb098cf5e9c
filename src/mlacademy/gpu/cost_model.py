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

    integer_issue: float = _constant(
        1, "cycles", "an integer instruction occupies its pipe: additions may take another", "add_xor_pipe"
    )
    multiply_issue: float = _constant(2, "cycles", "an integer multiply-add occupies its pipe", "mad_pipe")
    float32_issue: float = _constant(1, "cycles", "a float32 instruction occupies its pipe", "fma_pipe")
    half_issue: float = _constant(1, "cycles", "an instruction on two 16-bit floats occupies its pipe", "hfma2_pipe")
    float64_issue: float = _constant(2, "cycles", "a float64 instruction occupies its pipe", "dfma_pipe")
    convert_issue: float = _constant(2, "cycles", "a conversion between formats occupies its pipe", "cvt_bf16_pipe")
    special_issue: float = _constant(8, "cycles", "ex2, rcp, sin and their like occupy their pipe", "ex2_pipe")
    shuffle_issue: float = _constant(
        1, "cycles", "an exchange between lanes occupies the multiprocessor's unit", "shfl_pipe"
    )
    alu_latency: float = _constant(
        4, "cycles", "from a float32 instruction or a multiply to one that uses its result", "fma, mad"
    )
    integer_latency: float = _constant(5, "cycles", "the same for additions, comparisons and logic", "add_xor")
    half_latency: float = _constant(8, "cycles", "the same for two 16-bit floats", "hfma2")
    convert_latency: float = _constant(6, "cycles", "the same for a conversion: 4 to 8", "cvt_bf16, cvt_e4m3")
    special_latency: float = _constant(17, "cycles", "the same for ex2, rcp, sin and their like", "ex2")
    float64_latency: float = _constant(8, "cycles", "the same for float64", "dfma")
    shuffle_latency: float = _constant(24, "cycles", "the same for an exchange between lanes", "shfl")
    divide_issue: float = _constant(
        12, "cycles", "an integer division is a sequence of so many instructions", "div_u32_pipe"
    )
    divide_latency: float = _constant(60, "cycles", "from an integer division to its result", "div_u32")
    float_divide_issue: float = _constant(
        85, "cycles", "a rounded float32 division or square root, likewise", "div_f32_pipe"
    )
    float_divide_latency: float = _constant(270, "cycles", "from it to its result", "div_f32")
    clock_latency: float = _constant(16, "cycles", "reading a clock", "assumed")
    branch_latency: float = _constant(17, "cycles", "a branch that is taken, until the next instruction issues", "loop")
    shared_latency: float = _constant(23, "cycles", "a load from shared memory without conflicts", "ld_shared")
    shared_bytes: float = _constant(128, "bytes/cycle", "what shared memory serves", "ld_shared_pipe")
    conflict_latency: float = _constant(
        2, "cycles", "each further pass over the banks, until the result", "ld_shared_8way"
    )
    shared_atomic_latency: float = _constant(26, "cycles", "an atomic on shared memory", "atom_shared")
    matrix_latency: float = _constant(23, "cycles", "ldmatrix, apart from its further passes", "ldmatrix")
    l1_latency: float = _constant(34, "cycles", "a load of what the multiprocessor loaded before", "ld_l1")
    l2_latency: float = _constant(266, "cycles", "a load that the second cache serves", "ld_l2")
    l2_bytes: float = _constant(107, "bytes/cycle", "between the second cache and one multiprocessor", "l2_one")
    global_store_bytes: float = _constant(
        32,
        "bytes/cycle",
        "stores and atomics to global memory by one multiprocessor, in sectors",
        "st_row, st_fragment",
    )
    l2_total: float = _constant(4320, "bytes/cycle", "between the second cache and all multiprocessors", "l2_all")
    dram_latency: float = _constant(685, "cycles", "a load that device memory serves", "ld_dram")
    dram_bytes: float = _constant(2260, "bytes/cycle", "what device memory serves", "dram_all")
    global_atomic_latency: float = _constant(450, "cycles", "an atomic on global memory", "atom_global")
    remote_latency: float = _constant(193, "cycles", "a load from another CTA's shared memory", "ld_remote")
    remote_bytes: float = _constant(
        17.8, "bytes/cycle", "from the other multiprocessor of a pair, both at once", "remote_pipe"
    )
    fence_latency: float = _constant(9, "cycles", "a fence between the threads of a CTA", "fence_cta")
    wide_fence_latency: float = _constant(272, "cycles", "a fence beyond the CTA", "fence_cluster, fence_gpu")
    proxy_fence_latency: float = _constant(9, "cycles", "a fence between proxies", "fence_proxy")
    mbarrier_issue: float = _constant(6, "cycles", "an arrival holds its warp, whatever its lanes", "mbarrier_arrive")
    mbarrier_arrive_latency: float = _constant(
        23, "cycles", "from an arrival to the barrier's new state", "mbarrier_state"
    )
    mbarrier_wait_latency: float = _constant(30, "cycles", "a wait for a phase that is over", "mbarrier_wait")
    mbarrier_wake_latency: float = _constant(
        114, "cycles", "from the end of a phase to the warp that waits", "mbarrier_ping"
    )
    remote_arrive_latency: float = _constant(256, "cycles", "an arrival at another CTA's barrier", "cluster_ping")
    barrier_latency: float = _constant(13, "cycles", "from the last arrival at a named barrier to all", "bar_4, bar_16")
    barrier_warp: float = _constant(1.7, "cycles", "each warp that meets there adds", "bar_4, bar_16")
    cluster_latency: float = _constant(
        360, "cycles", "from the last arrival at the cluster's barrier to all", "cluster_sync"
    )
    bulk_issue: float = _constant(
        44, "cycles", "the start of a load by the copy engine holds its warp", "bulk_issue, bulk_16_queue"
    )
    bulk_latency: float = _constant(
        182, "cycles", "a load by the copy engine from the second cache, apart from its bytes", "bulk_2048_alone"
    )
    bulk_bytes: float = _constant(
        108, "bytes/cycle", "loads by the copy engine of one multiprocessor", "bulk_32768_queue"
    )
    tensor_latency: float = _constant(
        4, "cycles", "what a tensor copy takes longer than a bulk copy", "tensor_8192_alone"
    )
    tensor_row: float = _constant(1.2, "cycles", "the least for a row of a box", "tensor_8192_queue")
    store_issue: float = _constant(
        8, "cycles", "the start of a store by the copy engine holds its warp", "store_512_read"
    )
    store_bytes: float = _constant(
        34.4, "bytes/cycle", "stores by the copy engine of one multiprocessor", "store_512_read, store_8192_read"
    )
    store_read_latency: float = _constant(
        18, "cycles", "until a store has read its source, apart from its bytes", "store_512_read"
    )
    store_latency: float = _constant(25, "cycles", "from then until it has written", "store_512_done, store_8192_done")
    copy_latency: float = _constant(312, "cycles", "a cp.async from the second cache", "cp_async")
    wgmma_macs: float = _constant(
        2048, "1/cycle", "multiply-adds of 16-bit floats by the tensor cores", "wgmma_n64, wgmma_n256"
    )
    wgmma_latency: float = _constant(40, "cycles", "from the last multiply-add to the result", "wgmma_n64_alone")
    wgmma_wait_latency: float = _constant(10, "cycles", "from the result to the warp that waits", "wgmma_n64_alone")
    mma_latency: float = _constant(18, "cycles", "from the last multiply-add of mma.sync to its result", "mma")
    mma_macs: float = _constant(1334, "1/cycle", "multiply-adds of 16-bit floats by mma.sync", "mma_pipe")
    registers_latency: float = _constant(20, "cycles", "setmaxnreg", "assumed")
    start_latency: float = _constant(140, "cycles", "from a CTA's start to its first instruction's result", "empty")
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
