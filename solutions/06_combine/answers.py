"""Right and wrong answers to assignment 06."""

import itertools
import math

import numpy as np
import torch

from mlacademy import softmax
from mlacademy.grading.answers import right, wrong

LOG2E = math.log2(math.e)


# 06.1


@right("06.1", "in NumPy")
def partial_result(x, v):
    if not np.isfinite(x).any():
        return np.zeros(v.shape[1]), -np.inf
    w = np.exp2(x - x.max())
    return w @ v / w.sum(), np.log2(w.sum()) + x.max()


@right("06.1", "token by token, online")
def partial_result_online(x, v):
    M, L, o = -math.inf, 0.0, np.zeros(v.shape[1])
    for score, value in zip(x.tolist(), v, strict=True):
        if score == -math.inf:
            continue
        new = max(M, score)
        old = 2.0 ** (M - new)
        w = 2.0 ** (score - new)
        M, L, o = new, L * old + w, o * old + w * value
    return (o / L, math.log2(L) + M) if L else (o, -math.inf)


@wrong("06.1", "no max", says="Without subtracting the max")
def partial_result_unsafe(x, v):
    if not np.isfinite(x).any():
        return np.zeros(v.shape[1]), -np.inf
    with np.errstate(all="ignore"):
        w = np.exp2(x)
        return w @ v / w.sum(), np.log2(w.sum())


@wrong("06.1", "no care for holes alone", says="A split of holes became NaN")
def partial_result_empty(x, v):
    with np.errstate(invalid="ignore"):
        w = np.exp2(x - x.max())
    return w @ v / w.sum(), np.log2(w.sum()) + x.max()


@wrong("06.1", "the final mark", says="A split of holes reports −∞")
def partial_result_plus(x, v):
    o, lse = partial_result(x, v)
    return o, math.inf if lse == -math.inf else lse


@wrong("06.1", "not normalised", says="A partial output is normalised")
def partial_result_sum(x, v):
    o, lse = partial_result(x, v)
    return (o * 2.0 ** (lse - x.max()) if lse > -math.inf else o), lse


@wrong("06.1", "natural log-sum-exp", says="Your log-sum-exp is natural")
def partial_result_natural(x, v):
    o, lse = partial_result(x, v)
    return o, lse / LOG2E


@wrong("06.1", "base e", says="You used e as the base")
def partial_result_base_e(x, v):
    if not np.isfinite(x).any():
        return np.zeros(v.shape[1]), -np.inf
    w = np.exp(x - x.max())
    return w @ v / w.sum(), np.log2(w.sum()) + x.max()


@wrong("06.1", "forgets the max", says="lacks the max that you subtracted")
def partial_result_relative(x, v):
    o, lse = partial_result(x, v)
    return o, lse - x.max() if lse > -math.inf else lse


@wrong("06.1", "returns the max", says="You returned the max")
def partial_result_max(x, v):
    return partial_result(x, v)[0], float(x.max())


@wrong("06.1", "the library's online softmax", says="mlacademy.softmax")
def partial_result_library(x, v):
    got = softmax.online_softmax(torch.from_numpy(x), torch.from_numpy(v), scale=1 / LOG2E, round_s=False)
    return got.out.numpy(), float(got.lse_log2)


@wrong("06.1", "in float32", says="pass through float32")
def partial_result_float32(x, v):
    return partial_result(x.astype(np.float32), v.astype(np.float32))


@wrong("06.1", "holes as a large negative number", says="every hole weighed as much as the others")
def partial_result_finite_holes(x, v):
    return partial_result(np.maximum(x, -1e30), v)


@wrong("06.1", "multiplies by log2 e again", says="You multiplied x by log2 e")
def partial_result_again(x, v):
    return partial_result(x * LOG2E, v)


@wrong("06.1", "divides by the number of positions", says="You divided o by the number of positions")
def partial_result_counted(x, v):
    o, lse = partial_result(x, v)
    return (o * 2.0 ** (lse - x.max()) / len(x) if lse > -math.inf else o), lse


@wrong("06.1", "zero for an empty sum", says="the logarithm of an empty sum")
def partial_result_zero(x, v):
    o, lse = partial_result(x, v)
    return o, lse if lse > -math.inf else 0.0


@wrong("06.1", "ln of the sum plus the base-2 max", says="natural")
def partial_result_mixed(x, v):
    o, lse = partial_result(x, v)
    return o, (lse - x.max()) / LOG2E + x.max() if lse > -math.inf else lse


@wrong("06.1", "the sum itself", says="You returned the sum of weights")
def partial_result_weight(x, v):
    o, lse = partial_result(x, v)
    with np.errstate(over="ignore"):
        return o, np.exp2(lse)


# 06.2


@right("06.2", "all heads at once")
def merge(outs, lse_log2):
    top = lse_log2.max(axis=0)
    top = np.where(np.isneginf(top), 0.0, top)
    w = np.exp2(lse_log2 - top)
    total = w.sum(axis=0)
    out = (w[:, :, None] * outs).sum(axis=0) / np.where(total > 0, total, 1)[:, None]
    with np.errstate(divide="ignore"):
        return out, np.where(total > 0, (np.log2(total) + top) / LOG2E, np.inf)


@right("06.2", "pair by pair")
def merge_pairs(outs, lse_log2):
    out, lse = outs[0].copy(), lse_log2[0].copy()
    for o, other in zip(outs[1:], lse_log2[1:], strict=True):
        both = np.logaddexp2(lse, other)
        floor = np.where(np.isneginf(both), 0.0, both)
        out = out * np.exp2(lse - floor)[:, None] + o * np.exp2(other - floor)[:, None]
        lse = both
    return out, np.where(np.isneginf(lse), np.inf, lse / LOG2E)


@wrong("06.2", "averages", says="You averaged the splits. A split counts by the weight")
def merge_average(outs, lse_log2):
    return outs.mean(axis=0), merge(outs, lse_log2)[1]


@wrong("06.2", "powers of e", says="You raised e to the log-sum-exps")
def merge_natural(outs, lse_log2):
    return merge(outs, lse_log2 * LOG2E)


@wrong("06.2", "no max", says="overflows or underflows")
def merge_unsafe(outs, lse_log2):
    empty = np.isneginf(lse_log2).all(axis=0)
    with np.errstate(all="ignore"):
        w = np.exp2(lse_log2)
        out = (w[:, :, None] * outs).sum(axis=0) / w.sum(axis=0)[:, None]
        return np.where(empty[:, None], 0, out), np.where(empty, np.inf, np.log(w.sum(axis=0)))


@wrong("06.2", "one max for all heads", says="one max for all heads")
def merge_one_max(outs, lse_log2):
    w = np.exp2(lse_log2 - lse_log2.max())
    total = w.sum(axis=0)
    out = (w[:, :, None] * outs).sum(axis=0) / np.where(total > 0, total, 1)[:, None]
    with np.errstate(divide="ignore"):
        return out, np.where(total > 0, (np.log2(total) + lse_log2.max()) / LOG2E, np.inf)


@wrong("06.2", "weights that do not sum to 1", says="do not sum to 1")
def merge_relative(outs, lse_log2):
    top = lse_log2.max(axis=0)
    w = np.exp2(lse_log2 - np.where(np.isneginf(top), 0, top))
    return (w[:, :, None] * outs).sum(axis=0), merge(outs, lse_log2)[1]


@wrong("06.2", "no care for empty heads", says="became NaN")
def merge_empty(outs, lse_log2):
    with np.errstate(all="ignore"):
        top = lse_log2.max(axis=0)
        w = np.exp2(lse_log2 - top)
        total = w.sum(axis=0)
        return (w[:, :, None] * outs).sum(axis=0) / total[:, None], (np.log2(total) + top) / LOG2E


@wrong("06.2", "final lse in base 2", says="Your final lse is in base 2")
def merge_base2(outs, lse_log2):
    out, lse = merge(outs, lse_log2)
    return out, lse * LOG2E


@wrong("06.2", "the largest split's lse", says="Your final lse is the largest split's")
def merge_max(outs, lse_log2):
    out, lse = merge(outs, lse_log2)
    return out, np.where(np.isposinf(lse), np.inf, lse_log2.max(axis=0) / LOG2E)


@wrong("06.2", "minus infinity for an empty head", says="has the final lse +∞")
def merge_partial_mark(outs, lse_log2):
    out, lse = merge(outs, lse_log2)
    return out, np.where(np.isposinf(lse), -np.inf, lse)


@wrong("06.2", "the library's combine", says="mlacademy.softmax")
def merge_library(outs, lse_log2):
    out, lse = softmax.combine(torch.from_numpy(outs), torch.from_numpy(lse_log2))
    return out.numpy(), lse.numpy()


@right("06.2", "in torch, in natural units")
def merge_torch(outs, lse_log2):
    lse = torch.logsumexp(torch.from_numpy(lse_log2) / LOG2E, dim=0)
    empty = torch.isneginf(lse)
    weights = torch.exp(torch.from_numpy(lse_log2) / LOG2E - torch.where(empty, 0.0, lse))
    return (weights[..., None] * torch.from_numpy(outs)).sum(dim=0), torch.where(empty, math.inf, lse)


@wrong("06.2", "in float32", says="pass through float32")
def merge_float32(outs, lse_log2):
    return merge(outs.astype(np.float32), lse_log2.astype(np.float32))


@wrong("06.2", "the heaviest split alone", says="the heaviest split alone")
def merge_best(outs, lse_log2):
    return outs[lse_log2.argmax(axis=0), np.arange(lse_log2.shape[1])], merge(outs, lse_log2)[1]


@wrong("06.2", "adds the outputs", says="You added the outputs")
def merge_sum(outs, lse_log2):
    return outs.sum(axis=0), merge(outs, lse_log2)[1]


@wrong("06.2", "weights over the heads", says="sum to 1 over the heads")
def merge_over_heads(outs, lse_log2):
    with np.errstate(invalid="ignore"):
        w = np.nan_to_num(np.exp2(lse_log2 - lse_log2.max(axis=1, keepdims=True)))
    return ((w / w.sum(axis=1, keepdims=True))[:, :, None] * outs).sum(axis=0), merge(outs, lse_log2)[1]


@wrong("06.2", "one sum for all heads", says="You divided by the sum over all splits and heads")
def merge_over_all(outs, lse_log2):
    top = lse_log2.max(axis=0)
    w = np.exp2(lse_log2 - np.where(np.isneginf(top), 0, top))
    return (w[:, :, None] * outs).sum(axis=0) / w.sum(), merge(outs, lse_log2)[1]


@wrong("06.2", "weights proportional to the lse", says="proportional to the log-sum-exps")
def merge_by_lse(outs, lse_log2):
    with np.errstate(all="ignore"):
        w = lse_log2 / lse_log2.sum(axis=0)
        return (w[:, :, None] * outs).sum(axis=0), merge(outs, lse_log2)[1]


@wrong("06.2", "ln of the sum plus the base-2 max", says="adds a natural logarithm of the sum and a max in base 2")
def merge_mixed(outs, lse_log2):
    out, lse = merge(outs, lse_log2)
    with np.errstate(invalid="ignore"):
        top = lse_log2.max(axis=0)
        return out, np.where(np.isposinf(lse), lse, lse - top / LOG2E + top)


@wrong("06.2", "multiplies by log2 e", says="From base 2 to natural one divides by it")
def merge_wrong_way(outs, lse_log2):
    out, lse = merge(outs, lse_log2)
    return out, lse * LOG2E**2


@wrong("06.2", "an empty head has lse 0", says="All heads with tokens are right")
def merge_zero(outs, lse_log2):
    out, lse = merge(outs, lse_log2)
    return out, np.where(np.isposinf(lse), 0.0, lse)


# 06.3


@right("06.3", "with the sink as one more row")
def weights_with_sink(lse_log2, sink):
    _, lse = merge(np.zeros((*lse_log2.shape, 1)), lse_log2)
    rows = np.vstack([lse_log2, sink * LOG2E])
    top = rows.max(axis=0)
    w = np.exp2(rows - np.where(np.isinf(top), 0, top))
    total = w.sum(axis=0)
    with np.errstate(invalid="ignore"):
        weights = w[:-1] / np.where(total > 0, total, 1)
    return np.where(np.isposinf(sink), 0.0, weights), lse


@right("06.3", "split weights times the share that is kept")
def weights_with_sink_share(lse_log2, sink):
    weights, lses = np.zeros(lse_log2.shape), np.full(len(sink), np.inf)
    for head, one in enumerate(sink):
        mine = lse_log2[:, head]
        if np.isneginf(mine).all():
            continue
        w = np.exp2(mine - mine.max())
        lses[head] = math.log(w.sum()) + mine.max() / LOG2E
        difference = one - lses[head]
        kept = 1 / (1 + math.exp(difference)) if difference < 700 else 0.0
        weights[:, head] = w / w.sum() * kept
    return weights, lses


@wrong("06.3", "ignores the sink", says="Your weights sum to 1")
def weights_with_sink_ignored(lse_log2, sink):
    return weights_with_sink(lse_log2, np.full_like(sink, -np.inf))


@wrong("06.3", "sink taken as base 2", says="You used the sink as a base-2 number")
def weights_with_sink_base2(lse_log2, sink):
    return weights_with_sink(lse_log2, sink / LOG2E)


@wrong("06.3", "sink divided by log2 e", says="You divided the sink by log2 e")
def weights_with_sink_over(lse_log2, sink):
    return weights_with_sink(lse_log2, sink / LOG2E**2)


@wrong("06.3", "a sink for every split", says="You gave every split a sink of its own")
def weights_with_sink_each(lse_log2, sink):
    own = np.vstack([weights_with_sink(row[None], sink)[0] for row in lse_log2])
    alone, lse = weights_with_sink_ignored(lse_log2, sink)
    return own * alone, lse


@wrong("06.3", "once in the splits and once in the merge", says="again in the merge")
def weights_with_sink_twice(lse_log2, sink):
    own = np.vstack([weights_with_sink(row[None], sink)[0] for row in lse_log2])
    weights, lse = weights_with_sink(lse_log2, sink)
    return own * weights, lse


@wrong("06.3", "sink in the lse", says="your lse contains the sink")
def weights_with_sink_inside(lse_log2, sink):
    weights, lse = weights_with_sink(lse_log2, sink)
    return weights, np.where(np.isposinf(lse), lse, np.logaddexp(lse, sink))


@wrong("06.3", "no max", says="overflow or underflow as powers")
def weights_with_sink_unsafe(lse_log2, sink):
    _, lse = weights_with_sink(lse_log2, sink)
    with np.errstate(all="ignore"):
        return np.exp2(lse_log2) / (np.exp2(lse_log2).sum(axis=0) + np.exp(sink)), lse


@wrong("06.3", "no care for infinities", says="An infinity met an infinity")
def weights_with_sink_nan(lse_log2, sink):
    top = np.maximum(lse_log2.max(axis=0), sink * LOG2E)
    with np.errstate(all="ignore"):
        w = np.exp2(lse_log2 - top)
        total = w.sum(axis=0) + np.exp2(sink * LOG2E - top)
        return w / total, weights_with_sink(lse_log2, sink)[1]


@wrong("06.3", "the library's weights", says="mlacademy.softmax")
def weights_with_sink_library(lse_log2, sink):
    weights = softmax.combine_weights(torch.from_numpy(lse_log2), torch.from_numpy(sink))
    return weights.numpy(), weights_with_sink(lse_log2, sink)[1]


@wrong("06.3", "in float32", says="pass through float32")
def weights_with_sink_float32(lse_log2, sink):
    return weights_with_sink(lse_log2.astype(np.float32), sink.astype(np.float32))


@wrong("06.3", "e to the base-2 log-sum-exps", says="You raised e to lse_log2")
def weights_with_sink_natural(lse_log2, sink):
    return weights_with_sink(lse_log2 * LOG2E, sink)[0], weights_with_sink(lse_log2, sink)[1]


@wrong("06.3", "natural throughout", says="You took lse_log2 for a natural log-sum-exp")
def weights_with_sink_all_natural(lse_log2, sink):
    return weights_with_sink(lse_log2 * LOG2E, sink)


@wrong("06.3", "the sink's weight as one more row", says="the sink's own weight as one more row")
def weights_with_sink_row(lse_log2, sink):
    weights, lse = weights_with_sink(lse_log2, sink)
    return np.vstack([weights, 1 - weights.sum(axis=0)]), lse


@wrong("06.3", "subtracts the sink's term", says="You subtracted the sink's term")
def weights_with_sink_subtracted(lse_log2, sink):
    weights, lse = weights_with_sink_ignored(lse_log2, sink)
    with np.errstate(all="ignore"):
        return weights - np.exp(sink - lse), lse


@wrong("06.3", "the sink's term without the max", says="the sink's term lacks the max")
def weights_with_sink_unshifted(lse_log2, sink):
    with np.errstate(all="ignore"):
        w = np.exp2(lse_log2 - lse_log2.max(axis=0))
        return w / (w.sum(axis=0) + np.exp(sink)), weights_with_sink(lse_log2, sink)[1]


# 06.4


def pieces(scores, values, bounds, scale):
    """Partial results of every split and head: outs [s, h, d], lse_log2 [s, h]."""
    outs, lses = [], []
    for start, stop in itertools.pairwise(bounds):
        parts = [partial_result(row[start:stop] * scale * LOG2E, values[start:stop]) for row in scores]
        outs.append([o for o, _ in parts])
        lses.append([lse for _, lse in parts])
    return np.array(outs), np.array(lses)


@right("06.4", "from the three earlier answers")
def split_attention(scores, values, bounds, scale, sink):
    outs, lse_log2 = pieces(scores, values, bounds, scale)
    weights, lse = weights_with_sink(lse_log2, sink)
    return (weights[:, :, None] * outs).sum(axis=0), lse, lse_log2


@right("06.4", "merging as it goes")
def split_attention_online(scores, values, bounds, scale, sink):
    outs, lse_log2 = pieces(scores, values, bounds, scale)
    out, lse = merge_pairs(outs, lse_log2)
    with np.errstate(over="ignore"):
        kept = np.where(np.isposinf(lse), 0.0, 1 / (1 + np.exp(np.minimum(sink - lse, 700.0))))
    kept = np.where(np.isposinf(sink), 0.0, kept)
    return out * kept[:, None], lse, lse_log2


@wrong("06.4", "misses the last split", says="The last split is missing")
def split_attention_last(scores, values, bounds, scale, sink):
    return split_attention(scores, values, bounds[:-1], scale, sink) if len(bounds) > 2 else (0, 0, 0)


@wrong("06.4", "averages", says="You averaged the splits' outputs")
def split_attention_average(scores, values, bounds, scale, sink):
    outs, lse_log2 = pieces(scores, values, bounds, scale)
    return outs.mean(axis=0), weights_with_sink(lse_log2, sink)[1], lse_log2


@wrong("06.4", "forgets the sink", says="The sink is missing")
def split_attention_no_sink(scores, values, bounds, scale, sink):
    return split_attention(scores, values, bounds, scale, np.full_like(sink, -np.inf))


@wrong("06.4", "a sink for every split", says="Every split got a sink of its own")
def split_attention_each(scores, values, bounds, scale, sink):
    outs, lse_log2 = pieces(scores, values, bounds, scale)
    weights, lse = weights_with_sink_each(lse_log2, sink)
    return (weights[:, :, None] * outs).sum(axis=0), lse, lse_log2


@wrong("06.4", "sink taken as base 2", says="You used the sink as a base-2 number")
def split_attention_base2_sink(scores, values, bounds, scale, sink):
    return split_attention(scores, values, bounds, scale, sink / LOG2E)


@wrong("06.4", "sink in the lse", says="Your lse contains the sink")
def split_attention_inside(scores, values, bounds, scale, sink):
    out, lse, lse_log2 = split_attention(scores, values, bounds, scale, sink)
    return out, np.where(np.isposinf(lse), lse, np.logaddexp(lse, sink)), lse_log2


@wrong("06.4", "natural partials", says="your partial log-sum-exps are natural")
def split_attention_natural(scores, values, bounds, scale, sink):
    out, lse, lse_log2 = split_attention(scores, values, bounds, scale, sink)
    return out, lse, lse_log2 / LOG2E


@wrong("06.4", "no log2 e", says="scale · log2 e")
def split_attention_no_log2e(scores, values, bounds, scale, sink):
    return split_attention(scores, values, bounds, scale / LOG2E, sink)


@wrong("06.4", "a split without positions raises", says="ValueError")
def split_attention_raises(scores, values, bounds, scale, sink):
    for start, stop in itertools.pairwise(bounds):
        scores[:, start:stop].max(axis=1)
    return split_attention(scores, values, bounds, scale, sink)


@wrong("06.4", "the library's pieces", says="mlacademy.softmax")
def split_attention_library(scores, values, bounds, scale, sink):
    outs, lses = softmax.partials(
        torch.from_numpy(scores), torch.from_numpy(values), bounds, scale=scale, round_s=False
    )
    out, lse = softmax.combine(outs, lses, torch.from_numpy(sink))
    return out.numpy(), lse.numpy(), lses.numpy()


@wrong("06.4", "in float32", says="pass through float32")
def split_attention_float32(scores, values, bounds, scale, sink):
    return split_attention(scores.astype(np.float32).astype(np.float64), values, bounds, np.float32(scale), sink)


@wrong("06.4", "a list of log-sum-exps", says="An output is a Python list")
def split_attention_list(scores, values, bounds, scale, sink):
    out, lse, lse_log2 = split_attention(scores, values, bounds, scale, sink)
    return out, lse, list(lse_log2)


@wrong("06.4", "forgets the scale", says="You left out scale")
def split_attention_unscaled(scores, values, bounds, scale, sink):
    return split_attention(scores, values, bounds, 1.0, sink)


@wrong("06.4", "scales the sink", says="You multiplied the sink by scale")
def split_attention_sink_scaled(scores, values, bounds, scale, sink):
    return split_attention(scores, values, bounds, scale, sink * scale)


@wrong("06.4", "merges sums", says="You merged unnormalised outputs")
def split_attention_sums(scores, values, bounds, scale, sink):
    outs, lse_log2 = pieces(scores, values, bounds, scale)
    tops = [scores[:, a:b].max(axis=1, initial=-np.inf) * scale * LOG2E for a, b in itertools.pairwise(bounds)]
    with np.errstate(invalid="ignore"):
        outs = outs * np.nan_to_num(np.exp2(lse_log2 - np.array(tops)))[:, :, None]
    weights, lse = weights_with_sink(lse_log2, sink)
    return (weights[:, :, None] * outs).sum(axis=0), lse, lse_log2


@wrong("06.4", "an empty split reports 0", says="A 0 says that it has seen the weight")
def split_attention_zero(scores, values, bounds, scale, sink):
    outs, lse_log2 = pieces(scores, values, bounds, scale)
    lse_log2 = np.where(np.isneginf(lse_log2), 0.0, lse_log2)
    weights, lse = weights_with_sink(lse_log2, sink)
    return (weights[:, :, None] * outs).sum(axis=0), lse, lse_log2


@wrong("06.4", "drops a split without positions", says="You left out the split without positions")
def split_attention_dropped(scores, values, bounds, scale, sink):
    return split_attention(scores, values, sorted(set(bounds)), scale, sink)


@wrong("06.4", "holes as a large negative number", says="its holes became large negative numbers")
def split_attention_finite_holes(scores, values, bounds, scale, sink):
    return split_attention(np.maximum(scores, -1e30), values, bounds, scale, sink)


@wrong("06.4", "a head of holes has lse 0", says="All heads with tokens are right")
def split_attention_zero_head(scores, values, bounds, scale, sink):
    out, lse, lse_log2 = split_attention(scores, values, bounds, scale, sink)
    return out, np.where(np.isposinf(lse), 0.0, lse), lse_log2
