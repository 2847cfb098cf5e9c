"""The one form of notebook files, and that every tracked notebook has it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from clone import ROOT

from mlacademy import notebooks

TRACKED = sorted(path for shelf in ("lessons", "exercises", "solutions") for path in (ROOT / shelf).rglob("*.ipynb"))


def cell(name: Any, source: Any = "x", kind: str = "code", **rest: Any) -> dict[str, Any]:
    return {"cell_type": kind, "id": name, "metadata": {}, "source": source, **rest}


@pytest.mark.parametrize("path", TRACKED, ids=lambda path: str(path.relative_to(ROOT)))
def test_tracked_notebook_is_in_canonical_form(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == notebooks.dumps(notebooks.read(path)), (
        f"run: .venv/bin/python scripts/notebook.py format {path.relative_to(ROOT)}"
    )


@pytest.mark.parametrize("path", TRACKED, ids=lambda path: str(path.relative_to(ROOT)))
def test_tracked_notebook_is_valid_for_jupyter(path: Path) -> None:
    import nbformat

    nbformat.validate(json.loads(path.read_text(encoding="utf-8")))


def test_canonical_form_drops_what_running_leaves_behind() -> None:
    ran = cell("a", ["x = 1\n", "x\n", "\n"], outputs=[{"output_type": "stream"}], execution_count=3)
    ran["metadata"] = {"tags": ["run"], "collapsed": True, "nbgrader": {"points": 1}}
    text = notebooks.dumps({"cells": [ran], "metadata": {"widgets": {}}})
    clean = json.loads(text)["cells"][0]
    assert clean["metadata"] == {"nbgrader": {"points": 1}, "tags": ["run"]}
    assert (clean["outputs"], clean["execution_count"], clean["source"]) == ([], None, ["x = 1\n", "x"])
    assert json.loads(text)["metadata"] == notebooks.METADATA
    assert text == notebooks.dumps(json.loads(text)), "writing it again gives the same bytes"
    assert text.endswith("}\n")


@pytest.mark.parametrize("name", [None, 7, "", "Split", "split_predict", "-split", "split-", "a" * 65, "ä"])
def test_cell_without_a_proper_name_is_refused(name: Any) -> None:
    with pytest.raises(ValueError, match=r"cell 1 has the id .*; expected words like 'split-predict'"):
        notebooks.canonical({"cells": [cell("fine"), cell(name)]})


def test_two_cells_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="cell id 'twice' stands twice"):
        notebooks.canonical({"cells": [cell("twice"), cell("twice")]})


@pytest.mark.parametrize("text", ["{ half", "[]", '{"nbformat": 3, "cells": []}', '{"nbformat": 4}'])
def test_what_is_no_notebook_is_refused_by_name(text: str, tmp_path: Path) -> None:
    path = tmp_path / "some.ipynb"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"some\.ipynb is not a "):
        notebooks.read(path)


def test_writing_and_reading_returns_the_same_notebook(tmp_path: Path) -> None:
    notebook = notebooks.canonical({"cells": [cell("a", "µ = '中文'"), cell("b", "# Title", "markdown")]})
    notebooks.write(notebook, tmp_path / "some.ipynb")
    assert notebooks.read(tmp_path / "some.ipynb") == notebook
    assert "中文" in (tmp_path / "some.ipynb").read_text(encoding="utf-8")
