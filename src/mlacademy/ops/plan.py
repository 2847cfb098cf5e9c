"""How the decode kernels are launched: which kernel, how many threads, which grid, by shape, all in one place.

>>> for launch in decode_launches("V3.2", b=2, s_q=1, h_q=128, parts=partitions(132)):
...     print(launch.kernel, launch.plan.grid, launch.plan.cluster, launch.plan.block[0], launch.plan.smem_bytes)
sparse_decode_v32_pair (2, 1, 66) (2, 1, 1) 512 230400
combine_tiles (128, 1, 2) (1, 1, 1) 32 75000
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mlacademy import gpu
from mlacademy.gpu.includes import header_layer
from mlacademy.gpu.plan import MAX_SMEM_BYTES

BLOCK_HEADS = 64
"""Query heads of one CTA."""

MAX_HEADS = 128
"""Query heads of one launch: a cluster of two CTAs."""

BLOCK_TOKENS = 64
"""Slots that a CTA reads in one step of its main loop; an index list is a multiple of it."""

OVERHEAD = 5
"""What the scheduler counts for beginning and ending a request, in blocks."""

DECODE_THREADS = 512
DECODE_SHARED_BYTES = {"V3.2": 230_400, "MODEL1": 205_824}
"""Dynamic shared memory of the decode kernel, at least ``sizeof(SharedPlan)``."""

FEW_HEADS_SHARED_BYTES = {
    16: {"V3.2": 228_352, "MODEL1": 218_112},
    32: {"V3.2": 225_280, "MODEL1": 215_040},
}
"""The same of the kernels for few heads, by the number of heads that they compute."""

PARTIAL_TILE_BYTES = 33_792
"""Partial results of 64 heads and 256 columns, as the kernels for 64 and 128 heads leave them: sizeof(PartialTile)."""

TILE_PIECES, TILE_SLOTS = 16, 12
"""Pieces of 32 columns that a head has; slots of a request for each group of warps, up to 4 groups."""

TILES_WARPS, TILES_CTAS = 8, 3
"""Warps of a CTA of ``combine_tiles``, and such CTAs of an SM."""

TILES_SHARED_BYTES = 75_000
"""Dynamic shared memory that ``combine_tiles`` asks for and does not use: so an SM can stay divided into L1 and shared
memory as the decode kernel needs it, which saves 1.4 µs a call at batch 16."""

COMBINE_GROUP = 128
"""Threads of ``combine`` that hold the 512 columns of a head; the groups of a CTA share its slots."""

COMBINE_SHARED_BYTES = 27_000
"""Dynamic shared memory that ``combine`` asks for a group and does not use, as ``combine_tiles`` does."""

COMBINE_CTAS = 1056
"""CTAs of one group each that an H200 holds at once: 8 on each of its 132 SMs."""

CHECK_THREADS = 256

APPEND_THREADS = 256
APPEND_TOKENS = 8
"""Tokens of one CTA of ``cache_append``."""

MAX_PARTITIONS, MAX_COST = 4096, 1 << 29
"""Partitions and blocks that the scheduler can count; no GPU has so many SMs, no cache so many tokens."""

H200_SMS = 132
"""SMs that a schedule is made for where there is no GPU to ask."""


@dataclass(frozen=True)
class Launch:
    """One kernel of a call: the file of ``kernels/cuda/decode`` it is in, its name, and how it is launched."""

    source: str
    kernel: str
    plan: gpu.LaunchPlan

    def compiled(self) -> gpu.Kernel:
        """The kernel, compiled or shipped."""
        return compiled(self.source)[self.kernel]


def architecture(capability: tuple[int, int], name: str = "this GPU") -> str:
    """The architecture whose kernels a GPU runs, by its compute capability: ``sm_90a`` for (9, 0).

    Raises ``RuntimeError`` where there are none for it.
    """
    if capability != (9, 0):
        has = ".".join(map(str, capability))
        raise RuntimeError(
            f"the decode kernels are for Hopper GPUs, compute capability 9.0; {name} has {has}: "
            "use CPU tensors, which the oracle or the emulator computes"
        )
    return "sm_90a"


def head_blocks(h_q: int) -> int:
    """CTAs that share the query heads: 1 for up to 64 heads, 2 for more."""
    return -(-h_q // BLOCK_HEADS)


def few_heads_width(h_q: int) -> int | None:
    """Heads that the kernel for few heads computes, 16 or 32; None where the one for 64 or 128 heads runs."""
    return next((heads for heads in FEW_HEADS_SHARED_BYTES if h_q <= heads), None)


def partitions(sms: int, *, s_q: int = 1, h_q: int = 128) -> int:
    """Partitions of the schedule: so many that the grid fills the SMs once, at least 1."""
    return max(sms // s_q // head_blocks(h_q), 1)


def decode_launches(
    layout: str, *, b: int, s_q: int, h_q: int, parts: int, topk: int | None = None, checked: bool = False
) -> tuple[Launch, ...]:
    """The kernels of one sparse decode, in order; they share one parameter block.

    ``topk``: entries of a request's lists, where they are known: a request has no more slots than blocks.
    Up to 16 or 32 heads run on kernels of that width, more on those for 64 or 128: what is missing is padded inside.
    """
    ctas = head_blocks(h_q)
    width = few_heads_width(h_q)
    if width is None:
        file, name = "sparse_decode.cu", f"sparse_decode_{_short(layout)}{'_pair' if ctas == 2 else ''}"
        shared = DECODE_SHARED_BYTES[layout]
    else:
        file, name = "sparse_decode_few_heads.cu", f"sparse_decode_few_heads_{_short(layout)}_{width}"
        shared = FEW_HEADS_SHARED_BYTES[width][layout]
    grid = (ctas, s_q, parts)
    decode = gpu.LaunchPlan(grid, DECODE_THREADS, cluster=ctas, smem_bytes=shared, programmatic=True)
    slots = b + parts if topk is None else min(b + parts, b * -(-topk // BLOCK_TOKENS))
    merging = combine_tiles_launch if width is None else combine_launch
    merge = merging(b=b, s_q=s_q, h_q=h_q, slots=slots, programmatic=True)
    before = (Launch("check_slots.cu", "check_slots", gpu.LaunchPlan((b, s_q), CHECK_THREADS)),) if checked else ()
    return *before, Launch(file, name, decode), merge


def partial_bytes(*, slots: int, s_q: int, h_q: int) -> int:
    """Bytes of the partial results of ``slots`` slots, without their log-sum-exps: float16 tiles, or float32 rows."""
    if few_heads_width(h_q) is None:
        return slots * s_q * head_blocks(h_q) * 2 * PARTIAL_TILE_BYTES
    return slots * s_q * h_q * 512 * 4


def combine_tiles_launch(*, b: int, s_q: int, h_q: int, slots: int, programmatic: bool = False) -> Launch:
    """The kernel that merges the tiles of ``slots`` slots, or a few less.

    Groups of warps share the slots of a request that has many, and CTAs the columns of a head as long as an H200 holds
    them all at once.
    """
    eights = -(-h_q // 8)
    groups = next(groups for groups in (1, 2, 4) if slots <= TILE_SLOTS * groups * b or groups == 4)
    warps, room = TILES_WARPS // groups, max(TILES_CTAS * H200_SMS // (eights * s_q * b), 1)
    ctas = min(1 << (room.bit_length() - 1), TILE_PIECES // warps)
    layout = gpu.LaunchPlan(
        (eights * ctas, s_q, b), (32, warps, groups), smem_bytes=TILES_SHARED_BYTES, programmatic=programmatic
    )
    return Launch("combine_tiles.cu", "combine_tiles", layout)


def combine_launch(*, b: int, s_q: int, h_q: int, slots: int, programmatic: bool = False) -> Launch:
    """The kernel that merges float32 partial results of ``slots`` slots, or a few less.

    More groups where a request has many slots, so that all of them are read at once; CTAs share a row's heads evenly.
    """
    groups = next(groups for groups in (4, 2, 1) if slots >= 4 * groups * b or groups == 1)
    ctas = min(max(COMBINE_CTAS // (groups * b * s_q), 1), h_q)
    heads_each = -(-h_q // ctas)
    grid, block = (-(-h_q // heads_each), s_q, b), COMBINE_GROUP * groups
    layout = gpu.LaunchPlan(grid, block, smem_bytes=COMBINE_SHARED_BYTES * groups, programmatic=programmatic)
    return Launch("combine.cu", "combine", layout)


def schedule_launch(b: int, parts: int) -> Launch:
    """The kernel that cuts the requests into partitions. More threads search side by side, and wait for each other."""
    check_scheduler(b, parts)
    shared = _scheduler_bytes(b, parts)
    threads = 1024 if b > 512 else min(max(1 << (2 * b - 1).bit_length(), 128), 512)
    return Launch("schedule.cu", "schedule", gpu.LaunchPlan(1, threads, smem_bytes=shared))


def check_scheduler(b: int, parts: int, topk: int = 0) -> None:
    """Raise ``ValueError`` for what the schedule kernel has no room for; ``topk``: of the longer list, where known."""
    if parts > MAX_PARTITIONS:
        raise ValueError(f"sms must give at most {MAX_PARTITIONS:,} partitions, got {parts:,}")
    if _scheduler_bytes(b, parts) > MAX_SMEM_BYTES:
        most = (MAX_SMEM_BYTES - _scheduler_bytes(0, parts)) // 12
        raise ValueError(f"b must be at most {most:,}, for the scheduler's shared memory, got {b:,}")
    if b * (2 * -(-topk // BLOCK_TOKENS) + OVERHEAD) >= MAX_COST:
        raise ValueError(
            f"topk must be so small that all lists together have less than {MAX_COST:,} blocks: got {topk:,}"
        )


def _scheduler_bytes(b: int, parts: int) -> int:
    return 12 * (b + 1) + 16 * (parts + 1)


def append_launch(layout: str, n: int) -> Launch:
    """The kernel that quantises ``n`` tokens and stores them."""
    return Launch(
        "cache_append.cu", f"cache_append_{_short(layout)}", gpu.LaunchPlan(-(-n // APPEND_TOKENS), APPEND_THREADS)
    )


def _short(layout: str) -> str:
    """A layout's name inside those of kernels: ``v32``, ``model1``."""
    return layout.lower().replace(".", "")


def source(name: str) -> Path:
    """The path of one file of the decode kernels, such as ``sparse_decode.cu`` or ``fp8_rows.cuh``.

    Raises ``ValueError`` for others.
    """
    folder = header_layer() / "decode"
    if name not in (files := sorted(path.name for path in folder.glob("*.cu*"))):
        raise ValueError(f"the decode kernels have no file {name!r}: it must be one of {', '.join(files)}")
    return folder / name


@functools.cache
def compiled(name: str) -> gpu.Module:
    """The module of one file of the decode kernels."""
    return gpu.compile(source(name))


def compiled_text(text: str, name: str, headers: Mapping[str, str]) -> gpu.Module:
    """The module of a text that stands for such a file and finds the same headers, but for those given as text."""
    return gpu.compile(text, name=name, headers=headers, folders=(header_layer() / "decode",))
