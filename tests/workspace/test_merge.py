"""The three-way merge of notebooks: worked examples of each rule, and properties over random notebooks."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlacademy.workspace.merge import Change, merge, named, restore, text_of

Cell = dict[str, Any]


def code(name: str | None, text: str, *, output: str | None = None, **metadata: Any) -> Cell:
    outputs = [] if output is None else [{"output_type": "stream", "name": "stdout", "text": output}]
    cell = {"cell_type": "code", "metadata": metadata, "source": text, "outputs": outputs, "execution_count": None}
    return cell if name is None else {**cell, "id": name}


def text(name: str, words: str, **metadata: Any) -> Cell:
    return {"cell_type": "markdown", "id": name, "metadata": metadata, "source": words}


def notebook(*cells: Cell) -> dict[str, Any]:
    return {"cells": list(cells), "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def names(merged: dict[str, Any]) -> list[str]:
    return [cell["id"] for cell in merged["cells"]]


def sources(merged: dict[str, Any]) -> list[str]:
    return [text_of(cell) for cell in merged["cells"]]


BASE = notebook(text("title", "# Title"), code("run", "x = 1"), code("answer", "def f(): ..."), text("end", "Done."))


def test_untouched_cell_takes_the_new_text_and_loses_the_old_output() -> None:
    mine = copy.deepcopy(BASE)
    mine["cells"][1] = code("run", "x = 1", output="old")
    new = copy.deepcopy(BASE)
    new["cells"][1] = code("run", "x = 2")
    merged = merge(BASE, mine, new)
    assert sources(merged.notebook) == ["# Title", "x = 2", "def f(): ...", "Done."]
    assert merged.notebook["cells"][1]["outputs"] == []
    assert merged.changes == (Change("refreshed", "run"),)


def test_outputs_of_unchanged_cells_stay() -> None:
    mine = copy.deepcopy(BASE)
    mine["cells"][1] = code("run", "x = 1", output="kept")
    merged = merge(BASE, mine, BASE)
    assert merged.notebook["cells"][1]["outputs"][0]["text"] == "kept"
    assert merged.changes == ()


def test_written_cell_stays_and_the_new_text_is_offered_below_it() -> None:
    mine = copy.deepcopy(BASE)
    mine["cells"][2] = code("answer", "def f(): return 7", output="7")
    new = copy.deepcopy(BASE)
    new["cells"][2] = code("answer", "def f(x): ...")
    merged = merge(BASE, mine, new)
    assert sources(merged.notebook)[2] == "def f(): return 7"
    assert merged.notebook["cells"][2]["outputs"], "the learner's output stays"
    offer = merged.notebook["cells"][3]
    assert offer["cell_type"] == "markdown"
    assert "```python\ndef f(x): ...\n```" in offer["source"]
    assert merged.changes == (Change("offered", "answer"),)


def test_a_second_conflict_replaces_the_offer_and_taking_it_over_removes_it() -> None:
    mine = copy.deepcopy(BASE)
    mine["cells"][2] = code("answer", "mine")
    second, third = copy.deepcopy(BASE), copy.deepcopy(BASE)
    second["cells"][2] = code("answer", "second")
    third["cells"][2] = code("answer", "third")
    once = merge(BASE, mine, second).notebook
    twice = merge(second, once, third).notebook
    assert len(twice["cells"]) == 5
    assert "third" in twice["cells"][3]["source"]
    assert "second" not in json.dumps(twice)
    twice["cells"][2]["source"] = "third"
    assert sources(merge(third, twice, third).notebook) == sources(third)


def test_an_offer_with_the_learners_notes_in_it_stays() -> None:
    mine = copy.deepcopy(BASE)
    mine["cells"][2] = code("answer", "mine")
    second, third = copy.deepcopy(BASE), copy.deepcopy(BASE)
    second["cells"][2], third["cells"][2] = code("answer", "second"), code("answer", "third")
    once = merge(BASE, mine, second).notebook
    once["cells"][3]["source"] += "\nnote to self"
    twice = merge(second, once, third).notebook
    assert any("note to self" in words for words in sources(twice))
    assert len(set(names(twice))) == len(names(twice)) == 6
    again = merge(BASE, once, second).notebook
    assert len(set(names(again))) == len(names(again)) == 6, "the same offer again, beside the one with notes"


def test_offer_of_markdown_with_a_fence_shows_it_as_it_is() -> None:
    base = notebook(text("box", "old"), code("c", "s = '''```'''"))
    mine = notebook(text("box", "mine"), code("c", "mine"))
    new = notebook(text("box", "```python\n1\n```"), code("c", "t = '''```'''"))
    shown = sources(merge(base, mine, new).notebook)
    assert shown[1].endswith("\n\n```python\n1\n```")
    assert shown[3].endswith("````python\nt = '''```'''\n````")


def test_same_change_on_both_sides_is_no_conflict() -> None:
    mine, new = copy.deepcopy(BASE), copy.deepcopy(BASE)
    mine["cells"][1]["source"] = new["cells"][1]["source"] = "x = 3"
    assert merge(BASE, mine, new).changes == ()


def test_new_cells_are_inserted_in_place_and_removed_ones_dropped() -> None:
    new = notebook(text("title", "# Title"), text("why", "Why"), code("answer", "def f(): ..."), text("end", "Done."))
    merged = merge(BASE, BASE, new)
    assert names(merged.notebook) == ["title", "why", "answer", "end"]
    assert set(merged.changes) == {Change("inserted", "why"), Change("dropped", "run")}


def test_removed_cell_with_the_learners_text_stays_without_grading_marks() -> None:
    graded = {"grade_id": "run", "grade": True}
    base = notebook(text("title", "# Title"), code("run", "x = 1", nbgrader=graded))
    mine = notebook(text("title", "# Title"), code("run", "x = 99", nbgrader=graded))
    merged = merge(base, mine, notebook(text("title", "# Title")))
    assert sources(merged.notebook) == ["# Title", "x = 99"]
    assert "nbgrader" not in merged.notebook["cells"][1]["metadata"]
    assert merged.changes == (Change("kept", "run"),)


def test_learners_own_cells_stay_behind_their_neighbour() -> None:
    cells = copy.deepcopy(BASE["cells"])
    mine = notebook(code("top", "0"), cells[0], cells[1], code("scratch", "x + 1"), cells[2], cells[3])
    new = notebook(BASE["cells"][0], text("intro", "Intro"), *BASE["cells"][1:])
    assert names(merge(BASE, mine, new).notebook) == ["top", "title", "intro", "run", "scratch", "answer", "end"]


def test_cell_deleted_by_the_learner_stays_deleted() -> None:
    mine = notebook(*(cell for cell in copy.deepcopy(BASE["cells"]) if cell["id"] != "run"))
    new = copy.deepcopy(BASE)
    new["cells"][1]["source"] = "x = 2"
    assert names(merge(BASE, mine, new).notebook) == ["title", "answer", "end"]


def test_course_order_wins_unless_the_learner_moved_cells() -> None:
    title, run, answer, end = BASE["cells"]
    new = notebook(title, answer, run, end)
    merged = merge(BASE, BASE, new)
    assert names(merged.notebook) == ["title", "answer", "run", "end"]
    assert merged.changes == (Change("moved", "run"),)
    mine = notebook(title, end, run, answer)
    inserted = notebook(title, text("why", "Why"), answer, run, end)
    assert names(merge(BASE, mine, inserted).notebook) == ["title", "why", "end", "run", "answer"]


def test_tags_and_grading_marks_are_the_courses_and_own_tags_stay() -> None:
    base = notebook(code("run", "x = 1", tags=["predict"], nbgrader={"points": 1}))
    mine = notebook(code("run", "x = 5", tags=["predict", "later"], nbgrader={"points": 9}, collapsed=True))
    new = notebook(code("run", "x = 1", tags=["run"], nbgrader={"points": 2}))
    metadata = merge(base, mine, new).notebook["cells"][0]["metadata"]
    assert metadata == {"collapsed": True, "nbgrader": {"points": 2}, "tags": ["run", "later"]}


def test_without_a_base_every_difference_is_the_learners() -> None:
    mine = copy.deepcopy(BASE)
    mine["cells"][1]["source"] = "x = 42"
    new = notebook(*copy.deepcopy(BASE["cells"]), text("more", "More"))
    merged = merge(None, mine, new)
    assert names(merged.notebook)[:2] == ["title", "run"]
    assert "x = 42" in sources(merged.notebook)
    assert set(merged.changes) == {Change("offered", "run"), Change("inserted", "more")}


def test_cells_without_names_are_recognised_by_text_grade_and_place() -> None:
    base = notebook(*BASE["cells"][:2], code("answer", "...", nbgrader={"grade_id": "answer"}), BASE["cells"][3])
    mine = copy.deepcopy(base)
    mine["nbformat_minor"] = 4
    mine["cells"][1]["source"] = "x = 1000"
    mine["cells"].insert(2, code("scratch", "x"))
    mine["cells"][3]["source"] = "return 1"
    for cell in mine["cells"]:
        del cell["id"]
    found = names({"cells": named(mine["cells"], base["cells"])})
    assert found[0] == "title"
    assert found[3:] == ["answer", "end"]
    merged = merge(base, mine, base).notebook
    assert merged["nbformat_minor"] == 5
    assert {"x = 1000", "x", "return 1"} <= set(sources(merged))


def test_the_second_of_two_cells_with_one_name_is_the_learners_own() -> None:
    mine = notebook(BASE["cells"][0], BASE["cells"][1], code("run", "pasted"), *BASE["cells"][2:])
    merged = merge(BASE, mine, BASE).notebook
    assert sources(merged) == ["# Title", "x = 1", "pasted", "def f(): ...", "Done."]
    assert len(set(names(merged))) == 5


def test_restore_brings_back_a_changed_and_a_deleted_cell() -> None:
    mine = notebook(BASE["cells"][0], code("answer", "wrong", output="3"), text("end", "Done."))
    back = restore(mine, BASE, ["answer", "run"])
    assert sources(back) == sources(BASE)
    assert back["cells"][2]["outputs"] == []
    with pytest.raises(ValueError, match="no cell named 'nowhere'"):
        restore(mine, BASE, ["nowhere"])


# Random notebooks: base has up to six cells; mine and new are edits of it (change, delete, add, shuffle).
POOL = [f"cell-{i}" for i in range(9)]
WORDS = st.sampled_from(["a", "b", "c = 1", "d = 2", "e", ""])


def _cells(draw: st.DrawFn, chosen: list[str]) -> list[Cell]:
    return [code(name, draw(WORDS)) if draw(st.booleans()) else text(name, draw(WORDS)) for name in chosen]


@st.composite
def edited(draw: st.DrawFn, base: list[Cell], added: list[str]) -> list[Cell]:
    cells = []
    for cell in base:
        fate = draw(st.sampled_from(["keep", "keep", "keep", "change", "delete"]))
        if fate == "change":
            cells.append({**copy.deepcopy(cell), "source": draw(WORDS)})
        elif fate == "keep":
            cells.append(copy.deepcopy(cell))
    for cell in _cells(draw, draw(st.lists(st.sampled_from(added), unique=True, max_size=3))):
        cells.insert(draw(st.integers(0, len(cells))), cell)
    return draw(st.permutations(cells)) if draw(st.integers(0, 3)) == 0 else cells


@st.composite
def threes(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    base = _cells(draw, draw(st.lists(st.sampled_from(POOL[:6]), unique=True, max_size=6)))
    mine = draw(edited(base, ["mine-1", "mine-2", "both"]))
    new = draw(edited(base, ["new-1", "new-2", "both"]))
    return notebook(*base), notebook(*mine), notebook(*new)


@settings(max_examples=300, deadline=None)
@given(threes())
def test_nothing_a_learner_wrote_is_lost(three: tuple[dict[str, Any], dict[str, Any], dict[str, Any]]) -> None:
    base, mine, new = three
    before = copy.deepcopy(three)
    merged = merge(base, mine, new).notebook
    assert three == before, "the arguments stay as they were"
    pristine = {cell["id"]: (cell["cell_type"], text_of(cell)) for cell in base["cells"]}
    written = [cell for cell in mine["cells"] if pristine.get(cell["id"]) != (cell["cell_type"], text_of(cell))]
    found = {cell["id"]: text_of(cell) for cell in merged["cells"]}
    assert all(found[cell["id"]] == text_of(cell) for cell in written)
    assert len(found) == len(merged["cells"]), "every name stands once"


@settings(max_examples=300, deadline=None)
@given(threes())
def test_an_untouched_copy_becomes_the_new_notebook(
    three: tuple[dict[str, Any], dict[str, Any], dict[str, Any]],
) -> None:
    base, _, new = three
    merged = merge(base, base, new).notebook
    assert names(merged) == names(new)
    assert sources(merged) == sources(new)
    assert [cell["cell_type"] for cell in merged["cells"]] == [cell["cell_type"] for cell in new["cells"]]


@settings(max_examples=300, deadline=None)
@given(threes())
def test_merging_twice_changes_nothing_more(three: tuple[dict[str, Any], dict[str, Any], dict[str, Any]]) -> None:
    base, mine, new = three
    once = merge(base, mine, new).notebook
    again = merge(new, once, new)
    assert again.notebook == once
    assert {change.kind for change in again.changes} <= {"kept"}
    # Killed after the copy was written and before its record: the merge runs again from the old base.
    assert sources(merge(base, once, new).notebook) == sources(once)
