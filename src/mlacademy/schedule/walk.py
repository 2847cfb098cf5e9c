"""The greedy walk, twice: ``walk`` is so plain that nobody doubts it, ``fast_walk`` gives the same records sooner.

Partitions are filled one after another. A partition has ``payload`` room; a request costs its remaining blocks plus a
fixed overhead in every partition that touches it. What fits is finished; of what does not fit, a slice is taken that
fills the partition to the brim. ``payload = ceil(total / parts) + overhead``, where the total counts each request's
overhead once. A slice leaves at most ``overhead`` of room unused, and that is what the ``+ overhead`` pays for: so
the last partition always reaches the last block.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

Record = tuple[int, int, int, int, int, int, int, int]


class Step(NamedTuple):
    """One decision of the walk: partition ``partition`` looks at ``request`` with ``room`` left.

    need: remaining blocks plus overhead. action: "finish" (all remaining blocks), "slice" (as many as fit), or "full"
    (not even one block fits, none taken). begin_block, end_block: the blocks taken, end exclusive.
    """

    partition: int
    request: int
    room: int
    need: int
    action: str
    begin_block: int
    end_block: int


def payload_of(num_blocks: Sequence[int], parts: int, overhead: int) -> int:
    """Room of one partition in blocks.

    >>> payload_of([2, 2], 66, 5)
    6
    """
    total = sum(num_blocks) + overhead * len(num_blocks)
    return -(-total // parts) + overhead


def walk(num_blocks: Sequence[int], parts: int, *, overhead: int = 5) -> Iterator[Step]:
    """Yield every decision of the greedy walk over ``num_blocks`` ``[b]`` (blocks of each request, at least 1).

    >>> [(s.partition, s.request, s.action, s.room, s.need) for s in walk([2, 2], 66)][:2]
    [(0, 0, 'slice', 6, 7), (1, 0, 'finish', 6, 6)]
    """
    payload = payload_of(num_blocks, parts, overhead)
    request = done = 0
    for partition in range(parts):
        room = payload
        while request < len(num_blocks):
            need = num_blocks[request] - done + overhead
            if room >= need:
                yield Step(partition, request, room, need, "finish", done, num_blocks[request])
                room -= need
                request, done = request + 1, 0
            elif room > overhead:
                yield Step(partition, request, room, need, "slice", done, done + room - overhead)
                done += room - overhead
                break
            else:
                yield Step(partition, request, room, need, "full", done, done)
                break
    assert request == len(num_blocks), "the walk must reach the last request"


def fast_walk(
    lengths: Sequence[int], num_blocks: Sequence[int], starts: Sequence[int], parts: int, overhead: int
) -> tuple[list[Record], list[int]]:
    """Records of all ``parts`` partitions, and the request of every slice taken, with one binary search per partition.

    starts ``[b + 1]``: prefix sum of ``num_blocks + overhead``, the line on which the requests lie. From position
    ``starts[r] + done`` a partition reaches ``payload`` further; the requests it finishes are those that end before.
    """
    b = len(num_blocks)
    payload = -(-starts[b] // parts) + overhead
    records: list[Record] = []
    slices: list[int] = []
    request = done = split = 0
    for _ in range(parts):
        if request == b:
            break
        begin, begin_block, begin_split = request, done, split
        reach = starts[request] + done + payload
        request = bisect_right(starts, reach, begin + 1) - 1
        if request > begin:
            room = reach - starts[request]
            done = split = 0
        else:
            room = payload
        if request < b and room > overhead:
            done += room - overhead
            split += 1
            slices.append(request)
        # A partition ends inside `request` (a slice), or at the end of the one before; a length of 0 has no block.
        end, end_block = (
            (request, done) if done else (request - 1, num_blocks[request - 1] if lengths[request - 1] else 0)
        )
        first, last = begin_block > 0, done > 0
        if begin == end:
            first = last = first or last
        records.append((begin, end, begin_block, end_block, begin_split, int(first), int(last), 0))
    assert (request, done) == (b, 0), "the walk must reach the last block"
    idle: Record = (b, b - 1, 0, num_blocks[b - 1] if lengths[b - 1] else 0, 0, 0, 0, 0)
    records.extend([idle] * (parts - len(records)))
    return records, slices
