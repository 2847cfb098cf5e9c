"""Exercise 12.4: the least time of a decode call, and the part of the GPU that sets it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from mlacademy.grading.compare import Close
from mlacademy.grading.exercise import Case, Exercise, Misconception

PARTS = ("memory", "tensor cores", "conversion")
PARAMETERS = ("b", "s_q", "h_q", "topk", "card")
H200 = {"sms": 132, "clock_hz": 1.98e9, "bytes_per_s": 4.3e12, "convert_cycles": 20}


def _times(
    b: int,
    s_q: int,
    h_q: int,
    topk: int,
    card: dict[str, Any],
    *,
    even: bool = False,
    row_bytes: int = 656,
    flops_per_step: int = 2,
    depth: int = 576 + 512,
    shared: bool = True,
    query_rows: bool = True,
    reads: int = 1,
) -> list[float]:
    """Seconds of memory, tensor cores and conversion; the options are the mistakes one can make."""
    ctas = h_q // 64
    blocks = -(-topk // 64)
    if even:
        rounds = b * s_q * blocks * ctas / card["sms"]
    else:
        parts = max(card["sms"] // (s_q if query_rows else 1) // ctas, 1)
        rounds = -(-b * blocks // parts)
    rows = b * (s_q if query_rows else 1) * topk * reads
    multiply = flops_per_step * 64 * 64 * depth / 4096
    convert = 64 * card["convert_cycles"] / (ctas if shared else 1)
    clock = card["clock_hz"]
    return [rows * row_bytes / card["bytes_per_s"], rounds * multiply / clock, rounds * convert / clock]


def _slowest(times: list[float]) -> tuple[str, float]:
    return PARTS[int(np.argmax(times))], max(times)


def _reference(**inputs: Any) -> tuple[str, float]:
    return _slowest(_times(**inputs))


def _cases(rng: np.random.Generator, hidden: bool) -> Iterable[Case]:
    slow = H200 | {"convert_cycles": 50}
    fixed: list[tuple[int, int, int, int, dict[str, Any], str]] = [
        (128, 1, 128, 2048, H200, "a full batch of 128 heads"),
        (128, 1, 64, 2048, H200, "64 heads: as many bytes, half of the multiplies"),
        (128, 1, 64, 2048, slow, "a slower conversion"),
        (2, 1, 128, 128, H200, "the running example"),
        (67, 1, 128, 2048, H200, "blocks that do not divide evenly"),
        (128, 2, 128, 2048, H200, "two query tokens"),
        (128, 1, 128, 2048, H200 | {"sms": 78, "bytes_per_s": 4.0e12}, "a smaller card"),
        (16, 1, 64, 100, slow, "a list that does not fill its last block"),
        (4, 3, 128, 640, H200 | {"sms": 5}, "fewer SMs than the query tokens ask for"),
    ]
    for b, s_q, h_q, topk, card, label in [] if hidden else fixed:
        yield Case(dict(zip(PARAMETERS, (b, s_q, h_q, topk, card), strict=True)), label=label)
    for _ in range(24) if hidden else ():
        card = {
            "sms": int(rng.integers(60, 160)),
            "clock_hz": float(rng.uniform(1.2e9, 2e9)),
            "bytes_per_s": float(rng.uniform(1e12, 8e12)),
            "convert_cycles": int(rng.integers(10, 80)),
        }
        shape = (int(rng.integers(1, 300)), int(rng.integers(1, 4)), int(rng.choice([64, 128])))
        values = (*shape, int(rng.integers(1, 4096)), card)
        yield Case(dict(zip(PARAMETERS, values, strict=True)), label="other shapes and other cards")


def _wrong(pick: Any = _slowest, **options: Any) -> Any:
    return lambda **inputs: pick(_times(**inputs, **options))


MISTAKES = (
    Misconception(
        "work spread like water",
        "You spread the work over all SMs as if it could be poured. It comes in blocks, and the partition with the "
        "most blocks decides when the call is done.",
        (
            "67 requests of 32 blocks on 66 partitions: how many blocks has the busiest one?",
            "Share b · blocks out over the partitions, whole blocks only, and round up.",
            "rounds = ceil(b * ceil(topk / 64) / parts), with parts = max(sms // s_q // (h_q // 64), 1).",
        ),
        model=_wrong(even=True),
    ),
    Misconception(
        "all added up",
        "You added the times. The three parts work side by side, so the call can be as fast as the slowest of them.",
        (
            "While the tensor cores multiply one block, what may the memory do?",
            "A roof is the least time: everything overlaps that can.",
            "Take the largest of the three, not their sum.",
        ),
        model=_wrong(lambda times: (PARTS[int(np.argmax(times))], sum(times))),
    ),
    Misconception(
        "the fastest part",
        "You took the smallest time. The part that needs the most time is the one that the others wait for.",
        (
            "Memory needs 40 µs, the tensor cores 70: can the call be done after 40?",
            "What binds is what takes longest.",
            "max, not min.",
        ),
        model=_wrong(lambda times: (PARTS[int(np.argmin(times))], min(times))),
    ),
    Misconception(
        "bf16 rows",
        "You read 1,152 bytes a token. That is a bf16 cache; a row of the FP8 cache has 656 bytes.",
        (
            "Which format does the cache have, and what does a token take in it?",
            "512 codes, 4 scales of 4 bytes, 64 bf16 values.",
            "512 + 16 + 128 = 656.",
        ),
        model=_wrong(row_bytes=1152),
    ),
    Misconception(
        "a row for each CTA",
        "You read every row once for each 64 heads. The two CTAs of a cluster read half of the tokens each and "
        "exchange them, so a row is read once for 128 heads.",
        (
            "Who reads token 5 of a block when two CTAs share it?",
            "The cluster reads each row once, whatever the number of heads.",
            "bytes = b * s_q * topk * 656, without h_q.",
        ),
        model=lambda **inputs: _slowest(_times(**inputs, reads=inputs["h_q"] // 64)),
    ),
    Misconception(
        "conversion not shared",
        "You let each CTA convert all tokens. In a pair each CTA converts half of a block and sends it to the other.",
        (
            "How many of a block's 64 tokens does one CTA of a pair convert?",
            "The conversion's cycles are divided by the number of CTAs that share it.",
            "64 * convert_cycles / (h_q // 64) cycles a block.",
        ),
        model=_wrong(shared=False),
    ),
    Misconception(
        "a multiply and an add are one",
        "You counted a multiply and its add as one operation, but 4,096 a cycle counts both.",
        (
            "How many operations is one step of a dot product?",
            "A product of 64 × 64 × n steps has 2 · 64 · 64 · n FLOP.",
            "2 * 64 * 64 * (576 + 512) / 4096 = 2176 cycles a block.",
        ),
        model=_wrong(flops_per_step=1),
    ),
    Misconception(
        "one of two products",
        "You counted the scores only. The weights times the values are the second product, 512 columns wide.",
        (
            "How many matrix products does attention have?",
            "Scores: 576 deep. Output: 512 wide.",
            "Use 576 + 512.",
        ),
        model=_wrong(depth=576),
    ),
    Misconception(
        "s_q left out",
        "Your time does not depend on s_q. Each query token has a list of its own, and CTAs of its own.",
        (
            "How many lists of topk slots are there in a call with s_q = 2?",
            "s_q multiplies the rows that are read, and divides the partitions.",
            "parts = max(sms // s_q // (h_q // 64), 1); bytes = b * s_q * topk * 656.",
        ),
        model=_wrong(query_rows=False),
    ),
)

ROOF = Exercise(
    id="12.4",
    title="What binds",
    entry="what_binds",
    points=3,
    lines=10,
    parameters=PARAMETERS,
    outputs=("part", "seconds"),
    cases=_cases,
    reference=_reference,
    compare=Close(rtol=1e-9, why="a few float64 products and quotients"),
    misconceptions=MISTAKES,
    hints=(
        "Three times, each as if the other two were free. Which units do they have: bytes a second, cycles a block?",
        "Memory: all rows once, 656 bytes each. The other two: blocks of the busiest partition, times cycles a block, "
        "over the clock. Then the largest of the three.",
        "rounds = ceil(b * ceil(topk / 64) / max(sms // s_q // (h_q // 64), 1)); tensor cores 2176 cycles a block, "
        "conversion 64 * convert_cycles / (h_q // 64).",
    ),
    forbids=("mlacademy.roofline",),
)
