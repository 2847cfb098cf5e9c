"""The tile scheduler of split-KV decode: which partition of the GPU reads which blocks of which request.

One decode step has ``b`` requests; request ``r`` attends to ``lengths[r]`` tokens, read in blocks of 64. The GPU offers
``parts`` partitions (a partition is what works on one set of heads: one CTA at 64 heads, a cluster of two at 128).
The scheduler lays the requests one after another and cuts the line into pieces of equal cost:

>>> plan = schedule([128, 128], num_sm_parts(132))
>>> plan.parts, plan.payload, plan.used, plan.num_splits.tolist()
(66, 6, 4, [0, 2, 4])
>>> plan.segments()[1]
Segment(partition=1, request=0, begin_block=1, end_block=2, split=1)

Modules: ``kernels`` (partition counts, lengths, limits of each kernel), ``walk`` (the greedy walk, plain and fast),
``plan`` (the result: records, partitions, segments), ``cost`` (what a schedule costs in a stated model).
Left out on purpose: running the work (``attention``), merging the partial results (``softmax.combine``).
Plain Python and NumPy; no torch.
"""

from mlacademy.schedule.cost import Cost, CostModel
from mlacademy.schedule.kernels import (
    BLOCK,
    KERNELS,
    MAX_BATCH,
    KernelRule,
    effective_lengths,
    num_sm_parts,
    scheduler_shared_bytes,
)
from mlacademy.schedule.plan import RECORD_FIELDS, Partition, Schedule, Segment, read_record, schedule
from mlacademy.schedule.walk import Step, walk

__all__ = [
    "BLOCK",
    "KERNELS",
    "MAX_BATCH",
    "RECORD_FIELDS",
    "Cost",
    "CostModel",
    "KernelRule",
    "Partition",
    "Schedule",
    "Segment",
    "Step",
    "effective_lengths",
    "num_sm_parts",
    "read_record",
    "schedule",
    "scheduler_shared_bytes",
    "walk",
]
