"""Exercise 03.3: top-k with ties, lengths and padding."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlacademy.grading.compare import Exact
from mlacademy.grading.exercise import Case, Exercise, Misconception

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def _pick(scores: Floats, k: int, lengths: Ints) -> Ints:
    return _pick_with(scores, k, lengths)


def _pick_with(
    scores: Floats,
    k: int,
    lengths: Ints,
    *,
    key: Callable[[float, int], tuple[float, int]] = lambda score, position: (-score, position),
    fill: int = -1,
    multiple: int = 64,
    arrange: Callable[[list[int]], list[int]] = list,
    front: bool = False,
) -> Ints:
    width = -(-k // multiple) * multiple
    out = np.full((len(scores), width), fill, dtype=np.int64)
    for r, row in enumerate(scores):
        best = arrange(sorted(range(int(lengths[r])), key=lambda p: key(float(row[p]), p))[:k])
        start = width - len(best) if front else 0
        out[r, start : start + len(best)] = best
    return out


def _pick_cases(rng: np.random.Generator, hidden: bool) -> Iterable[Case]:
    def case(label: str, scores: Floats | list[list[float]], k: int, lengths: list[int]) -> Case:
        inputs = {"scores": np.array(scores, dtype=np.float64), "k": k, "lengths": np.array(lengths, dtype=np.int64)}
        return Case(inputs, label=label, axes=(("request", "entry"),))

    if not hidden:
        yield case("different scores", [[0.1, 0.9, 0.5, 0.7, 0.3, 0.8], [4.0, 1.0, 2.0, 6.0, 3.0, 5.0]], 4, [6, 6])
        yield case("equal scores", [[0.5, 2.0, 0.5, 2.0, 0.5]], 4, [5])
        yield case("contexts shorter than the row", [[0.5, 2.0, 9.0, 8.0], [3.0, 7.0, 5.0, 9.0]], 2, [2, 3])
        yield case("a context shorter than k", [[0.5, 2.0, 1.0], [1.0, 2.0, 3.0]], 3, [1, 3])
        yield case("NaN behind the length", [[0.5, 2.0, np.nan], [1.0, 3.0, np.inf]], 2, [2, 2])
        yield case("k is a multiple of 64 already", [[0.5, 2.0, 1.0]], 64, [3])
        yield case("a request without tokens", [[0.5, 2.0], [3.0, 1.0]], 2, [0, 2])
    for k in (1, 63, 64, 65, 130) if hidden else (70,):
        b, n = int(rng.integers(2, 5)), int(rng.integers(max(k - 20, 5), k + 60))
        scores = rng.integers(-4, 5, (b, n)) / 4  # few values, so that many are equal
        lengths = rng.integers(1, n + 1, b)
        lengths[0] = n
        lengths[-1] = 0 if hidden else lengths[-1]
        scores[np.arange(n) >= lengths[:, None]] = 99.0
        yield case("long lists, many equal scores, lengths of any size", scores, k, lengths.tolist())


def _pick_as(what: str) -> Callable[[Floats, int, Ints], Ints]:
    """A wrong pick: the right one with one thing mistaken."""

    def model(scores: Floats, k: int, lengths: Ints) -> Ints:
        full = np.full_like(lengths, scores.shape[1])
        if what == "late ties":
            return _pick_with(scores, k, lengths, key=lambda score, position: (-score, -position))
        if what == "lengths ignored":
            return _pick_with(np.nan_to_num(scores, nan=np.inf), k, full)
        if what == "one length":
            return _pick_with(scores, k, np.full_like(lengths, lengths[0]))
        if what == "dropped after":
            best = _pick_with(np.nan_to_num(scores, nan=np.inf), k, full)
            return np.where(best < lengths[:, None], best, -1)
        if what == "closed up":
            best = _pick_with(np.nan_to_num(scores, nan=np.inf), k, full)
            for r, row in enumerate(best):
                left = row[(row >= 0) & (row < lengths[r])]
                row[:] = -1
                row[: len(left)] = left
            return best
        if what == "kept behind":
            own = np.arange(scores.shape[1]) < lengths[:, None]
            return _pick_with(np.where(own, scores, -np.inf), k, full)
        if what == "whole width":
            return _pick_with(scores, -(-k // 64) * 64, lengths)
        if what == "one block more":
            best = _pick_with(scores, k, lengths)
            return best if k % 64 else np.pad(best, ((0, 0), (0, 64)), constant_values=-1)
        if what == "worst":
            return _pick_with(scores, k, lengths, key=lambda score, position: (score, position))
        if what == "by position":
            return _pick_with(scores, k, lengths, arrange=sorted)
        if what == "zeros":
            return _pick_with(scores, k, lengths, fill=0)
        if what == "not padded":
            return _pick_with(scores, k, lengths, multiple=1)
        return _pick_with(scores, k, lengths, front=True)

    return model


def _scores_of(case: Case, picked: Ints) -> list[list[float]]:
    """The scores behind each row's picks, holes left out."""
    scores = case.inputs["scores"]
    return [[float(scores[r, p]) for p in row if p != -1] for r, row in enumerate(picked)]


def _proper(case: Case, expected: Ints, got: Any) -> bool:
    """Integers of the right shape: holes where they belong, and elsewhere positions of the row, none of them twice."""
    lengths = case.inputs["lengths"]
    return (
        isinstance(got, np.ndarray)
        and got.shape == expected.shape
        and got.dtype.kind in "iu"
        and bool(((got == -1) == (expected == -1)).all() and (got < lengths[:, None]).all())
        and all(len(set(row[row != -1])) == (row != -1).sum() for row in got)
    )


def _ties(case: Case, expected: Ints, got: Any) -> bool:
    """The right scores in the right order, and equal scores in no order at all (not even backwards)."""
    if not _proper(case, expected, got) or _scores_of(case, got) != _scores_of(case, expected):
        return False
    return not np.array_equal(got, _pick_as("late ties")(*case.inputs.values()))


def _unordered(case: Case, expected: Ints, got: Any) -> bool:
    """The right scores, not best first: what np.argpartition gives."""
    if not _proper(case, expected, got):
        return False
    mine, theirs = _scores_of(case, got), _scores_of(case, expected)
    return mine != theirs and [sorted(row) for row in mine] == [sorted(row) for row in theirs]


def _behind(case: Case, expected: Ints, got: Any) -> bool:
    """Some position at or behind the row's length."""
    return bool((np.asarray(got) >= case.inputs["lengths"][:, None]).any())


_DROPPED = (
    "You picked from the whole row and dropped what lay behind the length afterwards. The places are lost: tokens "
    "inside the length that rank next should have taken them."
)
_LENGTH_HINTS = (
    "Look at the case: which of the row's scores belong to the request?",
    "Buffers are reused, so behind a row's length stands whatever an older request left, perhaps NaN. Take the first "
    "lengths[r] scores and look at nothing else.",
    "own = scores[r, : lengths[r]]; rank these; write −1 into every place that is left.",
)

PICK_BEST = Exercise(
    id="03.3",
    title="Pick the best, the same way every time",
    entry="pick",
    points=2,
    lines=8,
    parameters=("scores", "k", "lengths"),
    outputs=("picked",),
    cases=_pick_cases,
    reference=_pick,
    compare=Exact(),
    misconceptions=(
        Misconception(
            "late ties",
            "Where scores are equal you took the later position first. Sorting upwards and reading the result "
            "backwards does that: it turns the order of equal scores around, too.",
            (
                "Two scores are equal. Which position comes first in your result?",
                "np.argsort(x)[::-1] reverses ties. Sorting the negated scores with kind='stable' keeps earlier first.",
                "order = np.argsort(-own, kind='stable')[:k]",
            ),
            _pick_as("late ties"),
        ),
        Misconception(
            "lengths ignored",
            "You picked positions at or behind the row's length: they hold what an older request left there.",
            _LENGTH_HINTS,
            _pick_as("lengths ignored"),
        ),
        Misconception(
            "dropped after",
            _DROPPED,
            _LENGTH_HINTS,
            _pick_as("dropped after"),
        ),
        Misconception("closed up", _DROPPED, _LENGTH_HINTS, _pick_as("closed up")),
        Misconception(
            "kept behind",
            "You ranked the scores behind the length last, and then picked them all the same. Where a request has "
            "fewer than k tokens, the places that are left hold −1.",
            _LENGTH_HINTS,
            _pick_as("kept behind"),
        ),
        Misconception(
            "one length",
            "You used the first request's length for every request. Each row has its own.",
            (
                "Compare your first row with the others. How long did you take each context to be?",
                "lengths has one entry a row.",
                "Use lengths[r] for row r.",
            ),
            _pick_as("one length"),
        ),
        Misconception(
            "worst",
            "You picked the lowest scores. The indexer's score says how relevant a token is: higher is better.",
            (
                "Does your first entry have the row's highest score?",
                "np.argsort sorts upwards.",
                "Sort the negated scores.",
            ),
            _pick_as("worst"),
        ),
        Misconception(
            "by position",
            "You picked the right positions and sorted them by position. Asked is the order of the scores, best first.",
            (
                "The set is right. What about the order?",
                "np.argsort of the negated scores gives positions in the right order already.",
                "Leave the last sort out.",
            ),
            _pick_as("by position"),
        ),
        Misconception(
            "zeros",
            "You filled empty places with 0. 0 is the request's first token, which would be attended to once for "
            "every empty place. Only −1 marks a hole.",
            (
                "Which value says: no token here?",
                "np.zeros makes a list full of references to token 0.",
                "Start from np.full((b, width), -1).",
            ),
            _pick_as("zeros"),
        ),
        Misconception(
            "not padded",
            "Your rows are k entries wide. The kernels read 64 entries at a time, so the width must be k rounded up to "
            "a multiple of 64; what is not used holds −1.",
            (
                "What does the statement say about the width of the result?",
                "Round k up: the next multiple of 64 that is not below k.",
                "width = (k + 63) // 64 · 64",
            ),
            _pick_as("not padded"),
        ),
        Misconception(
            "whole width",
            "You picked as many tokens as the row is wide. Only k are asked for; the places from k on hold −1.",
            (
                "How many tokens stand in a row of your result, and how large is k?",
                "k says how many to pick. The width only makes room, a multiple of 64.",
                "order = np.argsort(-own, kind='stable')[:k]",
            ),
            _pick_as("whole width"),
        ),
        Misconception(
            "one block more",
            "Your rows are 64 entries too wide where k is a multiple of 64 already: then there is nothing to round up.",
            (
                "Which width does your formula give for k = 64?",
                "k // 64 + 1 always goes one further. Adding 63 before the division does not.",
                "width = (k + 63) // 64 · 64",
            ),
            _pick_as("one block more"),
        ),
        Misconception(
            "front",
            "You put the holes in front. Asked are the tokens first and the holes at the end.",
            (
                "Where does your first token stand?",
                "Write the picked positions from the first place on.",
                "picked[r, : len(order)] = order",
            ),
            _pick_as("front"),
        ),
        Misconception(
            "ties",
            "Your scores are right, but equal ones do not go by position. NumPy's default sort is not stable: in a "
            "short row it may happen to keep the order of equal scores, in a long one it does not.",
            (
                "Which kind of sort keeps equal entries in their order?",
                "np.argsort takes kind='stable'. np.argpartition cannot: at the limit it takes any of several equal "
                "scores.",
                "order = np.argsort(-own, kind='stable')[:k]",
            ),
            when=_ties,
        ),
        Misconception(
            "unordered",
            "You picked the right scores, but not best first (np.argpartition alone leaves them in no order).",
            (
                "The scores are the right ones. In which order do they stand?",
                "A partition splits a row into best and rest; only a sort orders it.",
                "order = np.argsort(-own, kind='stable')[:k]",
            ),
            when=_unordered,
        ),
        Misconception(
            "behind",
            "Some of your positions lie at or behind the row's length: no token of this request stands there.",
            _LENGTH_HINTS,
            when=_behind,
        ),
    ),
    hints=(
        "Work row by row: the row's own scores, their order, the first k of it, then the padding.",
        "Three rules: only the first lengths[r] scores count; equal scores go by position, earlier first; unused "
        "places hold −1 and the width is a multiple of 64.",
        "order = np.argsort(-scores[r, : lengths[r]], kind='stable')[:k], written into a row of −1 that is "
        "(k + 63) // 64 · 64 wide.",
    ),
    forbids=("mlacademy.sparse", "torch.topk"),
)
