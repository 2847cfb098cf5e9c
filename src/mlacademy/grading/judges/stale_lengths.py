"""Exercise 12.5: a checksum of the lengths that a warp can add up in any order, and that nothing slips past."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import numpy as np

from mlacademy.grading.compare import Difference, describe
from mlacademy.grading.exercise import Case, Exercise, Misconception

Batch = tuple[int, ...]
WORD = 2**32


def _mixed(request: int, length: int) -> int:
    """A term of 32 bits that depends on both numbers in no simple way."""
    word = (request * 0x9E3779B1 + length * 0x85EBCA77 + 0x165667B1) % WORD
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        word = (word ^ word >> shift) * factor % WORD
    return word ^ word >> 16


def _terms(requests: list[int], lengths: list[int]) -> list[int]:
    return [_mixed(r, n) for r, n in zip(requests, lengths, strict=True)]


def _case(batches: list[Batch], label: str, rng: np.random.Generator) -> Case:
    """All pairs (request, length) of some batches, shuffled; the batches themselves stay in the judge."""
    pairs = [(request, length) for batch in batches for request, length in enumerate(batch)]
    order = rng.permutation(len(pairs))
    inputs = {"requests": [pairs[i][0] for i in order], "lengths": [pairs[i][1] for i in order]}
    return Case(inputs, label=label, data=(batches, order.tolist()))


def _cases(rng: np.random.Generator, hidden: bool) -> Iterable[Case]:
    if not hidden:
        yield _case([(2048, 100), (2048, 101)], "one length changed by one", rng)
        yield _case([(2048, 100), (100, 2048)], "two lengths exchanged", rng)
        yield _case([(2048, 100, 0), (0, 100, 2048), (100, 0, 2048)], "three lengths in other orders", rng)
        yield _case([(512, 512), (511, 513), (510, 514)], "tokens moved from one request to another", rng)
        yield _case([(700, 64), (0, 64)], "the first length only", rng)
        yield _case([(5, 5), (5, 5, 0)], "a request of length 0 more", rng)
        yield _case([(2048, 1024), (2046, 1025), (2050, 1023)], "changes that a weighted sum balances", rng)
        yield _case([(64, 32), (32, 32), (64, 64)], "powers of two", rng)
        long = tuple(int(n) for n in rng.integers(0, 2049, 96))
        yield _case([long, (*long[:70], long[70] ^ 1, *long[71:])], "a change far down in a large batch", rng)
    else:
        yield _case(list(product(range(7), repeat=3)), "every batch of three short lengths", rng)
        base = [int(n) for n in rng.integers(1, 2048, 64)]
        moved = []
        for i in range(63):
            other = list(base)
            other[i], other[i + 1] = other[i] - 1, other[i + 1] + 1
            moved.append(tuple(other))
            other = list(base)
            other[i], other[i + 1] = other[i + 1], other[i]
            if other != base:
                moved.append(tuple(other))
        yield _case([tuple(base), *dict.fromkeys(moved)], "neighbours of one large batch", rng)
        yield _case([(n,) * b for n in (0, 1, 2048) for b in range(1, 9)], "equal lengths, other batch sizes", rng)


def _compare(case: Case, expected: Any, got: Any) -> Difference | None:
    words = got.tolist() if isinstance(got, np.ndarray) else got
    wanted = f"a list of {len(expected)} integers"
    if not isinstance(words, (list, tuple)):
        return Difference("terms", "type", wanted, f"is {describe(got)}")
    if len(words) != len(expected):
        return Difference("terms", "length", len(expected), f"has {len(words)} items")
    for place, word in enumerate(words):
        if isinstance(word, bool) or not isinstance(word, (int, np.integer)):
            return Difference("terms", "type", "an integer", f"is {describe(word)}", (place,))
        if not 0 <= word < WORD:
            sentence = f"terms[{place}] is {word}, expected an integer of 32 bits: 0 to 2^32 - 1."
            return Difference("terms", "value", "32 bits", word, (place,), sentence=sentence)
    return _clash(case, [int(word) for word in words])


def _clash(case: Case, words: list[int]) -> Difference | None:
    """The first two batches with the same sum, or a pair that has two different terms."""
    batches, order = case.data
    in_order = [0] * len(words)
    for place, source in enumerate(order):
        in_order[source] = words[place]
    seen: dict[tuple[int, int], int] = {}
    sums: dict[int, Batch] = {}
    at = 0
    for batch in batches:
        mine = in_order[at : at + len(batch)]
        at += len(batch)
        for request, (length, word) in enumerate(zip(batch, mine, strict=True)):
            if seen.setdefault((request, length), word) != word:
                sentence = (
                    f"request {request} with length {length} has two terms, {seen[request, length]} and {word}: "
                    "the same pair must give the same term every time."
                )
                return Difference("terms", "value", seen[request, length], word, sentence=sentence)
        total = sum(mine) % WORD
        if total in sums:
            sentence = f"the lengths {_short(sums[total])} and {_short(batch)} have the same sum of terms, {total}."
            return Difference("terms", "value", "another sum", total, sentence=sentence)
        sums[total] = batch
    return None


def _short(batch: Batch) -> str:
    return str(list(batch)) if len(batch) <= 6 else f"[{', '.join(map(str, batch[:4]))}, … {len(batch)} in all]"


def _same_as(term: Callable[[int, int], int]) -> Callable[[Case, Any, Any], bool]:
    """Whether an answer's terms are those of a known wrong one. (A judge of properties accepts many answers, so a
    model cannot be compared with ``compare``.)"""

    def recognised(case: Case, expected: Any, got: Any) -> bool:
        pairs = zip(case.inputs["requests"], case.inputs["lengths"], strict=True)
        return [int(word) for word in got] == [term(r, n) % WORD for r, n in pairs]

    return recognised


MISTAKES = (
    Misconception(
        "sum of lengths",
        "Your term is the length alone. Then the sum is the same for every order of the requests, and for tokens moved "
        "from one to another.",
        (
            "Requests 0 and 1 change places. Which of your terms changes?",
            "The schedule depends on which request has which length, so the term must depend on both numbers.",
            "Mix the request's number into the term, and not by adding it: all sums would shift alike.",
        ),
        when=_same_as(lambda r, n: n),
    ),
    Misconception(
        "request 0 is silent",
        "You multiply by the request's number. Request 0 then adds nothing, whatever its length is; and the others can "
        "balance each other.",
        (
            "What does request 0 contribute?",
            "Even with request + 1 as a weight, two tokens less in request 0 and one more in request 1 cancel.",
            "Do not weigh the length: scramble (request, length) into 32 bits that look random.",
        ),
        when=_same_as(lambda r, n: r * n),
    ),
    Misconception(
        "a weighted sum",
        "Your term is the length times a weight. A change of 2 at weight 1 and one of -1 at weight 2 balance: batches "
        "that differ by such a pair look the same.",
        (
            "With weights 1 and 2, find two different pairs of lengths with the same sum.",
            "As long as the term is linear in the length, changes can balance each other. It must not be linear.",
            "Multiply, shift right, exclusive or, multiply again: a hash of the pair.",
        ),
        when=_same_as(lambda r, n: (r + 1) * n),
    ),
    Misconception(
        "sum of both",
        "You add the request's number to the length. Every batch of that size gets the same extra amount, so this is "
        "the plain sum of lengths once more.",
        (
            "Add up your terms for two requests in both orders.",
            "The sum of request numbers is the same for every batch of one size.",
            "Request and length must be mixed, not added.",
        ),
        when=_same_as(lambda r, n: r + n),
    ),
    Misconception(
        "exclusive or of both",
        "You combine request and length by exclusive or. For lengths whose low bits are 0 that is an addition, and the "
        "sum is again the same for every order.",
        (
            "Compute your terms for lengths 2048 and 100 in both orders.",
            "An exclusive or with a small number only changes a few low bits, often by plus or minus the same amount.",
            "Multiply by large odd numbers first, so that every bit of both numbers reaches all 32.",
        ),
        when=_same_as(lambda r, n: r ^ n),
    ),
    Misconception(
        "shifted out",
        "You shift the length by the request's number. Beyond 32 bits nothing is left of it, and below that a shift is "
        "a weight: changes balance each other.",
        (
            "What is left of a length after a shift by 40, in 32 bits?",
            "A shift by r is a multiplication by 2^r. Double the length of request 0: which other change looks alike?",
            "Scramble the pair so that each bit of the term depends on both numbers.",
        ),
        when=_same_as(lambda r, n: n << r),
    ),
    Misconception(
        "squares",
        "Your term is a square of the length, or of length times request. Squares are not linear, but the order of the "
        "requests, or request 0, is still invisible.",
        (
            "Exchange the lengths of two requests: does your sum change?",
            "The term needs both numbers, and request 0 must count as well.",
            "Use (request + 1) times a large odd number, add the length times another, then scramble.",
        ),
        when=lambda case, expected, got: any(
            _same_as(term)(case, expected, got) for term in (lambda r, n: n * n, lambda r, n: (r * n) ** 2)
        ),
    ),
)

STALE = Exercise(
    id="12.5",
    title="Notice stale lengths",
    entry="terms",
    points=3,
    lines=6,
    parameters=("requests", "lengths"),
    outputs=("terms",),
    cases=_cases,
    reference=_terms,
    compare=_compare,
    misconceptions=MISTAKES,
    hints=(
        "32 lanes add terms in any order, so the term itself must tell (request, length) apart from (other request, "
        "same length), and changes must not balance.",
        "Combine both numbers into one with large odd factors, then scramble: multiply, and fold the high bits onto "
        "the low ones. Everything modulo 2^32.",
        "word = (r * 0x9E3779B1 + n * 0x85EBCA77 + 1) % 2**32, then word = (word ^ word >> 16) * 0x7FEB352D % 2**32, "
        "and once more with another odd factor.",
    ),
    forbids=("mlacademy.schedule",),
)
