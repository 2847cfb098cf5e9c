"""`LaunchPlan`: what it accepts, what it refuses by name, how it prints."""

from __future__ import annotations

import numpy as np
import pytest

from mlacademy.gpu import LaunchPlan, Module

PTX = ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k()\n%s\n{\nret;\n}\n"


def test_sizes_are_filled_up_with_ones() -> None:
    plan = LaunchPlan(grid=6, block=(32, 2), cluster=(2,))
    assert (plan.grid, plan.block, plan.cluster) == ((6, 1, 1), (32, 2, 1), (2, 1, 1))
    assert (plan.ctas, plan.threads_per_cta, plan.ctas_per_cluster) == (6, 64, 2)
    assert plan == LaunchPlan((6, 1, 1), (32, 2, 1), (2, 1, 1))
    assert LaunchPlan(np.int64(6), (32, 2), 2, smem_bytes=np.int32(0)) == plan  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"grid": 0}, r"grid\.x must be 1 to 2,147,483,647, got 0"),
        ({"grid": (1, 65_536)}, r"grid\.y must be 1 to 65,535, got 65,536"),
        ({"grid": ()}, r"grid must have 1 to 3 sizes \(x, y, z\), got 0"),
        ({"block": 1025}, r"block\.x must be 1 to 1,024, got 1,025"),
        ({"block": (1, 1, 65)}, r"block\.z must be 1 to 64, got 65"),
        ({"block": (32, 33)}, r"block must have at most 1,024 threads, got 32 × 33 = 1,056"),
        ({"cluster": (8, 4), "grid": (8, 4)}, r"cluster must have at most 16 CTAs, got 8 × 4 = 32"),
        ({"grid": 6, "cluster": 4}, r"grid must be a multiple of cluster along x: got 6 CTAs and clusters of 4"),
        ({"smem_bytes": -1}, r"smem_bytes must be 0 to 232,448 \(227 KiB a CTA\), got -1"),
        ({"smem_bytes": 232_449}, r"smem_bytes must be 0 to 232,448 \(227 KiB a CTA\), got 232,449"),
    ],
)
def test_size_out_of_range_is_named(fields: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        LaunchPlan(**{"grid": 1, "block": 32, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"grid": 1.5}, "grid must be an int or a tuple of ints, got 1.5"),
        ({"block": (32, True)}, "block must be an int or a tuple of ints, got True"),
        ({"smem_bytes": 1024.0}, "smem_bytes must be an int, got 1024.0"),
        ({"programmatic": 1}, "programmatic must be True or False, got int"),
    ],
)
def test_wrong_type_is_named(fields: dict[str, object], sentence: str) -> None:
    with pytest.raises(TypeError, match=sentence):
        LaunchPlan(**{"grid": 1, "block": 32, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("directive", "plan", "sentence"),
    [
        (".maxntid 128, 1, 1", LaunchPlan(1, (64, 4)), r"at most 128 threads for k .*got 64 × 4 = 256"),
        (".reqntid 64, 2, 1", LaunchPlan(1, 128), "block must be 64 × 2 for k, got 128"),
        (".reqnctapercluster 2, 1, 1", LaunchPlan(4, 32), r"cluster must be 2 for k .*, got 1"),
    ],
)
def test_plan_is_held_against_the_kernels_own_demands(directive: str, plan: LaunchPlan, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        plan.check(Module.from_ptx(PTX % directive)["k"])


def test_fitting_plan_passes() -> None:
    kernel = Module.from_ptx(PTX % ".maxntid 128, 1, 1\n.reqnctapercluster 2, 1, 1")["k"]
    LaunchPlan(4, (64, 2), cluster=2).check(kernel)


def test_plan_prints_as_a_table_in_text_and_in_html() -> None:
    plan = LaunchPlan((1320, 2), 384, cluster=2, smem_bytes=200_000, programmatic=True)
    assert str(plan).splitlines() == [
        "grid                   1,320 × 2 = 2,640 CTAs",
        "block                  384 = 384 threads, 12 warps",
        "cluster                2 = 2 CTAs, 1,320 clusters",
        "dynamic shared memory  200,000 bytes a CTA",
        "start                  before the kernel ahead has ended (programmatic dependent launch)",
    ]
    shown = plan._repr_html_()
    assert shown.count("<tr>") == 5
    assert "1,320 × 2 = 2,640 CTAs" in shown
