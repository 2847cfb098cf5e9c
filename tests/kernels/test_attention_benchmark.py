"""The attention benchmark without a GPU: its cases, its data, its table, what it says where it cannot run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from mlacademy import cache, measured

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import _attention_cases
import attention


def test_peer_and_goal_of_every_case() -> None:
    bars = {case.name: (case.peer_us and round(case.peer_us, 1), case.goal_us) for case in _attention_cases.CASES}
    assert bars == {
        "h128_s1_b1": (17.4, 11),
        "h128_s1_b2": (17.1, 11),
        "h128_s1_b16": (38.9, 31),
        "h128_s1_b64": (93.1, 78),
        "h128_s1_b128": (181.8, 150),
        "h128_s2_b128": (360.6, 295),
        "h64_s1_b1": (18.1, 11),
        "h64_s1_b16": (29.8, 24),
        "h64_s1_b128": (113.5, 100),
        "h128_s1_b2_k128": (10.7, 7),
        "h128_s1_b128_k512": (57.7, 50),
        "h16_s1_b128": (None, None),
        "schedule_b1": (12.9, 3),
        "schedule_b128": (20.9, 4),
        "schedule_b512": (36.1, 6),
        "append_4096": (None, 5),
        "append_262144": (None, None),
    }


def test_goals_that_depend_on_the_run() -> None:
    few, bulk = (next(_attention_cases.chosen([name])) for name in ("h16_s1_b128", "append_262144"))
    assert few.goal({"h64_s1_b128": 110.0}, 0, 4.3e6) == pytest.approx(66.0)
    assert few.goal({}, 0, 4.3e6) is None
    assert bulk.goal({}, 301 * 10**6, 4.3e6) == pytest.approx(100.0)


def test_names_choose_cases_and_a_wrong_one_is_named() -> None:
    assert [case.name for case in _attention_cases.chosen(["schedule_b1", "h64_s1_b1"])] == ["h64_s1_b1", "schedule_b1"]
    with pytest.raises(ValueError, match="there is no case h128: choose from h128_s1_b1, "):
        _attention_cases.chosen(["h128"])


def test_the_cache_is_quantised_as_the_course_does() -> None:
    generator = torch.Generator().manual_seed(1)
    nope = (torch.randn(40, 512, generator=generator) * 3).to(torch.bfloat16)
    rope = torch.randn(40, 64, generator=generator).to(torch.bfloat16)
    kv = cache.new_cache(cache.V32, 1, 40)
    cache.append(kv, torch.arange(40), nope, rope, cache.V32)
    assert torch.equal(_attention_cases.quantised(nope, rope), kv.view(40, 656))


def test_the_table_says_what_was_met() -> None:
    row = dict.fromkeys(measured.FIELDS) | {"case": "h64_s1_b1", "ours_us": 12.0, "max_rel_err": 0.002}
    rows = [row | {"peer_us": 18.0, "goal_us": 11.0}, row | {"peer_us": None, "goal_us": 12.5, "sustained_us": 12.25}]
    _, first, second = attention.table(rows).splitlines()
    assert first.split() == ["h64_s1_b1", "12.00", "18.00", "1.50", "11.00", "no", "–", "2.0e-03"]
    assert second.split() == ["h64_s1_b1", "12.00", "–", "–", "12.50", "yes", "12.25", "2.0e-03"]


def test_without_a_hopper_gpu_it_is_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["attention.py", "--quick", "h64_s1_b1"])
    assert attention.main() == 0
    assert capsys.readouterr().out == "skipped: this needs a Hopper GPU (compute capability 9.0)\n"
