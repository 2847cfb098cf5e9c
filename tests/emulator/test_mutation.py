"""The mutation study on a part of its mutants: kernels are silent as they are, and mistakes do not pass."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mlacademy.gpu import nvrtc

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import mutation
from _mutants import Site, mutants, split_operands

from kernels import KERNELS, ptx

SMALL = ".reg .b32 mut;"


@pytest.fixture(autouse=True, scope="module")
def compiler() -> None:
    if nvrtc.identity() is None:
        pytest.skip(nvrtc.missing_sentence())


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_as_it_is_is_silent_and_right(name: str) -> None:
    passed, troubles = mutation.silent_seeds([name], mutation.emulator(), 5)
    assert (passed, troubles) == (5, [])


@pytest.mark.parametrize("name", KERNELS)
def test_most_mutants_of_a_kernel_are_caught_and_survivors_are_understood(name: str) -> None:
    device, why = mutation.emulator(), mutation.reasons()
    verdicts = [mutation.judge(mutant, device) for mutant in list(mutants(name, ptx(name)))[::2]]
    survivors = [verdict.mutant.name for verdict in verdicts if not verdict.caught]
    assert len(verdicts) >= 4
    assert set(survivors) <= set(why)
    assert len(survivors) <= 1


def test_a_survivor_that_is_explained_exists() -> None:
    names = {mutant.name for name in KERNELS for mutant in mutants(name, ptx(name))}
    assert set(mutation.reasons()) <= names


def test_operands_keep_their_brackets_together() -> None:
    assert split_operands("[%r1+8], {%f1, %f2}, [%rd1, {%r2, %r3}], p") == [
        "[%r1+8]",
        "{%f1, %f2}",
        "[%rd1, {%r2, %r3}]",
        "p",
    ]


def test_an_alteration_changes_one_operand() -> None:
    site = Site("mbarrier.init.shared::cta.b64", ["[%r1]", "%r2"])
    assert dict(site.mutants())["one arrival more"] == (
        f"{{ {SMALL} add.s32 mut, %r2, 1; mbarrier.init.shared::cta.b64 [%r1], mut; }}"
    )
    assert dict(site.mutants())["deleted"] == ""
