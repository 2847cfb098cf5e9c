"""What kernels noticed and could not raise: a few words in the device's memory, and `check`, which reads them.

A kernel writes a notice (``Notice`` of ``sparse_decode_params.cuh``) where Python would raise, and its outputs are NaN,
or it leaves out what was wrong. The words stay until `check` has read them, whatever happens in between: replays of a
captured graph included.
"""

from __future__ import annotations

import contextvars
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

CHANGED_LENGTH, NO_SLOT, NO_LENGTH = 1, 2, 3
_NOTICE = 8  # words of a Notice: kind, request, query, position, value, expected, list, unused
_WORDS = _NOTICE + 2  # then the counts of cache_append: slots beyond the cache, tokens that are not finite
APPEND_PROBLEMS_AT = 4 * _NOTICE
"""Where the counts of `cache_append` begin, in bytes."""

_words: dict[torch.device, Tensor] = {}
_checked: contextvars.ContextVar[bool] = contextvars.ContextVar("mlacademy_ops_checked", default=False)


class StaleMetadata(RuntimeError):
    """Lengths are not the ones that the metadata was made for; the outputs of that call are NaN."""


class SlotOutOfRange(ValueError):
    """An index, or a slot to append to, that is neither a hole nor in the cache."""


@contextmanager
def checked() -> Iterator[None]:
    """Inside the block, `sparse_decode` looks at every index and length of its lists.

    An index that is neither −1 nor a slot of the cache, or a length beyond its list, raises at once on the CPU and on
    the emulator. On a GPU one more kernel runs before the decode, and `check` raises. Outside of the block such an
    index is a hole, and such a length the whole list.
    """
    token = _checked.set(True)
    try:
        yield
    finally:
        _checked.reset(token)


is_checked = _checked.get


def words(device: torch.device) -> Tensor:
    """The device's words, int32 [10], zero where nothing was noticed."""
    kept = _words.get(device)
    if kept is None:
        if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            raise RuntimeError(
                f"the first operator on {device} prepares the GPU, which cannot be part of a CUDA graph: "
                "call it once before the capture"
            )
        kept = _words[device] = torch.zeros(_WORDS, dtype=torch.int32, device=device)
    return kept


def tell(
    device: torch.device,
    kind: int,
    *,
    request: int,
    value: int,
    query: int = 0,
    position: int = 0,
    expected: int = 0,
    extra: bool = False,
) -> None:
    """Note what the host found; an earlier notice stays."""
    kept = words(device)
    if not kept[0]:
        notice = [kind, request, query, position, value, expected, int(extra), 0]
        kept[:_NOTICE] = torch.tensor(notice, dtype=torch.int32)


def check(device: torch.device | str | None = None) -> None:
    """Raise what the kernels of all calls so far have noticed; do nothing where there was nothing.

    Waits for the GPU. ``device``: one device, by default every one that has run an operator. A finding is raised once.

    Raises:
        StaleMetadata: lengths had changed since the metadata was made; the outputs of that call are NaN.
        SlotOutOfRange: an index (in `checked` mode) or a slot to append to lies outside the cache.
        ValueError: a length (in `checked` mode) lies outside its list; a token to append was NaN or infinite.
    """
    devices = list(_words) if device is None else [place(device)]
    for one in devices:
        if one.type == "cuda":
            if torch.cuda.is_current_stream_capturing():
                raise RuntimeError("ops.check() waits for the GPU and cannot be part of a CUDA graph: call it after it")
            torch.cuda.synchronize(one)
        kept = words(one)
        found = kept.tolist()
        if any(found):
            kept.zero_()
            raise error_of(found)


def place(device: torch.device | str) -> torch.device:
    """The CPU, or a GPU with its number: ``cuda`` is the current one. Raises ``ValueError`` for other devices."""
    try:
        found = torch.device(device)
    except RuntimeError:
        raise ValueError(f"device must be cpu or cuda, got {device!r}") from None
    if found in _words:  # has run an operator
        return found
    if found.type == "cpu":
        return torch.device("cpu")
    if found.type != "cuda":
        raise ValueError(f"device must be cpu or cuda, got {found}")
    if not torch.cuda.is_available():
        raise ValueError(f"device must be cpu, as torch sees no GPU here, got {found}")
    return found if found.index is not None else torch.device("cuda", torch.cuda.current_device())


def error_of(found: list[int]) -> Exception:
    """The error that the words stand for."""
    kind, request, query, position, value, expected, extra = found[:7]
    prefix = "extra_" if extra else ""
    if kind == CHANGED_LENGTH:
        return StaleMetadata(
            f"{prefix}topk_length[{request}] is {value}, the metadata was made for {expected}, so the outputs are NaN: "
            "make the metadata anew with ops.schedule whenever lengths change"
        )
    if kind == NO_SLOT:
        return SlotOutOfRange(
            f"{prefix}indices must be -1 (a hole) or name a slot, 0 to {expected - 1}: "
            f"{prefix}indices[{request}, {query}, {position}] is {value}"
        )
    if kind == NO_LENGTH:
        return ValueError(f"{prefix}topk_length must be 0 to {expected}: {prefix}topk_length[{request}] is {value}")
    outside, not_finite = found[_NOTICE:]
    if outside:
        return SlotOutOfRange(
            f"slots must be -1 (left out) or lie in the cache: {outside} did not, and their tokens were left out"
        )
    return ValueError(f"nope and rope must be finite: {not_finite} tokens were not, and were stored as NaN")
