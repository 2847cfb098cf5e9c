"""What goes wrong in exercise 04.3: each mistake as a small wrong implementation, a reason, three hints."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, pairwise

from mlacademy.grading.exercise import Misconception

Rows = list[list[int]]
Walked = tuple[Rows, list[int]]


def _walk(
    num_blocks: list[int],
    overhead: int,
    payload: int,
    *,
    continued: bool = True,
    reserve: bool = True,
    empty_slices: bool = False,
) -> Walked:
    """The walk, with parts of its rules switched off."""
    rows: Rows = []
    prefix = [0]
    room = 0
    for request, blocks in enumerate(num_blocks):
        done = pieces = 0
        while done < blocks:
            price = overhead if continued or not done else 0
            least = price if empty_slices and rows and room else price + 1
            if room < least:
                rows.append([request, request, done, done, pieces])
                room = payload
            take = min(blocks - done, room - price if reserve else room)
            done += take
            pieces += 1
            rows[-1][1], rows[-1][3] = request, done
            room = max(room - take - price, 0) if done == blocks else 0
        prefix.append(prefix[-1] + pieces)
    return rows, prefix


def _shifted(column: int, by: int) -> Callable[..., Walked]:
    def model(num_blocks: list[int], overhead: int, payload: int) -> Walked:
        rows, prefix = _walk(num_blocks, overhead, payload)
        return [[value + by * (i == column) for i, value in enumerate(row)] for row in rows], prefix

    return model


def _no_begin_split(num_blocks: list[int], overhead: int, payload: int) -> Walked:
    rows, prefix = _walk(num_blocks, overhead, payload)
    return [[*row[:4], 0] for row in rows], prefix


def _slots(num_blocks: list[int], overhead: int, payload: int) -> Walked:
    rows, prefix = _walk(num_blocks, overhead, payload)
    return [[*row[:4], prefix[row[0]] + row[4]] for row in rows], prefix


def _takes(num_blocks: list[int], overhead: int, payload: int) -> Walked:
    rows, prefix = _walk(num_blocks, overhead, payload)
    return [[*row[:3], row[3] - (row[2] if row[0] == row[1] else 0), row[4]] for row in rows], prefix


def _cuts(num_blocks: list[int], overhead: int, payload: int) -> Walked:
    rows, prefix = _walk(num_blocks, overhead, payload)
    return rows, [pieces - request for request, pieces in enumerate(prefix)]


def _ends_on_next(num_blocks: list[int], overhead: int, payload: int) -> Walked:
    rows, prefix = _walk(num_blocks, overhead, payload)
    ended = [end == num_blocks[request] for _, request, _, end, _ in rows]
    return [[r[0], r[1] + 1, r[2], 0, r[4]] if full else r for r, full in zip(rows, ended, strict=True)], prefix


def _own_walk(num_blocks: list[int], overhead: int, payload: int, *, mistake: str) -> Walked:
    """The walk request by request, with one line changed."""
    rows: Rows = []
    prefix = [0]
    request = done = pieces = 0
    while request < len(num_blocks) and len(rows) <= 2 * sum(num_blocks):
        rows.append([request, request, done, done, pieces])
        room, price = (payload - overhead, 0) if mistake == "one overhead" else (payload, overhead)
        while request < len(num_blocks):
            need = num_blocks[request] - done + price
            if room > need or (room == need and mistake != "strict"):
                rows[-1][1], rows[-1][3] = request, num_blocks[request]
                prefix.append(prefix[-1] + pieces + 1)
                room, request, done = room - need, request + 1, 0
                pieces = pieces if mistake == "counter kept" else 0
                if mistake == "one request":
                    break
                continue
            if room > price:
                done, pieces = done + room - price, pieces + 1
                rows[-1][1], rows[-1][3] = request, done
            break
    return rows, prefix


def _mistaken(mistake: str) -> Callable[..., Walked]:
    return lambda **inputs: _own_walk(**inputs, mistake=mistake)


def _counts(num_blocks: list[int], overhead: int, payload: int) -> Walked:
    rows, prefix = _walk(num_blocks, overhead, payload)
    return rows, [after - before for before, after in pairwise(prefix)]


def _sums_without_zero(num_blocks: list[int], overhead: int, payload: int) -> Walked:
    rows, prefix = _walk(num_blocks, overhead, payload)
    return rows, prefix[1:]


def _never_cuts(num_blocks: list[int], overhead: int, payload: int) -> Walked:
    rows: Rows = []
    room = 0
    for request, blocks in enumerate(num_blocks):
        if not rows or room < blocks + overhead:
            rows.append([request, request, 0, blocks, 0])
            room = payload
        rows[-1][1], rows[-1][3] = request, blocks
        room -= blocks + overhead
    return rows, list(accumulate([1] * len(num_blocks), initial=0))


WALK = (
    Misconception(
        "end_req excluded",
        "end_req is included: the kernel loops up to and including it. Your value is one too large, as if it were the "
        "end of a range, and the kernel would start on a request that belongs to the next partition.",
        (
            "Partition 0 of the running example works on request 0 alone. What is its last request?",
            "The record mixes two conventions: the last request is included, the last block is not.",
            "Set end_req to the request that the partition touched last.",
        ),
        model=_shifted(1, 1),
    ),
    Misconception(
        "end_block included",
        "end_block is an exclusive end: the first block that is *not* read. Your value is the last block that is read.",
        (
            "How many blocks does [begin_block, end_block) hold with your numbers?",
            "The next partition begins where this one ends: its begin_block must equal this end_block.",
            "Set end_block to `done` after the step, not to `done - 1`.",
        ),
        model=_shifted(3, -1),
    ),
    Misconception(
        "overhead not reserved",
        "Your slice takes the whole room. The partition must pay the overhead for the piece too, so only "
        "room - overhead is left for blocks.",
        (
            "The running example: payload 6, overhead 5. How many blocks of request 0 does partition 0 read?",
            "The room counts blocks *and* overheads. Pay first, then read what is left.",
            "A slice takes room - overhead blocks.",
        ),
        model=lambda **inputs: _walk(**inputs, reserve=False),
    ),
    Misconception(
        "overhead paid once per request",
        "You charge the overhead only where a request begins. A partition that continues a request has to load the "
        "query and write a result as well: every piece pays.",
        (
            "Partition 1 of the running example has payload 6 and continues request 0, of which 1 block is left. How "
            "much room does it have when that is done?",
            "The price of a piece is its blocks plus the overhead, whether it is the first piece or not.",
            "need = num_blocks[request] - done + overhead, always.",
        ),
        model=lambda **inputs: _walk(**inputs, continued=False),
    ),
    Misconception(
        "overhead paid once per partition",
        "You charge the overhead once for each partition. It is the price of touching a request: a partition that "
        "reads from three requests loads three queries and writes three results.",
        (
            "A partition finishes one request and goes on to the next. What must it load before it reads a block?",
            "The price of every piece is its blocks plus the overhead.",
            "After a finished request: room -= blocks + overhead.",
        ),
        model=_mistaken("one overhead"),
    ),
    Misconception(
        "one request a partition",
        "You open a new partition for every request. One that has finished a request goes on to the next with the room "
        "that is left.",
        (
            "Partition 1 of the case [25, 1, 25] finishes request 0 and has room 19 left. Who uses it?",
            "Open a partition only when the room is not more than the overhead.",
            "After a finished request subtract blocks + overhead from room, and look at the next request.",
        ),
        model=_mistaken("one request"),
    ),
    Misconception(
        "exact fit refused",
        "A request that fits exactly is finished: room 6 is enough for a need of 6. You compare with < where it is <=.",
        (
            "Partition 1 of the running example has room 6 and a need of 6. Does the piece fit?",
            "If the room equals the need, the partition reads everything and has no room left.",
            "if room >= need: finish.",
        ),
        model=_mistaken("strict"),
    ),
    Misconception(
        "piece counter kept",
        "The counter of pieces goes on from one request to the next. It starts at 0 for every request.",
        (
            "What is begin_split of the first piece of request 1?",
            "The pieces of request 0 say nothing about request 1; num_splits adds them up.",
            "Set the counter to 0 where you go on to the next request.",
        ),
        model=_mistaken("counter kept"),
    ),
    Misconception(
        "end on the next request",
        "You stored where the walk stands *after* the partition: the next request, none of its blocks done. The record "
        "holds the last request that the partition has read, and its end.",
        (
            "Partition 1 of the running example finishes request 0. Has it read anything of request 1?",
            "Where a request is finished, end_req is that request and end_block its number of blocks.",
            "Set end_req and end_block in the step that takes blocks, before you go on to the next request.",
        ),
        model=_ends_on_next,
    ),
    Misconception(
        "blocks taken as the end",
        "end_block is a place in the request, not a number of blocks: begin_block plus the blocks that were read.",
        (
            "Partition 1 of the running example reads block 1. Where does it end?",
            "[begin_block, end_block) is a range.",
            "end_block = done, after the step.",
        ),
        model=_takes,
    ),
    Misconception(
        "pieces numbered from 1",
        "Pieces are numbered from 0: begin_split is how many pieces of begin_req lie in earlier partitions.",
        (
            "How many pieces of request 0 come before partition 0?",
            "The kernel adds begin_split to num_splits[begin_req], the request's first slot.",
            "Store the counter when the partition is opened, and add one to it behind the piece.",
        ),
        model=_shifted(4, 1),
    ),
    Misconception(
        "cuts instead of pieces",
        "num_splits adds up pieces, not cuts: a request that is cut once has two pieces, and a whole one has one.",
        (
            "The running example cuts each request once, and num_splits is [0, 2, 4].",
            "Pieces of a request = cuts + 1.",
            "num_splits.append(num_splits[-1] + cuts + 1).",
        ),
        model=_cuts,
    ),
    Misconception(
        "empty pieces",
        "When the room is exactly the overhead, no block fits: nothing may be taken. You counted a piece of 0 blocks, "
        "which takes up a split slot that nobody fills.",
        (
            "With room 5 and overhead 5, how many blocks are there in a slice?",
            "A slice is allowed only if at least one block fits.",
            "The condition is room > overhead, not room >= overhead.",
        ),
        model=lambda **inputs: _walk(**inputs, empty_slices=True),
    ),
    Misconception(
        "begin_split is always 0",
        "begin_split stays 0 in your records. A partition that continues a request needs to know how many pieces came "
        "before, or it writes its result over the first piece's.",
        (
            "Which split slot does partition 1 of the running example write to? Slot 0 is taken.",
            "Count the pieces of the current request, and store the count when a partition is opened.",
            "Reset the counter when a request is finished, add one for each piece, and put it in the fifth place.",
        ),
        model=_no_begin_split,
    ),
    Misconception(
        "begin_split is a slot",
        "begin_split counts within the request. You stored the absolute slot; the kernel adds num_splits[begin_req] "
        "itself, and would land in another request's slots.",
        (
            "The first piece of any request has begin_split 0, even if other requests came before.",
            "The slot is num_splits[request] + begin_split. Which of the two terms did you store?",
            "Store the number of pieces of this request alone.",
        ),
        model=_slots,
    ),
    Misconception(
        "counts instead of sums",
        "num_splits is a running sum, with one entry more than there are requests. You returned the number of pieces "
        "of each request.",
        (
            "In the running example, [2, 2] are the pieces. num_splits is [0, 2, 4].",
            "Start with 0, and add each request's pieces to the entry before.",
            "num_splits.append(num_splits[-1] + pieces).",
        ),
        model=_counts,
    ),
    Misconception(
        "sums without the first zero",
        "The 0 at the front of num_splits is missing: request r owns the slots from num_splits[r] on, and those of "
        "request 0 begin at 0.",
        (
            "Where do the slots of request 0 begin?",
            "num_splits has one entry more than there are requests.",
            "Start with num_splits = [0].",
        ),
        model=_sums_without_zero,
    ),
    Misconception(
        "never cuts",
        "You keep every request whole. When one does not fit and the room is larger than the overhead, the partition "
        "takes a slice of it; that is what splitting means, and what the payload was computed for.",
        (
            "Request 0 of the running example costs 7, the payload is 6. Which partition could read it whole?",
            "What fits is finished. Of what does not fit, a slice is taken that fills the room.",
            "take = min(num_blocks[request] - done, room - overhead).",
        ),
        model=_never_cuts,
    ),
)
