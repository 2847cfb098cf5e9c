"""The scheduler's picture can show what the compiled kernel cut, and says whether the library cuts the same."""

from __future__ import annotations

import re

import numpy as np
import pytest

from mlacademy.schedule import Schedule, effective_lengths, schedule
from mlacademy.viz import compiled_plan, studies
from mlacademy.viz.compiled_plan import compiled, same_cuts

ID = re.compile(r"\bm[0-9a-f]{10}")  # of a picture, from all that is in it


@pytest.mark.parametrize("pattern", studies.PATTERNS.values())
@pytest.mark.parametrize(("b", "topk", "parts", "overhead"), [(2, 128, 66, 5), (48, 2048, 66, 5), (7, 64, 3, 3)])
def test_the_compiled_kernel_cuts_as_the_library_does(
    pattern: str, b: int, topk: int, parts: int, overhead: int
) -> None:
    lengths = effective_lengths(b, topk, topk_length=studies.request_lengths(b, topk, pattern, seed=5))
    plan = schedule(lengths, parts, overhead=overhead)
    made = compiled(plan)
    assert same_cuts(plan, made)
    assert made.segments() == plan.segments()
    assert made.cost() == plan.cost()


@pytest.mark.parametrize("preset", studies.SPLITS.presets)
def test_both_pictures_of_a_preset_differ_in_their_title_alone(preset: str) -> None:
    settings = studies.SPLITS.preset(preset)
    library, kernel = (studies.SPLITS.draw(**(settings | {"by": by})) for by in ("library", "kernel"))
    assert kernel.title == f"{library.title}, cut by the compiled kernel, as by the library"
    drawn = [ID.sub("m", picture.svg).replace(picture.title, "") for picture in (library, kernel)]
    assert drawn[0] == drawn[1]
    assert kernel.text.replace(kernel.title, library.title) == library.text


def test_another_cut_is_drawn_and_said_to_be_another(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(plan: Schedule) -> Schedule:
        records, splits = plan.records(), plan.num_splits.copy()
        records[0, 3], records[1, 2] = 2, 2  # partition 0 takes all of request 0
        return plan.with_records(records, splits)

    monkeypatch.setattr(studies, "compiled", wrong)
    picture = studies.SPLITS.draw(**(studies.SPLITS.defaults | {"by": "kernel"}))
    assert "NOT as by the library" in picture.title
    assert "partition 0: request 0, blocks 0–1 of 2" in picture.text
    assert compiled_plan.same_cuts(schedule([128, 128], 66), schedule([128, 128], 66))
    assert not compiled_plan.same_cuts(schedule([128, 128], 66), schedule([128, 64], 66))


def test_records_of_another_size_are_refused() -> None:
    plan = schedule([128, 128], 66)
    with pytest.raises(ValueError, match=r"must be \[66, 8\] and \[3\] for this schedule, got \[66, 7\] and \[3\]"):
        plan.with_records(np.zeros((66, 7)), plan.num_splits)
    with pytest.raises(ValueError, match=r"got \[66, 8\] and \[4\]"):
        plan.with_records(plan.records(), [0, 1, 2, 3])
