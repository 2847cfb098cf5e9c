"""CPU tensors on the emulator: the compiled kernels, with every check, inside ``with ops.on("emulator") as run``."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mlacademy import gpu
from mlacademy.cache import CacheLayout
from mlacademy.ops import arguments, notices, params, plan
from mlacademy.ops.arguments import DecodeShape, DecodeTensors
from mlacademy.ops.metadata import Metadata, buffer_size


@dataclass(frozen=True)
class Launched:
    """One launch: the kernel's name, how it was launched, and what the emulator reports of it (its trace too)."""

    kernel: str
    plan: gpu.LaunchPlan
    report: gpu.LaunchReport


class Run:
    """What happened inside an `on` block; ``launches`` is in order."""

    def __init__(self, device: gpu.Device, sources: Mapping[str, str] | None = None, traced: bool = False) -> None:
        self.device = device
        self.launches: list[Launched] = []
        self._sources = dict(sources or {})
        self._traced = traced
        self._lock = threading.RLock()

    def launch(self, launch: plan.Launch, block: bytes) -> None:
        """Run one kernel and note it."""
        with self._lock:
            report = self.device.launch(self._kernel(launch), launch.plan, [block])
            self.launches.append(Launched(launch.kernel, launch.plan, report))

    def _kernel(self, launch: plan.Launch) -> gpu.Kernel:
        headers = {name: text for name, text in self._sources.items() if name.endswith(".cuh")}
        if launch.source not in self._sources and not headers:
            return launch.compiled()
        text = self._sources.get(launch.source) or plan.source(launch.source).read_text(encoding="utf-8")
        return plan.compiled_text(text, launch.source, headers)[launch.kernel]

    @contextmanager
    def together(self) -> Iterator[None]:
        """Launches inside overlap as far as their plans allow; with a trace they come one after the other.

        A launch of another thread would join them, so it waits.
        """
        with self._lock, nullcontext() if self._traced else self.device.sequence():
            yield


_active: contextvars.ContextVar[Run | None] = contextvars.ContextVar("mlacademy_ops_run", default=None)


@contextmanager
def on(device: str, *, sources: Mapping[str, str] | None = None, **options: Any) -> Iterator[Run]:
    """Inside the block, operators on CPU tensors run the compiled kernels on the emulator instead of the oracle.

    ``options`` are the emulator's: ``check``, ``order``, ``seed``, ``trace=True``, … ``sources`` gives text in place
    of files of the decode kernels, by their names (``sparse_decode.cu``, ``fp8_rows.cuh``), to see what a change does.
    Yields a `Run`. Raises ``ValueError`` for anything but ``"emulator"``, where a call runs otherwise follows from its
    tensors' device, and for a file that is not there.
    """
    if device != "emulator":
        raise ValueError(f'device must be "emulator", got {device!r}: tensors on a GPU run there without this')
    for name, text in _texts(sources).items():
        plan.source(name)
        if not isinstance(text, str):
            raise TypeError(f"sources must give the text of each file, got {type(text).__name__} for {name}")
    if "arch" in options:
        raise ValueError("arch must be left out, the kernels are for sm_90a")
    run = Run(gpu.Device("emulator", arch="sm_90a", **options), sources, bool(options.get("trace")))
    token = _active.set(run)
    try:
        yield run
    finally:
        _active.reset(token)


def _texts(sources: Any) -> Mapping[str, Any]:
    if sources is not None and not isinstance(sources, Mapping):
        raise TypeError(f"sources must map names of files to their text, got {type(sources).__name__}")
    return sources or {}


def active() -> Run | None:
    """The run whose block this is."""
    return _active.get()


def make_schedule(
    run: Run,
    b: int,
    topk: int,
    extra_topk: int,
    parts: int,
    overhead: int,
    lengths: Tensor | None,
    extra_lengths: Tensor | None,
) -> Tensor:
    """The buffer of a `Metadata`, by the ``schedule`` kernel."""
    buffer = torch.from_numpy(gpu.empty(buffer_size(b, parts), "int32"))
    at = run.device.address
    block = params.schedule_block(
        0 if lengths is None else at(lengths, "topk_length"),
        0 if extra_lengths is None else at(extra_lengths, "extra_topk_length"),
        at(buffer, "metadata"),
        topk=topk,
        extra_topk=extra_topk,
        b=b,
        parts=parts,
        overhead=overhead,
    )
    run.launch(plan.schedule_launch(b, parts), block)
    return buffer


def sparse_decode(
    run: Run, shape: DecodeShape, tensors: DecodeTensors, scale: float, metadata: Tensor
) -> tuple[Tensor, Tensor]:
    """The decode kernel and ``combine``."""
    arguments.check_addresses(q=tensors.q, kv_cache=tensors.kv_cache)
    if tensors.extra_kv_cache is not None:
        arguments.check_addresses(extra_kv_cache=tensors.extra_kv_cache)
    made = Metadata.of(metadata, shape.b)
    slots, rows = int(made.num_splits[-1]), (shape.s_q, shape.h_q)
    if not 0 <= slots <= shape.b + made.parts:
        raise ValueError(f"metadata must be as ops.schedule made it, its buffer says {slots} slots: was it written to?")
    out, lse = _bfloat16(shape.b, *rows, 512), _float32(shape.b, *rows)
    partial_bytes = plan.partial_bytes(slots=slots, s_q=shape.s_q, h_q=shape.h_q)
    out_partial, lse_partial = _float32(partial_bytes // 4), _float32(slots, *rows)
    verdict = torch.zeros(1, dtype=torch.int32)
    block, at = shape.block(), run.device.address
    block.scale(scale)
    for word, (name, tensor) in zip(params.INPUTS, tensors._asdict().items(), strict=True):
        if tensor is not None:
            block.words[word] = at(tensor, name)
    for word, name, tensor in (
        (params.OUT, "out", out),
        (params.LSE, "lse", lse),
        (params.OUT_PARTIAL, "out_partial", out_partial),
        (params.LSE_PARTIAL, "lse_partial", lse_partial),
    ):
        block.words[word] = at(tensor, name)
    start = at(metadata, "metadata")
    block.words[params.RECORDS], block.words[params.NUM_SPLITS] = start, start + made.num_splits_at
    block.words[params.NOTICE] = at(notices.words(tensors.q.device), "notices")
    if shape.has_lengths or shape.has_extra_lengths:
        block.words[params.PLANNED_LENGTHS] = start + made.lengths_at
        block.words[params.VERDICT] = at(verdict, "verdict")
    checked = notices.is_checked()
    launches = shape.launches(made.parts, checked)
    with run.together():
        for launch in launches:
            run.launch(launch, bytes(block))
    if checked:
        notices.check(tensors.q.device)
    return out, lse.transpose(1, 2)


def combine(
    run: Run, out_partial: Tensor, lse_partial_log2: Tensor, num_splits: Tensor, attn_sink: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The ``combine`` kernel alone, for every request."""
    arguments.check_splits(num_splits, len(out_partial))
    b, (_, s_q, h_q, d_v) = len(num_splits) - 1, out_partial.shape
    out, lse = _bfloat16(b, s_q, h_q, d_v), _float32(b, s_q, h_q)
    block, at = params.Block(b=b, s_q=s_q, h_q=h_q), run.device.address
    for word, tensor, name in (
        (params.NUM_SPLITS, num_splits, "num_splits"),
        (params.OUT, out, "out"),
        (params.LSE, lse, "lse"),
        (params.OUT_PARTIAL, out_partial, "out_partial"),
        (params.LSE_PARTIAL, lse_partial_log2, "lse_partial_log2"),
    ):
        block.words[word] = at(tensor, name)
    if attn_sink is not None:
        block.words[params.SINK] = at(attn_sink, "attn_sink")
    run.launch(plan.combine_launch(b=b, s_q=s_q, h_q=h_q, slots=len(out_partial)), bytes(block))
    return out, lse.transpose(1, 2)


def cache_append(run: Run, kv_cache: Tensor, slots: Tensor, nope: Tensor, rope: Tensor, layout: CacheLayout) -> None:
    """The ``cache_append`` kernel."""
    arguments.check_addresses(kv_cache=kv_cache, nope=nope, rope=rope)
    at = run.device.address
    tensors = ((kv_cache, "kv_cache"), (nope, "nope"), (rope, "rope"), (slots, "slots"))
    problems = at(notices.words(kv_cache.device), "notices") + notices.APPEND_PROBLEMS_AT
    block = params.append_block([at(tensor, name) for tensor, name in tensors], problems, kv_cache, nope, rope, slots)
    run.launch(plan.append_launch(layout.name, len(slots)), block)


def _float32(*shape: int) -> Tensor:
    """Memory of which the emulator knows that nobody has written it."""
    return torch.from_numpy(gpu.empty(shape, "float32"))


def _bfloat16(*shape: int) -> Tensor:
    return torch.from_numpy(gpu.empty(shape, "uint16")).view(torch.bfloat16)
