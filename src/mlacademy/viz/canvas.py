"""A small SVG builder: the few shapes that the core pictures need, with one house style.

Units are CSS pixels at the picture's natural width. Colours are `INK` (the page's own) or an accent of `theme`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from xml.etree import ElementTree

from mlacademy.viz.picture import SVG, Picture, make_picture
from mlacademy.viz.theme import INK, MONO, SANS

WIDTH = 800


class Canvas:
    """A drawing under construction; `picture()` closes it. `height` may be set late, once the content is known."""

    def __init__(self, *, width: float = WIDTH) -> None:
        self.width = width
        self.height = 0.0
        self.root = ElementTree.Element(
            f"{{{SVG}}}svg", {"font-family": SANS, "font-size": "12", "fill": INK, "stroke": "none"}
        )
        self._stack = [self.root]

    def element(self, tag: str, *, detail: str | None = None, content: str | None = None, **attributes: object) -> None:
        """Append one element; underscores in attribute names become hyphens and numbers lose needless digits."""
        node = ElementTree.SubElement(self._stack[-1], f"{{{SVG}}}{tag}")
        for name, value in attributes.items():
            if value is not None:
                node.set(name.rstrip("_").replace("_", "-"), value if isinstance(value, str) else number(value))
        if detail is not None:
            node.set("data-detail", detail)
        node.text = content

    @contextmanager
    def group(self, *, detail: str | None = None) -> Iterator[None]:
        """Collect what is drawn inside into one group, which carries one detail."""
        node = ElementTree.SubElement(self._stack[-1], f"{{{SVG}}}g", {} if detail is None else {"data-detail": detail})
        self._stack.append(node)
        try:
            yield
        finally:
            self._stack.pop()

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        fill: str = INK,
        tint: float = 1.0,
        stroke: str | None = None,
        dash: str | None = None,
        stroke_width: float | None = None,
        radius: float = 0,
        detail: str | None = None,
    ) -> None:
        """Draw a rectangle; `tint` is the opacity of the fill alone."""
        self.element(
            "rect",
            x=x,
            y=y,
            width=max(width, 0),
            height=max(height, 0),
            fill=fill,
            fill_opacity=tint if tint != 1.0 else None,
            stroke=stroke,
            stroke_width=stroke_width,
            stroke_dasharray=dash,
            rx=radius or None,
            detail=detail,
        )

    def line(
        self,
        x1: float,
        y1: float,
        x2: float,
        y2: float,
        *,
        stroke: str = INK,
        width: float = 1,
        dash: str | None = None,
        opacity: float | None = None,
        detail: str | None = None,
    ) -> None:
        """Draw a straight line."""
        self.element(
            "line",
            x1=x1,
            y1=y1,
            x2=x2,
            y2=y2,
            stroke=stroke,
            stroke_width=width,
            stroke_dasharray=dash,
            stroke_opacity=opacity,
            detail=detail,
        )

    def path(
        self,
        points: Sequence[tuple[float, float]],
        *,
        stroke: str = INK,
        width: float = 1.5,
        fill: str = "none",
        closed: bool = False,
        dash: str | None = None,
        opacity: float | None = None,
        detail: str | None = None,
    ) -> None:
        """Draw a polyline, or a filled polygon when `closed`."""
        d = "M" + " L".join(f"{number(x)} {number(y)}" for x, y in points) + ("Z" if closed else "")
        self.element(
            "path",
            d=d,
            stroke=stroke,
            stroke_width=width,
            fill=fill,
            stroke_dasharray=dash,
            opacity=opacity,
            stroke_linejoin="round",
            detail=detail,
        )

    def circle(
        self, x: float, y: float, r: float, *, fill: str = INK, stroke: str | None = None, detail: str | None = None
    ) -> None:
        """Draw a disc."""
        self.element("circle", cx=x, cy=y, r=r, fill=fill, stroke=stroke, detail=detail)

    def text(
        self,
        x: float,
        y: float,
        content: str,
        *,
        size: float = 12,
        anchor: str = "start",
        mono: bool = False,
        bold: bool = False,
        dim: bool = False,
        fill: str = INK,
    ) -> None:
        """Write one line of text; `y` is the baseline. `dim` is for secondary text (70 % ink)."""
        self.element(
            "text",
            x=x,
            y=y,
            font_size=size if size != 12 else None,
            text_anchor=anchor if anchor != "start" else None,
            font_family=MONO if mono else None,
            font_weight="600" if bold else None,
            fill=fill if fill != INK else None,
            fill_opacity=0.72 if dim else None,
            content=content,
        )

    def hatch(self, name: str, *, colour: str = INK, spacing: float = 5, opacity: float = 0.55) -> str:
        """Define a diagonal hatching and return the `fill` that uses it."""
        defs = ElementTree.SubElement(self.root, f"{{{SVG}}}defs")
        pattern = ElementTree.SubElement(
            defs,
            f"{{{SVG}}}pattern",
            {
                "id": name,
                "width": number(spacing),
                "height": number(spacing),
                "patternUnits": "userSpaceOnUse",
                "patternTransform": "rotate(45)",
            },
        )
        ElementTree.SubElement(
            pattern,
            f"{{{SVG}}}line",
            {
                "x1": "0",
                "y1": "0",
                "x2": "0",
                "y2": number(spacing),
                "stroke": colour,
                "stroke-width": "1.6",
                "stroke-opacity": number(opacity),
            },
        )
        return f"url(#{name})"

    def picture(self, *, title: str, summary: str, text: str) -> Picture:
        """Close the drawing at the current `height`."""
        self.root.set("viewBox", f"0 0 {number(self.width)} {number(self.height)}")
        return make_picture(self.root, title=title, summary=summary, text=text)


def number(value: object) -> str:
    """Format a coordinate: at most two decimals, no trailing zeros."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"an SVG attribute must be a string or a number, got {value!r}")
    return f"{value:.2f}".rstrip("0").rstrip(".") if value % 1 else str(int(value))
