"""The constants of the cost model: each is documented, and is what was measured."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from mlacademy import _emulator
from mlacademy.gpu import CostModel

ROOT = Path(__file__).resolve().parents[2]
ROWS = {
    row["bench"]: row for row in json.loads((ROOT / "benchmarks/results/cost-nvidia-h200.json").read_text())["rows"]
}
KERNELS = {
    row["kernel"] for row in json.loads((ROOT / "benchmarks/results/cycles-nvidia-h200.json").read_text())["rows"]
}
FIELDS = {field.name: field for field in dataclasses.fields(CostModel)}

# Constants that one row gives: what is computed from it.
DIRECT = {
    "multiply_issue": ("mad_pipe", lambda row: row["item"]),
    "float32_issue": ("fma_pipe", lambda row: row["item"]),
    "half_issue": ("hfma2_pipe", lambda row: row["item"]),
    "float64_issue": ("dfma_pipe", lambda row: row["item"]),
    "convert_issue": ("cvt_bf16_pipe", lambda row: row["item"]),
    "special_issue": ("ex2_pipe", lambda row: row["item"]),
    "alu_latency": ("fma", lambda row: row["item"]),
    "integer_latency": ("add_xor", lambda row: row["item"]),
    "half_latency": ("hfma2", lambda row: row["item"]),
    "special_latency": ("ex2", lambda row: row["item"]),
    "shuffle_latency": ("shfl", lambda row: row["item"]),
    "shared_latency": ("ld_shared", lambda row: row["step"]),
    "shared_bytes": ("ld_shared_pipe", lambda row: row["items"] / row["step"]),
    "l1_latency": ("ld_l1", lambda row: row["step"]),
    "l2_latency": ("ld_l2", lambda row: row["step"]),
    "l2_bytes": ("l2_one", lambda row: row["items"] / row["step"]),
    "global_store_bytes": ("st_row", lambda row: row["items"] * 128 / row["step"]),
    "l2_total": ("l2_all", lambda row: 132 * row["items"] / row["step"]),
    "dram_latency": ("ld_dram", lambda row: row["step"]),
    "dram_bytes": ("dram_all", lambda row: 132 * row["items"] / row["step"]),
    "global_atomic_latency": ("atom_global", lambda row: row["step"]),
    "remote_latency": ("ld_remote", lambda row: row["step"]),
    "remote_bytes": ("remote_pipe", lambda row: row["items"] / row["step"]),
    "wide_fence_latency": ("fence_gpu", lambda row: row["step"]),
    "mbarrier_issue": ("mbarrier_arrive", lambda row: row["step"]),
    "bulk_issue": ("bulk_16_queue", lambda row: row["step"]),
    "bulk_bytes": ("bulk_32768_queue", lambda row: 32768 / row["step"]),
    "wgmma_macs": ("wgmma_n256", lambda row: 64 * 256 * 16 / row["step"]),
}


def test_replay_and_table_have_the_same_constants() -> None:
    assert set(_emulator.COSTS) == FIELDS.keys()


@pytest.mark.parametrize("name", FIELDS)
def test_each_constant_says_what_it_means_and_where_it_was_measured(name: str) -> None:
    about = FIELDS[name].metadata
    assert about["meaning"]
    rows = [row.strip() for row in about["measured"].split(",")]
    assert all(row in ROWS or row in KERNELS or row in ("assumed", "design") for row in rows), rows
    assert FIELDS[name].default >= 0


@pytest.mark.parametrize("name", DIRECT)
def test_a_constant_is_what_was_measured(name: str) -> None:
    row, value = DIRECT[name]
    assert row in FIELDS[name].metadata["measured"]
    measured: float = value(ROWS[row])
    assert FIELDS[name].default == pytest.approx(measured, rel=0.05)


def test_barriers_of_16_warps_cost_what_was_measured() -> None:
    model = CostModel()
    for warps in (4, 16):
        measured: Any = ROWS[f"bar_{warps}"]["step"]
        assert model.barrier_latency + warps * (model.barrier_warp + 1 / 4) == pytest.approx(measured, rel=0.05)


def test_page_shows_the_constants_as_they_are() -> None:
    assert CostModel().table() in (ROOT / "docs/cost-model.md").read_text(encoding="utf-8")


def test_page_shows_the_errors_that_were_measured() -> None:
    page = (ROOT / "docs/cost-model.md").read_text(encoding="utf-8")
    rows = json.loads((ROOT / "benchmarks/results/cycles-nvidia-h200.json").read_text())["rows"]
    for row in rows:
        assert f"| `{row['kernel']}` | {row['scale']} | {row['ctas']} | {row['measured']:,.0f} | " in page
        assert f" | {row['error']:+.0%} |" in page
