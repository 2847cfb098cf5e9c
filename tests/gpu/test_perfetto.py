"""A trace as Perfetto's JSON: well formed by the trace event format, and saying what the tables say."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mlacademy import gpu
from mlacademy.gpu import Device, samples
from mlacademy.gpu.trace import Trace

REQUIRED = {  # fields that the format asks for, by phase
    "X": {"name", "cat", "ts", "dur", "pid", "tid"},
    "b": {"name", "cat", "id", "ts", "pid", "tid"},
    "e": {"name", "cat", "id", "ts", "pid", "tid"},
    "s": {"name", "cat", "id", "ts", "pid", "tid"},
    "f": {"name", "cat", "id", "ts", "pid", "tid", "bp"},
    "C": {"name", "ts", "pid", "args"},
    "M": {"name", "pid", "args"},
}


@pytest.fixture(params=["bulk_copy", "cluster_sum", "wgmma_tile"])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Trace, dict[str, Any]]:
    report, _ = samples.run(request.param, Device("emulator"), trace=True)
    assert report.trace is not None
    path = report.trace.to_perfetto(tmp_path / "trace.json")
    return report.trace, json.loads(path.read_text())


def test_every_event_has_the_fields_of_its_phase(written: tuple[Trace, dict[str, Any]]) -> None:
    document = written[1]
    assert document["displayTimeUnit"] in ("ms", "ns")
    for event in document["traceEvents"]:
        assert event.keys() >= REQUIRED[event["ph"]], event
        assert all(isinstance(event[key], int | float) and event[key] >= 0 for key in ("ts", "dur") if key in event)
        assert all(isinstance(value, int | float) for value in event.get("args", {}).values() if event["ph"] == "C")


def test_begins_and_ends_come_in_pairs(written: tuple[Trace, dict[str, Any]]) -> None:
    for start, stop in (("b", "e"), ("s", "f")):
        found: dict[str, dict[tuple[Any, ...], float]] = {start: {}, stop: {}}
        for event in written[1]["traceEvents"]:
            if event["ph"] in found:
                key = (event["cat"], event["id"], event["name"])
                assert key not in found[event["ph"]]
                found[event["ph"]][key] = event["ts"]
        assert found[start].keys() == found[stop].keys()
        assert all(found[start][key] <= found[stop][key] for key in found[start])


def test_events_are_those_of_the_tables(written: tuple[Trace, dict[str, Any]]) -> None:
    trace, document = written
    count = Counter(event["ph"] for event in document["traceEvents"])
    assert count["X"] == len(trace.spans.t0)
    assert count["b"] == len(trace.operations.id)
    assert count["M"] == len(trace.ctas.cta) + len(trace.warps.warp)
    assert count["s"] == sum(trace.operations.barrier != "")
    names = {event["args"]["name"] for event in document["traceEvents"] if event["ph"] == "M"}
    assert "CTA (0, 0, 0)" in names
    if "producer" in trace.warps.role.tolist():
        assert {"warp 0: producer", "warp 1: consumer"} <= names


def test_the_trace_of_a_failed_launch_can_be_drawn_too(tmp_path: Path) -> None:
    with pytest.raises(gpu.Runaway) as caught:
        samples.run("bulk_copy", Device("emulator"), trace=True, step_budget=300)
    path = caught.value.trace.to_perfetto(tmp_path / "failed.json")
    assert len(json.loads(path.read_text())["traceEvents"]) > 20
    assert "It ended with: " in caught.value.trace.summary()
