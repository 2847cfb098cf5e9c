"""Merge a newer version of a notebook into a learner's copy, cell by cell, by the cells' names.

Three notebooks take part: ``base`` (the pristine version that the copy was made from), ``mine`` (the copy as the
learner left it) and ``new`` (the pristine version of today). A cell is *untouched* when its text equals base's.

    =====================  =========================  ========================================
    the learner            the course                 the merged notebook
    =====================  =========================  ========================================
    left the cell alone    changed it                 takes the new text, drops the old output
    left the cell alone    removed it                 drops it
    wrote in the cell      left it alone              keeps the learner's
    wrote in the cell      changed it                 keeps the learner's, offers the new text
    wrote in the cell      removed it                 keeps the learner's
    deleted the cell       anything                   leaves it deleted
    added a cell           anything                   keeps it after the cell it stood behind
    anything               added a cell               inserts it in its place
    =====================  =========================  ========================================

Nothing a learner wrote is lost: every touched or added cell of ``mine`` is in the result with the same text. An
offer is a markdown cell right below the learner's. It goes when a later offer takes its place or when the learner
has taken the new text over, unless the learner wrote in it.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from mlacademy.notebooks import Notebook, source

Cell = dict[str, Any]
Kind = Literal["refreshed", "inserted", "dropped", "kept", "offered", "moved"]

OFFER = "offer"
"""Key under a cell's ``metadata.mlacademy``: ``{"for": name, "text": digest}`` of a cell that shows newer text."""


@dataclass(frozen=True)
class Change:
    """One thing the merge did: what, and to which cell (``moved`` names the first cell out of its old order)."""

    kind: Kind
    cell: str


@dataclass(frozen=True)
class Merge:
    """The merged notebook and what was done to get it, in the notebook's order of cells."""

    notebook: Notebook
    changes: tuple[Change, ...]


def text_of(cell: Cell) -> str:
    """The text of a cell as people see it: line ends unified, blank lines at either end ignored."""
    return source(cell).replace("\r\n", "\n").strip("\n")


def same(left: Cell, right: Cell) -> bool:
    """Whether two cells are of one type and say the same."""
    return left["cell_type"] == right["cell_type"] and text_of(left) == text_of(right)


def _identity(cell: Cell) -> tuple[str, str]:
    return cell["cell_type"], text_of(cell)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _grade_id(cell: Cell) -> str | None:
    name = cell.get("metadata", {}).get("nbgrader", {}).get("grade_id")
    return name if isinstance(name, str) else None


def named(cells: Iterable[Cell], base: Iterable[Cell]) -> list[Cell]:
    """Copies of ``cells`` in which every name stands once.

    A cell without a name (older notebook formats have none) gets the name of the base cell that it is: the one with
    its ``grade_id``, or the one at its place when both notebooks are compared as sequences of texts. What matches
    nothing, and the second of two cells with one name, is the learner's own and gets a name made from its text.
    """
    result = [dict(cell) for cell in cells]
    taken: set[str] = set()
    for cell in result:
        given = cell.get("id")
        cell["id"] = given if isinstance(given, str) and given and given not in taken else None
        if cell["id"] is not None:
            taken.add(cell["id"])
    free = [cell for cell in base if cell["id"] not in taken]
    nameless = [cell for cell in result if cell["id"] is None]

    def give(cell: Cell, name: str) -> None:
        cell["id"] = name
        taken.add(name)

    by_grade = {_grade_id(cell): cell["id"] for cell in free}
    for cell in nameless:
        graded = _grade_id(cell)
        match = by_grade.get(graded) if graded is not None else None
        if match is not None and match not in taken:
            give(cell, match)
    free = [cell for cell in free if cell["id"] not in taken]
    nameless = [cell for cell in nameless if cell["id"] is None]
    pairing = difflib.SequenceMatcher(None, [_identity(c) for c in free], [_identity(c) for c in nameless], False)
    for kind, i, i_end, j, j_end in pairing.get_opcodes():
        if kind == "equal" or (kind == "replace" and i_end - i == j_end - j):
            for ours, theirs in zip(free[i:i_end], nameless[j:j_end], strict=True):
                if ours["cell_type"] == theirs["cell_type"]:
                    give(theirs, ours["id"])
    for cell in result:
        if cell["id"] is None:
            give(cell, _free_name(f"own-{_digest(text_of(cell))}", taken))
    return result


def _free_name(stem: str, taken: Collection[str]) -> str:
    """``stem``, or ``stem-2`` and so on where that is taken."""
    name, count = stem, 1
    while name in taken:
        count += 1
        name = f"{stem}-{count}"
    return name


def _with_course_metadata(cell: Cell, base: Cell | None, new: Cell) -> dict[str, Any]:
    """The copy's metadata with the course's part (nbgrader, tags) from ``new`` and the learner's own tags kept."""
    metadata = {key: value for key, value in cell.get("metadata", {}).items() if key not in ("nbgrader", "tags")}
    if "nbgrader" in new["metadata"]:
        metadata["nbgrader"] = new["metadata"]["nbgrader"]
    course = new["metadata"].get("tags", [])
    former = base["metadata"].get("tags", []) if base else []
    own = [tag for tag in cell.get("metadata", {}).get("tags", []) if tag not in former and tag not in course]
    if course or own:
        metadata["tags"] = [*course, *own]
    return metadata


def _refreshed(cell: Cell, base: Cell | None, new: Cell) -> Cell:
    """The copy's cell with the new text; what the old text printed goes, unless the text is the same."""
    result: Cell = {"cell_type": new["cell_type"], "id": cell["id"], "source": new["source"]}
    result["metadata"] = _with_course_metadata(cell, base, new)
    if new["cell_type"] == "code":
        kept = same(cell, new)
        result["outputs"] = cell.get("outputs", []) if kept else []
        result["execution_count"] = cell.get("execution_count") if kept else None
    elif "attachments" in new:
        result["attachments"] = new["attachments"]
    return result


def _offer(new: Cell, taken: Collection[str]) -> Cell:
    """A markdown cell that shows the newer text of a cell which the learner has written in; its name is not taken."""
    name, text = new["id"], text_of(new)
    fence = "````" if "```" in text else "```"
    shown = f"{fence}python\n{text}\n{fence}" if new["cell_type"] == "code" else text
    words = (
        f"> **Update.** The course has a newer version of the cell above (`{name}`). Yours is kept. "
        f"Take over what you need, then delete this cell.\n\n{shown}"
    ).strip("\n")
    marks = {OFFER: {"for": name, "text": _digest(words)}}
    fresh = _free_name(f"{name[:40]}-newer-{_digest(words)}", taken)
    return {"cell_type": "markdown", "id": fresh, "metadata": {"mlacademy": marks}, "source": words}


def _offer_target(cell: Cell) -> str | None:
    """The name of the cell whose newer text ``cell`` shows; None when it is no offer or the learner wrote in it."""
    marks = cell.get("metadata", {}).get("mlacademy")
    offer = marks.get(OFFER) if isinstance(marks, dict) else None
    if not isinstance(offer, dict) or offer.get("text") != _digest(text_of(cell)):
        return None
    return str(offer.get("for"))


class _Merger:
    """The state of one merge: the three notebooks by name, the cells placed so far and the changes made."""

    def __init__(self, base: Notebook | None, mine: Notebook, new: Notebook) -> None:
        self.base = {cell["id"]: cell for cell in base["cells"]} if base else {}
        self.new = {cell["id"]: cell for cell in new["cells"]}
        self.mine = named(mine["cells"], base["cells"] if base else new["cells"])
        self.changes: list[Change] = []
        self.offers: dict[str, Cell] = {}
        self.taken_over: set[str] = set()

    def settle(self, cell: Cell) -> Cell | None:
        """What becomes of one cell of the copy; None drops it. Notes the change and any offer."""
        name = cell["id"]
        base, new = self.base.get(name), self.new.get(name)
        touched = base is None or not same(cell, base)
        if new is None:
            if not touched:
                self.changes.append(Change("dropped", name))
                return None
            if base is not None:
                self.changes.append(Change("kept", name))
                cell["metadata"] = {k: v for k, v in cell.get("metadata", {}).items() if k != "nbgrader"}
            return cell
        if same(cell, new):
            self.taken_over.add(name)
            return _refreshed(cell, base, new)
        if not touched:
            self.changes.append(Change("refreshed", name))
            return _refreshed(cell, base, new)
        if base is None or not same(base, new):
            self.changes.append(Change("offered", name))
            self.offers[name] = new
        return {**cell, "metadata": _with_course_metadata(cell, base, new)}

    def order(self, kept: list[Cell]) -> list[str]:
        """The names of the course's cells in the result, in order: kept ones and new ones, deleted ones left out."""
        mine = [cell["id"] for cell in kept if cell["id"] in self.new]
        present = set(mine)
        inserted = [name for name in self.new if name not in present and name not in self.base]
        wanted = [name for name in self.new if name in present or name in inserted]
        settled = [name for name in mine if name in self.base]
        before = [name for name in self.base if name in present]
        self.changes += [Change("inserted", name) for name in inserted]
        if settled == before or not self.base:
            now = [name for name in wanted if name in present]
            moved = next((a for a, b in zip(mine, now, strict=True) if a != b), None)
            self.changes += [Change("moved", moved)] if moved else []
            return wanted
        order = list(mine)  # the learner has reordered cells: keep that, and put each new cell behind its neighbour
        for name in inserted:
            place = wanted.index(name)
            order.insert(order.index(wanted[place - 1]) + 1 if place else 0, name)
        return order

    def run(self, mine: Notebook) -> Merge:
        kept = []
        for cell in self.mine:
            settled = self.settle(cell)
            if settled is not None:
                kept.append(settled)
        outdated = self.offers.keys() | self.taken_over
        kept = [cell for cell in kept if _offer_target(cell) not in outdated]
        order = self.order(kept)
        by_name = {cell["id"]: cell for cell in kept if cell["id"] in self.new}
        followers: dict[str | None, list[Cell]] = {}
        anchor = None
        for cell in kept:
            if cell["id"] in self.new:
                anchor = cell["id"]
            else:
                followers.setdefault(anchor, []).append(cell)
        cells = list(followers.get(None, []))
        for name in order:
            fresh = self.new[name]
            cells.append(by_name[name] if name in by_name else _refreshed(fresh, fresh, fresh))
            if name in self.offers:
                cells.append(_offer(self.offers[name], {cell["id"] for cell in kept}))
            cells += followers.get(name, [])
        rank = {cell["id"]: position for position, cell in enumerate(cells)}
        changes = sorted(self.changes, key=lambda change: rank.get(change.cell, -1))
        notebook = {**mine, "cells": cells, "nbformat": 4, "nbformat_minor": max(5, mine.get("nbformat_minor", 5))}
        return Merge(notebook, tuple(changes))


def merge(base: Notebook | None, mine: Notebook, new: Notebook) -> Merge:
    """``mine`` brought up to ``new``, given that it was made from ``base``; see the table above.

    ``base`` may be None (the record was lost): then a cell that differs from ``new`` counts as the learner's, and a
    name of ``new`` that ``mine`` lacks is inserted. The arguments are not changed.
    """
    return _Merger(base, mine, new).run(mine)


def restore(mine: Notebook, new: Notebook, names: Iterable[str]) -> Notebook:
    """``mine`` with the cells called ``names`` as they are in ``new``, put back in place where they were deleted.

    Raises ``ValueError`` when ``new`` has no cell of that name.
    """
    pristine = {cell["id"]: cell for cell in new["cells"]}
    cells = named(mine["cells"], new["cells"])
    order = list(pristine)
    for name in names:
        if name not in pristine:
            raise ValueError(f"the course's notebook has no cell named {name!r}")
        fresh = _refreshed(pristine[name], pristine[name], pristine[name])
        place = next((i for i, cell in enumerate(cells) if cell["id"] == name), None)
        if place is not None:
            cells[place] = fresh
            continue
        ahead = set(order[: order.index(name)])
        cells.insert(max((i + 1 for i, cell in enumerate(cells) if cell["id"] in ahead), default=0), fresh)
    return {**mine, "cells": cells, "nbformat": 4, "nbformat_minor": max(5, mine.get("nbformat_minor", 5))}
