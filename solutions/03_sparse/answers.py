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


@wrong("03.4", "0 divided by 0", says="divided 0 by 0")
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
