"""The compiled sparse-decode kernels, on the emulator, against the float64 oracle."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from decode_case import SCALE, Lists, check, decode, queries, random_lists

from mlacademy import cache


@pytest.mark.parametrize("layout", [cache.V32, cache.MODEL1], ids=lambda layout: layout.name)
@pytest.mark.parametrize("heads", [16, 64, 128])
def test_decode_matches_the_oracle(layout: cache.CacheLayout, heads: int) -> None:
    main = random_lists(layout, b=2, s_q=1, topk=128, page=53, pages=5, seed=heads)
    check(queries(2, 1, heads, layout, seed=1), main, layout)


@pytest.mark.parametrize("order", ["lazy", "seeded"])
@pytest.mark.parametrize("heads", [64, 128])
def test_decode_is_right_in_whatever_order_copies_complete(order: str, heads: int) -> None:
    main = random_lists(cache.V32, b=1, s_q=1, topk=192, page=64, pages=4, seed=7)
    check(queries(1, 1, heads, cache.V32, seed=2), main, cache.V32, order=order, seed=11)


@pytest.mark.parametrize("layout", [cache.V32, cache.MODEL1], ids=lambda layout: layout.name)
@pytest.mark.parametrize("sms", [1, 132])
@pytest.mark.parametrize("size", [2.0**-10, 2.0**20, 2.0**60])
def test_latents_may_have_any_size(layout: cache.CacheLayout, sms: int, size: float) -> None:
    main = random_lists(layout, b=1, s_q=1, topk=128, page=64, pages=2, seed=14, size=size)
    check((queries(1, 1, 64, layout, seed=14) / size).to(torch.bfloat16), main, layout, sms=sms)


def test_two_query_rows_have_lists_of_their_own() -> None:
    main = random_lists(cache.V32, b=2, s_q=2, topk=64, page=2, pages=80, seed=3)
    check(queries(2, 2, 64, cache.V32, seed=3), main, cache.V32)


def test_few_partitions_take_whole_requests_and_parts_of_others() -> None:
    main = random_lists(cache.V32, b=3, s_q=1, topk=192, page=64, pages=4, seed=4)
    check(queries(3, 1, 64, cache.V32, seed=4), main, cache.V32, sms=2)


def test_blocks_and_rows_of_holes() -> None:
    main = random_lists(cache.V32, b=3, s_q=1, topk=128, page=64, pages=4, seed=5)
    main.indices[0, 0, :64] = -1  # a block at the front
    main.indices[1, 0, :] = -1  # nothing at all
    main.indices[2, 0, 64:] = -1
    check(queries(3, 1, 64, cache.V32, seed=5), main, cache.V32, sms=3)


@pytest.mark.parametrize("layout", [cache.V32, cache.MODEL1], ids=lambda layout: layout.name)
def test_lengths_end_a_list_whatever_follows(layout: cache.CacheLayout) -> None:
    main = random_lists(layout, b=4, s_q=1, topk=128, page=64, pages=4, seed=6)
    main.lengths = torch.tensor([128, 1, 0, 70], dtype=torch.int32)
    for request, length in enumerate(main.lengths.tolist()):
        main.indices[request, :, length:] = 2**31 - 1
    check(queries(4, 1, 64, layout, seed=6), main, layout)


def test_a_second_cache_joins_the_same_softmax() -> None:
    layout = cache.MODEL1
    main = random_lists(layout, b=2, s_q=1, topk=64, page=64, pages=2, seed=8)
    extra = random_lists(layout, b=2, s_q=1, topk=128, page=13, pages=11, seed=9)
    main.lengths = torch.tensor([40, 64], dtype=torch.int32)
    extra.lengths = torch.tensor([128, 3], dtype=torch.int32)
    check(queries(2, 1, 128, layout, seed=8), main, layout, extra=extra)


@pytest.mark.parametrize("sms", [1, 132])
def test_a_sink_takes_its_share(sms: int) -> None:
    main = random_lists(cache.V32, b=2, s_q=1, topk=128, page=64, pages=4, seed=10)
    sink = torch.linspace(-3, 6, 64)
    sink[5], sink[6] = float("inf"), float("-inf")
    check(queries(2, 1, 64, cache.V32, seed=10), main, cache.V32, sink=sink, sms=sms)


def test_queries_need_not_be_contiguous() -> None:
    main = random_lists(cache.V32, b=2, s_q=1, topk=64, page=64, pages=2, seed=12)
    wide = queries(2, 1, 64, cache.V32, seed=12).repeat_interleave(2, dim=0).repeat_interleave(3, dim=2)
    check(wide[::2, :, ::3], main, cache.V32)


def test_indices_out_of_range_are_holes() -> None:
    main = random_lists(cache.V32, b=1, s_q=1, topk=64, page=64, pages=2, seed=13)
    holes = main.indices.clone()
    main.indices[0, 0, 3], main.indices[0, 0, 9], main.indices[0, 0, 20] = 128, 2**31 - 1, -2
    holes[0, 0, [3, 9, 20]] = -1
    q = queries(1, 1, 64, cache.V32, seed=13)
    one, one_lse = decode(q, main, cache.V32, scale=SCALE)
    two, two_lse = decode(q, Lists(main.kv, holes), cache.V32, scale=SCALE)
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(one_lse, two_lse)
