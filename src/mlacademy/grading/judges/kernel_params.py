"""Exercise 12.2: pack the parameter block of a query that is a view into another tensor."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from typing import Any

import numpy as np

from mlacademy.grading.compare import Difference, describe
from mlacademy.grading.exercise import Case, Exercise, Misconception

PARAMETERS = ("address", "pool", "first_head", "head_step", "first_column", "h_q", "scale")
BLOCK = struct.Struct("<Q3qf3i")
FIELDS = ("q", "q_stride_b", "q_stride_s", "q_stride_h", "scale_log2", "b", "s_q", "h_q")
STARTS = (0, 8, 16, 24, 32, 36, 40, 44)
MODEL_SCALE = 0.1352
BF16 = 2
PIECE = 16


def strides_of(pool: tuple[int, int, int, int], head_step: int) -> tuple[int, int, int]:
    """Strides of b, s_q and h_q in elements, for a pool [s_q, b, heads, width]."""
    _, b, heads, width = pool
    return heads * width, b * heads * width, head_step * width


def _block(
    address: int,
    pool: tuple[int, int, int, int],
    first_head: int,
    head_step: int,
    first_column: int,
    h_q: int,
    scale: float,
) -> np.ndarray[Any, Any] | None:
    strides = strides_of(pool, head_step)
    start = address + BF16 * (first_head * pool[3] + first_column)
    if any(number % PIECE for number in (start, *(BF16 * stride for stride in strides))):
        return None
    return _bytes(start, *strides, scale * math.log2(math.e), pool[1], pool[0], h_q)


def _bytes(*fields: Any, form: struct.Struct = BLOCK) -> np.ndarray[Any, Any]:
    return np.frombuffer(form.pack(*fields), np.uint8).copy()


def _inputs(*values: Any) -> dict[str, Any]:
    return dict(zip(PARAMETERS, values, strict=True))


def _cases(rng: np.random.Generator, hidden: bool) -> Iterable[Case]:
    base = 0x7F00_0000_1000
    fixed = [
        ((base, (1, 2, 128, 576), 0, 1, 0, 128, MODEL_SCALE), "a query that is the whole tensor"),
        ((base, (2, 3, 128, 576), 0, 1, 0, 128, MODEL_SCALE), "two query tokens, stored token by token"),
        ((base, (1, 2, 128, 640), 0, 1, 64, 128, MODEL_SCALE), "columns of a wider tensor"),
        ((base, (2, 4, 128, 576), 64, 1, 0, 64, MODEL_SCALE), "the second half of the heads"),
        ((base, (1, 4, 128, 576), 1, 2, 0, 64, MODEL_SCALE), "every second head"),
        ((base, (1, 2, 128, 640), 0, 1, 4, 128, MODEL_SCALE), "rows that do not begin at 16 bytes"),
        ((base, (1, 2, 64, 580), 0, 1, 0, 64, MODEL_SCALE), "a width that is not a multiple of 16 bytes"),
        ((base + 8, (1, 2, 64, 576), 0, 1, 0, 64, MODEL_SCALE), "an allocation that begins at 8 bytes"),
    ]
    for values, label in [] if hidden else fixed:
        yield Case(_inputs(*values), label=label)
    for _ in range(12) if hidden else ():
        step, h_q = int(rng.integers(1, 3)), int(rng.choice([16, 64]))
        first = int(rng.integers(0, 9))
        heads, width = first + step * h_q + int(rng.integers(0, 5)), 576 + 4 * int(rng.integers(0, 40))
        column = 4 * int(rng.integers(0, (width - 576) // 4 + 1))
        pool = (int(rng.integers(1, 5)), int(rng.integers(1, 9)), heads, width)
        address = base + 16 * int(rng.integers(0, 2**20))
        values = (address, pool, first, step, column, h_q, float(rng.uniform(0.03, 0.3)))
        yield Case(_inputs(*values), label="other views, readable and not")
    if hidden:
        wide = (1, 1 << 14, 256, 1024)
        yield Case(_inputs(base, wide, 0, 1, 448, 128, 0.1352), label="strides beyond 32 bits")


def _compare(case: Case, expected: Any, got: Any) -> Difference | None:
    if expected is None:
        if got is None:
            return None
        sentence = (
            "pack_query returned a block, expected None: the kernel reads pieces of 16 bytes, and here not every row "
            "begins at a multiple of 16."
        )
        return Difference("block", "value", None, describe(got), sentence=sentence)
    form = f"an array uint8 [{BLOCK.size}]"
    if isinstance(got, list) and all(type(value) is int and 0 <= value < 256 for value in got):
        got = np.array(got, np.uint8)
    if not isinstance(got, np.ndarray) or got.dtype != np.uint8:
        return Difference("block", "type", form, f"is {describe(got)}")
    if got.shape != expected.shape:
        sentence = f"block has {got.size} bytes, expected {BLOCK.size}: 8 + 3 · 8 + 4 + 3 · 4."
        return Difference("block", "shape", form, describe(got), sentence=sentence)
    rows = zip(FIELDS, STARTS, BLOCK.unpack(expected.tobytes()), BLOCK.unpack(got.tobytes()), strict=True)
    wrong = next((row for row in rows if not _same(row[0], row[2], row[3])), None)
    if wrong is None:
        return None
    name, start, want, have = wrong
    show = hex if name == "q" else str
    sentence = f"{name} (from byte {start}) is {show(have)}, expected {show(want)}."
    return Difference("block", "value", want, have, (start,), sentence=sentence)


def _same(name: str, want: float, have: float) -> bool:
    """Equal; the scale may have been multiplied in float32, with factors rounded to it."""
    return abs(have - want) <= 2**-22 * abs(want) if name == "scale_log2" else have == want


def _with(**changes: Any) -> Any:
    """A wrong packer: the right block with some fields computed otherwise, from the inputs."""

    def model(**inputs: Any) -> Any:
        right = _block(**inputs)
        if right is None:
            return None
        fields = dict(zip(FIELDS, BLOCK.unpack(right.tobytes()), strict=True))
        return _bytes(*(fields | {name: change(inputs) for name, change in changes.items()}).values())

    return model


def _unchecked(address: int, pool: Any, first_head: int, head_step: int, first_column: int, **rest: Any) -> Any:
    start = address + BF16 * (first_head * pool[3] + first_column)
    scale_log2 = rest["scale"] * math.log2(math.e)
    return _bytes(start, *strides_of(pool, head_step), scale_log2, pool[1], pool[0], rest["h_q"])


MISTAKES = (
    Misconception(
        "no check",
        "You packed a block for a query that the kernel cannot read. It loads 16 bytes at a time, and an address that "
        "is not a multiple of 16 stops the launch.",
        (
            "What are the addresses of head 0 and of head 1? Are both multiples of 16?",
            "A row's address is the start plus multiples of the strides. When are all of them multiples of 16?",
            "Return None unless the start address and all three strides in bytes are multiples of 16.",
        ),
        model=_unchecked,
    ),
    Misconception(
        "strides in bytes",
        "Your strides are in bytes. This block counts them in elements of bf16, as torch does: the kernel multiplies "
        "by 2 when it makes an address.",
        (
            "By how many elements do two neighbouring heads differ?",
            "NumPy counts strides in bytes, torch in elements. The statement says which one the block wants.",
            "Leave out the factor 2, except in the address.",
        ),
        model=_with(
            q_stride_b=lambda i: 2 * strides_of(i["pool"], i["head_step"])[0],
            q_stride_s=lambda i: 2 * strides_of(i["pool"], i["head_step"])[1],
            q_stride_h=lambda i: 2 * strides_of(i["pool"], i["head_step"])[2],
        ),
    ),
    Misconception(
        "as if contiguous",
        "Your strides are those of a contiguous [b, s_q, h_q, 576] tensor. The query is a view: its rows lie where the "
        "pool has them.",
        (
            "Two neighbouring heads of the view: how many elements of the pool lie between their beginnings?",
            "Write down where pool[s, b, head, column] lies, counted in elements, and see what one step of b, s and h "
            "adds.",
            "Element (s, b, head, column) is at ((s * b_count + b) * heads + head) * width + column; head moves by "
            "head_step.",
        ),
        model=_with(
            q_stride_b=lambda i: i["pool"][0] * i["h_q"] * 576,
            q_stride_s=lambda i: i["h_q"] * 576,
            q_stride_h=lambda i: 576,
        ),
    ),
    Misconception(
        "b and s exchanged",
        "You exchanged the strides of b and s_q. The pool is stored token by token: its first axis is s_q.",
        (
            "Which of the two axes is the outer one in the pool?",
            "A step along the first axis of the pool jumps over all requests.",
            "One step of b adds heads * width, one step of s adds b * heads * width.",
        ),
        model=_with(
            q_stride_b=lambda i: strides_of(i["pool"], i["head_step"])[1],
            q_stride_s=lambda i: strides_of(i["pool"], i["head_step"])[0],
        ),
    ),
    Misconception(
        "head step left out",
        "Your q_stride_h ignores head_step: neighbouring heads of the view are head_step heads of the pool apart.",
        (
            "With head_step = 2, which heads of the pool does the view have?",
            "Head h of the view is head first_head + head_step * h of the pool.",
            "q_stride_h = head_step * width.",
        ),
        model=_with(q_stride_h=lambda i: i["pool"][3]),
    ),
    Misconception(
        "start of the pool",
        "Your pointer is the beginning of the pool. The view begins at its first head and its first column.",
        (
            "Where is element [0, 0, 0, 0] of the view?",
            "It is pool[0, 0, first_head, first_column]; its address is that many elements behind the pool's.",
            "q = address + 2 * (first_head * width + first_column).",
        ),
        model=_with(q=lambda i: i["address"]),
    ),
    Misconception(
        "offset in elements",
        "You added the offset in elements to an address, which counts bytes. An element of bf16 has 2 bytes.",
        (
            "How many bytes lie between element 0 and element 64?",
            "Strides count elements here, addresses always count bytes.",
            "Multiply the offset by 2.",
        ),
        model=_with(q=lambda i: i["address"] + i["first_head"] * i["pool"][3] + i["first_column"]),
    ),
    Misconception(
        "natural scale",
        "Your scale is in natural units. The kernel computes powers of 2, so the block holds the softmax scale times "
        "log2 e.",
        (
            "Which exponential does the kernel compute, e^x or 2^x?",
            "e^(scale · x) = 2^(scale · log2 e · x).",
            "scale_log2 = scale * math.log2(math.e).",
        ),
        model=_with(scale_log2=lambda i: i["scale"]),
    ),
    Misconception(
        "s_q before b",
        "You wrote s_q where b belongs. The bytes have no names: the order of the fields is all there is.",
        (
            "In which order does the struct list its last three fields?",
            "The pool's shape begins with s_q, the struct's counts with b.",
            "The last three are b, s_q, h_q = pool[1], pool[0], h_q.",
        ),
        model=_with(b=lambda i: i["pool"][0], s_q=lambda i: i["pool"][1]),
    ),
)

PACK = Exercise(
    id="12.2",
    title="Pack the query",
    entry="pack_query",
    points=3,
    lines=8,
    parameters=PARAMETERS,
    outputs=("block",),
    cases=_cases,
    reference=_block,
    compare=_compare,
    misconceptions=MISTAKES,
    hints=(
        "Write down where pool[s, b, head, column] lies, counted in elements from the beginning. Everything else "
        "follows from that formula.",
        "The start is the address of pool[0, 0, first_head, first_column]. A stride is what one step along b, s or h "
        "adds. Then the check: 16 bytes, for the start and for each stride.",
        'struct.pack("<Q3qf3i", start, stride_b, stride_s, stride_h, scale * log2(e), b, s_q, h_q) has 48 bytes; '
        "np.frombuffer(..., np.uint8) makes an array of them.",
    ),
    forbids=("mlacademy.ops.params",),
)
