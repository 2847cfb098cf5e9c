"""What a learner sees after a check: one object with a text, a Markdown and an HTML face."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass, field

HEADINGS = {
    "passed": "right",
    "failed": "not right yet",
    "unanswered": "not answered yet",
    "manual": "marked by a person",
    "not run": "cannot be run here",
}
_COLOURS = {
    "passed": "var(--jp-success-color1, #2e7d32)",
    "failed": "var(--jp-error-color1, #c62828)",
    "unanswered": "var(--jp-warn-color1, #b26a00)",
    "manual": "var(--jp-info-color1, #0277bd)",
    "not run": "var(--jp-warn-color1, #b26a00)",
}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The outcome of one check. ``bool(verdict)`` is whether the answer is right.

    ``state`` is ``passed``, ``failed``, ``unanswered``, ``manual`` or ``not run`` (this machine lacks the compiler or
    the GPU). ``kind`` names the failure: a misconception's
    key, or ``value``, ``shape``, ``dtype``, ``none``, ``raised``, ``timeout``, ``exit``, ``crash``, ``memory``,
    ``library``, ``changed inputs`` and so on. ``property_`` is what a hidden test may say. ``points`` counts the parts
    earned on the cases that ran.
    """

    exercise: str
    title: str
    state: str
    summary: str
    kind: str = ""
    case: str = ""
    property_: str = ""
    reason: str = ""
    hints: tuple[str, ...] = ()
    hint: str = ""
    lines: tuple[str, ...] = ()
    report: tuple[str, ...] = ()
    printed: str = ""
    points: int = 0
    max_points: int = 0
    parts: Mapping[str, bool] = field(default_factory=dict)
    seconds: float = 0.0
    comparable: bool = False

    def __bool__(self) -> bool:
        return self.state == "passed"

    @property
    def heading(self) -> str:
        """``02.3 Pack one token: not right yet``."""
        return f"{self.exercise} {self.title}: {HEADINGS[self.state]}"

    def rows(self) -> list[tuple[str, str]]:
        """The labelled lines under the summary, in the order they are read."""
        more = f'  Next step: hint("{self.exercise}")' if len(self.hints) > 1 else ""
        rows = [("Case", self.case), ("Why", self.reason), ("Hint", self.hint and self.hint + more)]
        if len(self.parts) > 1 and self.state in ("passed", "failed"):
            rows.append(("Parts", ", ".join(f"{n}: {'right' if ok else 'not yet'}" for n, ok in self.parts.items())))
        return [(name, text) for name, text in rows if text]

    def blocks(self) -> list[tuple[str, str]]:
        """The blocks of verbatim lines under the rows."""
        blocks = [("Your lines", self.lines), ("The emulator's report", self.report)]
        found = [(name, "\n".join(lines)) for name, lines in blocks if lines]
        return [*found, ("Printed", self.printed)] if self.printed else found

    def __str__(self) -> str:
        text = [self.heading, self.summary, *(f"{name}: {row}" for name, row in self.rows())]
        for name, block in self.blocks():
            text += [f"{name}:", *(f"    {line}" for line in block.splitlines())]
        return "\n".join(text)

    __repr__ = __str__

    def _repr_markdown_(self) -> str:
        text = [f"**{_plain(self.heading)}**", _plain(self.summary)]
        text += [f"*{name}:* {_plain(row)}" for name, row in self.rows()]
        for name, block in self.blocks():
            text.append(f"*{name}:*\n\n```\n{block.replace('```', '` ` `')}\n```")
        return "\n\n".join(text)

    def _repr_html_(self) -> str:
        colour = _COLOURS[self.state]
        row = '<div style="margin-top:0.3em"><b>{}:</b> {}</div>'
        block = '<pre style="margin:0.3em 0 0;white-space:pre-wrap;color:inherit;background:transparent">{}</pre>'
        parts = [f'<div style="font-weight:600;color:{colour}">{html.escape(self.heading)}</div>']
        parts.append(f'<div style="margin-top:0.3em">{html.escape(self.summary)}</div>')
        parts += [row.format(name, html.escape(text)) for name, text in self.rows()]
        for name, lines in self.blocks():
            parts.append(row.format(name, "") + block.format(html.escape(lines)))
        style = f"border-left:4px solid {colour};padding:0.4em 0.8em;max-width:60em;"
        style += "color:var(--jp-content-font-color1,inherit)"
        return f'<div role="status" style="{style}">{"".join(parts)}</div>'


def _plain(text: str) -> str:
    """Keep Markdown from reading signs in a sentence."""
    for sign in "\\`*_[]<>$":
        text = text.replace(sign, "\\" + sign)
    return text
