"""The E4M3 number line: where a value falls, which codes are next to it, which one it becomes, and from which bits."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Literal

from mlacademy.fp8 import E4M3_MAX, E4M3_MIN_NORMAL, E4M3_NAN, decode_e4m3, e4m3_neighbours, encode_e4m3
from mlacademy.viz.canvas import WIDTH, Canvas
from mlacademy.viz.numbers import power_of_two, scale_text, short
from mlacademy.viz.picture import Picture
from mlacademy.viz.theme import BLUE, INK, ORANGE, PURPLE, TEAL

MIN_EXPONENT, MAX_EXPONENT = -6, 8  # of normal numbers
NAN_PLACE = 480.0  # the value that the NaN code would have had
TOP_TIE = (E4M3_MAX + NAN_PLACE) / 2
FINITE = sorted(
    ((code, float(decode_e4m3(code))) for code in range(256) if code & 0x7F != E4M3_NAN and code != 0x80),
    key=lambda pair: pair[1],
)

X0, X1 = 24.0, 752.0
BINADE = (X1 - X0) / (MAX_EXPONENT - MIN_EXPONENT + 2)


@dataclass(frozen=True)
class Rounding:
    """What E4M3 makes of `value / scale`: all fields are exact (`approx` is `decoded * scale`)."""

    value: float
    scale: float
    scaled: float
    code: int
    decoded: float
    below: float
    above: float
    region: Literal["zero", "subnormal", "normal", "overflow"]
    tie: bool
    approx: float

    @property
    def bits(self) -> tuple[int, int, int]:
        """Sign, exponent field, mantissa field."""
        return self.code >> 7, self.code >> 3 & 15, self.code & 7


def rounding_of(value: float, scale: float = 1.0, overflow: Literal["saturate", "nan"] = "saturate") -> Rounding:
    """Round `value / scale` to E4M3 with the library's codec (the logic of `number_line`)."""
    if not math.isfinite(value):
        raise ValueError(f"value must be a finite number: it is {value}")
    if not (math.isfinite(scale) and scale > 0):
        raise ValueError(f"scale must be finite and above 0, it is the multiplier on read: it is {scale}")
    scaled = value / scale
    if not math.isfinite(scaled):
        raise ValueError(f"value / scale must be finite: {value} / {scale} is {scaled}")
    code = int(encode_e4m3(scaled, overflow=overflow))
    below, _, above = (float(v) for v in e4m3_neighbours(scaled))
    size = abs(scaled)
    region: Literal["zero", "subnormal", "normal", "overflow"] = (
        "zero"
        if value == 0
        else "subnormal"
        if size < E4M3_MIN_NORMAL
        else "normal"
        if size <= E4M3_MAX
        else "overflow"
    )
    tie = size == TOP_TIE if region == "overflow" else below < scaled and scaled - below == above - scaled
    decoded = float(decode_e4m3(code))
    return Rounding(value, scale, scaled, code, decoded, below, above, region, tie, decoded * scale)


def number_line(value: float, *, scale: float = 1.0, overflow: Literal["saturate", "nan"] = "saturate") -> Picture:
    """Draw what happens to `value` when it is stored as E4M3 with a scale, and read back.

    Three parts: the whole line, one power of two after the other, with its subnormal, normal and overflow regions; the
    codes next to `value / scale`, with the tie point between them; the bits of the chosen code.

    Args:
        value: any finite number. scale: the multiplier on read, so `value / scale` is what is rounded.
        overflow: what becomes of values that round beyond 448: "saturate" or "nan".

    Raises:
        ValueError: a value or scale that is not finite, a scale that is not positive, an unknown `overflow`.
    """
    r = rounding_of(float(value), float(scale), overflow)
    canvas = Canvas()
    title = f"{short(r.value, 6)} as E4M3" + ("" if r.scale == 1 else f" with scale {scale_text(r.scale)}")
    summary = _verdict(r)
    canvas.text(0, 16, title, size=14, bold=True)
    canvas.text(0, 35, summary, dim=True)
    _whole_line(canvas, r)
    _neighbourhood(canvas, r)
    _bit_boxes(canvas, r)
    canvas.height = 384
    return canvas.picture(title=title, summary=summary, text=_twin(r))


def _verdict(r: Rounding) -> str:
    start = f"{short(r.value, 6)} / {scale_text(r.scale)} = {short(r.scaled, 6)}: " if r.scale != 1 else ""
    if math.isnan(r.decoded):
        return f"{start}beyond 464, and this mode does not saturate: it becomes NaN (code 0x{r.code:02X})."
    if r.region == "overflow" and abs(r.scaled) > TOP_TIE:
        return f"{start}beyond the largest value: it saturates to {short(r.decoded)} (code 0x{r.code:02X})."
    if r.scaled == r.decoded:
        return f"{start}an E4M3 value: code 0x{r.code:02X}, no rounding."
    if r.tie:
        why = "448 keeps it" if r.region == "overflow" else "the code with the even mantissa wins"
        return f"{start}halfway between two codes; {why}: {short(r.decoded)} (code 0x{r.code:02X})."
    return f"{start}rounds to the nearest code, {short(r.decoded, 6)} (code 0x{r.code:02X})."


def _place(magnitude: float) -> float:
    """x of a magnitude on the whole line: subnormals first, then one equal stretch per power of two."""
    if magnitude < E4M3_MIN_NORMAL:
        return X0 + magnitude / E4M3_MIN_NORMAL * BINADE
    exponent = math.frexp(magnitude)[1] - 1
    return min(X0 + (exponent - MIN_EXPONENT + magnitude / 2.0**exponent) * BINADE, X1 + 16)


def _whole_line(canvas: Canvas, r: Rounding) -> None:
    y = 118.0
    sign = "−" if r.scaled < 0 else ""
    regions = (
        ("subnormal", 0.0, E4M3_MIN_NORMAL, PURPLE, f"step {power_of_two(-9)}"),
        ("normal", E4M3_MIN_NORMAL, E4M3_MAX, BLUE, "8 codes for each power of two: the step doubles with it"),
        ("overflow", E4M3_MAX, math.inf, ORANGE, ""),
    )
    for name, low, high, colour, note in regions:
        left, right = _place(low), WIDTH if math.isinf(high) else _place(high)
        here = name == r.region or (name == "subnormal" and r.region == "zero")
        canvas.rect(
            left,
            y - 22,
            right - left,
            22,
            fill=colour,
            tint=0.4 if here else 0.16,
            detail=f"{name}: from {sign}{short(low)}"
            + ("" if math.isinf(high) else f" to {sign}{short(high)}")
            + (f", {note}" if note else ""),
        )
        middle = (left + right) / 2
        canvas.text(middle, y - 44, name, size=11, anchor="middle", bold=here)
        canvas.text(middle, y - 30, note, size=11, anchor="middle", dim=True)
    canvas.line(X0, y, WIDTH, y)
    for code in range(0x7F):
        magnitude = float(decode_e4m3(code))
        x, major = _place(magnitude), code % 8 == 0
        canvas.line(x, y, x, y + (9 if major else 5), width=1, opacity=0.9 if major else 0.5)
    for exponent in range(MIN_EXPONENT, MAX_EXPONENT + 1, 2):
        canvas.text(_place(2.0**exponent), y + 22, sign + power_of_two(exponent), size=11, anchor="middle", dim=True)
    canvas.text(X0, y + 22, "0", size=11, anchor="middle", dim=True)
    canvas.text(_place(E4M3_MAX) - 3, y + 22, f"{sign}448", size=11, dim=True)
    x = _place(abs(r.scaled))
    canvas.path([(x - 6, y - 20), (x + 6, y - 20), (x, y - 2)], fill=INK, closed=True, width=0)
    if not math.isnan(r.decoded):
        chosen = _place(abs(r.decoded))
        canvas.line(chosen, y, chosen, y + 12, stroke=TEAL, width=3)


def _window(r: Rounding) -> list[tuple[int, float]]:
    """The (code, value) pairs to show, in rising order: two on each side, or the last three before the overflow."""
    last = max(i for i, (_, v) in enumerate(FINITE) if v <= max(r.scaled, -E4M3_MAX))
    if r.region == "overflow":
        return FINITE[-3:] if r.scaled > 0 else FINITE[:3]
    first = min(max(last - 1, 0), len(FINITE) - 4)
    return FINITE[first : first + 4]


def _neighbourhood(canvas: Canvas, r: Rounding) -> None:
    y, left, right = 222.0, 110.0, 690.0
    window = _window(r)
    values = [v for _, v in window]
    beyond = math.copysign(NAN_PLACE, r.scaled) if r.region == "overflow" else None
    ends = values if beyond is None else [*values, beyond]
    low, high = min(ends), max(ends)

    def x_of(v: float) -> float:
        return left + (v - low) / (high - low) * (right - left)

    canvas.text(0, y - 48, "Codes around it", size=12, bold=True)
    canvas.line(40, y, 760, y)
    for code, v in window:
        chosen = code == r.code or (v == 0 and r.code == 0x80)
        x, colour = x_of(v), TEAL if chosen else INK
        parity = "even" if code & 1 == 0 else "odd"
        canvas.line(x, y - 9, x, y + 9, stroke=colour, width=4 if chosen else 1.5)
        canvas.circle(
            x, y, 6 if chosen else 4, fill=colour, detail=f"code 0x{code:02X} = {short(v, 6)}, {parity} mantissa"
        )
        canvas.text(x, y + 26, short(v, 6), anchor="middle", bold=chosen)
        canvas.text(x, y + 41, f"0x{code:02X}  {parity}", size=11, anchor="middle", mono=True, dim=True)
    if beyond is not None:
        x = x_of(beyond)
        nan = f"0x{0x7F | (0x80 if beyond < 0 else 0):02X}"
        canvas.circle(x, y, 5, fill="none", stroke=INK, detail=f"{short(beyond)} would be code {nan}, but that is NaN")
        canvas.text(x, y + 26, f"no {short(beyond)}", anchor="middle", dim=True)
        canvas.text(x, y + 41, f"{nan}  is NaN", size=11, anchor="middle", mono=True, dim=True)
    for tie in _ties(r, values):
        canvas.line(x_of(tie), y - 12, x_of(tie), y + 46, dash="3 3", detail=f"tie point {short(tie, 6)}")
        canvas.text(x_of(tie), y + 58, f"tie {short(tie, 6)}", size=11, anchor="middle", dim=True)
    x = min(max(x_of(r.scaled), 40), 760)
    canvas.path([(x - 6, y - 26), (x + 6, y - 26), (x, y - 12)], fill=INK, closed=True, width=0)
    anchor = "start" if x < 60 else "end" if x > 740 else "middle"
    canvas.text(x, y - 32, short(r.scaled, 6), anchor=anchor, bold=True)


def _ties(r: Rounding, values: list[float]) -> list[float]:
    """The tie point that decides: between the two codes around, or the last one before the overflow."""
    if r.region == "overflow":
        return [math.copysign(TOP_TIE, r.scaled)]
    return [(a + b) / 2 for a, b in itertools.pairwise(values) if a < r.scaled < b]


def _bit_boxes(canvas: Canvas, r: Rounding) -> None:
    y, box = 330.0, 26.0
    sign, exponent, mantissa = r.bits
    groups = (
        ("sign", f"{sign:b}", PURPLE),
        ("exponent", f"{exponent:04b}", BLUE),
        ("mantissa", f"{mantissa:03b}", TEAL),
    )
    canvas.text(0, y - 22, f"The stored byte: 0x{r.code:02X}", size=12, bold=True)
    x = 0.0
    for name, bits, colour in groups:
        for bit in bits:
            canvas.rect(x, y, box - 2, box, fill=colour, tint=0.25, stroke=colour, detail=f"{name} bits {bits}")
            canvas.text(x + box / 2 - 1, y + 18, bit, size=14, anchor="middle", mono=True)
            x += box
        canvas.text(x - len(bits) * box / 2 - 1, y + 42, name, size=11, anchor="middle", dim=True)
        x += 10
    x = 268.0
    canvas.text(x, y + 4, _formula(r))
    if math.isnan(r.decoded):
        canvas.text(x, y + 24, "NaN: every later sum that touches it is NaN too")
    else:
        canvas.text(x, y + 24, f"read back: {short(r.decoded, 6)} × {scale_text(r.scale)} = {short(r.approx, 6)}")
        canvas.text(x, y + 44, _error(r))


def _formula(r: Rounding) -> str:
    sign, exponent, mantissa = r.bits
    lead = "−" if sign else ""
    if exponent == 15 and mantissa == 7:
        return "all exponent and mantissa bits set: NaN"
    if exponent == 0:
        return f"exponent field 0 (subnormal): {lead}{mantissa}/8 × {power_of_two(-6)} = {short(r.decoded, 6)}"
    return (
        f"{lead}(1 + {mantissa}/8) × 2^({exponent} − 7) = {lead}{short(1 + mantissa / 8)} × "
        f"{power_of_two(exponent - 7)} = {short(r.decoded, 6)}"
    )


def _error(r: Rounding) -> str:
    error = r.approx - r.value
    if error == 0:
        return "error 0"
    return f"error {short(error)} ({short(abs(error / r.value) * 100, 3)} % of the value)"


def _twin(r: Rounding) -> str:
    sign, exponent, mantissa = r.bits
    lines = [
        f"Value {short(r.value, 9)}, scale {short(r.scale, 9)}, value / scale {short(r.scaled, 9)}.",
        f"Region: {r.region} (subnormal below {power_of_two(-6)}, normal to 448, overflow beyond).",
        "Codes around it: "
        + ", ".join(f"0x{c:02X} = {short(v, 6)} ({'even' if c & 1 == 0 else 'odd'})" for c, v in _window(r)),
        f"Code 0x{r.code:02X}: sign {sign:b}, exponent {exponent:04b}, mantissa {mantissa:03b}.",
        _formula(r),
    ]
    if r.tie:
        lines.append(f"Tie: {short(r.scaled, 9)} is halfway; it goes to {short(r.decoded, 6)}.")
    if not math.isnan(r.decoded):
        lines.append(f"Read back: {short(r.decoded, 6)} × {short(r.scale, 9)} = {short(r.approx, 6)}; {_error(r)}.")
    return "\n".join(lines)
