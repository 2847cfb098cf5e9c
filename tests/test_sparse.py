"""Index lists against plain Python: whole numbers for scores, `sorted` for the selection, division for slots."""

from __future__ import annotations

import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlacademy.cache import locate
from mlacademy.sparse import check_slots, indexer_logits, mask_of, pad_indices, to_slots, topk_positions

INF = float("inf")


def integers(seed: int, *shape: int, high: int = 4) -> torch.Tensor:
    """Whole numbers in float32: products and sums of a few hundred of them are exact."""
    return torch.randint(-high, high + 1, shape, generator=torch.Generator().manual_seed(seed)).float()


# ---------------------------------------------------------------- indexer_logits


@pytest.mark.parametrize(("s", "heads", "n", "d"), [(1, 1, 1, 1), (2, 3, 7, 5), (3, 64, 11, 16)])
def test_logits_are_the_weighted_sum_of_clipped_products(s: int, heads: int, n: int, d: int) -> None:
    q, k, w = integers(1, s, heads, d), integers(2, n, d), integers(3, s, heads)
    scales = 2.0 ** integers(4, n)
    got = indexer_logits(q, k, w, k_scales=scales)
    for i in range(s):
        for j in range(n):
            exact = sum(
                int(w[i, h]) * max(sum(int(q[i, h, x]) * int(k[j, x]) for x in range(d)), 0) * float(scales[j])
                for h in range(heads)
            )
            assert got[i, j].item() == exact  # whole numbers times powers of two: no rounding anywhere


def test_logits_do_not_depend_on_how_many_keys_are_scored_at_a_time() -> None:
    q, k, w = integers(5, 1, 4, 8), integers(6, 9000, 8), integers(7, 1, 4)
    assert torch.equal(indexer_logits(q, k, w)[:, 8990:], indexer_logits(q, k[8990:], w))


def test_logits_outside_the_bounds_are_minus_infinity() -> None:
    q, k, w = integers(8, 3, 2, 4), integers(9, 5, 4), integers(10, 3, 2)
    got = indexer_logits(q, k, w, starts=torch.tensor([0, 2, 4]), ends=torch.tensor([0, 4, 5]))
    assert (got == -INF).tolist() == [[True] * 5, [True, True, False, False, True], [True] * 4 + [False]]
    free = indexer_logits(q, k, w)
    assert torch.equal(got[got > -INF], free[got > -INF])


def test_logits_need_no_tokens() -> None:
    assert indexer_logits(integers(1, 2, 3, 4), integers(1, 0, 4), integers(1, 2, 3)).shape == (2, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": torch.zeros(5, 3)}, "q and k must agree on d: q has 4, k has 3"),
        ({"weights": torch.zeros(2, 2)}, r"weights must have one number a query and head, \[2, 3\]: got \[2, 2\]"),
        ({"k_scales": torch.zeros(4)}, r"k_scales must have one multiplier a key, \[5\]: got \[4\]"),
        ({"starts": torch.zeros(3, dtype=torch.int32)}, r"starts must have one position a query, \[2\]: got \[3\]"),
        ({"ends": torch.tensor([1, 6])}, "ends must lie in 0 … 5: got 6"),
        ({"q": torch.zeros(3, 4)}, r"q is \[s, heads, d\]"),
    ],
)
def test_logits_refuse_what_does_not_fit(change: dict[str, torch.Tensor], message: str) -> None:
    arguments = {"q": torch.zeros(2, 3, 4), "k": torch.zeros(5, 4), "weights": torch.zeros(2, 3)} | change
    with pytest.raises(ValueError, match=message):
        indexer_logits(**arguments)


def test_logits_refuse_codes_that_were_not_decoded() -> None:
    with pytest.raises(TypeError, match=r"k must be a floating-point tensor: got a tensor of torch\.uint8"):
        indexer_logits(torch.zeros(1, 1, 2), torch.zeros(3, 2, dtype=torch.uint8), torch.zeros(1, 1))


# ---------------------------------------------------------------- topk_positions


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([-INF, -2.0, -0.0, 0.0, 1.5, INF]), max_size=20), st.integers(1, 25), st.data())
def test_topk_is_a_stable_sort_cut_short(scores: list[float], k: int, data: st.DataObject) -> None:
    length = data.draw(st.integers(0, len(scores)))
    candidates = [p for p in range(length) if scores[p] > -INF]
    expected = sorted(candidates, key=lambda p: (-scores[p], p))[:k]
    expected += [-1] * (k - len(expected))
    got = topk_positions(torch.tensor(scores, dtype=torch.float32), k, length)
    assert got.tolist() == expected
    assert got.dtype == torch.int32


def test_topk_of_equal_scores_takes_the_earliest_positions() -> None:
    assert topk_positions(torch.zeros(2, 5000), 3).tolist() == [[0, 1, 2], [0, 1, 2]]


def test_topk_takes_one_length_a_request_for_all_its_query_rows() -> None:
    scores = torch.arange(12.0).view(2, 2, 3)
    assert topk_positions(scores, 2, torch.tensor([1, 3])).tolist() == [[[0, -1], [0, -1]], [[2, 1], [2, 1]]]


def test_topk_ignores_nan_past_the_length() -> None:
    assert topk_positions(torch.tensor([1.0, float("nan")]), 2, 1).tolist() == [0, -1]


@pytest.mark.parametrize(
    ("k", "lengths", "message"),
    [
        (0, None, "k must be a whole number ≥ 1: got 0"),
        (True, None, "k must be a whole number ≥ 1: got True"),
        (1, 3, "lengths must lie in 0 … 2: got 3"),
        (1, torch.tensor([-1]), "lengths must lie in 0 … 2: got -1"),
        (1, torch.tensor([1, 1]), r"lengths must have the leading axes of scores, \[1\]: got \[2\]"),
        (1, 2, r"scores must not be NaN inside the length: first at index \[0, 1\]"),
    ],
)
def test_topk_refuses(k: int, lengths: torch.Tensor | int | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        topk_positions(torch.tensor([[0.0, float("nan")]]), k, lengths)


# ---------------------------------------------------------------- to_slots


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 70), st.integers(1, 3), st.integers(1, 5), st.data())
def test_slots_follow_the_block_table(page: int, b: int, max_pages: int, data: st.DataObject) -> None:
    numbers = data.draw(st.permutations(range(b * max_pages)))
    table = [numbers[r * max_pages : (r + 1) * max_pages] for r in range(b)]
    positions = [data.draw(st.lists(st.integers(-1, max_pages * page - 1), min_size=4, max_size=4)) for _ in range(b)]
    got = to_slots(torch.tensor(positions), torch.tensor(table), page)
    for row, pages, slots in zip(positions, table, got.tolist(), strict=True):
        for position, slot in zip(row, slots, strict=True):
            if position == -1:
                assert slot == -1
            else:
                index, offset = locate(slot, page)
                assert (pages.index(index) * page + offset) == position  # distinct pages: the way back is unique
    assert got.dtype == torch.int32


def test_slot_of_position_47_depends_on_the_first_page() -> None:
    assert to_slots(torch.tensor([47]), torch.tensor([0]), 64).tolist() == [47]
    assert to_slots(torch.tensor([47]), torch.tensor([9]), 64).tolist() == [9 * 64 + 47]


def test_slots_keep_every_leading_axis() -> None:
    positions = torch.tensor([[[0, 5], [6, -1]], [[1, 2], [3, 4]]])
    assert to_slots(positions, torch.tensor([[2, 0], [3, 1]]), 4).tolist() == [[[8, 1], [2, -1]], [[13, 14], [15, 4]]]


def test_slots_ignore_table_entries_that_no_position_needs() -> None:
    assert to_slots(torch.tensor([1, -1]), torch.tensor([5, -1]), 2).tolist() == [11, -1]


@pytest.mark.parametrize(
    ("positions", "table", "page", "message"),
    [
        ([[-2]], [[0]], 64, "positions must be −1 (a hole) or 0 … 63 (1 pages of 64): request 0 asks for -2"),
        ([[0], [64]], [[0], [1]], 64, "request 1 asks for 64. Is it a slot already?"),
        ([[64]], [[0, -1]], 64, "block_table has no page for position 64 of request 0: entry 1 is -1"),
        ([[0]], [[0], [1]], 64, "positions and block_table must agree on b: positions is [1, 1], block_table has 2"),
        ([[0]], [[[0]]], 64, "block_table must be [b, max_pages] or [max_pages]: got [1, 1, 1]"),
        (
            [[1]],
            [[2**30]],
            2,
            "slots must fit in int32, as the kernels read them: page 1073741824 of 2 tokens does not",
        ),
        ([[0]], [[0]], 0, "page must be a whole number of tokens ≥ 1: got 0"),
    ],
)
def test_slots_refuse(positions: list[object], table: list[object], page: int, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        to_slots(torch.tensor(positions), torch.tensor(table), page)


def test_slots_refuse_floating_positions() -> None:
    with pytest.raises(TypeError, match=r"positions must be an int32 or int64 tensor: got a tensor of torch\.float32"):
        to_slots(torch.zeros(1, 1), torch.zeros(1, 1, dtype=torch.int32), 64)


# ---------------------------------------------------------------- pad_indices, mask_of, check_slots


@pytest.mark.parametrize(("n", "padded"), [(0, 0), (1, 64), (63, 64), (64, 64), (65, 128), (2048, 2048)])
def test_padding_appends_holes_up_to_a_multiple_of_64(n: int, padded: int) -> None:
    lists = torch.arange(2 * n, dtype=torch.int32).view(2, n)
    got = pad_indices(lists)
    assert got.shape == (2, padded)
    assert torch.equal(got[:, :n], lists)
    assert (got[:, n:] == -1).all()


def test_only_minus_one_is_a_hole() -> None:
    lists = torch.tensor([[-1, -2, 0, 2**31 - 1]], dtype=torch.int32)
    assert mask_of(lists).tolist() == [[False, True, True, True]]


def test_places_at_or_past_the_length_are_holes_whatever_they_hold() -> None:
    lists = torch.tensor([[[3, 4, 2**31 - 1]], [[-1, 5, 6]]], dtype=torch.int32)
    assert mask_of(lists, torch.tensor([2, 3])).tolist() == [[[True, True, False]], [[False, True, True]]]
    assert not mask_of(lists, torch.tensor([0, 0])).any()


def test_check_returns_the_mask_and_names_the_first_bad_entry() -> None:
    lists = torch.tensor([[3, -1, 8], [0, -5, 1]])
    assert check_slots(lists, 9, torch.tensor([3, 1])).tolist() == [[True, False, True], [True, False, False]]
    with pytest.raises(ValueError, match=r"extra_indices\[0, 2\] is 8. Only −1 marks a hole"):
        check_slots(lists, 8, torch.tensor([3, 1]), name="extra_indices")
    with pytest.raises(ValueError, match=r"slot 0 … 8: indices\[1, 1\] is -5"):
        check_slots(lists, 9)


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        (torch.tensor([4]), "topk_length must lie in 0 … 3: got 4"),
        (torch.tensor([-1]), "topk_length must lie in 0 … 3: got -1"),
        (torch.tensor([1, 1]), r"topk_length must have one length a request, \[b\] for indices \[b, ..., topk\]"),
    ],
)
def test_mask_refuses_lengths_that_do_not_fit(lengths: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mask_of(torch.zeros(1, 3, dtype=torch.int32), lengths)


def test_padding_refuses_a_multiple_below_one() -> None:
    with pytest.raises(ValueError, match="multiple must be a whole number ≥ 1: got 0"):
        pad_indices(torch.zeros(1, dtype=torch.int32), 0)


def test_the_chain_from_scores_to_slots_reads_only_the_request_s_own_pages() -> None:
    generator = torch.Generator().manual_seed(0)
    table = torch.randperm(20, generator=generator).view(2, 10)
    lengths = torch.tensor([37, 40])
    scores = torch.rand(2, 40, generator=generator)
    slots = pad_indices(to_slots(topk_positions(scores, 39, lengths), table, 4))
    assert slots.shape == (2, 64)
    for r in range(2):
        used = slots[r][slots[r] != -1]
        assert len(used) == min(int(lengths[r]), 39)
        assert set((used // 4).tolist()) <= set(table[r].tolist())


@pytest.mark.parametrize("num_slots", [3.0, float("nan"), True, "8", None])
def test_number_of_slots_is_a_whole_number(num_slots):
    with pytest.raises(TypeError, match="num_slots must be a whole number: got"):
        check_slots(torch.tensor([[1]]), num_slots)


def test_lengths_of_a_list_without_axes_are_refused():
    with pytest.raises(ValueError, match=r"topk_length must have one length a request.*for indices \[\]"):
        mask_of(torch.tensor(3), torch.tensor([1]))
