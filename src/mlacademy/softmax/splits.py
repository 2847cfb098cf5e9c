"""Split-KV: independent partial results, the weights that merge them, and the attention sink.

Shapes: ``s`` splits lead, ``outs [s, ..., d_v]`` and ``lse_log2 [s, ...]``. A sink broadcasts against ``[...]``: with
``[s, b, s_q, h_q]`` the learned ``[h_q]`` vector fits as it is.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from numbers import Real

import torch
from torch import Tensor

from mlacademy.softmax.online import LOG2E, broadcasts, masked_scores, online_softmax


def partials(
    scores: Tensor,
    values: Tensor,
    bounds: Sequence[int],
    *,
    scale: float,
    block: int = 64,
    valid: Tensor | None = None,
    round_s: bool = True,
) -> tuple[Tensor, Tensor]:
    """Run :func:`online_softmax` apart on each of ``s = len(bounds) - 1`` pieces of the scores.

    ``bounds`` are score positions from 0 to n that never fall: ``(0, 64, 128)`` are two splits, ``(0, 64, 64, 128)``
    three with an empty one. The other arguments and errors are :func:`online_softmax`'s. Returns
    ``(outs [s, ..., d_v], lse_log2 [s, ...])``: each piece's *normalised* output and base-2 log-sum-exp, 0 and ``-inf``
    where a piece has no valid score. Raises ``ValueError`` on bad ``bounds``.
    """
    masked = masked_scores(scores, values, scale, valid)
    try:
        bounds = [operator.index(bound) for bound in bounds]
    except TypeError:
        raise TypeError(f"bounds must be whole numbers, score positions: got {bounds!r}") from None
    pieces = list(itertools.pairwise(bounds))
    if not pieces or bounds[0] != 0 or bounds[-1] != scores.shape[-1] or any(start > stop for start, stop in pieces):
        raise ValueError(f"bounds must run from 0 to n = {scores.shape[-1]} without falling: got {bounds}")
    parts = []
    for start, stop in pieces:
        x, v = masked[..., start:stop], values[..., start:stop, :]
        if start == stop:  # one hole stands for a piece of no scores, so that shapes and result follow as usual
            x, v = torch.full_like(masked[..., :1], -math.inf), values[..., :1, :]
        parts.append(online_softmax(x, v, scale=scale, block=block, round_s=round_s))
    return torch.stack([part.out for part in parts]), torch.stack([part.lse_log2 for part in parts])


def combined_lse_log2(lse_log2: Tensor, sink: Tensor | float | None = None) -> Tensor:
    """The base-2 log-sum-exp of all splits together, ``[...]`` from ``lse_log2 [s, ...]``.

    Without a sink: G = m + log2 Σ 2^(l - m) with m = max l, and ``-inf`` when every split is empty. With one (in
    natural-log units): G' = log2(2^G + 2^(sink * log2 e)), the log of what the output is divided by.

    >>> combined_lse_log2(torch.tensor([1.0, 1.0, -math.inf]))
    tensor(2.)
    """
    _check_lse(lse_log2)
    top = lse_log2.amax(dim=0)
    base = torch.where(top == -math.inf, 0.0, top)
    total = base + torch.log2(torch.exp2(lse_log2 - base).sum(dim=0))
    if sink is None:
        return total
    return torch.logaddexp2(total, _sink(sink, total) * LOG2E)


def combine_weights(lse_log2: Tensor, sink: Tensor | float | None = None) -> Tensor:
    """What each split's normalised output is multiplied by: 2^(l - G'), ``[s, ...]``.

    A row's weights sum to 1 without a sink and to less with one; an empty split weighs 0. ``sink`` is in natural-log
    units: ``-inf`` changes nothing, ``+inf`` takes everything. Raises as :func:`combine`.

    >>> combine_weights(torch.tensor([1.0, 1.0]), sink=math.log(4))  # 2, 2 and the sink's 4
    tensor([0.2500, 0.2500])
    """
    total = combined_lse_log2(lse_log2, sink)
    return torch.where(lse_log2 == -math.inf, 0.0, torch.exp2(lse_log2 - total))


def combine(outs: Tensor, lse_log2: Tensor, sink: Tensor | float | None = None) -> tuple[Tensor, Tensor]:
    """Merge splits: ``(out [..., d_v], lse [...])`` from ``outs [s, ..., d_v]`` and ``lse_log2 [s, ...]``.

    ``outs`` are normalised per split and finite, also where a split is empty (the kernels write zeros there). ``lse``
    is natural and never contains the sink; a row whose splits are all empty gives ``out = 0`` and ``lse = +inf``.

    Raises:
        TypeError: dtypes other than float32/float64, or unequal.
        ValueError: shapes that do not fit; ``lse_log2`` holding ``+inf``.
    """
    _check_lse(lse_log2)
    if not isinstance(outs, Tensor):
        raise TypeError(f"outs must be a torch tensor: got {type(outs).__name__}")
    if outs.dtype != lse_log2.dtype:
        raise TypeError(f"outs and lse_log2 must have one dtype: outs are {outs.dtype}, lse_log2 {lse_log2.dtype}")
    if outs.shape[:-1] != lse_log2.shape:
        raise ValueError(
            "outs [s, ..., d_v] must have lse_log2's shape [s, ...] plus d_v: "
            f"outs are {list(outs.shape)}, lse_log2 {list(lse_log2.shape)}"
        )
    weights = combine_weights(lse_log2, sink)
    total = combined_lse_log2(lse_log2)
    out = (weights.unsqueeze(-1) * outs).sum(dim=0)
    return out, torch.where(total == -math.inf, math.inf, total / LOG2E)


def apply_sink(out: Tensor, lse: Tensor, sink: Tensor | float) -> Tensor:
    """``out`` ``[..., d_v]`` of an un-split row after the sink took its share; ``lse`` ``[...]`` is natural.

    out * exp(lse) / (exp(lse) + exp(sink)). The sink is one more logit without a value: it adds to the denominator
    only. ``sink = -inf`` changes nothing, ``+inf`` gives 0, and an empty row (``lse = +inf``) gives 0. ``lse`` itself
    does not change. Do this once: a result of :func:`combine` that was given the sink has it already.

    >>> apply_sink(torch.tensor([3.0]), torch.tensor(math.log(2)), sink=0.0)  # 2 of 3 parts remain
    tensor([2.])
    """
    for name, tensor in (("out", out), ("lse", lse)):
        if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
            kind = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
            raise TypeError(f"{name} must be a floating-point tensor: got {kind}")
    if out.shape[:-1] != lse.shape:
        raise ValueError(
            "out [..., d_v] must have lse's shape [...] plus d_v: "
            f"out is {list(out.shape)}, lse {list(lse.shape)}. A public lse is [b, h_q, s_q]: transpose it first"
        )
    share = torch.where(lse == math.inf, 0.0, torch.sigmoid(lse - _sink(sink, lse)))
    return out * share.unsqueeze(-1)


def _sink(sink: Tensor | float, like: Tensor) -> Tensor:
    """The sink in the dtype of ``like``, the log-sum-exps ``[...]`` that it is added to."""
    if isinstance(sink, bool) or not isinstance(sink, (Real, Tensor)):
        raise TypeError(f"sink must be a number or a floating-point tensor: got {type(sink).__name__}")
    if isinstance(sink, Tensor) and not sink.is_floating_point():
        raise TypeError(f"sink must be a number or a floating-point tensor: got {sink.dtype}")
    logit = torch.as_tensor(sink, dtype=like.dtype, device=like.device)
    if not broadcasts(logit, like):
        raise ValueError(f"sink must broadcast against {list(like.shape)}, one a row: got shape {list(logit.shape)}")
    if bool(logit.isnan().any()):
        raise ValueError("sink must not be NaN. -inf means no sink")
    return logit


def _check_lse(lse_log2: Tensor) -> None:
    if not isinstance(lse_log2, Tensor):
        raise TypeError(f"lse_log2 must be a torch tensor: got {type(lse_log2).__name__}")
    if lse_log2.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"lse_log2 must be float32 or float64: got {lse_log2.dtype}")
    if lse_log2.ndim < 1 or lse_log2.shape[0] == 0:
        raise ValueError(f"lse_log2 [s, ...] must hold at least one split: got shape {list(lse_log2.shape)}")
    if bool((lse_log2 == math.inf).any()):
        raise ValueError(
            "lse_log2 must not hold +inf: an empty split is -inf. +inf marks an empty row in a final, natural lse. "
            "Was a final lse passed?"
        )
