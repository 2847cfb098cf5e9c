"""The first difference is found where it is, and said in the exercise's own words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlacademy.grading.compare import Close, Difference, Exact, describe, show_value
from mlacademy.grading.wire import Foreign, Tensor

AXES = ("token", "element")


def test_first_wrong_number_is_named_by_its_axes() -> None:
    want = np.arange(6, dtype=np.float32).reshape(2, 3)
    got = want.copy()
    got[1, 1:] = 9
    found = Exact()("value", want, got, AXES)
    assert found is not None
    assert found.say() == "value[token 1, element 1] is 9.0, expected 4.0; 2 of 6 numbers differ."


@given(st.integers(0, 11), st.sampled_from([np.float32, np.float64, np.int64, np.uint8, np.bool_]))
def test_any_single_changed_number_is_found(place: int, dtype: Any) -> None:
    want = np.zeros((3, 4), dtype)
    got = want.copy()
    got.flat[place] = 1
    found = Exact()("value", want, got, AXES)
    assert found is not None
    assert found.index == divmod(place, 4)
    assert (found.wrong, found.total) == (1, 12)


@pytest.mark.parametrize(
    ("want", "got", "same"),
    [
        (np.nan, np.nan, True),
        (np.nan, 0.0, False),
        (0.0, np.nan, False),
        (np.inf, np.inf, True),
        (np.inf, -np.inf, False),
        (np.inf, 3e38, False),
        (1.0, np.inf, False),
        (0.0, -0.0, True),
        (1.0, 1.0 + 1e-7, True),
        (1.0, 1.0 + 3e-6, False),
    ],
)
def test_special_values_under_a_tolerance(want: float, got: float, same: bool) -> None:
    close = Close(rtol=1e-6, why="one rounding")
    assert (close("y", np.array([want]), np.array([got])) is None) == same
    assert (close("y", want, got) is None) == same


def test_tolerance_follows_the_magnitude_of_the_terms() -> None:
    close = Close(rtol=1e-3, why="sums that cancel")
    want, got = np.array([0.0, 0.0]), np.array([0.5, 0.5])
    assert close("y", want, got) is not None
    assert close("y", want, got, (), np.array([1000.0, 1000.0])) is None
    found = close("y", want, got, ("row",), np.array([1000.0, 1.0]))
    assert found is not None
    assert found.index == (1,)
    assert found.why == "Tolerance: 0.001 × the sum of the terms' magnitudes (sums that cancel)."


def test_tolerance_is_explained() -> None:
    found = Close(atol=0.5, rtol=0.25, why="half a step")("y", np.array([1.0]), np.array([3.0]))
    assert found is not None
    assert found.why == "Tolerance: 0.5 + 0.25 × |expected| (half a step)."


DTYPES = [
    ("kind", np.float32, np.float64, True),
    ("kind", np.uint8, np.int64, True),
    ("kind", np.uint8, np.float32, False),
    ("kind", np.float32, np.int64, False),
    ("kind", np.bool_, np.int64, False),
    ("same", np.float32, np.float64, False),
    ("same", np.float32, np.float32, True),
    ("any", np.bool_, np.float64, True),
]


@pytest.mark.parametrize(("rule", "want", "got", "same"), DTYPES)
def test_dtype_rules(rule: str, want: Any, got: Any, same: bool) -> None:
    found = Exact(dtype=rule)("y", np.ones(2, want), np.ones(2, got))
    assert (found is None) == same
    if found is not None:
        assert found.kind == "dtype"
        assert found.say().startswith(f"y has dtype {np.dtype(got).name}; expected ")


SCALARS: list[tuple[Any, Any, str]] = [
    (3, 3, ""),
    (3, np.int64(3), ""),
    (3, np.array(3), ""),
    (3, 3.0, "y is the float 3.0; expected an integer."),
    (3.0, 3, ""),
    (3, True, "y is the boolean True; expected an integer."),
    (True, 1, "y is an integer; expected the boolean True."),
    (3, None, "y is None; expected an integer."),
    (3, np.array([3]), "y is an array of shape [1] (int64); expected an integer."),
    (3, [3], "y is a list of 1; expected an integer."),
    (3, "3", "y is the text '3'; expected an integer."),
    (3, 4, "y is 4, expected 3."),
    ("sm90", "sm90", ""),
    ("sm90", "sm100", "y is 'sm100', expected 'sm90'."),
    (None, None, ""),
    (None, 0, "y is 0, expected None."),
]


@pytest.mark.parametrize(("want", "got", "sentence"), SCALARS)
def test_single_values(want: Any, got: Any, sentence: str) -> None:
    found = Exact()("y", want, got)
    assert (found.say() if found else "") == sentence


SEQUENCES: list[tuple[Any, Any, str]] = [
    ([1, 2], [1, 2], ""),
    ([1, 2], (1, 2), ""),
    ([1, 2], np.array([1, 2]), ""),
    ([[1], [2, 3]], [[1], [2, 3]], ""),
    ([1, 2], [1, 3], "y[part 1] is 3, expected 2; 1 of 2 numbers differ."),
    ([[1], [2, 3]], [[1], [2, 4]], "y[part 1, slot 1] is 4, expected 3; 1 of 2 numbers differ."),
    ([1, 2], [1], "y has 1 items; expected 2."),
    ([1, 2], [5, 2, 3], "y[part 0] is 5, expected 1; 1 of 2 numbers differ."),
    ([1, 2], 1, "y is an integer; expected a list of 2."),
    ([1, 2], {1: 2}, "y is a dict of 1; expected a list of 2."),
]


@pytest.mark.parametrize(("want", "got", "sentence"), SEQUENCES)
def test_lists(want: Any, got: Any, sentence: str) -> None:
    found = Exact()("y", want, got, ("part", "slot"))
    assert (found.say() if found else "") == sentence


DICTS: list[tuple[Any, str]] = [
    ({"a": 1, "b": 2}, ""),
    ({"a": 1}, "y has no key 'b'; expected the keys 'a', 'b'."),
    ({"a": 1, "b": 2, "c": 3}, "y has the extra key 'c'; expected the keys 'a', 'b'."),
    ({"a": 1, "b": 5}, "y['b'] is 5, expected 2."),
    ({"a": ..., "b": 2}, "y['a'] is not answered yet; expected a value."),
    ([1, 2], "y is a list of 2; expected a dict of 2."),
]


@pytest.mark.parametrize(("got", "sentence"), DICTS)
def test_dicts(got: Any, sentence: str) -> None:
    found = Exact()("y", {"a": 1, "b": 2}, got)
    assert (found.say() if found else "") == sentence


def test_tensors_are_compared_with_arrays_by_their_numbers() -> None:
    want = np.array([1.0, 2.0], np.float32)
    assert Exact()("y", want, Tensor(want.copy(), "bfloat16")) is None
    found = Exact(dtype="same")("y", want, Tensor(want.copy(), "bfloat16"))
    assert found is not None
    assert found.say() == "y has dtype bfloat16; expected float32."


def test_what_is_no_data_is_named() -> None:
    found = Exact()("y", 3, Foreign("a module"))
    assert found is not None
    assert found.say() == "y is a module; expected an integer."


def test_expected_value_can_be_kept_back() -> None:
    assert Difference("y", "value", 3, 4).say(reveal=False) == "y is 4, which is not right."


def test_numbers_are_shown_as_the_exercise_asks() -> None:
    difference = Difference("code", "value", np.uint8(0x7E), np.uint8(0x08), (2,), ("token",), 1, 3)
    assert difference.say(hex) == "code[token 2] is 0x8, expected 0x7e; 1 of 3 numbers differ."
    assert difference.say(lambda value: value.nothing).startswith("code[token 2] is 8, expected 126")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.float32(0.1), "0.1"),
        (np.float64(1e-9), "1e-09"),
        (np.uint8(7), "7"),
        (0.1, "0.1"),
        ("x" * 99, "'" + "x" * 76 + "..."),
    ],
)
def test_values_are_shown_short(value: Any, text: str) -> None:
    assert show_value(value) == text


def test_descriptions_are_phrases() -> None:
    assert describe({"a": 1}) == "a dict of 1"
    assert describe(2.5) == "a number"
    assert describe(Tensor(np.zeros((2, 3)), "float16")) == "a tensor of shape [2, 3] (float16)"


def test_comparisons_check_their_own_arguments() -> None:
    with pytest.raises(ValueError, match="Close needs why"):
        Close(rtol=1e-3)
    with pytest.raises(ValueError, match="Exact takes no tolerance"):
        Exact(atol=1.0)
    with pytest.raises(ValueError, match="dtype must be one of"):
        Exact(dtype="float")
    with pytest.raises(ValueError, match="tolerances must be finite"):
        Close(rtol=2.0, why="too much")
