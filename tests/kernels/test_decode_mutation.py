"""The mutation study of the decode kernels on a part of its mutants; every mistake can be made in today's sources."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mlacademy.gpu import nvrtc
from mlacademy.gpu.disk_cache import DiskCache

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import decode_mutation
from cases import ALL, CASES, Case
from mutants import SOURCES, Mutant, mutants

MUTANTS = [mutant for source in CASES for mutant in mutants(source)]
SHOWN = [mutant for mutant in MUTANTS if not mutant.survives]
QUICK = [mutant for mutant in SHOWN if mutant.kernel in ("cache_append.cu", "combine.cu")]  # quick to compile
SAMPLE = [*SHOWN[::100], *QUICK[::4]]


def test_every_mistake_can_be_made_in_one_place() -> None:
    wrong = {mutant.name: mutant.occurrences() for mutant in MUTANTS if mutant.occurrences() != 1}
    assert wrong == {}
    assert all(mutant.old != mutant.new for mutant in MUTANTS)
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 60


def test_every_decode_kernel_has_cases_and_mistakes() -> None:
    sources = {file.name for file in SOURCES.glob("*.cu")}
    assert set(CASES) == sources == {mutant.kernel for mutant in MUTANTS}


@pytest.mark.parametrize("case", ALL, ids=lambda case: f"{case.source}: {case.name}")
def test_a_kernel_as_it_is_is_silent_and_right(case: Case) -> None:
    assert case.run(order="lazy", seed=7)


@pytest.mark.parametrize("mutant", SAMPLE, ids=lambda mutant: mutant.name)
def test_a_mistake_is_caught(mutant: Mutant, tmp_path: Path) -> None:
    if nvrtc.identity() is None:
        pytest.skip(nvrtc.missing_sentence())
    assert decode_mutation.judge(mutant, DiskCache(tmp_path)).caught
