"""One pass over blocks of scores: running max, running sum, and an output that is rescaled when the max moves.

Shapes: scores ``[..., n]``, values ``[n, d_v]`` or ``[..., n, d_v]``; results ``[..., d_v]`` and ``[...]``.
Left out on purpose: splitting over workers and the sink (see ``splits.py``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real

import torch
from torch import Tensor

LOG2E = math.log2(math.e)
"""log2(e) = 1.4427: natural-log units times this are base-2 units."""

MAX_INIT = -1e30
"""Where the running max starts. Finite, so that a block of holes computes -inf - (-1e30) and never -inf - (-inf)."""


@dataclass(frozen=True)
class Step:
    """What one block did to the running state; every tensor is ``[...]``, in base-2 units where it is an exponent.

    ``start, stop`` are the block's score positions. ``rescale`` is 2^(old max - new max): what the sum and the output
    so far were multiplied by before this block was added. ``block_sum`` is measured from ``running_max``, so
    ``running_sum = previous running_sum * rescale + block_sum``.
    """

    block: int
    start: int
    stop: int
    block_max: Tensor
    running_max: Tensor
    rescale: Tensor
    block_sum: Tensor
    running_sum: Tensor


@dataclass(frozen=True)
class OnlineSoftmax:
    """Result of :func:`online_softmax`.

    ``out`` ``[..., d_v]`` is normalised, and 0 for a row without any valid score. ``lse`` ``[...]`` is the natural
    log-sum-exp of the scaled scores, ``+inf`` for such a row. ``lse_log2`` ``[...]`` is the same in base 2 as a
    *partial* result: ``-inf`` for such a row, which gives it weight 0 in :func:`mlacademy.softmax.combine`.
    """

    out: Tensor
    lse: Tensor
    lse_log2: Tensor
    steps: tuple[Step, ...]


def two_pass(scores: Tensor, values: Tensor, *, scale: float, valid: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Textbook safe softmax times values: one pass for the max, a second for exp, sum and the product.

    Same arguments, empty-row rule and errors as :func:`online_softmax`, natural exp, nothing rounded to bf16.
    Returns ``(out [..., d_v], lse [...])``.

    >>> two_pass(torch.tensor([2.0, 2.0]), torch.tensor([[1.0], [3.0]]), scale=1.0)[0]
    tensor([2.])
    """
    masked = masked_scores(scores, values, scale, valid) * scale
    top = masked.amax(dim=-1, keepdim=True)
    weights = torch.exp(masked - torch.where(top == -math.inf, 0.0, top))
    total = weights.sum(dim=-1)
    empty = total == 0
    out = torch.matmul(weights, values) / torch.where(empty, 1.0, total).unsqueeze(-1)
    return out, torch.where(empty, math.inf, top.squeeze(-1) + torch.log(total))


def online_softmax(
    scores: Tensor,
    values: Tensor,
    *,
    scale: float,
    block: int = 64,
    valid: Tensor | None = None,
    round_s: bool = True,
    rescale_above: float = 0.0,
) -> OnlineSoftmax:
    """softmax(scale * scores) @ values in one pass over blocks of ``block`` scores, in base 2.

    Args:
        scores: ``[..., n]`` float32 or float64, the raw dot products q·k. ``-inf`` is a hole. NaN, or ``+inf`` at a
            valid place, makes its row NaN.
        values: ``[n, d_v]``, or ``[..., n, d_v]`` where ``torch.matmul(scores, values)`` accepts it; same dtype as
            ``scores``. A hole's value row must be finite (0 * NaN is NaN); ``cache.gather`` gives zeros.
        scale: softmax scale in natural units, finite and above 0. It enters once, as ``scale * log2(e)`` inside exp2.
        block: scores a step; the last block may be shorter.
        valid: bool, broadcastable to ``scores``; False is a hole, whatever its score holds.
        round_s: round the unnormalised weights to bf16 for the product with ``values``, as the kernels do to feed the
            tensor cores. The running sum always adds the weights *before* that rounding, also as the kernels do.
        rescale_above: 0 moves the running max whenever a block exceeds it. A larger value (SM100 uses 6, in log2
            units) leaves it alone until a block exceeds it by more than that: weights may then reach 2^6 = 64.

    Raises:
        TypeError: dtypes other than float32/float64, unequal dtypes, ``valid`` not bool.
        ValueError: ``n`` differs or is 0; ``block`` below 1; ``scale`` not finite and above 0; ``rescale_above``
            negative.

    >>> r = online_softmax(torch.tensor([0.0, 1.0, 3.0, 2.0]), torch.eye(4), scale=1 / LOG2E, block=2)
    >>> [step.running_sum.item() for step in r.steps]  # 2^-1 + 2^0, then that times 2^(1-3) plus 2^0 + 2^-1
    [1.5, 1.875]
    """
    if isinstance(block, bool) or not isinstance(block, int):
        raise TypeError(f"block must be a whole number of scores: got {block!r}")
    if block < 1:
        raise ValueError(f"block must be at least 1 score: got {block}")
    if not rescale_above >= 0:
        raise ValueError(f"rescale_above must be 0 or more, in log2 units: got {rescale_above}")
    x_log2 = masked_scores(scores, values, scale, valid) * (scale * LOG2E)
    n = x_log2.shape[-1]
    running_max = torch.full_like(x_log2[..., 0], MAX_INIT)
    running_sum = torch.zeros_like(running_max)
    out: Tensor | None = None
    steps = []
    for index, start in enumerate(range(0, n, block)):
        stop = min(start + block, n)
        x = x_log2[..., start:stop]
        block_max = x.amax(dim=-1)
        new_max = torch.where(block_max > running_max + rescale_above, block_max, running_max)
        rescale = torch.exp2(running_max - new_max)  # old minus new: at most 1, and 0 at the first valid block
        weights = torch.exp2(x - new_max.unsqueeze(-1))
        block_sum = weights.sum(dim=-1)
        running_sum = running_sum * rescale + block_sum
        product = torch.matmul(_round_bf16(weights) if round_s else weights, values[..., start:stop, :])
        out = product if out is None else out * rescale.unsqueeze(-1) + product
        running_max = new_max
        steps.append(Step(index, start, stop, block_max, new_max, rescale, block_sum, running_sum))
    assert out is not None  # n >= 1 was checked, so there was a block
    empty = running_sum == 0
    out = out * torch.where(empty, 0.0, 1.0 / running_sum).unsqueeze(-1)
    lse_log2 = torch.log2(running_sum) + running_max  # log2(0) = -inf marks an empty partial
    return OnlineSoftmax(out, torch.where(empty, math.inf, lse_log2 / LOG2E), lse_log2, tuple(steps))


def _round_bf16(x: Tensor) -> Tensor:
    """``x`` rounded to bf16 (RNE, from its fp32 value as on the GPU), in its own dtype."""
    return x.to(torch.float32).to(torch.bfloat16).to(x.dtype)


def broadcasts(tensor: Tensor, against: Tensor) -> bool:
    """Whether ``tensor`` broadcasts against ``against`` without making it larger."""
    try:
        tensor.expand(against.shape)
    except RuntimeError:
        return False
    return True


def masked_scores(scores: Tensor, values: Tensor, scale: float, valid: Tensor | None) -> Tensor:
    """The scores with -inf at every hole, after checking the arguments that all passes share."""
    for name, tensor in (("scores", scores), ("values", values)):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} must be a torch tensor: got {type(tensor).__name__}")
        if tensor.dtype not in (torch.float32, torch.float64):
            raise TypeError(f"{name} must be float32 or float64: got {tensor.dtype}. Convert it with .float()")
    if scores.dtype != values.dtype:
        raise TypeError(f"scores and values must have one dtype: scores are {scores.dtype}, values {values.dtype}")
    if scores.ndim < 1 or values.ndim < 2 or scores.shape[-1] != values.shape[-2]:
        raise ValueError(
            "scores [..., n] and values [..., n, d_v] must agree on n: "
            f"scores are {list(scores.shape)}, values {list(values.shape)}"
        )
    if scores.shape[-1] == 0:
        raise ValueError("scores must hold at least one score a row: n is 0. Give an empty row one hole instead")
    if isinstance(scale, bool) or not isinstance(scale, (Real, Tensor)):
        raise TypeError(f"scale must be a number: got {scale!r}")
    if not (math.isfinite(scale) and scale > 0):
        raise ValueError(f"scale must be finite and above 0: got {scale}")
    if valid is None:
        return scores
    if not isinstance(valid, Tensor) or valid.dtype != torch.bool:
        raise TypeError(f"valid must be bool: got {valid.dtype if isinstance(valid, Tensor) else type(valid).__name__}")
    if not broadcasts(valid, scores):
        raise ValueError(f"valid must broadcast against scores {list(scores.shape)}: got shape {list(valid.shape)}")
    return torch.where(valid, scores, -math.inf)
