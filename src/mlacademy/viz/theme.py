"""One look for every picture: colours that read on white and on black, and the style sheet around a figure.

Text, axes and outlines are `currentColor`, so a picture takes the ink of the page it stands in. Everything else takes
one of six accents. Their relative luminance lies between 0.12 and 0.3, which gives a contrast of at least 3:1 on white
*and* on #111111, and they stay apart (CIE76 difference of 19 or more) for readers with deuteranopia or protanopia.
Colour never stands alone: neighbours also differ by label, hatching, marker or dash.
"""

from __future__ import annotations

INK = "currentColor"

BLUE = "#177cef"
ORANGE = "#db7815"
TEAL = "#10a574"
PURPLE = "#9947b2"
BROWN = "#7f621f"
PINK = "#a54284"

PALETTE = (BLUE, ORANGE, TEAL, PURPLE, BROWN, PINK)

SANS = "system-ui, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif"
MONO = "ui-monospace, 'SF Mono', 'DejaVu Sans Mono', Menlo, Consolas, monospace"

# The Sphinx theme paints a light card under every HTML output in dark mode; a picture that follows the page's ink does
# not want it, hence the last rules.
STYLE = """
.mla-figure{margin:.4em 0;color:inherit;max-width:100%}
.mla-figure div{overflow-x:auto}
.mla-figure svg{display:block;width:100%;min-width:520px;height:auto;overflow:visible}
.mla-figure details{margin-top:.3em;font-size:.85em}
.mla-figure summary{cursor:pointer;opacity:.75;width:max-content}
.mla-figure summary:focus-visible{outline:2px solid var(--jp-brand-color1,#177cef);outline-offset:2px}
.mla-figure pre{white-space:pre-wrap;word-break:normal;overflow-wrap:anywhere;
color:inherit;background:transparent;border:0;padding:.3em 0;margin:0;
font-family:var(--jp-code-font-family,ui-monospace,monospace);font-size:.95em;line-height:1.45}
.bd-content div.cell_output .text_html:has(.mla-figure){background:transparent!important;
color:inherit!important;padding:0}
""".strip()


def accent(index: int) -> str:
    """Return the accent of series or request `index`; the six colours repeat."""
    return PALETTE[index % len(PALETTE)]
