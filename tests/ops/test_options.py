"""Every option of a decode, on the emulator, against the float64 oracle: both layouts, all kernels, several cuts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from decode_inputs import decode_inputs
from hypothesis import given, settings
from hypothesis import strategies as st

from mlacademy import cache, ops

LAYOUTS = [cache.V32, cache.MODEL1]


@st.composite
def calls(draw: st.DrawFn) -> dict[str, Any]:
    """Shapes and options; lengths may be 0, sinks infinite, pages odd."""
    b, seed = draw(st.integers(1, 3)), draw(st.integers(0, 99))
    topk, extra_topk = draw(st.sampled_from([64, 128, 192])), draw(st.sampled_from([64, 128]))
    lengths = st.lists(st.integers(0, topk), min_size=b, max_size=b)
    layout = draw(st.sampled_from(LAYOUTS))
    options: dict[str, Any] = {}
    if draw(st.booleans()):
        options["topk_length"] = torch.tensor(draw(lengths), dtype=torch.int32)
    h_q = draw(st.sampled_from([7, 16, 32, 64, 90, 128]))
    s_q = draw(st.integers(1, 2))
    if draw(st.booleans()):
        page = draw(st.sampled_from([2, 7, 64]))
        other = decode_inputs(layout, b=b, s_q=s_q, topk=extra_topk, page=page, pages=-(-70 // page), seed=seed + 7)
        options |= {"extra_kv_cache": other.kv_cache, "extra_indices": other.indices}
        if draw(st.booleans()):
            extra_lengths = draw(st.lists(st.integers(0, extra_topk), min_size=b, max_size=b))
            options["extra_topk_length"] = torch.tensor(extra_lengths, dtype=torch.int32)
    if draw(st.booleans()):
        sink = torch.linspace(-4, 4, h_q)
        sink[::5], sink[1::5] = torch.inf, -torch.inf
        options["attn_sink"] = sink
    page = draw(st.sampled_from([2, 53, 64]))
    shape = {"b": b, "s_q": s_q, "h_q": h_q, "topk": topk, "page": page, "pages": -(-150 // page), "seed": seed}
    return {"layout": layout, **shape, **options, "sms": draw(st.sampled_from([1, 3, 40]))}


@settings(max_examples=14)
@given(call=calls(), order=st.sampled_from(["eager", "lazy", "seeded"]))
def test_any_options_together(call: dict[str, Any], order: str) -> None:
    sms = call.pop("sms")
    inputs = decode_inputs(call.pop("layout"), **call)
    exact = inputs.decode()
    extra = inputs.options.get("extra_indices")
    with ops.on("emulator", order=order):
        metadata = ops.schedule(
            call["b"],
            call["topk"],
            s_q=call["s_q"],
            h_q=call["h_q"],
            sms=sms,
            topk_length=inputs.options.get("topk_length"),
            extra_topk=None if extra is None else extra.shape[-1],
            extra_topk_length=inputs.options.get("extra_topk_length"),
        )
        inputs.compare(*inputs.decode(metadata=metadata), *exact)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_rows_and_blocks_of_holes(layout: cache.CacheLayout) -> None:
    inputs = decode_inputs(layout, b=3, s_q=2, topk=192, attn_sink=torch.zeros(64))
    inputs.indices[0] = -1
    inputs.indices[1, 0, :64] = inputs.indices[1, 1, 64:128] = inputs.indices[2, 0] = -1
    exact = inputs.decode()
    assert (exact[1][0] == torch.inf).all()
    for sms in (1, 132):
        with ops.on("emulator"):
            inputs.compare(*inputs.decode(metadata=ops.schedule(3, 192, s_q=2, h_q=64, sms=sms)), *exact)


def test_a_slot_named_twice_counts_twice() -> None:
    inputs = decode_inputs(cache.V32, b=1, topk=64)
    inputs.indices[0, 0] = int(inputs.indices.max())
    with ops.on("emulator"):
        out, lse = inputs.decode()
    exact, exact_lse = inputs.decode()
    inputs.compare(out, lse, exact, exact_lse)
    inputs.indices[0, 0, 1:] = -1
    torch.testing.assert_close(exact_lse - inputs.decode()[1], torch.full_like(lse, 64.0).log(), atol=4e-6, rtol=0)


def test_nothing_is_merged_where_nothing_is_cut() -> None:
    inputs = decode_inputs(cache.V32, b=2, h_q=64, topk=128)
    exact = inputs.decode()
    for sms, kernels in ((1, ["sparse_decode_v32"]), (132, ["sparse_decode_v32", "combine_tiles"])):
        metadata = ops.schedule(2, 128, h_q=64, sms=sms)
        assert bool((metadata.num_splits.diff() > 1).any()) == (len(kernels) == 2)
        with ops.on("emulator") as run:
            inputs.compare(*inputs.decode(metadata=metadata), *exact)
        assert [one.kernel for one in run.launches] == kernels
    lengths = torch.tensor([128, 128], dtype=torch.int32)
    with ops.on("emulator") as run:  # lengths are not looked at on the host
        inputs.decode(topk_length=lengths, metadata=ops.schedule(2, 128, h_q=64, sms=1, topk_length=lengths))
    assert run.launches[-1].kernel == "combine_tiles"


def test_the_same_call_gives_the_same_bits() -> None:
    inputs = decode_inputs(cache.V32, b=2, h_q=128, topk=192)
    with ops.on("emulator", order="seeded", seed=1):
        first = inputs.decode()
    with ops.on("emulator", order="seeded", seed=2):
        second = inputs.decode()
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])
