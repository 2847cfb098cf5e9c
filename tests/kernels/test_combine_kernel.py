"""The compiled combine, on the emulator, against `mlacademy.softmax.combine` in float64."""

from __future__ import annotations

import itertools
import struct
from functools import cache as remember
from pathlib import Path

import numpy as np
import pytest
import torch

from mlacademy import gpu, softmax
from mlacademy.ops import plan

SOURCE = Path(__file__).parents[2] / "kernels" / "cuda" / "decode" / "combine.cu"
D_V = 512
UNTOUCHED = 0x7FC1
HALF_STEP = 2.0**-8  # of a bfloat16, relative
FLOAT_SUMS = 2.0**-18  # 300 terms and their weights in float32


@remember
def kernel() -> gpu.Kernel:
    return gpu.compile(SOURCE)["combine"]


def combined(
    outs: torch.Tensor,
    lse_log2: torch.Tensor,
    num_splits: list[int],
    *,
    sink: torch.Tensor | None = None,
    ctas: int = 1,
    groups: int = 4,
    after_decode: bool = True,
    verdict: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """out [b, s_q, h_q, 512] as bits and lse [b, s_q, h_q]; what the kernel leaves alone is UNTOUCHED and NaN."""
    _, s_q, h_q = lse_log2.shape
    b, device = len(num_splits) - 1, gpu.Device("emulator", arch="sm_90a")
    out, lse = np.full((b, s_q, h_q, D_V), UNTOUCHED, np.uint16), np.full((b, s_q, h_q), np.nan, np.float32)
    tensors = {
        "sink": sink,
        "records": np.zeros((1, 8), np.int32) if after_decode else None,
        "num_splits": np.array(num_splits, np.int32),
        "out": out,
        "lse": lse,
        "out_partial": outs,
        "lse_partial": lse_log2,
        "verdict": None if verdict is None else np.array([verdict], np.int32),
    }
    *first, last = (0 if tensor is None else device.address(tensor, name) for name, tensor in tensors.items())
    params = bytes(160) + struct.pack("<7Qf3i3Q", *first, 0.0, b, s_q, h_q, 0, last, 0)
    device.launch(kernel(), gpu.LaunchPlan(grid=(ctas, s_q, b), block=128 * groups), [params])
    return out, lse


def partials(slots: int, s_q: int, h_q: int, seed: int, spread: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Normal outputs, and log-sum-exps of which one in eight is that of an empty slot."""
    generator = torch.Generator().manual_seed(seed)
    outs = torch.randn(slots, s_q, h_q, D_V, generator=generator)
    lse = torch.randn(slots, s_q, h_q, generator=generator) * spread
    empty = torch.rand(lse.shape, generator=generator) < 0.125
    lse[empty], outs[empty] = -torch.inf, 0.0
    return outs, lse


def check(
    outs: torch.Tensor,
    lse_log2: torch.Tensor,
    num_splits: list[int],
    result: tuple[np.ndarray, np.ndarray],
    sink: torch.Tensor | None = None,
) -> None:
    """Every request's result lies within the rounding of its float64 value; requests of one slot count too."""
    out, lse = result
    for request, (start, stop) in enumerate(itertools.pairwise(num_splits)):
        wanted, wanted_lse = softmax.combine(
            outs[start:stop].double(), lse_log2[start:stop].double(), None if sink is None else sink.double()
        )
        got = torch.from_numpy(out[request].view(np.int16)).view(torch.bfloat16).double()
        size = outs[start:stop].double().abs().amax(dim=0)
        assert ((got - wanted).abs() <= HALF_STEP * wanted.abs() + FLOAT_SUMS * size).all()
        np.testing.assert_allclose(lse[request], wanted_lse.numpy(), rtol=FLOAT_SUMS, atol=FLOAT_SUMS)


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("ctas", [1, 3, 5])
def test_any_number_of_slots(groups: int, ctas: int) -> None:
    num_splits = np.cumsum([0, 2, 1, 5, 8, 9, 32, 33, 67]).tolist()
    outs, lse = partials(num_splits[-1], 2, 5, seed=groups * 10 + ctas, spread=3.0)
    result = combined(outs, lse, num_splits, ctas=ctas, groups=groups, after_decode=False)
    check(outs, lse, num_splits, result)


@pytest.mark.parametrize("spread", [0.0, 20.0, 5000.0])
def test_more_slots_than_a_gpu_has_sms(spread: float) -> None:
    outs, lse = partials(300, 1, 3, seed=7, spread=spread)
    check(outs, lse, [0, 300], combined(outs, lse, [0, 300], ctas=3))


def test_a_sink_joins_the_output_and_not_the_lse() -> None:
    outs, lse = partials(23, 2, 6, seed=3, spread=4.0)
    sink = torch.tensor([0.5, -3.0, 40.0, -torch.inf, torch.inf, 3.0])
    num_splits = [0, 4, 6, 23]
    check(outs, lse, num_splits, combined(outs, lse, num_splits, sink=sink, ctas=2), sink)


@pytest.mark.parametrize("sink", [None, torch.tensor([1.0, torch.inf])])
def test_rows_of_empty_slots_are_zero_and_their_lse_infinite(sink: torch.Tensor | None) -> None:
    outs, lse = torch.zeros(12, 1, 2, D_V), torch.full((12, 1, 2), -torch.inf)
    out, natural = combined(outs, lse, [0, 3, 12], sink=sink)
    assert not (out & 0x7FFF).any()
    assert (natural == np.inf).all()


def test_requests_of_one_slot_are_left_alone_after_decode() -> None:
    num_splits = [0, 1, 4, 5, 7]
    outs, lse = partials(7, 1, 2, seed=5, spread=1.0)
    outs[[0, 4]] = torch.nan  # nobody wrote these
    out, natural = combined(outs, lse, num_splits)
    assert (out[[0, 2]] == UNTOUCHED).all()
    assert np.isnan(natural[[0, 2]]).all()
    check(outs[1:4], lse[1:4], [0, 3], (out[1:2], natural[1:2]))
    check(outs[5:7], lse[5:7], [0, 2], (out[3:4], natural[3:4]))


def test_nothing_is_written_where_decode_found_changed_lengths() -> None:
    outs, lse = partials(6, 1, 2, seed=6, spread=1.0)
    out, natural = combined(outs, lse, [0, 2, 6], verdict=1)
    assert (out == UNTOUCHED).all()
    assert np.isnan(natural).all()
    check(outs, lse, [0, 2, 6], combined(outs, lse, [0, 2, 6], verdict=0))


def test_the_same_bits_for_any_number_of_ctas() -> None:
    outs, lse = partials(40, 2, 4, seed=8, spread=5.0)
    results = [combined(outs, lse, [0, 7, 40], ctas=ctas)[0] for ctas in (1, 2, 4)]
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


@pytest.mark.parametrize(
    ("b", "topk", "parts", "groups", "ctas"),
    [(1, 2048, 132, 4, 16), (2, 128, 132, 1, 16), (16, 2048, 132, 2, 16), (128, 2048, 132, 1, 8), (2000, 64, 132, 1, 1)],
)
def test_groups_and_ctas_follow_the_slots_of_a_request(b: int, topk: int, parts: int, groups: int, ctas: int) -> None:
    merge = plan.decode_launches("V3.2", b=b, s_q=1, h_q=16, parts=parts, topk=topk)[-1]
    assert merge.kernel == "combine"
    assert merge.plan.block == (128 * groups, 1, 1)
    assert merge.plan.grid == (ctas, 1, b)
