"""mma.sync and movmatrix against models made of integers and fractions, for every type and shape."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from mma_ptx import BITS, FORMS, HEADER, MmaForm, tiles
from ptxrun import launch
from tensor_oracle import decode, dot, f16_bits, value

from mlacademy import _emulator

COUNT = 6
FLOATS = [form for form in FORMS if form.a in ("f16", "bf16", "tf32")]
FP8 = [form for form in FORMS if form.a in ("e4m3", "e5m2")]
INTEGERS = [form for form in FORMS if form.d == "s32"]
DOUBLES = [form for form in FORMS if form.d == "f64"]


def run(form: MmaForm, seed: int) -> tuple[np.ndarray, ...]:
    """A [tiles, m, k], B [tiles, 8, k], C and the emulator's D [tiles, m, 8], as codes."""
    inputs = tiles(form, COUNT, seed)
    out = np.zeros_like(inputs["c"])
    launch(HEADER + form.kernel(), inputs["a"], inputs["b"], inputs["c"], out, grid=(COUNT, 1, 1))
    pairs = (("a", inputs["a"]), ("b", inputs["b"]), ("d", inputs["c"]), ("d", out))
    return tuple(form.unpack(which, registers) for which, registers in pairs)


def places(form: MmaForm, seed: int, count: int = 40) -> list[tuple[int, int, int]]:
    return [tuple(map(int, place)) for place in np.random.default_rng(seed).integers(0, (COUNT, form.m, 8), (count, 3))]


@pytest.mark.parametrize("form", FLOATS, ids=lambda form: form.name)
def test_floats_are_one_fused_sum(form: MmaForm) -> None:
    for seed in (1, 2):
        a, b, c, d = run(form, seed)
        for t, i, j in places(form, seed):
            want = dot(form.d, (form.a, form.b), a[t, i].tolist(), b[t, j].tolist(), int(c[t, i, j]))
            assert int(d[t, i, j]) == want, (seed, t, i, j)


def as_f16(kind: str, code: int) -> int:
    number = decode(kind, code)
    if number.kind == "finite":
        sign = 0x8000 if code >> 7 & 1 else 0
        return f16_bits(value(kind, code)) or sign
    return 0x7FFF if number.kind == "nan" else 0x7C00 | (code >> 7) << 15


@pytest.mark.parametrize("form", FP8, ids=lambda form: form.name)
def test_fp8_is_two_f16_products_and_an_addition(form: MmaForm) -> None:
    a, b, c, d = run(form, 3)
    for t, i, j in places(form, 3):
        total = 0
        for half in (0, 2):
            ks = [k for k in range(form.k) if k & 2 == half]
            left, right = ([as_f16(kind, int(x[k])) for k in ks] for kind, x in ((form.a, a[t, i]), (form.b, b[t, j])))
            total = dot(form.d, ("f16", "f16"), left, right, total)
        bits = np.uint16 if form.d == "f16" else np.uint32
        kind = np.float16 if form.d == "f16" else np.float32
        with np.errstate(all="ignore"):
            want = bits(c[t, i, j]).view(kind) + bits(total).view(kind)
        got = bits(d[t, i, j]).view(kind)
        assert got == want or (math.isnan(got) and math.isnan(want)), (t, i, j)


def integers(kind: str, codes: np.ndarray) -> np.ndarray:
    width = BITS[kind]
    values = codes.astype(np.int64)
    return values - (values >> width - 1 << width) if kind[0] == "s" else values


@pytest.mark.parametrize("form", INTEGERS, ids=lambda form: form.name)
def test_integers_are_exact(form: MmaForm) -> None:
    a, b, c, d = run(form, 4)
    left, right, addend = integers(form.a, a), integers(form.b, b), integers("s32", c)
    if form.extra == ".xor":
        product = np.bitwise_xor(left[:, :, None], right[:, None]).sum(-1)
    else:
        product = left @ right.swapaxes(1, 2)
    want = product + addend
    if form.extra == ".satfinite":
        want = np.clip(want, -(2**31), 2**31 - 1)
    assert np.array_equal(d, (want % 2**32).astype(np.uint32))


def rounded(x: Fraction, mode: str) -> float:
    nearest = float(x)  # to nearest even
    error = x - Fraction(nearest)
    if (mode == ".rp" and error > 0) or (mode == ".rz" and error > 0 and x < 0):
        return math.nextafter(nearest, math.inf)
    if (mode == ".rm" and error < 0) or (mode == ".rz" and error < 0 and x > 0):
        return math.nextafter(nearest, -math.inf)
    return nearest


@pytest.mark.parametrize("form", DOUBLES, ids=lambda form: form.name)
def test_doubles_are_a_chain_of_fused_multiply_adds(form: MmaForm) -> None:
    for seed in (5, 6):
        a, b, c, d = (codes.view(np.float64) for codes in run(form, seed))
        for t, i, j in places(form, seed):
            terms = [*a[t, i], *b[t, j], c[t, i, j]]
            if not all(math.isfinite(x) and (x == 0 or 1e-100 < abs(x) < 1e100) for x in terms):
                continue
            total = float(c[t, i, j])
            for x, y in zip(a[t, i], b[t, j], strict=True):
                total = rounded(Fraction(float(x)) * Fraction(float(y)) + Fraction(total), form.extra)
            assert d[t, i, j] == total


def test_movmatrix_transposes() -> None:
    text = (
        HEADER
        + """.visible .entry k(.param .u64 data) { .reg .b32 %r<4>; .reg .b64 %d<3>;
    mov.u32 %r0, %tid.x; ld.param.u64 %d0, [data]; mad.wide.u32 %d1, %r0, 4, %d0; ld.global.b32 %r1, [%d1];
    movmatrix.sync.aligned.m8n8.trans.b16 %r2, %r1; st.global.b32 [%d1], %r2; ret; }"""
    )
    before = np.random.default_rng(7).integers(0, 1 << 16, (8, 8), dtype=np.uint16)
    after = before.copy()
    launch(text, after)
    assert np.array_equal(after, before.T)


def test_what_does_not_run_is_named() -> None:
    line = "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%r0,%r0}, {%r0}, {%r0}, {%r0,%r0};"
    with pytest.raises(_emulator.PtxUnsupported, match=r"'mma\.sync\.aligned\.m8n8k4\S+' is not supported yet"):
        launch(HEADER + f".visible .entry k() {{ .reg .b32 %r<2>; {line} ret; }}")


def test_a_warp_that_lost_threads_cannot_multiply() -> None:
    form = FORMS[0]
    text = form.kernel().replace("mov.u32 %lane, %tid.x;", "mov.u32 %lane, %tid.x; .reg .pred %q; "
                                 "setp.eq.u32 %q, %lane, 3; @%q exit;")  # fmt: skip
    inputs = tiles(form, 1, 0)
    with pytest.raises(_emulator.KernelTrap, match="needs all 32 threads of the warp") as caught:
        launch(HEADER + text, inputs["a"], inputs["b"], inputs["c"], np.zeros_like(inputs["c"]))
    assert caught.value.rule == "aligned-divergence"
