"""Every rule: a kernel that breaks it is named, in whatever order things happen; its right twin stays silent."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlacademy import gpu
from mlacademy.gpu import Device, Kernel, LaunchPlan

pytestmark = pytest.mark.usefixtures("compiler")
SOURCE = Path(__file__).parent / "rules.cu"
ORDERS: list[dict[str, Any]] = [{"order": "eager"}, {"order": "lazy"}]
SEEDS: list[dict[str, Any]] = [{"order": "seeded", "seed": seed} for seed in range(1, 31)]


@dataclass(frozen=True)
class Case:
    """A kernel of ``rules.cu``, the rule that its broken form breaks, and words of the report."""

    kernel: str
    threads: int
    rule: str
    words: str
    cluster: int = 1

    def __str__(self) -> str:
        return self.kernel


CASES = [
    Case(
        "barrier_after_writing",
        64,
        "race",
        "(reads|writes) it, and nothing orders that after the (write|read) by warp .",
    ),
    Case("barrier_before_overwriting", 64, "race", "Race on tile"),
    Case("same_byte", 64, "race", "Race on bytes"),
    Case(
        "named_barrier_of_the_right_number",
        96,
        "race",
        r"Race on tile.*: warp . \((reader|writer)\) .* by warp . \((writer|reader)\)",
    ),
    Case("flag_is_volatile", 64, "race", "Race on"),
    Case("counter_is_atomic", 64, "race", "Race on counter"),
    Case(
        "load_is_waited_for",
        128,
        "race",
        "a bulk copy of warp 0 (may still write|writes) it",
    ),
    Case("wait_is_for_this_phase", 128, "race", "It completes on mbarrier shared|after the read by warp"),
    Case(
        "stage_is_empty_before_it_is_filled",
        64,
        "race",
        r"Race on stage.*\((producer|consumer)\) ",
    ),
    Case(
        "loads_do_not_overlap",
        128,
        "race",
        "writes it while a bulk copy of warp 0 may still write it",
    ),
    Case("source_of_a_store_is_kept", 128, "race", "cp.async.bulk.wait_group.read"),
    Case("store_is_waited_for_by_its_thread", 128, "race", "executed by lane 1, which had committed no group"),
    Case("cp_async_is_waited_for", 32, "race", "cp.async.wait_group"),
    Case("tile_is_kept_while_wgmma_reads_it", 128, "race", "wgmma.wait_group"),
    Case("writers_fence_before_a_store", 128, "proxy", "Missing proxy fence on tile"),
    Case("every_writer_fences", 128, "proxy", "a bulk store of warp 0 reads what warp 1 wrote"),
    Case("writers_fence_before_wgmma", 128, "proxy", "a wgmma of warp . reads what warp . wrote"),
    Case("initialised_barrier_is_fenced", 128, "proxy", "fence.mbarrier_init"),
    Case("tile_is_written_before_it_is_read", 64, "uninitialized", r"reads tile \+ 160"),
    Case("tile_is_written_before_it_is_stored", 128, "uninitialized", r"reads tile \+ 400"),
    Case("local_array_is_written_before_it_is_read", 32, "uninitialized", "local memory"),
    Case("init_comes_before_the_first_use", 64, "barrier-init", r"mbarrier done|\(done\), where no mbarrier"),
    Case("init_is_not_repeated_under_a_copy", 128, "barrier-reinit", "16 bytes are still owed"),
    Case("init_is_repeated_after_a_barrier", 64, "barrier-reinit", "The mbarrier done is initialised again"),
    Case("barrier_is_not_overwritten", 128, "barrier-overwrite", "a live mbarrier"),
    Case("arrivals_are_as_many_as_announced", 64, "arrive-count", "arrives"),
    Case("last_load_is_waited_for", 128, "exit-pending", "wait for that phase|still writing"),
    Case("last_store_has_read_its_source", 128, "exit-pending", "cp.async.bulk.wait_group.read 0"),
    Case("whole_warps_come_to_a_barrier", 64, "aligned-divergence", "20 of the 32 lanes"),
    Case("peer_has_started", 32, "remote-start", "may not have started yet", cluster=2),
    Case("peer_has_not_exited", 32, "remote-exited", "exit", cluster=2),
    Case("peer_has_written", 32, "race", "Race on box", cluster=2),
    Case("remote_barrier_is_initialised", 32, "barrier-init", "fence.mbarrier_init", cluster=2),
]
CLASSES = {"race": gpu.Race, "proxy": gpu.ProxyError, "uninitialized": gpu.Uninitialized}


def kernel(name: str) -> Kernel:
    return gpu.compile(SOURCE)[name]


def run(case: Case, broken: int, **options: Any) -> np.ndarray:
    data = np.arange(1, 257, dtype=np.uint32)
    out = np.zeros(256, np.uint32)
    plan = LaunchPlan(case.cluster, case.threads, cluster=case.cluster)
    Device("emulator").launch(kernel(case.kernel), plan, (data, out, broken), step_budget=1_000_000, **options)
    return out


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_right_kernel_is_silent_in_every_order(case: Case) -> None:
    results = [run(case, 0, **options) for options in ORDERS + SEEDS]
    assert all(np.array_equal(one, results[0]) for one in results)


def test_who_has_waited_for_a_copy_may_exit_first() -> None:
    case = Case("receiver_may_exit_first", 32, "", "", cluster=2)
    for options in ORDERS + SEEDS:
        assert run(case, 0, **options)[:32].tolist() == list(range(1, 33))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_broken_kernel_is_named_in_every_order(case: Case) -> None:
    for options in ORDERS + SEEDS[:10]:
        with pytest.raises(CLASSES.get(case.rule, gpu.KernelTrap), match=case.words) as caught:
            run(case, 1, **options)
        error = caught.value
        assert error.rule == case.rule
        line = SOURCE.read_text().splitlines()[error.source_line - 1]
        assert error.source_file.endswith("rules.cu"), line


def test_a_race_names_both_sides() -> None:
    text = SOURCE.read_text().splitlines()
    with pytest.raises(gpu.Race) as caught:
        run(Case("named_barrier_of_the_right_number", 96, "", ""), 1)
    error = caught.value
    assert {error.warp, error.other_warp} == {0, 1}
    assert error.role == {0: "writer", 1: "reader"}[error.warp]
    assert "tile" in text[error.source_line - 1]
    assert "tile" in text[error.other_source_line - 1]
    assert error.other_source_line != error.source_line
    assert (error.object_name, error.lanes.bit_count()) == ("tile", 1)


def test_inlined_code_belongs_to_the_line_that_called_it() -> None:
    with pytest.raises(gpu.ProxyError) as caught:
        run(Case("writers_fence_before_a_store", 128, "", ""), 1)
    error = caught.value
    assert error.inner_file.endswith("bulk.cuh")
    assert "cp_async_bulk_global_shared" in SOURCE.read_text().splitlines()[error.source_line - 1]


def test_each_kind_of_check_can_be_left_out() -> None:
    case = Case("same_byte", 64, "race", "")
    run(case, 1, check=("init", "proxy", "barrier"))
    with pytest.raises(gpu.Race):
        run(case, 1, check=("race",))
    with pytest.raises(ValueError, match=r"check: 'init', 'race', 'proxy', 'barrier' or 'all' .*, got 'speed'"):
        run(case, 0, check=("speed",))
