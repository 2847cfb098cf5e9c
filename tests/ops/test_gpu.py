"""The operators on a Hopper GPU; `benchmarks/gpu/ops.py` asks the same of many more calls."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from decode_inputs import Inputs, decode_inputs

from mlacademy import cache, ops

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0), reason="needs a Hopper GPU"
    ),
]

LENGTHS = torch.tensor([128, 0, 70], dtype=torch.int32)


def on_gpu(inputs: Inputs) -> Inputs:
    def moved(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if value.dim() < 4 or value.dtype != torch.uint8:
            return value.cuda()
        stored = value.as_strided((value.shape[0], value.stride(0)), (value.stride(0), 1))
        return stored.cuda().as_strided(value.shape, value.stride())

    options = {name: moved(value) for name, value in inputs.options.items()}
    return Inputs(inputs.layout, inputs.q.cuda(), moved(inputs.kv_cache), inputs.indices.cuda(), options)


@pytest.mark.parametrize("layout", [cache.V32, cache.MODEL1], ids=lambda layout: layout.name)
@pytest.mark.parametrize("heads", [7, 32, 64, 128])
def test_a_gpu_gives_what_the_oracle_gives(layout: cache.CacheLayout, heads: int) -> None:
    inputs = decode_inputs(layout, b=3, s_q=2, h_q=heads, page=13, pages=20, topk_length=LENGTHS)
    out, lse = on_gpu(inputs).decode()
    inputs.compare(out.cpu(), lse.cpu(), *inputs.decode())


def test_a_replayed_graph_notices_changed_lengths() -> None:
    inputs = on_gpu(decode_inputs(cache.V32, b=3, topk_length=LENGTHS))
    lengths = inputs.options["topk_length"]
    metadata = ops.schedule(3, 128, h_q=64, topk_length=lengths)
    wanted = [part.clone() for part in inputs.decode(metadata=metadata)]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, lse = inputs.decode(metadata=metadata)
    graph.replay()
    ops.check()
    assert torch.equal(out, wanted[0])
    assert torch.equal(lse, wanted[1])
    lengths[2] = 69
    graph.replay()
    with pytest.raises(ops.StaleMetadata, match=r"topk_length\[2\] is 69, the metadata was made for 70"):
        ops.check()
    assert out.isnan().all()


def test_a_gpu_checks_slots_on_request() -> None:
    inputs = on_gpu(decode_inputs(cache.V32, b=2))
    inputs.indices[1, 0, 5] = 256
    inputs.decode()
    ops.check()
    with ops.checked():
        inputs.decode()
    with pytest.raises(ops.SlotOutOfRange, match=r"0 to 255: indices\[1, 0, 5\] is 256"):
        ops.check()


def test_tensors_of_two_devices_are_refused() -> None:
    inputs = on_gpu(decode_inputs(cache.V32))
    inputs.indices = inputs.indices.cpu()
    with pytest.raises(ValueError, match="indices must be on q's device, cuda:0, got one on cpu"):
        inputs.decode()
    with pytest.raises(ValueError, match="metadata must be on q's device, cuda:0, got one on cpu"):
        on_gpu(decode_inputs(cache.V32)).decode(metadata=ops.schedule(2, 128))
