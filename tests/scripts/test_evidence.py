"""The page of evidence: what a run of some criteria does not touch stays on it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
import evidence


def test_a_page_tells_what_it_was_written_from(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(evidence, "KEPT", tmp_path)
    criteria = [
        evidence.Criterion("one-line", "It runs.", "echo x"),
        evidence.Criterion("two-lines", "It runs, twice.", "echo x\necho y\n"),
        evidence.Criterion("silent", "It says nothing.", "true"),
        evidence.Criterion("never", "It was not run.", "false"),
    ]
    told = {
        "one-line": evidence.Outcome("one-line", "x", 0, 1.5, "abc1234"),
        "two-lines": evidence.Outcome("two-lines", "a | table\n\n## no heading\ny", 3, 20.0, "def5678"),
        "silent": evidence.Outcome("silent", "", 0, 0.1, "abc1234"),
    }
    assert evidence.read(evidence.page(criteria, told)) == told


def test_the_page_keeps_what_was_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(evidence, "KEPT", tmp_path)
    told = evidence.read(evidence.PAGE.read_text(encoding="utf-8"))
    assert told
    assert evidence.read(evidence.page(evidence.load(), told)) == told
