"""Exercise 02.4: put quantised tokens into the pages of both layouts, byte by byte."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mlacademy.fp8 import round_bf16
from mlacademy.grading.compare import Difference
from mlacademy.grading.exercise import Case, Exercise, Misconception

if TYPE_CHECKING:
    from mlacademy.cache import CacheLayout

Bytes = NDArray[np.uint8]
FIELDS = {"nope": ("code", 1), "scale": ("scale of tile", 4), "rope": ("RoPE value", 2), "pad": ("pad byte", 1)}


def _layout(name: str) -> CacheLayout:
    from mlacademy.cache import layout  # loads torch, which a list of all exercises does not need

    return layout(name)


def _pack(
    pages: Bytes,
    page: int,
    layout: str,
    slots: NDArray[np.int64],
    codes: Bytes,
    powers: NDArray[np.int64],
    rope: NDArray[np.float32],
    mistake: str = "",
) -> Bytes:
    chosen = _layout(layout)
    for i, slot in enumerate(slots.tolist()):
        index, offset = divmod(slot, page)
        if mistake == "untouched":
            continue
        if mistake == "swapped":
            index, offset = offset % len(pages), index % page
        row = pages.reshape(-1)[page * index * chosen.bytes_per_token :] if mistake == "no padding" else pages[index]
        fields = {name: start for name, (start, _) in chosen.fields(page, offset).items()}
        if mistake == "together" and chosen.split:
            fields = {"nope": offset * 584, "scale": offset * 584 + 448, "rope": offset * 584 + 456}
            fields["pad"] = offset * 584 + 455
        if mistake == "rows of 584" and chosen.split:
            fields |= {"nope": offset * 584, "rope": offset * 584 + 448}
        if mistake == "RoPE first" and chosen.split:
            fields |= {"rope": fields["nope"], "nope": fields["nope"] + 128}
        if mistake == "RoPE first" and not chosen.split:
            fields |= {"rope": fields["nope"] + 512, "scale": fields["nope"] + 640}
        if mistake == "no pad step" and chosen.split:
            fields["scale"] = 576 * page + 7 * offset
        if mistake == "pad first" and chosen.split:
            fields |= {"scale": fields["scale"] + 1, "pad": fields["scale"]}
        if mistake == "scales last" and chosen.split:
            scales = chosen.block_stride(page) - 8 * page + 8 * offset
            fields |= {"scale": scales, "pad": scales + 7}
        content = {
            "nope": codes[i].tobytes(),
            "scale": b"".join(_scale(int(power), chosen.rule.scale_format, mistake) for power in powers[i]),
            "rope": b"".join(_bf16(float(value), mistake) for value in rope[i]),
        }
        if chosen.split and mistake not in ("pad", "no pad step"):
            content["pad"] = b"\0"
        if mistake == "clears":
            row[:] = 0
        for name, part in content.items():
            row[fields[name] : fields[name] + len(part)] = np.frombuffer(part, np.uint8)
    return pages


def _scale(power: int, kind: str, mistake: str) -> bytes:
    if mistake == "reciprocal":
        power = -power
    if kind == "e8m0":
        return bytes([power & 0xFF if mistake == "no bias" else power + 127])
    if mistake == "integer":
        return struct.pack("<i", power)
    return struct.pack(">f" if mistake == "big-endian" else "<f", 2.0**power)


def _bf16(value: float, mistake: str) -> bytes:
    if mistake == "float16":
        return struct.pack("<e", value)
    low_first = struct.pack("<f", value)
    return low_first[:2] if mistake == "lower half" else low_first[2:][:: -1 if mistake == "big-endian" else 1]


def _as(mistake: str) -> Callable[..., Bytes]:
    return functools.partial(_pack, mistake=mistake)


def _case(rng: np.random.Generator, layout: str, page: int, num_pages: int, slots: list[int], label: str) -> Case:
    chosen, n = _layout(layout), len(slots)
    inputs = {
        "pages": rng.integers(1, 256, (num_pages, chosen.block_stride(page)), dtype=np.uint8),
        "page": page,
        "layout": layout,
        "slots": np.array(slots, dtype=np.int64),
        "codes": rng.integers(0, 0x7F, (n, chosen.d_nope), dtype=np.uint8),
        "powers": rng.integers(-13, 6, (n, chosen.num_tiles)),
        "rope": round_bf16(rng.normal(size=(n, chosen.d_rope)).astype(np.float32)),
    }
    return Case(inputs, label=label, part=layout)


def _cases(rng: np.random.Generator, hidden: bool) -> Iterable[Case]:
    for layout in ("V3.2", "MODEL1"):
        if not hidden:
            yield _case(rng, layout, 2, 1, [0], f"{layout}: the first token of a page")
            yield _case(rng, layout, 2, 2, [3], f"{layout}: a later token of a later page")
            yield _case(rng, layout, 3, 2, [4, 0, 2], f"{layout}: several tokens in any order")
            continue
        for page, num_pages in ((64, 2), (61, 3), (1, 4)):
            slots = rng.permutation(page * num_pages)[: min(4, page * num_pages)].tolist()
            yield _case(rng, layout, page, num_pages, slots, f"{layout}: pages of any size")


def _compare(case: Case, expected: Bytes, got: Any) -> Difference | None:
    if not isinstance(got, np.ndarray) or got.shape != expected.shape or got.dtype != expected.dtype:
        return Difference("pages", "shape", f"{expected.shape} of {expected.dtype}", "has another shape or dtype")
    wrong = np.argwhere(got != expected)
    if not len(wrong):
        return None
    index, byte = (int(i) for i in wrong[0])
    was, should = int(got[index, byte]), int(expected[index, byte])
    untouched = should == int(case.inputs["pages"][index, byte])
    sentence = (
        f"page {index}, byte {byte:,} ({_owner(case, index, byte)}) is 0x{was:02X}, expected 0x{should:02X}"
        f"{' as it was before' if untouched else ''}; {len(wrong):,} of {expected.size:,} bytes differ."
    )
    return Difference("pages", "value", should, was, (index, byte), sentence=sentence)


def _owner(case: Case, index: int, byte: int) -> str:
    """Whose byte this is: "slot 3: scale of tile 1, byte 0 of 4"."""
    chosen, page = _layout(case.inputs["layout"]), case.inputs["page"]
    for offset in range(page):
        for name, (start, stop) in chosen.fields(page, offset).items():
            if start <= byte < stop:
                what, width = FIELDS[name]
                width = 1 if name == "scale" and chosen.split else width
                number, part = divmod(byte - start, width)
                slot = index * page + offset
                here = "" if slot in case.inputs["slots"] else ", a token of another call"
                count = "" if name == "pad" else f" {number}"
                return f"slot {slot}{here}: {what}{count}" + (f", byte {part} of {width}" if width > 1 else "")
    return "padding at the end of the page"


_PLACE_HINTS = (
    "Which page, and which place in the page? Check with slot 3 and pages of 2.",
    "A page holds `page` tokens: whole division gives the page, the remainder the offset in it.",
    "index, offset = divmod(slot, page); the row to fill is pages[index].",
)
_SPLIT_HINTS = (
    "Draw a MODEL1 page of 2 tokens: what are its first 1,152 bytes, and what are the 16 after them?",
    "Values first: 576 bytes a token (448 codes, 128 bytes of RoPE). Then, after the values of all tokens, 8 bytes a "
    "token: 7 scales and a zero.",
    "codes at 576 · offset, RoPE at 576 · offset + 448, scales at 576 · page + 8 · offset.",
)
_ENDIAN_HINTS = (
    "Look at the bytes of the float32 number 1: in memory they are 00 00 80 3F.",
    "Multi-byte numbers are little-endian: the lowest byte has the lowest address.",
    'struct.pack("<f", …), or an array of dtype "<f4" and its .view(np.uint8).',
)

PACK_TOKENS = Exercise(
    id="02.4",
    title="Pack tokens into pages",
    entry="pack_tokens",
    points=4,
    lines=16,
    parameters=("pages", "page", "layout", "slots", "codes", "powers", "rope"),
    outputs=("pages",),
    writes=("pages",),
    cases=_cases,
    reference=_pack,
    compare=_compare,
    parts={"V3.2": 2, "MODEL1": 2},
    misconceptions=(
        Misconception(
            "untouched",
            "Nothing arrived in pages. Write into the array you are given; a copy, or a new array of the same name, is "
            "thrown away when the function returns.",
            (
                "Which statements of yours change the array pages itself?",
                "pages[index, a:b] = … writes into it; pages = … only gives the name to something else. np.pad, "
                "np.copy and indexing with an array of numbers make copies.",
                "row = pages[index] is a view: what you assign to row[a:b] lands in pages.",
            ),
            _as("untouched"),
        ),
        Misconception(
            "swapped",
            "You swapped page and offset: slot // page is the page, slot % page the offset in it.",
            _PLACE_HINTS,
            _as("swapped"),
        ),
        Misconception(
            "together",
            "You packed a MODEL1 token into 584 neighbouring bytes. Its scales stand apart, behind the values of all "
            "tokens of the page.",
            _SPLIT_HINTS,
            _as("together"),
        ),
        Misconception(
            "no pad step",
            "You packed the scales of MODEL1 7 bytes apart. Each token has 8 bytes there: 7 scales and a zero byte.",
            _SPLIT_HINTS,
            _as("no pad step"),
        ),
        Misconception(
            "rows of 584",
            "You put MODEL1's values 584 bytes apart. The scales stand elsewhere: a token has 576 bytes there.",
            _SPLIT_HINTS,
            _as("rows of 584"),
        ),
        Misconception(
            "pad first",
            "You put MODEL1's zero byte before the scales. It comes after the seven.",
            _SPLIT_HINTS,
            _as("pad first"),
        ),
        Misconception(
            "scales last",
            "You put MODEL1's scales at the end of the page. They follow the values directly; padding comes last.",
            _SPLIT_HINTS,
            _as("scales last"),
        ),
        Misconception(
            "no padding",
            "You treated the pages as one run of tokens. A MODEL1 page ends with padding, so the next one begins later "
            "than its tokens do.",
            (
                "What is pages.shape[1], and what is 584 · page?",
                "Let the array find the page: pages[index] begins where the page begins.",
                "index, offset = divmod(slot, page); write into row = pages[index] at positions counted from 0.",
            ),
            _as("no padding"),
        ),
        Misconception(
            "pad",
            "You left the pad byte after MODEL1's scales as it was. It is written as zero, so that the same token "
            "always has the same bytes.",
            _SPLIT_HINTS,
            _as("pad"),
        ),
        Misconception(
            "RoPE first",
            "You put RoPE too early. It comes last in a V3.2 token, behind the scales, and behind the codes in MODEL1.",
            (
                "Which field starts at byte 512 of a V3.2 token, and at byte 448 of a MODEL1 row?",
                "V3.2: 512 codes, 4 scales of 4 bytes, 64 RoPE values of 2 bytes. MODEL1: 448 codes, then RoPE.",
                "V3.2: codes at 0, scales at 512, RoPE at 528, from 656 · offset. MODEL1: codes at 0, RoPE at 448, "
                "from 576 · offset.",
            ),
            _as("RoPE first"),
        ),
        Misconception(
            "reciprocal",
            "You stored the reciprocals of the scales. The stored number is 2**power, what a reader multiplies by.",
            (
                "What does a reader do with the stored scale?",
                "It multiplies. powers holds the exponents of exactly that multiplier.",
                "V3.2: the float32 2.0 ** power. MODEL1: the byte power + 127.",
            ),
            _as("reciprocal"),
        ),
        Misconception(
            "integer",
            "You stored V3.2's power as an integer. The field holds the float32 number 2.0 ** power.",
            (
                "A reader multiplies by what it finds there. What must it find for a power of -9?",
                "The four bytes are those of a float32.",
                'struct.pack("<f", 2.0 ** int(power))',
            ),
            _as("integer"),
        ),
        Misconception(
            "no bias",
            "You stored the power itself in MODEL1's scale byte. E8M0 has a bias of 127, so that negative powers have "
            "a byte.",
            (
                "Which byte stands for 2^0 in E8M0?",
                "The bias of E8M0 is 127.",
                "byte = power + 127",
            ),
            _as("no bias"),
        ),
        Misconception(
            "big-endian",
            "Your multi-byte numbers are the wrong way round: the lowest byte must come first (little-endian).",
            _ENDIAN_HINTS,
            _as("big-endian"),
        ),
        Misconception(
            "lower half",
            "You kept the lower half of each float32. BF16 is the upper half: sign, exponent and 7 mantissa bits. In "
            "little-endian memory the upper half comes second.",
            (
                "Print the four bytes of the float32 number 1 in memory order. Which two tell you that it is 1?",
                "The upper 16 bits are bytes 2 and 3 in memory.",
                'struct.pack("<f", v)[2:], or rope.view(np.uint32) >> 16 as uint16.',
            ),
            _as("lower half"),
        ),
        Misconception(
            "float16",
            "You stored RoPE as float16. BF16 has 8 exponent bits, as float32 has, and 7 mantissa bits.",
            (
                "Both formats have 16 bits. Which one is a float32 cut in half?",
                "NumPy's float16 and struct's 'e' are the other one. BF16 is the upper half of the float32.",
                'struct.pack("<f", v)[2:], or rope.view(np.uint32) >> 16 as uint16.',
            ),
            _as("float16"),
        ),
        Misconception(
            "clears",
            "You cleared the whole page. Other tokens live there; only the bytes of the given tokens may change.",
            (
                "Count the bytes of a page that belong to the tokens of this call. All others must stay.",
                "Assign to slices of pages[index], never to the whole row.",
                "pages[index, start : start + width] = …",
            ),
            _as("clears"),
        ),
    ),
    hints=(
        "Take one token at a time: find its page and offset, turn its three parts into bytes, and write each where the "
        "layout says.",
        "Three parts as uint8 arrays: the codes as they are; the scales as float32 2.0 ** power (V3.2) or as the byte "
        "power + 127 (MODEL1); RoPE as the upper halves of float32.",
        "V3.2, from 656 · offset: codes at 0, scales at 512, RoPE at 528. MODEL1: codes at 576 · offset, RoPE 448 "
        "behind them, scales and a zero byte at 576 · page + 8 · offset.",
    ),
    forbids=("mlacademy.fp8", "mlacademy.cache", "mlacademy._core"),
)
