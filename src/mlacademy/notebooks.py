"""Notebook files in the course's one form: no outputs, named cells, fixed key order.

A tracked notebook is pristine: it carries no outputs, no execution counts and no editor state, every cell has a
name as its id (``split-predict``), and two writes of the same content give the same bytes. The names are what
``mlacademy update`` merges by, what the errata table points at, and what a test reports.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

Notebook = dict[str, Any]

CELL_ID = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
"""What a cell's name looks like: words of lower-case letters and digits, joined by hyphens (64 characters at most)."""

METADATA: dict[str, Any] = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def source(cell: dict[str, Any]) -> str:
    """The text of a cell, whichever way the file stores it (one string or a list of lines)."""
    text = cell.get("source", "")
    return "".join(text) if isinstance(text, list) else str(text)


def canonical(notebook: Notebook) -> Notebook:
    """The same notebook without outputs, counts and editor state, with the course's metadata.

    Cell metadata keeps only ``nbgrader`` and ``tags``. Raises ``ValueError`` when two cells share a name or a name
    is not of the form ``CELL_ID``.
    """
    cells, seen = [], set()
    for position, cell in enumerate(notebook["cells"]):
        name = cell.get("id")
        if not isinstance(name, str) or len(name) > 64 or not CELL_ID.fullmatch(name):
            raise ValueError(f"cell {position} has the id {name!r}; expected words like 'split-predict'")
        if name in seen:
            raise ValueError(f"cell id {name!r} stands twice")
        seen.add(name)
        kept = {key: cell["metadata"][key] for key in ("nbgrader", "tags") if key in cell.get("metadata", {})}
        clean = {"cell_type": cell["cell_type"], "id": name, "metadata": kept}
        if cell["cell_type"] == "code":
            clean |= {"execution_count": None, "outputs": []}
        clean["source"] = source(cell).strip("\n").splitlines(keepends=True)
        cells.append(clean)
    return {"cells": cells, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}


def read(path: str | Path) -> Notebook:
    """Load a notebook file as plain dictionaries. Raises ``ValueError`` when it is not a version-4 notebook."""
    return loads(Path(path).read_bytes(), path)


def loads(data: bytes, path: str | Path) -> Notebook:
    """The notebook in ``data``, the content of the file at ``path``. Raises as :func:`read`."""
    try:
        notebook = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, or JSON nested without end
        raise ValueError(f"{path} is not a notebook: {error}") from error
    if not isinstance(notebook, dict) or notebook.get("nbformat") != 4 or "cells" not in notebook:
        raise ValueError(f"{path} is not a version-4 notebook")
    return notebook


def dumps(notebook: Notebook) -> str:
    """The canonical text of a notebook: sorted keys, one space of indentation, a final newline."""
    return json.dumps(canonical(notebook), ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def write(notebook: Notebook, path: str | Path) -> None:
    """Write the canonical text of ``notebook`` to ``path``."""
    Path(path).write_text(dumps(notebook), encoding="utf-8")
