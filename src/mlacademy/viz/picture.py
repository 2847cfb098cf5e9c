"""`Picture`: a drawing that shows as inline SVG in a notebook and as text in a terminal, and says the same in both."""

from __future__ import annotations

import hashlib
import html
import re
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from mlacademy.viz.theme import STYLE

SVG = "http://www.w3.org/2000/svg"
XLINK = "http://www.w3.org/1999/xlink"
ElementTree.register_namespace("", SVG)
ElementTree.register_namespace("xlink", XLINK)

# A picture saved to a file has no page to take its ink from, so it brings both.
STANDALONE = "svg{color:#1f2328}@media (prefers-color-scheme: dark){svg{color:#e6e6e6}}"


@dataclass(frozen=True)
class Picture:
    """A drawing and its text twin.

    Attributes:
        svg: one `<svg>` element with `viewBox`, `role="img"`, `<title>` and `<desc>`. Elements that mean something
            carry their sentence in `data-detail`; a widget shows it for the one under the pointer or the focus.
        text: the full text twin: every number drawn, readable without the drawing.
        title: one line, the same as the SVG's `<title>`.
    """

    svg: str
    text: str
    title: str

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> dict[str, str]:  # the signature is IPython's
        return {"text/html": self.html(), "text/plain": self.text}

    def html(self) -> str:
        """Return the figure as it stands in a notebook or in the book: style, drawing, and the twin behind a fold."""
        twin = html.escape(self.text)
        # A blank line would end the HTML block where a page passes through Markdown.
        twin = twin.replace("\n\n", "\n&#8203;\n")
        return (
            f'<figure class="mla-figure" style="max-width:{_width(self.svg)}px"><style>{STYLE}</style>\n'
            f"<div>{with_tooltips(self.svg)}</div>\n"
            f"<details><summary>Text version</summary><pre>{twin}</pre></details></figure>"
        )

    def save(self, path: str | Path) -> Path:
        """Write the drawing as a standalone SVG file, with ink for light and dark viewers; return the path."""
        root = ElementTree.fromstring(with_tooltips(self.svg))
        style = ElementTree.Element(f"{{{SVG}}}style")
        style.text = STANDALONE
        root.insert(0, style)
        target = Path(path)
        target.write_text(ElementTree.tostring(root, encoding="unicode") + "\n", encoding="utf-8")
        return target


def make_picture(root: ElementTree.Element, *, title: str, summary: str, text: str) -> Picture:
    """Finish a drawing: accessible name and description, ids that cannot clash with another picture on the page.

    `summary` is one or two sentences (the SVG's `<desc>`); `text` is the twin's body, without the title.
    """
    for index, (tag, content) in enumerate((("title", title), ("desc", summary))):
        element = ElementTree.Element(f"{{{SVG}}}{tag}", {"id": tag})
        element.text = content
        root.insert(index, element)
    root.set("role", "img")
    root.set("aria-labelledby", "title")
    root.set("aria-describedby", "desc")
    body = "\n".join(part for part in (title, summary, text) if part)
    return Picture(svg=_with_scoped_ids(ElementTree.tostring(root, encoding="unicode")), text=body, title=title)


def with_tooltips(svg: str) -> str:
    """Turn each `data-detail` into a `<title>` child, which browsers show as a tooltip without any script."""
    root = ElementTree.fromstring(svg)
    for element in root.iter():
        detail = element.attrib.pop("data-detail", None)
        if detail is not None:
            tip = ElementTree.Element(f"{{{SVG}}}title")
            tip.text = detail
            element.insert(0, tip)
    return ElementTree.tostring(root, encoding="unicode")


def _with_scoped_ids(svg: str) -> str:
    """Prefix ids that are referred to with a digest of the drawing and drop the rest: same drawing, same bytes."""
    prefix = "m" + hashlib.sha256(svg.encode()).hexdigest()[:10] + "-"
    referenced = set(re.findall(r'url\(#([^)"]+)\)|(?:href|aria-\w+)="#?([^"]+)"', svg))
    names = {name for pair in referenced for name in pair if name}

    def renamed(match: re.Match[str]) -> str:
        return f' id="{prefix}{match[1]}"' if match[1] in names else ""

    svg = re.sub(r'\sid="([^"]*)"', renamed, svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}\1)", svg)
    svg = re.sub(r'href="#([^"]+)"', rf'href="#{prefix}\1"', svg)
    return re.sub(r'(aria-(?:labelledby|describedby))="([^"]+)"', rf'\1="{prefix}\2"', svg)


def _width(svg: str) -> int:
    """Return the drawing's natural width in CSS pixels: the third number of its `viewBox`."""
    match = re.search(r'viewBox="[-\d.]+ [-\d.]+ ([\d.]+) ', svg)
    if match is None:
        raise AssertionError("every picture has a viewBox")
    return round(float(match[1]))
