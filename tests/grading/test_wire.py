"""Plain data survives the way from the worker; everything else arrives as a description, and nothing is unpickled."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mlacademy.grading import wire

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**200), 2**200) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=12,
)


def there_and_back(value: Any) -> Any:
    tree, buffers = wire.encode(value)
    (message, received), *rest = wire.unpack(wire.pack({"m": "result", "value": tree}, buffers))[0]
    assert not rest
    return wire.decode(message["value"], received)


@given(plain)
def test_plain_values_come_back_equal_and_of_the_same_type(value: Any) -> None:
    back = there_and_back(value)
    assert back == value
    assert type(back) is type(value)


@given(
    hnp.arrays(
        hnp.integer_dtypes() | hnp.floating_dtypes(sizes=(16, 32, 64)) | hnp.boolean_dtypes(),
        hnp.array_shapes(min_dims=0, min_side=0),
    )
)
def test_arrays_come_back_bit_for_bit(array: Any) -> None:
    back = there_and_back(array)
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert back.tobytes() == array.tobytes()


@pytest.mark.parametrize("value", [math.inf, -math.inf, -0.0, 5e-324, 1 + 2j, ..., np.float32(2.5), np.int8(-3)])
def test_single_numbers_keep_their_bits(value: Any) -> None:
    back = there_and_back(value)
    assert repr(back) == repr(value)


def test_views_and_transposes_travel_as_what_they_show() -> None:
    array = np.arange(24).reshape(2, 3, 4)
    assert (there_and_back(array.transpose(2, 0, 1)[::2]) == array.transpose(2, 0, 1)[::2]).all()


def test_tensors_keep_the_name_of_their_dtype() -> None:
    import torch

    back = there_and_back(torch.tensor([1.0, 1.00390625], dtype=torch.bfloat16))
    assert isinstance(back, wire.Tensor)
    assert (back.dtype, back.array.tolist()) == ("bfloat16", [1.0, 1.0])
    assert there_and_back(torch.tensor([2**40])).array.tolist() == [2**40]
    assert there_and_back(torch.nn.Parameter(torch.ones(2))).array.tolist() == [1, 1]
    sparse = torch.sparse_coo_tensor(size=(2, 2), check_invariants=False)
    assert there_and_back(sparse) == wire.Foreign("a torch.sparse_coo tensor")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.array([None]), "an array of Python objects"),
        (np.array([(1, 2.0)], dtype="i4,f8"), "an array of [('f0', '<i4'), ('f1', '<f8')]"),
        (json, "a module"),
        (int, "a class"),
        ({1}, "a set, which has no order"),
        (NotImplemented, "NotImplemented"),
        (np.dtype("f4"), "an object of class Float32DType"),
        (wire.Foreign("x"), "an object of class Foreign"),
    ],
)
def test_other_things_become_words(value: Any, words: str) -> None:
    assert there_and_back(value) == wire.Foreign(words)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([0] * 200_001, "more than 200,000 items; return an array"),
        (1 << 10_000, "an integer of more than 8,192 bits"),
        (np.broadcast_to(np.float64(1), (1 << 16, 1 << 16)), "more than 256 MB"),
    ],
)
def test_too_large_values_are_refused_in_words(value: Any, text: str) -> None:
    with pytest.raises(wire.WireError, match=text):
        wire.encode(value)


BROKEN: list[Any] = [
    {},
    {"t": "nothing"},
    {"t": "int", "v": "__import__('os')"},
    {"t": "float", "v": "zero"},
    {"t": "list", "v": 3},
    {"t": "array", "dtype": "O", "shape": [1]},
    {"t": "array", "dtype": "<f8", "shape": [2]},
    {"t": "array", "dtype": "<f8", "shape": [-1]},
    {"t": "array", "dtype": "<f99", "shape": [1]},
    {"t": "array", "dtype": "<f8", "shape": [1] * 40},
    {"t": "array", "dtype": "<f8", "shape": "x"},
    {"t": "none"},
    None,
    [1],
]


@pytest.mark.parametrize("tree", BROKEN, ids=str)
def test_malformed_trees_are_refused(tree: Any) -> None:
    with pytest.raises(wire.WireError, match="malformed"):
        wire.decode(tree, [b"1234567"])


@given(st.binary(max_size=200))
def test_random_bytes_never_do_more_than_be_refused(data: bytes) -> None:
    try:
        messages, _ = wire.unpack(data)
    except wire.WireError:
        return
    assert all(isinstance(message, dict) for message, _ in messages)


def test_messages_are_cut_where_they_end() -> None:
    one, two = wire.pack({"m": "a"}, [b"xy", b""]), wire.pack({"m": "b"}, [])
    messages, clean = wire.unpack(one + two)
    assert [(message["m"], buffers) for message, buffers in messages] == [("a", [b"xy", b""]), ("b", [])]
    assert clean
    assert wire.unpack(one + two[:-1]) == (messages[:1], False)
    with pytest.raises(wire.WireError, match="malformed message"):
        wire.unpack(one.replace(b'"sizes": [2, 0]', b'"sizes": [2, 9]'))
