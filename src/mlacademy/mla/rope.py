"""Rotary position embedding: each pair of values is turned by an angle that grows with the position.

Two ways to choose the pairs are in use. DeepSeek's attention pairs neighbours, (0, 1), (2, 3), … ("interleaved"); many
other models pair the two halves, (0, d/2), (1, d/2 + 1), … ("half"). They differ by a fixed shuffle of the values,
the same for queries and keys, so a model trained with one can be run with the other after shuffling its weights. For
the equality of the naive and the absorbed form the choice does not matter at all: both use the same turned vectors.
Source for the pairing and for YaRN: DeepSeek-V3.2-Exp, ``inference/model.py``.
"""

from __future__ import annotations

import math
from numbers import Real
from typing import Literal

import torch

from mlacademy.config import MLAConfig

Pairing = Literal["interleaved", "half"]


def rope_frequencies(config: MLAConfig) -> torch.Tensor:
    """Angle in radians that one step of position adds, per pair: float64 ``[qk_rope_head_dim / 2]``.

    Without scaling pair ``i`` has ``rope_theta^(-2i/d)``. YaRN keeps the fast pairs, divides the slow ones by
    ``factor`` and blends linearly between. In DeepSeek-V3.2, of 32 pairs, 0–10 are kept and 23–31 are slowed 40 times.
    """
    d = config.qk_rope_head_dim
    plain = _plain_frequencies(d, config.rope_theta)
    yarn = config.rope_scaling
    if yarn is None:
        return plain

    def pair_that_turns(turns: float) -> float:
        # Solve original · theta^(-2i/d) = 2π · turns for i.
        wavelengths = yarn.original_max_position_embeddings / (2 * math.pi * turns)
        return d * math.log(wavelengths) / (2 * math.log(config.rope_theta))

    first = max(math.floor(pair_that_turns(yarn.beta_fast)), 0)
    last = max(min(math.ceil(pair_that_turns(yarn.beta_slow)), d - 1), first)
    width = last - first or 0.001  # a step instead of a ramp when both fall on one pair
    slowed = ((torch.arange(d // 2, dtype=torch.float64) - first) / width).clamp(0, 1)
    return plain * (1 - slowed) + plain / yarn.factor * slowed


def _plain_frequencies(d: int, theta: float) -> torch.Tensor:
    return torch.pow(float(theta), -torch.arange(0, d, 2, dtype=torch.float64) / d)


def rope(
    x: torch.Tensor,
    positions: torch.Tensor,
    theta: float = 10_000.0,
    *,
    frequencies: torch.Tensor | None = None,
    pairing: Pairing = "interleaved",
) -> torch.Tensor:
    """Turn every pair of ``x`` ``[..., d]`` by ``position · frequency``; shape and dtype stay.

    ``positions`` (integers) must broadcast against ``x.shape[:-1]``: for queries ``[b, s, h, d]`` pass ``[b, s, 1]``.
    ``frequencies`` ``[d / 2]`` replaces ``theta``, see :func:`rope_frequencies`. Angles are computed in float64: in
    float32 the angle of the fastest pair is off by up to 0.008 rad at position 163,840.

    A quarter turn of the first pair (frequency π/2, position 1):

    >>> quarter = torch.tensor([math.pi / 2], dtype=torch.float64)
    >>> rope(torch.tensor([[3.0, 4.0]]), torch.tensor([1]), frequencies=quarter)
    tensor([[-4.,  3.]])

    Raises ``TypeError`` for ``x`` that is no floating-point tensor and positions that are no integers, ``ValueError``
    for an odd ``d``, a ``theta`` that is not finite and above 0, a wrong number of frequencies, positions that do not
    fit, or an unknown pairing.
    """
    if not isinstance(x, torch.Tensor) or not x.is_floating_point():
        raise TypeError(f"x must be a floating-point tensor: got {_kind(x)}")
    if not isinstance(positions, torch.Tensor) or positions.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"positions must be an int32 or int64 tensor: got {_kind(positions)}")
    d = x.shape[-1] if x.ndim else 0
    if d == 0 or d % 2:
        raise ValueError(f"x must have an even last dimension, since RoPE turns pairs: got shape {tuple(x.shape)}")
    if frequencies is None:
        if isinstance(theta, bool) or not isinstance(theta, Real):
            raise TypeError(f"theta must be a number: got {theta!r}")
        if not (math.isfinite(theta) and theta > 0):
            raise ValueError(f"theta must be finite and above 0: got {theta}")
        frequencies = _plain_frequencies(d, theta)
    if frequencies.shape != (d // 2,):
        raise ValueError(f"frequencies must have shape ({d // 2},), one a pair: got {tuple(frequencies.shape)}")
    try:
        positions = positions.expand(x.shape[:-1])
    except RuntimeError:
        raise ValueError(
            f"positions must broadcast against {tuple(x.shape[:-1])}: got {tuple(positions.shape)}. "
            "Is an axis of length 1 missing for the heads?"
        ) from None
    angles = positions.to(torch.float64).unsqueeze(-1) * frequencies
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    if pairing == "interleaved":
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)
    if pairing == "half":
        low, high = x[..., : d // 2], x[..., d // 2 :]
        return torch.cat([low * cos - high * sin, low * sin + high * cos], dim=-1)
    raise ValueError(f"pairing must be 'interleaved' or 'half': got {pairing!r}")


def _kind(value: object) -> str:
    return f"a tensor of {value.dtype}" if isinstance(value, torch.Tensor) else type(value).__name__
