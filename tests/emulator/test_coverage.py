"""Every row of the form table has a test against an independent model."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from conformance import row_id
from formtable import FORMS, Form
from minikernels import MAKER_OF
from test_float_forms import EXACT
from test_minikernels import EXPECTED

FOLDER = Path(__file__).parent
# Rows that are no function of registers alone: the test that runs their handler against a model.
MODELLED = {
    "test_async_copies.py": (
        *("mbarrier_tx", "mbarrier_arrive", "mbarrier_wait", "cp_async", "cp_async_commit", "cp_async_wait"),
        *("cp_async_arrive", "st_async", "red_async", "bulk_load", "bulk_store", "bulk_commit", "bulk_wait"),
    ),
    "test_bulk_reductions.py": ("bulk_reduce",),
    "test_calls.py": ("call", "ret"),
    "test_control_forms.py": (
        *("bra", "brx", "exit", "shfl", "vote", "match", "activemask", "elect", "redux", "bar_sync", "bar_arrive"),
        "bar_red",
    ),
    "test_float_forms.py": ("approx_div", "approx64"),
    "test_memory_forms.py": ("ldmatrix", "stmatrix"),
    "test_minikernels.py": ("trap", *EXPECTED),
    "test_multimem_forms.py": ("movmatrix",),
    "test_sequence.py": ("griddepcontrol",),
    "test_tensor_copies.py": ("tensor_load", "tensor_store", "tensor_reduce", "tensor_prefetch", "prefetch_map"),
    "test_tensor_maps.py": ("map_replace", "map_copy", "map_acquire", "map_release"),
    "test_wgmma_forms.py": ("wgmma_fence", "wgmma_commit", "wgmma_wait", "wgmma_mma"),
}
BY_FILE = {handler: file for file, handlers in MODELLED.items() for handler in handlers}


def handlers_of_rows() -> set[str]:
    """The handlers that a test takes its rows from: each of their rows runs against a model, spelling by spelling."""
    named = set(EXACT)
    for file in FOLDER.glob("test_*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "rows":
                named |= {arg.value for arg in node.args if isinstance(arg, ast.Constant)}
    return named


ROWS = handlers_of_rows()


@pytest.mark.parametrize("form", [form for form in FORMS if form.handler != "-"], ids=row_id)
def test_a_row_has_a_model(form: Form) -> None:
    if form.handler in ROWS:
        return
    assert form.handler in BY_FILE, f"{form.where}: no test runs the handler {form.handler} against a model"


def test_the_list_of_models_has_nothing_too_much() -> None:
    known = {form.handler for form in FORMS}
    assert set(BY_FILE) | set(MAKER_OF) <= known
    assert all((FOLDER / file).exists() for file in MODELLED)
    assert not set(BY_FILE) & ROWS
