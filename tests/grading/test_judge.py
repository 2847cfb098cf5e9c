"""What a verdict says: the mistake behind a wrong result, the parts that are right, values and prose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from mlacademy.grading import Case, Difference, Exact, Exercise, Misconception, judge
from mlacademy.grading.verdict import Verdict

H = ("a", "b", "c")


def test_known_mistake_is_named_with_its_hint(exercise: Exercise) -> None:
    verdict = judge(exercise, lambda x, factor: x + factor)
    assert verdict.kind == "added"
    assert (verdict.reason, verdict.hint) == ("You added the factor.", "add 1")
    assert verdict.summary.startswith("y[row 0] is 2.1997995, expected -2.400601")
    assert verdict.case == "a few rows; x = [-0.80020034, 0.85992134, 0.037000045], factor = 3"


def test_unknown_mistake_gets_the_hints_of_the_exercise(exercise: Exercise) -> None:
    verdict = judge(exercise, lambda x, factor: x)
    assert (verdict.kind, verdict.hint) == ("value", "first step")
    assert verdict.reason == "Tolerance: 2.38e-07 × |expected| (two roundings)."


def test_mistake_that_explains_all_cases_wins(make: Callable[..., Exercise]) -> None:
    def at_first_sight(x: Any, factor: int) -> Any:
        return x + factor if len(x) == 3 else x

    two = (
        Misconception("first sight", "s1", H, at_first_sight),
        Misconception("all", "s2", H, lambda x, factor: x + factor),
    )
    assert judge(make(misconceptions=two), lambda x, factor: x + factor).kind == "all"


def test_mistake_can_be_recognised_by_a_question(make: Callable[..., Exercise]) -> None:
    def halved(case: Case, expected: Any, got: Any) -> bool:
        return bool(np.allclose(got * 2, expected))

    known = (Misconception("halved", "Half of it.", H, when=halved),)
    assert judge(make(misconceptions=known), lambda x, factor: x * np.float32(1.5)).kind == "halved"


def test_model_that_fails_explains_nothing(make: Callable[..., Exercise]) -> None:
    known = (Misconception("broken", "s", H, lambda x, factor: x[99]),)
    assert judge(make(misconceptions=known), lambda x, factor: x).kind == "value"


def parted(rng: np.random.Generator, hidden: bool) -> Iterator[Case]:
    for sign, part in ((1, "positive"), (-1, "negative")):
        yield Case({"x": sign * rng.random(3).astype(np.float32), "factor": 3}, label=part, part=part)


def test_parts_earn_their_points(make: Callable[..., Exercise]) -> None:
    in_parts = make(cases=parted, parts={"positive": 3, "negative": 2}, points=5)
    verdict = judge(in_parts, lambda x, factor: np.abs(x) * np.float32(factor))
    assert not verdict
    assert verdict.points == 3
    assert "Parts: positive: right, negative: not yet" in str(verdict)
    assert 'Hint: first step  Next step: hint("99.1")' in str(verdict)
    assert judge(in_parts, lambda x, factor: x * np.float32(factor)).points == 5
    assert judge(in_parts, lambda x, factor: None).points == 0


def two_outputs(make: Callable[..., Exercise], **changes: Any) -> Exercise:
    return make(
        outputs=("y", "size"),
        reference=lambda x, factor: (x * np.float32(factor), len(x)),
        misconceptions=(),
        **changes,
    )


def test_several_outputs_are_told_apart(make: Callable[..., Exercise]) -> None:
    two = two_outputs(make, compare=(Exact(), Exact()))
    assert judge(two, lambda x, factor: (x * np.float32(factor), len(x)))
    assert judge(two, lambda x, factor: (x * np.float32(factor), 0)).summary == "size is 0, expected 3."
    assert judge(two, lambda x, factor: x).summary == "scale returned one result; expected 2: y, size."
    assert judge(two, lambda x, factor: (x, 1, 2)).summary == "scale returned 3 results; expected 2: y, size."
    generator = judge(two, lambda x, factor: (number for number in x))
    assert generator.summary.startswith("scale returned a generator (yield instead of return")
    assert generator.summary.endswith("; expected 2: y, size.")


def test_own_comparison_gets_plain_data_and_may_fail(make: Callable[..., Exercise]) -> None:
    def sorted_alike(case: Case, expected: Any, got: Any) -> Difference | None:
        if sorted(got.tolist()) == sorted(expected.tolist()):
            return None
        return Difference("y", "value", expected, got, sentence="The rows are not the same set.")

    own = make(compare=sorted_alike, misconceptions=())
    assert judge(own, lambda x, factor: (x * np.float32(factor))[::-1])
    assert judge(own, lambda x, factor: x).summary == "The rows are not the same set."
    assert judge(own, lambda x, factor: 3).summary.startswith("y cannot be compared (")
    assert judge(own, lambda x, factor: len).summary.startswith("y is a function")


@pytest.fixture
def value(make: Callable[..., Exercise]) -> Exercise:
    known = Misconception("off", "One too many.", H, lambda: {"parts": 67, "splits": 4})
    return make(
        cases=None, parameters=(), entry="answer", reference=lambda: {"parts": 66, "splits": 3}, compare=Exact(),
        misconceptions=(known,), forbids=(), points=2, parts={"parts": 1, "splits": 1},
    )  # fmt: skip


def test_predictions_are_judged_key_by_key_without_showing_the_answer(value: Exercise) -> None:
    assert judge(value, {"parts": 66, "splits": 3})
    verdict = judge(value, {"parts": 66, "splits": 5})
    assert verdict.summary == "answer['splits'] is 5, which is not right. 1 of 2 are right."
    assert verdict.points == 1
    assert judge(value, {"parts": 66, "splits": 4}).reason == "One too many."
    assert judge(value, {"parts": 66, "splits": ...}).state == "unanswered"
    assert judge(value, {"parts": 66}).summary == "answer has no key 'splits'. 1 of 2 are right."
    assert judge(value, 66).summary.startswith("answer is an integer; expected a dict with the keys 'parts', 'splits'.")
    assert judge(value, ...).state == "unanswered"


def test_single_value(make: Callable[..., Exercise]) -> None:
    single = make(cases=None, parameters=(), reference=lambda: 576, compare=Exact(), misconceptions=(), forbids=())
    assert judge(single, 576)
    assert judge(single, np.int64(576))
    assert judge(single, 512).summary == "scale is 512, which is not right."
    assert judge(single, None).kind == "none"


def test_blank_is_not_answered_yet(exercise: Exercise) -> None:
    def blank(x: Any, factor: int) -> Any:
        raise NotImplementedError("99.1 is not answered yet")

    verdict = judge(exercise, blank)
    assert verdict.state == "unanswered"
    assert verdict.summary == "scale is not answered yet: about 3 lines are missing."
    assert verdict.heading == "99.1 Scale a row: not answered yet"
    assert not verdict.hint
    assert not verdict.lines
    assert judge(exercise, lambda x, factor: ...).state == "unanswered"


def test_prose_is_left_to_a_person(make: Callable[..., Exercise]) -> None:
    prose = make(cases=None, reference=None, rubric="2 points", hints=("", "", ""), misconceptions=())
    assert judge(prose, "words").state == "manual"


def faces(verdict: Verdict) -> tuple[str, str, str]:
    return str(verdict), verdict._repr_markdown_(), verdict._repr_html_()


def test_verdict_has_three_faces_without_fixed_colours(exercise: Exercise) -> None:
    text, markdown, markup = faces(judge(exercise, lambda x, factor: x + factor))
    for face in (text, markdown, markup):
        assert "not right yet" in face
        assert "You added the factor." in face
        assert "add 1" in face
    assert "var(--jp-error-color1" in markup
    assert "color:#" not in markup.replace(" ", "")
    assert 'role="status"' in markup


def test_learners_text_cannot_become_markup(exercise: Exercise) -> None:
    def shouts(x: Any, factor: int) -> Any:
        print("<script>alert(1)</script>")
        raise ValueError("<b>*bold*</b> `code`")

    _, markdown, markup = faces(judge(exercise, shouts))
    assert "<script>" not in markup
    assert "<b>*bold*" not in markup
    assert r"\<b\>\*bold\*" in markdown
