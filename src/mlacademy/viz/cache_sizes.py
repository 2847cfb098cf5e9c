"""The compression calculator: bytes of cache a token needs, by way of storing keys and values."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mlacademy.fp8 import V32_RULE
from mlacademy.viz.canvas import WIDTH, Canvas
from mlacademy.viz.numbers import short
from mlacademy.viz.picture import Picture
from mlacademy.viz.theme import BLUE, INK, ORANGE, PURPLE, TEAL

DTYPE_BYTES = {"bf16": 2, "fp8": 1, "fp32": 4}
GIB = 2**30
COLOURS = (BLUE, PURPLE, TEAL, ORANGE)


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
    budgets = [_budget(form, layers, context, gib) for form in forms]
    y = _bars(canvas, forms, 58.0)
    y = _table(canvas, forms, budgets, y + 24, f"With {layers} layers", context, gib)
    canvas.height = y
    lines = [
        f"{form.name}: {form.formula} = {form.bytes_per_token:,} B a token and layer ({form.values:,} values)"
        + ("" if form is base else f", {_ratio(base, form)} than {base.name}")
        + f"; {layers} layers: {budget.gib:,.2f} GiB for {context:,} tokens, {budget.tokens:,} tokens fit in "
        f"{short(gib)} GiB ({budget.requests:,} requests)"
        for form, budget in zip(forms, budgets, strict=True)
    ]
    return canvas.picture(title=title, summary=summary, text="\n".join(lines))


@dataclass(frozen=True)
class Budget:
    """What a form means for a whole model: GiB of one request, tokens that fit in the memory, whole requests."""

    gib: float
    tokens: int
    requests: int


def _budget(form: StorageForm, layers: int, context: int, gib: float) -> Budget:
    per_token = form.bytes_per_token * layers
    tokens = int(gib * GIB) // per_token
    return Budget(per_token * context / GIB, tokens, tokens // context)


def _ratio(base: StorageForm, form: StorageForm) -> str:
    ratio = base.bytes_per_token / form.bytes_per_token
    return f"{ratio:.1f}× less" if ratio >= 1 else f"{1 / ratio:.1f}× more"


def _table(
    canvas: Canvas,
    forms: tuple[StorageForm, ...],
    budgets: list[Budget],
    y: float,
    heading: str,
    context: int,
    gib: float,
) -> float:
    """Draw the model's budget: one row a form, with a bar for the tokens that fit. Return the y below."""
    canvas.text(0, y, heading, size=14, bold=True)
    head, bar_left, bar_right = y + 24, 372.0, 560.0
    for x, label in (
        (330.0, f"one request of {context:,} tokens"),
        (650.0, f"tokens that fit in {short(gib)} GiB"),
        (WIDTH, "whole requests"),
    ):
        canvas.text(x, head, label, size=11, anchor="end", dim=True)
    most = max(max(budget.tokens for budget in budgets), 1)
    for index, (form, budget) in enumerate(zip(forms, budgets, strict=True)):
        row = head + 23 + index * 23
        canvas.line(0, row - 16, WIDTH, row - 16, opacity=0.2)
        canvas.text(0, row, form.name)
        canvas.text(330, row, f"{budget.gib:,.2f} GiB", anchor="end")
        canvas.rect(
            bar_left,
            row - 11,
            (bar_right - bar_left) * budget.tokens / most,
            14,
            fill=COLOURS[index],
            tint=0.8,
            radius=2,
            detail=f"{form.name}: {budget.tokens:,} tokens, {budget.requests:,} requests of {context:,}",
        )
        canvas.text(650, row, f"{budget.tokens:,}", anchor="end")
        canvas.text(WIDTH, row, f"{budget.requests:,}", anchor="end")
    return head + 23 * len(forms) + 14


def _bars(canvas: Canvas, forms: tuple[StorageForm, ...], y: float) -> float:
    """Draw one bar a form, to scale, with formula, bytes and ratio. Return the y below."""
    left, right = 170.0, WIDTH - 150
    longest = max(form.bytes_per_token for form in forms)
    for index, form in enumerate(forms):
        row = y + index * 44
        width = (right - left) * form.bytes_per_token / longest
        canvas.text(left - 10, row + 15, form.name, anchor="end")
        canvas.rect(
            left,
            row,
            max(width, 1),
            20,
            fill=COLOURS[index],
            tint=0.8,
            radius=2,
            detail=f"{form.name}: {form.formula} = {form.bytes_per_token:,} bytes a token and layer",
        )
        canvas.text(left + width + 8, row + 15, f"{form.bytes_per_token:,} B", bold=True)
        canvas.text(left + 6, row + 34, form.formula, size=11, dim=True)
        if index:
            canvas.text(left + width + 90, row + 15, _ratio(forms[0], form))
    canvas.line(left, y - 4, left, y + 44 * len(forms) - 8, stroke=INK, opacity=0.5)
    return y + 44 * len(forms)
