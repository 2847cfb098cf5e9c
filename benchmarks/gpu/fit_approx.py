"""Finds the tables of the multi-function unit from its results, and writes kernels/emulator/units/approx_tables.hpp.

The unit splits its operand's 23 bits into a segment (6 bits) and a rest r (17 bits; 7 and 16 bits for rcp, whose rest
counts double), and computes `(C0 + C1 · r + 2 · C2 · S(r)) >> 17` in integers. S(r) is r² from a squarer that leaves
out all partial products below a column (`squares`). Given S, C1 and C2 are integers that a least-squares fit of one
segment finds (its error is near 0.01), and every result bounds C0 from both sides: an empty interval anywhere would
refute the form. Run on a GPU machine; `approx.py` then compares all 2^32 operands.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from _driver import Gpu
from _model import EMULATOR, Model
from scalar_ptx import BLOCK, HEADER

REST = 17
UNIT = 1 << 17  # C0 counts in 2^-17 of the result's unit


def squares() -> np.ndarray:
    """S(r) for every r of 17 bits, in units of 2^-15 of 2^34: partial products of weight 2^19 and more."""
    r = np.arange(1 << REST, dtype=np.int64)
    total = np.zeros_like(r)
    for i in range(10, REST):
        row = ((r & ((1 << i) - 1)) >> (18 - i)) + (1 << (2 * i - 19))
        total += np.where(r >> i & 1, row, 0)
    return total


SQUARES = squares()
NEAR = np.array([0, -1, 1])


@dataclass(frozen=True)
class Points:
    """Results as bounds: low <= value < high in the table's unit, at 23-bit operand `at` of table `part`."""

    at: np.ndarray
    low: np.ndarray
    high: np.ndarray
    part: int = 0


@dataclass(frozen=True)
class Segment:
    c1: int
    c2_doubled: int
    low: int  # bounds of C0
    high: int


def fit(at: np.ndarray, low: np.ndarray, high: np.ndarray) -> Segment:
    """One segment: `at` are 17-bit rests."""
    square = SQUARES[at]
    basis = np.stack([np.ones(at.size), at / 2.0**REST, square / 2.0**15], axis=1)
    scale = 1 / (high - low)
    guess = np.linalg.lstsq(basis * scale[:, None], (low + high) / 2 * scale, rcond=None)[0]
    for c1 in np.rint(guess[1]).astype(int) + NEAR:
        for c2 in np.rint(2 * guess[2]).astype(int) + NEAR:
            rest = int(c1) * at + 2 * int(c2) * square
            found = Segment(
                int(c1), int(c2), int(np.ceil(low * UNIT - rest).max()), int(np.ceil(high * UNIT - rest).min()) - 1
            )
            if found.high >= found.low:
                return found
    raise ValueError(f"no integers fit; least squares says {guess}")


def table(points: list[Points], parts: int, bits: int) -> list[Segment]:
    """All segments of all parts; `bits` of the 23 choose the segment."""
    out = []
    for part in range(parts):
        mine = [p for p in points if p.part == part]
        at, low, high = (np.concatenate([getattr(p, key) for p in mine]) for key in ("at", "low", "high"))
        for segment in range(1 << bits):
            here = at >> (23 - bits) == segment
            rest = (at[here] & ((1 << (23 - bits)) - 1)) << (REST - 23 + bits)
            out.append(fit(rest, low[here], high[here]))
    return out


Results = Callable[[str, float, float], tuple[np.ndarray, np.ndarray]]  # opcode, range -> operands, results (float64)


def bounds(value: np.ndarray, unit: float) -> tuple[np.ndarray, np.ndarray]:
    """What a positive result, cut to an f32, says about the value before the cut."""
    step = np.spacing(value.astype(np.float32)).astype(np.float64)
    return value * unit, (value + step) * unit


def reciprocal(results: Results) -> list[Points]:
    _, y = results("rcp.approx.ftz.f32", 1, 2)
    return [Points(np.arange(1 << 23), *bounds(y, 2.0**24))]


def roots(opcode: str, unit: float) -> Callable[[Results], list[Points]]:
    def points(results: Results) -> list[Points]:
        _, y = results(opcode, 1, 4)
        low, high = bounds(y, unit)
        at = np.arange(1 << 23)
        # 1 is an exact case of its own.
        return [
            Points(at[1:], low[1 : 1 << 23], high[1 : 1 << 23]),
            Points(at, low[1 << 23 :], high[1 << 23 :], part=1),
        ]

    return points


def power(results: Results) -> list[Points]:
    _, y = results("ex2.approx.ftz.f32", 1, 2)
    low, high = (y / 2 - 1) * 2.0**23, (y / 2 - 1) * 2.0**23 + 1
    return [Points(np.arange(1 << 23), low, high)]


def logarithm(results: Results) -> list[Points]:
    # The sum is cut to 2^-36 before it is normalised, and complemented where it is negative.
    at, grain = np.arange(1 << 23), 2.0**-13
    _, y = results("lg2.approx.ftz.f32", 1, 2)
    low, high = bounds(y, 2.0**23)
    above = Points(at[1:], low[1:], np.maximum(high, low + grain)[1:])  # log2(1) = 0 is a case of its own
    _, y = results("lg2.approx.ftz.f32", 0.5, 1)
    low, high = bounds(-y, 2.0**23)
    return [above, Points(at, 2.0**23 - np.maximum(high, low + grain), 2.0**23 - low)]


def sine(results: Results) -> list[Points]:
    out = []
    for first, last in ((2.0**-6, 2.0**-3), (2.0**-3, 0.5), (0.5, 1.58), (2 * np.pi, 2 * np.pi + 0.05)):
        x, y = results("sin.approx.ftz.f32", first, last)
        exact = x * np.float64(np.float32(0.15915494))
        turn = exact.astype(np.float32)
        turn = np.where(turn > exact, np.nextafter(turn, np.float32(0)), turn).astype(np.float64)  # .rz
        place = np.floor(turn * 2.0**25).astype(np.int64) & ((1 << 25) - 1)
        place, index = np.unique(place, return_index=True)
        keep = (place < 1 << 23) & (y[index] > 0)
        out.append(Points(place[keep], *bounds(y[index][keep], 2.0**23)))
    return out


TABLES: dict[str, tuple[Callable[[Results], list[Points]], int, int]] = {
    "reciprocal": (reciprocal, 1, 7),
    "reciprocal_root": (roots("rsqrt.approx.ftz.f32", 2.0**24), 2, 6),
    "root": (roots("sqrt.approx.ftz.f32", 2.0**23), 2, 6),
    "power": (power, 1, 6),
    "logarithm": (logarithm, 1, 6),
    "sine": (sine, 1, 6),
}


def written(name: str, segments: list[Segment]) -> str:
    lines, line = [], "   "
    for s in segments:
        c0 = -(-s.low // 4) * 4 if -(-s.low // 4) * 4 <= s.high else s.low  # the silicon counts in 2^-15
        entry = f" {{{c0}, {s.c1}, {s.c2_doubled}}},"
        if len(line) + len(entry) > 110:
            lines.append(line)
            line = "   "
        line += entry
    title = "".join(word.capitalize() for word in name.split("_"))
    return f"inline constexpr Segment k{title}[{len(segments)}] = {{\n" + "\n".join([*lines, line]) + "\n};\n"


HEAD = """\
// The multi-function unit's tables, found from a GPU's results. Generated by benchmarks/gpu/fit_approx.py: do not edit.
// A segment's result is (c0 + c1 · r + 2 · c2 · S(r)) / 2^17 in units of the last place: see `approx.hpp`.
#pragma once

#include <cstdint>

namespace emu::mufu {

struct Segment {
    std::int64_t c0;
    std::int32_t c1, c2;
};

// clang-format off
"""


def write_tables(results: Results) -> None:
    parts = []
    for name, (points, count, bits) in TABLES.items():
        segments = table(points(results), count, bits)
        parts.append(written(name, segments))
        print(f"{name}: {len(segments)} segments, every result explained")
    target = EMULATOR / "units" / "approx_tables.hpp"
    target.write_text(HEAD + "\n".join(parts) + "// clang-format on\n\n}  // namespace emu::mufu\n", encoding="utf-8")


def main() -> int:
    gpu, model = Gpu(), Model()
    ops = {op.opcode: op for op in model.ops}

    def results(opcode: str, first: float, last: float) -> tuple[np.ndarray, np.ndarray]:
        op = ops[opcode]
        base, end = (int(np.float32(x).view(np.uint32)) for x in (first, last))
        kernel, out = gpu.load(HEADER + op.kernel(), [op.name])[op.name], gpu.empty(4 * (end - base))
        null = np.uint64(0)
        args = (null, null, null, out, np.uint64(base), np.uint64(end - base))
        gpu.launch(kernel, grid=-(-(end - base) // BLOCK), block=BLOCK, args=args)
        got = gpu.download(out, np.float32, end - base)
        gpu.free(out)
        return np.arange(base, end, dtype=np.uint32).view(np.float32).astype(np.float64), got.astype(np.float64)

    write_tables(results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
