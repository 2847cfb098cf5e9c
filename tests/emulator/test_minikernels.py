"""The rows that are no function of registers alone, each in a small kernel: what comes out, on every schedule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conformance import check, row_id, rows
from formtable import BITS, FORMS, Form, sample
from minikernels import MAKER_OF, WORDS, Mini, mini
from ptxrun import ARRAY, HEADER, run_elementwise

from mlacademy import _emulator

SCHEDULES: list[dict[str, Any]] = [{"order": "eager"}, {"order": "lazy"}, {"order": "seeded", "seed": 5}]
Mods = tuple[str, ...]


def run(kernel: Mini, data: np.ndarray, **options: Any) -> np.ndarray:
    """What the kernel leaves: the result of each thread, shared memory, global memory, one after the other."""
    data = data.copy()
    out = np.full(WORDS, 0xEEEEEEEE, np.uint32)
    program = _emulator.Program(kernel.text)
    params = b"".join(array.ctypes.data.to_bytes(8, "little") for array in (data, out))
    buffers = [(array.ctypes.data, array.nbytes, name, True) for array, name in ((data, "data"), (out, "out"))]
    shape = ((kernel.cluster, 1, 1), (kernel.block, 1, 1), (kernel.cluster, 1, 1))
    settings = {"step_budget": 500_000, "check": ["all"], **options}
    _emulator.launch(program, "k", *shape, 0, params, buffers, settings)
    return np.concatenate([out, data])


def inputs() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 2**32, WORDS, dtype=np.uint32)


@pytest.mark.parametrize("form", [form for form in FORMS if form.handler in MAKER_OF], ids=row_id)
def test_every_schedule_gives_the_same(form: Form) -> None:
    for mods in sample(form, 5):
        kernel = mini(form, mods)
        if kernel is not None:
            first, *others = (run(kernel, inputs(), **schedule) for schedule in SCHEDULES)
            assert all((first == other).all() for other in others), mods


def space(mods: Mods) -> str:
    return mods[0].split("::")[0]


# The result of thread t: d[t] are the four words of the data that it begins with, e[t] those from word 512 on.
EXPECTED: dict[str, Callable[[Mods, int, np.ndarray, np.ndarray], int]] = {
    "mbarrier_init": lambda _mods, t, _d, _e: 5 if t == 0 else 0,  # pending before its arrival
    "mbarrier_inval": lambda _mods, _t, _d, _e: 3,
    "mbarrier_pending": lambda _mods, _t, _d, _e: 1,
    "nanosleep": lambda _mods, _t, _d, _e: 8,
    "nothing": lambda _mods, _t, _d, _e: 8,
    "touch": lambda _mods, _t, _d, _e: 8,
    "fence": lambda _mods, _t, _d, _e: 8,
    "policy": lambda _mods, t, _d, e: int(e[t, 0]),
    "mapa": lambda _mods, t, d, _e: int(d[t, 1]),  # the same place of the other block, which has the same words
    "getctarank": lambda _mods, _t, _d, _e: 0,
    "cvta": lambda _mods, t, d, _e: int(d[t, 1]),
    "isspacep": lambda mods, _t, _d, _e: {"global": 4, "shared": 2, "local": 1}[space(mods)],
    "alloca": lambda _mods, t, d, _e: int(d[t, 0]),
    "stacksave": lambda _mods, t, d, _e: int(d[t, 0]),
    "stackrestore": lambda _mods, t, d, _e: int(d[t, 0]),
    "setmaxnreg": lambda _mods, _t, _d, _e: 4,
    "cluster_arrive": lambda _mods, _t, _d, _e: 2,
    "cluster_wait": lambda _mods, _t, _d, _e: 2,
    # The even threads wrote their word 1 over their word 0; each reads the first word of its neighbour.
    "warp_sync": lambda _mods, t, d, _e: int(d[t ^ 1, t % 2]),
}


@pytest.mark.parametrize("form", [form for form in FORMS if form.handler in EXPECTED], ids=row_id)
def test_the_result_is_what_the_row_promises(form: Form) -> None:
    data = inputs()
    words, later = data[:512].reshape(128, 4), data[512:1024].reshape(128, 4)
    for mods in sample(form, 12):
        kernel = mini(form, mods)
        if kernel is None:
            continue
        got = run(kernel, data)[:128].tolist()
        want = [EXPECTED[form.handler](mods, t, words, later) for t in range(128)]
        assert got == want, mods


@pytest.mark.parametrize("form", rows("mov", "mov_pred"), ids=row_id)
def test_a_move_moves_the_bits(form: Form) -> None:
    if form.handler == "mov_pred":
        check(form, lambda _form, _mods, args: args)
        return
    rng = np.random.default_rng(3)
    for (kind,) in form.spellings():
        if BITS[kind] <= 64:
            values = rng.integers(0, 2 ** BITS[kind], 100, dtype=ARRAY[BITS[kind]])
            (got,) = run_elementwise(f"mov.{kind} %d0, %a0;", [values], [BITS[kind]])
            assert (got == values).all(), kind
    wide = """.visible .entry k(.param .u64 data, .param .u64 out) { .reg .b64 %d<9>; .reg .b128 %q<3>; .reg .b32 %r;
    mov.u32 %r, %tid.x; ld.param.u64 %d0, [data]; ld.param.u64 %d1, [out]; mad.wide.u32 %d0, %r, 16, %d0;
    mad.wide.u32 %d1, %r, 16, %d1; ld.global.v2.u64 {%d2, %d3}, [%d0]; mov.b128 %q1, {%d2, %d3}; mov.b128 %q2, %q1;
    mov.b128 {%d4, %d5}, %q2; st.global.v2.u64 [%d1], {%d5, %d4}; ret; }"""
    data = inputs()
    moved = run(Mini(HEADER + wide), data)[:WORDS]
    assert (moved[:512].reshape(128, 4) == data[:512].reshape(128, 4)[:, [2, 3, 0, 1]]).all()


@pytest.mark.parametrize("name", ["brkpt", "trap"])
def test_what_stops_the_kernel_names_itself(name: str) -> None:
    program = _emulator.Program(f"{HEADER}.visible .entry k() {{ {name}; }}")
    with pytest.raises(_emulator.KernelTrap, match=f"The kernel executed '{name}'"):
        _emulator.launch(program, "k", (1, 1, 1), (32, 1, 1), (1, 1, 1), 0, b"", [], {})
