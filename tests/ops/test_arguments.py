"""Wrong arguments of the operators get one sentence that names them."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from decode_inputs import decode_inputs

from mlacademy import cache, ops
from mlacademy.ops import arguments, plan


def integers(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


def splits(*bounds: int) -> torch.Tensor:
    return torch.tensor(bounds, dtype=torch.int32)


Q = torch.zeros(2, 1, 64, 576, dtype=torch.bfloat16)
EXTRA = {"extra_kv_cache": cache.new_cache(cache.V32, 2, 8), "extra_indices": integers(2, 1, 64)}


@pytest.mark.parametrize(
    ("changed", "error", "sentence"),
    [
        ({"q": None}, TypeError, "q must be a torch tensor, got NoneType"),
        ({"q": Q.float()}, TypeError, "q must be bfloat16, got float32"),
        ({"q": Q[0]}, ValueError, "q must be [b, s_q, h_q, d_qk], got the shape [1, 64, 576]"),
        (
            {"q": Q[..., :512]},
            ValueError,
            "q must have 576 numbers a head for the layout V3.2, got 512 (layout='MODEL1'",
        ),
        ({"q": Q[:0]}, ValueError, "q must not be empty, got the shape [0, 1, 64, 576]"),
        ({"q": Q.repeat(1, 1, 3, 1)}, ValueError, "q must have 1 to 128 heads, got 192"),
        ({"q": Q.transpose(2, 3).contiguous().transpose(2, 3)}, ValueError, "q must have its last axis dense"),
        (
            {"q": torch.zeros(2, 1, 64, 580).bfloat16()[..., :576]},
            ValueError,
            "multiples of 8 elements, got the strides",
        ),
        ({"kv_cache": 7}, TypeError, "kv_cache must be a torch tensor, got int"),
        (
            {"kv_cache": torch.zeros(4, 64, 1, 656)},
            TypeError,
            "kv_cache must be uint8 or int8 or float8_e4m3fn, got float32",
        ),
        (
            {"kv_cache": cache.new_cache(cache.MODEL1, 4, 64)},
            ValueError,
            "kv_cache must have 656 bytes a token for the lay",
        ),
        (
            {"kv_cache": torch.zeros(4, 64, 2, 656).byte()},
            ValueError,
            "kv_cache must have one KV head, which all query",
        ),
        ({"kv_cache": torch.zeros(0, 64, 1, 656).byte()}, ValueError, "kv_cache must hold 1 to 2,147,483,647 slots"),
        (
            {"kv_cache": torch.zeros(4, 128, 1, 656).byte()[:, ::2]},
            ValueError,
            "kv_cache must hold each page without gaps",
        ),
        (
            {"kv_cache": torch.zeros(4, 64 * 656 + 8).byte()[:, :-8].view(4, 64, 1, 656)},
            ValueError,
            "at multiples of 16 b",
        ),
        ({"indices": integers(2, 1, 64, dtype=torch.int64)}, TypeError, "indices must be int32, got int64"),
        ({"indices": integers(2, 64)}, ValueError, "indices must be [b, s_q, topk], got the shape [2, 64]"),
        ({"indices": integers(2, 2, 64)}, ValueError, "indices must be [b, s_q, topk] = [2, 1, 64], got [2, 2, 64]"),
        ({"indices": integers(2, 1, 100)}, ValueError, "indices must have a multiple of 64 entries a row, got 100"),
        ({"indices": integers(2, 1, 128)[..., ::2]}, ValueError, "indices must have its last axis dense"),
        ({"topk_length": integers(2, dtype=torch.int64)}, TypeError, "topk_length must be int32, got int64"),
        ({"topk_length": integers(2, 1)}, ValueError, "topk_length must be [b], got the shape [2, 1]"),
        ({"topk_length": integers(4)[::2]}, ValueError, "topk_length must be contiguous, got the strides [2]"),
        ({"extra_indices": integers(2, 1, 64)}, ValueError, "got extra_indices without extra_kv_cache"),
        ({"extra_kv_cache": EXTRA["extra_kv_cache"]}, ValueError, "got extra_kv_cache without extra_indices"),
        ({**EXTRA, "extra_topk_length": integers(3)}, ValueError, "extra_topk_length must be [b] = [2], got [3]"),
        (
            {**EXTRA, "extra_indices": integers(2, 1, 32)},
            ValueError,
            "extra_indices must have a multiple of 64 entries",
        ),
        ({"extra_topk_length": integers(2)}, ValueError, "extra_topk_length needs extra_indices"),
        ({"attn_sink": torch.zeros(64).double()}, TypeError, "attn_sink must be float32, got float64"),
        ({"attn_sink": torch.zeros(32)}, ValueError, "attn_sink must be [h_q] = [64], got [32]"),
        ({"attn_sink": torch.zeros(128)[::2]}, ValueError, "attn_sink must be contiguous"),
        ({"softmax_scale": "1"}, TypeError, "softmax_scale must be a number, got str"),
        ({"softmax_scale": True}, TypeError, "softmax_scale must be a number, got bool"),
        ({"softmax_scale": -0.1}, ValueError, "softmax_scale must be finite and above 0, got -0.1"),
        ({"softmax_scale": float("nan")}, ValueError, "softmax_scale must be finite and above 0, got nan"),
        ({"softmax_scale": 10**400}, ValueError, "softmax_scale must be at most 2e+38, as float32 holds it"),
        ({"softmax_scale": 3e38}, ValueError, "softmax_scale must be at most 2e+38, as float32 holds it"),
        ({"layout": ["V3.2"]}, TypeError, "layout must be a name or a CacheLayout, got list"),
        ({"layout": "V4"}, ValueError, "layout must be one of V32, V3.2, MODEL1: it is 'V4'"),
        ({"metadata": integers(9)}, TypeError, "metadata must come from ops.schedule, got Tensor"),
    ],
)
def test_decode(changed: dict[str, Any], error: type[Exception], sentence: str) -> None:
    inputs = decode_inputs(cache.V32, topk=64, pages=1, page=8)
    others = {"layout": "V3.2", **changed}
    tensors = [others.pop(name, getattr(inputs, name)) for name in ("q", "kv_cache", "indices")]
    with pytest.raises(error, match=re.escape(sentence)):
        ops.sparse_decode(*tensors, **others)
    with pytest.raises(error, match=re.escape(sentence)), ops.on("emulator"):
        ops.sparse_decode(*tensors, **others)


@pytest.mark.parametrize("name", ["kv_cache", "indices", "topk_length", "extra_kv_cache", "attn_sink"])
def test_everything_lies_on_one_device(name: str) -> None:
    inputs = decode_inputs(cache.V32, topk=64, pages=1, page=8)
    lengths = integers(2)
    tensors = arguments.DecodeTensors(
        inputs.q, inputs.kv_cache, inputs.indices, lengths, *EXTRA.values(), lengths, torch.zeros(64)
    )
    elsewhere = tensors._replace(**{name: getattr(tensors, name).to("meta")})
    with pytest.raises(ValueError, match=rf"{name} must be on (q's device, )?cpu, got one on meta"):
        arguments.decode_shape(cache.V32, elsewhere)


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        ({"b": 3}, "metadata was made for b = 3, this call has b = 2: make it anew"),
        ({"topk": 128}, "metadata was made for topk = 128, this call has topk = 64"),
        ({"extra_topk": 64}, "metadata was made for extra_topk = 64, this call has extra_topk = 0"),
        ({"topk_length": integers(2)}, "metadata was made with topk_length, this call is without it"),
    ],
)
def test_metadata_of_other_lists(made: dict[str, Any], sentence: str) -> None:
    metadata = ops.schedule(**{"b": 2, "topk": 64, **made})
    with pytest.raises(ValueError, match=re.escape(sentence)):
        decode_inputs(cache.V32, topk=64).decode(metadata=metadata)


@pytest.mark.parametrize("name", ["q", "kv_cache", "indices", "extra_kv_cache", "extra_indices", "attn_sink"])
def test_a_tensor_without_axes_gets_its_sentence_beside_a_metadata_too(name: str) -> None:
    inputs = decode_inputs(cache.V32, topk=64, pages=1, page=8)
    given = {"q": inputs.q, "kv_cache": inputs.kv_cache, "indices": inputs.indices, **EXTRA}
    dtype = given[name].dtype if name in given else torch.float32
    given[name] = torch.zeros((), dtype=dtype)
    with pytest.raises(ValueError, match=rf"{name} must be \["):
        ops.sparse_decode(**given, metadata=ops.schedule(2, 64, extra_topk=64))


@pytest.mark.parametrize("scale", [np.float32(0.25), np.float64(0.25), Fraction(1, 4), 0.25])
def test_any_real_number_is_a_scale(scale: Any) -> None:
    inputs = decode_inputs(cache.V32, b=1, h_q=2, topk=64)
    assert torch.equal(inputs.decode(softmax_scale=scale)[1], inputs.decode(softmax_scale=1 / 4)[1])


def operator_calls() -> dict[str, tuple[Any, dict[str, Any]]]:
    lists = {"q": Q, "kv_cache": EXTRA["extra_kv_cache"], "indices": integers(2, 1, 64), **EXTRA}
    lengths = {"topk_length": integers(2), "extra_topk_length": integers(2), "attn_sink": torch.zeros(64)}
    partial = {"out_partial": torch.zeros(3, 1, 4, 512), "lse_partial_log2": torch.zeros(3, 1, 4)}
    tokens = {"nope": torch.zeros(3, 512).bfloat16(), "rope": torch.zeros(3, 64).bfloat16()}
    return {
        "sparse_decode": (ops.sparse_decode, lists | lengths),
        "combine": (ops.combine, {**partial, "num_splits": torch.tensor([0, 3]).int(), "attn_sink": torch.zeros(4)}),
        "cache_append": (ops.cache_append, {"kv_cache": lists["kv_cache"], "slots": torch.arange(3), **tokens}),
    }


@pytest.mark.parametrize("name", operator_calls())
def test_one_meta_tensor_among_others_makes_no_result_out_of_nothing(name: str) -> None:
    operator, given = operator_calls()[name]
    first = next(iter(given))
    for changed in list(given)[1:]:
        with pytest.raises(ValueError, match=rf"{changed} must be on {first}'s device, cpu, got one on meta"):
            operator(**{**given, changed: given[changed].to("meta")})


@pytest.mark.parametrize("name", operator_calls())
def test_what_is_no_tensor(name: str) -> None:
    operator, given = operator_calls()[name]
    for changed, value in given.items():
        with pytest.raises(TypeError, match=f"{changed} must be a torch tensor, got list"):
            operator(**{**given, changed: value.tolist()})


@pytest.mark.parametrize("name", ["q", "kv_cache", "extra_kv_cache"])
def test_addresses_between_multiples_of_16_on_the_emulator(name: str) -> None:
    given = {"q": Q, "kv_cache": EXTRA["extra_kv_cache"], "indices": integers(2, 1, 64), **EXTRA}
    with pytest.raises(ValueError, match=f"{name} must begin at a multiple of 16 bytes, got one 8"), ops.on("emulator"):
        ops.sparse_decode(**{**given, name: eight_bytes_on(given[name])})


@pytest.mark.parametrize("name", ["kv_cache", "nope", "rope"])
def test_addresses_of_an_append_on_the_emulator(name: str) -> None:
    _, given = operator_calls()["cache_append"]
    with pytest.raises(ValueError, match=f"{name} must begin at a multiple of 16 bytes, got one 8"), ops.on("emulator"):
        ops.cache_append(**{**given, name: eight_bytes_on(given[name])})


def eight_bytes_on(tensor: torch.Tensor) -> torch.Tensor:
    skipped = 8 // tensor.element_size()
    return torch.zeros(tensor.numel() + skipped, dtype=tensor.dtype)[skipped:].view(tensor.shape)


@pytest.mark.parametrize("junk", [-1, 2**31 - 1])
def test_a_metadata_that_was_written_to(junk: int) -> None:
    inputs = decode_inputs(cache.V32, topk=64)
    metadata = ops.schedule(2, 64)
    metadata.buffer.fill_(junk)
    with pytest.raises(ValueError, match=f"metadata must be as .*, its buffer says {junk} slots"), ops.on("emulator"):
        inputs.decode(metadata=metadata)


def test_a_buffer_that_is_no_metadata_is_refused_below_too() -> None:
    inputs = decode_inputs(cache.V32, topk=64)
    tensors = (inputs.q, inputs.kv_cache, inputs.indices, *(None,) * 5)
    with pytest.raises(ValueError, match="metadata must be made for b = 2, its 9 numbers are not"):
        torch.ops.mlacademy.sparse_decode(*tensors, integers(9), "V3.2", 0.1)


@pytest.mark.parametrize(
    ("given", "error", "sentence"),
    [
        ({"b": 0}, ValueError, "b must be at least 1: it is 0"),
        ({"topk": 1.5}, TypeError, "topk must be an integer, not float 1.5"),
        ({"sms": 0}, ValueError, "sms must be at least 1"),
        ({"h_q": 0}, ValueError, "h_q must be at least 1"),
        ({"h_q": 129}, ValueError, "h_q must be 1 to 128, the heads of one call, got 129"),
        ({"topk_length": integers(3)}, ValueError, "topk_length must be [b] = [2], got [3]"),
        (
            {"topk_length": integers(2).to("meta"), "device": "cpu"},
            ValueError,
            "topk_length must be on cpu, got one on m",
        ),
        ({"device": "meta"}, ValueError, "device must be cpu or cuda, got meta"),
        ({"device": "gpu"}, ValueError, "device must be cpu or cuda, got 'gpu'"),
        ({"topk": 2**31}, ValueError, "topk must be at most 2,147,483,647, got 2,147,483,648"),
        ({"extra_topk": 2**40}, ValueError, "extra_topk must be at most 2,147,483,647"),
        ({"topk": 2**30, "b": 900}, ValueError, "topk must be so small that all lists together have less than"),
        (
            {"b": 2**40},
            ValueError,
            "b must be at most 19,280, for the scheduler's shared memory, got 1,099,511",
        ),
        ({"sms": 10**9}, ValueError, "sms must give at most 4,096 partitions, got 500,000,000"),
        ({"extra_topk_length": integers(2)}, ValueError, "extra_topk_length needs extra_topk"),
    ],
)
def test_schedule(given: dict[str, Any], error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=re.escape(sentence)):
        ops.schedule(**{"b": 2, "topk": 64, **given})
    with pytest.raises(error, match=re.escape(sentence)), ops.on("emulator"):
        ops.schedule(**{"b": 2, "topk": 64, **given})


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there() -> None:
    for call in (lambda: ops.schedule(2, 64, device="cuda"), lambda: ops.check("cuda")):
        with pytest.raises(ValueError, match="device must be cpu, as torch sees no GPU here, got cuda"):
            call()


@pytest.mark.parametrize("device", ["meta", "mps", "tpu"])
def test_what_has_no_notices_spoils_no_later_check(device: str) -> None:
    with pytest.raises(ValueError, match="device must be cpu or cuda, got"):
        ops.check(device)
    ops.check()


@pytest.mark.parametrize(
    ("changed", "error", "sentence"),
    [
        ({"slots": torch.zeros(3)}, TypeError, "slots must be int32 or int64, got float32"),
        ({"nope": torch.zeros(3, 512)}, TypeError, "nope must be bfloat16, got float32"),
        ({"nope": torch.zeros(3, 448).bfloat16()}, ValueError, "nope must be [n, 512] = [3, 512], got [3, 448]"),
        ({"rope": torch.zeros(2, 64).bfloat16()}, ValueError, "rope must be [n, 64] = [3, 64], got [2, 64]"),
        (
            {"rope": torch.zeros(3, 68).bfloat16()[:, :64]},
            ValueError,
            "rope must have its last axis dense and its rows",
        ),
        ({"kv_cache": torch.zeros(2, 8, 1, 584).byte()}, ValueError, "kv_cache must have 656 bytes a token"),
    ],
)
def test_append(changed: dict[str, Any], error: type[Exception], sentence: str) -> None:
    given = {
        "kv_cache": cache.new_cache(cache.V32, 2, 8),
        "slots": torch.arange(3),
        "nope": torch.zeros(3, 512, dtype=torch.bfloat16),
        "rope": torch.zeros(3, 64, dtype=torch.bfloat16),
        **changed,
    }
    with pytest.raises(error, match=re.escape(sentence)):
        ops.cache_append(**given)


@pytest.mark.parametrize(
    ("changed", "error", "sentence"),
    [
        ({"out_partial": torch.zeros(3, 1, 64, 256)}, ValueError, "out_partial must be [slots, s_q, h_q, 512]"),
        ({"lse_partial_log2": torch.zeros(3, 1, 32)}, ValueError, "= [3, 1, 64], got [3, 1, 32]"),
        ({"num_splits": integers(1)}, ValueError, "num_splits must be [b + 1] with b at least 1, got 1 elements"),
        ({"attn_sink": torch.zeros(65)}, ValueError, "attn_sink must be [h_q] = [64], got [65]"),
        (
            {"num_splits": splits(0, 4)},
            ValueError,
            "num_splits must rise and lie in 0 to 3, the slots of out_part",
        ),
        ({"num_splits": splits(-1, 3)}, ValueError, "request 0 has -1 to 3"),
        ({"num_splits": splits(0, 2, 2)}, ValueError, "request 1 has 2 to 2"),
        ({"num_splits": splits(0, 3, 1)}, ValueError, "request 1 has 3 to 1"),
    ],
)
def test_combine(changed: dict[str, Any], error: type[Exception], sentence: str) -> None:
    given = {
        "out_partial": torch.zeros(3, 1, 64, 512),
        "lse_partial_log2": torch.zeros(3, 1, 64),
        "num_splits": torch.tensor([0, 3], dtype=torch.int32),
        **changed,
    }
    with pytest.raises(error, match=re.escape(sentence)):
        ops.combine(**given)
    with pytest.raises(error, match=re.escape(sentence)), ops.on("emulator"):
        ops.combine(**given)


@pytest.mark.parametrize("capability", [(8, 0), (9, 1), (10, 0), (12, 0)])
def test_other_gpus_get_a_sentence(capability: tuple[int, int]) -> None:
    has = ".".join(map(str, capability))
    with pytest.raises(RuntimeError, match=f"for Hopper GPUs, compute capability 9.0; NVIDIA X has {has}: use CPU"):
        plan.architecture(capability, "NVIDIA X")
    assert plan.architecture((9, 0)) == "sm_90a"
