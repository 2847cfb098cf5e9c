"""A notebook file is judged from its text: what its cells define, not what they run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlacademy import notebooks
from mlacademy.grading import Exercise, check_notebook
from mlacademy.grading.submissions import answer_in, judge_notebook

RIGHT = "def scale(x, factor):\n    return helper(x) * np.float32(factor)"


def notebook(*sources: str, answer: str = RIGHT) -> notebooks.Notebook:
    """Cells before the answer, and the answer with its check."""
    cells: list[dict[str, Any]] = [
        {"cell_type": "code", "id": f"cell-{number}", "metadata": {}, "source": source}
        for number, source in enumerate(["import numpy as np", "def helper(x):\n    return x", *sources])
    ]
    graded = {"nbgrader": {"grade_id": "99-1-answer", "solution": True}}
    cells.append({"cell_type": "code", "id": "99-1-answer", "metadata": graded, "source": answer})
    cells.append({"cell_type": "code", "id": "99-1-check", "metadata": {}, "source": "raise SystemExit"})
    cells.append({"cell_type": "code", "id": "later", "metadata": {}, "source": "scale = None"})
    return {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def verdict(exercise: Exercise, *sources: str, answer: str = RIGHT) -> Any:
    return judge_notebook(notebook(*sources, answer=answer), exercise, streams=("visible", "hidden"))


def test_answer_may_use_other_cells(exercise: Exercise) -> None:
    assert verdict(exercise)


@pytest.mark.parametrize(
    "source",
    [
        "raise ValueError",
        "1 / 0",
        "x = 1 / 0",
        "this is not Python",
        "%matplotlib inline\n!ls\ny = 3",
        "from mlacademy import fp8\nshown = fp8.decode_e4m3(56)",
        "import mlacademy.grading\nmlacademy.grading.hidden = lambda name: 99",
        "from mlacademy.grading import judge as j\nj.judge = lambda *a, **k: True",
        "def __getattr__(name): return 1",
        "",
        "# only a comment",
        "ä = 'ö'; z = 2",
    ],
)
def test_other_cells_cannot_spoil_the_answer(exercise: Exercise, source: str) -> None:
    assert verdict(exercise, source)


@pytest.mark.parametrize(
    "source", ["x = 0\nwhile True:\n    x += 1", "import os\nx = os._exit(0)", "x = bytearray(16 << 30)", "x = input()"]
)
def test_cell_that_ends_the_process_is_left_out(
    exercise: Exercise, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlacademy.grading.process as process

    monkeypatch.setitem(process.Job.__init__.__kwdefaults__, "load_seconds", 1.0)
    answer = "def scale(x, factor):\n    return x * np.float32(factor)"
    assert verdict(exercise, source, answer=answer)


def test_wrong_answers_are_explained_with_the_lines_of_the_cell(exercise: Exercise) -> None:
    assert verdict(exercise, answer="def scale(x, factor):\n    return x + factor").kind == "added"
    raised = verdict(exercise, answer="y = 1\ndef scale(x, factor):\n    z = 2\n    return x.nothing")
    assert raised.lines == ("line 4 in scale: return x.nothing",)


def test_library_used_in_the_answer_is_refused(exercise: Exercise) -> None:
    for answer in (
        "from mlacademy.fp8 import round_bf16\ndef scale(x, factor):\n    return round_bf16(x)",
        "from mlacademy.fp8 import round_bf16 as scale",
        "from mlacademy import fp8\nscale = fp8.round_bf16",
    ):
        assert verdict(exercise, answer=answer).kind == "library", answer
    early = verdict(exercise, "from mlacademy.fp8 import round_bf16", answer="scale = round_bf16")
    assert early.kind == "library"


def test_missing_answer_is_not_answered(exercise: Exercise) -> None:
    assert verdict(exercise, answer="pass").state == "unanswered"


def test_answer_under_another_cell_is_found_when_its_own_is_gone(exercise: Exercise) -> None:
    moved = notebook(RIGHT)
    moved["cells"] = [cell for cell in moved["cells"] if cell["id"] not in ("99-1-answer", "later")]
    assert judge_notebook(moved, exercise, streams=("visible",))


def test_several_statements_on_a_line_keep_their_places(exercise: Exercise) -> None:
    source = answer_in(notebook("a = 'é'; b = 2\nfor i in range(2):\n    c = i", answer="pass"), exercise)
    assert source.cells[2] == ["a = 'é'", "b = 2", "\nfor i in range(2):\n    c = i"]
    assert np.array_equal(source.own, 3)


ROOT = Path(__file__).parents[2]
SOLUTION = ROOT / "solutions" / "13_block_gemm" / "13_block_gemm.ipynb"


@pytest.mark.skipif(not SOLUTION.is_file(), reason="this branch has no solutions/")
def test_whole_notebook_is_checked_with_progress() -> None:
    said: list[str] = []
    verdicts = check_notebook(SOLUTION, progress=said.append)
    assert [verdict.exercise for verdict in verdicts] == ["13.1", "13.2", "13.3", "13.4"]
    assert [verdict.state for verdict in verdicts] == ["passed", "manual", "manual", "manual"]
    assert said[0] == "13.1 A block-scaled GEMM"


@pytest.mark.skipif(not (ROOT / "exercises" / "13_block_gemm").is_dir(), reason="exercises/ is not generated yet")
def test_unfilled_notebook_is_not_answered_yet() -> None:
    verdicts = check_notebook(ROOT / "exercises" / "13_block_gemm" / "13_block_gemm.ipynb")
    assert {verdict.state for verdict in verdicts} == {"unanswered"}


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "13_x.ipynb").write_text("hello")
    with pytest.raises(ValueError, match="is not a notebook"):
        check_notebook(tmp_path / "13_x.ipynb")
    notebooks.write({"cells": []}, tmp_path / "notes.ipynb")
    with pytest.raises(ValueError, match="is not an assignment: its name must begin like '02_'"):
        check_notebook(tmp_path / "notes.ipynb")
