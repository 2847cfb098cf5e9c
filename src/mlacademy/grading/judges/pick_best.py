"""Exercise 03.3: top-k with ties, lengths and padding."""

from __future__ import annotations

from collections.abc import Callable, Iterable

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
        yield case("different scores", [[0.1, 0.9, 0.5, 0.7], [4.0, 1.0, 2.0, 3.0]], 3, [4, 4])
        yield case("equal scores", [[0.5, 2.0, 0.5, 2.0, 0.5]], 4, [5])
        yield case("contexts shorter than the row", [[0.5, 2.0, 9.0, 8.0], [3.0, 7.0, 5.0, 9.0]], 2, [2, 3])
        yield case("a context shorter than k", [[0.5, 2.0, 1.0], [1.0, 2.0, 3.0]], 3, [1, 3])
        yield case("NaN behind the length", [[0.5, 2.0, np.nan], [1.0, 3.0, np.inf]], 2, [2, 2])
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
            "You picked from the whole row and dropped what lay behind the length afterwards. The places are lost: "
            "tokens inside the length that rank next should have taken them.",
            _LENGTH_HINTS,
            _pick_as("dropped after"),
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
            "front",
            "You put the holes in front. Asked are the tokens first and the holes at the end.",
            (
                "Where does your first token stand?",
                "Write the picked positions from the first place on.",
                "picked[r, : len(order)] = order",
            ),
            _pick_as("front"),
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
