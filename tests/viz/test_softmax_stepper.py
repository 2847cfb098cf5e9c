"""The stepper's numbers are those of a plain two-pass softmax, at every step and wherever the holes are."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from svg_reading import details, numbers, written

from mlacademy.viz.numbers import short
from mlacademy.viz.softmax_stepper import softmax_steps

LOG2E = 1 / math.log(2)


def state(scores: list[float], valid: list[bool], upto: int) -> tuple[float, float]:
    """Max and sum, in log2 units, of the valid scores before ``upto``, from scratch."""
    x = [s * LOG2E for s, ok in zip(scores[:upto], valid, strict=False) if ok]
    top = max(x, default=-1e30)
    return top, math.fsum(2 ** (v - top) for v in x)


@given(
    st.lists(st.tuples(st.floats(-20, 20), st.booleans()), min_size=1, max_size=24),
    st.integers(2, 8),
)
def test_each_step_is_the_softmax_of_what_came_before(row: list[tuple[float, bool]], block: int) -> None:
    scores, valid = [s for s, _ in row], [ok for _, ok in row]
    count = math.ceil(len(row) / block)
    for step in range(count):
        text = softmax_steps(scores, block=block, valid=valid, step=step).text
        top, total = state(scores, valid, (step + 1) * block)
        line = text.split(f"Block {step}: scores")[1].splitlines()[1]
        shown = dict(part.strip().rsplit(" ", 1) for part in line.split(", "))
        digits = 4 if count <= 11 else 3  # what fits into a column
        assert shown["running max"] == ("−1e30" if top == -1e30 else short(top, digits))
        # the sums agree to far more digits than are shown, so that only a digit at a boundary can differ
        assert float(shown["running sum"].replace("−", "-").replace(",", "")) == pytest.approx(
            total, rel=6 * 10.0**-digits
        )


def test_result_line_gives_the_lse_in_both_units() -> None:
    scores = [0.0, 1.0, 3.0, 2.0]
    lse = math.log(math.fsum(math.exp(s) for s in scores))
    text = softmax_steps(scores, block=2).text
    assert f"{short(lse * LOG2E)} in log2 units, {short(lse)} natural" in text


def test_holes_only_give_the_empty_row() -> None:
    text = softmax_steps([1.0, 2.0], block=1, valid=[False, False]).text
    assert "No score at all: sum 0, out = 0, lse = +inf" in text
    assert "the max stays −1e30" in text


def test_minus_infinity_is_a_hole_like_an_invalid_score() -> None:
    by_mask = softmax_steps([1.0, 9.0, 2.0], block=2, valid=[True, False, True])
    by_score = softmax_steps([1.0, -math.inf, 2.0], block=2)
    assert by_mask.text == by_score.text


def test_first_real_block_after_holes_rescales_by_zero() -> None:
    text = softmax_steps([0.0, 0.0, 5.0], block=2, valid=[False, False, True], log2=True).text
    assert "running max 5, rescale 0, block sum 1, running sum 1" in text


def test_scale_enters_once_and_log2_scores_not_at_all() -> None:
    assert softmax_steps([math.log(2)], block=1).text == softmax_steps([1.0], block=1, log2=True).text
    assert softmax_steps([2.0, 4.0], scale=0.5).text == softmax_steps([1.0, 2.0]).text


def test_later_blocks_are_drawn_but_not_told() -> None:
    picture = softmax_steps([1.0, 2.0, 3.0, 4.0], block=1, step=1)
    assert "Block 1" in picture.text
    assert "Block 2: scores" not in picture.text
    assert sum(d.startswith("score ") for d in details(picture.svg)) == 4


def test_twin_has_the_numbers_of_the_drawing() -> None:
    picture = softmax_steps([1.5, -2.0, 3.25, 0.5, 7.0, 1.0, 2.0], block=3, valid=[True] * 6 + [False])
    assert numbers(" ".join(written(picture.svg))) <= numbers(picture.text)


def test_equal_scores_and_one_score_are_drawn() -> None:
    assert "running sum 4" in softmax_steps([2.0] * 4, block=4).text
    assert "running sum 1" in softmax_steps([-3.0]).text


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"scores": [[1.0]]}, r"scores must be one row \[n\] with n ≥ 1: its shape is \[1, 1\]"),
        ({"scores": []}, r"scores must be one row"),
        ({"scores": [1.0] * 17, "block": 1}, "17 scores make 17 blocks of 1"),
        ({"scores": [1.0], "block": 0}, "block must be at least 1 score: it is 0"),
        ({"scores": [1.0], "step": 1}, "step must be 0 to 0, one for each block: it is 1"),
        ({"scores": [1.0], "valid": [True, False]}, "1 scores, 2 entries"),
        ({"scores": [1.0], "log2": True, "scale": 2.0}, "scale must stay 1"),
    ],
)
def test_wrong_arguments_are_refused_by_name(arguments: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        softmax_steps(**arguments)  # type: ignore[arg-type]
