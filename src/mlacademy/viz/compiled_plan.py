"""A schedule as the compiled scheduler cuts it, on the emulator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from mlacademy.schedule import Schedule


def compiled(plan: Schedule) -> Schedule:
    """The schedule of the plan's lengths, partitions and overhead by the kernel of ``kernels/cuda/decode/schedule.cu``.

    plan: of sparse lists, each at least 1 long (`schedule.effective_lengths`).
    """
    import torch

    from mlacademy.ops import emulated
    from mlacademy.ops.metadata import Metadata

    lengths = torch.from_numpy(plan.lengths.astype(np.int32))
    with emulated.on("emulator") as run:
        topk = int(lengths.max())
        buffer = emulated.make_schedule(run, plan.b, topk, 0, plan.parts, plan.overhead, lengths, None)
    made = Metadata.of(buffer, plan.b)
    return plan.with_records(made.records.numpy(), made.num_splits.numpy())


def same_cuts(one: Schedule, other: Schedule) -> bool:
    """Whether the records and the split tables of two schedules are equal, number by number."""
    return bool(np.array_equal(one.records(), other.records()) and np.array_equal(one.num_splits, other.num_splits))
