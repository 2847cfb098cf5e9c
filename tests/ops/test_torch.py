"""The operators as torch sees them: fake tensors, `opcheck`, `torch.compile`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from decode_inputs import SCALE, decode_inputs
from torch._subclasses.fake_tensor import FakeTensorMode

from mlacademy import cache, ops

LENGTHS = torch.tensor([64, 3], dtype=torch.int32)
Pair = tuple[torch.Tensor, torch.Tensor]


def decode_arguments(**options: Any) -> tuple[Any, ...]:
    inputs = decode_inputs(cache.V32, b=2, s_q=2, h_q=5, topk=64, page=8, **options)
    metadata = ops.schedule(2, 64, s_q=2, topk_length=LENGTHS).buffer
    lists = (inputs.q, inputs.kv_cache, inputs.indices, LENGTHS, None, None, None, torch.zeros(5))
    return *lists, metadata, "V3.2", SCALE


def operator_calls() -> dict[str, tuple[Any, ...]]:
    splits = torch.tensor([0, 2, 3], dtype=torch.int32)
    tokens = torch.ones(2, 512, dtype=torch.bfloat16), torch.ones(2, 64, dtype=torch.bfloat16)
    return {
        "sparse_decode": decode_arguments(),
        "combine": (torch.randn(3, 1, 4, 512), torch.randn(3, 1, 4), splits, torch.zeros(4)),
        "cache_append": (cache.new_cache(cache.V32, 1, 4), torch.tensor([2, 0]), *tokens, "V3.2"),
    }


@pytest.mark.parametrize("name", operator_calls())
def test_opcheck(name: str) -> None:
    torch.library.opcheck(getattr(torch.ops.mlacademy, name), operator_calls()[name])


def test_opcheck_of_the_schedule() -> None:
    lengths = (LENGTHS, None, 2, 64, 0, 66)
    torch.library.opcheck(torch.ops.mlacademy.schedule, lengths, {"device": torch.device("cpu")})


def test_fake_outputs_are_laid_out_as_the_real_ones() -> None:
    arguments = decode_arguments()
    real = torch.ops.mlacademy.sparse_decode(*arguments)
    with FakeTensorMode() as mode:
        given = [mode.from_tensor(one) if isinstance(one, torch.Tensor) else one for one in arguments]
        fake = torch.ops.mlacademy.sparse_decode(*given)
    with ops.on("emulator"):
        emulated = torch.ops.mlacademy.sparse_decode(*arguments)
    for one in (fake, emulated):
        for part, wanted in zip(one, real, strict=True):
            assert (part.shape, part.stride(), part.dtype) == (wanted.shape, wanted.stride(), wanted.dtype)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_step_compiles_as_one_graph(dynamic: bool) -> None:
    def step(q: torch.Tensor, kv: torch.Tensor, indices: torch.Tensor, metadata: ops.Metadata) -> Pair:
        out, lse = ops.sparse_decode(q * 2, kv, indices, softmax_scale=SCALE, topk_length=LENGTHS, metadata=metadata)
        return out + 1, lse

    inputs = decode_inputs(cache.V32, b=2, h_q=5, topk=64)
    metadata = ops.schedule(2, 64, topk_length=LENGTHS)
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    arguments = (inputs.q, inputs.kv_cache, inputs.indices, metadata)
    for got, wanted in zip(compiled(*arguments), step(*arguments), strict=True):
        assert torch.equal(got, wanted)


def test_an_append_and_its_schedule_compile_as_one_graph() -> None:
    def step(kv: torch.Tensor, slots: torch.Tensor, nope: torch.Tensor, rope: torch.Tensor) -> torch.Tensor:
        ops.cache_append(kv, slots, nope * 2, rope)
        return ops.schedule(2, 64, topk_length=LENGTHS).records

    torch.compiler.reset()
    generator = torch.Generator().manual_seed(1)
    nope, rope = (torch.randn(2, width, generator=generator).bfloat16() for width in (512, 64))
    first, second = (cache.new_cache(cache.V32, 1, 4) for _ in range(2))
    arguments = (torch.tensor([2, 0]), nope, rope)
    records = torch.compile(step, fullgraph=True, backend="aot_eager")(first, *arguments)
    assert torch.equal(records, step(second, *arguments))
    assert torch.equal(first, second)
    assert first.any()


def test_inference_mode_changes_nothing() -> None:
    inputs = decode_inputs(cache.MODEL1)
    outside = inputs.decode()
    with torch.inference_mode():
        inside = inputs.decode(metadata=ops.schedule(2, 128))
    assert torch.equal(inside[0], outside[0])


def test_the_default_device_and_dtype_do_not_matter() -> None:
    inputs = decode_inputs(cache.V32)
    wanted = inputs.decode()
    torch.set_default_dtype(torch.bfloat16)
    try:
        by_oracle = inputs.decode()
        torch.set_default_device("meta")
        with ops.on("emulator"):
            out, lse = inputs.decode(metadata=ops.schedule(2, 128, device="cpu"))
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)
    inputs.compare(out, lse, *wanted)
    assert torch.equal(by_oracle[0], wanted[0])
