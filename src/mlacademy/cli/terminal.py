"""How commands speak: one console for what they print, one sentence on standard error when they fail."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


class CommandError(Exception):
    """A command cannot do what it was asked; the message is one sentence that says why and what to do."""


def complain(sentence: str) -> None:
    """Print one sentence to standard error."""
    print(sentence, file=sys.stderr)


def console() -> Console:
    """The console for a command's output: plain and wide when it goes to a file or a pipe."""
    from rich.console import Console

    plain = not sys.stdout.isatty()
    columns = os.environ.get("COLUMNS", "")
    width = (int(columns) if columns.isdecimal() and int(columns) else 120) if plain else None
    return Console(highlight=False, width=width, soft_wrap=True, emoji=False)


def confirm(question: str) -> bool:
    """Ask a yes-or-no question on the terminal; Enter means no.

    Raises ``CommandError`` when there is no terminal to ask on.
    """
    if not sys.stdin.isatty():
        raise CommandError("this needs your consent and there is no terminal to ask on: add --yes")
    return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
