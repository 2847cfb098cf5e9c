"""A merge of partial results on the emulator: parameters packed, launched, compared with float64."""

from __future__ import annotations

import itertools
import struct
from typing import Any

import numpy as np
import torch

from mlacademy import gpu, softmax

UNTOUCHED = 0x7FC1
HALF_STEP = 2.0**-8  # of a bfloat16, relative
FLOAT_SUMS = 2.0**-18  # 300 terms and their weights in float32


def launched(
    kernel: gpu.Kernel,
    launch: gpu.LaunchPlan,
    partial: Any,
    lse_log2: torch.Tensor,
    num_splits: list[int],
    *,
    sink: torch.Tensor | None = None,
    after_decode: bool = True,
    verdict: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """out [b, s_q, h_q, 512] as bits and lse [b, s_q, h_q]; what the kernel leaves alone is UNTOUCHED and NaN."""
    _, s_q, h_q = lse_log2.shape
    b, device = len(num_splits) - 1, gpu.Device("emulator", arch="sm_90a")
    out, lse = np.full((b, s_q, h_q, 512), UNTOUCHED, np.uint16), np.full((b, s_q, h_q), np.nan, np.float32)
    tensors = {
        "sink": sink,
        "records": np.zeros((1, 8), np.int32) if after_decode else None,
        "num_splits": np.array(num_splits, np.int32),
        "out": out,
        "lse": lse,
        "out_partial": partial,
        "lse_partial": lse_log2,
        "verdict": None if verdict is None else np.array([verdict], np.int32),
    }
    *first, last = (0 if tensor is None else device.address(tensor, name) for name, tensor in tensors.items())
    params = bytes(160) + struct.pack("<7Qf3i3Q", *first, 0.0, b, s_q, h_q, 0, last, 0)
    device.launch(kernel, launch, [params])
    return out, lse


def partials(slots: int, s_q: int, h_q: int, seed: int, spread: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Normal outputs, and log-sum-exps of which one in eight is that of an empty slot."""
    generator = torch.Generator().manual_seed(seed)
    outs = torch.randn(slots, s_q, h_q, 512, generator=generator)
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
    alone_is_merged: bool = True,
) -> None:
    """Every result lies within the rounding of its float64 value; a request with a single slot may be left alone."""
    out, lse = result
    for request, (start, stop) in enumerate(itertools.pairwise(num_splits)):
        if stop - start < 2 and not alone_is_merged:
            assert (out[request] == UNTOUCHED).all()
            assert np.isnan(lse[request]).all()
            continue
        wanted, wanted_lse = softmax.combine(
            outs[start:stop].double(), lse_log2[start:stop].double(), None if sink is None else sink.double()
        )
        got = torch.from_numpy(out[request].view(np.int16)).view(torch.bfloat16).double()
        size = outs[start:stop].double().abs().amax(dim=0)
        assert ((got - wanted).abs() <= HALF_STEP * wanted.abs() + FLOAT_SUMS * size).all()
        np.testing.assert_allclose(lse[request], wanted_lse.numpy(), rtol=FLOAT_SUMS, atol=FLOAT_SUMS)
