"""Every number a chapter states is recomputed or sourced, and the check that says so can fail."""

from __future__ import annotations

import json
from pathlib import Path

import claims
import pytest

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = sorted((ROOT / "lessons").rglob("[0-9][0-9]_*.ipynb"))


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: str(path.relative_to(ROOT / "lessons")))
def test_every_number_of_a_chapter_is_backed(chapter: Path) -> None:
    assert claims.problems(chapter, claims.claims_file(chapter)) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SM90 and E4M3 are names, 132 is a number", ["132"]),
        ("40,960 values, [0,2,4]", ["40960", "0", "2", "4"]),
        ("bytes 0–511 of 656", ["0", "511", "656"]),
        ("a hole is −1, (-1)", ["-1", "-1"]),
        ("$2^{-9}$, 2⁻⁹, 2^9 and 10⁶", ["2^-9", "2^-9", "2^9", "10^6"]),
        ("`0x7F` is NaN", ["0x7F"]),
        ("71.1× smaller, 43 %", ["71.1", "43"]),
        ("see chapter 04, exercises 04.1 to 04.3 and [here](x/04.html)", []),
        ("```\n17\n```\nleft 5", ["5"]),
        ("1. first\n2. second 3", ["3"]),
        ("DeepSeek-V3.2 has 1×128 tiles and a 64-token page", ["1", "128", "64"]),
        ("第 4 章有 66 个分区", ["66"]),
    ],
)
def test_numbers_are_told_from_names(text: str, expected: list[str]) -> None:
    assert list(claims.numbers(text)) == expected


@pytest.mark.parametrize(
    ("says", "value", "verdict"),
    [
        ("71.1", 71.11, True),
        ("71.1", 71.06, True),
        ("71.1", 71.16, False),
        ("66", 66, True),
        ("66", 66.4, False),
        ("2^-9", 0.001953125, True),
        ("2^-9", 0.002, False),
        ("0x7F", 127, True),
    ],
)
def test_a_claim_agrees_to_the_digits_printed(says: str, value: float, verdict: bool) -> None:
    assert claims.agrees(says, value) is verdict


def test_unmapped_stale_and_false_claims_are_reported(tmp_path: Path) -> None:
    notebook = tmp_path / "lessons" / "04_x.ipynb"
    notebook.parent.mkdir()
    cell = {"cell_type": "markdown", "id": "text", "metadata": {}, "source": "It is 66, not 7."}
    notebook.write_text(json.dumps({"nbformat": 4, "cells": [cell]}))
    file = tmp_path / "claims.toml"
    file.write_text(
        '[[claim]]\ncell = "text"\nsays = "66"\nis = "60 + 7"\n[[claim]]\ncell = "*"\nsays = "9"\nsource = "x"\n'
    )
    assert claims.problems(notebook, file) == [
        "text: says 66, but 60 + 7 = 67",
        "text: 7 is not mapped",
        "*: the claim 9 matches nothing in the text",
    ]
