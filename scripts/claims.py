"""Check that every number a chapter states is recomputed or sourced.

    python scripts/claims.py lessons/04_tile_scheduler.ipynb     # list what is unmapped, stale or wrong
    python scripts/claims.py --numbers lessons/04_tile_scheduler.ipynb    # only list the numbers found

A chapter's claims lie in ``lessons/claims/NN.toml``: ``setup`` is Python run once, each ``[[claim]]`` names a cell (or
"*" for the whole chapter), the number as the text ``says`` it, and either ``is``, an expression that must give that
number to the digits printed, or ``source``, where the number comes from.

What counts as a number: digits standing alone in the prose, in inline code and in formulas; powers (2^-9, 2⁻⁹,
10^{6}) and hexadecimal are one number. What does not: fenced code, link targets, list and heading numbers, and names
such as SM90, E4M3, V3.2 or "chapter 04".
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlacademy import notebooks

SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")

IGNORED = [
    re.compile(r"^(```|~~~).*?^\1", re.M | re.S),  # fenced code
    re.compile(r"<!--.*?-->", re.S),
    re.compile(r"<[^>\n]*>"),  # HTML tags and autolinks
    re.compile(r"(?<=\])\([^)\n]*\)"),  # link targets
    re.compile(r"^\s*#+\s*\d+[.:]?\s", re.M),  # numbered headings
    re.compile(r"^\s*\d+\.\s", re.M),  # list numbers
    re.compile(r"\b(?:chapters?|lessons?|assignment|exercises?|part|step|section|图|第)\s*\d+(?:\.\d+)*"
               r"(?:\s*(?:[-–,到至]|and|to|和)\s*\d+(?:\.\d+)*)*", re.I),
    re.compile(r"`[^`\n]*\d\d_[a-z0-9_]+[^`\n]*`"),  # names of chapters and assignments
    re.compile(r"(?:第\s*\d+(?:\s*[到至]\s*\d+)?\s*[章节课]|练习\s*\d+\.\d+)"),
]  # fmt: skip

NUMBER = re.compile(
    r"""
    (?P<hex>0x[0-9A-Fa-f]+)
  | (?P<power>\d+(?:\^\{?-?\d+\}?|[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+))
  | (?P<plain>(?<![\d.])(?:(?<=[\s(\[=≥≤<>≈|$`])-|(?<![\s\S])-)?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?)
    """,
    re.X,
)
"""A number standing alone; what precedes and follows is checked in ``numbers``."""

NAME_CHARACTER = re.compile(r"[A-Za-z_µ]")


@dataclass(frozen=True)
class Claim:
    """One line of a claims file: where (``cell``), what the text ``says``, and what backs it."""

    cell: str
    says: str
    expression: str | None
    source: str | None


def numbers(text: str) -> Iterator[str]:
    """The numbers a markdown text states, in reading order, normalised ("40960", "-1", "2^-9", "0x7F").

    >>> list(numbers("SM90 keeps 40,960 values, that is $2^{-9}$ or 71.1× less; see chapter 04."))
    ['40960', '2^-9', '71.1']
    """
    for pattern in IGNORED:
        text = pattern.sub(" ", text)
    text = text.replace("−", "-").replace("\\,", "").replace("{,}", ",")
    for match in NUMBER.finditer(text):
        before, after = text[: match.start()][-2:], text[match.end() : match.end() + 1]
        if NAME_CHARACTER.fullmatch(before[-1:]) or (before[-1:] in "-." and NAME_CHARACTER.fullmatch(before[:1])):
            continue
        if after and NAME_CHARACTER.fullmatch(after):
            continue
        token = match.group().replace(",", "")
        if match.lastgroup == "power":
            base, _, exponent = token.partition("^")
            if not exponent:
                digits = re.match(r"\d+", token)
                assert digits
                base, exponent = digits.group(), token[digits.end() :].translate(SUPERSCRIPTS)
            token = f"{base}^{exponent.strip('{}')}"
        yield token


def load(path: Path) -> tuple[str, list[Claim]]:
    """The setup code and the claims of a claims file. Raises ``ValueError`` for a claim with no or two backings."""
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    claims = []
    for entry in data.get("claim", []):
        claim = Claim(entry["cell"], normalise(entry["says"]), entry.get("is"), entry.get("source"))
        if (claim.expression is None) == (claim.source is None):
            raise ValueError(f"{path}: the claim {entry} needs either `is` or `source`")
        claims.append(claim)
    return data.get("setup", ""), claims


def normalise(says: str) -> str:
    found = list(numbers(f" {says} "))
    if len(found) != 1:
        raise ValueError(f"`says` must be one number, got {says!r}")
    return found[0]


def agrees(says: str, value: Any) -> bool:
    """Whether ``value`` printed to the digits of ``says`` is ``says``; whole numbers must match exactly."""
    if "^" in says:
        base, exponent = says.split("^")
        return bool(value == float(base) ** int(exponent))
    if says.startswith("0x"):
        return bool(value == int(says, 16))
    decimals = len(says.partition(".")[2])
    return f"{float(value):.{decimals}f}" == says if decimals else bool(float(value) == float(says))


def problems(notebook_path: Path, claims_path: Path) -> list[str]:
    """What is wrong between a chapter's text and its claims: unmapped numbers, stale claims, false claims."""
    found: list[str] = []
    setup, claims = load(claims_path)
    scope: dict[str, Any] = {}
    exec(setup, scope)
    for claim in claims:
        if claim.expression is not None:
            try:
                value = eval(claim.expression, scope)
                if not agrees(claim.says, value):
                    found.append(f"{claim.cell}: says {claim.says}, but {claim.expression} = {value}")
            except Exception as error:
                found.append(f"{claim.cell}: {claim.expression} raised {error!r}")
    used: set[Claim] = set()
    for cell in notebooks.read(notebook_path)["cells"]:
        if cell["cell_type"] != "markdown":
            continue
        for number in numbers(notebooks.source(cell)):
            matching = {c for c in claims if c.cell in (cell["id"], "*") and c.says == number}
            used |= matching
            if not matching:
                found.append(f"{cell['id']}: {number} is not mapped")
    found += [f"{c.cell}: the claim {c.says} matches nothing in the text" for c in claims if c not in used]
    return found


def claims_file(notebook_path: Path) -> Path:
    """Where the claims of a chapter lie: ``lessons/claims/NN.toml``, the same file for every language."""
    lessons = next(folder for folder in notebook_path.resolve().parents if folder.name == "lessons")
    return lessons / "claims" / f"{notebook_path.name[:2]}.toml"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebook", type=Path)
    parser.add_argument("--numbers", action="store_true", help="list the numbers found, by cell")
    options = parser.parse_args()
    if options.numbers:
        for cell in notebooks.read(options.notebook)["cells"]:
            if cell["cell_type"] == "markdown":
                print(f"{cell['id']}: {', '.join(numbers(notebooks.source(cell)))}")
        return 0
    found = problems(options.notebook, claims_file(options.notebook))
    print("\n".join(found) or "every number is backed")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
