"""Register budgets: what the launch gives, who gives and takes, and who waits for ever."""

from __future__ import annotations

import numpy as np
import pytest
from ptxrun import launch

from mlacademy import _emulator

# Warpgroup g executes the lines of groups[g], then thread t writes t + 1.
KERNEL = """.visible .entry k(.param .u64 out) {directives} {{
.reg .b32 %r<4>; .reg .b64 %d<3>; .reg .pred %p<4>;
mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 7; ld.param.u64 %d0, [out];
{dispatch}
{bodies}
JOIN: mad.wide.u32 %d1, %r0, 4, %d0; add.u32 %r2, %r0, 1; st.global.u32 [%d1], %r2; ret; }}"""
BOUNDS = ".maxntid {threads}, 1, 1\n.minnctapersm 1"


def dec(count: int) -> str:
    return f"setmaxnreg.dec.sync.aligned.u32 {count};"


def inc(count: int) -> str:
    return f"setmaxnreg.inc.sync.aligned.u32 {count};"


def run(*groups: str, directives: str = BOUNDS, **options: object) -> None:
    threads = 128 * len(groups)
    dispatch = "\n".join(f"setp.eq.u32 %p0, %r1, {g}; @%p0 bra G{g};" for g in range(len(groups)))
    bodies = "\n".join(f"G{g}: {lines}\nbra JOIN;" for g, lines in enumerate(groups))
    text = KERNEL.format(directives=directives.format(threads=threads), dispatch=dispatch, bodies=bodies)
    out = np.zeros(threads, np.uint32)
    launch(text, out, block=(threads, 1, 1), **options)
    assert np.array_equal(out, np.arange(1, threads + 1))


@pytest.mark.parametrize("seed", range(4))
def test_registers_pass_from_one_warpgroup_to_the_others(seed: int) -> None:
    run(dec(24), inc(240), inc(240), seed=seed)  # 3 · 168 at entry
    run(dec(40) + dec(24) + inc(40), inc(168), inc(232), seed=seed)
    run(inc(104), dec(24), directives=".maxnreg 64", seed=seed)


@pytest.mark.parametrize(
    ("threads", "blocks", "entry"),
    [(128, 1, 240), (256, 1, 240), (384, 1, 168), (384, 2, 80), (512, 1, 128), (1024, 1, 64)],
)
def test_the_launch_gives_what_ptxas_sets(threads: int, blocks: int, entry: int) -> None:
    groups = ["" for _ in range(threads // 128)]
    directives = f".maxntid {threads}, 1, 1\n.minnctapersm {blocks}"
    run(dec(entry), *groups[1:], directives=directives)
    with pytest.raises(_emulator.KernelTrap, match=f"would raise the budget: a thread has {entry} registers"):
        run(dec(entry + 8), *groups[1:], directives=directives)


def refused(words: str, *groups: str, **options: object) -> None:
    with pytest.raises(_emulator.KernelTrap, match=words) as caught:
        run(*groups, **options)
    assert caught.value.rule == "setmaxnreg"


def test_misuse_is_named() -> None:
    refused("would lower the budget: a thread has 168", inc(160), "", "")
    refused("would raise the budget: a thread has 24", dec(24) + dec(40), "", "")
    refused(r"has no effect in this kernel.*__launch_bounds__", dec(24), directives=".maxntid 128, 1, 1")
    some = "setp.lt.u32 %p1, %r0, 32; @%p1 bra JOIN;" + dec(24)
    refused("must execute 'setmaxnreg.dec.sync.aligned.u32( 24)?', but warp 0", some)
    differ = f"setp.lt.u32 %p1, %r0, 32; @%p1 bra A; {dec(24)} bra JOIN; A: {dec(32)}"
    refused("must execute the same setmaxnreg", differ)


def test_budgets_that_do_not_fit_are_a_deadlock() -> None:
    with pytest.raises(_emulator.Deadlock) as caught:
        run(dec(40), inc(240), inc(240))
    assert "needs 2304 more, and" in str(caught.value)
    assert "do the budgets of all warpgroups add up to more than the launch gave?" in str(caught.value)


@pytest.mark.parametrize("count", [16, 28, 264])
def test_counts_that_ptxas_refuses_are_refused(count: int) -> None:
    with pytest.raises(_emulator.PtxInvalid, match=f"a multiple of 8 from 24 to 256, not {count}"):
        run(dec(count))
