"""Exercise 12.1: choose split counts by a cost model. Cases, reference, and the mistakes it knows."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Any

import numpy as np

from mlacademy.grading.exercise import Case, Exercise, Misconception

PARAMETERS = ("blocks", "parts", "block", "enter", "partial")


def pieces_of(blocks: list[int], size: int) -> list[list[int]]:
    """Each request in as few pieces of at most ``size`` blocks as possible, as equal as whole blocks can be."""
    cut = []
    for n in blocks:
        count = -(-n // size)
        cut.append([n // count + (i < n % count) for i in range(count)])
    return cut


def makespan(costs: list[int], parts: int, *, longest_first: bool = True) -> int:
    """Pieces handed out one by one, each to the partition that is free first."""
    loads = [0] * parts
    for cost in sorted(costs, reverse=True) if longest_first else costs:
        heapq.heapreplace(loads, loads[0] + cost)
    return max(loads)


def price(cut: list[list[int]], parts: int, block: int, enter: int, partial: int) -> int:
    """Cycles until the merge is done."""
    merged = sum(len(pieces) for pieces in cut if len(pieces) > 1)
    return makespan([enter + block * n for pieces in cut for n in pieces], parts) + partial * merged


def best(blocks: list[int], pricer: Any, *, ties_to_small: bool = False, cutter: Any = pieces_of) -> Any:
    """The cheapest size: ``(splits of each request, its price)``."""
    sizes = range(1, max(blocks) + 1)
    found: tuple[list[list[int]], Any] | None = None
    for size in sizes if ties_to_small else reversed(sizes):
        cut = cutter(blocks, size)
        cost = pricer(cut)
        if found is None or cost < found[1]:
            found = cut, cost
    assert found is not None
    return [len(pieces) for pieces in found[0]], found[1]


def _reference(blocks: list[int], parts: int, block: int, enter: int, partial: int) -> Any:
    return best(blocks, lambda cut: price(cut, parts, block, enter, partial))


def _cases(rng: np.random.Generator, hidden: bool) -> Iterable[Case]:
    costs = (2800, 2000, 300)
    fixed: list[tuple[list[int], int, tuple[int, int, int], str]] = [
        ([32], 66, costs, "one request, and a GPU to itself"),
        ([2, 2], 66, costs, "the running example"),
        ([32] * 66, 66, costs, "one whole request for each partition"),
        ([32] * 67, 66, costs, "one request too many"),
        ([32, 2, 1, 16], 8, costs, "unequal requests"),
        ([9, 9, 9], 2, (100, 350, 10), "entering is dear"),
        ([12, 7], 4, (10, 0, 50), "merging is dear"),
        ([4, 4], 8, (10, 0, 5), "two sizes at the same price"),
        ([1, 1, 8], 2, (10, 5, 1), "short requests before a long one"),
        ([7], 3, (10, 40, 0), "a number of blocks that pieces do not divide"),
    ]
    for blocks, parts, (block, enter, partial), label in [] if hidden else fixed:
        yield Case(dict(zip(PARAMETERS, (blocks, parts, block, enter, partial), strict=True)), label=label)
    for requests in (1, 3, 10, 40) if hidden else ():
        for parts in (1, 5, 66):
            blocks = [int(n) for n in rng.integers(1, 33, requests)]
            block, enter, partial = (int(n) for n in rng.integers((50, 0, 0), (300, 900, 80)))
            values = (blocks, parts, block, enter, partial)
            yield Case(dict(zip(PARAMETERS, values, strict=True)), label="other batches, partitions and prices")


def _with_remainder(blocks: list[int], size: int) -> list[list[int]]:
    return [[min(size, n - start) for start in range(0, n, size)] for n in blocks]


def _largest(blocks: list[int], parts: int, block: int, enter: int, partial: int) -> Any:
    cut = pieces_of(blocks, 1)
    return [len(pieces) for pieces in cut], price(cut, parts, block, enter, partial)


def _whole(blocks: list[int], parts: int, block: int, enter: int, partial: int) -> Any:
    return [1] * len(blocks), price([[n] for n in blocks], parts, block, enter, partial)


def _mean(blocks: list[int], parts: int, block: int, enter: int, partial: int) -> Any:
    def shared_out(cut: list[list[int]]) -> int:
        total = sum(enter + block * n for pieces in cut for n in pieces)
        return -(-total // parts) + partial * sum(len(pieces) for pieces in cut if len(pieces) > 1)

    return best(blocks, shared_out)


def _everyone_merges(blocks: list[int], parts: int, block: int, enter: int, partial: int) -> Any:
    def priced(cut: list[list[int]]) -> int:
        return price(cut, parts, block, enter, 0) + partial * sum(len(pieces) for pieces in cut)

    return best(blocks, priced)


def _in_order(blocks: list[int], parts: int, block: int, enter: int, partial: int) -> Any:
    def priced(cut: list[list[int]]) -> int:
        costs = [enter + block * n for pieces in cut for n in pieces]
        merged = sum(len(pieces) for pieces in cut if len(pieces) > 1)
        return makespan(costs, parts, longest_first=False) + partial * merged

    return best(blocks, priced)


MISTAKES = (
    Misconception(
        "every block alone",
        "You cut as finely as possible. Each piece pays for entering its request, and each partial result is merged "
        "later: at some point one more cut costs more than it saves.",
        (
            "What does the last cut bring for one request of 32 blocks, and what does it cost?",
            "Try every size from the longest request down to 1 and price each of them whole: work and merge.",
            "Keep the cheapest: start with the largest size, and replace it only where a smaller one is strictly less.",
        ),
        model=_largest,
    ),
    Misconception(
        "never cut",
        "You left every request whole. With fewer requests than partitions most of the GPU then has nothing to do.",
        (
            "How many partitions work when one request of 32 blocks stays whole?",
            "A request of n blocks may be cut into ceil(n / size) pieces. Price every size, not only the largest.",
            "Loop over size in range(max(blocks), 0, -1) and keep the cheapest.",
        ),
        model=_whole,
    ),
    Misconception(
        "ties to more pieces",
        "Where two sizes cost the same you took the smaller one. Fewer pieces need less scratch memory: the larger "
        "size wins.",
        (
            "Your time is right. Are there other sizes with the same time?",
            "Go through the sizes from the largest to the smallest.",
            "Replace the best one only where the new time is strictly less.",
        ),
        model=lambda blocks, parts, block, enter, partial: best(
            blocks, lambda cut: price(cut, parts, block, enter, partial), ties_to_small=True
        ),
    ),
    Misconception(
        "entering left out",
        "Your time has no cost for entering a request. A piece costs enter + block · its blocks: the queries are "
        "loaded and the output is stored for each piece again.",
        (
            "What does a piece of one block cost, all in all?",
            "Cutting a request in s pieces means entering it s times.",
            "The cost of a piece is enter + block * size_of_piece.",
        ),
        model=lambda blocks, parts, block, enter, partial: best(
            blocks, lambda cut: price(cut, parts, block, 0, partial)
        ),
    ),
    Misconception(
        "merge left out",
        "Your time ends before the merge. Every piece of a request that was cut leaves a partial result, and each of "
        "them costs `partial` after the last partition is done.",
        (
            "What is still to be done when the last partition has finished?",
            "Count the pieces of all requests that were cut. Their merge comes after the main kernel.",
            "Add partial * (number of pieces of requests with more than one piece) to the longest load.",
        ),
        model=lambda blocks, parts, block, enter, partial: best(blocks, lambda cut: price(cut, parts, block, enter, 0)),
    ),
    Misconception(
        "whole requests merged",
        "You merge whole requests too. A request in one piece writes its final output itself: only pieces of requests "
        "that were cut are partial results.",
        (
            "Which requests leave partial results?",
            "With one piece there is nothing to merge, so it does not count.",
            "Count s where s > 1, and 0 where s is 1.",
        ),
        model=_everyone_merges,
    ),
    Misconception(
        "mean load",
        "You divided the work by the number of partitions. A partition takes whole pieces, and the launch is over when "
        "the last of them is done: the longest load counts, not the mean.",
        (
            "67 equal requests on 66 partitions: when is the last one done?",
            "Hand the pieces out one by one and keep a load for each partition.",
            "Longest piece first, each to the smallest load; then take max(loads).",
        ),
        model=_mean,
    ),
    Misconception(
        "order of arrival",
        "You handed the pieces out in the order of the requests. Then a long piece may come last and stick out. "
        "Longest first fills the gaps with short ones.",
        (
            "Two short requests and a long one on two partitions: which should be placed first?",
            "Sort the pieces of all requests by their cost before you hand them out.",
            "for cost in sorted(costs, reverse=True): add it to the smallest load.",
        ),
        model=_in_order,
    ),
    Misconception(
        "a short last piece",
        "Your pieces are full ones and a remainder. The longest piece decides, so make them as equal as possible: 7 "
        "blocks in three pieces are 3, 2 and 2.",
        (
            "With pieces of at most 6 blocks, how would you cut 7 blocks?",
            "First the number of pieces, ceil(n / size); then share the blocks out among them.",
            "n // count blocks each, and one more for the first n % count pieces.",
        ),
        model=lambda blocks, parts, block, enter, partial: best(
            blocks, lambda cut: price(cut, parts, block, enter, partial), cutter=_with_remainder
        ),
    ),
)

SPLITS = Exercise(
    id="12.1",
    title="Choose the splits",
    entry="choose_splits",
    points=4,
    lines=18,
    parameters=PARAMETERS,
    outputs=("splits", "time"),
    cases=_cases,
    reference=_reference,
    misconceptions=MISTAKES,
    hints=(
        "One number decides everything: the largest size of a piece. Write what a given size costs, then try all sizes "
        "and keep the cheapest.",
        "Price of a size: cut every request into ceil(n / size) nearly equal pieces; hand the pieces out, the dearest "
        "first, each to the partition with the smallest load; the longest load, plus the merge.",
        "heapq.heapreplace(loads, loads[0] + cost) on a list of `parts` zeros does the handing out. The merge is "
        "partial times the number of pieces of requests with more than one. Compare with <, from the largest size.",
    ),
    forbids=("mlacademy.schedule",),
)
