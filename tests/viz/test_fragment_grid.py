"""The fragment map names the owner of each element, and draws the chosen thread's elements where they are."""

from __future__ import annotations

import re

import pytest
from svg_reading import details, numbers, rectangles, written

from mlacademy.gpu.fragments import fragment
from mlacademy.viz.fragment_grid import GRID_X, MAP_ROW, fragment_map

OWNER = re.compile(r"row (\d+), column (\d+): thread (\d+) \(warp (\d), lane (\d+)\), register (\S+)")
KINDS = [("D", "f32", 64), ("D", "f16", 8), ("D", "s32", 256), ("A", "bf16", 64), ("A", "e4m3", 64), ("A", "tf32", 64)]


@pytest.mark.parametrize(("operand", "dtype", "n"), KINDS)
@pytest.mark.parametrize("thread", [0, 37, 127])
def test_window_names_the_owner_of_each_element(operand: str, dtype: str, n: int, thread: int) -> None:
    it = fragment(operand, dtype, n)
    found = [m for s in details(fragment_map(operand, dtype=dtype, n=n, thread=thread).svg) if (m := OWNER.match(s))]
    assert len(found) == 16 * min(it.columns, 32 if it.packed == 4 else 16)
    for m in found:
        row, column, owner = int(m[1]), int(m[2]), int(m[3])
        assert row // 16 == thread // 32
        assert (int(m[4]), int(m[5])) == divmod(owner, 32)
        value = next(v for v in range(it.values) if it.element(owner, v) == (row, column))
        assert it.register(value) == m[6]


def test_window_moves_along_the_columns() -> None:
    found = [m for s in details(fragment_map(n=256, thread=5, first_column=240).svg) if (m := OWNER.match(s))]
    assert {int(m[2]) for m in found} == set(range(240, 256))
    narrow = [m for s in details(fragment_map(n=24, first_column=16).svg) if (m := OWNER.match(s))]
    assert {int(m[2]) for m in narrow} == set(range(16, 24))


def test_small_map_shows_four_warps_of_sixteen_rows() -> None:
    svg = fragment_map(thread=70).svg
    heights = [rectangles(svg, f"warp {w} of the warpgroup: rows {16 * w}–{16 * w + 15}")[0] for w in range(4)]
    assert all(r[0] == GRID_X and r[3] == pytest.approx(16 * MAP_ROW - 1) for r in heights)


def test_twin_lists_every_element_of_the_thread() -> None:
    text = fragment_map(n=64, thread=37).text
    assert (
        "Each of 128 threads holds 32 elements in 32 registers; thread 37 is lane 5 of warp 1, rows 17 and 25." in text
    )
    listed = re.findall(r"d(\d+) = \((\d+), (\d+)\)", text)
    it = fragment("D", "f32", 64)
    assert [(int(r), int(c)) for _, r, c in listed] == [it.element(37, v) for v in range(32)]
    assert "Lanes of warp 1, one for each column, repeating every 8 columns:\n" in text
    assert "rows 16 and 24: 0 0 1 1 2 2 3 3\nrows 17 and 25: 4 4 5 5 6 6 7 7\n" in text
    assert text.endswith("Where row 16 is d0 of its lane, row 24 is d2.")


def test_packed_types_name_their_part_of_a_register() -> None:
    assert "a3.b3 = (41, 27)" in fragment_map("A", dtype="e4m3", thread=70).text
    assert "holds 32 elements in 16 registers" in fragment_map(dtype="f16").text


@pytest.mark.parametrize(("operand", "dtype", "n"), KINDS)
def test_numbers_of_the_chosen_thread_are_in_the_twin(operand: str, dtype: str, n: int) -> None:
    picture = fragment_map(operand, dtype=dtype, n=n, thread=93)
    held = [t for t in written(picture.svg) if "=" in t]
    assert held
    assert numbers(" ".join(held)) <= numbers(picture.text)
    assert len(picture.svg) < 300_000


def test_bad_arguments_are_refused_in_a_sentence() -> None:
    with pytest.raises(ValueError, match='operand must be "D" or "A"'):
        fragment_map("B")
    with pytest.raises(ValueError, match="thread must be 0 to 127, a thread of the warpgroup: it is 128"):
        fragment_map(thread=128)
    with pytest.raises(ValueError, match="first_column must be a multiple of 8 below 64, the columns of D: it is 64"):
        fragment_map(first_column=64)
    with pytest.raises(ValueError, match="below 16, the columns of A: it is 4"):
        fragment_map("A", first_column=4)
