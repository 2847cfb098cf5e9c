"""What the operators take, and the sentence that a wrong argument gets.

Everything here looks at shapes, dtypes, strides and devices alone, never at what a tensor holds: a call on a GPU must
not wait for it.
"""

from __future__ import annotations

import itertools
import math
import numbers
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mlacademy import cache, schedule
from mlacademy.cache import CacheLayout
from mlacademy.ops import params, plan
from mlacademy.schedule.checks import whole
from mlacademy.sparse import SLOT_MULTIPLE

CACHE_DTYPES = (torch.uint8, torch.int8, torch.float8_e4m3fn)
MAX_SCALE = 2e38
"""The largest softmax scale: times log2 e it is still a float32."""
_INT32_MAX = 2**31 - 1
_ALIGNMENT = 16  # bytes of the kernels' widest loads


def layout_named(name: str | CacheLayout) -> CacheLayout:
    """The layout ``"V3.2"`` or ``"MODEL1"``, by name or as it is."""
    if isinstance(name, CacheLayout):
        return name
    if not isinstance(name, str):
        raise TypeError(f"layout must be a name or a CacheLayout, got {type(name).__name__}")
    return cache.layout(name)


def tensor(name: str, value: Any, axes: str, rank: int, *dtypes: torch.dtype) -> Tensor:
    """``value`` is a tensor of ``rank`` axes and one of ``dtypes``."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a torch tensor {axes}, got {type(value).__name__}")
    if value.dtype not in dtypes:
        allowed = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise TypeError(f"{name} must be {allowed}, got {str(value.dtype).removeprefix('torch.')}")
    if value.dim() != rank:
        raise ValueError(f"{name} must be {axes}, got the shape {list(value.shape)}")
    return value


def beside(name: str, value: Tensor, q: Tensor, whose: str = "q") -> None:
    """``value`` lies on q's device."""
    if value.device != q.device:
        raise ValueError(f"{name} must be on {whose}'s device, {q.device}, got one on {value.device}")


def shaped(name: str, value: Tensor, axes: str, shape: tuple[int, ...]) -> None:
    """``value`` has exactly this shape."""
    if tuple(value.shape) != shape:
        raise ValueError(f"{name} must be {axes} = {list(shape)}, got {list(value.shape)}")


def dense(name: str, value: Tensor) -> None:
    """``value`` is contiguous."""
    if not value.is_contiguous():
        raise ValueError(f"{name} must be contiguous, got the strides {list(value.stride())}: use .contiguous()")


class DecodeTensors(NamedTuple):
    """The tensors of a decode call, in the operator's order."""

    q: Tensor
    kv_cache: Tensor
    indices: Tensor
    topk_length: Tensor | None
    extra_kv_cache: Tensor | None
    extra_indices: Tensor | None
    extra_topk_length: Tensor | None
    attn_sink: Tensor | None


@dataclass(frozen=True)
class DecodeShape:
    """A decode call as far as shapes tell: what the parameter block, the launches and the outputs are made from."""

    layout: CacheLayout
    b: int
    s_q: int
    h_q: int
    q_strides: tuple[int, int, int]
    cache: params.View
    extra: params.View
    has_extra: bool
    has_lengths: bool
    has_extra_lengths: bool

    @property
    def topk(self) -> int:
        return self.cache.topk

    @property
    def extra_topk(self) -> int:
        return self.extra.topk

    def block(self) -> params.Block:
        """A parameter block with every number in it."""
        return params.Block(
            b=self.b, s_q=self.s_q, h_q=self.h_q, q_strides=self.q_strides, cache=self.cache, extra=self.extra
        )

    def slots(self, parts: int) -> int:
        """Most partial results that a schedule of ``parts`` partitions leaves; 0 where it certainly cuts no request.

        Without lengths the lists are all equally long, so the schedule is known here.
        """
        if self.has_lengths or self.has_extra_lengths:
            return self.b + parts
        lengths = schedule.effective_lengths(self.b, self.topk, extra_topk=self.extra_topk or None)
        made = schedule.schedule(lengths, parts, overhead=plan.OVERHEAD)
        return int(made.num_splits[-1]) if made.split_requests else 0

    def launches(self, parts: int, checked: bool) -> tuple[plan.Launch, ...]:
        """The kernels of the call, for a schedule of ``parts`` partitions. Nothing is merged where nothing is cut."""
        topk = self.topk + self.extra_topk
        launches = plan.decode_launches(
            self.layout.name, b=self.b, s_q=self.s_q, h_q=self.h_q, parts=parts, topk=topk, checked=checked
        )
        return launches if self.slots(parts) else launches[:-1]


def decode_shape(layout: CacheLayout, tensors: DecodeTensors) -> DecodeShape:
    """Check the arguments of a sparse decode. Raises ``TypeError`` or ``ValueError`` naming the argument."""
    q, kv_cache, indices, topk_length, extra_kv_cache, extra_indices, extra_topk_length, attn_sink = tensors
    tensor("q", q, "[b, s_q, h_q, d_qk]", 4, torch.bfloat16)
    b, s_q, h_q, d_qk = q.shape
    if d_qk != layout.d_qk:
        other = "MODEL1" if layout is cache.V32 else "V3.2"
        hint = f" (layout={other!r} has {d_qk})" if d_qk in (cache.V32.d_qk, cache.MODEL1.d_qk) else ""
        raise ValueError(f"q must have {layout.d_qk} numbers a head for the layout {layout.name}, got {d_qk}{hint}")
    if 0 in q.shape:
        raise ValueError(f"q must not be empty, got the shape {list(q.shape)}")
    if h_q > plan.MAX_HEADS:
        raise ValueError(f"q must have 1 to {plan.MAX_HEADS} heads, got {h_q}: call once for each {plan.MAX_HEADS}")
    if q.stride(3) != 1 or any(stride % 8 for stride in q.stride()[:3]):
        raise ValueError(
            "q must have its last axis dense and the others at multiples of 8 elements, "
            f"got the strides {list(q.stride())}: use .contiguous()"
        )
    if (extra_kv_cache is None) != (extra_indices is None):
        names = ("extra_kv_cache", "extra_indices")
        given, missing = names if extra_indices is None else names[::-1]
        raise ValueError(f"extra_kv_cache and extra_indices belong together, got {given} without {missing}")
    if extra_topk_length is not None and extra_indices is None:
        raise ValueError("extra_topk_length needs extra_indices, whose lists it shortens; got it alone")
    if attn_sink is not None:
        tensor("attn_sink", attn_sink, "[h_q]", 1, torch.float32)
        beside("attn_sink", attn_sink, q)
        shaped("attn_sink", attn_sink, "[h_q]", (h_q,))
        dense("attn_sink", attn_sink)
    main = _view(layout, q, kv_cache, indices, topk_length, "")
    extra = params.NO_VIEW
    if extra_kv_cache is not None and extra_indices is not None:
        extra = _view(layout, q, extra_kv_cache, extra_indices, extra_topk_length, "extra_")
    return DecodeShape(
        layout,
        b,
        s_q,
        h_q,
        (q.stride(0), q.stride(1), q.stride(2)),
        main,
        extra,
        extra_kv_cache is not None,
        topk_length is not None,
        extra_topk_length is not None,
    )


def lengths(name: str, value: Tensor | None, b: int, device: torch.device | None = None) -> None:
    """``value`` is None or int32 [b], dense, on ``device``."""
    if value is None:
        return
    tensor(name, value, "[b]", 1, torch.int32)
    if device is not None and value.device != device:
        raise ValueError(f"{name} must be on {device}, got one on {value.device}")
    shaped(name, value, "[b]", (b,))
    dense(name, value)


def entries(name: str, value: Any) -> int:
    """``value`` as the length of an index list, a positive int32."""
    if (number := whole(name, value, 1)) > _INT32_MAX:
        raise ValueError(f"{name} must be at most {_INT32_MAX:,}, got {number:,}")
    return number


def check_metadata(buffer: Tensor, q: Tensor, b: int) -> None:
    """``buffer`` is a `Metadata`'s for ``b`` requests, on q's device."""
    tensor("metadata", buffer, "[int32]", 1, torch.int32)
    beside("metadata", buffer, q)
    dense("metadata", buffer)
    parts, rest = divmod(buffer.numel() - 3 * b - 1, 8)
    if parts < 1 or rest:
        raise ValueError(f"metadata must be made for b = {b}, its {buffer.numel()} numbers are not: use ops.schedule")


def check_tensors(tensors: tuple[Any, ...]) -> None:
    """Raise ``TypeError`` where one of `DecodeTensors` is none; those with a default may be None."""
    for name, value in zip(DecodeTensors._fields, tensors, strict=True):
        if value is not None or name in ("q", "kv_cache", "indices"):
            check_types(**{name: value})


def check_types(**values: Any) -> None:
    """Raise ``TypeError`` for what is no tensor, before torch does without the argument's meaning."""
    for name, value in values.items():
        if not isinstance(value, Tensor):
            raise TypeError(f"{name} must be a torch tensor, got {type(value).__name__}")


def together(**tensors: Tensor | None) -> None:
    """All tensors lie on the first one's device. For fakes: torch takes meta tensors among others without a word."""
    (whose, first), *rest = tensors.items()
    for name, value in rest:
        if first is not None and value is not None:
            beside(name, value, first, whose)


def check_lists(made_for: tuple[Any, ...], tensors: tuple[Any, ...]) -> None:
    """Raise where a schedule ``made_for`` some lists is given others: see `Metadata.made_for`.

    Lists that are none get their sentence from `decode_shape`.
    """
    q, _, indices, topk_length, _, extra, extra_topk_length, _ = tensors
    if 0 in (q.dim(), indices.dim(), 1 if extra is None else extra.dim()):
        return
    got = (
        q.shape[0],
        indices.shape[-1],
        0 if extra is None else extra.shape[-1],
        topk_length is not None,
        extra_topk_length is not None,
    )
    names = ("b", "topk", "extra_topk", "topk_length", "extra_topk_length")
    for name, wanted, given in zip(names, made_for, got, strict=True):
        if wanted == given:
            continue
        if isinstance(wanted, bool):
            having = ("without", "with")
            said = f"was made {having[wanted]} {name}, this call is {having[given]} it"
        else:
            said = f"was made for {name} = {wanted}, this call has {name} = {given}"
        raise ValueError(f"metadata {said}: make it anew with ops.schedule")


def check_addresses(**tensors: Tensor) -> None:
    """Raise where one of these tensors begins between multiples of 16 bytes."""
    for name, value in tensors.items():
        past = value.data_ptr() % _ALIGNMENT
        if past:
            raise ValueError(
                f"{name} must begin at a multiple of {_ALIGNMENT} bytes, got one {past} bytes past it: "
                "is it a view into something larger?"
            )


def scale(softmax_scale: float | None, d_qk: int) -> float:
    """The factor of q·k; ``d_qk ** -0.5`` by default."""
    if softmax_scale is None:
        return float(d_qk**-0.5)
    if isinstance(softmax_scale, bool) or not isinstance(softmax_scale, numbers.Real):
        raise TypeError(f"softmax_scale must be a number, got {type(softmax_scale).__name__}")
    if not 0 < softmax_scale < math.inf:
        raise ValueError(f"softmax_scale must be finite and above 0, got {softmax_scale}")
    if softmax_scale > MAX_SCALE:
        raise ValueError(f"softmax_scale must be at most {MAX_SCALE:.0e}, as float32 holds it, got one beyond")
    return float(softmax_scale)


def check_combine(out_partial: Tensor, lse_partial_log2: Tensor, num_splits: Tensor, attn_sink: Tensor | None) -> None:
    """The arguments of `combine`."""
    tensor("out_partial", out_partial, "[slots, s_q, h_q, 512]", 4, torch.float32)
    slots, s_q, h_q, d_v = out_partial.shape
    if d_v != 512 or 0 in (slots, s_q, h_q):
        raise ValueError(f"out_partial must be [slots, s_q, h_q, 512] and not empty, got {list(out_partial.shape)}")
    tensor("lse_partial_log2", lse_partial_log2, "[slots, s_q, h_q]", 3, torch.float32)
    shaped("lse_partial_log2", lse_partial_log2, "[slots, s_q, h_q]", (slots, s_q, h_q))
    tensor("num_splits", num_splits, "[b + 1]", 1, torch.int32)
    if len(num_splits) < 2:
        raise ValueError(f"num_splits must be [b + 1] with b at least 1, got {len(num_splits)} elements")
    named = {"out_partial": out_partial, "lse_partial_log2": lse_partial_log2, "num_splits": num_splits}
    if attn_sink is not None:
        tensor("attn_sink", attn_sink, "[h_q]", 1, torch.float32)
        shaped("attn_sink", attn_sink, "[h_q]", (h_q,))
        named["attn_sink"] = attn_sink
    for name, value in named.items():
        beside(name, value, out_partial, "out_partial")
        dense(name, value)


def check_splits(num_splits: Tensor, slots: int) -> None:
    """``num_splits`` gives every request slots of its own that are there; looks at its values."""
    bounds = num_splits.tolist()
    for request, (begin, end) in enumerate(itertools.pairwise(bounds)):
        if not 0 <= begin < end <= slots:
            raise ValueError(
                f"num_splits must rise and lie in 0 to {slots}, the slots of out_partial: "
                f"request {request} has {begin} to {end}"
            )


def check_append(kv_cache: Tensor, slots: Tensor, nope: Tensor, rope: Tensor, layout: CacheLayout) -> None:
    """The arguments of `cache_append`."""
    check_cache("kv_cache", kv_cache, layout)
    tensor("slots", slots, "[n]", 1, torch.int32, torch.int64)
    for name, value, width in (("nope", nope, layout.d_nope), ("rope", rope, layout.d_rope)):
        tensor(name, value, f"[n, {width}]", 2, torch.bfloat16)
        shaped(name, value, f"[n, {width}]", (len(slots), width))
        if value.stride(1) != 1 or value.stride(0) % 8:
            raise ValueError(
                f"{name} must have its last axis dense and its rows at multiples of 8 elements, "
                f"got the strides {list(value.stride())}: use .contiguous()"
            )
        beside(name, value, kv_cache, "kv_cache")
    beside("slots", slots, kv_cache, "kv_cache")


def check_cache(name: str, kv: Tensor, layout: CacheLayout) -> None:
    """``kv`` is a cache of ``layout`` that the kernels can address."""
    per_token = layout.bytes_per_token
    tensor(name, kv, f"[num_pages, page, 1, {per_token}]", 4, *CACHE_DTYPES)
    num_pages, page, heads, last = kv.shape
    if last != per_token:
        raise ValueError(f"{name} must have {per_token} bytes a token for the layout {layout.name}, got {last}")
    if heads != 1:
        raise ValueError(f"{name} must have one KV head, which all query heads share, got {heads}")
    if num_pages * page == 0 or num_pages * page > _INT32_MAX:
        raise ValueError(f"{name} must hold 1 to {_INT32_MAX:,} slots, as int32 names them, got {num_pages * page:,}")
    if kv.stride(3) != 1 or (page > 1 and kv.stride(1) != per_token):
        raise ValueError(
            f"{name} must hold each page without gaps, stride(1) = {per_token} and stride(3) = 1, "
            f"got the strides {list(kv.stride())}"
        )
    if num_pages > 1 and (kv.stride(0) % _ALIGNMENT or kv.stride(0) < page * per_token):
        raise ValueError(
            f"{name} must have its pages at multiples of {_ALIGNMENT} bytes that do not overlap, got stride(0) = "
            f"{kv.stride(0)} for pages of {page * per_token} bytes: cache.new_cache pads them"
        )


def _view(
    layout: CacheLayout, q: Tensor, kv: Tensor, indices: Tensor, topk_length: Tensor | None, prefix: str
) -> params.View:
    check_cache(f"{prefix}kv_cache", kv, layout)
    beside(f"{prefix}kv_cache", kv, q)
    tensor(f"{prefix}indices", indices, "[b, s_q, topk]", 3, torch.int32)
    beside(f"{prefix}indices", indices, q)
    b, s_q = q.shape[:2]
    topk = indices.shape[2]
    shaped(f"{prefix}indices", indices, "[b, s_q, topk]", (b, s_q, topk))
    if topk == 0 or topk % SLOT_MULTIPLE:
        raise ValueError(
            f"{prefix}indices must have a multiple of {SLOT_MULTIPLE} entries a row, got {topk}: "
            "sparse.pad_indices appends holes"
        )
    if indices.stride(2) != 1:
        raise ValueError(f"{prefix}indices must have its last axis dense, got the strides {list(indices.stride())}")
    lengths(f"{prefix}topk_length", topk_length, b, q.device)
    pages, page = kv.shape[:2]
    return params.View(kv.stride(0), indices.stride(0), indices.stride(1), page, pages * page, topk)
