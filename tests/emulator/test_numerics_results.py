"""What docs/numerics.md says of the comparison with an H200 is what the kept results say."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from mma_ptx import FORMS

DOCUMENT = "docs/numerics.md"


def rows(repository: Path, kind: str) -> list[dict[str, Any]]:
    text = (repository / "benchmarks" / "results" / f"{kind}-nvidia-h200.json").read_text(encoding="utf-8")
    return json.loads(text)["rows"]


def test_every_matrix_row_has_a_million_outputs_and_no_mismatch(repository: Path) -> None:
    for row in rows(repository, "mma"):
        assert row["outputs"] >= 1_000_000, row["shape"]
        assert row["mismatches"] == 0, row["shape"]
        assert sum(count for count, _ in row["families"].values()) == row["outputs"]


def test_every_n_and_every_type_was_compared(repository: Path) -> None:
    kept = {(row["shape"], row["type"]) for row in rows(repository, "mma")}
    assert {(f"m64n{n}k16", "f32.bf16.bf16") for n in range(8, 257, 8)} <= kept
    fp8 = {f"{d}.{a}.{b}" for d in ("f32", "f16") for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")}
    integers = {f"s32.{a}.{b}{sat}" for a in ("s8", "u8") for b in ("s8", "u8") for sat in ("", ".satfinite")}
    assert fp8 | integers | {"f32.f16.f16", "f16.f16.f16", "f32.tf32.tf32", "f32.bf16.bf16"} == {
        kind for _, kind in kept
    }


def test_every_mma_form_and_every_descriptor_gives_the_same_bits(repository: Path) -> None:
    kept = rows(repository, "mma-sync")
    assert {form.opcode for form in FORMS} <= {row["kind"] for row in kept}
    assert not any("refused" in row for row in kept)
    assert sum(row["outputs"] for row in kept) > 2_000_000
    assert sum(row["mismatches"] for row in kept) == 0


@pytest.mark.parametrize("kind", ["convert", "approx"])
def test_only_tanh_differs(repository: Path, kind: str) -> None:
    for row in rows(repository, kind):
        assert row["mismatches"] == 0 or row["opcode"].startswith("tanh."), row["opcode"]
        assert row["every_value"] or row["outputs"] >= 10**8, row["opcode"]


def test_the_documents_numbers_are_the_results(repository: Path) -> None:
    text = (repository / DOCUMENT).read_text(encoding="utf-8")
    outputs: Counter[str] = Counter()
    for row in rows(repository, "mma"):
        d, a, _ = row["type"].split(".")[:3]
        group = "integers" if d == "s32" else "fp8" if a in ("e4m3", "e5m2") else a
        outputs[group] += row["outputs"]
    for row in rows(repository, "mma-sync"):
        outputs[row["kind"].split(".")[0].split(":")[0]] += row["outputs"]
    said = [float(x) for x in re.findall(r"\| ([\d.]+) million", text)]
    groups = ("bf16", "f16", "tf32", "fp8", "integers", "mma", "wgmma")
    assert said == [round(outputs[group] / 1e6, 1) for group in groups]
    tanh = {row["opcode"]: row for row in rows(repository, "approx")}["tanh.approx.f32"]
    assert f"{tanh['mismatches'] / 2**32:.1%}".replace("%", " %") in text
    assert f"by up to {tanh['largest_ulp']} ulp" in text
