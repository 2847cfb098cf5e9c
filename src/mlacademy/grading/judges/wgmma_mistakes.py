"""Mistakes that every kernel with a multiply invites: not all of the warpgroup comes to it."""

from __future__ import annotations

from mlacademy.grading import KernelMistake, Sign

SOME_LANES = KernelMistake(
    "some lanes",
    "Not all threads of a warp came to the multiply. It is no copy that one thread issues: the warpgroup executes it.",
    (
        "Which threads does your branch let through?",
        "The four warps of a warpgroup execute a multiply together, all their lanes.",
        "No if around wgmma_fence, the multiplies, the commit and the wait.",
    ),
    signs=(Sign("aligned-divergence", text="wgmma"),),
)
SOME_WARPS = KernelMistake(
    "some warps",
    "Not all four warps of the warpgroup came to the multiply, and it does not begin before they have.",
    (
        "Which warps does your branch let through?",
        "A multiply belongs to 128 threads; each warp gets 16 rows of the result.",
        "No if around wgmma_fence, the multiplies, the commit and the wait.",
    ),
    signs=(Sign("deadlock", text="wgmma is executed by all four warps"),),
)
