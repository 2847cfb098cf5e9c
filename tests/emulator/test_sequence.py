"""Launches in stream order: programmatic ones start early, and `griddepcontrol.wait` holds them back."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest
from ptxrun import HEADER, pack_params

from mlacademy import _emulator, gpu

KERNEL = """.visible .entry {name}(.param .u64 from, .param .u64 to) {{
    .reg .b32 %r<5>; .reg .b64 %d<5>; .reg .pred %p<3>;
    mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.s32 %r0, %r1, %r2, %r0;
    ld.param.u64 %d0, [from]; ld.param.u64 %d1, [to]; mad.wide.u32 %d2, %r0, 4, %d0; mad.wide.u32 %d3, %r0, 4, %d1;
    {before} ld.global.u32 %r3, [%d2]; add.s32 %r3, %r3, 1; {between} st.global.u32 [%d3], %r3; {after} ret;
}}"""
LAUNCH, WAIT = "griddepcontrol.launch_dependents;", "griddepcontrol.wait;"
POLICIES: list[dict[str, Any]] = [
    {"order": "eager"},
    {"order": "lazy"},
    *({"order": "seeded", "seed": seed} for seed in range(1, 6)),
]
every_policy = pytest.mark.parametrize("policy", POLICIES, ids=lambda p: f"{p['order']}{p.get('seed', '')}")


def kernel(before: str = "", between: str = "", after: str = "") -> _emulator.Program:
    return _emulator.Program(HEADER + KERNEL.format(name="k", before=before, between=between, after=after))


def run(steps: list[tuple[_emulator.Program, np.ndarray, np.ndarray, bool]], policy: dict[str, Any]) -> list[Any]:
    """Each step: program, source, destination, whether programmatic; three blocks of 64 threads each."""
    calls = []
    for program, source, to, programmatic in steps:
        params, buffers = pack_params(program.kernels[0], (source, to))
        options = {"step_budget": 1_000_000, **policy}
        shape = ((3, 1, 1), (64, 1, 1), (1, 1, 1))
        calls.append((program, "k", *shape, 0, params, buffers, options, programmatic))
    return _emulator.launch_sequence(calls)


def arrays(count: int) -> list[np.ndarray]:
    return [np.arange(192, dtype=np.uint32), *(np.zeros(192, np.uint32) for _ in range(count))]


@every_policy
def test_a_dependent_that_waits_sees_everything(policy: dict[str, Any]) -> None:
    a, b, c, d = arrays(3)
    early = kernel(before=LAUNCH)
    chained = kernel(before=LAUNCH + WAIT)
    counted = run([(early, a, b, False), (chained, b, c, True), (chained, c, d, True)], policy)
    assert (b == a + 1).all()
    assert (d == a + 3).all()
    assert [one["clusters"] for one in counted] == [3, 3, 3]


def test_a_missing_wait_shows_where_the_dependent_starts_early() -> None:
    a, b, c = arrays(2)
    steps = [(kernel(before=LAUNCH), a, b, False), (kernel(), b, c, True)]
    run(steps, {"order": "eager"})
    assert (c == 1).all()  # read before the first kernel had written anything
    assert (b == a + 1).all()
    run(steps, {"order": "lazy"})
    assert (c == a + 2).all()


def test_some_seed_shows_a_missing_wait() -> None:
    wrong = 0
    for seed in range(1, 12):
        a, b, c = arrays(2)
        run([(kernel(before=LAUNCH), a, b, False), (kernel(), b, c, True)], {"order": "seeded", "seed": seed})
        wrong += (c != a + 2).any()
    assert wrong > 0


@every_policy
def test_without_the_signal_a_dependent_starts_when_the_blocks_have_ended(policy: dict[str, Any]) -> None:
    a, b, c = arrays(2)
    run([(kernel(), a, b, False), (kernel(), b, c, True)], policy)
    assert (c == a + 2).all()


@every_policy
def test_a_plain_launch_comes_after_everything(policy: dict[str, Any]) -> None:
    a, b, c, d = arrays(3)
    run([(kernel(before=LAUNCH), a, b, False), (kernel(before=WAIT), b, c, True), (kernel(), c, d, False)], policy)
    assert (d == a + 3).all()


def test_a_wait_alone_is_over_at_once() -> None:
    a, b = arrays(1)
    run([(kernel(before=WAIT, after=LAUNCH), a, b, True)], {"order": "eager"})
    assert (b == a + 1).all()


def test_an_error_in_one_grid_ends_the_sequence() -> None:
    a, b, c = arrays(2)
    with pytest.raises(_emulator.KernelTrap, match="The kernel executed 'trap'"):
        run([(kernel(before=LAUNCH), a, b, False), (kernel(before=WAIT, between="trap;"), b, c, True)], {})
    assert _emulator.launch_sequence([]) == []


SOURCE = r"""
extern "C" __global__ void add_one(const int* from, int* to, int early, int wait) {
    if (early) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    if (wait) asm volatile("griddepcontrol.wait;" ::: "memory");
    to[threadIdx.x] = from[threadIdx.x] + 1;
}
"""


def test_the_device_overlaps_programmatic_launches_of_a_sequence() -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    device = gpu.Device("emulator")
    add_one = gpu.compile(SOURCE, arch="sm_90a")["add_one"]
    first, second = gpu.LaunchPlan(1, 32), gpu.LaunchPlan(1, 32, programmatic=True)

    def chain(wait: int) -> np.ndarray:
        a, b, c = np.arange(32, dtype=np.int32), np.zeros(32, np.int32), np.zeros(32, np.int32)
        with device.sequence():
            report = device.launch(add_one, first, [a, b, 1, 0])
            device.launch(add_one, second, [b, c, 0, wait])
            assert not c.any()
        assert report.statistics["clusters"] == 1
        return c

    assert chain(wait=1).tolist() == list(range(2, 34))
    assert chain(wait=0).tolist() == [1] * 32
    with device.sequence(), pytest.raises(RuntimeError, match="do not nest"), device.sequence():
        pass


def test_a_tensor_known_by_address_lives_until_the_sequence_has_run() -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    device = gpu.Device("emulator")
    add_one = gpu.compile(SOURCE, arch="sm_90a")["add_one"]
    between, out = np.zeros(32, np.int32), np.zeros(32, np.int32)
    dropped, address = weakref.ref(between), device.address(between, "between")
    with device.sequence():
        device.launch(add_one, gpu.LaunchPlan(1, 32), [np.arange(32, dtype=np.int32), address, 1, 0])
        device.launch(add_one, gpu.LaunchPlan(1, 32, programmatic=True), [address, out, 0, 1])
        del between
        assert dropped() is not None
    assert out.tolist() == list(range(2, 34))
    assert dropped() is None
