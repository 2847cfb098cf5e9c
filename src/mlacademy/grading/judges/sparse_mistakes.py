"""Wrong answers to exercise 03.4, as the judge imitates or recognises them, and the right one they derive from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlacademy.grading.exercise import Case

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Result = tuple[Array, Array]


def attend(q: Array, cache: Array, indices: Ints, length: int, scale: float, d_v: int) -> Result:
    tokens = cache.reshape(-1, cache.shape[2])
    named = np.array([slot for slot in indices[:length] if slot != -1], dtype=np.int64)
    return _softmax(scale * q @ tokens[named].T, tokens[named, :d_v])


def _softmax(logits: Array, values: Array) -> Result:
    if logits.shape[1] == 0:
        return np.zeros((len(logits), values.shape[1])), np.full(len(logits), np.inf)
    top = logits.max(axis=1, keepdims=True)
    e = np.exp(logits - top)
    total = e.sum(axis=1, keepdims=True)
    return e / total @ values, (top + np.log(total))[:, 0]


def attend_as(what: str) -> Callable[..., Result]:
    """A wrong attention: the right one with one thing mistaken."""

    @np.errstate(all="ignore")
    def model(q: Array, cache: Array, indices: Ints, length: int, scale: float, d_v: int) -> Result:
        d = cache.shape[2]
        tokens = cache.reshape(-1, d)
        kept = indices[:length]
        hole = kept == -1
        if what in ("zeros", "masked NaN", "last"):
            rows = tokens[np.where(hole, -1 if what == "last" else 0, kept)]
            if what == "zeros":
                rows = np.where(hole[:, None], 0.0, rows)
            logits = scale * q @ rows.T
            if what == "masked NaN":
                logits = np.where(hole, -np.inf, logits)
            return _softmax(logits, rows[:, :d_v])
        if what == "length":
            return attend(q, cache, indices, len(indices), scale, d_v)
        if what == "filter first":
            first = indices[indices != -1][:length]
            return attend(q, cache, first, len(first), scale, d_v)
        if what == "first hole":
            return attend(q, cache, indices, int(np.argmax(np.append(hole, True))), scale, d_v)
        if what == "slot 0":
            return attend(q, cache, kept[kept > 0], length, scale, d_v)
        if what == "unique":
            return attend(q, cache, np.unique(kept[~hole]), length, scale, d_v)
        if what == "no scale":
            return attend(q, cache, indices, length, 1.0, d_v)
        if what == "root":
            return attend(q, cache, indices, length, d**-0.5, d_v)
        named = kept[~hole]
        if what == "short keys":
            return _softmax(scale * q[:, :d_v] @ tokens[named, :d_v].T, tokens[named, :d_v])
        if what == "one maximum":
            logits = scale * q @ tokens[named].T
            e = np.exp(logits - logits.max())
            return e @ tokens[named, :d_v] / e.sum(axis=1, keepdims=True), logits.max() + np.log(e.sum(axis=1))
        if what == "last values":
            return _softmax(scale * q @ tokens[named].T, tokens[named, d - d_v :])
        if what == "all values":
            return _softmax(scale * q @ tokens[named].T, tokens[named])
        out, lse = attend(q, cache, indices, length, scale, d_v)
        if what == "base 2":
            return out, lse / np.log(2)
        if what == "sum":
            return out, np.exp(lse)
        if what == "relative":
            return out, lse - (scale * q @ tokens[named].T).max(axis=1)
        return out, np.where(lse == np.inf, -np.inf, lse)

    return model


def _scores(case: Case) -> Array:
    """The scores of the entries that count, [h, n]."""
    q, cache, indices, length, scale, _ = case.inputs.values()
    named = [slot for slot in indices[:length] if slot != -1]
    scores: Array = scale * q @ cache.reshape(-1, cache.shape[2])[named].T
    return scores


def _numbers(got: Any) -> Array:
    """Every number of an answer in one row."""
    return np.concatenate([np.asarray(part, dtype=np.float64).ravel() for part in got])


def shaped(expected: Any, got: Any) -> bool:
    """Two arrays of the expected shapes."""
    return all(isinstance(one, np.ndarray) and one.shape == want.shape for one, want in zip(got, expected, strict=True))


def overflow(case: Case, expected: Any, got: Any) -> bool:
    """Infinite or NaN results where some scores are beyond what exp can take."""
    return bool(_scores(case).max() > 709 and not np.isfinite(_numbers(got)).all())


def underflow(case: Case, expected: Any, got: Any) -> bool:
    """Infinite or NaN results where exp of every score of some head is 0."""
    return bool((_scores(case).max(axis=1) < -745).any() and not np.isfinite(_numbers(got)).all())


def hole_outweighs(case: Case, expected: Any, got: Any) -> bool:
    """Values of 0 for a head whose scores all lie far below a hole's finite score."""
    if not shaped(expected, got):
        return False
    return bool(((_scores(case).max(axis=1) < -745) & ~got[0].any(axis=1)).any())


def poisoned(case: Case, expected: Any, got: Any) -> bool:
    """NaN in the result although some entry counts."""
    return bool(_scores(case).size and np.isnan(_numbers(got)).any())


def empty(case: Case, expected: Any, got: Any) -> bool:
    """NaN where no entry counts."""
    return bool(not _scores(case).size and np.isnan(_numbers(got)).any())


def empty_lse(case: Case, expected: Any, got: Any) -> bool:
    """Zeros where no entry counts, with another lse than +∞."""
    return bool(shaped(expected, got) and not _scores(case).size and not got[0].any())


def undivided(case: Case, expected: Any, got: Any) -> bool:
    """The weighted sum of the values without the division by the sum of the weights."""
    scores = _scores(case)
    if not (shaped(expected, got) and scores.size):
        return False
    with np.errstate(over="ignore"):
        sums = [np.exp(expected[1] - scores.max(axis=1)), np.exp(expected[1])]
    return any(
        bool((total > 0).all() and np.allclose(expected[0] * total[:, None], got[0], rtol=1e-9, atol=1e-9))
        for total in sums
    )


def single(case: Case, expected: Any, got: Any) -> bool:
    """Right to single precision, and a float32 result."""
    return (
        shaped(expected, got)
        and np.float32 in (got[0].dtype, got[1].dtype)
        and all(np.allclose(mine, right, rtol=1e-4, atol=1e-4) for mine, right in zip(got, expected, strict=True))
    )


def only_lse(case: Case, expected: Any, got: Any) -> bool:
    """The right output with another lse."""
    return shaped(expected, got) and np.allclose(got[0], expected[0], rtol=1e-9, atol=1e-9)


def over_heads(case: Case, expected: Any, got: Any) -> bool:
    """Weights that sum to 1 over the heads of a token."""
    _, cache, indices, length, _, d_v = case.inputs.values()
    rows = cache.reshape(-1, cache.shape[2])[[slot for slot in indices[:length] if slot != -1]]
    logits = _scores(case)
    weights = np.exp(logits - logits.max(axis=0))
    mixed = weights / weights.sum(axis=0) @ rows[:, :d_v]
    out = np.asarray(got[0], dtype=np.float64)
    return bool(np.allclose(mixed, out, rtol=1e-9, atol=1e-9) and not np.allclose(expected[0], out))
