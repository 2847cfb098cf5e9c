"""Exercises of chapter 03: find a slot, translate positions, pick the best (03.3), attend to the picked (03.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlacademy.grading.compare import Exact
from mlacademy.grading.exercise import Case, Exercise, Misconception
from mlacademy.grading.judges.pick_best import PICK_BEST
from mlacademy.grading.judges.sparse_attend import SPARSE_ATTENTION

Ints = NDArray[np.int64]

# ---------------------------------------------------------------------------------------------------------------- 03.1

Place = tuple[int, int, int]


def _place(slot: int, page: int) -> Place:
    return (-1, -1, -1) if slot == -1 else (*divmod(slot, page), 656 * slot)


def _place_cases(rng: np.random.Generator, hidden: bool) -> Iterable[Case]:
    fixed = [
        (2091, 64, "a slot of the first article"),
        (47, 64, "a slot in page 0"),
        (-1, 64, "a hole"),
        (0, 64, "the first slot of the pool"),
        (64, 64, "the first slot of a page"),
        (10, 3, "pages of another size"),
    ]
    for slot, page, label in [] if hidden else fixed:
        yield Case({"slot": slot, "page": page}, label=label)
    for page in (1, 53, 61, 64, 256) if hidden else ():
        yield Case({"slot": int(rng.integers(page, 50_000)), "page": page}, label="slots anywhere, pages of any size")
        yield Case({"slot": -1, "page": page}, label="a hole")
        yield Case({"slot": 0, "page": page}, label="the first slot of the pool")


def _place_as(what: str) -> Callable[[int, int], Place]:
    """A wrong place: the right one with one thing mistaken."""

    def model(slot: int, page: int) -> Place:
        if slot == -1:
            return -1, -1, -1
        index, offset, byte = _place(slot, page)
        changed = {
            "64": (*divmod(slot, 64), byte),
            "slot 0": (-1, -1, -1) if slot == 0 else (index, offset, byte),
            "in page": (index, offset, 656 * offset),
            "page start": (index, offset, 656 * page * index),
            "576": (index, offset, 576 * slot),
            "584": (index, offset, 584 * slot),
            "1152": (index, offset, 1152 * slot),
        }
        return changed[what]

    return model


def _hole_divided(case: Case, expected: Any, got: Any) -> bool:
    """The page and offset of −1 as Python (rounding down) or C (rounding toward 0) divides it, by page or by 64."""
    return case.inputs["slot"] == -1 and tuple(got[:2]) in {(-1, case.inputs["page"] - 1), (-1, 63), (0, -1)}


def _hole_otherwise(case: Case, expected: Any, got: Any) -> bool:
    """A hole that was seen, and answered by something else than three times −1."""
    return bool(case.inputs["slot"] == -1)


def _swapped(case: Case, expected: Any, got: Any) -> bool:
    """Remainder first, quotient second, whatever byte follows."""
    return expected[0] != expected[1] and tuple(got[:2]) == (expected[1], expected[0])


def _only_byte(case: Case, expected: Any, got: Any) -> bool:
    """The right page and offset with another byte."""
    return isinstance(got, (list, tuple)) and tuple(got[:2]) == expected[:2] and got[2] != expected[2]


_BYTE_HINTS = (
    "Slots lie one after the other in the pool, and each takes the same number of bytes.",
    "A pool is a tensor [num_pages, page, 1, 656]. How many bytes come before a page, and how many before an offset?",
    "page_index · page · 656 + offset · 656, which is slot · 656.",
)

FIND_SLOT = Exercise(
    id="03.1",
    title="Find a slot",
    entry="find_slot",
    points=1,
    lines=4,
    parameters=("slot", "page"),
    outputs=("page_index", "offset", "first_byte"),
    cases=_place_cases,
    reference=_place,
    compare=Exact(),
    misconceptions=(
        Misconception(
            "hole",
            "You took a hole for a slot. In Python −1 // page is −1 and −1 % page is page − 1, the last token of some "
            "page; in C the results would be 0 and −1. A hole has no place: test for it first.",
            (
                "Which value of slot needs no division at all?",
                "Compare slot with −1 before you divide.",
                "if slot == -1: return -1, -1, -1",
            ),
            when=_hole_divided,
        ),
        Misconception(
            "hole otherwise",
            "A hole has no place: all three numbers are −1 then. 0 would be a place, the first of the pool.",
            (
                "What does the statement say about a hole?",
                "Three numbers come back for a hole, too.",
                "if slot == -1: return -1, -1, -1",
            ),
            when=_hole_otherwise,
        ),
        Misconception(
            "slot 0",
            "You took slot 0 for a hole. It is a slot like any other, the first of page 0; only −1 is a hole.",
            (
                "Which test separates slots from holes in your answer?",
                "Both `slot <= 0` and `not slot` are true for slot 0.",
                "if slot == -1: return -1, -1, -1",
            ),
            _place_as("slot 0"),
        ),
        Misconception(
            "64",
            "You divided by 64. The size of a page is an argument here, and it is not always 64.",
            (
                "Which argument did you not use?",
                "Public tests of the kernels use pages of 2, 53, 61, 64, 69, 256 and 576 tokens.",
                "Divide by page.",
            ),
            _place_as("64"),
        ),
        Misconception(
            "swapped",
            "You swapped the page and the offset: the page is the quotient, the offset the remainder.",
            (
                "Slot 2091 with pages of 64: 2091 = 32 · 64 + 43. Which of the two numbers counts whole pages?",
                "A remainder is always below page, so it can only be the offset.",
                "page_index = slot // page; offset = slot % page",
            ),
            when=_swapped,
        ),
        Misconception(
            "in page",
            "Your byte counts from the start of the page. Asked is the byte from the start of the pool.",
            _BYTE_HINTS,
            _place_as("in page"),
        ),
        Misconception(
            "page start",
            "Your byte is where the page begins; the token begins offset · 656 bytes later.",
            _BYTE_HINTS,
            _place_as("page start"),
        ),
        Misconception(
            "576",
            "You counted 576 bytes a token. 576 is the number of values; with scales and BF16 RoPE that is 656 bytes.",
            (
                "How many bytes does one token take in the V3.2 cache?",
                "512 bytes of E4M3, 4 float32 scales, 64 BF16 values.",
                "512 + 16 + 128 = 656.",
            ),
            _place_as("576"),
        ),
        Misconception(
            "1152",
            "You counted 1,152 bytes a token, the size of 576 values in BF16. The FP8 cache takes 656.",
            (
                "How many bytes does one token take in the V3.2 cache?",
                "512 bytes of E4M3, 4 float32 scales, 64 BF16 values.",
                "512 + 16 + 128 = 656.",
            ),
            _place_as("1152"),
        ),
        Misconception(
            "584",
            "You counted 584 bytes a token: that is the other layout, MODEL1. The V3.2 layout takes 656.",
            (
                "How many bytes does one token take in the V3.2 cache?",
                "512 bytes of E4M3, 4 float32 scales, 64 BF16 values.",
                "512 + 16 + 128 = 656.",
            ),
            _place_as("584"),
        ),
        Misconception(
            "byte",
            "The page and the offset are right; the first byte is not. Count all bytes of the pool before it.",
            _BYTE_HINTS,
            when=_only_byte,
        ),
    ),
    hints=(
        "Read slot = page_index · page + offset backwards.",
        "A whole division and its remainder; then the bytes of all slots before this one. And a hole is no slot.",
        "page_index = slot // page, offset = slot % page, first_byte = slot · 656; for −1 return −1 three times.",
    ),
    forbids=("mlacademy.cache", "mlacademy.sparse"),
)

# ---------------------------------------------------------------------------------------------------------------- 03.2


def _translate(positions: Ints, block_table: Ints, page: int) -> Ints:
    out = np.full_like(positions, -1)
    for where in zip(*np.nonzero(positions >= 0), strict=True):
        index, offset = divmod(int(positions[where]), page)
        out[where] = block_table[where[0], index] * page + offset
    return out


def _translate_cases(rng: np.random.Generator, hidden: bool) -> Iterable[Case]:
    def case(label: str, positions: list[list[int]], table: list[list[int]], page: int) -> Case:
        inputs = {"positions": np.array(positions), "block_table": np.array(table), "page": page}
        return Case(inputs, label=label, axes=(("request", "entry"),))

    if not hidden:
        yield case("two requests with the same positions", [[0, 47, 64, 100], [0, 47, 64, 100]], [[7, 3], [0, 9]], 64)
        yield case("holes at any place", [[-1, 5, -1], [2, -1, 6]], [[4, 2], [1, 3]], 4)
        yield case("table entries that are not in use", [[0, 1], [5, -1]], [[3, -1, -1], [5, 0, -1]], 4)
    for _ in range(5 if hidden else 1):
        b, k, used, page = (int(n) for n in rng.integers((2, 3, 2, 2), (5, 9, 5, 70)))
        table = rng.permutation(b * used).reshape(b, used)
        table = np.concatenate([table, np.full((b, 2), -1)], axis=1)
        positions = rng.integers(0, used * page, (b, k))
        positions[rng.random((b, k)) < 0.3] = -1
        label = "shuffled pages, holes, and pages of any size"
        yield case(label, positions.tolist(), table.tolist(), page)


def _translate_as(what: str) -> Callable[[Ints, Ints, int], Ints]:
    """A wrong translation: the right one with one thing mistaken."""

    def model(positions: Ints, block_table: Ints, page: int) -> Ints:
        rows = np.arange(len(positions))[:, None]
        hole = positions == -1
        safe = np.where(hole, 0, positions)
        if what == "table forgotten":
            return positions.copy()
        if what == "hole translated":
            found: Ints = block_table[rows, positions // page] * page + positions % page
            return found
        if what == "hole as position 0":
            return _translate(safe, block_table, page)
        if what == "hole as slot 0":
            return np.where(hole, 0, _translate(positions, block_table, page))
        if what == "position 0":
            return np.where(positions == 0, -1, _translate(positions, block_table, page))
        if what == "no remainder":
            return np.where(hole, -1, block_table[rows, safe // page] * page + safe)
        if what == "64 in the product":
            return np.where(hole, -1, block_table[rows, safe // page] * 64 + safe % page)
        if what == "64 in the quotient":
            return np.where(hole, -1, block_table[rows, safe // 64] * page + safe % page)
        if what == "first table":
            return _translate(positions, np.broadcast_to(block_table[:1], block_table.shape), page)
        if what == "64":
            return np.where(hole, -1, block_table[rows, safe // 64] * 64 + safe % 64)
        if what == "page without offset":
            return np.where(hole, -1, block_table[rows, safe // page] * page)
        if what == "page not multiplied":
            return np.where(hole, -1, block_table[rows, safe // page] + safe % page)
        return np.where(hole, -1, block_table[rows, safe // page])

    return model


_HOLE_HINTS = (
    "What does an entry of −1 mean, and what should become of it?",
    "Python and NumPy accept negative indices: −1 // page is −1, and block_table[r, −1] is the last entry. So a hole "
    "passes through the arithmetic without an error and comes out as some slot.",
    "Compute slots for the entries that are not −1, and write −1 everywhere else (np.where does both at once).",
)
_STEP_HINTS = (
    "Two steps: which of the request's pages (and where in it), then which page of the pool.",
    "Position p lies in the request's page number p // page, at offset p % page. The block table turns that page "
    "number into a page of the pool.",
    "slot = block_table[r, p // page] · page + p % page.",
)

TRANSLATE = Exercise(
    id="03.2",
    title="Through the block table",
    entry="to_physical",
    points=2,
    lines=6,
    parameters=("positions", "block_table", "page"),
    outputs=("slots",),
    cases=_translate_cases,
    reference=_translate,
    compare=Exact(),
    misconceptions=(
        Misconception(
            "table forgotten",
            "You returned positions. They are places in a request; slots are places in the pool, and another request's "
            "tokens may lie where you point.",
            _STEP_HINTS,
            _translate_as("table forgotten"),
        ),
        Misconception(
            "hole translated",
            "You translated holes. −1 // page is −1, and a negative index reads the table from its end, so each hole "
            "became the slot of some page, or a large negative number. Holes must stay −1.",
            _HOLE_HINTS,
            _translate_as("hole translated"),
        ),
        Misconception(
            "hole as position 0",
            "You turned holes into the request's first token. It would be attended to once more for every hole.",
            _HOLE_HINTS,
            _translate_as("hole as position 0"),
        ),
        Misconception(
            "hole as slot 0",
            "You wrote 0 for a hole. 0 is a slot like any other: the first token of page 0. Only −1 marks a hole.",
            _HOLE_HINTS,
            _translate_as("hole as slot 0"),
        ),
        Misconception(
            "first table",
            "You used request 0's block table for every request, so all of them read request 0's tokens.",
            (
                "Compare the first row of your result with the second. Which table did each use?",
                "Row r of positions goes with row r of block_table.",
                "Index with the row as well: block_table[r, p // page], or np.take_along_axis(block_table, …, axis=1).",
            ),
            _translate_as("first table"),
        ),
        Misconception(
            "64",
            "You used pages of 64. The size of a page is the third argument.",
            (
                "Which argument did you not use?",
                "Both the division and the multiplication take the size of a page.",
                "slot = block_table[r, p // page] · page + p % page.",
            ),
            _translate_as("64"),
        ),
        *(
            Misconception(
                key,
                "You used 64 in one place and page in another. Quotient, remainder and product all take the size of a "
                "page, the third argument.",
                (
                    "Where does a number 64 stand in your answer?",
                    "A page holds page tokens; 64 is only the size that the kernels like best.",
                    "slot = block_table[r, p // page] · page + p % page.",
                ),
                _translate_as(key),
            )
            for key in ("64 in the product", "64 in the quotient")
        ),
        Misconception(
            "position 0",
            "You took position 0 for a hole. It is the request's first token; only −1 marks a hole.",
            (
                "Which test separates tokens from holes in your answer?",
                "`positions > 0` leaves out position 0.",
                "holes = positions == -1",
            ),
            _translate_as("position 0"),
        ),
        Misconception(
            "no remainder",
            "You added the whole position to the page's first slot. Only its remainder counts there: the quotient has "
            "already chosen the page.",
            _STEP_HINTS,
            _translate_as("no remainder"),
        ),
        Misconception(
            "page without offset",
            "Your slots are all the first of their page: the offset within the page is missing.",
            _STEP_HINTS,
            _translate_as("page without offset"),
        ),
        Misconception(
            "page not multiplied",
            "You added the offset to the page's number. A page's first slot is its number times the size of a page.",
            _STEP_HINTS,
            _translate_as("page not multiplied"),
        ),
        Misconception(
            "page alone",
            "You returned pages, not slots: a page holds several tokens, and a slot names one of them.",
            _STEP_HINTS,
            _translate_as("page alone"),
        ),
    ),
    hints=_STEP_HINTS,
    forbids=("mlacademy.sparse", "mlacademy.cache"),
)

LATER = (PICK_BEST, SPARSE_ATTENTION)
