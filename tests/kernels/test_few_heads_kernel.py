"""The compiled sparse-decode kernels for up to 32 heads, on the emulator, against the float64 oracle."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from decode_case import SCALE, Lists, check, decode, queries, random_lists

from mlacademy import cache

BOTH_LAYOUTS = pytest.mark.parametrize("layout", [cache.V32, cache.MODEL1], ids=lambda layout: layout.name)
BOTH_WIDTHS = pytest.mark.parametrize("heads", [16, 32])


@BOTH_LAYOUTS
@pytest.mark.parametrize("heads", [1, 8, 16, 24, 32])
def test_heads_up_to_the_width_match_the_oracle(layout: cache.CacheLayout, heads: int) -> None:
    main = random_lists(layout, b=2, s_q=1, topk=128, page=53, pages=5, seed=heads)
    check(queries(2, 1, heads, layout, seed=1), main, layout, few_heads=True)


@BOTH_LAYOUTS
@BOTH_WIDTHS
@pytest.mark.parametrize("order", ["lazy", "seeded"])
def test_right_in_whatever_order_copies_and_multiplies_complete(
    layout: cache.CacheLayout, heads: int, order: str
) -> None:
    main = random_lists(layout, b=2, s_q=1, topk=192, page=64, pages=4, seed=7)
    q = queries(2, 1, heads, layout, seed=2)
    check(q, main, layout, few_heads=True, sms=1, order=order, seed=11)


@BOTH_WIDTHS
@pytest.mark.parametrize("sms", [1, 2, 3, 5])
def test_partitions_take_whole_requests_and_parts_of_others(heads: int, sms: int) -> None:
    """Requests of an odd number of blocks: each gathering warpgroup begins some of them."""
    main = random_lists(cache.V32, b=5, s_q=1, topk=192, page=64, pages=4, seed=4)
    main.lengths = torch.tensor([192, 64, 40, 192, 130], dtype=torch.int32)
    check(queries(5, 1, heads, cache.V32, seed=4), main, cache.V32, few_heads=True, sms=sms)


@BOTH_WIDTHS
@pytest.mark.parametrize("seed", range(3))
def test_many_short_requests_pass_through_the_buffers_of_q(heads: int, seed: int) -> None:
    """Some warpgroup has no block of most requests, and must neither miss nor mistake a phase."""
    main = random_lists(cache.MODEL1, b=11, s_q=1, topk=128, page=64, pages=2, seed=14)
    main.lengths = torch.tensor([64, 64, 128, 64, 64, 64, 128, 128, 64, 64, 64], dtype=torch.int32)
    q = queries(11, 1, heads, cache.MODEL1, seed=14)
    check(q, main, cache.MODEL1, few_heads=True, sms=1, order="seeded", seed=seed)


@BOTH_WIDTHS
def test_two_query_rows_have_lists_of_their_own(heads: int) -> None:
    main = random_lists(cache.V32, b=2, s_q=2, topk=64, page=2, pages=80, seed=3)
    check(queries(2, 2, heads, cache.V32, seed=3), main, cache.V32, few_heads=True)


@BOTH_LAYOUTS
def test_blocks_and_rows_of_holes(layout: cache.CacheLayout) -> None:
    main = random_lists(layout, b=4, s_q=1, topk=128, page=64, pages=4, seed=5)
    main.indices[0, 0, :64] = -1  # a block at the front
    main.indices[1, 0, :] = -1  # nothing at all
    main.indices[2, 0, 64:] = -1
    check(queries(4, 1, 16, layout, seed=5), main, layout, few_heads=True, sms=3)


@BOTH_LAYOUTS
def test_nan_of_one_request_stays_in_it(layout: cache.CacheLayout) -> None:
    main = random_lists(layout, b=2, s_q=1, topk=256, page=64, pages=8, seed=15, holes=0)
    main.indices[0, 0, 128:] = 511  # the slot that no list names: NaN in all its parts
    main.indices[1, 0, :128] = -1
    q = queries(2, 1, 16, layout, seed=15)
    out, lse = decode(q, main, layout, scale=SCALE, few_heads=True, sms=1)
    alone, alone_lse = decode(
        q[1:], Lists(main.kv, main.indices[1:].contiguous()), layout, scale=SCALE, few_heads=True, sms=1
    )
    assert np.isnan(out[0]).all()
    assert not np.isnan(alone).any()
    np.testing.assert_array_equal(out[1:], alone)
    np.testing.assert_array_equal(lse[1:], alone_lse)


@BOTH_LAYOUTS
def test_holes_take_nothing_from_the_slot_that_is_read_instead(layout: cache.CacheLayout) -> None:
    main = random_lists(layout, b=2, s_q=1, topk=128, page=64, pages=4, seed=18, holes=0.5)
    main.indices[main.indices == 0] = 1
    for start, stop in layout.fields(64, 0).values():
        main.kv.view(torch.uint8)[0].view(-1)[start:stop] = 0xFF  # NaN in all its parts
    check(queries(2, 1, 16, layout, seed=18), main, layout, few_heads=True)


@BOTH_LAYOUTS
def test_lengths_end_a_list_whatever_follows(layout: cache.CacheLayout) -> None:
    main = random_lists(layout, b=4, s_q=1, topk=128, page=64, pages=4, seed=6)
    main.lengths = torch.tensor([128, 1, 0, 70], dtype=torch.int32)
    for request, length in enumerate(main.lengths.tolist()):
        main.indices[request, :, length:] = 2**31 - 1
    check(queries(4, 1, 16, layout, seed=6), main, layout, few_heads=True)


@BOTH_WIDTHS
@pytest.mark.parametrize("sms", [1, 132])
def test_a_second_cache_joins_the_same_softmax(heads: int, sms: int) -> None:
    layout = cache.MODEL1
    main = random_lists(layout, b=2, s_q=1, topk=64, page=64, pages=2, seed=8)
    extra = random_lists(layout, b=2, s_q=1, topk=128, page=13, pages=11, seed=9)
    main.lengths = torch.tensor([40, 64], dtype=torch.int32)
    extra.lengths = torch.tensor([128, 3], dtype=torch.int32)
    check(queries(2, 1, heads, layout, seed=8), main, layout, extra=extra, few_heads=True, sms=sms)


@pytest.mark.parametrize("sms", [1, 132])
def test_a_sink_takes_its_share(sms: int) -> None:
    main = random_lists(cache.V32, b=2, s_q=1, topk=128, page=64, pages=4, seed=10)
    sink = torch.linspace(-3, 6, 16)
    sink[5], sink[6] = float("inf"), float("-inf")
    check(queries(2, 1, 16, cache.V32, seed=10), main, cache.V32, sink=sink, few_heads=True, sms=sms)


def test_growing_scores_rescale_what_was_added_before() -> None:
    """Each block's keys are larger than the last one's, so that the maximum moves in every block."""
    layout = cache.V32
    main = random_lists(layout, b=1, s_q=1, topk=320, page=64, pages=5, seed=16, holes=0)
    generator = torch.Generator().manual_seed(16)
    growth = torch.arange(1, 6).repeat_interleave(64)[:, None]
    direction = torch.randn(1, layout.d_qk, generator=generator)
    latents = direction * growth * 0.2 + torch.randn(320, layout.d_qk, generator=generator) * 0.1
    cache.append(main.kv, torch.arange(320), latents[:, :512], latents[:, 512:], layout)
    main.indices[0, 0] = torch.arange(320, dtype=torch.int32)
    q = (direction[None, None] * torch.linspace(-1, 1, 16)[:, None]).to(torch.bfloat16)
    check(q, main, layout, few_heads=True, sms=1)


@BOTH_LAYOUTS
@pytest.mark.parametrize("size", [1e-3, 1e7])
def test_small_and_large_values_keep_their_digits(layout: cache.CacheLayout, size: float) -> None:
    """Keys and values are 2^-60 times too small inside."""
    main = random_lists(layout, b=1, s_q=1, topk=128, page=64, pages=2, seed=17, holes=0)
    generator = torch.Generator().manual_seed(17)
    latents = torch.randn(128, layout.d_nope + layout.d_rope, generator=generator) * size
    cache.append(main.kv, torch.arange(128), latents[:, : layout.d_nope], latents[:, layout.d_nope :], layout)
    q = (queries(1, 1, 16, layout, seed=17).float() / size).to(torch.bfloat16)
    check(q, main, layout, few_heads=True)


def test_queries_need_not_be_contiguous() -> None:
    main = random_lists(cache.V32, b=2, s_q=1, topk=64, page=64, pages=2, seed=12)
    wide = queries(2, 1, 24, cache.V32, seed=12).repeat_interleave(2, dim=0).repeat_interleave(3, dim=2)
    check(wide[::2, :, ::3], main, cache.V32, few_heads=True)


def test_indices_out_of_range_are_holes() -> None:
    main = random_lists(cache.V32, b=1, s_q=1, topk=64, page=64, pages=2, seed=13)
    holes = main.indices.clone()
    main.indices[0, 0, 3], main.indices[0, 0, 9], main.indices[0, 0, 20] = 128, 2**31 - 1, -2
    holes[0, 0, [3, 9, 20]] = -1
    q = queries(1, 1, 16, cache.V32, seed=13)
    one, one_lse = decode(q, main, cache.V32, scale=SCALE, few_heads=True)
    two, two_lse = decode(q, Lists(main.kv, holes), cache.V32, scale=SCALE, few_heads=True)
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(one_lse, two_lse)
