"""The plan's picture shows each piece of each request once, to scale, and stays small for any size."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from svg_reading import details, numbers, rectangles, written

from mlacademy.schedule import CostModel, num_sm_parts, schedule
from mlacademy.viz.split_plan import BASE, PLOT_HEIGHT, splits

PIECE = re.compile(
    r"partition (\d+): request (\d+), "
    r"(?:all (\d+) blocks?|length (0), no block|blocks? (\d+)(?:–(\d+))? of (\d+)) \+ (\d+) overhead"
)
TOGETHER = re.compile(
    r"partition (\d+): requests (\d+)–(\d+), drawn together, ([\d,]+) blocks? \+ (\d+) × (\d+) overhead"
)


def pieces(svg: str) -> list[tuple[int, int, int, int]]:
    """(partition, request, first block, end block) of the pieces drawn on their own."""
    found = []
    for sentence in details(svg):
        if m := PIECE.match(sentence):
            whole = m[3] or m[4]
            first = int(m[5] or 0)
            end = int(whole) if whole else int(m[6] or m[5]) + 1
            found.append((int(m[1]), int(m[2]), first, end))
    return found


def test_running_example_is_drawn_as_worked_out_by_hand() -> None:
    picture = splits(schedule([128, 128], 66), ctas_per_partition=2, sms=132)
    assert pieces(picture.svg) == [(0, 0, 0, 1), (1, 0, 1, 2), (2, 1, 0, 1), (3, 1, 1, 2)]
    assert (
        "4 of 66 partitions work, 62 idle (124 of 132 SMs without work); payload 6 blocks; "
        "2 requests split into 4 pieces." in picture.text
    )
    assert "partition 1: request 0, block 1 of 2 + 5 overhead; writes partial result 1" in picture.text
    assert "Partitions 4–65 are idle." in picture.text
    assert "Pieces of each request: r0: 2, r1: 2" in picture.text
    # busiest partition 6, four partials at 0.07 each; 7 without a split (2 blocks + 5)
    assert "this plan 6 + combine 0.28 = 6.28; no request split 7; lower bound 6" in picture.text


def test_unequal_lengths_are_drawn_as_worked_out_by_hand() -> None:
    picture = splits(schedule([2048, 100, 1, 1024], 66))
    drawn = pieces(picture.svg)
    assert drawn == [
        *[(p, 0, 2 * p, 2 * p + 2) for p in range(16)],
        (16, 1, 0, 2),
        (17, 2, 0, 1),
        *[(18 + p, 3, 2 * p, 2 * p + 2) for p in range(8)],
    ]
    assert "payload 7 blocks; 2 requests split into 24 pieces." in picture.text
    assert "r0: 16, r1: 1, r2: 1, r3: 8" in picture.text


def test_no_request_is_split_at_batch_128() -> None:
    text = splits(schedule([2048] * 128, 66)).text
    assert "64 of 66 partitions work, 2 idle; payload 77 blocks; no request is split." in text
    assert "Pieces: 128 requests in 1" in text


@given(
    st.lists(st.integers(0, 40_000), min_size=1, max_size=60),
    st.integers(1, 150),
    st.sampled_from([0, 3, 5]),
)
def test_every_block_is_drawn_once(lengths: list[int], parts: int, overhead: int) -> None:
    plan = schedule(lengths, parts, overhead=overhead)
    picture = splits(plan)
    drawn = pieces(picture.svg)
    total = sum(end - first for _, _, first, end in drawn)
    requests = {r for _, r, _, _ in drawn}
    for sentence in details(picture.svg):
        if m := TOGETHER.match(sentence):
            total += int(m[4].replace(",", ""))
            requests |= set(range(int(m[2]), int(m[3]) + 1))
    assert total == sum(-(-length // 64) for length in lengths)
    assert requests == set(range(len(lengths)))


@pytest.mark.parametrize("parts", [4, 66, 148])
def test_heights_are_to_scale(parts: int) -> None:
    plan = schedule([300, 700, 64, 2000], parts)
    unit = PLOT_HEIGHT / plan.payload
    svg = splits(plan).svg
    for segment in plan.segments():
        if segment.blocks * unit < 5:
            continue
        key = f"partition {segment.partition}: request {segment.request},"
        body, foot = rectangles(svg, key)[:2]
        assert foot[3] == pytest.approx(5 * unit, abs=0.02)
        # a hair of 0.7 pixels separates neighbours
        assert body[3] == pytest.approx(segment.blocks * unit - 0.7, abs=0.02)
        assert foot[1] + foot[3] <= BASE + 0.02
        assert body[1] >= BASE - PLOT_HEIGHT - 0.02


@pytest.mark.parametrize(("b", "parts"), [(1, 4), (1, 148), (16, 66), (1024, 4), (1024, 148), (1024, 296)])
def test_any_size_stays_readable_and_small(b: int, parts: int) -> None:
    lengths = np.random.default_rng(b).integers(1, 2049, b)
    picture = splits(schedule(lengths, parts))
    assert len(picture.svg) < 600_000
    assert len(picture.text.splitlines()) < 50
    assert len(details(picture.svg)) < 2500
    labels = [t for t in written(picture.svg, dim=True) if t.isdigit()]
    assert len(labels) < 150
    x, width = zip(*((r[0], r[2]) for r in rectangles(picture.svg, "partition ")), strict=True)
    assert max(a + w for a, w in zip(x, width, strict=True)) <= 800
    assert min(width) > 1


def test_prices_change_the_cost_bars_alone() -> None:
    plan = schedule([2048] * 2, 66)
    cheap, dear = splits(plan), splits(plan, model=CostModel(partial=1.0))
    assert cheap.text != dear.text
    assert pieces(cheap.svg) == pieces(dear.svg)
    cost = plan.cost(CostModel(partial=1.0))
    assert f"combine {cost.combine:g} = {cost.total:g}" in dear.text


def test_twin_has_the_numbers_of_the_drawing_for_many_shapes() -> None:
    rng = np.random.default_rng(5)
    for b, sms, h_q in ((1, 132, 128), (3, 78, 64), (20, 148, 128), (31, 132, 128)):
        plan = schedule(rng.integers(1, 3000, b), num_sm_parts(sms, h_q=h_q))
        picture = splits(plan)
        inside = [t for t in written(picture.svg) if not re.fullmatch(r"r\d+(: .*)?", t)]
        assert numbers(" ".join(inside)) <= numbers(picture.text)


def test_zero_length_of_dense_decode_is_a_piece_without_blocks() -> None:
    picture = splits(schedule([0, 4096, 64], 66))
    assert "payload 7 blocks" in picture.text
    assert "r0: 1, r1: 32, r2: 1" in picture.text


def test_sms_without_the_size_of_a_partition_is_refused() -> None:
    with pytest.raises(ValueError, match="sms needs ctas_per_partition"):
        splits(schedule([128], 4), sms=132)


def test_title_can_be_chosen() -> None:
    assert splits(schedule([128], 4), title="One request").title == "One request"
