"""The two 8-bit formats of the cache, from their bits: E4M3 values and E8M0 scales, and per-tile quantisation.

E4M3 is 1 sign, 4 exponent (bias 7) and 3 mantissa bits: 254 finite codes, ±448 at most, no infinity, one NaN
pattern per sign. E8M0 is 8 exponent bits (bias 127) and nothing else: the powers of two from 2^-127 to 2^127, and
0xFF for NaN. Both are defined by the OCP 8-bit floating point and microscaling (MX) specifications.

Every function takes a Python number, a NumPy array or a torch tensor and answers in kind. Arithmetic is exact
up to the one rounding that is named: a float64 input is rounded once, never first to float32. This module does not
import torch.

>>> decode_e4m3(0x38), encode_e4m3(1.0), encode_e4m3(17.0), encode_e4m3(19.0)
(1.0, 56, 88, 90)

17 lies halfway between 16 and 18 and goes to 16, whose last mantissa bit is 0; 19 goes to 20 for the same reason.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mlacademy._native import core

Restore = Callable[[NDArray[Any]], Any]

E4M3_MAX = 448.0
"""The largest E4M3 value, 1.75 · 2^8, code 0x7E."""
E4M3_MIN_NORMAL = 2.0**-6
"""The smallest E4M3 value with a full mantissa, code 0x08."""
E4M3_MIN_SUBNORMAL = 2.0**-9
"""The smallest positive E4M3 value and the step of all subnormals, code 0x01."""
E4M3_NAN = 0x7F
"""The code that every NaN is encoded to. 0xFF decodes to NaN as well."""

_E8M0_NAN = 0xFF
_E8M0_BIAS = 127


def _e4m3_value(code: int) -> float:
    """One E4M3 code by the definition: s eeee mmm."""
    sign = -1.0 if code & 0b1_0000_000 else 1.0
    exponent = (code & 0b0_1111_000) >> 3
    mantissa = code & 0b0_0000_111
    if code & 0x7F == E4M3_NAN:
        return float("nan")
    if exponent == 0:
        return sign * mantissa * E4M3_MIN_SUBNORMAL
    return sign * (1 + mantissa / 8) * 2.0 ** (exponent - 7)


_E4M3_TABLE = np.array([_e4m3_value(code) for code in range(256)], dtype=np.float32)
_E8M0_TABLE = np.array([2.0 ** (code - _E8M0_BIAS) for code in range(255)] + [np.nan], dtype=np.float32)


def decode_e4m3(codes: Any) -> Any:
    """The float32 value of each E4M3 code.

    ``codes``: integers 0 to 255 of any shape (or a torch ``float8_e4m3fn`` tensor). Raises ``TypeError`` for
    non-integers and ``ValueError`` for integers that are not a byte.
    """
    array, restore = _codes(codes, "codes")
    native = core()
    return restore(_E4M3_TABLE[array] if native is None else native.decode_e4m3(array))


def encode_e4m3(x: Any, *, overflow: Literal["saturate", "nan"] = "saturate") -> Any:
    """The E4M3 code of each value, rounded to nearest, ties to the even mantissa, as uint8.

    ``overflow`` says what becomes of a value that rounds beyond 448 (all above 464; 464 itself is a tie and goes to
    448): ``"saturate"`` gives ±448 and does so for infinities too, as PTX's ``cvt.rn.satfinite`` does; ``"nan"``
    gives NaN for both, as ``ml_dtypes`` does (torch's cast did before 2.12, and saturates since). NaN becomes 0x7F in
    either mode.
    """
    if overflow not in ("saturate", "nan"):
        raise ValueError(f"overflow must be 'saturate' or 'nan': it is {overflow!r}")
    array, restore = _floats(x, "x")
    native = core()
    if native is not None and array.dtype == np.float32:
        return restore(native.encode_e4m3(array, overflow == "saturate"))
    return restore(_encode_e4m3_twin(array, overflow == "saturate"))


def _encode_e4m3_twin(x: NDArray[Any], saturate: bool) -> NDArray[np.uint8]:
    finite = np.where(np.isfinite(x), x, np.copysign(1024.0, x))
    # E4M3 has 3 mantissa bits and its smallest normal exponent is -6
    exponent, steps = _round_to_steps(np.abs(finite), mantissa_bits=3, min_exponent=-6)
    # 8 steps of a binade per exponent; a carry into the next binade needs no special case
    magnitude = (exponent + 6) * 8 + steps.astype(np.int64)
    magnitude = np.where(magnitude > 0x7E, 0x7E if saturate else E4M3_NAN, magnitude)
    codes = np.where(np.signbit(finite), magnitude | 0x80, magnitude)
    return np.where(np.isnan(x), E4M3_NAN, codes).astype(np.uint8)


def _round_to_steps(a: NDArray[Any], *, mantissa_bits: int, min_exponent: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Write ``a`` >= 0 as ``steps · 2^(exponent - mantissa_bits)`` with an integer ``steps``, RNE.

    ``steps`` is 2^mantissa_bits to 2^(mantissa_bits + 1) for a normal result and smaller for a subnormal one. Scaling
    by a power of two is exact in float64, so ``rint`` is the only rounding.
    """
    wide = a.astype(np.float64)
    exponent = np.where(wide > 0, np.maximum(np.frexp(wide)[1].astype(np.int64) - 1, min_exponent), min_exponent)
    return exponent, np.rint(np.ldexp(wide, mantissa_bits - exponent))


def e4m3_neighbours(x: Any) -> tuple[Any, Any, Any]:
    """The E4M3 values around each ``x``, as float32: the largest <= x, the one it rounds to, the smallest >= x.

    All three are equal when ``x`` is an E4M3 value. Beyond ±448 the outer neighbour does not exist and is given as
    ±inf; the nearest is ±448. Raises ``ValueError`` for NaN.
    """
    array, restore = _floats(x, "x")
    if np.isnan(array).any():
        raise ValueError("x must be numbers: NaN has no neighbours")
    positive = _E4M3_TABLE[1:E4M3_NAN].astype(np.float64)
    grid = np.concatenate(([-np.inf], -positive[::-1], [0.0], positive, [np.inf]))
    below = grid[np.searchsorted(grid, array, side="right") - 1]
    above = grid[np.searchsorted(grid, array, side="left")]
    nearest = _E4M3_TABLE[_encode_e4m3_twin(array, True)]
    return restore(below.astype(np.float32)), restore(nearest), restore(above.astype(np.float32))


def decode_e8m0(codes: Any) -> Any:
    """The float32 value 2^(code - 127) of each E8M0 code; 0xFF is NaN. ``codes`` as for :func:`decode_e4m3`."""
    array, restore = _codes(codes, "codes")
    native = core()
    return restore(_E8M0_TABLE[array] if native is None else native.decode_e8m0(array))


def encode_e8m0(x: Any, *, rounding: Literal["up", "nearest", "down"] = "up") -> Any:
    """The E8M0 code of a power of two near each ``x`` > 0, as uint8. NaN becomes 0xFF.

    ``"up"`` is the smallest E8M0 value >= x (what quantisation needs, so that nothing overflows), ``"down"`` the
    largest <= x (a truncation of the mantissa), ``"nearest"`` the closer one, with the tie 1.5 · 2^k going up. The
    exponent is read from the bits of ``x``: ``ceil(log2(x))`` in float32 is wrong next to powers of two.
    Raises ``ValueError`` for zero, negative and infinite values and where no E8M0 value answers.
    """
    if rounding not in ("up", "nearest", "down"):
        raise ValueError(f"rounding must be 'up', 'nearest' or 'down': it is {rounding!r}")
    array, restore = _floats(x, "x")
    nan = np.isnan(array)
    bad = ~nan & ~((array > 0) & np.isfinite(array))
    if bad.any():
        where, value = _first(bad), array[bad][0]
        raise ValueError(f"x must be positive and finite, E8M0 has no sign, zero or infinity: x{where} is {value}")
    power = _round_to_power(np.where(nan, 1.0, array.astype(np.float64)), rounding)
    outside = (power < -_E8M0_BIAS) | (power > _E8M0_BIAS)
    if outside.any():
        where, value = _first(outside), array[outside][0]
        raise ValueError(f"x must round {rounding} to a power of two from 2^-127 to 2^127: x{where} is {value}")
    native = core()
    if native is not None and array.dtype == np.float32:
        return restore(native.encode_e8m0(array, rounding))
    return restore(np.where(nan, _E8M0_NAN, power + _E8M0_BIAS).astype(np.uint8))


def _round_to_power(x: NDArray[np.float64], rounding: str) -> NDArray[np.int64]:
    """The exponent of the power of two that ``x`` > 0 rounds to; -127 for everything smaller when rounding up."""
    fraction, exponent = np.frexp(x)  # x = fraction · 2^exponent, fraction in [0.5, 1)
    threshold = {"up": np.nextafter(0.5, 1), "nearest": 0.75, "down": 1.0}[rounding]
    power: NDArray[np.int64] = exponent.astype(np.int64) - (fraction < threshold)
    return np.maximum(power, -_E8M0_BIAS) if rounding == "up" else power


def round_bf16(x: Any) -> Any:
    """Each value rounded to bfloat16 (8 exponent, 7 mantissa bits), ties to even, returned as float32.

    Values beyond the largest bfloat16, 255 · 2^120, round to infinity as IEEE 754 says; NaN stays NaN.

    >>> round_bf16(1 + 2**-8), round_bf16(1 + 2**-8 + 2**-20)
    (1.0, 1.0078125)
    """
    array, restore = _floats(x, "x")
    finite = np.where(np.isfinite(array), array, 0.0)
    exponent, steps = _round_to_steps(np.abs(finite), mantissa_bits=7, min_exponent=-126)
    rounded = np.copysign(np.ldexp(steps, exponent - 7), finite)
    rounded = np.where(np.abs(rounded) >= 2.0**128, np.copysign(np.inf, finite), rounded).astype(np.float32)
    return restore(np.where(np.isfinite(array), rounded, array.astype(np.float32)))


@dataclass(frozen=True)
class TileRule:
    """How the scale of one tile of values follows from its largest magnitude ``amax``.

    The scale is ``max(max(amax, min_amax) / 448, min_scale)`` rounded up to a power of two, and it is the multiplier
    at read time: ``x ≈ decode(code) · scale``.

    ``tile``: values that share a scale. ``scale_format``: how the cache stores it, ``"float32"`` or ``"e8m0"``.
    """

    name: str
    tile: int
    scale_format: Literal["float32", "e8m0"]
    min_scale: float = 0.0
    min_amax: float = 0.0

    def scale(self, amax: Any) -> Any:
        """The float32 scale of tiles with these maxima: a power of two s with amax <= 448 · s.

        >>> V32_RULE.scale(0.75), V32_RULE.scale(0.875), V32_RULE.scale(0.0)
        (0.001953125, 0.001953125, 0.0001220703125)
        """
        array, restore = _floats(amax, "amax")
        if not (np.isfinite(array) & (array >= 0)).all():
            raise ValueError("amax must be finite and not negative: it is the largest magnitude of a tile")
        multiplier = np.maximum(np.maximum(array.astype(np.float64), self.min_amax) / E4M3_MAX, self.min_scale)
        return restore(_E8M0_TABLE[encode_e8m0(multiplier, rounding="up")])


V32_RULE = TileRule("V3.2", tile=128, scale_format="float32", min_scale=1e-4)
"""DeepSeek-V3.2's cache: 4 scales for 512 values, stored as float32. The clamp makes 2^-13 the smallest scale."""
MODEL1_RULE = TileRule("MODEL1", tile=64, scale_format="e8m0", min_scale=1e-4)
"""The MODEL1 cache: 7 scales for 448 values, stored as E8M0. The same clamp."""
DEEPGEMM_RULE = TileRule("DeepGEMM", tile=128, scale_format="float32", min_amax=1e-4)
"""What DeepGEMM's tests do: they clamp ``amax``, not the scale, so the smallest scale is 2^-22."""


def quantize_tiles(x: Any, rule: TileRule) -> tuple[Any, Any]:
    """Quantise the last axis in tiles: ``x[..., d]`` to ``(codes uint8[..., d], scales float32[..., d // tile])``.

    ``code = E4M3(x / scale)``, to nearest even; the division is exact because the scale is a power of two, and nothing
    saturates because ``amax / scale <= 448``. Raises ``ValueError`` when ``d`` is not a positive multiple of the
    tile or a tile holds NaN or infinity.
    """
    array, restore = _floats(x, "x")
    if array.ndim == 0 or array.shape[-1] % rule.tile or array.shape[-1] == 0:
        raise ValueError(
            f"x must have a last axis that is a positive multiple of the tile, {rule.tile}: its shape is {array.shape}"
        )
    tiles = array.reshape(*array.shape[:-1], -1, rule.tile)
    if not np.isfinite(tiles).all():
        *tile, element = (int(i) for i in np.argwhere(~np.isfinite(tiles))[0])
        value = tiles[(*tile, element)]
        raise ValueError(
            f"x must be finite: tile {tile} holds {value} at its element {element}. "
            "One such value would spoil the scale of its whole tile"
        )
    scales = np.asarray(rule.scale(np.abs(tiles).max(axis=-1)), dtype=np.float32)
    scaled = tiles / scales[..., None].astype(tiles.dtype)
    codes = np.asarray(encode_e4m3(scaled), dtype=np.uint8).reshape(array.shape)
    return restore(codes), restore(scales)


def dequantize_tiles(codes: Any, scales: Any, *, read_as: Literal["float32", "sm90", "sm100"] = "float32") -> Any:
    """``decode(codes) · scales`` with one scale per tile, as float32 ``[..., d]``.

    ``codes``: ``[..., d]``; ``scales``: float32 ``[..., d // tile]``; the tile is found from the two shapes.
    ``read_as`` says what the reader does with the scale: ``"float32"`` multiplies in float32; ``"sm90"`` first rounds
    the scale to bfloat16 and rounds the product to bfloat16; ``"sm100"`` first cuts the scale down to a power of
    two. For the power-of-two scales that :func:`quantize_tiles` makes, all three are exact and equal.
    """
    if read_as not in ("float32", "sm90", "sm100"):
        raise ValueError(f"read_as must be 'float32', 'sm90' or 'sm100': it is {read_as!r}")
    code_array, restore = _codes(codes, "codes")
    scale_array = _floats(scales, "scales")[0].astype(np.float32)
    fits = code_array.ndim == scale_array.ndim > 0 and code_array.shape[:-1] == scale_array.shape[:-1]
    if not fits or scale_array.shape[-1] == 0 or code_array.shape[-1] % scale_array.shape[-1]:
        raise ValueError(
            "scales must have the shape of codes with the last axis divided by the tile: "
            f"codes has {code_array.shape}, scales has {scale_array.shape}"
        )
    if read_as == "sm90":
        scale_array = np.asarray(round_bf16(scale_array))
    elif read_as == "sm100":
        scale_array = _E8M0_TABLE[encode_e8m0(scale_array, rounding="down")]
    tiles = _E4M3_TABLE[code_array].reshape(*scale_array.shape, -1)
    values = (tiles * scale_array[..., None]).reshape(code_array.shape)
    return restore(values if read_as == "float32" else np.asarray(round_bf16(values)))


@dataclass(frozen=True)
class ErrorStats:
    """How far ``approx`` lies from ``exact``, over all elements, computed in float64.

    ``max_abs``: largest |error|. ``max_rel``: largest |error| / |exact| where exact is not 0. ``rms_rel``: root mean
    square of the error over that of exact. ``cosine``: cosine of the angle between the two. ``calc_diff``:
    1 - 2·Σxy / Σ(x² + y²), DeepGEMM's measure, which unlike the cosine notices a common factor.
    """

    max_abs: float
    max_rel: float
    rms_rel: float
    cosine: float
    calc_diff: float


def error_stats(exact: Any, approx: Any) -> ErrorStats:
    """Compare two arrays of one shape. Raises ``ValueError`` for unequal shapes, no elements, or NaN and infinity."""
    x, y = (_floats(a, name)[0].astype(np.float64) for a, name in ((exact, "exact"), (approx, "approx")))
    if x.shape != y.shape or x.size == 0:
        raise ValueError(f"exact and approx must have one shape with elements: they have {x.shape} and {y.shape}")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError("exact and approx must be finite: an error statistic over NaN or infinity says nothing")
    error = np.abs(y - x)
    nonzero = x != 0
    sum_xx, sum_yy, sum_xy = float((x * x).sum()), float((y * y).sum()), float((x * y).sum())
    both_zero = sum_xx == sum_yy == 0
    return ErrorStats(
        max_abs=float(error.max()),
        max_rel=float((error[nonzero] / np.abs(x[nonzero])).max()) if nonzero.any() else 0.0,
        rms_rel=float(np.sqrt((error**2).sum() / sum_xx)) if sum_xx else (0.0 if both_zero else float("inf")),
        cosine=sum_xy / float(np.sqrt(sum_xx) * np.sqrt(sum_yy)) if sum_xx and sum_yy else float(both_zero),
        calc_diff=0.0 if both_zero else 1 - 2 * sum_xy / (sum_xx + sum_yy),
    )


def _split(value: Any, name: str, *, raw: bool = False) -> tuple[NDArray[Any], Restore]:
    """``value`` as an array, and the function that turns a result into the kind of ``value``.

    ``raw``: take the 8-bit float tensors of torch as their bytes instead of refusing them.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        tensor = value.detach().cpu()
        if tensor.dtype in (torch.float8_e4m3fn, torch.float8_e8m0fnu):
            if not raw:
                raise TypeError(f"{name} must be real numbers: its dtype is {tensor.dtype}. Decode it first")
            tensor = tensor.view(torch.uint8)
        elif tensor.dtype == torch.bfloat16:
            tensor = tensor.float()
        return tensor.numpy(), lambda result: torch.from_numpy(np.ascontiguousarray(result)).to(value.device)
    array = np.asarray(value)
    if array.ndim == 0 and not isinstance(value, np.ndarray):
        return array, lambda result: result.item() if isinstance(value, (int, float)) else result[()]
    if array.dtype == object:
        raise TypeError(f"{name} must be numbers: it is {type(value).__name__}")
    return array, lambda result: result


def _floats(value: Any, name: str) -> tuple[NDArray[Any], Restore]:
    """As :func:`_split`, in float32 or float64. Integers become float64."""
    array, restore = _split(value, name)
    if array.dtype == np.float16:
        array = array.astype(np.float32)
    elif array.dtype.kind in "iu":
        array = array.astype(np.float64)
    if array.dtype not in (np.float32, np.float64):
        raise TypeError(f"{name} must be real numbers: its dtype is {array.dtype}")
    return array, restore


def _codes(value: Any, name: str) -> tuple[NDArray[np.uint8], Restore]:
    """As :func:`_split`, as bytes."""
    array, restore = _split(value, name, raw=True)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers, one byte each: its dtype is {array.dtype}")
    outside = (array < 0) | (array > 255)
    if array.dtype != np.uint8 and outside.any():
        raise ValueError(f"{name} must be bytes, 0 to 255: {name}{_first(outside)} is {array[outside][0]}")
    return array.astype(np.uint8, copy=False), restore


def _first(mask: NDArray[np.bool_]) -> str:
    """The index of the first true element as text, ``"[2, 0]"``; empty for a scalar."""
    return str([int(i) for i in np.argwhere(mask)[0]]) if mask.ndim else ""
