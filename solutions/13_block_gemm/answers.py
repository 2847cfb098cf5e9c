"""Right and wrong answers to assignment 13."""

import numpy as np

from mlacademy import fp8, gemm
from mlacademy.grading.answers import right, wrong


@right("13.1", "one contraction over (block, element)")
def contraction(a, b, scale_a, scale_b):
    m, n, blocks = len(a), len(b), scale_a.shape[1]
    tiles = np.einsum("mkc,nkc->kmn", a.reshape(m, blocks, 128), b.reshape(n, blocks, 128))
    weights = scale_b[np.arange(n) // 128]
    return np.einsum("kmn,mk,nk->mn", tiles, scale_a, weights)


@right("13.1", "values scaled before one product")
def scaled_first(a, b, scale_a, scale_b):
    real_a = a * np.kron(scale_a, np.ones((1, 128), np.float32))
    real_b = b * np.kron(scale_b, np.ones((128, 128), np.float32))[: b.shape[0]]
    return real_a @ real_b.T


@right("13.1", "element by element")
def by_element(a, b, scale_a, scale_b):
    out = np.empty((a.shape[0], b.shape[0]), dtype=np.float32)
    for n in range(b.shape[0]):
        blocks = (a * b[n]).reshape(len(a), -1, 128).sum(axis=-1)
        out[:, n] = (blocks * scale_a * scale_b[n // 128]).sum(axis=-1)
    return out


@wrong("13.1", "no scales, as accumulating in place would give", says="without any scale")
def unscaled(a, b, scale_a, scale_b):
    return a @ b.T


@wrong("13.1", "last scales in the epilogue", says="the last block's scales after the loop")
def epilogue(a, b, scale_a, scale_b):
    acc = a @ b.T
    return acc * scale_a[:, -1:] * np.repeat(scale_b[:, -1], 128)[: len(b)]


@wrong("13.1", "mean scales in the epilogue", says="mean scales after the loop")
def epilogue_mean(a, b, scale_a, scale_b):
    return (a @ b.T) * scale_a.mean(1, keepdims=True) * np.repeat(scale_b.mean(1), 128)[: len(b)]


@wrong("13.1", "scales the running total", says="The running total is scaled again")
def running(a, b, scale_a, scale_b):
    total = np.zeros((len(a), len(b)), dtype=np.float32)
    for kb in range(a.shape[1] // 128):
        total += a[:, kb * 128 : kb * 128 + 128] @ b[:, kb * 128 : kb * 128 + 128].T
        total *= scale_a[:, kb, None] * np.repeat(scale_b[:, kb], 128)[: len(b)]
    return total


@wrong("13.1", "only the activations' scales", says="scale_b is missing")
def activations_only(a, b, scale_a, scale_b):
    return sum(
        a[:, k * 128 : (k + 1) * 128] @ b[:, k * 128 : (k + 1) * 128].T * scale_a[:, k : k + 1]
        for k in range(scale_a.shape[1])
    )


@wrong("13.1", "only the weights' scales", says="scale_a is missing")
def weights_only(a, b, scale_a, scale_b):
    return block_by_block(a, b, np.ones_like(scale_a), scale_b)


def block_by_block(a, b, scale_a, scale_b):
    out = np.zeros((len(a), len(b)), np.float32)
    for k in range(a.shape[1] // 128):
        part = slice(128 * k, 128 * (k + 1))
        out += a[:, part] @ b[:, part].T * np.outer(scale_a[:, k], scale_b[np.arange(len(b)) // 128, k])
    return out


@wrong("13.1", "accumulator not cleared", says="they are counted again each time")
def not_cleared(a, b, scale_a, scale_b):
    out, block = np.zeros((2, len(a), len(b)), np.float32)
    for k in range(a.shape[1] // 128):
        part = slice(128 * k, 128 * (k + 1))
        block += a[:, part] @ b[:, part].T
        out += block * np.outer(scale_a[:, k], scale_b[np.arange(len(b)) // 128, k])
    return out


@wrong("13.1", "largest scales in the epilogue", says="the largest scales after the loop")
def epilogue_max(a, b, scale_a, scale_b):
    return (a @ b.T) * np.outer(scale_a.max(1), np.repeat(scale_b.max(1), 128)[: len(b)])


@wrong("13.1", "sums of the scales in the epilogue", says="the sums of the scales after the loop")
def epilogue_sum(a, b, scale_a, scale_b):
    return (a @ b.T) * np.outer(scale_a.sum(1), np.repeat(scale_b.sum(1), 128)[: len(b)])


@wrong("13.1", "mean products in the epilogue", says="mean products of the scales after the loop")
def epilogue_mean_products(a, b, scale_a, scale_b):
    return (a @ b.T) * (scale_a @ np.repeat(scale_b, 128, axis=0)[: len(b)].T / scale_a.shape[1])


@wrong("13.1", "divides", says="You divided by the scales")
def divides(a, b, scale_a, scale_b):
    return block_by_block(a, b, 1 / scale_a, 1 / scale_b)


@wrong("13.1", "scales of the next block", says="takes the scales of its neighbour along K")
def next_scales(a, b, scale_a, scale_b):
    return block_by_block(a, b, np.roll(scale_a, -1, axis=1), np.roll(scale_b, -1, axis=1))


@wrong("13.1", "a weight row's own scale, clipped", says="rows 0 to 127 share one")
def clipped_rows(a, b, scale_a, scale_b):
    own = scale_b[np.minimum(np.arange(len(b)), len(scale_b) - 1)]
    return np.einsum("mkc,nkc,mk,nk->mn", a.reshape(len(a), -1, 128), b.reshape(len(b), -1, 128), scale_a, own)


@wrong("13.1", "overwrites", says="Only the last K block is in the result")
def overwrites(a, b, scale_a, scale_b):
    return block_by_block(a[:, -128:], b[:, -128:], scale_a[:, -1:], scale_b[:, -1:])


@wrong("13.1", "last block forgotten", says="The last K block is missing")
def forgets_the_last(a, b, scale_a, scale_b):
    return block_by_block(a[:, :-128], b[:, :-128], scale_a, scale_b)


@wrong("13.1", "1x128 on both sides, as the article", says="could not be broadcast")
def article(a, b, scale_a, scale_b):
    out = np.zeros((len(a), len(b)), np.float32)
    for k in range(scale_a.shape[1]):
        part = slice(128 * k, 128 * (k + 1))
        out += (a[:, part] @ b[:, part].T) * (scale_a[:, k : k + 1] * scale_b[:, k : k + 1].T)
    return out


@wrong("13.1", "scales the inputs in place", says="it must leave its inputs as they were")
def in_place(a, b, scale_a, scale_b):
    a *= scale_a.repeat(128, axis=1)
    b *= scale_b.repeat(128, axis=0)[: len(b)].repeat(128, axis=1)
    return a @ b.T


@wrong("13.1", "first weight scales for all rows", says="the scales of the first 128 rows")
def first_row_block(a, b, scale_a, scale_b):
    out = 0
    for k in range(scale_a.shape[1]):
        part = slice(128 * k, 128 * (k + 1))
        out = out + a[:, part] @ b[:, part].T * (scale_a[:, k : k + 1] * scale_b[0, k])
    return out


@wrong("13.1", "K is 256", says="Only the first two K blocks")
def k_is_256(a, b, scale_a, scale_b):
    weights = np.repeat(scale_b, 128, axis=0)[: len(b)]
    out = np.zeros((len(a), len(b)), np.float32)
    for k in range(min(2, scale_a.shape[1])):
        out += a[:, 128 * k : 128 * k + 128] @ b[:, 128 * k : 128 * k + 128].T * np.outer(scale_a[:, k], weights[:, k])
    return out


@wrong("13.1", "one scale a weight row, 1x128 on both sides", says="could not be broadcast")
def one_scale_a_row(a, b, scale_a, scale_b):
    out = np.zeros((len(a), len(b)), np.float32)
    for k in range(scale_a.shape[1]):
        part = slice(128 * k, 128 * (k + 1))
        out += (a[:, part] @ b[:, part].T) * (scale_a[:, k, None] * np.resize(scale_b[:, k], (1, 128)))
    return out


@wrong("13.1", "scales added instead of multiplied", says="out[m 0, n 0] is")
def scales_added(a, b, scale_a, scale_b):
    weights = np.repeat(scale_b, 128, axis=0)[: len(b)]
    out = np.zeros((len(a), len(b)), np.float32)
    for k in range(scale_a.shape[1]):
        part = slice(128 * k, 128 * (k + 1))
        out += a[:, part] @ b[:, part].T * (scale_a[:, k, None] + weights[:, k])
    return out


@wrong("13.1", "b as [K, N]", says="raised ValueError")
def not_transposed(a, b, scale_a, scale_b):
    return a @ b


@wrong("13.1", "summed in double precision and left so", says="has dtype float64; expected float32")
def double(a, b, scale_a, scale_b):
    return scaled_first(a.astype(np.float64), b, scale_a, scale_b)


@wrong("13.1", "the library's own", says="write that yourself")
def library(a, b, scale_a, scale_b):
    return gemm.gemm_nt(gemm.Operand(fp8.encode_e4m3(a), scale_a), gemm.Operand(fp8.encode_e4m3(b), scale_b))
