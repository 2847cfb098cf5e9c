"""The compiled combine, on the emulator, against `mlacademy.softmax.combine` in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from combine_case import UNTOUCHED, check, launched, partials

from mlacademy import gpu
from mlacademy.ops import plan


def combined(
    outs: torch.Tensor, lse_log2: torch.Tensor, num_splits: list[int], *, ctas: int = 1, groups: int = 4, **given: Any
) -> tuple[np.ndarray, np.ndarray]:
    """out [b, s_q, h_q, 512] as bits and lse [b, s_q, h_q]."""
    launch = gpu.LaunchPlan(grid=(ctas, lse_log2.shape[1], len(num_splits) - 1), block=128 * groups)
    return launched(plan.compiled("combine.cu")["combine"], launch, outs, lse_log2, num_splits, **given)


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
    outs, lse = torch.zeros(12, 1, 2, 512), torch.full((12, 1, 2), -torch.inf)
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
    [
        (1, 2048, 132, 4, 16),
        (2, 128, 132, 1, 16),
        (16, 2048, 132, 2, 16),
        (128, 2048, 132, 1, 8),
        (2000, 64, 132, 1, 1),
    ],
)
def test_groups_and_ctas_follow_the_slots_of_a_request(b: int, topk: int, parts: int, groups: int, ctas: int) -> None:
    merge = plan.decode_launches("V3.2", b=b, s_q=1, h_q=16, parts=parts, topk=topk)[-1]
    assert merge.kernel == "combine"
    assert merge.plan.block == (128 * groups, 1, 1)
    assert merge.plan.grid == (ctas, 1, b)
