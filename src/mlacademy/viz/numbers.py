"""How pictures print numbers: one rule for labels, details and text twins, so that all three agree."""

from __future__ import annotations

import math

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def power_of_two(exponent: int) -> str:
    """`power_of_two(-7)` is "2⁻⁷"."""
    return "2" + str(exponent).translate(_SUPERSCRIPTS)


def short(value: float, digits: int = 4) -> str:
    """A number for a label: grouped thousands, `digits` significant digits, "+inf"/"−inf" spelled out.

    >>> short(41984), short(0.01171875), short(-2.0), short(float("inf"))
    ('41,984', '0.01172', '−2', '+inf')
    """
    if math.isinf(value):
        return "+inf" if value > 0 else "−inf"
    if math.isnan(value):
        return "NaN"
    whole = value == int(value) and abs(value) < 1e9
    text = f"{int(value):,}" if whole else f"{value:,.{digits}g}"
    return text.replace("-", "−")


def tenths(value: float) -> str:
    """A time in cycles: grouped thousands and at most one decimal.

    >>> tenths(1206.0667), tenths(214.0)
    ('1,206.1', '214')
    """
    text = f"{value:,.1f}"
    return text.removesuffix(".0")


def scale_text(value: float) -> str:
    """A scale: as a power of two where it is one, else in digits."""
    mantissa, exponent = math.frexp(value)
    return power_of_two(exponent - 1) if mantissa == 0.5 else short(value)


def plural(count: int, noun: str) -> str:
    """`plural(1, "split")` is "1 split", `plural(1024, "split")` is "1,024 splits", `plural(2, "pass")` "2 passes"."""
    return f"{count:,} {noun}" + ("" if count == 1 else "es" if noun.endswith("s") else "s")
