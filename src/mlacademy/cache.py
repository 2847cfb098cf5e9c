"""The paged FP8 cache: what one token's bytes are, where they lie, how tokens are written and read.

A cache is a uint8 tensor ``[num_pages, page, 1, bytes_per_token]``. A token is named by its physical slot,
``page_index * page + offset``. Two layouts exist:

* ``V32``, 656 bytes a token, one token after the other: 512 × E4M3, then 4 × float32 scales, then 64 × bfloat16 RoPE.
* ``MODEL1``, 584 bytes a token, split inside the page: first 448 × E4M3 and 64 × bfloat16 of every token (576 bytes
  each), then 7 × E8M0 scales and a zero byte of every token (8 bytes each), then padding up to a multiple of 576.
  The tensor's last axis is 584 although the bytes of one token are not neighbours.

Scales are multipliers at read time. Layouts as in the public FlashMLA interface.
"""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass
from types import ModuleType
from typing import TypeVar

import torch
from torch import Tensor

from mlacademy._native import core
from mlacademy.fp8 import (
    MODEL1_RULE,
    V32_RULE,
    TileRule,
    decode_e4m3,
    decode_e8m0,
    encode_e8m0,
    quantize_tiles,
)

Index = TypeVar("Index", int, Tensor)


@dataclass(frozen=True)
class CacheLayout:
    """The bytes of one token and of one page.

    ``d_nope`` quantised values, ``d_rope`` bfloat16 values, ``d_v`` values that serve as V (the first ones of a
    token), ``scale_bytes`` for all scales of a token with their padding, ``rule`` for quantising, ``split`` when the
    scales stand apart at the end of the page, ``block_multiple``: a page's stride in bytes is rounded up to it.
    """

    name: str
    d_nope: int
    d_rope: int
    d_v: int
    scale_bytes: int
    rule: TileRule
    split: bool
    block_multiple: int

    @property
    def tile(self) -> int:
        """Values that share one scale."""
        return self.rule.tile

    @property
    def num_tiles(self) -> int:
        """Scales of one token."""
        return self.d_nope // self.tile

    @property
    def d_qk(self) -> int:
        """Values of one token: what a query is multiplied with."""
        return self.d_nope + self.d_rope

    @property
    def bytes_per_token(self) -> int:
        """Bytes of one token, without the padding of its page."""
        return self.d_nope + self.scale_bytes + 2 * self.d_rope

    def block_stride(self, page: int) -> int:
        """Bytes from one page of ``page`` tokens to the next."""
        _positive("page", page)
        return -(-page * self.bytes_per_token // self.block_multiple) * self.block_multiple

    def columns(self, page: int) -> dict[str, tuple[int, int, int]]:
        """Each field as ``(base, step, width)`` in bytes: the token at ``offset`` has it at base + offset · step.

        >>> MODEL1.columns(64)["scale"]
        (36864, 8, 7)
        """
        _positive("page", page)
        rope, scale = 2 * self.d_rope, self.num_tiles * (4 if self.rule.scale_format == "float32" else 1)
        if not self.split:
            step = self.bytes_per_token
            scale_at = self.d_nope
            return {
                "nope": (0, step, self.d_nope),
                "scale": (scale_at, step, scale),
                "rope": (scale_at + self.scale_bytes, step, rope),
            }
        step, tail = self.d_nope + rope, page * (self.d_nope + rope)
        return {
            "nope": (0, step, self.d_nope),
            "rope": (self.d_nope, step, rope),
            "scale": (tail, self.scale_bytes, scale),
            "pad": (tail + scale, self.scale_bytes, self.scale_bytes - scale),
        }

    def fields(self, page: int, offset: int) -> dict[str, tuple[int, int]]:
        """The byte ranges ``(start, stop)`` inside a page of the token at ``offset``, in the order of their addresses.

        Keys: ``nope``, ``scale``, ``rope``, and for MODEL1 ``pad``, the zero byte after the scales.

        >>> V32.fields(64, 0)
        {'nope': (0, 512), 'scale': (512, 528), 'rope': (528, 656)}
        """
        if not 0 <= offset < page:
            raise ValueError(f"offset must be 0 to {page - 1} in a page of {page}: it is {offset}")
        return {
            name: (base + offset * step, base + offset * step + width)
            for name, (base, step, width) in self.columns(page).items()
        }


V32 = CacheLayout("V3.2", 512, 64, 512, 16, V32_RULE, split=False, block_multiple=656)
"""DeepSeek-V3.2: 656 bytes, d_qk 576, V is the 512 quantised values."""
MODEL1 = CacheLayout("MODEL1", 448, 64, 512, 8, MODEL1_RULE, split=True, block_multiple=576)
"""MODEL1: 584 bytes, d_qk 512, V is all 512 values, RoPE included."""

_LAYOUTS = {"V32": V32, "V3.2": V32, "MODEL1": MODEL1}


def layout(name: str) -> CacheLayout:
    """The layout called ``"V32"`` (or ``"V3.2"``) or ``"MODEL1"``."""
    if name not in _LAYOUTS:
        raise ValueError(f"layout must be one of {', '.join(_LAYOUTS)}: it is {name!r}")
    return _LAYOUTS[name]


def new_cache(layout: CacheLayout, num_pages: int, page: int) -> Tensor:
    """An empty cache of zero bytes, uint8 ``[num_pages, page, 1, bytes_per_token]``, on the CPU.

    ``stride(0)`` is ``layout.block_stride(page)``, which for MODEL1 is more than the page's bytes: such a tensor
    is not contiguous, and ``.contiguous()`` would lose the padding.
    """
    _positive("num_pages", num_pages)
    _check_layout(layout)
    stride, per_token = layout.block_stride(page), layout.bytes_per_token
    storage = torch.zeros(num_pages * stride, dtype=torch.uint8)
    return storage.as_strided((num_pages, page, 1, per_token), (stride, per_token, per_token, 1))


def slot_of(page_index: Index, offset: Index, page: int) -> Index:
    """The physical slot ``page_index * page + offset`` of integers or integer tensors.

    Raises ``TypeError`` for anything but whole numbers, ``ValueError`` for a negative page index, an offset outside
    0 … page - 1, or a slot beyond the tensors' dtype (int32 when all of them are).
    """
    _positive("page", page)
    _check_index("page_index", page_index)
    _check_index("offset", offset)
    if _any(page_index < 0):
        raise ValueError(f"page_index must not be negative: it is {page_index}")
    if _any(offset < 0) or _any(offset >= page):
        raise ValueError(f"offset must be 0 to {page - 1} in a page of {page}: it is {offset}")
    if (dtype := _integer_type(page_index, offset)) and _any(page_index > (torch.iinfo(dtype).max - offset) // page):
        raise ValueError(f"page_index must give slots that fit in {dtype}: it is {page_index} of {page} tokens a page")
    return page_index * page + offset


def locate(slot: Index, page: int) -> tuple[Index, Index]:
    """``(page_index, offset)`` of a physical slot; the inverse of :func:`slot_of`. Raises for negative slots.

    >>> locate(2091, 64)
    (32, 43)
    """
    _positive("page", page)
    _check_index("slot", slot)
    if _any(slot < 0):
        raise ValueError(f"slot must not be negative, a hole (-1) lies in no page: it is {slot}")
    return slot // page, slot % page


def append(cache: Tensor, slots: Tensor, nope: Tensor, rope: Tensor, layout: CacheLayout) -> None:
    """Quantise ``n`` tokens and store them in place.

    ``slots``: int32 or int64 ``[n]``, distinct, each inside the cache; ``nope``: floating ``[n, d_nope]``; ``rope``:
    floating ``[n, d_rope]``, rounded to bfloat16. All on the CPU. Raises ``ValueError`` for a slot outside the
    cache (−1 included: a hole can be read, not written), for a slot given twice, and for NaN, infinity or a RoPE
    value beyond bfloat16; then nothing has been written.
    """
    pages, page = _pages(cache, layout)
    _check_slots(slots)
    n = _check_rows("nope", nope, layout.d_nope)
    if slots.ndim != 1 or len(slots) != n or _check_rows("rope", rope, layout.d_rope) != n:
        raise ValueError(
            "slots, nope and rope must agree on the number of tokens: "
            f"slots has shape {tuple(slots.shape)}, nope {tuple(nope.shape)}, rope {tuple(rope.shape)}"
        )
    slots = slots.long()
    capacity = len(pages) * page
    outside = (slots < 0) | (slots >= capacity)
    if outside.any():
        raise ValueError(
            f"slots must lie in the cache, 0 to {capacity - 1}: slots{_first(outside)} is {int(slots[outside][0])}"
        )
    values, counts = torch.unique(slots, return_counts=True)
    if len(values) != n:
        raise ValueError(f"slots must be distinct within one call: {int(values[counts > 1][0])} stands more than once")
    if not nope.dtype == rope.dtype == torch.bfloat16:
        nope, rope = nope.float(), rope.float()
    nope, rope = nope.contiguous(), rope.contiguous()
    native = core()
    if native is None or not _append_native(native, pages, page, slots, nope, rope, layout):
        _append_twin(pages, page, slots, nope, rope, layout)


def _append_native(
    native: ModuleType, pages: Tensor, page: int, slots: Tensor, nope: Tensor, rope: Tensor, layout: CacheLayout
) -> bool:
    """False, with nothing written, when a value is not finite; the twin then says which."""
    page_map, rows = _page_map(native, layout, page), (nope.detach(), rope.detach())
    if nope.dtype == torch.bfloat16:
        bits = (row.view(torch.uint16).numpy() for row in rows)
        return bool(native.append_bf16(pages.numpy(), page_map, slots.numpy(), *bits))
    return bool(native.append_float32(pages.numpy(), page_map, slots.numpy(), *(row.numpy() for row in rows)))


@functools.cache
def _page_map(native: ModuleType, layout: CacheLayout, page: int) -> object:
    columns = layout.columns(page)
    return native.PageMap(
        page=page,
        tile=layout.tile,
        e8m0_scales=layout.rule.scale_format == "e8m0",
        min_power=encode_e8m0(layout.rule.scale(0.0)) - 127,
        **{"pad": (0, 0, 0), **columns},
    )


def _append_twin(pages: Tensor, page: int, slots: Tensor, nope: Tensor, rope: Tensor, layout: CacheLayout) -> None:
    stored_rope = rope.to(torch.bfloat16)
    infinite = ~torch.isfinite(stored_rope)
    if infinite.any():
        raise ValueError(
            f"rope must be finite in bfloat16: rope{_first(infinite)} is {rope[infinite][0].item()} before rounding"
        )
    infinite = ~torch.isfinite(nope)
    if infinite.any():
        raise ValueError(
            f"nope must be finite: nope{_first(infinite)} is {nope[infinite][0].item()}. "
            f"One such value would spoil the scale of its whole tile of {layout.tile}"
        )
    codes, scales = quantize_tiles(nope, layout.rule)
    scale_bytes = encode_e8m0(scales) if layout.rule.scale_format == "e8m0" else scales.view(torch.uint8)
    content = {"nope": codes, "scale": scale_bytes, "rope": stored_rope.view(torch.uint8)}
    for name, where in _addresses(slots, page, layout).items():
        pages[where] = content.get(name, torch.zeros((), dtype=torch.uint8))


def gather(cache: Tensor, slots: Tensor, layout: CacheLayout, *, out: Tensor | None = None) -> Tensor:
    """Read and dequantise tokens: float32 ``[*slots.shape, d_qk]``, the NoPE values first, then the RoPE values.

    ``slots``: int32 or int64 of any shape; −1 is a hole and gives a row of zeros without reading anything. A slot
    may stand several times. ``out``: a contiguous float32 tensor of the result's shape to fill and return, for
    callers in a loop; fresh memory costs more than the decoding. Raises ``ValueError`` for any other slot outside
    the cache. A float32 scale that is not a power of two is multiplied in float32 as it stands.
    """
    pages, page = _pages(cache, layout)
    _check_slots(slots)
    flat = slots.reshape(-1).long()
    capacity = len(pages) * page
    outside = (flat < -1) | (flat >= capacity)
    if outside.any():
        raise ValueError(
            f"slots must be -1 (a hole) or lie in the cache, 0 to {capacity - 1}: "
            f"slots{_first(outside.reshape(slots.shape))} is {int(flat[outside][0])}"
        )
    shape = (*slots.shape, layout.d_qk)
    if out is None:
        out = torch.empty(shape, dtype=torch.float32)
    elif out.dtype != torch.float32 or tuple(out.shape) != shape or not out.is_contiguous():
        raise ValueError(
            f"out must be contiguous float32 of the shape {list(shape)}: it is {out.dtype} of {list(out.shape)} "
            f"with strides {out.stride()}"
        )
    native = core()
    if native is not None:
        native.gather(pages.numpy(), _page_map(native, layout, page), flat.numpy(), out.numpy())
    else:
        held = slots >= 0
        out.zero_()
        out[held] = _gather_twin(pages, page, slots[held].long(), layout)
    return out


def _gather_twin(pages: Tensor, page: int, slots: Tensor, layout: CacheLayout) -> Tensor:
    fields = {name: pages[where] for name, where in _addresses(slots, page, layout).items()}
    scales = fields["scale"]
    scales = decode_e8m0(scales) if layout.rule.scale_format == "e8m0" else scales.view(torch.float32)
    nope = decode_e4m3(fields["nope"]).unflatten(-1, (-1, layout.tile)) * scales[..., None]
    return torch.cat([nope.flatten(-2), fields["rope"].view(torch.bfloat16).float()], dim=-1)


def _addresses(slots: Tensor, page: int, layout: CacheLayout) -> dict[str, tuple[Tensor, Tensor]]:
    """For each field, the index pair ``(row [n, 1], column [n, width])`` of its bytes in ``_pages``."""
    index, offset = slots[:, None] // page, slots[:, None] % page
    return {
        name: (index, base + offset * step + torch.arange(width))
        for name, (base, step, width) in layout.columns(page).items()
    }


def _pages(cache: Tensor, layout: CacheLayout) -> tuple[Tensor, int]:
    """The bytes of each page, uint8 ``[num_pages, page * bytes_per_token]`` in the cache's own memory, and ``page``."""
    _check_layout(layout)
    per_token = layout.bytes_per_token
    if not isinstance(cache, Tensor):
        raise TypeError(f"cache must be a torch tensor: it is {type(cache).__name__}")
    if cache.dtype not in (torch.uint8, torch.int8, torch.float8_e4m3fn):
        raise TypeError(f"cache must be uint8 (int8 and float8_e4m3fn pass as bytes): its dtype is {cache.dtype}")
    if cache.ndim != 4 or cache.shape[2] != 1 or cache.shape[3] != per_token:
        raise ValueError(
            f"cache must have the shape [num_pages, page, 1, {per_token}] of {layout.name}: it has {list(cache.shape)}"
        )
    if cache.stride(3) != 1 or cache.stride(1) != per_token:
        raise ValueError(
            f"cache must hold each page without gaps, stride(1) = {per_token} and stride(3) = 1: "
            f"its strides are {cache.stride()}"
        )
    if cache.device.type != "cpu":
        raise ValueError(f"cache must be on the CPU, where this reference runs: it is on {cache.device}")
    num_pages, page = cache.shape[:2]
    pages = cache.view(torch.uint8).as_strided((num_pages, page * per_token), (cache.stride(0), 1))
    return pages, page


def _check_slots(slots: Tensor) -> None:
    if not isinstance(slots, Tensor):
        raise TypeError(f"slots must be an int32 or int64 tensor: they are {type(slots).__name__}")
    if slots.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"slots must be int32 or int64: their dtype is {slots.dtype}")


def _check_rows(name: str, rows: Tensor, width: int) -> int:
    if not isinstance(rows, Tensor):
        raise TypeError(f"{name} must be a floating-point tensor: it is {type(rows).__name__}")
    if not rows.dtype.is_floating_point:
        raise TypeError(f"{name} must be floating point: its dtype is {rows.dtype}")
    if rows.ndim != 2 or rows.shape[1] != width:
        raise ValueError(f"{name} must have the shape [n, {width}]: it has {list(rows.shape)}")
    return len(rows)


def _check_layout(layout: CacheLayout) -> None:
    if not isinstance(layout, CacheLayout):
        raise TypeError(f"layout must be a CacheLayout such as V32 or MODEL1: it is {layout!r}")


def _check_index(name: str, value: int | Tensor) -> None:
    if isinstance(value, Tensor):
        if value.dtype not in (torch.int32, torch.int64):
            raise TypeError(f"{name} must be int32 or int64: its dtype is {value.dtype}")
        return
    try:
        if isinstance(value, bool):
            raise TypeError
        operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number or an integer tensor: it is {value!r}") from None


def _integer_type(*values: int | Tensor) -> torch.dtype | None:
    """The dtype that a sum of the values has; None when no tensor is among them, as Python's integers have no end."""
    dtypes = {value.dtype for value in values if isinstance(value, Tensor)}
    return max(dtypes, key=lambda dtype: dtype.itemsize, default=None)


def _positive(name: str, value: int) -> None:
    _check_index(name, value)
    if value < 1:
        raise ValueError(f"{name} must be at least 1: it is {value}")


def _any(condition: bool | Tensor) -> bool:
    return bool(condition.any()) if isinstance(condition, Tensor) else condition


def _first(mask: Tensor) -> str:
    """The index of the first true element as text, ``"[2, 0]"``."""
    return str(mask.nonzero()[0].tolist())
