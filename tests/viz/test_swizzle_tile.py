"""The swizzle map shows each chunk where the formula puts it, and counts passes that can be checked by hand."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from svg_reading import details, numbers, rectangles, written

from mlacademy.gpu.shared_memory import SWIZZLES
from mlacademy.viz.swizzle_tile import PANEL, RIGHT_X, TOP, swizzle_map

CHUNK = re.compile(
    r"row (\d+), chunk (\d+) \(bytes \d+–\d+ of the row\): address ([\d,]+) (?:stays there|moves to ([\d,]+)), "
    r"bank group (\d)"
)


def landed(svg: str) -> dict[tuple[int, int], tuple[int, int, int]]:
    """(row, chunk) -> linear address, address, bank group, as the sentences say."""
    found = {}
    for sentence in details(svg):
        if m := CHUNK.match(sentence):
            linear = int(m[3].replace(",", ""))
            found[int(m[1]), int(m[2])] = (linear, int((m[4] or m[3]).replace(",", "")), int(m[5]))
    return found


@settings(max_examples=30)
@given(
    st.sampled_from(list(SWIZZLES)), st.integers(1, 16).map(lambda n: 16 * n), st.integers(1, 32), st.integers(0, 64)
)
def test_each_chunk_is_drawn_in_its_line_and_bank_group(mode: str, row_bytes: int, rows: int, base: int) -> None:
    svg = swizzle_map(mode, row_bytes=row_bytes, rows=rows, base=16 * base).svg
    chunks = landed(svg)
    assert len(chunks) == rows * row_bytes // 16
    assert len({address for _, address, _ in chunks.values()}) == len(chunks)
    for (row, chunk), (linear, address, group) in chunks.items():
        assert linear == 16 * base + row * row_bytes + 16 * chunk
        assert address // 128 == linear // 128
        assert group == address % 128 // 16


def test_cells_on_the_right_stand_at_their_address() -> None:
    svg = swizzle_map("128B", rows=8, column=3).svg
    for (row, chunk), (_, address, _) in landed(svg).items():
        _, cell = (r for r in rectangles(svg, f"row {row}, chunk {chunk} ") if r[2] > 39 and r[3] > 22.5)
        assert cell[0] == pytest.approx(RIGHT_X + address % 128 // 16 * PANEL / 8 + 0.5)
        assert cell[1] == pytest.approx(TOP + address // 128 * 24)


@pytest.mark.parametrize(
    ("mode", "row_bytes", "passes"),
    [
        # 128-byte rows: without swizzle all eight chunks of a column lie in the same four banks; each address bit that
        # is flipped halves that.
        ("none", 128, (4, 8, 32)),
        ("32B", 128, (4, 4, 16)),
        ("64B", 128, (4, 2, 8)),
        ("128B", 128, (4, 1, 4)),
        ("128B_ATOM_32B", 128, (4, 2, 8)),
        ("128B_ATOM_64B", 128, (4, 4, 16)),
        # Two rows of 64 bytes, or four of 32, share a line.
        ("none", 64, (4, 4, 16)),
        ("64B", 64, (4, 1, 4)),
        ("none", 32, (4, 2, 8)),
        ("32B", 32, (4, 1, 4)),
        # Padding by 16 bytes moves each row on by one bank group.
        ("none", 144, (4, 1, 4)),
        ("none", 256, (4, 8, 32)),
    ],
)
def test_passes_are_those_worked_out_by_hand(mode: str, row_bytes: int, passes: tuple[int, int, int]) -> None:
    text = swizzle_map(mode, row_bytes=row_bytes, column=1).text
    row, column, store = passes
    assert f"Passes over the banks: row read {row}, column of chunks {column}, strided store {store}" in text
    lost = "no bank conflict" if store == 1 else f"{store - 1} lost to bank conflicts"
    assert f"strided store (32 lanes × 4 bytes, at byte 16 of 32 rows): {store} passes, 1 at best, {lost}" in text


def test_bars_are_as_long_as_the_passes() -> None:
    svg = swizzle_map("128B").svg
    for name, here, without in (("row read", 4, 4), ("column of chunks", 1, 8), ("strided store", 4, 32)):
        upper, lower = (r[2] for r in rectangles(svg, f"{name} ("))
        assert upper / lower == pytest.approx(here / without, rel=0.01)


def test_twin_lists_the_bank_groups_row_by_row() -> None:
    text = swizzle_map("128B").text
    assert "row 0: 0 1 2 3 4 5 6 7\nrow 1: 1 0 3 2 5 4 7 6\n" in text
    assert text.endswith("row 7: 7 6 5 4 3 2 1 0")
    assert "The pattern repeats every 1,024 bytes." in text


def test_start_inside_the_pattern_shifts_it() -> None:
    assert "row 0: 3 2 1 0 7 6 5 4" in swizzle_map("128B", base=384).text
    assert swizzle_map("128B", base=1024).text.splitlines()[-8:] == swizzle_map("128B").text.splitlines()[-8:]


def test_rows_that_no_tensor_copy_has_are_named_as_such() -> None:
    assert "A tensor copy in mode 64B has rows of 64 bytes; these have 128." in swizzle_map("64B").text
    assert "A tensor copy" not in swizzle_map("64B", row_bytes=64).text + swizzle_map("none").text


@pytest.mark.parametrize("row_bytes", [16, 48, 128, 256])
def test_largest_tiles_stay_small_and_their_numbers_are_in_the_twin(row_bytes: int) -> None:
    picture = swizzle_map("128B", row_bytes=row_bytes, rows=32)
    assert len(picture.svg) < 600_000
    shown = [t for t in written(picture.svg) if "·" not in t]
    assert numbers(" ".join(shown)) <= numbers(picture.text)


def test_bad_arguments_are_refused_in_a_sentence() -> None:
    with pytest.raises(ValueError, match="mode must be one of none, 32B"):
        swizzle_map("256B")
    with pytest.raises(ValueError, match="row_bytes must be a multiple of 16 from 16 to 256: it is 100"):
        swizzle_map(row_bytes=100)
    with pytest.raises(ValueError, match="rows must be 1 to 32: it is 0"):
        swizzle_map(rows=0)
    with pytest.raises(ValueError, match="column must be 0 to 3, one for each 16 bytes of a row: it is 4"):
        swizzle_map("64B", row_bytes=64, column=4)
    with pytest.raises(ValueError, match="base must be a multiple of 16 from 0 on: it is 8"):
        swizzle_map(base=8)
