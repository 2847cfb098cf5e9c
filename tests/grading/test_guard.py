"""An answer cannot hand its work to the library, however it reaches it."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any

import cloudpickle
import numpy as np
import pytest

from mlacademy import fp8
from mlacademy.fp8 import decode_e4m3
from mlacademy.grading import Exercise, guard, judge

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # as the names of a notebook are

DIRECT: list[Callable[..., Any]] = [
    decode_e4m3,
    functools.partial(decode_e4m3),
    lambda x, factor: decode_e4m3(x),
    lambda x, factor: fp8.decode_e4m3(x),
]


@pytest.mark.parametrize("answer", DIRECT, ids=["itself", "in a partial", "in a lambda", "from its module"])
def test_library_s_own_function_is_refused(exercise: Exercise, answer: Any) -> None:
    verdict = judge(exercise, answer)
    assert verdict.kind == "library"
    assert (
        verdict.summary == "The answer uses mlacademy.fp8.decode_e4m3: this exercise asks you to write that yourself."
    )
    assert judge(exercise, lambda x, factor: x * np.float32(factor))


def imports_the_library(x: Any, factor: int) -> Any:
    from mlacademy.fp8 import round_bf16

    return round_bf16(x)


def swallows_the_refusal(x: Any, factor: int) -> Any:
    try:
        fp8.round_bf16(x)
    except Exception:
        return x * np.float32(factor)


def asks_the_judges(x: Any, factor: int) -> Any:
    from mlacademy.grading.judges import ch13

    return ch13


def uses_a_third_function(x: Any, factor: int) -> Any:
    from mlacademy.gemm import quantize_blocks

    return quantize_blocks(x[None])


@pytest.mark.parametrize("answer", [imports_the_library, swallows_the_refusal, uses_a_third_function])
def test_library_is_refused_however_it_is_reached(exercise: Exercise, answer: Any) -> None:
    verdict = judge(exercise, answer)
    assert verdict.kind == "library"
    assert "mlacademy.fp8." in verdict.summary


@pytest.mark.parametrize("name", ["numpy.multiply", "math.fsum"])
def test_single_functions_can_be_forbidden(make: Callable[..., Exercise], name: str) -> None:
    def uses_it(x: Any, factor: int) -> Any:
        import math

        return np.multiply(x, factor) if name == "numpy.multiply" else math.fsum(x)

    assert judge(make(forbids=(name,)), uses_it).summary.startswith(f"The answer uses {name}:")


@pytest.mark.parametrize("forbidden", ["torch.softmax", "torch.nn.functional.softmax", "torch.Tensor.softmax"])
@pytest.mark.parametrize("spelling", ["torch.softmax", "Tensor.softmax", "special.softmax", "functional.softmax"])
def test_function_of_torch_is_forbidden_in_every_place(
    make: Callable[..., Exercise], forbidden: str, spelling: str
) -> None:
    def uses_it(x: Any, factor: int) -> Any:
        import torch

        place, _, name = spelling.partition(".")
        holder = {"torch": torch, "Tensor": torch.Tensor, "special": torch.special, "functional": torch.nn.functional}
        return getattr(holder[place], name)(torch.from_numpy(x), 0)

    verdict = judge(make(forbids=(forbidden,)), uses_it)
    assert verdict.kind == "library"
    assert verdict.summary.startswith("The answer uses torch.")
    both = make(forbids=("torch.softmax", "torch.nn.functional.softmax"))
    assert judge(both, lambda x, factor: x * np.float32(factor))


def test_tables_of_the_library_are_refused(exercise: Exercise) -> None:
    assert judge(exercise, lambda x, factor: fp8._E4M3_TABLE[:3]).summary.startswith(
        "The answer uses mlacademy.fp8._E4M3_TABLE:"
    )


@pytest.mark.parametrize("name", ["ml_dtypes.float8_e4m3fn", "torch.float8_e4m3fn"])
@pytest.mark.parametrize("early", [False, True], ids=["looked up inside", "bound before"])
def test_a_number_format_can_be_forbidden(make: Callable[..., Exercise], name: str, early: bool) -> None:
    module, _, attribute = name.partition(".")
    bound = getattr(importlib.import_module(module), attribute) if early else None

    def casts(x: Any, factor: int) -> Any:
        dtype = bound or getattr(importlib.import_module(module), attribute)
        return x.astype(dtype) if module == "ml_dtypes" else importlib.import_module(module).from_numpy(x).to(dtype)

    verdict = judge(make(forbids=(name,)), casts)
    assert not verdict
    assert verdict.summary.startswith(f"The answer uses {name}:")


def test_judges_cannot_be_imported_by_an_answer(exercise: Exercise) -> None:
    assert "import of mlacademy.grading.judges halted" in judge(exercise, asks_the_judges).summary


@pytest.mark.parametrize(
    ("name", "attribute"), [("mlacademy.fp8", ""), ("numpy.multiply", "multiply"), ("re.Pattern.match", "match")]
)
def test_names_are_resolved_to_their_holder(name: str, attribute: str) -> None:
    owner, found = guard.resolve(name)
    assert found == attribute
    assert owner is not None


@pytest.mark.parametrize("name", ["mlacademy.nothing", "nothing", "nothing.at.all", "mlacademy.fp8.nothing"])
def test_names_that_do_not_exist_have_no_holder(name: str) -> None:
    assert guard.resolve(name)[0] is None


def test_guarding_leaves_the_asking_process_alone(exercise: Exercise) -> None:
    judge(exercise, decode_e4m3)
    assert fp8.decode_e4m3(0x38) == 1.0
