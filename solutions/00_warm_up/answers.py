"""Right and wrong answers to the warm-up."""

import math

from mlacademy.grading.answers import right, wrong


@right("00.1", "by product and ceiling")
def launch_size(grid, block):
    ctas = math.prod(grid)
    return ctas, ctas * block, math.ceil(block / 32)


@right("00.1", "by counting")
def launch_size_counted(grid, block):
    ctas = sum(1 for _ in range(grid[0]) for _ in range(grid[1]) for _ in range(grid[2]))
    return ctas, sum(block for _ in range(ctas)), len(range(0, block, 32))


@wrong("00.1", "adds the extents", says="You added the three extents")
def launch_size_added(grid, block):
    ctas = sum(grid)
    return ctas, ctas * block, math.ceil(block / 32)


@wrong("00.1", "forgets z", says="left out the third extent")
def launch_size_flat(grid, block):
    ctas = grid[0] * grid[1]
    return ctas, ctas * block, math.ceil(block / 32)


@wrong("00.1", "rounds the warps down", says="You dropped the last warp")
def launch_size_floor(grid, block):
    ctas = math.prod(grid)
    return ctas, ctas * block, block >> 5


@wrong("00.1", "counts the warps of the launch", says="warps of one CTA")
def launch_size_all_warps(grid, block):
    ctas = math.prod(grid)
    return ctas, ctas * block, ctas * math.ceil(block / 32)


@wrong("00.1", "counts empty places", says="empty places of a warp")
def launch_size_full_warps(grid, block):
    ctas, warps = math.prod(grid), math.ceil(block / 32)
    return ctas, ctas * warps * 32, warps


@wrong("00.1", "prints instead of returning", says="None")
def launch_size_printed(grid, block):
    print(math.prod(grid), math.prod(grid) * block, math.ceil(block / 32))
