"""The public functions: arguments by keyword, defaults, sentences for wrong ones; then `library`'s operators."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mlacademy.cache import CacheLayout
from mlacademy.ops import arguments, cuda, library, notices, plan
from mlacademy.ops.arguments import layout_named
from mlacademy.ops.metadata import Metadata
from mlacademy.ops.torch_internals import active_modes
from mlacademy.schedule.checks import whole

_ops = torch.ops.mlacademy
assert library  # importing it is what defines the operators


def schedule(
    b: int,
    topk: int,
    *,
    s_q: int = 1,
    h_q: int = 128,
    sms: int | None = None,
    topk_length: Tensor | None = None,
    extra_topk: int | None = None,
    extra_topk_length: Tensor | None = None,
    device: torch.device | str | None = None,
) -> Metadata:
    """Cut the work of a decode step into partitions: what `sparse_decode` can be given as ``metadata``.

    Args:
        b, topk: requests, and entries of each index list.
        s_q, h_q: query rows and heads; they decide how many partitions fill the GPU.
        sms: its SMs; by default those of ``device``, and 132 (an H200's) on the CPU.
        topk_length, extra_topk_length: int32 [b], if the decode gets them.
        extra_topk: entries of each list into the second cache, if there is one.
        device: where; by default where the lengths are, or the CPU.

    The metadata may be used again as long as the *values* of the lengths stay: the decode kernel compares, makes its
    outputs NaN where one differs, and `check` raises.
    """
    b, topk = whole("b", b, 1), arguments.entries("topk", topk)
    extra = 0 if extra_topk is None else arguments.entries("extra_topk", extra_topk)
    if extra_topk_length is not None and not extra:
        raise ValueError("extra_topk_length needs extra_topk, the entries of each extra list; got it alone")
    lengths = (topk_length, extra_topk_length)
    place = _place(device, *lengths)
    arguments.lengths("topk_length", topk_length, b, place)
    arguments.lengths("extra_topk_length", extra_topk_length, b, place)
    sms = _sms(place) if sms is None else whole("sms", sms, 1)
    heads = whole("h_q", h_q, 1)
    if heads > plan.MAX_HEADS:
        raise ValueError(f"h_q must be 1 to {plan.MAX_HEADS}, the heads of one call, got {heads}")
    parts = plan.partitions(sms, s_q=whole("s_q", s_q, 1), h_q=heads)
    plan.check_scheduler(b, parts, max(topk, extra))
    buffer = _ops.schedule.default(*lengths, b, topk, extra, parts, device=place)
    return Metadata(b, topk, extra, topk_length is not None, extra_topk_length is not None, parts, buffer)


def sparse_decode(
    q: Tensor,
    kv_cache: Tensor,
    indices: Tensor,
    *,
    layout: str | CacheLayout = "V3.2",
    softmax_scale: float | None = None,
    topk_length: Tensor | None = None,
    extra_kv_cache: Tensor | None = None,
    extra_indices: Tensor | None = None,
    extra_topk_length: Tensor | None = None,
    attn_sink: Tensor | None = None,
    metadata: Metadata | None = None,
) -> tuple[Tensor, Tensor]:
    """Attend each query row to the cached tokens that its index list names.

    Args:
        q: bfloat16 [b, s_q, h_q, d_qk], 1 to 128 heads, last axis dense, other strides free (multiples of 8).
        kv_cache: bytes [num_pages, page, 1, 656 or 584] (uint8, int8 or float8_e4m3fn), any page size.
        indices: int32 [b, s_q, topk] physical slots, topk a multiple of 64. −1, and whatever else lies outside the
            cache, is a hole (outside of `checked`). A slot named twice counts twice.
        layout: ``"V3.2"`` (d_qk 576) or ``"MODEL1"`` (d_qk 512).
        softmax_scale: by default ``d_qk ** -0.5``. DeepSeek-V3.2's own is ``config.deepseek_v32().softmax_scale``.
        topk_length: int32 [b]; places of a list at or beyond it are holes whatever they hold.
        extra_kv_cache, extra_indices, extra_topk_length: a second cache of the same layout with a page size of its own,
            lists and lengths; its tokens join the same softmax.
        attn_sink: float32 [h_q], natural log, ±inf allowed: out is multiplied by e^lse / (e^lse + e^sink).
        metadata: of `schedule`; by default it is made anew in every call.

    Returns: out bfloat16 [b, s_q, h_q, 512] and lse float32 [b, h_q, s_q], natural log, without the sink. A row without
    a token gives 0 and +inf.

    CPU tensors are computed by the float64 oracle, or inside ``on("emulator")`` by the compiled kernels. CUDA tensors
    need a Hopper GPU; the call joins torch's current stream, does not wait, and may be captured in a CUDA graph.
    Raises ``TypeError`` or ``ValueError`` naming the argument.
    """
    tensors = (q, kv_cache, indices, topk_length, extra_kv_cache, extra_indices, extra_topk_length, attn_sink)
    alone = not torch.compiler.is_compiling()
    try:
        if alone and metadata.__class__ is Metadata:
            done = cuda.repeat(*tensors, metadata.buffer, layout, softmax_scale, metadata.made_for)
            if done is not None:
                return done
        if softmax_scale.__class__ is not float or not 0.0 < softmax_scale <= arguments.MAX_SCALE:
            softmax_scale = arguments.scale(softmax_scale, layout_named(layout).d_qk)
        name = layout if layout.__class__ is str else layout_named(layout).name
        buffer: Tensor | None = None
        lists: tuple[Any, ...] | None = None
        if metadata is not None:
            if metadata.__class__ is not Metadata:
                raise TypeError(f"metadata must come from ops.schedule, got {type(metadata).__name__}")
            buffer, lists = metadata.buffer, metadata.made_for
        # On a GPU torch's dispatcher need not be asked where nobody but us would see the call: no tracing, no tensor
        # subclass, no mode, no transform, no gradient.
        if (
            alone
            and q.__class__ is Tensor
            and q.is_cuda
            and not active_modes()
            and not (q.requires_grad and torch.is_grad_enabled())
        ):
            return cuda.sparse_decode(*tensors, buffer, name, softmax_scale, lists)
    except AttributeError:
        arguments.check_tensors(tensors)
        raise
    arguments.check_tensors(tensors)
    if lists is not None:
        arguments.check_lists(lists, tensors)
    out, lse = _ops.sparse_decode.default(*tensors, buffer, name, softmax_scale)
    return out, lse


def combine(
    out_partial: Tensor, lse_partial_log2: Tensor, num_splits: Tensor, *, attn_sink: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Merge partial results, the splits of every request.

    Args:
        out_partial: float32 [slots, s_q, h_q, 512], each slot normalised by itself.
        lse_partial_log2: float32 [slots, s_q, h_q], base 2; −inf for a slot without tokens.
        num_splits: int32 [b + 1]; request r owns the slots num_splits[r] … num_splits[r + 1] − 1, at least one.
            On a GPU nobody looks at its values.
        attn_sink: float32 [h_q], natural log.
    Returns: as `sparse_decode`.
    """
    arguments.check_types(out_partial=out_partial, lse_partial_log2=lse_partial_log2, num_splits=num_splits)
    if attn_sink is not None:
        arguments.check_types(attn_sink=attn_sink)
    out, lse = _ops.combine.default(out_partial, lse_partial_log2, num_splits, attn_sink)
    return out, lse


def cache_append(
    kv_cache: Tensor, slots: Tensor, nope: Tensor, rope: Tensor, *, layout: str | CacheLayout = "V3.2"
) -> None:
    """Quantise n tokens and store them in place, byte by byte as `cache.append` does.

    Args:
        kv_cache: bytes [num_pages, page, 1, 656 or 584].
        slots: int32 or int64 [n]; a token whose slot is −1 is left out.
        nope: bfloat16 [n, 512 or 448]; rope: bfloat16 [n, 64].

    On the CPU raises ``ValueError`` for a slot outside the cache, a slot given twice, and values that are not finite. A
    kernel leaves out a slot outside the cache and stores what is not finite as NaN, and `check` raises; of two equal
    slots one wins.
    """
    arguments.check_types(kv_cache=kv_cache, slots=slots, nope=nope, rope=rope)
    _ops.cache_append.default(kv_cache, slots, nope, rope, layout_named(layout).name)


def _place(device: torch.device | str | None, *lengths: Tensor | None) -> torch.device:
    if device is not None:
        return notices.place(device)
    return next((one.device for one in lengths if isinstance(one, Tensor)), torch.device("cpu"))


def _sms(device: torch.device) -> int:
    if device.type != "cuda":
        return plan.H200_SMS
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
