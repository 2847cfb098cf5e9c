"""Right and wrong answers to the tile scheduler's exercises."""

import math
from itertools import accumulate, pairwise

import numpy as np

from mlacademy.grading.answers import right, wrong
from mlacademy.schedule import num_sm_parts, read_record, schedule

# 04.1


@right("04.1", "by divisions in order")
def count_partitions(sms, s_q, h_q, kernel):
    if kernel == "sm90_sparse":
        per_token = h_q // 64
    elif kernel == "sm100_head128":
        per_token = 2
    else:
        per_token = 1
    return max(sms // s_q // per_token, 1)


@right("04.1", "by trying")
def count_partitions_by_trying(sms, s_q, h_q, kernel):
    per_token = {"sm90_sparse": h_q // 64, "sm100_head64": 1, "sm100_head64x2": 1, "sm100_head128": 2}[kernel]
    parts = 1
    while (parts + 1) * per_token * s_q <= sms:
        parts += 1
    return parts


@wrong("04.1", "no floor of one", says="With 0 partitions nothing would ever run")
def count_without_floor(sms, s_q, h_q, kernel):
    return sms // s_q // (h_q // 64 if kernel == "sm90_sparse" else 2 if kernel == "sm100_head128" else 1)


@wrong("04.1", "ignores s_q", says="does not depend on s_q")
def count_without_s_q(sms, s_q, h_q, kernel):
    return max(sms // (h_q // 64 if kernel == "sm90_sparse" else 2 if kernel == "sm100_head128" else 1), 1)


@wrong("04.1", "counts CTAs", says="You counted CTAs, not partitions")
def count_ctas(sms, s_q, h_q, kernel):
    return max(sms // s_q, 1)


@wrong("04.1", "two launches halved", says="sm100_head64x2 has all partitions")
def count_by_heads(sms, s_q, h_q, kernel):
    return max(sms // s_q // (h_q // 64), 1)


@wrong("04.1", "rounds up", says="You rounded up")
def count_rounded_up(sms, s_q, h_q, kernel):
    per_token = h_q // 64 if kernel == "sm90_sparse" else 2 if kernel == "sm100_head128" else 1
    return math.ceil(sms / (s_q * per_token))


@wrong("04.1", "to the nearest", says="or to the nearest")
def count_to_the_nearest(sms, s_q, h_q, kernel):
    per_token = h_q // 64 if kernel == "sm90_sparse" else 2 if kernel == "sm100_head128" else 1
    return max(round(sms / s_q / per_token), 1)


@wrong("04.1", "always a pair on SM90", says="only with 128 heads")
def count_pairs(sms, s_q, h_q, kernel):
    return max(sms // s_q // (2 if kernel in ("sm90_sparse", "sm100_head128") else 1), 1)


@wrong("04.1", "true division", says="is the float")
def count_with_fractions(sms, s_q, h_q, kernel):
    per_token = h_q / 64 if kernel == "sm90_sparse" else 2 if kernel == "sm100_head128" else 1
    return max(sms / s_q / per_token, 1)


@wrong("04.1", "the library's own", says="this exercise asks you to write that yourself")
def count_by_library(sms, s_q, h_q, kernel):
    return num_sm_parts(sms, s_q=s_q, h_q=h_q, kernel=kernel)


# 04.2


@right("04.2", "by ceilings")
def blocks_and_payload(lengths, parts, overhead):
    blocks = [max(math.ceil(length / 64), 1) for length in lengths]
    total = sum(n + overhead for n in blocks)
    return blocks, math.ceil(total / parts) + overhead


@right("04.2", "with NumPy and negative floors")
def blocks_and_payload_numpy(lengths, parts, overhead):
    blocks = np.maximum(-(-np.array(lengths) // 64), 1)
    payload = -(-int(blocks.sum() + overhead * blocks.size) // parts) + overhead
    return blocks.tolist(), payload


@wrong("04.2", "empty requests are free", says="A request of length 0 counts one block")
def price_empty_free(lengths, parts, overhead):
    blocks = [math.ceil(length / 64) for length in lengths]
    return blocks, math.ceil(sum(n + overhead for n in blocks) / parts) + overhead


@wrong("04.2", "adds one to the floor", says="A length of exactly 64 fills one block")
def price_floor_plus_one(lengths, parts, overhead):
    blocks = [length // 64 + 1 for length in lengths]
    return blocks, math.ceil(sum(n + overhead for n in blocks) / parts) + overhead


@wrong("04.2", "payload is the share", says="Your payload is the bare share")
def price_bare_share(lengths, parts, overhead):
    blocks = [max(math.ceil(length / 64), 1) for length in lengths]
    return blocks, math.ceil(sum(n + overhead for n in blocks) / parts)


@wrong("04.2", "overhead once", says="You added the overhead once for the whole batch")
def price_overhead_once(lengths, parts, overhead):
    blocks = [max(math.ceil(length / 64), 1) for length in lengths]
    return blocks, math.ceil((sum(blocks) + overhead) / parts) + overhead


@wrong("04.2", "overhead left out of the total", says="Your total counts blocks only")
def price_blocks_only(lengths, parts, overhead):
    blocks = [max(math.ceil(length / 64), 1) for length in lengths]
    return blocks, math.ceil(sum(blocks) / parts) + overhead


@wrong("04.2", "share rounded down", says="You rounded the share down")
def price_rounded_down(lengths, parts, overhead):
    blocks = [max(math.ceil(length / 64), 1) for length in lengths]
    return blocks, sum(n + overhead for n in blocks) // parts + overhead


@wrong("04.2", "overhead inside the division", says="You divided the last overhead among the partitions")
def price_overhead_inside(lengths, parts, overhead):
    blocks = [max(math.ceil(length / 64), 1) for length in lengths]
    return blocks, math.ceil((sum(n + overhead for n in blocks) + overhead) / parts)


@wrong("04.2", "tokens pooled", says="A block never holds tokens of two requests")
def price_pooled(lengths, parts, overhead):
    blocks = [max(math.ceil(length / 64), 1) for length in lengths]
    return blocks, math.ceil((math.ceil(sum(lengths) / 64) + overhead * len(blocks)) / parts) + overhead


@wrong("04.2", "5 written in", says="where the argument overhead stands")
def price_with_five(lengths, parts, overhead):
    return blocks_and_payload(lengths, parts, 5)


@wrong("04.2", "floor plus one for the share", says="your share is one too large")
def price_next_share(lengths, parts, overhead):
    blocks = [max(math.ceil(length / 64), 1) for length in lengths]
    return blocks, sum(n + overhead for n in blocks) // parts + 1 + overhead


@wrong("04.2", "a generator for the blocks", says="is a generator")
def price_lazily(lengths, parts, overhead):
    blocks, payload = blocks_and_payload(lengths, parts, overhead)
    return (n for n in blocks), payload


@wrong("04.2", "forgets the blocks", says="expected 2: num_blocks, payload")
def price_payload_only(lengths, parts, overhead):
    blocks = [max(math.ceil(length / 64), 1) for length in lengths]
    return math.ceil(sum(n + overhead for n in blocks) / parts) + overhead


@wrong("04.2", "the library's own", says="this exercise asks you to write that yourself")
def price_by_library(lengths, parts, overhead):
    plan = schedule(lengths, parts, overhead=overhead)
    return plan.num_blocks.tolist(), plan.payload


# 04.3


@right("04.3", "partition by partition")
def greedy_walk(num_blocks, overhead, payload):
    b = len(num_blocks)
    records, splits = [], [0]
    request = done = piece = 0
    while request < b:
        begin = (request, done, piece)
        room = payload
        while request < b:
            need = num_blocks[request] - done + overhead
            if room >= need:
                splits.append(splits[-1] + piece + 1)
                room -= need
                request, done, piece = request + 1, 0, 0
            else:
                if room > overhead:
                    done += room - overhead
                    piece += 1
                break
        end = (request, done) if done else (request - 1, num_blocks[request - 1])
        records.append([begin[0], end[0], begin[1], end[1], begin[2]])
    return records, splits


@right("04.3", "coin by coin")
def greedy_walk_by_coins(num_blocks, overhead, payload):
    owners = {}  # (request, block) -> partition
    partition, coins, opened = 0, payload, None
    for request, blocks in enumerate(num_blocks):
        for block in range(blocks):
            price = 1 if opened == request else overhead + 1
            if coins < price:
                partition, coins = partition + 1, payload
                price = overhead + 1
            coins -= price
            opened = request
            owners[request, block] = partition
    holders = [sorted({p for (r, _), p in owners.items() if r == request}) for request in range(len(num_blocks))]
    records = []
    for p in range(partition + 1):
        mine = [at for at, owner in owners.items() if owner == p]
        (first, begin), (last, end) = mine[0], mine[-1]
        records.append([first, last, begin, end + 1, holders[first].index(p)])
    return records, list(accumulate((len(h) for h in holders), initial=0))


def walk_with(change):
    """A right walk whose records and sums are changed by `change(records, splits)`."""

    def answer(num_blocks, overhead, payload):
        return change(*greedy_walk(num_blocks, overhead, payload))

    return answer


wrong("04.3", "end_req as the end of a range", says="expected 0 (the last request is included)")(
    walk_with(lambda records, splits: ([[a, b + 1, c, d, e] for a, b, c, d, e in records], splits))
)
wrong("04.3", "end_block included", says="partition 0: end_block is 0, expected 1 (exclusive end)")(
    walk_with(lambda records, splits: ([[a, b, c, d - 1, e] for a, b, c, d, e in records], splits))
)
wrong("04.3", "begin_split always 0", says="begin_split stays 0 in your records")(
    walk_with(lambda records, splits: ([[*record[:4], 0] for record in records], splits))
)
wrong("04.3", "begin_split as a slot", says="You stored the absolute slot")(
    walk_with(lambda records, splits: ([[*r[:4], splits[r[0]] + r[4]] for r in records], splits))
)
wrong("04.3", "counts instead of sums", says="num_splits is a running sum")(
    walk_with(lambda records, splits: (records, [b - a for a, b in pairwise(splits)]))
)
wrong("04.3", "sums without the zero", says="The 0 at the front of num_splits is missing")(
    walk_with(lambda records, splits: (records, splits[1:]))
)
wrong("04.3", "idle partitions listed", says="row 4 should not be there")(
    walk_with(lambda records, splits: ([*records, [len(splits) - 1, len(splits) - 2, 0, records[-1][3], 0]], splits))
)
wrong("04.3", "records as tuples of three", says="expected 5 numbers [begin_req, end_req")(
    walk_with(lambda records, splits: ([record[:3] for record in records], splits))
)
wrong("04.3", "blocks taken as the end", says="end_block is a place in the request")(
    walk_with(lambda records, splits: ([[a, b, c, d - c if a == b else d, e] for a, b, c, d, e in records], splits))
)
wrong("04.3", "pieces numbered from 1", says="Pieces are numbered from 0")(
    walk_with(lambda records, splits: ([[*record[:4], record[4] + 1] for record in records], splits))
)
wrong("04.3", "cuts instead of pieces", says="adds up pieces, not cuts")(
    walk_with(lambda records, splits: (records, [n - r for r, n in enumerate(splits)]))
)
wrong("04.3", "floats", says="partition 0: end_block is 1.0, expected an integer")(
    walk_with(lambda records, splits: ([[a, b, c, float(d), e] for a, b, c, d, e in records], splits))
)
wrong("04.3", "forgets num_splits", says="expected two results: records, num_splits")(
    walk_with(lambda records, splits: records)
)


@wrong("04.3", "slice takes the whole room", says="Your slice takes the whole room")
def walk_without_reserve(num_blocks, overhead, payload):
    records, splits = [], [0]
    room = 0
    for request, blocks in enumerate(num_blocks):
        done = piece = 0
        while done < blocks:
            if room <= overhead:
                records.append([request, request, done, done, piece])
                room = payload
            take = min(blocks - done, room)
            done, piece = done + take, piece + 1
            records[-1][1], records[-1][3] = request, done
            room = max(room - take - overhead, 0) if done == blocks else 0
        splits.append(splits[-1] + piece)
    return records, splits


@wrong("04.3", "continued pieces are free", says="You charge the overhead only where a request begins")
def walk_free_continuation(num_blocks, overhead, payload):
    records, splits = [], [0]
    request = done = piece = 0
    while request < len(num_blocks):
        begin, room = (request, done, piece), payload
        while request < len(num_blocks):
            price = overhead if done == 0 else 0
            need = num_blocks[request] - done + price
            if room >= need:
                splits.append(splits[-1] + piece + 1)
                room -= need
                request, done, piece = request + 1, 0, 0
                continue
            if room > price:
                done, piece = done + room - price, piece + 1
            break
        end = (request, done) if done else (request - 1, num_blocks[request - 1])
        records.append([begin[0], end[0], begin[1], end[1], begin[2]])
    return records, splits


@wrong("04.3", "one overhead a partition", says="You charge the overhead once for each partition")
def walk_one_overhead(num_blocks, overhead, payload):
    records, splits, room, piece = [], [0], 0, 0
    for request, blocks in enumerate(num_blocks):
        done = piece = 0
        while done < blocks:
            if room == 0:
                records.append([request, request, done, done, piece])
                room = payload - overhead
            take = min(room, blocks - done)
            done, room, piece = done + take, room - take, piece + 1
            records[-1][1], records[-1][3] = request, done
        splits.append(splits[-1] + piece)
    return records, splits


@wrong("04.3", "one request a partition", says="You open a new partition for every request")
def walk_one_request(num_blocks, overhead, payload):
    records, splits = [], [0]
    for request, blocks in enumerate(num_blocks):
        starts = range(0, blocks, payload - overhead)
        for piece, start in enumerate(starts):
            records.append([request, request, start, min(start + payload - overhead, blocks), piece])
        splits.append(splits[-1] + len(starts))
    return records, splits


def walk_loop(num_blocks, overhead, payload, *, fits=lambda need, room: need <= room, keep=False, late=False):
    """The walk of `greedy_walk`, written with one place for each of three mistakes."""
    records, splits = [], [0]
    request = done = piece = 0
    while request < len(num_blocks):
        row, room = [request, request, done, done, piece], payload
        while request < len(num_blocks):
            need = num_blocks[request] - done + overhead
            if fits(need, room):
                room -= need
                row[1], row[3] = request, num_blocks[request]
                splits.append(splits[-1] + piece + 1)
                request, done, piece = request + 1, 0, piece if keep else 0
            elif room > overhead:
                done, piece = done + room - overhead, piece + 1
                row[1], row[3] = request, done
                break
            else:
                break
        if late:
            row[1], row[3] = request, done
        records.append(row)
    return records, splits


@wrong("04.3", "an exact fit refused", says="You compare with < where it is <=")
def walk_strict(num_blocks, overhead, payload):
    return walk_loop(num_blocks, overhead, payload, fits=lambda need, room: need < room)


@wrong("04.3", "piece counter never reset", says="It starts at 0 for every request")
def walk_counter_kept(num_blocks, overhead, payload):
    return walk_loop(num_blocks, overhead, payload, keep=True)


@wrong("04.3", "end taken after the step", says="You stored where the walk stands")
def walk_late_end(num_blocks, overhead, payload):
    return walk_loop(num_blocks, overhead, payload, late=True)


@wrong("04.3", "pieces of no blocks", says="You counted a piece of 0 blocks")
def walk_empty_pieces(num_blocks, overhead, payload):
    records, splits = [], [0]
    request = done = piece = 0
    while request < len(num_blocks):
        begin, room, touched = (request, done, piece), payload, request
        while request < len(num_blocks):
            need = num_blocks[request] - done + overhead
            if room >= need:
                splits.append(splits[-1] + piece + 1)
                room -= need
                touched, end = request, num_blocks[request]
                request, done, piece = request + 1, 0, 0
                continue
            if room >= overhead and room > 0:
                done, piece = done + room - overhead, piece + 1
                touched, end = request, done
            break
        records.append([begin[0], touched, begin[1], end, begin[2]])
    return records, splits


@wrong("04.3", "never cuts a request", says="You keep every request whole")
def walk_whole_requests(num_blocks, overhead, payload):
    records, room = [], 0
    for request, blocks in enumerate(num_blocks):
        if not records or blocks + overhead > room:
            records.append([request, request, 0, blocks, 0])
            room = payload
        records[-1][1:4] = [request, 0, blocks]
        room -= blocks + overhead
    return records, list(range(len(num_blocks) + 1))


@wrong("04.3", "the library's own", says="this exercise asks you to write that yourself")
def walk_by_library(num_blocks, overhead, payload):
    plan = schedule([64 * n for n in num_blocks], 66, overhead=overhead)
    return [list(p[:5]) for p in plan.partitions if not p.idle], plan.num_splits.tolist()


# 04.4


@right("04.4", "question by question")
def work_of(record, lengths, num_splits):
    begin_req, end_req, begin_block, end_block, begin_split, first_flag, last_flag, _ = record
    work = []
    for r in range(begin_req, end_req + 1):
        begin = begin_block if r == begin_req else 0
        end = end_block if r == end_req else -(-lengths[r] // 64)
        shared = first_flag if r == begin_req else last_flag if r == end_req else 0
        slot = num_splits[r] + (begin_split if r == begin_req else 0)
        work.append([r, begin, end, slot if shared else -1])
    return work


@right("04.4", "whole requests first, then the ends")
def work_of_ends(record, lengths, num_splits):
    first, last = record[:2]
    work = [[r, 0, math.ceil(lengths[r] / 64), -1] for r in range(first, last + 1)]
    if work:
        work[-1][2] = record[3]
        work[-1][3] = num_splits[last] if record[6] else -1
        work[0][1] = record[2]
        work[0][3] = num_splits[first] + record[4] if record[5] else -1
    return work


@right("04.4", "flags from the running sum, as an array")
def work_of_sums(record, lengths, num_splits):
    requests = np.arange(record[0], record[1] + 1)
    work = np.full((len(requests), 4), -1)
    for row, r in zip(work, requests, strict=True):
        row[:3] = r, record[2] * (r == record[0]), record[3] if r == record[1] else np.ceil(lengths[r] / 64)
        if num_splits[r + 1] - num_splits[r] > 1:
            row[3] = num_splits[r] + record[4] * (r == record[0])
    return work


@wrong("04.4", "last request dropped", says="end_req is included, and your loop stops before it")
def work_without_last(record, lengths, num_splits):
    return [row for row in work_of(record, lengths, num_splits) if row[0] != record[1]]


@wrong("04.4", "end_block for all", says="end_block belongs to the last request only")
def work_same_end(record, lengths, num_splits):
    return [[r, begin, record[3], slot] for r, begin, _, slot in work_of(record, lengths, num_splits)]


@wrong("04.4", "begin_block for all", says="begin_block belongs to the first request only")
def work_same_begin(record, lengths, num_splits):
    return [[r, record[2], end, slot] for r, _, end, slot in work_of(record, lengths, num_splits)]


@wrong("04.4", "runs to the end of the list", says="segment 2: end_block is 25, expected 8 (exclusive end)")
def work_to_the_end(record, lengths, num_splits):
    rows = work_of(record, lengths, num_splits)
    return [[r, begin, math.ceil(lengths[r] / 64), slot] for r, begin, _, slot in rows]


@wrong("04.4", "flags inverted", says="A flag that is set means")
def work_inverted_flags(record, lengths, num_splits):
    flags = {record[0]: record[5]} if record[0] == record[1] else {record[0]: record[5], record[1]: record[6]}
    return [
        [r, begin, end, -1 if flags.get(r, 0) else num_splits[r] + (record[4] if r == record[0] else 0)]
        for r, begin, end, _ in work_of(record, lengths, num_splits)
    ]


@wrong("04.4", "begin_split for all", says="A later request of the record has no earlier piece")
def work_split_for_all(record, lengths, num_splits):
    rows = work_of(record, lengths, num_splits)
    return [[*row[:3], -1 if row[3] < 0 else num_splits[row[0]] + record[4]] for row in rows]


@wrong("04.4", "begin_split forgotten", says="lands on top of the first piece's")
def work_without_split(record, lengths, num_splits):
    rows = work_of(record, lengths, num_splits)
    return [[*row[:3], -1 if row[3] < 0 else num_splits[row[0]]] for row in rows]


@wrong("04.4", "last flag for the requests between", says="A request between the first and the last is always whole")
def work_flag_between(record, lengths, num_splits):
    rows = work_of(record, lengths, num_splits)
    return [[*row[:3], num_splits[row[0]] if record[0] < row[0] < record[1] and record[6] else row[3]] for row in rows]


@wrong("04.4", "a slot for everybody", says="A whole request has no slot")
def work_always_slot(record, lengths, num_splits):
    rows = work_of(record, lengths, num_splits)
    return [[*row[:3], num_splits[row[0]] + (record[4] if row[0] == record[0] else 0)] for row in rows]


@wrong("04.4", "first or else last", says="One request can be first and last at once")
def work_elif(record, lengths, num_splits):
    work = []
    for r in range(record[0], record[1] + 1):
        row = [r, 0, -(-lengths[r] // 64), -1]
        if r == record[0]:
            row[1] = record[2]
            row[3] = num_splits[r] + record[4] if record[5] else -1
        elif r == record[1]:
            row[2:] = [record[3], num_splits[r] if record[6] else -1]
        work.append(row)
    return work


@wrong("04.4", "started block dropped", says="A started block counts: round up")
def work_floor(record, lengths, num_splits):
    rows = work_of(record, lengths, num_splits)
    return [[r, begin, end if r == record[1] else lengths[r] // 64, slot] for r, begin, end, slot in rows]


@wrong("04.4", "end_block plus one", says="end_block is exclusive already")
def work_one_more(record, lengths, num_splits):
    rows = work_of(record, lengths, num_splits)
    return [[r, begin, end + (r == record[1]), slot] for r, begin, end, slot in rows]


@wrong("04.4", "slot within the request", says="The slot lacks num_splits[request]")
def work_own_slots(record, lengths, num_splits):
    rows = work_of(record, lengths, num_splits)
    return [[*row[:3], -1 if row[3] < 0 else row[3] - num_splits[row[0]]] for row in rows]


@wrong("04.4", "None for no slot", says="segment 1: slot is None, expected an integer")
def work_none(record, lengths, num_splits):
    rows = work_of(record, lengths, num_splits)
    return [[*row[:3], None if row[3] < 0 else row[3]] for row in rows]


@wrong("04.4", "the library's own", says="this exercise asks you to write that yourself")
def work_by_library(record, lengths, num_splits):
    return [
        [s.request, s.begin_block, s.end_block, -1 if s.split is None else s.split]
        for s in read_record(0, record, lengths, num_splits)
    ]
