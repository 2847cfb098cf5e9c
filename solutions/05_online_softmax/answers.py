"""Right and wrong answers to assignment 05."""

import itertools
import math

import numpy as np
import torch

from mlacademy import softmax
from mlacademy.grading.answers import right, wrong

LOG2E = math.log2(math.e)


# 05.1


@right("05.1", "with a floor under the max")
def softmax_base2(scores, scale):
    x = scores * scale * LOG2E
    top = max(x.max(), -1e30)
    w = np.exp2(x - top)
    total = w.sum()
    with np.errstate(divide="ignore"):
        return (w / total if total else w), np.log2(total) + top


@right("05.1", "token by token")
def softmax_base2_loops(scores, scale):
    if all(s == -math.inf for s in scores):
        return np.zeros(len(scores)), -math.inf
    top = max(scores)
    w = [2.0 ** ((s - top) * scale * LOG2E) for s in scores]
    return np.array([one / sum(w) for one in w]), math.log2(sum(w)) + top * scale * LOG2E


@wrong("05.1", "2 to the scaled score", says="log2 e is missing")
def softmax_base2_no_log2e(scores, scale):
    return softmax_base2(scores, scale / LOG2E)


@wrong("05.1", "divides by log2 e", says="You divided by log2 e")
def softmax_base2_over_log2e(scores, scale):
    return softmax_base2(scores, scale / LOG2E**2)


@wrong("05.1", "scales twice", says="The scale entered twice")
def softmax_base2_twice(scores, scale):
    return softmax_base2(scores * scale, scale)


@wrong("05.1", "forgets the scale", says="You left out scale")
def softmax_base2_unscaled(scores, scale):
    return softmax_base2(scores, 1.0)


@wrong("05.1", "no max", says="Without subtracting the max")
def softmax_base2_unsafe(scores, scale):
    with np.errstate(all="ignore"):
        w = np.exp2(scores * scale * LOG2E)
        total = w.sum()
        return (w / total if np.isfinite(scores).any() else w), np.log2(total)


@wrong("05.1", "no care for a row of holes", says="A row of holes became NaN")
def softmax_base2_empty(scores, scale):
    x = scores * scale * LOG2E
    w = np.exp2(x - x.max())
    return w / w.sum(), np.log2(w.sum()) + x.max()


@wrong("05.1", "the final mark for a row of holes", says="+∞ is the mark of an empty row in a *final* lse")
def softmax_base2_plus(scores, scale):
    weights, lse = softmax_base2(scores, scale)
    return weights, math.inf if lse == -math.inf else lse


@wrong("05.1", "natural log-sum-exp", says="your log-sum-exp is a natural logarithm")
def softmax_base2_natural(scores, scale):
    weights, lse = softmax_base2(scores, scale)
    return weights, lse / LOG2E


@wrong("05.1", "relative log-sum-exp", says="add back what you subtracted")
def softmax_base2_relative(scores, scale):
    if not np.isfinite(scores).any():
        return np.zeros(len(scores)), -math.inf
    weights, _ = softmax_base2(scores, scale)
    return weights, np.log2(1 / weights.max())


@wrong("05.1", "weights that do not sum to 1", says="do not sum to 1")
def softmax_base2_raw(scores, scale):
    weights, lse = softmax_base2(scores, scale)
    return (weights / weights.max() if weights.any() else weights), lse


@wrong("05.1", "torch's softmax", says="torch.softmax")
def softmax_base2_torch(scores, scale):
    x = torch.from_numpy(scores) * scale
    return torch.softmax(x, dim=0).numpy(), float(torch.logsumexp(x, dim=0)) * LOG2E


@right("05.1", "in torch, converted from natural units")
def softmax_base2_from_natural(scores, scale):
    s = torch.from_numpy(scores)
    if torch.isneginf(s).all():
        return torch.zeros_like(s), -math.inf
    w = torch.exp(scale * (s - s.max()))
    return w / w.sum(), (torch.log(w.sum()) + scale * s.max()) / math.log(2)


@wrong("05.1", "in float32", says="pass through float32")
def softmax_base2_float32(scores, scale):
    return softmax_base2(scores.astype(np.float32), np.float32(scale))


@wrong("05.1", "a list of weights", says="An output is a Python list")
def softmax_base2_list(scores, scale):
    weights, lse = softmax_base2(scores, scale)
    return list(weights), lse


@wrong("05.1", "leaves holes out", says="no entry for a hole")
def softmax_base2_dropped(scores, scale):
    kept = scores[scores > -np.inf]
    return softmax_base2(kept, scale) if kept.size else (kept, -np.inf)


@wrong("05.1", "holes as a large negative number", says="every hole got the same weight")
def softmax_base2_finite_holes(scores, scale):
    x = np.where(np.isneginf(scores), -1e30, scores * scale * LOG2E)
    w = np.exp2(x - x.max())
    return w / w.sum(), np.log2(w.sum()) + x.max()


@wrong("05.1", "zero for an empty sum", says="the logarithm of an empty sum")
def softmax_base2_zero(scores, scale):
    weights, lse = softmax_base2(scores, scale)
    return weights, 0.0 if lse == -math.inf else lse


@wrong("05.1", "the raw max with scaled scores", says="the max of the raw scores")
def softmax_base2_raw_max(scores, scale):
    if np.isneginf(scores).all():
        return np.zeros_like(scores), -np.inf
    with np.errstate(all="ignore"):
        w = np.exp2(scores * scale * LOG2E - scores.max())
        return w / w.sum(), np.log2(w.sum()) + scores.max()


@wrong("05.1", "adds the raw max back", says="you added the max of the raw scores")
def softmax_base2_raw_back(scores, scale):
    weights, lse = softmax_base2(scores, scale)
    return weights, lse - max(scores.max() * scale * LOG2E, -1e30) + scores.max() if lse > -np.inf else lse


@wrong("05.1", "subtracts the max twice", says="with a minus")
def softmax_base2_minus(scores, scale):
    weights, lse = softmax_base2(scores, scale)
    return weights, lse - 2 * scores.max() * scale * LOG2E if lse > -np.inf else lse


@wrong("05.1", "ln of the sum plus the base-2 max", says="a natural logarithm and a max in base 2")
def softmax_base2_mixed(scores, scale):
    weights, lse = softmax_base2(scores, scale)
    top = scores.max() * scale * LOG2E
    return weights, (lse - top) / LOG2E + top if lse > -np.inf else lse


@wrong("05.1", "e to base-2 exponents", says="log2 e then counts twice")
def softmax_base2_e(scores, scale):
    if np.isneginf(scores).all():
        return np.zeros_like(scores), -np.inf
    x = scores * scale * LOG2E
    w = np.exp(x - x.max())
    return w / w.sum(), np.log2(w.sum()) + x.max()


# 05.2


@right("05.2", "in NumPy")
def online_step(M, L, o, x, v):
    new_M = max(M, x.max())
    rescale, w = 2.0 ** (M - new_M), np.exp2(x - new_M)
    return new_M, L * rescale + w.sum(), o * rescale + w @ v


@right("05.2", "token by token")
def online_step_loops(M, L, o, x, v):
    o = o.copy()
    for score, value in zip(x, v, strict=True):
        if score > M:
            factor = 2.0 ** (M - score)
            M, L, o = score, L * factor, o * factor
        L += 2.0 ** (score - M)
        o += 2.0 ** (score - M) * value
    return M, L, o


@wrong("05.2", "reversed exponent", says="It must be 2^(old − new)")
def online_step_reversed(M, L, o, x, v):
    new_M = max(M, x.max())
    with np.errstate(over="ignore", invalid="ignore"):
        rescale, w = np.exp2(new_M - M), np.exp2(x - new_M)
        return new_M, L * rescale + w.sum(), o * rescale + w @ v


@wrong("05.2", "never rescales", says="L and o were not rescaled")
def online_step_kept(M, L, o, x, v):
    new_M = max(M, x.max())
    w = np.exp2(x - new_M)
    return new_M, L + w.sum(), o + w @ v


@wrong("05.2", "rescales only the sum", says="L was rescaled, o was not")
def online_step_o_kept(M, L, o, x, v):
    new_M = max(M, x.max())
    w = np.exp2(x - new_M)
    return new_M, L * 2.0 ** (M - new_M) + w.sum(), o + w @ v


@wrong("05.2", "weights from the block's own max", says="from the block's own max")
def online_step_own(M, L, o, x, v):
    new_M = max(M, x.max())
    with np.errstate(invalid="ignore"):
        w = np.exp2(x - x.max())
    return new_M, L * 2.0 ** (M - new_M) + w.sum(), o * 2.0 ** (M - new_M) + w @ v


@wrong("05.2", "the block's max is the new max", says="the block's max as the new running max")
def online_step_block(M, L, o, x, v):
    top = x.max()
    with np.errstate(all="ignore"):
        rescale, w = np.exp2(M - top), np.exp2(x - top)
        return top, L * rescale + w.sum(), o * rescale + w @ v


@wrong("05.2", "base e", says="You used e as the base")
def online_step_natural(M, L, o, x, v):
    new_M = max(M, x.max())
    rescale, w = np.exp(M - new_M), np.exp(x - new_M)
    return new_M, L * rescale + w.sum(), o * rescale + w @ v


@wrong("05.2", "divides at once", says="You divided o by L inside the step")
def online_step_divided(M, L, o, x, v):
    M, L, o = online_step(M, L, o, x, v)
    with np.errstate(invalid="ignore"):
        return M, L, o / L


@wrong("05.2", "forgets to return o", says="expected 3: M, L, o")
def online_step_two(M, L, o, x, v):
    return online_step(M, L, o, x, v)[:2]


@wrong("05.2", "the library's two passes", says="mlacademy.softmax")
def online_step_library(M, L, o, x, v):
    got = softmax.online_softmax(torch.from_numpy(x), torch.from_numpy(v), scale=1 / LOG2E, round_s=False)
    step = got.steps[-1]
    new_M = max(M, float(step.running_max))
    part, old = 2.0 ** (float(step.running_max) - new_M), 2.0 ** (M - new_M)
    total = float(step.running_sum) * part
    return new_M, L * old + total, o * old + got.out.numpy() * total


@wrong("05.2", "in float32", says="pass through float32")
def online_step_float32(M, L, o, x, v):
    M, L, o = online_step(np.float32(M), np.float32(L), o.astype(np.float32), x.astype(np.float32), v)
    return M, L, o.astype(np.float32)


@wrong("05.2", "measures from the old max", says="before the first block the old max is −1e30")
def online_step_late(M, L, o, x, v):
    new_M = max(M, x.max())
    with np.errstate(all="ignore"):
        w, rescale = np.exp2(x - M), np.exp2(M - new_M)
        return new_M, (L + w.sum()) * rescale, (o + w @ v) * rescale


@wrong("05.2", "rescales the block", says="You multiplied the block by the factor")
def online_step_new(M, L, o, x, v):
    new_M = max(M, x.max())
    rescale, w = 2.0 ** (M - new_M), np.exp2(x - new_M)
    return new_M, L + w.sum() * rescale, o + w @ v * rescale


@wrong("05.2", "rescales everything", says="The factor multiplied the block as well")
def online_step_all(M, L, o, x, v):
    new_M = max(M, x.max())
    rescale, w = 2.0 ** (M - new_M), np.exp2(x - new_M)
    return new_M, (L + w.sum()) * rescale, (o + w @ v) * rescale


@wrong("05.2", "keeps the block alone", says="The old L and o are gone")
def online_step_forgotten(M, L, o, x, v):
    new_M = max(M, x.max())
    w = np.exp2(x - new_M)
    return new_M, w.sum(), w @ v


@wrong("05.2", "forgets the old output", says="the old o is gone")
def online_step_o_forgotten(M, L, o, x, v):
    M, L, _ = online_step(M, L, o, x, v)
    return M, L, np.exp2(x - M) @ v


@wrong("05.2", "starts again after a block of holes", says="A block of holes set L and o to 0")
def online_step_reset(M, L, o, x, v):
    return (M, 0.0, np.zeros_like(o)) if np.isneginf(x).all() else online_step(M, L, o, x, v)


@wrong("05.2", "multiplies by log2 e again", says="You multiplied x by log2 e")
def online_step_again(M, L, o, x, v):
    return online_step(M, L, o, x * LOG2E, v)


@wrong("05.2", "holes as a large negative number", says="every hole got the weight 1")
def online_step_finite_holes(M, L, o, x, v):
    return online_step(M, L, o, np.maximum(x, -1e30), v)


# 05.3


@right("05.3", "by calling the online step head by head")
def stream_attention(scores, values, scale, block):
    h, n = scores.shape
    out, lse, sums = np.zeros((h, values.shape[1])), np.full(h, np.inf), []
    state = [(-1e30, 0.0, np.zeros(values.shape[1])) for _ in range(h)]
    for i in range(0, n, block):
        x = scores[:, i : i + block] * scale * LOG2E
        state = [online_step(*state[head], x[head], values[i : i + block]) for head in range(h)]
        sums.append([L for _, L, _ in state])
    for head, (M, L, o) in enumerate(state):
        if L > 0:
            out[head], lse[head] = o / L, np.log(L) + M / LOG2E
    return out, lse, np.array(sums)


@right("05.3", "all heads at once")
def stream_attention_arrays(scores, values, scale, block):
    M, L, o = np.full(len(scores), -1e30), np.zeros(len(scores)), np.zeros((len(scores), values.shape[1]))
    sums = np.zeros((-(-scores.shape[1] // block), len(scores)))
    for number in range(len(sums)):
        tokens = slice(number * block, (number + 1) * block)
        x = scores[:, tokens] * (scale * LOG2E)
        new_M = np.maximum(M, x.max(axis=1))
        w, rescale = np.exp2(x - new_M[:, None]), np.exp2(M - new_M)
        M, L, o = new_M, L * rescale + w.sum(axis=1), o * rescale[:, None] + w @ values[tokens]
        sums[number] = L
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(L[:, None] > 0, o / L[:, None], 0), np.where(L > 0, (np.log2(L) + M) / LOG2E, np.inf), sums


def streamed(scores, values, scale, block, *, start=-1e30, rescale=lambda old, new: np.exp2(old - new)):
    """The right loop with two places to go wrong in; returns the state at the end and the sums."""
    M, L, o = np.full(len(scores), start), np.zeros(len(scores)), np.zeros((len(scores), values.shape[1]))
    sums = []
    with np.errstate(all="ignore"):
        for i in range(0, scores.shape[1], block):
            x = scores[:, i : i + block] * (scale * LOG2E)
            new_M = np.maximum(M, x.max(axis=1))
            w, factor = np.exp2(x - new_M[:, None]), rescale(M, new_M)
            M, L, o = new_M, L * factor + w.sum(axis=1), o * factor[:, None] + w @ values[i : i + block]
            sums.append(L)
    return M, L, o, np.array(sums)


@wrong("05.3", "starts the max at minus infinity", says="Your running max starts at −∞")
def stream_attention_minus_infinity(scores, values, scale, block):
    M, L, o, sums = streamed(scores, values, scale, block, start=-np.inf)
    with np.errstate(all="ignore"):
        return o / L[:, None], (np.log2(L) + M) / LOG2E, sums


@wrong("05.3", "starts the max at 0", says="Your running max starts at 0")
def stream_attention_from_zero(scores, values, scale, block):
    M, L, o, sums = streamed(scores, values, scale, block, start=0.0)
    with np.errstate(all="ignore"):
        out = np.where(L[:, None] > 0, o / L[:, None], 0)
        return out, np.where(L > 0, (np.log2(L) + M) / LOG2E, np.inf), sums


@wrong("05.3", "reversed exponent", says="It must be 2^(old − new)")
def stream_attention_reversed(scores, values, scale, block):
    M, L, o, sums = streamed(scores, values, scale, block, rescale=lambda old, new: np.exp2(new - old))
    with np.errstate(all="ignore"):
        out = np.where(L[:, None] == 0, 0, o / L[:, None])
        return out, np.where(L == 0, np.inf, (np.log2(L) + M) / LOG2E), sums


@wrong("05.3", "never rescales", says="Nothing is rescaled")
def stream_attention_never(scores, values, scale, block):
    M, L, o, sums = streamed(scores, values, scale, block, rescale=lambda old, new: np.ones_like(new))
    with np.errstate(all="ignore"):
        out = np.where(L[:, None] > 0, o / L[:, None], 0)
        return out, np.where(L > 0, (np.log2(L) + M) / LOG2E, np.inf), sums


@wrong("05.3", "drops the last block", says="you left it out")
def stream_attention_dropped(scores, values, scale, block):
    whole = scores.shape[1] // block * block
    return stream_attention_arrays(scores[:, :whole], values[:whole], scale, block)


@wrong("05.3", "no care for a head of holes", says="0 / 0 is NaN")
def stream_attention_no_guard(scores, values, scale, block):
    M, L, o, sums = streamed(scores, values, scale, block)
    with np.errstate(all="ignore"):
        return o / L[:, None], (np.log2(L) + M) / LOG2E, sums


@wrong("05.3", "one max for all heads", says="one max for all heads")
def stream_attention_one_max(scores, values, scale, block):
    M, L, o, sums = -1e30, np.zeros(len(scores)), np.zeros((len(scores), values.shape[1])), []
    for i in range(0, scores.shape[1], block):
        x = scores[:, i : i + block] * (scale * LOG2E)
        new_M = max(M, x.max())
        w = np.exp2(x - new_M)
        L, o = L * 2.0 ** (M - new_M) + w.sum(axis=1), o * 2.0 ** (M - new_M) + w @ values[i : i + block]
        M = new_M
        sums.append(L)
    with np.errstate(all="ignore"):
        out = np.where(L[:, None] > 0, o / L[:, None], 0)
        return out, np.where(L > 0, (np.log2(L) + M) / LOG2E, np.inf), np.array(sums)


@wrong("05.3", "log-sum-exp in base 2", says="Your lse is in base 2")
def stream_attention_base2(scores, values, scale, block):
    out, lse, sums = stream_attention_arrays(scores, values, scale, block)
    return out, lse * LOG2E, sums


@wrong("05.3", "natural logarithm plus base-2 max", says="adds ln L (natural) and M (base 2)")
def stream_attention_mixed(scores, values, scale, block):
    M, L, o, sums = streamed(scores, values, scale, block)
    with np.errstate(all="ignore"):
        return np.where(L[:, None] > 0, o / L[:, None], 0), np.where(L > 0, np.log(L) + M, np.inf), sums


@wrong("05.3", "no log2 e", says="scale · log2 e")
def stream_attention_no_log2e(scores, values, scale, block):
    return stream_attention_arrays(scores, values, scale / LOG2E, block)


@wrong("05.3", "the library's own", says="mlacademy.softmax")
def stream_attention_library(scores, values, scale, block):
    got = softmax.online_softmax(
        torch.from_numpy(scores), torch.from_numpy(values), scale=scale, block=block, round_s=False
    )
    sums = torch.stack([step.running_sum for step in got.steps])
    return got.out.numpy(), got.lse.numpy(), sums.numpy()


@wrong("05.3", "in float32", says="pass through float32")
def stream_attention_float32(scores, values, scale, block):
    return stream_attention_arrays(scores.astype(np.float32), values.astype(np.float32), np.float32(scale), block)


@wrong("05.3", "a list of sums", says="An output is a Python list")
def stream_attention_list(scores, values, scale, block):
    out, lse, sums = stream_attention_arrays(scores, values, scale, block)
    return out, lse, list(sums)


@wrong("05.3", "records the block's own sum", says="each block's own sum")
def stream_attention_block_sums(scores, values, scale, block):
    out, lse, sums = stream_attention_arrays(scores, values, scale, block)
    x = scores * (scale * LOG2E)
    for number in range(len(sums)):
        running = np.maximum(x[:, : (number + 1) * block].max(axis=1), -1e30)
        sums[number] = np.exp2(x[:, number * block : (number + 1) * block] - running[:, None]).sum(axis=1)
    return out, lse, sums


@wrong("05.3", "two passes", says="measured from the max of the whole row")
def stream_attention_two_passes(scores, values, scale, block):
    out, lse, _ = stream_attention_arrays(scores, values, scale, block)
    x = scores * (scale * LOG2E)
    w = np.exp2(x - np.maximum(x.max(axis=1), -1e30)[:, None])
    ends = range(block, scores.shape[1] + block, block)
    return out, lse, np.array([w[:, :end].sum(axis=1) for end in ends])


@wrong("05.3", "divides after every block", says="You divided by L after every block")
def stream_attention_each(scores, values, scale, block):
    _, lse, sums = stream_attention_arrays(scores, values, scale, block)
    M, o = np.full(len(scores), -1e30), np.zeros((len(scores), values.shape[1]))
    for number, L in enumerate(sums):
        tokens = slice(number * block, (number + 1) * block)
        x = scores[:, tokens] * (scale * LOG2E)
        new_M = np.maximum(M, x.max(axis=1))
        o = o * np.exp2(M - new_M)[:, None] + np.exp2(x - new_M[:, None]) @ values[tokens]
        M, o = new_M, np.divide(o, L[:, None], out=np.zeros_like(o), where=L[:, None] > 0)
    return o, lse, sums


@wrong("05.3", "never keeps the new max", says="the running max itself never changes")
def stream_attention_m_kept(scores, values, scale, block):
    M, L, o, sums = np.full(len(scores), -1e30), np.zeros(len(scores)), np.zeros((len(scores), values.shape[1])), []
    for i in range(0, scores.shape[1], block):
        x = scores[:, i : i + block] * (scale * LOG2E)
        new_M = np.maximum(M, x.max(axis=1))
        w, rescale = np.exp2(x - new_M[:, None]), np.exp2(M - new_M)
        L, o = L * rescale + w.sum(axis=1), o * rescale[:, None] + w @ values[i : i + block]
        sums.append(L)
    with np.errstate(all="ignore"):
        out = np.where(L[:, None] > 0, o / L[:, None], 0)
        return out, np.where(L > 0, (np.log2(L) + new_M) / LOG2E, np.inf), np.array(sums)


@wrong("05.3", "fills up with scores of 0", says="A score of 0 is a token like any other")
def stream_attention_padded(scores, values, scale, block):
    extra = -scores.shape[1] % block
    scores, values = np.pad(scores, ((0, 0), (0, extra))), np.pad(values, ((0, extra), (0, 0)))
    return stream_attention_arrays(scores, values, scale, block)


@wrong("05.3", "holes as a large negative number", says="every hole got the weight 1")
def stream_attention_finite_holes(scores, values, scale, block):
    return stream_attention_arrays(np.maximum(scores, -1e30), values, scale, block)


@wrong("05.3", "scales twice", says="The scale entered twice")
def stream_attention_scaled_twice(scores, values, scale, block):
    return stream_attention_arrays(scores * scale, values, scale, block)


@wrong("05.3", "multiplies the max by log2 e", says="out and sums are right, lse is not")
def stream_attention_wrong_way(scores, values, scale, block):
    M, L, o, sums = streamed(scores, values, scale, block)
    with np.errstate(all="ignore"):
        return np.where(L[:, None] > 0, o / L[:, None], 0), np.where(L > 0, np.log(L) + M * LOG2E, np.inf), sums


@wrong("05.3", "a head of holes has lse 0", says="All heads with tokens are right")
def stream_attention_zero(scores, values, scale, block):
    out, lse, sums = stream_attention_arrays(scores, values, scale, block)
    return out, np.where(np.isposinf(lse), 0.0, lse), sums


# 05.4


@right("05.4", "in a loop")
def lazy_maxima(block_maxima, lag):
    M, maxima, moves = -1e30, [], 0
    for top in block_maxima:
        if top > M + lag:
            M, moves = top, moves + 1
        maxima.append(M)
    return maxima, moves


@right("05.4", "by looking at the changes afterwards")
def lazy_maxima_changes(block_maxima, lag):
    maxima = [-1e30]
    for top in block_maxima:
        maxima.append(max(maxima[-1], top if top - lag > maxima[-1] else -math.inf))
    return maxima[1:], sum(one != other for one, other in itertools.pairwise(maxima))


@wrong("05.4", "moves at the limit", says="You moved at exactly the limit")
def lazy_maxima_at_limit(block_maxima, lag):
    return lazy_maxima(block_maxima, math.nextafter(lag, -math.inf) if lag else -1e-9)


@wrong("05.4", "moves at every new max", says="You moved at every new max")
def lazy_maxima_eager(block_maxima, lag):
    return lazy_maxima(block_maxima, 0.0)


@wrong("05.4", "compares with the true max", says="You compared with the true max so far")
def lazy_maxima_true(block_maxima, lag):
    M, true, maxima, moves = -1e30, -1e30, [], 0
    for top in block_maxima:
        if top > true + lag:
            M, moves = top, moves + 1
        true = max(true, top)
        maxima.append(M)
    return maxima, moves


@wrong("05.4", "does not count the first move", says="You did not count the first move")
def lazy_maxima_first_free(block_maxima, lag):
    maxima, moves = lazy_maxima(block_maxima, lag)
    return maxima, moves - (block_maxima[0] > -1e30)


@wrong("05.4", "starts at 0", says="Your M starts at 0")
def lazy_maxima_from_zero(block_maxima, lag):
    M, maxima, moves = 0.0, [], 0
    for top in block_maxima:
        if top > M + lag:
            M, moves = top, moves + 1
        maxima.append(M)
    return maxima, moves


@wrong("05.4", "starts at minus infinity", says="Your M starts at −∞")
def lazy_maxima_minus_infinity(block_maxima, lag):
    M, maxima, moves = -math.inf, [], 0
    for top in block_maxima:
        if top > M + lag:
            M, moves = top, moves + 1
        maxima.append(M)
    return maxima, moves


@wrong("05.4", "compares with the block before", says="You compared with the block before")
def lazy_maxima_previous(block_maxima, lag):
    M, maxima, moves = -1e30, [], 0
    for before, top in zip([-1e30, *block_maxima], block_maxima, strict=False):
        if top > before + lag:
            M, moves = top, moves + 1
        maxima.append(M)
    return maxima, moves


@wrong("05.4", "moves by the lag", says="all the way to the block's max, not by the lag")
def lazy_maxima_creeps(block_maxima, lag):
    M, maxima, moves = -1e30, [], 0
    for top in block_maxima:
        if top > M + lag:
            M, moves = M + lag, moves + 1
        maxima.append(M)
    return maxima, moves


@wrong("05.4", "notes M before the block", says="holds the M before each block")
def lazy_maxima_early(block_maxima, lag):
    maxima, moves = lazy_maxima(block_maxima, lag)
    return [-1e30, *maxima[:-1]], moves


@wrong("05.4", "notes the moves alone", says="an entry only where M moved")
def lazy_maxima_moves_only(block_maxima, lag):
    maxima, moves = lazy_maxima(block_maxima, lag)
    return [after for before, after in itertools.pairwise([-1e30, *maxima]) if after != before], moves


@wrong("05.4", "notes the true max", says="holds the true max so far")
def lazy_maxima_true_recorded(block_maxima, lag):
    return list(itertools.accumulate([-1e30, *block_maxima], max))[1:], lazy_maxima(block_maxima, lag)[1]


@wrong("05.4", "the library's running max", says="mlacademy.softmax")
def lazy_maxima_library(block_maxima, lag):
    scores = torch.tensor(block_maxima, dtype=torch.float64)
    got = softmax.online_softmax(
        scores, torch.zeros(len(scores), 1).double(), scale=1 / LOG2E, block=1, rescale_above=lag
    )
    return [float(step.running_max) for step in got.steps], sum(int(step.rescale != 1) for step in got.steps)
