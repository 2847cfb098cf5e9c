"""What goes wrong in exercise 04.4: each mistake as a small wrong implementation, a reason, three hints."""

from __future__ import annotations

from mlacademy.grading.exercise import Misconception

Rows = list[list[int]]


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
    first_only: bool = False,
    whole_blocks: bool = False,
    own_slots: bool = False,
    beyond: int = 0,
) -> Rows:
    """The reading of a record, with parts of its rules switched off."""
    begin_req, end_req, begin_block, end_block, begin_split, first_flag, last_flag = record[:7]
    rows = []
    for request in range(begin_req, end_req + include_last):
        first, last = request == begin_req, request == end_req
        begin = begin_block if first or begin_for_all else 0
        own_end = lengths[request] // 64 if whole_blocks else -(-lengths[request] // 64)
        at_end = last and not length_at_end and not (first and first_only)
        end = end_block + beyond if at_end or end_for_all else own_end
        flag = first_flag if first else last_flag if last or flag_between else 0
        slot = 0 if own_slots else num_splits[request]
        slot += begin_split * (add_split and (first or split_for_all))
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
        "first and last at once",
        "One request can be first and last at once. It then begins at begin_block *and* ends at end_block; you treat "
        "it as first only.",
        (
            "The record [0, 0, 0, 1, ...] names one request. Which of its two ends does the record give?",
            "With if and elif, a request that is first never gets to the rule for the last.",
            "Two separate questions: one for the beginning, one for the end.",
        ),
        model=lambda **inputs: _work(**inputs, first_only=True),
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
        "started block dropped",
        "lengths[request] // 64 drops a block that is not full. A started block counts: round up.",
        (
            "How many blocks do 100 tokens fill?",
            "A list of n tokens ends with block ceil(n / 64), exclusive.",
            "-(-lengths[request] // 64).",
        ),
        model=lambda **inputs: _work(**inputs, whole_blocks=True),
    ),
    Misconception(
        "one block too many",
        "end_block is exclusive already. With one more, two partitions would read the same block.",
        (
            "The next partition begins at this end_block. Who reads that block?",
            "[begin_block, end_block) leaves end_block out.",
            "Use end_block as it stands.",
        ),
        model=lambda **inputs: _work(**inputs, beyond=1),
    ),
    Misconception(
        "slots counted within the request",
        "The slot lacks num_splits[request]. The slots of all requests lie in one buffer; request r begins at "
        "num_splits[r].",
        (
            "Which slots belong to request 2 if num_splits is [0, 2, 3, 5]?",
            "begin_split counts within the request, num_splits[request] says where the request's slots begin.",
            "slot = num_splits[request] + (begin_split if request == begin_req else 0).",
        ),
        model=lambda **inputs: _work(**inputs, own_slots=True),
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
