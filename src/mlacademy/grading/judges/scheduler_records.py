"""What goes wrong in exercises 04.3 and 04.4: each mistake as a small wrong implementation, a reason, three hints."""

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


def _work(
    record: list[int],
    lengths: list[int],
    num_splits: list[int],
    *,
    include_last: bool = True,
    end_for_all: bool = False,
    begin_for_all: bool = False,
    split_for_all: bool = False,
    add_split: bool = True,
    invert: bool = False,
    flag_between: bool = False,
    slot_always: bool = False,
    length_at_end: bool = False,
) -> Rows:
    """The reading of a record, with parts of its rules switched off."""
    begin_req, end_req, begin_block, end_block, begin_split, first_flag, last_flag = record[:7]
    rows = []
    for request in range(begin_req, end_req + include_last):
        first, last = request == begin_req, request == end_req
        begin = begin_block if first or begin_for_all else 0
        end = end_block if (last and not length_at_end) or end_for_all else -(-lengths[request] // 64)
        flag = first_flag if first else last_flag if last or flag_between else 0
        slot = num_splits[request] + begin_split * (add_split and (first or split_for_all))
        rows.append([request, begin, end, slot if slot_always or bool(flag) != invert else -1])
    return rows


READ = (
    Misconception(
        "last request dropped",
        "end_req is included, and your loop stops before it. The request would never be finished: nobody else has "
        "these blocks.",
        (
            "How many requests does a record with begin_req 0 and end_req 0 name?",
            "range(a, b) leaves b out.",
            "range(begin_req, end_req + 1).",
        ),
        model=lambda **inputs: _work(**inputs, include_last=False),
    ),
    Misconception(
        "end_block for every request",
        "end_block belongs to the last request only. The others run to the end of their own lists, which the record "
        "does not mention; the kernel takes it from their lengths.",
        (
            "Look at the first request of a record with two requests. Where does its list end?",
            "Only request end_req stops at end_block. For the rest, ceil(length / 64).",
            "end = end_block if request == end_req else -(-lengths[request] // 64).",
        ),
        model=lambda **inputs: _work(**inputs, end_for_all=True),
    ),
    Misconception(
        "begin_block for every request",
        "begin_block belongs to the first request only. Every later request of the partition starts at its block 0.",
        (
            "Only one request of a partition can have been begun by somebody else. Which?",
            "A request that is not the first of its record begins with block 0.",
            "begin = begin_block if request == begin_req else 0.",
        ),
        model=lambda **inputs: _work(**inputs, begin_for_all=True),
    ),
    Misconception(
        "end from the length",
        "You let the last request run to the end of its list. It may be cut: the blocks from end_block on belong to "
        "the next partition and would be read twice.",
        (
            "What is end_block for, if every request ends with its list?",
            "The last request of the record ends at end_block, exclusive.",
            "end = end_block if request == end_req else -(-lengths[request] // 64).",
        ),
        model=lambda **inputs: _work(**inputs, length_at_end=True),
    ),
    Misconception(
        "flags read the wrong way round",
        "A flag that is set means *shared*: the result is partial and goes to a slot. You treat it as permission to "
        "write the final output.",
        (
            "is_first_req_splitted: what is true of the request when this is 1?",
            "Set: split, a slot. Clear: whole, no slot, -1.",
            "slot if flag else -1.",
        ),
        model=lambda **inputs: _work(**inputs, invert=True),
    ),
    Misconception(
        "begin_split added to every request",
        "begin_split counts earlier pieces of the *first* request. A later request of the record has no earlier piece, "
        "so its slot is num_splits[request] alone.",
        (
            "Can a request that begins in this partition have a piece in an earlier one?",
            "Add begin_split for request begin_req only.",
            "slot = num_splits[request] + (begin_split if request == begin_req else 0).",
        ),
        model=lambda **inputs: _work(**inputs, split_for_all=True),
    ),
    Misconception(
        "begin_split forgotten",
        "The slot of a continued request is num_splits[request] + begin_split. Without the second term its result "
        "lands on top of the first piece's.",
        (
            "Two partitions share request 0. Which slots do they write to with your rule?",
            "begin_split says how many pieces of the first request lie in earlier partitions.",
            "Add begin_split to the slot of request begin_req.",
        ),
        model=lambda **inputs: _work(**inputs, add_split=False),
    ),
    Misconception(
        "request in between split",
        "A request between the first and the last is always whole: nobody else touches it. The flags speak of the "
        "first and the last request, not of the ones between.",
        (
            "Request 1 of the record (0, 2, ...) lies between two others. Who else could work on it?",
            "Neither flag belongs to a request in between. It goes straight to the output: -1.",
            "Start with a flag of 0, and replace it for the last and the first request only.",
        ),
        model=lambda **inputs: _work(**inputs, flag_between=True),
    ),
    Misconception(
        "a slot for whole requests",
        "A whole request has no slot: its result is final and goes to the output. The exercise writes this as -1.",
        (
            "Does a request that no other partition touches need a partial result?",
            "Look at the flag before you name a slot.",
            "slot if flag else -1.",
        ),
        model=lambda **inputs: _work(**inputs, slot_always=True),
    ),
)
