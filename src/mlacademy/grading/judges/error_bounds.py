"""Exercise 12.3: bound the error of three pipelines from the widths of their codes, and name the worst."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from mlacademy.grading.compare import Close
from mlacademy.grading.exercise import Case, Exercise, Misconception

Array = np.ndarray[Any, Any]
Format = tuple[int, int, float]

E4M3: tuple[int, int] = (3, -6)
BF16: Format = (7, -126, 1.0)


def half_spacing(x: Array, form: Format) -> Array:
    """Half the distance of the numbers that a format with a scale has near x: what rounding can cost."""
    bits, smallest, scale = form
    _, exponent = np.frexp(np.abs(x) / scale)
    exponent = np.where(x == 0, smallest, np.maximum(exponent - 1, smallest))
    return scale * np.exp2(exponent - bits - 1.0)


def _bound(p: Array, v: Array, v_form: Format, p_form: Format) -> float:
    p_error, v_error = half_spacing(p, p_form), half_spacing(v, v_form)
    return float((p @ v_error + p_error @ np.abs(v) + p_error @ v_error).max())


def _bounds(p: Array, v: Array, pipelines: list[tuple[Format, Format]]) -> tuple[list[float], int]:
    bounds = [_bound(p, v, *forms) for forms in pipelines]
    return bounds, int(np.argmax(bounds))


def _softmax(x: Array) -> Array:
    weights = np.exp(x - x.max())
    return np.asarray(weights / weights.sum())


def _scale_of(v: Array) -> float:
    return float(2.0 ** np.ceil(np.log2(np.abs(v).max() / 448)))


def _pipelines(v: Array) -> list[tuple[Format, Format]]:
    """An FP8 cache with bf16 weights, all bf16, and all FP8 (weights with a scale that puts 1 at 256)."""
    cache = (*E4M3, _scale_of(v))
    return [(cache, BF16), (BF16, BF16), (cache, (*E4M3, 2.0**-8))]


def _cases(rng: np.random.Generator, hidden: bool) -> Iterable[Case]:
    def case(p: Array, v: Array, label: str, pipelines: list[tuple[Format, Format]] | None = None) -> Case:
        return Case({"p": p, "v": v, "pipelines": pipelines or _pipelines(v)}, label=label)

    def values(n: int, d: int, spread: float = 0.0) -> Array:
        return np.asarray(rng.standard_normal((n, d)) * np.exp2(spread * rng.standard_normal((n, 1))))

    if not hidden:
        yield case(np.array([1.0]), np.array([[3.0, 0.25]]), "one token", [((3, -6, 1.0), BF16), ((2, -14, 1.0), BF16)])
        yield case(np.array([0.5, 0.5]), np.array([[1.0], [-1.0]]), "values that cancel")
        yield case(_softmax(rng.standard_normal(64)), values(64, 8), "a block of equal tokens")
        yield case(_softmax(5 * rng.standard_normal(64)), values(64, 8), "weights of very different size")
        yield case(_softmax(rng.standard_normal(64)), values(64, 8, 4.0), "values below the smallest normal code")
        yield case(_softmax(rng.standard_normal(8)), 1e-3 * values(8, 4), "small values, hence a small scale")
    for spread, peak in ((0.0, 1.0), (3.0, 1.0), (0.0, 6.0), (2.0, 4.0)) if hidden else ():
        p, v = _softmax(peak * rng.standard_normal(96)), values(96, 5, spread)
        forms = _pipelines(v)
        wide = (4, -14, 2.0 * _scale_of(v))
        yield case(p, v, "other blocks and other formats", [forms[2], (wide, BF16), forms[0], (BF16, (2, -14, 1.0))])


def _model(bound: Any, pick: Any = np.argmax) -> Any:
    def model(p: Array, v: Array, pipelines: list[tuple[Format, Format]]) -> Any:
        bounds = [float(bound(p, v, *forms)) for forms in pipelines]
        return bounds, int(pick(bounds))

    return model


def _all_parts(p: Array, v: Array, p_error: Array, v_error: Array) -> Any:
    return (p @ v_error + p_error @ np.abs(v) + p_error @ v_error).max()


def _relative(x: Array, form: Format) -> Array:
    _, exponent = np.frexp(np.abs(x) / form[2])
    return np.asarray(form[2] * np.exp2(exponent - 1.0 - form[0] - 1.0) * (x != 0))


def _scale_once(x: Array, form: Format, inside: bool) -> Array:
    """With the scale only inside the exponent, or only outside."""
    bits, smallest, scale = form
    plain = half_spacing(x / scale if inside else x, (bits, smallest, 1.0))
    return np.asarray(plain if inside else scale * plain)


MISTAKES = (
    Misconception(
        "whole spacing",
        "Your bound is twice too large: rounding to the nearest number costs at most *half* the distance between two "
        "neighbours.",
        (
            "Codes lie at 1.0 and 1.125. Which number between them suffers most, and how much?",
            "With m mantissa bits numbers near 2^e are 2^(e-m) apart. The worst one lies in the middle.",
            "scale * 2^(e - m - 1).",
        ),
        model=_model(lambda p, v, fv, fp: _all_parts(p, v, 2 * half_spacing(p, fp), 2 * half_spacing(v, fv))),
    ),
    Misconception(
        "no smallest exponent",
        "You let the spacing shrink without end. Below the smallest normal number of a format the spacing stays what "
        "it is there: small values keep their absolute error and lose their relative one.",
        (
            "E4M3 has normal numbers down to 2^-6. How far apart are its numbers below that?",
            "The exponent that sets the spacing is never smaller than e_min.",
            "e = max(floor(log2(|x| / scale)), e_min), also for x = 0.",
        ),
        model=_model(lambda p, v, fv, fp: _all_parts(p, v, _relative(p, fp), _relative(v, fv))),
    ),
    Misconception(
        "scale forgotten",
        "Your bound does not depend on the scale. A code stands for code times scale, so the spacing of what is "
        "stored is the scale times the spacing of the codes.",
        (
            "A tile holds values near 1000, with scale 4. How far apart are two stored neighbours?",
            "Divide by the scale to find the exponent, multiply by it to get back.",
            "scale * 2^(max(floor(log2(|x| / scale)), e_min) - m - 1).",
        ),
        model=_model(
            lambda p, v, fv, fp: _all_parts(p, v, half_spacing(p, (*fp[:2], 1.0)), half_spacing(v, (*fv[:2], 1.0)))
        ),
    ),
    Misconception(
        "scale not multiplied back",
        "You divided by the scale to find the exponent and left it at that. The spacing you have is that of the codes; "
        "what comes out of the cache is the scale times them.",
        (
            "In which unit is your spacing: codes, or values?",
            "An error of one unit in the code is an error of `scale` in the value.",
            "Multiply the spacing by the scale.",
        ),
        model=_model(lambda p, v, fv, fp: _all_parts(p, v, _scale_once(p, fp, True), _scale_once(v, fv, True))),
    ),
    Misconception(
        "exponent of the value",
        "You took the exponent of x itself. The codes are those of x / scale: only there does e_min mean something.",
        (
            "Which number is rounded to a code: x or x / scale?",
            "The largest value of a tile lands near the top of the code's range, whatever its size was.",
            "e = max(floor(log2(|x| / scale)), e_min).",
        ),
        model=_model(lambda p, v, fv, fp: _all_parts(p, v, _scale_once(p, fp, False), _scale_once(v, fv, False))),
    ),
    Misconception(
        "weights are exact",
        "You counted the values' rounding only. The weights are rounded as well, and each of their errors is "
        "multiplied by a value.",
        (
            "What does the tensor core multiply: exact weights, or rounded ones?",
            "The error of a product: p·dv + |v|·dp + dp·dv.",
            "Add |v| times the bound of p, and the product of both bounds.",
        ),
        model=_model(lambda p, v, fv, fp: (p @ half_spacing(v, fv)).max()),
    ),
    Misconception(
        "values are exact",
        "You counted the weights' rounding only. The cache holds rounded values, and each of their errors is "
        "multiplied by a weight.",
        (
            "Which of the two operands of p times v was rounded first, long before this step?",
            "The error of a product: p·dv + |v|·dp + dp·dv.",
            "Add p times the bound of v, and the product of both bounds.",
        ),
        model=_model(lambda p, v, fv, fp: (half_spacing(p, fp) @ np.abs(v)).max()),
    ),
    Misconception(
        "no cross term",
        "You left out the product of the two errors. It is small, but without it the bound can be exceeded.",
        (
            "Expand (p + dp) · (v + dv). How many terms are errors?",
            "Three: p·dv, v·dp and dp·dv.",
            "Add p_error @ v_error.",
        ),
        model=_model(lambda p, v, fv, fp: (p @ half_spacing(v, fv) + half_spacing(p, fp) @ np.abs(v)).max()),
    ),
    Misconception(
        "signs kept",
        "You used the values with their signs, so that errors cancel. A bound must hold for the worst case, in which "
        "all of them push in one direction.",
        (
            "Two values, 1 and -1, each with the same possible error: can their errors add up?",
            "In a bound every term is an absolute value.",
            "p_error @ abs(v), not p_error @ v.",
        ),
        model=_model(
            lambda p, v, fv, fp: (
                p @ half_spacing(v, fv) + half_spacing(p, fp) @ v + half_spacing(p, fp) @ half_spacing(v, fv)
            ).max()
        ),
    ),
    Misconception(
        "best instead of worst",
        "Your bounds are right, and you named the pipeline with the smallest one. Asked is the worst: the largest "
        "bound.",
        (
            "Which pipeline should one worry about?",
            "A larger bound promises less.",
            "np.argmax(bounds).",
        ),
        model=_model(_bound, np.argmin),
    ),
    Misconception(
        "mean over columns",
        "You averaged the columns. A bound of the output holds for every column, so it is the largest of theirs.",
        (
            "Could a single column be worse than your number?",
            "First a bound for each column, then one number for all of them.",
            "Take the maximum over the columns.",
        ),
        model=_model(
            lambda p, v, fv, fp: (
                p @ half_spacing(v, fv) + half_spacing(p, fp) @ np.abs(v) + half_spacing(p, fp) @ half_spacing(v, fv)
            ).mean()
        ),
    ),
)

BOUNDS = Exercise(
    id="12.3",
    title="Bound the error",
    entry="error_bounds",
    points=4,
    lines=10,
    parameters=("p", "v", "pipelines"),
    outputs=("bounds", "worst"),
    cases=_cases,
    reference=_bounds,
    compare=Close(rtol=1e-9, why="sums of up to 96 float64 terms of one sign, in any order"),
    misconceptions=MISTAKES,
    hints=(
        "Two steps. First: what can rounding one number to a format cost? Then: what do the errors of all weights and "
        "values do to the sum of their products?",
        "A number near 2^e is rounded by at most scale * 2^(e - m - 1), where e is the exponent of |x| / scale and "
        "never below e_min. The error of p·v is at most p·dv + |v|·dp + dp·dv.",
        "dv, dp = the half spacings of v and p; per column p @ dv + dp @ abs(v) + dp @ dv; the bound is the largest "
        "column, the worst pipeline np.argmax. np.frexp(y)[1] - 1 is floor(log2 y) exactly.",
    ),
    forbids=("mlacademy.fp8",),
)
