"""The byte layouts against bytes built with ``struct``, and the writer and reader in both implementations."""

from __future__ import annotations

import doctest
import math
import struct
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlacademy import _native, cache
from mlacademy.cache import MODEL1, V32, CacheLayout

PAGES = [1, 2, 53, 61, 64, 69, 256, 576]
LAYOUTS = pytest.mark.parametrize("layout", [V32, MODEL1], ids=lambda layout: layout.name)


@pytest.fixture(params=["native", "twin"], autouse=True)
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every test of this file runs on the compiled loops and on their torch twins."""
    monkeypatch.setenv("MLACADEMY_NATIVE", "1" if request.param == "native" else "0")
    assert (_native.core() is None) == (request.param == "twin")
    return str(request.param)


# The oracle: one token at a time, plain Python numbers and struct.


def oracle_power(amax: float) -> int:
    """The scale's exponent by comparing rationals: the smallest k >= -13 with amax <= 448 · 2^k."""
    power = -13
    while Fraction(amax) > 448 * Fraction(2) ** power:
        power += 1
    return power


def oracle_code(x: float) -> int:
    """E4M3 by its definition: the exponent from math.frexp, the mantissa by Python's round, which is half to even."""
    exponent = max(math.frexp(abs(x))[1] - 1, -6) if x else -6
    steps = round(abs(x) / 2.0 ** (exponent - 3))
    return (exponent + 6) * 8 + steps | (0x80 if math.copysign(1, x) < 0 else 0)


def oracle_parts(nope: torch.Tensor, rope: torch.Tensor, layout: CacheLayout) -> tuple[bytes, list[int], bytes]:
    values, codes, powers = nope.tolist(), [], []
    for start in range(0, layout.d_nope, layout.tile):
        tile = values[start : start + layout.tile]
        powers.append(oracle_power(max(abs(v) for v in tile)))
        codes += [oracle_code(v / 2.0 ** powers[-1]) for v in tile]
    # bfloat16 is the upper half of a float32; these test values are bfloat16 already
    return bytes(codes), powers, b"".join(struct.pack("<f", v)[2:] for v in rope.tolist())


def oracle_page(tokens: dict[int, tuple[torch.Tensor, torch.Tensor]], layout: CacheLayout, page: int) -> bytes:
    """The bytes of one page without tail padding; offsets not in ``tokens`` are zero bytes."""
    if layout is V32:
        records = []
        for offset in range(page):
            if offset not in tokens:
                records.append(bytes(656))
                continue
            codes, powers, rope = oracle_parts(*tokens[offset], layout)
            records.append(struct.pack("<512s4f128s", codes, *(2.0**p for p in powers), rope))
        return b"".join(records)
    front, back = [], []
    for offset in range(page):
        if offset not in tokens:
            front.append(bytes(576))
            back.append(bytes(8))
            continue
        codes, powers, rope = oracle_parts(*tokens[offset], layout)
        front.append(struct.pack("<448s128s", codes, rope))
        back.append(struct.pack("<7Bx", *(p + 127 for p in powers)))
    return b"".join(front + back)


def some_tokens(n: int, layout: CacheLayout, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Latents with tiles of very different size, zeros and ties; RoPE values that are exact in bfloat16."""
    generator = torch.Generator().manual_seed(seed)
    nope = torch.randn(n, layout.num_tiles, layout.tile, generator=generator)
    nope *= 2.0 ** torch.randint(-20, 8, (n, layout.num_tiles, 1), generator=generator)
    nope[:, -1, :3] = torch.tensor([0.0, -0.0, 17.0])
    if n > 1:
        nope[1, 0] = 0
    rope = torch.randn(n, layout.d_rope, generator=generator).bfloat16().float()
    return nope.flatten(1), rope


def raw_bytes(pages: torch.Tensor) -> bytes:
    """The storage of a cache, padding included."""
    whole = pages.as_strided((pages.untyped_storage().nbytes(),), (1,), storage_offset=0)
    return whole.numpy().tobytes()


@LAYOUTS
@pytest.mark.parametrize("page", PAGES)
def test_stored_bytes_are_those_of_struct(layout: CacheLayout, page: int) -> None:
    pages, n = cache.new_cache(layout, 3, page), min(3 * page, 7)
    slots = torch.randperm(3 * page, generator=torch.Generator().manual_seed(page))[:n]
    nope, rope = some_tokens(n, layout, seed=page)
    cache.append(pages, slots, nope, rope, layout)
    stride, raw = layout.block_stride(page), raw_bytes(pages)
    assert len(raw) == 3 * stride
    for index in range(3):
        tokens = {int(s) % page: (nope[i], rope[i]) for i, s in enumerate(slots) if int(s) // page == index}
        expected = oracle_page(tokens, layout, page)
        assert raw[index * stride : (index + 1) * stride] == expected + bytes(stride - len(expected))


@LAYOUTS
@pytest.mark.parametrize("page", PAGES)
def test_fields_cover_a_page_without_overlap(layout: CacheLayout, page: int) -> None:
    owners = np.zeros(layout.block_stride(page), dtype=int)
    for offset in range(page):
        fields = layout.fields(page, offset)
        assert list(fields.values()) == sorted(fields.values())
        assert sum(stop - start for start, stop in fields.values()) == layout.bytes_per_token
        for start, stop in fields.values():
            owners[start:stop] += 1
    used = page * layout.bytes_per_token
    assert (owners[:used] == 1).all()
    assert (owners[used:] == 0).all()


def test_the_sizes_are_the_public_ones() -> None:
    assert (V32.bytes_per_token, V32.d_qk, V32.d_v, V32.num_tiles) == (656, 576, 512, 4)
    assert (MODEL1.bytes_per_token, MODEL1.d_qk, MODEL1.d_v, MODEL1.num_tiles) == (584, 512, 512, 7)
    assert [MODEL1.block_stride(page) for page in (64, 256, 2)] == [37_440, 149_760, 1_728]
    assert V32.block_stride(64) == 41_984
    assert V32.fields(64, 47) == {"nope": (30_832, 31_344), "scale": (31_344, 31_360), "rope": (31_360, 31_488)}
    assert MODEL1.fields(64, 1) == {
        "nope": (576, 1024), "rope": (1024, 1152), "scale": (36_872, 36_879), "pad": (36_879, 36_880),
    }  # fmt: skip
    assert cache.layout("V32") is cache.layout("V3.2") is V32
    assert cache.layout("MODEL1") is MODEL1


@LAYOUTS
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32 - 1), st.integers(1, 70), st.integers(1, 4), st.sampled_from(["float32", "bfloat16"]))
def test_what_was_appended_is_gathered(layout: CacheLayout, seed: int, page: int, num_pages: int, dtype: str) -> None:
    pages, n = cache.new_cache(layout, num_pages, page), min(num_pages * page, 9)
    slots = torch.randperm(num_pages * page, generator=torch.Generator().manual_seed(seed))[:n]
    nope, rope = (x.to(getattr(torch, dtype)) for x in some_tokens(n, layout, seed))
    cache.append(pages, slots, nope, rope, layout)
    got = cache.gather(pages, slots, layout)
    assert got.dtype == torch.float32
    tiles = nope.float().unflatten(-1, (-1, layout.tile))
    scale = 2.0 ** torch.ceil(torch.log2((tiles.double().abs().amax(-1, keepdim=True) / 448).clamp(min=1e-4)))
    # Half a step: 2^-4 of a normal value, 2^-10 scales where the code is subnormal.
    bound = torch.maximum(tiles.abs() / 16, scale / 1024).flatten(-2)
    assert ((got[:, : layout.d_nope] - nope.float()).abs() <= bound).all()
    assert torch.equal(got[:, layout.d_nope :], rope.float())
    # What is read can be written again without a change: quantising is idempotent.
    again = cache.new_cache(layout, num_pages, page)
    cache.append(again, slots, got[:, : layout.d_nope], got[:, layout.d_nope :], layout)
    assert torch.equal(cache.gather(again, slots, layout), got)


@LAYOUTS
def test_both_implementations_store_and_read_the_same_bits(
    layout: CacheLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = []
    for switch in ("0", "1"):
        monkeypatch.setenv("MLACADEMY_NATIVE", switch)
        for dtype in (torch.float32, torch.bfloat16):
            pages, slots = cache.new_cache(layout, 5, 61), torch.arange(300, 0, -2)
            nope, rope = some_tokens(150, layout, seed=11)
            cache.append(pages, slots, nope.to(dtype), rope.to(dtype) + 1 / 3, layout)
            order = torch.randint(-1, 300, (4, 50), generator=torch.Generator().manual_seed(5))
            results.append((raw_bytes(pages), cache.gather(pages, order, layout)))
    for twin, native in zip(results[:2], results[2:], strict=True):
        assert twin[0] == native[0]
        assert torch.equal(twin[1], native[1])


@LAYOUTS
def test_holes_read_as_zeros_even_where_everything_else_is_nan(layout: CacheLayout) -> None:
    pages = cache.new_cache(layout, 3, 64)
    pages.untyped_storage().fill_(0xFF)  # every code, scale and RoPE value is NaN
    slots = torch.tensor([5, 100])
    cache.append(pages, slots, *some_tokens(2, layout, seed=1), layout)
    got = cache.gather(pages, torch.tensor([[-1, 5, -1], [100, -1, -1]], dtype=torch.int32), layout)
    assert got.shape == (2, 3, layout.d_qk)
    assert got.isfinite().all()
    assert (got[[0, 0, 1, 1], [0, 2, 1, 2]] == 0).all()
    assert torch.equal(got[[0, 1], [1, 0]], cache.gather(pages, slots, layout))
    assert cache.gather(pages, torch.tensor([6]), layout).isnan().all()  # an unused slot is not a hole


@LAYOUTS
def test_append_writes_the_bytes_of_its_tokens_and_no_others(layout: CacheLayout) -> None:
    pages = cache.new_cache(layout, 2, 53)
    pages.untyped_storage().fill_(0xA5)
    cache.append(pages, torch.tensor([60]), *some_tokens(1, layout, seed=2), layout)
    raw = np.frombuffer(raw_bytes(pages), dtype=np.uint8)
    touched = np.zeros(len(raw), dtype=bool)
    for start, stop in layout.fields(53, 7).values():
        touched[layout.block_stride(53) + start : layout.block_stride(53) + stop] = True
    assert (raw[~touched] == 0xA5).all()


@LAYOUTS
def test_an_appended_slot_can_be_overwritten_by_a_later_call(layout: CacheLayout) -> None:
    pages, fresh = cache.new_cache(layout, 1, 2), cache.new_cache(layout, 1, 2)
    nope, rope = some_tokens(2, layout, seed=3)
    for token in (0, 1):
        cache.append(pages, torch.tensor([1]), nope[token : token + 1], rope[token : token + 1], layout)
    cache.append(fresh, torch.tensor([1]), nope[1:], rope[1:], layout)
    assert raw_bytes(pages) == raw_bytes(fresh)


@LAYOUTS
def test_a_rejected_append_writes_nothing(layout: CacheLayout) -> None:
    pages = cache.new_cache(layout, 2, 8)
    cache.append(pages, torch.arange(16), *some_tokens(16, layout, seed=4), layout)
    before = raw_bytes(pages)
    nope, rope = some_tokens(3, layout, seed=5)
    bad_nope, bad_rope, huge_rope = nope.clone(), rope.clone(), rope.clone()
    bad_nope[2, 70] = math.nan
    bad_rope[1, 63] = -math.inf
    huge_rope[1, 0] = 3.4e38  # finite in float32, infinite in bfloat16
    slots = torch.tensor([3, 9, 15])
    cases = [
        (slots, bad_nope, rope, rf"nope must be finite: nope\[2, 70\] is nan.* its whole tile of {layout.tile}"),
        (slots, bad_nope.bfloat16(), rope.bfloat16(), r"nope must be finite: nope\[2, 70\] is nan"),
        (slots, nope, bad_rope, r"rope must be finite in bfloat16: rope\[1, 63\] is -inf"),
        (slots, nope, huge_rope, r"rope must be finite in bfloat16: rope\[1, 0\] is 3.39"),
        (torch.tensor([3, 16, 15]), nope, rope, r"slots must lie in the cache, 0 to 15: slots\[1\] is 16"),
        (torch.tensor([3, -1, 15]), nope, rope, r"slots must lie in the cache, 0 to 15: slots\[1\] is -1"),
        (torch.tensor([3, 15, 3]), nope, rope, r"slots must be distinct within one call: 3 stands more than once"),
        (slots[:2], nope, rope, r"must agree on the number of tokens: slots has shape \(2,\)"),
        (slots[None], nope, rope, r"must agree on the number of tokens: slots has shape \(1, 3\)"),
        (slots, nope, rope[:2], r"must agree on the number of tokens"),
        (slots, nope[:, 1:], rope, rf"nope must have the shape \[n, {layout.d_nope}\]"),
        (slots, nope, rope[0], r"rope must have the shape \[n, 64\]: it has \[64\]"),
    ]
    for these, n, r, sentence in cases:
        with pytest.raises(ValueError, match=sentence):
            cache.append(pages, these, n, r, layout)
    for these, n, r, sentence in [
        (slots.float(), nope, rope, "slots must be int32 or int64: their dtype is torch.float32"),
        (slots, nope.int(), rope, "nope must be floating point: its dtype is torch.int32"),
        (slots, nope, rope.int(), "rope must be floating point"),
        (slots.tolist(), nope, rope, "slots must be an int32 or int64 tensor: they are list"),
        (slots, nope.numpy(), rope, "nope must be a floating-point tensor: it is ndarray"),
        (slots, nope, None, "rope must be a floating-point tensor: it is NoneType"),
    ]:
        with pytest.raises(TypeError, match=sentence):
            cache.append(pages, these, n, r, layout)
    assert raw_bytes(pages) == before


@LAYOUTS
def test_gather_refuses_slots_that_are_neither_hole_nor_token(layout: CacheLayout) -> None:
    pages = cache.new_cache(layout, 2, 8)
    for bad in (16, -2, 2**31 - 1, -(2**31)):
        with pytest.raises(
            ValueError, match=rf"slots must be -1 \(a hole\) or lie in the cache, 0 to 15: slots\[1, 0\] is {bad}"
        ):
            cache.gather(pages, torch.tensor([[0, -1], [bad, 3]]), layout)
    with pytest.raises(TypeError, match=r"slots must be int32 or int64: their dtype is torch\.int16"):
        cache.gather(pages, torch.zeros(2, dtype=torch.int16), layout)
    assert cache.gather(pages, torch.zeros(0, 4, dtype=torch.int64), layout).shape == (0, 4, layout.d_qk)
    assert cache.gather(pages, torch.tensor(3), layout).shape == (layout.d_qk,)


@LAYOUTS
def test_gather_fills_the_tensor_it_is_given(layout: CacheLayout) -> None:
    pages, slots = cache.new_cache(layout, 2, 8), torch.tensor([[1, -1]], dtype=torch.int32)
    cache.append(pages, torch.tensor([1]), *some_tokens(1, layout, seed=6), layout)
    out = torch.full((1, 2, layout.d_qk), math.nan)
    assert cache.gather(pages, slots, layout, out=out) is out
    assert torch.equal(out, cache.gather(pages, slots, layout))
    for wrong in (out.double(), out[0], out.transpose(0, 1)):
        with pytest.raises(ValueError, match="out must be contiguous float32 of the shape"):
            cache.gather(pages, slots, layout, out=wrong)


def test_a_cache_of_another_shape_dtype_or_stride_is_refused() -> None:
    pages, slots = cache.new_cache(V32, 2, 8), torch.tensor([0])
    with pytest.raises(ValueError, match=r"shape \[num_pages, page, 1, 584\] of MODEL1: it has \[2, 8, 1, 656\]"):
        cache.gather(pages, slots, MODEL1)
    with pytest.raises(ValueError, match="cache must have the shape"):
        cache.gather(pages[:, :, 0], slots, V32)
    with pytest.raises(TypeError, match="cache must be uint8"):
        cache.gather(pages.float(), slots, V32)
    with pytest.raises(ValueError, match=r"without gaps, stride\(1\) = 656 and stride\(3\) = 1"):
        cache.gather(pages[:, ::2], slots, V32)
    for dtype in (torch.int8, torch.float8_e4m3fn):
        assert torch.equal(cache.gather(pages.view(dtype), slots, V32), torch.zeros(1, 576))


@LAYOUTS
def test_pages_may_lie_further_apart_than_they_are_long(layout: CacheLayout) -> None:
    roomy = cache.new_cache(layout, 6, 8)[::2]  # every second page of a larger pool
    tight = cache.new_cache(layout, 3, 8)
    for pages in (roomy, tight):
        cache.append(pages, torch.tensor([0, 9, 23]), *some_tokens(3, layout, seed=7), layout)
    everything = torch.arange(24)
    assert torch.equal(cache.gather(roomy, everything, layout), cache.gather(tight, everything, layout))


@given(st.integers(0, 2**40), st.integers(1, 1000))
def test_a_slot_names_one_place(slot: int, page: int) -> None:
    page_index, offset = cache.locate(slot, page)
    assert 0 <= offset < page
    assert cache.slot_of(page_index, offset, page) == slot


def test_slots_of_tensors_and_their_errors() -> None:
    slots = torch.tensor([[0, 63], [64, 2091]])
    page_index, offset = cache.locate(slots, 64)
    assert page_index.tolist() == [[0, 0], [1, 32]]
    assert offset.tolist() == [[0, 63], [0, 43]]
    assert torch.equal(cache.slot_of(page_index, offset, 64), slots)
    for call, sentence in [
        (lambda: cache.locate(-1, 64), r"slot must not be negative, a hole \(-1\) lies in no page"),
        (lambda: cache.locate(0, 0), "page must be at least 1: it is 0"),
        (lambda: cache.slot_of(-1, 0, 64), "page_index must not be negative"),
        (lambda: cache.slot_of(0, 64, 64), "offset must be 0 to 63 in a page of 64: it is 64"),
        (lambda: cache.slot_of(0, -1, 64), "offset must be 0 to 63"),
        (lambda: V32.fields(64, 64), "offset must be 0 to 63 in a page of 64"),
        (lambda: cache.new_cache(V32, 0, 64), "num_pages must be at least 1"),
        (lambda: MODEL1.block_stride(0), "page must be at least 1"),
        (lambda: cache.slot_of(torch.tensor([2**25], dtype=torch.int32), 63, 64), r"slots that fit in torch\.int32"),
        (lambda: cache.slot_of(2**25, torch.tensor([63], dtype=torch.int32), 64), r"slots that fit in torch\.int32"),
        (lambda: cache.slot_of(torch.tensor([2**57]), 0, 64), r"slots that fit in torch\.int64"),
        (lambda: cache.layout("V4"), "layout must be one of V32, V3.2, MODEL1: it is 'V4'"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            call()


def test_the_largest_slot_of_each_dtype_is_exact() -> None:
    for dtype in (torch.int32, torch.int64):
        largest = torch.iinfo(dtype).max
        page_index, offset = cache.locate(torch.tensor([largest], dtype=dtype), 64)
        assert cache.slot_of(page_index, offset, 64).tolist() == [largest]
    assert cache.slot_of(2**70, 1, 64) == 2**76 + 1


def test_what_is_no_whole_number_tensor_or_layout_is_named() -> None:
    pages, one = cache.new_cache(V32, 1, 64), torch.tensor([1])
    for call, sentence in [
        (lambda: cache.slot_of(1.0, 0, 64), "page_index must be a whole number or an integer tensor: it is 1.0"),
        (lambda: cache.slot_of(True, 0, 64), "page_index must be a whole number or an integer tensor: it is True"),
        (
            lambda: cache.slot_of(one.to(torch.uint8), 0, 64),
            "page_index must be int32 or int64: its dtype is torch.uint8",
        ),
        (lambda: cache.slot_of(0, one.float(), 64), "offset must be int32 or int64"),
        (lambda: cache.locate(math.nan, 64), "slot must be a whole number or an integer tensor: it is nan"),
        (lambda: cache.locate(0, 64.0), "page must be a whole number"),
        (lambda: cache.new_cache(V32, "2", 64), "num_pages must be a whole number"),
        (lambda: cache.new_cache("V32", 2, 64), "layout must be a CacheLayout such as V32 or MODEL1: it is 'V32'"),
        (lambda: cache.gather(pages, one, "V32"), "layout must be a CacheLayout"),
        (lambda: cache.gather(pages.numpy(), one, V32), "cache must be a torch tensor: it is ndarray"),
        (lambda: cache.gather(pages, [1], V32), "slots must be an int32 or int64 tensor: they are list"),
    ]:
        with pytest.raises(TypeError, match=sentence):
            call()


def test_a_scale_that_is_no_power_of_two_is_read_as_it_stands() -> None:
    pages = cache.new_cache(V32, 1, 1)
    pages[0, 0, 0, :2] = torch.tensor([0x38, 0x40], dtype=torch.uint8)
    pages[0, 0, 0, 512:516] = torch.tensor([0.75 / 448]).view(torch.uint8)
    got = cache.gather(pages, torch.tensor([0]), V32)[0]
    assert got[:2].tolist() == [np.float32(0.75 / 448), 2 * np.float32(0.75 / 448)]


def test_examples_in_the_documentation_hold() -> None:
    assert doctest.testmod(cache).failed == 0
