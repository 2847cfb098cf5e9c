"""Exercise 08.1: the 64 bits of a matrix descriptor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from mlacademy.grading import Case, Exact, Exercise, Misconception

CODES = {"none": 0, "128B": 1, "64B": 2, "32B": 3}
MAP_CODES = {"none": 0, "32B": 1, "64B": 2, "128B": 3}
RANK = 1 << 24


def _cases(rng: np.random.Generator, hidden: bool) -> Iterator[Case]:
    tiles = [
        (1024, 16, 1024, "128B"),
        (9216 + 32, 16, 1024, "128B"),
        (8192, 128, 256, "none"),
        (2 * RANK + 4096, 16, 512, "64B"),
    ]
    if hidden:
        tiles = [
            (int(rng.integers(0, 200)) * 1024 + int(rng.integers(8)) * RANK, 16, 1024, "128B"),
            (int(rng.integers(1, 2000)) * 16, int(rng.integers(1, 99)) * 16, int(rng.integers(99, 999)) * 16, "none"),
            (0, 16, 256, "32B"),
            (RANK + 231_424, 4096, 2048, "128B"),
        ]
    for address, leading, stride, swizzle in tiles:
        inputs = {"address": address, "leading": leading, "stride": stride, "swizzle": swizzle}
        yield Case(inputs, "a tile of a CTA in a cluster" if address >= RANK else "a tile")


def _bits(
    address: int,
    leading: int,
    stride: int,
    swizzle: str,
    *,
    unit: int = 16,
    window: int = 1 << 18,
    codes: Mapping[str, int] = CODES,
    shifts: tuple[int, int, int, int] = (0, 16, 32, 62),
) -> int:
    fields = (address % window // unit, leading // unit, stride // unit, codes[swizzle])
    return sum(field << shift for field, shift in zip(fields, shifts, strict=True))


def _mistake(key: str, model: Callable[..., Any], says: str, *hints: str) -> Misconception:
    first, second, third = hints
    return Misconception(key=key, model=model, says=says, hints=(first, second, third))


DESCRIPTOR = Exercise(
    id="08.1",
    title="A descriptor's 64 bits",
    entry="descriptor",
    points=2,
    lines=4,
    parameters=("address", "leading", "stride", "swizzle"),
    outputs=("bits",),
    cases=_cases,
    reference=_bits,
    compare=Exact(),
    show={"bits": lambda bits: f"0x{int(bits):016x}", "address": lambda address: f"0x{int(address):x}"},
    misconceptions=(
        _mistake(
            "bytes",
            partial(_bits, unit=1),
            "You stored bytes; the three fields count units of 16 bytes.",
            "How large would an address be that fits into 14 bits?",
            "The lowest four bits of each of the three sizes are 0 and are left out.",
            "Shift each of them right by 4 before you put it into its field.",
        ),
        _mistake(
            "precedence",
            lambda address, leading, stride, swizzle: (address & 0x3FFFF >> 4) | _bits(0, leading, stride, swizzle),
            "Python shifts before it masks: address & 0x3FFFF >> 4 is address & 0x3FFF, and nothing is divided.",
            "Only the lowest field is wrong: what does it hold for the address 1024?",
            "Which of & and >> comes first?",
            "(address & 0x3FFFF) >> 4, with the parentheses.",
        ),
        _mistake(
            "offsets in bytes",
            lambda address, leading, stride, swizzle: _bits(address, 16 * leading, 16 * stride, swizzle),
            "The start is in units of 16 bytes, the two offsets are still in bytes. All three count units.",
            "Compare the second and the third field with the example.",
            "A stride of 1024 bytes is 64 units.",
            "leading >> 4 and stride >> 4, like the address.",
        ),
        _mistake(
            "bit 61",
            partial(_bits, shifts=(0, 16, 32, 61)),
            "The swizzle went into bits 61 and 62. On Hopper it stands in bits 62 and 63, at the very top.",
            "Which two bits are the highest of 64?",
            "The bits are counted from 0: the last one is 63.",
            "Shift the swizzle's code by 62.",
        ),
        _mistake(
            "rank",
            partial(_bits, window=1 << 60),
            "The rank of the CTA, in bits 24 and up of the address, went into the descriptor.",
            "Look at the case with an address in a cluster: which bits of your number are too many?",
            "Of the address only the low 18 bits count.",
            "address & 0x3FFFF, then the shift by 4.",
        ),
        _mistake(
            "map codes",
            partial(_bits, codes=MAP_CODES),
            "You numbered the swizzles as a tensor map does: there 128B is 3. In a descriptor 128B is 1.",
            "Two places name a swizzle by number, and their numbers differ.",
            "In the descriptor the wide swizzle has the small number.",
            "none 0, 128B 1, 64B 2, 32B 3.",
        ),
        _mistake(
            "swapped",
            lambda address, leading, stride, swizzle: _bits(address, stride, leading, swizzle),
            "Leading and stride offset have changed places: leading is in bits 16 to 29, stride in bits 32 to 45.",
            "Which of the two offsets is 1,024 in the example, and where does it stand?",
            "From the right: start, leading, stride, 16 bits each.",
            "leading // 16 << 16, stride // 16 << 32.",
        ),
        _mistake(
            "packed",
            partial(_bits, shifts=(0, 14, 28, 62)),
            "The fields are 14 bits wide, but they do not follow one another: each starts at a multiple of 16.",
            "Two bits above each field are unused.",
            "The fields start at bits 0, 16 and 32.",
            "Shift by 16 and 32, not by 14 and 28.",
        ),
        _mistake(
            "swizzle low",
            partial(_bits, shifts=(0, 16, 32, 49)),
            "The swizzle went into bits 49 to 51, which hold the base offset. It belongs into bits 62 and 63.",
            "Which field is at the very top?",
            "Two bits are left above bit 61.",
            "Shift the swizzle's code by 62.",
        ),
    ),
    hints=(
        "Write the example in binary, and mark the five fields.",
        "Three sizes in units of 16 bytes, at bits 0, 16 and 32; the swizzle's code at bit 62.",
        "Mask the address to 18 bits first; then shift, divide and or the four fields together.",
    ),
    forbids=("mlacademy.gpu.wgmma", "mlacademy.gpu.wgmma.Descriptor.__init__"),
)
