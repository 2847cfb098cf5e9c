"""The compiled merge of float16 tiles, on the emulator, against `mlacademy.softmax.combine` in float64."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from combine_case import UNTOUCHED, check, launched, partials

from mlacademy import gpu
from mlacademy.ops import plan


def tiles(outs: torch.Tensor) -> tuple[np.ndarray, torch.Tensor]:
    """Partial results [slots, s_q, h_q, 512] as the decode kernel leaves them, and what they say, in float64.

    Written down from the layout's description: which of 128 threads has a number, and where it keeps that.
    """
    slots, s_q, h_q, _ = outs.shape
    blocks = plan.head_blocks(h_q)
    padded = np.zeros((slots, s_q, 64 * blocks, 512))
    padded[:, :, :h_q] = outs.double().numpy()
    # Row 16 w + 8 side + g and column 256 half + 32 piece + 8 j + 2 q + i belong to thread 32 w + 4 g + q.
    numbers = padded.reshape(slots, s_q, blocks, 4, 2, 8, 2, 8, 4, 4, 2)
    # In the order slot, query, block, half, side, piece, w, g, q, j, i.
    numbers = numbers.transpose(0, 1, 2, 6, 4, 7, 3, 5, 9, 8, 10)
    largest = np.abs(numbers).max(axis=(5, 9, 10), keepdims=True)
    scale = 2.0 ** (np.floor(np.log2(np.maximum(largest, 2.0**-52))) - 14)
    halves = (numbers / scale).astype(np.float16)
    pieces = np.ascontiguousarray(halves).view(np.uint8).reshape(slots, s_q, blocks, 2, -1)
    scales = scale.astype(np.float32).reshape(slots, s_q, blocks, 2, -1).view(np.uint8)
    stored = np.ascontiguousarray(np.concatenate([pieces, scales], axis=-1))
    assert stored.shape[-1] == plan.PARTIAL_TILE_BYTES
    said = (halves.astype(np.float64) * scale).transpose(0, 1, 2, 6, 4, 7, 3, 5, 9, 8, 10)
    return stored, torch.from_numpy(said.reshape(padded.shape)[:, :, :h_q].copy())


def combined(
    stored: np.ndarray,
    lse_log2: torch.Tensor,
    num_splits: list[int],
    *,
    ctas: int = 1,
    warps: int = 2,
    groups: int = 4,
    **given: Any,
) -> tuple[np.ndarray, np.ndarray]:
    """out [b, s_q, h_q, 512] as bits and lse [b, s_q, h_q]."""
    _, s_q, h_q = lse_log2.shape
    grid = (-(-h_q // 8) * ctas, s_q, len(num_splits) - 1)
    launch = gpu.LaunchPlan(grid=grid, block=(32, warps, groups))
    return launched(plan.compiled("combine_tiles.cu")["combine_tiles"], launch, stored, lse_log2, num_splits, **given)


@pytest.mark.parametrize(("ctas", "warps", "groups"), [(1, 2, 4), (8, 2, 4), (2, 4, 2), (1, 8, 1), (4, 1, 3)])
@pytest.mark.parametrize("heads", [64, 100])
def test_any_number_of_slots(heads: int, ctas: int, warps: int, groups: int) -> None:
    num_splits = np.cumsum([0, 2, 1, 5, 9, 0, 33]).tolist()
    outs, lse = partials(num_splits[-1], 2, heads, seed=groups * 10 + ctas, spread=3.0)
    stored, said = tiles(outs)
    result = combined(stored, lse, num_splits, ctas=ctas, warps=warps, groups=groups)
    check(said, lse, num_splits, result, alone_is_merged=False)


@pytest.mark.parametrize("spread", [0.0, 20.0, 5000.0])
def test_more_slots_than_a_gpu_has_sms(spread: float) -> None:
    outs, lse = partials(300, 1, 33, seed=7, spread=spread)
    stored, said = tiles(outs)
    check(said, lse, [0, 300], combined(stored, lse, [0, 300], ctas=8))


def test_numbers_of_any_size_lose_no_more_than_a_float16_does() -> None:
    outs, lse = partials(5, 1, 64, seed=9, spread=2.0)
    outs *= torch.logspace(-14, 30, 512)  # a thread's 64 columns reach over many orders, their largest decides
    outs[:, :, 3] = 0.0
    stored, said = tiles(outs)
    largest = outs.double().abs().amax(-1, keepdim=True)
    assert ((said - outs).abs() <= 2.0**-11 * outs.double().abs() + 2.0**-39 * largest).all()
    check(said, lse, [0, 5], combined(stored, lse, [0, 5]))


def test_a_sink_joins_the_output_and_not_the_lse() -> None:
    outs, lse = partials(23, 2, 64, seed=3, spread=4.0)
    sink = torch.tensor([0.5, -3.0, 40.0, -torch.inf, torch.inf, 3.0, 0.0, 1.0]).repeat(8)
    num_splits = [0, 4, 6, 23]
    stored, said = tiles(outs)
    check(said, lse, num_splits, combined(stored, lse, num_splits, sink=sink, ctas=2), sink)


@pytest.mark.parametrize("sink", [None, torch.tensor([1.0, torch.inf]).repeat(32)])
def test_rows_of_empty_slots_are_zero_and_their_lse_infinite(sink: torch.Tensor | None) -> None:
    stored, _ = tiles(torch.zeros(12, 1, 64, 512))
    out, natural = combined(stored, torch.full((12, 1, 64), -torch.inf), [0, 3, 12], sink=sink)
    assert not (out & 0x7FFF).any()
    assert (natural == np.inf).all()


def test_nothing_is_written_where_decode_found_changed_lengths() -> None:
    outs, lse = partials(6, 1, 64, seed=6, spread=1.0)
    stored, said = tiles(outs)
    out, natural = combined(stored, lse, [0, 2, 6], verdict=1)
    assert (out == UNTOUCHED).all()
    assert np.isnan(natural).all()
    check(said, lse, [0, 2, 6], combined(stored, lse, [0, 2, 6], verdict=0))


def test_the_same_bits_for_any_number_of_ctas_and_warps() -> None:
    outs, lse = partials(40, 2, 64, seed=8, spread=5.0)
    stored, _ = tiles(outs)
    results = [combined(stored, lse, [0, 7, 40], ctas=ctas, warps=warps)[0] for ctas, warps in ((1, 2), (2, 1), (8, 2))]
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


@pytest.mark.parametrize(
    ("b", "heads", "topk", "parts", "groups", "grid"),
    [
        (1, 128, 2048, 66, 4, 128),
        (4, 128, 2048, 66, 2, 64),
        (2, 128, 128, 66, 1, 32),
        (16, 128, 2048, 66, 1, 16),
        (16, 64, 2048, 132, 1, 16),
        (1, 100, 2048, 66, 4, 104),
        (2000, 64, 64, 132, 1, 8),
    ],
)
def test_groups_and_ctas_follow_the_slots_of_a_request(
    b: int, heads: int, topk: int, parts: int, groups: int, grid: int
) -> None:
    merge = plan.decode_launches("V3.2", b=b, s_q=1, h_q=heads, parts=parts, topk=topk)[-1]
    assert merge.kernel == "combine_tiles"
    assert merge.plan.block == (32, plan.TILES_WARPS // groups, groups)
    assert merge.plan.grid == (grid, 1, b)


@pytest.mark.parametrize("heads", [33, 64, 65, 128])
def test_every_launch_divides_the_columns(heads: int) -> None:
    for b, s_q, slots_each in itertools.product((1, 2, 3, 5, 8, 16, 31, 64, 1024), (1, 2, 7), (2, 4, 9, 13, 32, 66)):
        made = plan.combine_tiles_launch(b=b, s_q=s_q, h_q=heads, slots=b * slots_each).plan
        eights = -(-heads // 8)
        (_, warps, groups), ctas = made.block, made.grid[0] // eights
        assert made.grid == (eights * ctas, s_q, b)
        assert warps * groups == plan.TILES_WARPS
        assert plan.TILE_PIECES % (ctas * warps) == 0
        assert plan.TILE_PIECES // (ctas * warps) <= 8  # a warp's pieces are of one half
