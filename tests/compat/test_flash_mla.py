"""FlashMLA's calls: its arguments, defaults, results and refusals."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import pytest
import torch
from decode_inputs import SCALE, Inputs, decode_inputs
from torch import Tensor

from mlacademy import cache, ops
from mlacademy.compat import flash_mla

PUBLIC = (
    *("q", "k_cache", "block_table", "cache_seqlens", "head_dim_v", "tile_scheduler_metadata", "num_splits"),
    *("softmax_scale", "causal", "is_fp8_kvcache", "indices", "attn_sink", "extra_k_cache"),
    *("extra_indices_in_kvcache", "topk_length", "extra_topk_length"),
)


def call(inputs: Inputs, metadata: Any = None, **changed: Any) -> tuple[Tensor, Tensor]:
    renamed = {"extra_kv_cache": "extra_k_cache", "extra_indices": "extra_indices_in_kvcache"}
    options = {renamed.get(name, name): value for name, value in inputs.options.items()}
    arguments = {
        "q": inputs.q,
        "k_cache": inputs.kv_cache,
        "block_table": None,
        "cache_seqlens": None,
        "head_dim_v": 512,
        "tile_scheduler_metadata": metadata or flash_mla.get_mla_metadata()[0],
        "softmax_scale": SCALE,
        "is_fp8_kvcache": True,
        "indices": inputs.indices,
        **options,
        **changed,
    }
    return flash_mla.flash_mla_with_kvcache(**arguments)


def test_the_parameters_are_the_public_ones_in_order() -> None:
    parameters = inspect.signature(flash_mla.flash_mla_with_kvcache).parameters
    assert tuple(parameters) == PUBLIC
    defaults = {name: one.default for name, one in parameters.items() if one.default is not inspect.Parameter.empty}
    assert {name for name, value in defaults.items() if value is False} == {"causal", "is_fp8_kvcache"}
    assert all(value is None for name, value in defaults.items() if name not in ("causal", "is_fp8_kvcache"))


def test_get_mla_metadata_ignores_what_it_is_given() -> None:
    metadata, nothing = flash_mla.get_mla_metadata(torch.zeros(3), 128, num_heads_k=1)
    assert nothing is None
    assert not metadata.have_initialized
    assert metadata.tile_scheduler_metadata is metadata.num_splits is metadata.config is None


@pytest.mark.parametrize("layout", [cache.V32, cache.MODEL1], ids=lambda layout: layout.name)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.float8_e4m3fn])
def test_results_are_those_of_ops_whatever_the_bytes_are_called(layout: cache.CacheLayout, dtype: torch.dtype) -> None:
    inputs = decode_inputs(layout, b=3, s_q=2, page=61, h_q=64)
    out, lse = inputs.decode()
    got, got_lse = call(inputs, k_cache=inputs.kv_cache.view(dtype))
    assert torch.equal(got, out)
    assert torch.equal(got_lse, lse)
    assert got.dtype == torch.bfloat16
    assert got_lse.shape == (3, 64, 2)


def test_every_option_reaches_the_kernels() -> None:
    lengths, extra_lengths = torch.tensor([0, 70, 128], dtype=torch.int32), torch.tensor([64, 0, 9], dtype=torch.int32)
    sink = torch.linspace(-2, 2, 128)
    sink[3], sink[4] = torch.inf, -torch.inf
    other = decode_inputs(cache.MODEL1, b=3, s_q=3, topk=64, page=53, seed=9)
    inputs = decode_inputs(
        cache.MODEL1,
        b=3,
        s_q=3,
        h_q=128,
        page=2,
        pages=70,
        topk_length=lengths,
        attn_sink=sink,
        extra_kv_cache=other.kv_cache,
        extra_indices=other.indices,
        extra_topk_length=extra_lengths,
    )
    exact = inputs.decode()
    metadata, _ = flash_mla.get_mla_metadata()
    with ops.on("emulator") as run:
        first = call(inputs, metadata)
        again = call(inputs, metadata)
    inputs.compare(*first, *exact)
    assert torch.equal(first[0], again[0])
    assert [one.kernel for one in run.launches].count("schedule") == 1
    assert metadata.have_initialized
    assert metadata.tile_scheduler_metadata.shape == (22, 8)
    assert metadata.num_splits.shape == (4,)


def test_the_scale_is_by_default_that_of_the_width() -> None:
    inputs = decode_inputs(cache.V32, b=1)
    assert torch.equal(call(inputs, softmax_scale=None)[1], inputs.decode(softmax_scale=576**-0.5)[1])


def test_caches_and_lists_with_gaps() -> None:
    """Pages one row further apart than they need, lists and queries cut out of something larger."""
    inputs = decode_inputs(cache.V32, b=2, s_q=2, page=5, pages=30)
    wide = torch.full((30, 6, 1, 656), 0xFF, dtype=torch.uint8)[:, :5]
    wide[:] = inputs.kv_cache
    lists = torch.full((3, 3, 256), 2**31 - 1, dtype=torch.int32)[:2, :2, :128]
    lists[:] = inputs.indices
    q = torch.full((3, 3, 65, 704), torch.nan, dtype=torch.bfloat16)[:2, :2, :64, :576]
    q[:] = inputs.q
    with ops.on("emulator"):
        plain = call(inputs)
        cut = call(inputs, q=q, k_cache=wide, indices=lists)
    assert torch.equal(plain[0], cut[0])
    assert torch.equal(plain[1], cut[1])


@pytest.mark.parametrize("sunk", [False, True])
def test_rows_without_a_token_give_zero_and_infinity(sunk: bool) -> None:
    inputs = decode_inputs(cache.V32, b=2, s_q=3)
    inputs.indices.fill_(-1)
    with ops.on("emulator"):
        out, lse = call(inputs, attn_sink=torch.zeros(64) if sunk else None)
    assert (out == 0).all()
    assert (lse == torch.inf).all()


def test_changed_lengths_are_not_taken_silently() -> None:
    lengths = torch.tensor([128, 64], dtype=torch.int32)
    inputs = decode_inputs(cache.V32, topk_length=lengths)
    metadata, _ = flash_mla.get_mla_metadata()
    call(inputs, metadata)
    lengths[0] = 127
    out, lse = call(inputs, metadata)
    assert out.isnan().all()
    assert lse.isnan().all()
    with pytest.raises(ops.StaleMetadata, match=r"topk_length\[0\] is 127, the metadata was made for 128"):
        ops.check()


@pytest.mark.parametrize(
    ("changed", "error", "sentence"),
    [
        ({"indices": None}, NotImplementedError, r"indices must be given: dense decode"),
        ({"causal": True}, ValueError, "causal must be False for sparse decode"),
        ({"is_fp8_kvcache": False}, ValueError, "is_fp8_kvcache must be True"),
        ({"num_splits": 4}, ValueError, "num_splits must be None"),
        ({"head_dim_v": 256}, ValueError, "head_dim_v must be 512, got 256"),
        ({"tile_scheduler_metadata": torch.zeros(1)}, TypeError, r"must come from get_mla_metadata\(\), got Tensor"),
        ({"q": torch.zeros(2, 1, 64, 600)}, ValueError, r"576 numbers a head \(V3.2\) or 512 \(MODEL1\), got 600"),
        ({"q": torch.zeros(2, 1, 64, 576)}, TypeError, "q must be bfloat16, got float32"),
        ({"k_cache": torch.zeros(4, 64, 1, 584, dtype=torch.uint8)}, ValueError, "k_cache must have 656 bytes a token"),
        ({"k_cache": None}, ValueError, "k_cache must be a torch tensor of 4 axes, got NoneType"),
        ({"extra_indices_in_kvcache": torch.zeros(2, 1, 64, dtype=torch.int32)}, ValueError, "got extra_indices_in_kv"),
        (
            {"extra_topk_length": torch.zeros(2, dtype=torch.int32)},
            ValueError,
            "topk_length needs extra_indices_in_k",
        ),
        (
            {"topk_length": torch.zeros(3, dtype=torch.int32)},
            ValueError,
            r"topk_length must be \[b\] = \[2\], got \[3\]",
        ),
    ],
)
def test_wrong_arguments_get_a_sentence(changed: dict[str, Any], error: type[Exception], sentence: str) -> None:
    metadata, _ = flash_mla.get_mla_metadata()
    with pytest.raises(error, match=sentence):
        call(decode_inputs(cache.V32), **{"tile_scheduler_metadata": metadata, **changed})
    assert not metadata.have_initialized


@pytest.mark.parametrize("name", ["q", "k_cache", "indices", "extra_k_cache", "extra_indices_in_kvcache"])
@pytest.mark.parametrize("wrong", [[1], torch.zeros(()), torch.zeros(3), torch.zeros(1, 1, 1, 1, 1)])
def test_what_has_other_axes(name: str, wrong: Any) -> None:
    other = decode_inputs(cache.V32)
    extra = {"extra_k_cache": other.kv_cache, "extra_indices_in_kvcache": other.indices}
    with pytest.raises(ValueError, match=rf"{name} must be a torch tensor of . axes, got"):
        call(decode_inputs(cache.V32), **{**extra, name: wrong})


@pytest.mark.parametrize(("name", "axis"), [("q", 0), ("q", 1), ("q", 2), ("indices", 2)])
def test_what_is_empty_is_called_by_its_own_name(name: str, axis: int) -> None:
    inputs = decode_inputs(cache.V32)
    empty = getattr(inputs, name).narrow(axis, 0, 0)
    with pytest.raises(ValueError, match=f"{name} must not be empty, got the shape"):
        call(inputs, **{name: empty})


def test_a_metadata_goes_through_copies() -> None:
    metadata, _ = flash_mla.get_mla_metadata()
    inputs = decode_inputs(cache.V32)
    wanted = call(inputs, metadata)
    for again in (copy.deepcopy(metadata), copy.copy(metadata), pickle.loads(pickle.dumps(metadata))):
        assert torch.equal(call(inputs, again)[0], wanted[0])


def test_another_shape_needs_another_metadata() -> None:
    metadata, _ = flash_mla.get_mla_metadata()
    call(decode_inputs(cache.V32), metadata)
    with pytest.raises(ValueError, match="was made for b = 2, this call has b = 3"):
        call(decode_inputs(cache.V32, b=3), metadata)
    with pytest.raises(ValueError, match="was made for topk = 128, this call has topk = 64"):
        call(decode_inputs(cache.V32, topk=64), metadata)
    with pytest.raises(ValueError, match="was made without topk_length, this call is with it"):
        call(decode_inputs(cache.V32), metadata, topk_length=torch.ones(2, dtype=torch.int32))
