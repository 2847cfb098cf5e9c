"""Kept times are replayed and say so; with a GPU the benchmark runs in a process of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mlacademy import measured

ROWS = [
    {
        "case": "h128_s1_b1",
        "ours_us": 12.0,
        "peer_us": 18.0,
        "goal_us": 11.0,
        "sustained_us": 12.5,
        "max_rel_err": 2e-3,
    },
    {
        "case": "append_4096",
        "ours_us": 4.0,
        "peer_us": None,
        "goal_us": 5.0,
        "sustained_us": None,
        "max_rel_err": None,
    },
]
RUN = {"card": "A card", "driver": "1.2", "date": "2030-01-02T03:04:05", "commit": "abcdef0123456789", "rows": ROWS}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A course of which only the kept times exist."""
    kept = tmp_path / "benchmarks" / "results" / "attention-nvidia-h200.json"
    kept.parent.mkdir(parents=True)
    kept.write_text(json.dumps(RUN), encoding="utf-8")
    monkeypatch.setattr(measured, "course_root", lambda: tmp_path)
    monkeypatch.setattr(measured, "hopper", lambda: False)
    return tmp_path


def test_a_replay_says_that_it_is_one_and_gives_every_row(folder: Path) -> None:
    said: list[str] = []
    results = measured.attention(say=said.append)
    assert said[0] == "No Hopper GPU here, so these are not this machine's times."
    assert said[1] == "Recorded: A card, driver 1.2, 2030-01-02, commit abcdef012345."
    assert [line.split()[0] for line in said[2:]] == ["h128_s1_b1", "append_4096"]
    assert results.replayed
    assert results.row("h128_s1_b1").speedup == 1.5
    assert results.row("append_4096").speedup is None


def test_what_a_record_notes_is_said_after_its_rows(folder: Path) -> None:
    measured.results_file().write_text(json.dumps(RUN | {"note": "Of an older kernel."}), encoding="utf-8")
    said: list[str] = []
    assert measured.attention(["append_4096"], say=said.append).note == "Of an older kernel."
    assert said[-1] == "Note: Of an older kernel."
    assert len(said) == 4


def test_chosen_cases_come_in_the_order_asked_for(folder: Path) -> None:
    results = measured.attention(["append_4096", "h128_s1_b1"], say=lambda line: None)
    assert [row.case for row in results.rows] == ["append_4096", "h128_s1_b1"]
    with pytest.raises(ValueError, match="no case 'h64': there are h128_s1_b1, append_4096"):
        measured.attention(["h64"], say=lambda line: None)


@pytest.mark.parametrize("field", ["card", "rows"])
def test_a_file_without_a_field_is_refused(folder: Path, field: str) -> None:
    measured.results_file().write_text(json.dumps({k: v for k, v in RUN.items() if k != field}), encoding="utf-8")
    with pytest.raises(ValueError, match=f"has no {field}: it was not written by"):
        measured.kept()


def test_a_row_without_a_field_is_refused(folder: Path) -> None:
    rows = [ROWS[0], {k: v for k, v in ROWS[1].items() if k != "goal_us"}]
    measured.results_file().write_text(json.dumps(RUN | {"rows": rows}), encoding="utf-8")
    with pytest.raises(ValueError, match="has no goal_us of row 1"):
        measured.kept()


def test_without_kept_times_the_error_says_which_file_is_missing(folder: Path) -> None:
    measured.results_file().unlink()
    with pytest.raises(FileNotFoundError, match=r"there are no kept times: .*attention-nvidia-h200.json"):
        measured.attention(say=lambda line: None)


SCRIPT = """
import json, sys
target = sys.argv[sys.argv.index("--output") + 1]
cases = [a for a in sys.argv[1:] if a.startswith(("h", "append"))]
for case in cases:
    print("measuring", case, "quickly" if "--quick" in sys.argv else "")
run = json.loads({run!r})
run["rows"] = [row for row in run["rows"] if row["case"] in cases]
if cases: open(target, "w").write(json.dumps(run))
sys.exit({status})
"""


def with_benchmark(folder: Path, monkeypatch: pytest.MonkeyPatch, status: int = 0) -> None:
    script = SCRIPT.format(run=json.dumps(RUN), status=status)
    (folder / "benchmarks" / "attention.py").write_text(script, encoding="utf-8")
    monkeypatch.setattr(measured, "hopper", lambda: True)


def test_with_a_gpu_the_benchmark_runs_and_its_lines_come_through(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_benchmark(folder, monkeypatch)
    said: list[Any] = []
    results = measured.attention(["h128_s1_b1"], say=said.append)
    assert said == ["measuring h128_s1_b1 quickly"]
    assert not results.replayed
    assert [row.case for row in results.rows] == ["h128_s1_b1"]
    assert results.origin.startswith("Measured now: A card")


def test_a_benchmark_that_fails_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_benchmark(folder, monkeypatch, status=3)
    with pytest.raises(RuntimeError, match=r"benchmarks/attention.py ended with status 3"):
        measured.attention(["h128_s1_b1"], quick=False, say=lambda line: None)


@pytest.mark.parametrize(
    ("available", "capability", "runs"), [(False, (9, 0), False), (True, (8, 0), False), (True, (9, 0), True)]
)
def test_the_kernels_run_on_compute_capability_9_0_alone(
    monkeypatch: pytest.MonkeyPatch, available: bool, capability: tuple[int, int], runs: bool
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: available)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda: capability)
    assert measured.hopper() is runs
