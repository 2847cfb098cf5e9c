"""A small course for command tests, with the current folder inside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlacademy import notebooks


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "course"
    (root / "src" / "mlacademy").mkdir(parents=True)
    (root / "src" / "mlacademy" / "__init__.py").touch()
    for name, cells in {
        "lessons/00_start.ipynb": [("markdown", "title", "# 00 · Start"), ("code", "sum", "assert 1 + 1 == 2")],
        "lessons/04_tiles.ipynb": [("markdown", "title", "# Tiles"), ("code", "ok", "x = 1"), ("code", "bad", "x / 0")],
        "exercises/02_fp8/02_fp8.ipynb": [("code", "02-3-answer", "def f(): ...")],
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        made = []
        for kind, cell, source in cells:
            metadata = {"nbgrader": {"solution": True}} if cell.endswith("answer") else {}
            made.append({"cell_type": kind, "id": cell, "metadata": metadata, "source": source})
        notebooks.write({"cells": made}, root / name)
    (root / "requirements").mkdir()
    (root / "requirements" / "constraints.txt").write_text("rich==0.1\npytest==0.1 ; python_version < '3'\n")
    monkeypatch.chdir(root)
    return root
