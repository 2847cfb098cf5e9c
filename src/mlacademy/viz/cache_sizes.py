"""The compression calculator: bytes of cache a token needs, by way of storing keys and values."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mlacademy.fp8 import V32_RULE
from mlacademy.viz.canvas import WIDTH, Canvas
from mlacademy.viz.numbers import short
from mlacademy.viz.picture import Picture
from mlacademy.viz.theme import BLUE, BROWN, INK, ORANGE, PURPLE, TEAL

DTYPE_BYTES = {"bf16": 2, "fp8": 1, "fp32": 4}
GIB = 2**30


@dataclass(frozen=True)
class StorageForm:
    """One way of caching a token: `values` numbers and `bytes_per_token`, both for one layer."""

    name: str
    formula: str
    values: int
    bytes_per_token: int


def storage_forms(
    *, heads: int, nope: int, rope: int, v: int, latent: int, groups: int, dtype: str
) -> tuple[StorageForm, ...]:
    """Return the four forms that `compression` compares, largest first in the usual case."""
    for name, number in (("heads", heads), ("nope", nope), ("v", v), ("latent", latent), ("groups", groups)):
        if number < 1:
            raise ValueError(f"{name} must be at least 1: it is {number}")
    if rope < 0:
        raise ValueError(f"rope must be 0 or more: it is {rope}")
    if heads % groups:
        raise ValueError(f"groups must divide heads, each group serves equally many: {heads} heads, {groups} groups")
    if latent % V32_RULE.tile:
        raise ValueError(f"latent must be a multiple of {V32_RULE.tile}, the tile of one scale: it is {latent}")
    if dtype not in DTYPE_BYTES:
        raise ValueError(f"dtype must be one of {', '.join(DTYPE_BYTES)}: it is {dtype!r}")
    size, name, per_head = DTYPE_BYTES[dtype], dtype.upper(), nope + rope + v
    scales = latent // V32_RULE.tile
    return (
        StorageForm(
            f"Multi-head, {name}",
            f"{heads} heads × ({nope} + {rope} + {v}) × {size} B",
            heads * per_head,
            heads * per_head * size,
        ),
        StorageForm(
            f"{groups} KV groups, {name}",
            f"{groups} groups × ({nope} + {rope} + {v}) × {size} B",
            groups * per_head,
            groups * per_head * size,
        ),
        StorageForm(f"Latent, {name}", f"({latent} + {rope}) × {size} B", latent + rope, (latent + rope) * size),
        StorageForm(
            "Latent, FP8 + scales",
            f"{latent} × 1 B + {scales} × 4 B + {rope} × 2 B",
            latent + rope,
            latent + scales * 4 + rope * 2,
        ),
    )


def compression(
    *,
    heads: int = 128,
    nope: int = 128,
    rope: int = 64,
    v: int = 128,
    latent: int = 512,
    groups: int = 8,
    layers: int = 61,
    context: int = 32768,
    gib: float = 80.0,
    dtype: str = "bf16",
) -> Picture:
    """Compare what one cached token costs: all heads, grouped heads, the latent, the latent in FP8.

    The defaults are DeepSeek-V3.2's numbers (61 layers, without the multi-token-prediction layer).

    Args:
        heads, nope, rope, v: query heads and their widths (no-position, rotary, value).
        latent: width of the shared latent, a multiple of 128. groups: KV heads of the grouped form; divides `heads`.
        layers: of the model. context: tokens of one request. gib: memory for the cache, in GiB (2^30 bytes).
        dtype: of the unquantised forms: "bf16", "fp8" (no scales counted) or "fp32".

    Raises:
        ValueError: a number out of range, named.
    """
    forms = storage_forms(heads=heads, nope=nope, rope=rope, v=v, latent=latent, groups=groups, dtype=dtype)
    for name, count in (("layers", layers), ("context", context)):
        if count < 1:
            raise ValueError(f"{name} must be at least 1: it is {count}")
    if not (math.isfinite(gib) and gib > 0):
        raise ValueError(f"gib must be finite and above 0: it is {gib}")
    base, last = forms[0], forms[-1]
    title = "Cache bytes a token, one layer"
    summary = (
        f"{base.name} needs {base.bytes_per_token:,} B; {last.name} {last.bytes_per_token:,} B, "
        f"{base.bytes_per_token / last.bytes_per_token:.1f} times less."
    )
    canvas = Canvas()
    canvas.text(0, 16, title, size=14, bold=True)
    canvas.text(0, 35, summary, dim=True)
    lines = []
    y = _bars(canvas, forms, 56.0)
    canvas.text(0, y + 14, f"With {layers} layers", size=14, bold=True)
    head = y + 38
    columns = (
        (250.0, f"one request of {context:,} tokens"),
        (500.0, f"tokens that fit in {short(gib)} GiB"),
        (WIDTH, "requests of that length"),
    )
    for x, label in columns:
        canvas.text(x, head, label, size=11, anchor="end", dim=True)
    for index, form in enumerate(forms):
        row = head + 22 + index * 22
        per_token = form.bytes_per_token * layers
        total = per_token * context / GIB
        fit = int(gib * GIB) // per_token
        requests = fit // context
        canvas.line(0, row - 15, WIDTH, row - 15, opacity=0.2)
        canvas.text(0, row, form.name)
        cells = (f"{total:,.2f} GiB", f"{fit:,}", f"{requests:,}")
        for (x, _), cell in zip(columns, cells, strict=True):
            canvas.text(x, row, cell, anchor="end")
        lines.append(
            f"{form.name}: {form.formula} = {form.bytes_per_token:,} B a token and layer ({form.values:,} values), "
            f"{base.bytes_per_token / form.bytes_per_token:.1f}× less than {base.name}; "
            f"{layers} layers: {total:,.2f} GiB for {context:,} tokens, {fit:,} tokens fit in {short(gib)} GiB "
            f"({requests:,} requests)"
        )
    canvas.height = head + 22 * len(forms) + 12
    return canvas.picture(title=title, summary=summary, text="\n".join(lines))


def _bars(canvas: Canvas, forms: tuple[StorageForm, ...], y: float) -> float:
    """Draw one bar a form, to scale, with formula, bytes and ratio. Return the y below."""
    left, right = 170.0, WIDTH - 150
    longest = max(form.bytes_per_token for form in forms)
    colours = (BLUE, PURPLE, TEAL, ORANGE, BROWN)
    for index, form in enumerate(forms):
        row = y + index * 44
        width = (right - left) * form.bytes_per_token / longest
        canvas.text(left - 10, row + 15, form.name, anchor="end")
        canvas.rect(
            left,
            row,
            max(width, 1),
            20,
            fill=colours[index],
            tint=0.8,
            radius=2,
            detail=f"{form.name}: {form.formula} = {form.bytes_per_token:,} bytes a token and layer",
        )
        ratio = forms[0].bytes_per_token / form.bytes_per_token
        canvas.text(left + width + 8, row + 15, f"{form.bytes_per_token:,} B", bold=True)
        canvas.text(left, row + 34, form.formula, size=11, dim=True)
        if index:
            canvas.text(left + width + 90, row + 15, f"{ratio:.1f}× less" if ratio >= 1 else f"{1 / ratio:.1f}× more")
    canvas.line(left, y - 4, left, y + 44 * len(forms) - 8, stroke=INK, opacity=0.5)
    return y + 44 * len(forms)
