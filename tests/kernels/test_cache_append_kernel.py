"""The compiled append, on the emulator, stores the bytes that `mlacademy.cache.append` stores, and no others."""

from __future__ import annotations

import struct
from functools import cache as remember
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlacademy import cache, gpu

SOURCE = Path(__file__).parents[2] / "kernels" / "cuda" / "decode" / "cache_append.cu"
LAYOUTS = [cache.V32, cache.MODEL1]
EVERY_BF16 = torch.arange(65536, dtype=torch.int32).to(torch.uint16).view(torch.bfloat16)
FINITE_BF16 = EVERY_BF16[EVERY_BF16.isfinite()]

each_layout = pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)


@remember
def kernel(layout: cache.CacheLayout) -> gpu.Kernel:
    return gpu.compile(SOURCE)[f"cache_append_{layout.name.lower().replace('.', '')}"]


def append(
    kv: torch.Tensor, slots: torch.Tensor, nope: torch.Tensor, rope: torch.Tensor, layout: cache.CacheLayout
) -> list[int]:
    """Run the kernel; the two counts of its problems."""
    device, problems = gpu.Device("emulator", arch="sm_90a"), np.zeros(2, np.uint32)
    tensors = {"kv": kv, "nope": nope, "rope": rope, "slots": slots, "problems": problems}
    addresses = [device.address(tensor, name) for name, tensor in tensors.items()]
    strides = (kv.stride(0), 2 * nope.stride(0), 2 * rope.stride(0), slots.stride(0) * slots.itemsize)
    page, n = kv.shape[1], len(slots)
    params = struct.pack("<5Q4q4i", *addresses, *strides, page, kv.shape[0] * page, n, slots.itemsize)
    device.launch(kernel(layout), gpu.LaunchPlan(grid=-(-n // 8), block=256), [params])
    return problems.tolist()


def odd_cache(layout: cache.CacheLayout, pages: int, page: int, gap: int, seed: int) -> torch.Tensor:
    """A cache of random bytes whose pages are ``gap`` bytes further apart than they need."""
    stride, per_token = layout.block_stride(page) + gap, layout.bytes_per_token
    generator = torch.Generator().manual_seed(seed)
    storage = torch.randint(0, 256, (pages * stride,), dtype=torch.uint8, generator=generator)
    return storage.as_strided((pages, page, 1, per_token), (stride, per_token, per_token, 1))


def rows(n: int, layout: cache.CacheLayout, seed: int, spread: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Normal values, tile after tile of another magnitude, from 2^-spread to 2^spread."""
    generator = torch.Generator().manual_seed(seed)
    exponents = (torch.rand(n, layout.num_tiles, 1, generator=generator) * 2 - 1) * spread
    nope = (torch.randn(n, layout.num_tiles, layout.tile, generator=generator) * exponents.exp2()).flatten(1)
    return nope.to(torch.bfloat16), torch.randn(n, layout.d_rope, generator=generator).to(torch.bfloat16)


def whole(kv: torch.Tensor) -> torch.Tensor:
    """Every byte of a cache's storage, between pages and in the padding too."""
    return kv.as_strided((kv.untyped_storage().nbytes(),), (1,), storage_offset=0)


def check(
    kv: torch.Tensor, slots: torch.Tensor, nope: torch.Tensor, rope: torch.Tensor, layout: cache.CacheLayout
) -> list[int]:
    """The kernel and the reference, which gets only the tokens that have a slot, leave the same bytes."""
    wanted = whole(kv).clone().as_strided(kv.shape, kv.stride())
    there = (slots >= 0) & (slots < kv.shape[0] * kv.shape[1])
    cache.append(wanted, slots[there], nope[there], rope[there], layout)
    problems = append(kv, slots, nope, rope, layout)
    assert torch.equal(whole(kv), whole(wanted))
    return problems


@each_layout
@settings(max_examples=25)
@given(
    n=st.integers(1, 21),
    page=st.sampled_from([1, 3, 53, 64]),
    gap=st.sampled_from([0, 16, 592]),
    spread=st.sampled_from([1.0, 12.0, 60.0, 126.0]),
    wide=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_bytes_are_those_of_the_reference(
    layout: cache.CacheLayout, n: int, page: int, gap: int, spread: float, wide: bool, seed: int
) -> None:
    kv = odd_cache(layout, pages=40 // page + 2, page=page, gap=gap, seed=seed)
    capacity, generator = kv.shape[0] * page, torch.Generator().manual_seed(seed)
    slots = torch.randperm(capacity, generator=generator)[:n]
    slots[torch.rand(n, generator=generator) < 0.2] = -1
    slots = slots if wide else slots.int()
    assert check(kv, slots, *rows(n, layout, seed, spread), layout) == [0, 0]


@each_layout
def test_every_finite_bfloat16_in_tiles_of_every_scale(layout: cache.CacheLayout) -> None:
    """Shuffled, so that tiles span all magnitudes, and sorted, so that a tile has neighbours alone: subnormals too."""
    n = len(FINITE_BF16) // layout.d_nope
    values = FINITE_BF16[: n * layout.d_nope]
    shuffled = values[torch.randperm(len(values), generator=torch.Generator().manual_seed(3))]
    nope = torch.cat([shuffled.view(n, -1), values[values.float().abs().argsort()].view(n, -1)])
    rope = FINITE_BF16[: 2 * n * layout.d_rope].view(2 * n, -1)
    kv = odd_cache(layout, pages=2 * n, page=1, gap=0, seed=4)
    assert check(kv, torch.arange(2 * n), nope, rope, layout) == [0, 0]


@each_layout
@pytest.mark.parametrize(
    "largest", [448.0, 450.0, 464.0, 0.0, 2.0**-133, 448 * 2.0**-13, 450 * 2.0**-13, 2.0**127 * 1.9921875]
)
def test_scales_change_where_the_rule_says(layout: cache.CacheLayout, largest: float) -> None:
    """Tiles whose largest magnitude is 448 times a power of two, or one step of bfloat16 above, or nothing at all."""
    nope, rope = rows(3, layout, seed=5, spread=0.0)
    nope = (nope.float().clamp(-1, 1) * (largest / 2)).to(torch.bfloat16)
    nope[:, :: layout.tile] = largest
    nope[1] = -nope[1]
    check(odd_cache(layout, pages=1, page=4, gap=0, seed=6), torch.tensor([3, 0, 2]), nope, rope, layout)


@each_layout
def test_rows_may_be_slices_of_wider_rows(layout: cache.CacheLayout) -> None:
    """Latents and RoPE parts in one tensor, every second row of it, and every third slot of a wider list."""
    n, width = 11, layout.d_nope + layout.d_rope + 24
    both = torch.randn(2 * n, width, generator=torch.Generator().manual_seed(7)).to(torch.bfloat16)[::2]
    slots = torch.randperm(3 * n, generator=torch.Generator().manual_seed(8))[::3]
    nope, rope = both[:, : layout.d_nope], both[:, layout.d_nope : layout.d_qk]
    for some in (slots, slots.int()):
        assert check(odd_cache(layout, 3, n, 0, seed=9), some, nope, rope, layout) == [0, 0]


@each_layout
def test_slots_beyond_the_cache_are_counted_and_left_out(layout: cache.CacheLayout) -> None:
    nope, rope = rows(9, layout, seed=10, spread=2.0)
    slots = torch.tensor([4, -1, 15, 2**32 + 3, -2, 2**40, 0, -(2**32) + 1, 2**31])
    assert check(odd_cache(layout, 3, 5, 0, seed=11), slots, nope, rope, layout) == [6, 0]
    slots = torch.tensor([4, -1, 15, 14, -2, 2**31 - 1, 0, -(2**31), 16], dtype=torch.int32)
    assert check(odd_cache(layout, 3, 5, 0, seed=12), slots, nope, rope, layout) == [5, 0]


@each_layout
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_value_that_is_not_finite_shows_in_its_tile_alone(layout: cache.CacheLayout, bad: float) -> None:
    nope, rope = rows(4, layout, seed=13, spread=2.0)
    nope[1, layout.tile + 5], rope[2, 7] = bad, bad
    kv = odd_cache(layout, 1, 4, 0, seed=14)
    assert append(kv, torch.arange(4), nope, rope, layout) == [0, 2]
    read = cache.gather(kv, torch.arange(4), layout)
    clean = cache.new_cache(layout, 1, 4)
    cache.append(clean, torch.arange(4), nope.nan_to_num(0, 0, 0), rope.nan_to_num(0, 0, 0), layout)
    wanted = cache.gather(clean, torch.arange(4), layout)
    wanted[1, layout.tile : 2 * layout.tile] = float("nan")
    wanted[2, layout.d_nope + 7] = bad
    torch.testing.assert_close(read, wanted, rtol=0, atol=0, equal_nan=True)
