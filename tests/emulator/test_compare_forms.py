"""Comparisons and selection: each row of compare.forms."""

from __future__ import annotations

from fractions import Fraction

import pytest
from conformance import check, row_id, rows
from floatmodel import FORMATS, Number, decode, flush
from formtable import BITS, Form, types_of
from test_integer_forms import as_type

Mods = tuple[str, ...]
Args = tuple[int, ...]
ORDER = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b, "lo": lambda a, b: a < b, "ls": lambda a, b: a <= b,
    "hi": lambda a, b: a > b, "hs": lambda a, b: a >= b,
}  # fmt: skip
FLOATS = ("f16", "bf16", "f32", "f64")


def real(x: Number) -> Fraction | float:
    if isinstance(x, Fraction):
        return x
    return {"+inf": float("inf"), "-inf": float("-inf"), "-0": Fraction(0)}[x]


def compare(name: str, kind: str, a: int, b: int, ftz: bool) -> bool:
    if kind not in FLOATS:
        return ORDER[name](as_type(a, kind), as_type(b, kind))
    f = FORMATS[kind]
    x, y = (decode(flush(v, f) if ftz else v, f) for v in (a, b))
    unordered = "nan" in (x, y)
    if name in ("num", "nan"):
        return unordered == (name == "nan")
    if unordered:
        return name.endswith("u") and name != "u"
    return ORDER[name.removesuffix("u") if name not in ORDER else name](real(x), real(y))


def combine(mods: Mods, t: bool, c: int) -> int:
    for name, f in (("and", lambda: t and c), ("or", lambda: t or c), ("xor", lambda: t != bool(c))):
        if name in mods:
            return int(bool(f()))
    return int(t)


def setp(form: Form, mods: Mods, args: Args) -> tuple[int, ...]:
    kind = types_of(mods)[-1]
    a, b, c = (*args, 0)[:3]
    ftz = "ftz" in mods
    if kind.endswith("x2"):
        low = compare(mods[0], kind[:-2], a & 0xFFFF, b & 0xFFFF, ftz)
        high = compare(mods[0], kind[:-2], a >> 16, b >> 16, ftz)
        return combine(mods, low, c), combine(mods, high, c)
    t = compare(mods[0], kind, a, b, ftz)
    first = combine(mods, t, c)
    return (first, combine(mods, not t, c)) if form.operands[0].second else (first,)


@pytest.mark.parametrize("form", rows("setp", "setp_float", "setp_half", "setp_pair"), ids=row_id)
def test_setp(form: Form) -> None:
    check(form, setp, limit=40)


TRUE = {
    "f32": 0x3F800000,
    "f16": 0x3C00,
    "bf16": 0x3F80,
    "u16": 0xFFFF,
    "s16": 0xFFFF,
    "u32": 0xFFFFFFFF,
    "s32": 0xFFFFFFFF,
}


def set_model(form: Form, mods: Mods, args: Args) -> tuple[int, ...]:
    to, kind = types_of(mods)
    a, b, c = (*args, 0)[:3]
    ftz = "ftz" in mods
    if kind.endswith("x2"):
        one = TRUE[kind[:-2]]
        low = compare(mods[0], kind[:-2], a & 0xFFFF, b & 0xFFFF, ftz)
        high = compare(mods[0], kind[:-2], a >> 16, b >> 16, ftz)
        return (one * combine(mods, low, c) | one * combine(mods, high, c) << 16,)
    return (TRUE[to] if combine(mods, compare(mods[0], kind, a, b, ftz), c) else 0,)


@pytest.mark.parametrize("form", rows("set", "set_float"), ids=row_id)
def test_set(form: Form) -> None:
    check(form, set_model, limit=40)


def select(form: Form, mods: Mods, args: Args) -> tuple[int, ...]:
    a, b, c = args
    if form.opcode == "selp":
        return (a if c else b,)
    if mods[-1] == "s32":
        return (a if as_type(c, "s32") >= 0 else b,)
    x = decode(flush(c, FORMATS["f32"]) if "ftz" in mods else c, FORMATS["f32"])
    return (a if x != "nan" and real(x) >= 0 else b,)


@pytest.mark.parametrize("form", rows("selp", "slct"), ids=row_id)
def test_selection(form: Form) -> None:
    assert all(BITS[kind] >= 16 for slot in form.slots for kind in slot.options if kind in BITS)
    check(form, select)
