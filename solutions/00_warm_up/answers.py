"""Right and wrong answers to the warm-up."""

import math

import numpy as np

from mlacademy.grading.answers import right, wrong


@right("00.1", "by product and ceiling")
def launch_size(grid, block):
    ctas = math.prod(grid)
    return ctas, ctas * block, math.ceil(block / 32)


@right("00.1", "by counting")
def launch_size_counted(grid, block):
    ctas = sum(1 for _ in range(grid[0]) for _ in range(grid[1]) for _ in range(grid[2]))
    return ctas, sum(block for _ in range(ctas)), len(range(0, block, 32))


@right("00.1", "a list of NumPy integers")
def launch_size_numpy(grid, block):
    ctas = np.prod(grid)
    return [ctas, ctas * block, (block - 1) // 32 + 1]


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


@wrong("00.1", "always one warp more", says="You always added a warp")
def launch_size_one_more(grid, block):
    ctas = math.prod(grid)
    return ctas, ctas * block, block // 32 + 1


@wrong("00.1", "threads of one CTA", says="threads of the whole launch")
def launch_size_one_cta(grid, block):
    return math.prod(grid), block, math.ceil(block / 32)


@wrong("00.1", "threads before CTAs", says="not in the order asked for")
def launch_size_reordered(grid, block):
    ctas = math.prod(grid)
    return ctas * block, ctas, math.ceil(block / 32)


@wrong("00.1", "true division", says="/ always gives a float")
def launch_size_divided(grid, block):
    ctas = math.prod(grid)
    return ctas, ctas * block, block / 32


@wrong("00.1", "a float from np.ceil", says="so does np.ceil")
def launch_size_np_ceil(grid, block):
    ctas = math.prod(grid)
    return ctas, ctas * block, np.ceil(block / 32)


@wrong("00.1", "warpgroups for warps", says="the warps of one CTA are not")
def launch_size_warpgroups(grid, block):
    ctas = math.prod(grid)
    return ctas, ctas * block, math.ceil(block / 128)


@wrong("00.1", "the warps of all threads", says="warps of the whole launch")
def launch_size_threads_over_32(grid, block):
    ctas = math.prod(grid)
    return ctas, ctas * block, ctas * block // 32


@wrong("00.1", "two numbers", says="a tuple of three numbers")
def launch_size_two(grid, block):
    return math.prod(grid), math.prod(grid) * block


@wrong("00.1", "an array", says="a tuple of three numbers")
def launch_size_array(grid, block):
    ctas = math.prod(grid)
    return np.array([ctas, ctas * block, math.ceil(block / 32)])
