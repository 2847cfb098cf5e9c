"""What the tests of pictures share: reading an SVG back."""

from __future__ import annotations

import re
from xml.etree import ElementTree

SVG = "{http://www.w3.org/2000/svg}"
NUMBER = re.compile(r"[-−]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[-−+]?\d+)?")


def parse(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def details(svg: str) -> list[str]:
    return [d for element in parse(svg).iter() if (d := element.get("data-detail")) is not None]


def written(svg: str, *, dim: bool = False) -> list[str]:
    """The text in the drawing; secondary text (axes, captions) only with ``dim``."""
    return [e.text or "" for e in parse(svg).iter(f"{SVG}text") if dim or e.get("fill-opacity") is None]


def numbers(text: str) -> set[str]:
    return set(NUMBER.findall(text))


def rectangles(svg: str, detail: str) -> list[tuple[float, ...]]:
    """x, y, width, height of the rectangles whose sentence, or their group's, contains ``detail``."""
    found = []
    for element in parse(svg).iter():
        if detail in element.get("data-detail", ""):
            rects = [element] if element.tag == f"{SVG}rect" else list(element.iter(f"{SVG}rect"))
            found += [tuple(float(r.get(k, "nan")) for k in ("x", "y", "width", "height")) for r in rects]
    return found
