"""Right and wrong answers to assignment 03, each wrong one a mistake somebody makes."""

import math

import numpy as np

from mlacademy.grading.answers import right, wrong

# ---------------------------------------------------------------------------------------------------------------- 03.1


@right("03.1", "by divmod")
def by_divmod(slot, page):
    return (-1, -1, -1) if slot == -1 else (*divmod(slot, page), slot * 656)


@right("03.1", "by counting pages")
def by_counting(slot, page):
    index = first_byte = 0
    if slot == -1:
        return -1, -1, -1
    while slot >= page:
        slot -= page
        index += 1
        first_byte += page * 656
    return index, slot, first_byte + slot * 656


@right("03.1", "a list of NumPy integers")
def numpy_integers(slot, page):
    return list(np.full(3, -1)) if slot == -1 else [np.int64(slot) // page, np.int64(slot) % page, np.int64(slot) * 656]


@wrong("03.1", "a hole divided", says="You took a hole for a slot")
def hole_divided(slot, page):
    return slot // page, slot % page, slot * 656


@wrong("03.1", "pages of 64", says="You divided by 64")
def pages_of_64(slot, page):
    return (-1, -1, -1) if slot < 0 else (slot // 64, slot % 64, slot * 656)


@wrong("03.1", "quotient and remainder swapped", says="You swapped the page and the offset")
def swapped(slot, page):
    return (-1, -1, -1) if slot < 0 else (slot % page, slot // page, slot * 656)


@wrong("03.1", "the byte within the page", says="counts from the start of the page")
def byte_in_page(slot, page):
    return (-1, -1, -1) if slot < 0 else (slot // page, slot % page, slot % page * 656)


@wrong("03.1", "the byte where the page begins", says="is where the page begins")
def byte_of_page(slot, page):
    return (-1, -1, -1) if slot < 0 else (slot // page, slot % page, slot // page * page * 656)


@wrong("03.1", "one byte a value", says="576 is the number of values")
def values(slot, page):
    return (-1, -1, -1) if slot < 0 else (slot // page, slot % page, slot * 576)


@wrong("03.1", "two bytes a value", says="the size of 576 values in BF16")
def bf16(slot, page):
    return (-1, -1, -1) if slot < 0 else (slot // page, slot % page, slot * 576 * 2)


@wrong("03.1", "slot 0 taken for a hole", says="You took slot 0 for a hole")
def slot_0_a_hole(slot, page):
    return (-1, -1, -1) if slot <= 0 else (slot // page, slot % page, slot * 656)


@wrong("03.1", "zeros for a hole", says="all three numbers are −1")
def zeros_for_a_hole(slot, page):
    return (0, 0, 0) if slot == -1 else (slot // page, slot % page, slot * 656)


@wrong("03.1", "a hole divided as C does", says="in C the results would be 0 and −1")
def hole_divided_as_c(slot, page):
    index = int(slot / page)
    return index, slot - index * page, slot * 656


@wrong("03.1", "MODEL1's bytes", says="the other layout, MODEL1")
def model1(slot, page):
    return (-1, -1, -1) if slot < 0 else (slot // page, slot % page, slot * 584)


@wrong("03.1", "the offset not multiplied", says="the first byte is not")
def offset_in_bytes(slot, page):
    return (-1, -1, -1) if slot < 0 else (slot // page, slot % page, slot // page * page * 656 + slot % page)


@wrong("03.1", "swapped, and its byte with it", says="You swapped the page and the offset")
def swapped_all(slot, page):
    offset, index = divmod(slot, page)
    return (-1, -1, -1) if slot < 0 else (index, offset, (index * page + offset) * 656)


@wrong("03.1", "true division", says="expected an integer")
def true_division(slot, page):
    return (-1, -1, -1) if slot < 0 else (slot / page, slot % page, slot * 656)


@wrong("03.1", "the library's locate", says="asks you to write that yourself")
def located(slot, page):
    from mlacademy.cache import locate

    return (-1, -1, -1) if slot < 0 else (*locate(slot, page), slot * 656)


# ---------------------------------------------------------------------------------------------------------------- 03.2


@right("03.2", "by fancy indexing")
def fancy(positions, block_table, page):
    request = np.arange(len(positions)).reshape(-1, 1)
    known = np.where(positions == -1, 0, positions)
    found = block_table[request, known // page] * page + known % page
    return np.where(positions == -1, -1, found)


@right("03.2", "by a map of every slot")
def slot_map(positions, block_table, page):
    rows = []
    for pages, row in zip(block_table, positions, strict=True):
        every = (pages[:, None] * page + np.arange(page)).ravel()
        rows.append([-1 if p == -1 else every[p] for p in row])
    return np.array(rows)


@right("03.2", "in int32")
def in_int32(positions, block_table, page):
    out = np.full(positions.shape, -1, dtype=np.int32)
    for (r, i), p in np.ndenumerate(positions):
        if p != -1:
            out[r, i] = block_table[r, p // page] * page + p % page
    return out


@wrong("03.2", "positions returned", says="You returned positions")
def untranslated(positions, block_table, page):
    return positions + 0


@wrong("03.2", "holes translated", says="You translated holes")
def holes_translated(positions, block_table, page):
    return np.take_along_axis(block_table, positions // page, axis=1) * page + positions % page


@wrong("03.2", "holes as the first token", says="You turned holes into the request's first token")
def holes_first(positions, block_table, page):
    p = np.maximum(positions, 0)
    return np.take_along_axis(block_table, p // page, axis=1) * page + p % page


@wrong("03.2", "holes as slot 0", says="Only −1 marks a hole")
def holes_zero(positions, block_table, page):
    return np.maximum(fancy(positions, block_table, page), 0)


@wrong("03.2", "one table for all", says="You used request 0's block table")
def one_table(positions, block_table, page):
    return np.where(positions < 0, -1, block_table[0][positions // page] * page + positions % page)


@wrong("03.2", "pages of 64", says="You used pages of 64")
def always_64(positions, block_table, page):
    safe = np.maximum(positions, 0)
    pages = np.take_along_axis(block_table, safe // 64, axis=1)
    return np.where(positions < 0, -1, pages * 64 + safe % 64)


@wrong("03.2", "position 0 taken for a hole", says="You took position 0 for a hole")
def position_0(positions, block_table, page):
    return np.where(positions <= 0, -1, fancy(positions, block_table, page))


@wrong("03.2", "the whole position added", says="Only its remainder counts")
def whole_position(positions, block_table, page):
    safe = np.maximum(positions, 0)
    return np.where(positions < 0, -1, np.take_along_axis(block_table, safe // page, axis=1) * page + safe)


@wrong("03.2", "64 in the product alone", says="64 in one place and page in another")
def product_of_64(positions, block_table, page):
    safe = np.maximum(positions, 0)
    return np.where(positions < 0, -1, np.take_along_axis(block_table, safe // page, axis=1) * 64 + safe % page)


@wrong("03.2", "lists instead of an array", says="expected an array of shape")
def as_lists(positions, block_table, page):
    return fancy(positions, block_table, page).tolist()


@wrong("03.2", "no offset", says="the offset within the page is missing")
def no_offset(positions, block_table, page):
    safe = np.maximum(positions, 0)
    return np.where(positions < 0, -1, np.take_along_axis(block_table, safe // page, axis=1) * page)


@wrong("03.2", "page number plus offset", says="You added the offset to the page's number")
def added(positions, block_table, page):
    safe = np.maximum(positions, 0)
    return np.where(positions < 0, -1, np.take_along_axis(block_table, safe // page, axis=1) + safe % page)


@wrong("03.2", "pages only", says="You returned pages, not slots")
def pages_only(positions, block_table, page):
    return np.where(positions < 0, -1, np.take_along_axis(block_table, np.maximum(positions, 0) // page, axis=1))


@wrong("03.2", "fills the input", says="changed")
def in_place(positions, block_table, page):
    positions[:] = fancy(positions, block_table, page)
    return positions


@wrong("03.2", "the library's to_slots", says="asks you to write that yourself")
def library_slots(positions, block_table, page):
    import torch

    from mlacademy.sparse import to_slots

    return to_slots(torch.from_numpy(positions), torch.from_numpy(block_table), page).numpy().astype(np.int64)


# ---------------------------------------------------------------------------------------------------------------- 03.3


@right("03.3", "by a stable sort")
def stable(scores, k, lengths):
    picked = np.full((len(scores), math.ceil(k / 64) * 64), -1, dtype=np.int64)
    for r in range(len(scores)):
        order = np.argsort(-scores[r, : lengths[r]], kind="stable")[:k]
        picked[r, : order.size] = order
    return picked


@right("03.3", "by taking the best again and again")
def one_by_one(scores, k, lengths):
    out = []
    for row, n in zip(scores.tolist(), lengths.tolist(), strict=True):
        left = dict(enumerate(row[:n]))
        line = []
        while left and len(line) < k:
            best = max(left, key=left.get)
            line.append(best)
            del left[best]
        out.append(line + [-1] * (64 * -(-k // 64) - len(line)))
    return np.array(out)


def ranked(scores, k, lengths, order, *, fill=-1, width=None):
    out = np.full((len(scores), 64 * -(-k // 64) if width is None else width), fill, dtype=np.int64)
    for r, n in enumerate(lengths):
        best = np.asarray(order(scores[r, :n]))[:k]
        out[r, : len(best)] = best
    return out


def downwards(row):
    return np.argsort(-row, kind="stable")


@wrong("03.3", "sorted upwards and reversed", says="You took the later position first")
def reversed_sort(scores, k, lengths):
    return ranked(scores, k, lengths, lambda row: np.argsort(row, kind="stable")[::-1])


@wrong("03.3", "length ignored", says="picked positions at or behind the row's length")
def whole_row(scores, k, lengths):
    return ranked(np.where(np.isnan(scores), np.inf, scores), k, [scores.shape[1]] * len(lengths), downwards)


@wrong("03.3", "dropped behind the length afterwards", says="The places are lost")
def dropped(scores, k, lengths):
    best = whole_row(scores, k, lengths)
    return np.where(best < lengths[:, None], best, -1)


@wrong("03.3", "the first length for all", says="You used the first request's length")
def first_length(scores, k, lengths):
    return ranked(scores, k, [lengths[0]] * len(lengths), downwards)


@wrong("03.3", "lowest first", says="You picked the lowest scores")
def lowest(scores, k, lengths):
    return ranked(scores, k, lengths, lambda row: np.argsort(row, kind="stable"))


@wrong("03.3", "sorted by position", says="sorted them by position")
def positions_sorted(scores, k, lengths):
    return ranked(scores, k, lengths, lambda row: np.sort(downwards(row)[:k]))


@wrong("03.3", "padded with zeros", says="You filled empty places with 0")
def zero_padded(scores, k, lengths):
    return ranked(scores, k, lengths, downwards, fill=0)


@wrong("03.3", "not padded to 64", says="the width must be k rounded up")
def narrow(scores, k, lengths):
    return ranked(scores, k, lengths, downwards, width=k)


@wrong("03.3", "holes in front", says="You put the holes in front")
def holes_in_front(scores, k, lengths):
    best = stable(scores, k, lengths)
    return np.stack([np.roll(row, (row == -1).sum()) for row in best])


@wrong("03.3", "the default sort", says="NumPy's default sort is not stable")
def default_sort(scores, k, lengths):
    return ranked(scores, k, lengths, lambda row: np.argsort(-row))


@wrong("03.3", "the right set in another order", says="not best first")
def another_order(scores, k, lengths):
    def best(row):
        n = min(k, row.size)
        return np.sort(np.argpartition(-row, n - 1)[:n])[::-1] if n else []

    return ranked(scores, k, lengths, best)


@wrong("03.3", "ranked last and picked", says="and then picked them all the same")
def picked_behind(scores, k, lengths):
    own = np.where(np.arange(scores.shape[1]) < lengths[:, None], scores, -np.inf)
    return ranked(own, k, [scores.shape[1]] * len(lengths), downwards)


@wrong("03.3", "zeros behind the length", says="at or behind the row's length")
def zeros_behind(scores, k, lengths):
    own = np.where(np.arange(scores.shape[1]) < lengths[:, None], scores, 0.0)
    return ranked(own, k, [scores.shape[1]] * len(lengths), downwards)


@wrong("03.3", "dropped afterwards and closed up", says="The places are lost")
def closed_up(scores, k, lengths):
    out = np.full((len(scores), 64 * -(-k // 64)), -1)
    for r, n in enumerate(lengths):
        best = downwards(np.where(np.isnan(scores[r]), -np.inf, scores[r]))[:k]
        best = best[best < n]
        out[r, : best.size] = best
    return out


@wrong("03.3", "as many as the row is wide", says="Only k are asked for")
def whole_width(scores, k, lengths):
    return ranked(scores, 64 * -(-k // 64), lengths, downwards)


@wrong("03.3", "one block too many", says="64 entries too wide")
def one_block_more(scores, k, lengths):
    return ranked(scores, k, lengths, downwards, width=(k // 64 + 1) * 64)


@wrong("03.3", "scores instead of positions", says="integers")
def scores_returned(scores, k, lengths):
    best = stable(scores, k, lengths)
    return np.take_along_axis(np.pad(scores, ((0, 0), (0, 1))), best, axis=1)


@wrong("03.3", "the library's topk_positions", says="asks you to write that yourself")
def library_topk(scores, k, lengths):
    import torch

    from mlacademy.sparse import pad_indices, topk_positions

    return pad_indices(topk_positions(torch.from_numpy(scores), k, torch.from_numpy(lengths))).numpy()


# ---------------------------------------------------------------------------------------------------------------- 03.4


def softmax_over(logits, v):
    top = logits.max(axis=1, keepdims=True)
    weights = np.exp(logits - top)
    total = weights.sum(axis=1, keepdims=True)
    return (weights / total) @ v, (top + np.log(total)).ravel()


@right("03.4", "dropping the holes")
def without_holes(q, cache, indices, length, scale, d_v):
    used = indices[:length]
    used = used[used != -1]
    if used.size == 0:
        return np.zeros((len(q), d_v)), np.full(len(q), np.inf)
    rows = cache.reshape(-1, cache.shape[2])[used]
    return softmax_over(scale * (q @ rows.T), rows[:, :d_v])


@right("03.4", "with a mask")
def with_mask(q, cache, indices, length, scale, d_v):
    valid = (indices != -1) & (np.arange(indices.size) < length)
    rows = cache.reshape(-1, cache.shape[2])[np.where(valid, indices, 0)]
    rows = np.where(valid[:, None], rows, 0.0)
    logits = np.where(valid, scale * (q @ rows.T), -np.inf)
    top = np.maximum(logits.max(axis=1, initial=-np.inf), -1e30)
    weights = np.exp(logits - top[:, None])
    total = weights.sum(axis=1)
    empty = total == 0
    safe = np.where(empty, 1.0, total)
    return weights @ rows[:, :d_v] / safe[:, None], np.where(empty, np.inf, top + np.log(safe))


@right("03.4", "one token at a time")
def streaming(q, cache, indices, length, scale, d_v):
    out, lse = np.zeros((len(q), d_v)), np.full(len(q), np.inf)
    page = cache.shape[1]
    for head, query in enumerate(q):
        top, total, mixed = -math.inf, 0.0, np.zeros(d_v)
        for slot in indices[:length]:
            if slot == -1:
                continue
            token = cache[slot // page, slot % page]
            x = scale * float(query @ token)
            higher = max(top, x)
            total = total * math.exp(top - higher) + math.exp(x - higher)
            mixed = mixed * math.exp(top - higher) + math.exp(x - higher) * token[:d_v]
            top = higher
        if total:
            out[head], lse[head] = mixed / total, top + math.log(total)
    return out, lse


@right("03.4", "with a very low finite score for holes")
def low_scores(q, cache, indices, length, scale, d_v):
    used = indices[:length]
    if (used == -1).all():
        return [np.zeros((len(q), d_v)), np.full(len(q), math.inf)]
    rows = np.where((used == -1)[:, None], 0.0, rows_of(cache, np.maximum(used, 0)))
    return list(softmax_over(np.where(used == -1, -1e30, scale * q @ rows.T), rows[:, :d_v]))


def rows_of(cache, slots):
    return cache.reshape(-1, cache.shape[2])[slots]


@wrong("03.4", "holes as zero rows", says="Your holes take part")
def zero_rows(q, cache, indices, length, scale, d_v):
    used = indices[:length]
    rows = np.where((used == -1)[:, None], 0.0, rows_of(cache, np.maximum(used, 0)))
    return softmax_over(scale * q @ rows.T, rows[:, :d_v])


@wrong("03.4", "−1 as an index", says="the index −1 counts from the end")
def last_slot(q, cache, indices, length, scale, d_v):
    rows = rows_of(cache, indices[:length])
    return softmax_over(scale * q @ rows.T, rows[:, :d_v])


@wrong("03.4", "scores masked, values not", says="0 · NaN is NaN")
def values_not_masked(q, cache, indices, length, scale, d_v):
    used = indices[:length]
    rows = rows_of(cache, np.maximum(used, 0))
    return softmax_over(np.where(used == -1, -np.inf, scale * q @ rows.T), rows[:, :d_v])


@wrong("03.4", "slot 0 taken for a hole", says="You left slot 0 out")
def slot_0(q, cache, indices, length, scale, d_v):
    return without_holes(q, cache, np.where(indices > 0, indices, -1), length, scale, d_v)


@wrong("03.4", "duplicates removed", says="A slot that is named twice counts twice")
def deduplicated(q, cache, indices, length, scale, d_v):
    return without_holes(q, cache, np.unique(indices[:length]), length, scale, d_v)


@wrong("03.4", "length ignored", says="You read entries at or behind length")
def whole_list(q, cache, indices, length, scale, d_v):
    return without_holes(q, cache, indices, indices.size, scale, d_v)


@wrong("03.4", "no scale", says="You left out scale")
def unscaled(q, cache, indices, length, scale, d_v):
    return without_holes(q, cache, indices, length, 1.0, d_v)


@wrong("03.4", "scaled by the root", says="You scaled by 1/√d")
def root(q, cache, indices, length, scale, d_v):
    return without_holes(q, cache, indices, length, 1 / math.sqrt(q.shape[1]), d_v)


@wrong("03.4", "values from the end", says="You took the last d_v columns")
def last_columns(q, cache, indices, length, scale, d_v):
    used = indices[:length]
    rows = rows_of(cache, used[used >= 0])
    return softmax_over(scale * q @ rows.T, rows[:, -d_v:])


@wrong("03.4", "values of the whole width", says="as wide as a key")
def all_columns(q, cache, indices, length, scale, d_v):
    used = indices[:length]
    rows = rows_of(cache, used[used >= 0])
    return softmax_over(scale * q @ rows.T, rows)


@wrong("03.4", "lse in base 2", says="a base-2 logarithm")
def base_2(q, cache, indices, length, scale, d_v):
    out, lse = without_holes(q, cache, indices, length, scale, d_v)
    return out, lse / np.log(2)


@wrong("03.4", "lse without the maximum", says="relative to the largest score")
def relative(q, cache, indices, length, scale, d_v):
    used = indices[:length]
    rows = rows_of(cache, used[used >= 0])
    logits = scale * q @ rows.T
    shifted = logits - logits.max(axis=1, keepdims=True)
    return softmax_over(logits, rows[:, :d_v])[0], np.log(np.exp(shifted).sum(axis=1))


@wrong("03.4", "the sum instead of its logarithm", says="You returned the sum of the exponentials")
def summed(q, cache, indices, length, scale, d_v):
    out, lse = without_holes(q, cache, indices, length, scale, d_v)
    return out, np.exp(lse)


@wrong("03.4", "−∞ for an empty list", says="lse = +∞ by the kernels' convention")
def minus_infinity(q, cache, indices, length, scale, d_v):
    out, lse = without_holes(q, cache, indices, length, scale, d_v)
    return out, np.where(np.isinf(lse), -np.inf, lse)


@wrong("03.4", "0 divided by 0", says="0 was divided by 0")
def empty_division(q, cache, indices, length, scale, d_v):
    used = indices[:length]
    rows = rows_of(cache, used[used >= 0])
    logits = scale * q @ rows.T
    top = logits.max(axis=1, initial=-1e30)
    weights = np.exp(logits - top[:, None])
    total = weights.sum(axis=1)
    with np.errstate(all="ignore"):
        return weights @ rows[:, :d_v] / total[:, None], np.where(total == 0, np.inf, top + np.log(total))


@wrong("03.4", "exp without subtracting", says="exp of anything above 709 overflows")
def overflow(q, cache, indices, length, scale, d_v):
    used = indices[:length]
    rows = rows_of(cache, used[used >= 0])
    with np.errstate(all="ignore"):
        weights = np.exp(scale * q @ rows.T)
        total = weights.sum(axis=1)
        return weights @ rows[:, :d_v] / total[:, None], np.log(total)


@wrong("03.4", "softmax over the heads", says="sum to 1 over the heads")
def over_heads(q, cache, indices, length, scale, d_v):
    used = indices[:length]
    rows = rows_of(cache, used[used >= 0])
    _, lse = softmax_over((scale * q @ rows.T).T, q)
    weights = np.exp(scale * q @ rows.T - lse[None, :])
    return weights @ rows[:, :d_v], np.full(len(q), lse[0])


@wrong("03.4", "the library's sparse_decode", says="asks you to write that yourself")
def library(q, cache, indices, length, scale, d_v):
    import torch

    from mlacademy.softmax import two_pass

    used = indices[:length]
    rows = torch.from_numpy(rows_of(cache, used[used >= 0]))
    out, lse = two_pass(torch.from_numpy(q) @ rows.T, rows[:, :d_v], scale=scale)
    return out.numpy(), lse.numpy()


@wrong("03.4", "holes dropped before the list is cut", says="length counts places of the list")
def filtered_first(q, cache, indices, length, scale, d_v):
    used = indices[indices != -1][:length]
    return without_holes(q, cache, used, used.size, scale, d_v)


@wrong("03.4", "the loop ends at a hole", says="You stopped at the first hole")
def until_a_hole(q, cache, indices, length, scale, d_v):
    used = []
    for slot in indices[:length]:
        if slot == -1:
            break
        used.append(slot)
    return without_holes(q, cache, np.array(used, dtype=int), len(used), scale, d_v)


@wrong("03.4", "not divided by the sum", says="not divided by the sum of the weights")
def not_divided(q, cache, indices, length, scale, d_v):
    used = indices[:length]
    rows = rows_of(cache, used[used >= 0])
    logits = scale * q @ rows.T
    top = logits.max(axis=1, keepdims=True)
    weights = np.exp(logits - top)
    return weights @ rows[:, :d_v], (top + np.log(weights.sum(axis=1, keepdims=True)))[:, 0]


@wrong("03.4", "scores over the value's width", says="The key is the whole row")
def short_keys(q, cache, indices, length, scale, d_v):
    return without_holes(q[:, :d_v], cache[:, :, :d_v], indices, length, scale, d_v)


@wrong("03.4", "one maximum for all heads", says="You subtracted one maximum for all heads")
def one_maximum(q, cache, indices, length, scale, d_v):
    used = indices[:length]
    rows = rows_of(cache, used[used >= 0])
    logits = scale * q @ rows.T
    with np.errstate(all="ignore"):
        weights = np.exp(logits - logits.max(initial=-1e30))
        total = weights.sum(axis=1)
        return weights @ rows[:, :d_v] / total[:, None], logits.max(initial=-1e30) + np.log(total)


@wrong("03.4", "a running maximum that starts from 0", says="a maximum that starts from 0")
def maximum_from_zero(q, cache, indices, length, scale, d_v):
    used = indices[:length]
    rows = rows_of(cache, used[used >= 0])
    logits = scale * q @ rows.T
    top = logits.max(axis=1, initial=0.0)
    weights = np.exp(logits - top[:, None])
    with np.errstate(all="ignore"):
        total = weights.sum(axis=1)
        return weights @ rows[:, :d_v] / total[:, None], top + np.log(total)


@wrong("03.4", "holes with a score of −1000", says="Only −∞ is below every score")
def finite_mask(q, cache, indices, length, scale, d_v):
    used = indices[:length]
    rows = np.where((used == -1)[:, None], 0.0, rows_of(cache, np.maximum(used, 0)))
    return softmax_over(np.where(used == -1, -1000.0, scale * q @ rows.T), rows[:, :d_v])


@wrong("03.4", "the whole pool with a mask", says="0 · NaN is NaN")
def whole_pool(q, cache, indices, length, scale, d_v):
    rows = cache.reshape(-1, cache.shape[2])
    counts = np.bincount(indices[:length][indices[:length] >= 0], minlength=len(rows))
    with np.errstate(all="ignore"):
        logits = np.where(counts > 0, scale * q @ rows.T + np.log(counts), -np.inf)
        return softmax_over(logits, rows[:, :d_v])


@wrong("03.4", "0 as the lse of an empty list", says="lse must be +∞")
def zero_lse(q, cache, indices, length, scale, d_v):
    out, lse = without_holes(q, cache, indices, length, scale, d_v)
    return out, np.where(np.isinf(lse), 0.0, lse)


@wrong("03.4", "in float32", says="You computed in float32")
def in_float32(q, cache, indices, length, scale, d_v):
    out, lse = without_holes(q.astype(np.float32), cache.astype(np.float32), indices, length, np.float32(scale), d_v)
    return out.astype(np.float32), lse.astype(np.float32)


@wrong("03.4", "holes in lse", says="The output is right; lse is not")
def holes_in_lse(q, cache, indices, length, scale, d_v):
    out, lse = without_holes(q, cache, indices, length, scale, d_v)
    return out, np.logaddexp(lse, np.log(np.maximum((indices[:length] == -1).sum(), 1e-300)))


@wrong("03.4", "lists instead of arrays", says="expected an array of shape")
def lists(q, cache, indices, length, scale, d_v):
    out, lse = without_holes(q, cache, indices, length, scale, d_v)
    return out.tolist(), lse.tolist()
