"""Every wgmma form against its operands gathered element by element, under every order of completion."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from tensor_oracle import dot
from wgmma_ptx import (
    COMMIT,
    ELEMENT_BITS,
    FENCE,
    SMEM,
    Form,
    Place,
    fragment_matrix,
    matrix,
    plain_body,
    run,
    unpack,
    wait,
)  # fmt: skip

from mlacademy._emulator import numerics

ORDERS = [{"order": "eager"}, {"order": "lazy"}, *({"order": "seeded", "seed": s} for s in (1, 2))]
every_order = pytest.mark.parametrize("order", ORDERS, ids=lambda o: f"{o['order']}{o.get('seed', '')}")

FP8, INT8 = ("e4m3", "e5m2"), ("s8", "u8")
TYPES = [
    ("f32", "f16", "f16"), ("f16", "f16", "f16"), ("f32", "bf16", "bf16"), ("f32", "tf32", "tf32"),
    *((d, a, b) for d in ("f32", "f16") for a in FP8 for b in FP8), *(("s32", a, b) for a in INT8 for b in INT8),
    ("s32", "b1", "b1"),
]  # fmt: skip


def legal_n(d: str) -> list[int]:
    return [8, 16, 24, *range(32, 257, 16)] if d == "s32" else list(range(8, 257, 8))


def random_place(chooser: random.Random, lines: int, width: int, transposed: bool, room: range) -> Place:
    """Any layout in which the operand lies inside `room` of shared memory; tilings overlap now and then."""
    swizzle = chooser.choice([0, 32, 64, 128])
    groups = -(-lines // 8)
    steps = range(16, max(32, (len(room) - 4096) // max(groups, 2)), 16)
    if not swizzle:
        return Place(room.start + 16 * chooser.randrange(8), chooser.choice(steps), chooser.choice(steps))
    start, base = room.start, 0
    if chooser.random() < 0.5:  # off the pattern's beginning, with or without saying so
        start, base = start + 16 * chooser.randrange(64), chooser.choice([0, chooser.randrange(8)])
    if not transposed:
        return Place(start, 16 * chooser.randrange(9), chooser.choice(steps), swizzle, base)
    return Place(start, chooser.choice(steps), chooser.choice(steps), swizzle, base)


def random_case(
    form: Form, seed: int, smem: int = SMEM
) -> tuple[np.ndarray, Place | None, Place, np.ndarray, np.ndarray]:
    chooser, rng = random.Random(seed), np.random.default_rng(seed)
    image = rng.integers(0, 256, SMEM, dtype=np.uint8)
    width = max(ELEMENT_BITS[form.a] // 8, 1)
    a = None if form.rs else random_place(chooser, 64, width, form.transpose[0], range(20480))
    b = random_place(chooser, form.n, width, form.transpose[1], range(20480, SMEM))
    c = rng.integers(0, 1 << 32, (form.registers, 128), dtype=np.uint32)
    if form.d != "s32":
        c &= np.uint32(0xBF7FBF7F if form.d == "f16" else 0xBFFFFFFF)  # no NaN among the addends, which would hide much
    return image, a, b, c, rng.integers(0, 1 << 32, (4, 128), dtype=np.uint32)


def expected(
    form: Form, image: np.ndarray, a: Place | None, b: Place, c: np.ndarray | None, fragments: np.ndarray
) -> np.ndarray:
    left = fragment_matrix(fragments, form.a) if a is None else matrix(image, a, 64, form.a, form.transpose[0])
    right = matrix(image, b, form.n, form.b, form.transpose[1])
    addend = None if c is None else unpack(form, c)
    if form.a == "b1":
        product = (left @ right.T).astype(np.uint32)
        return product if addend is None else product + addend
    return numerics.multiply_add(
        form.d, form.a, form.b, left, right, addend, satfinite=form.satfinite, negate=form.negate
    )


def agree(form: Form, case: int, *, accumulate: bool = True, **options: object) -> None:
    image, a, b, c, fragments = random_case(form, case)
    want = expected(form, image, a, b, c if accumulate else None, fragments)
    got = unpack(form, run(form, image, a, b, c, fragments, accumulate=accumulate, **options))
    wrong = np.argwhere(got != want)
    assert not len(wrong), (
        f"{form} case {case} A {a} B {b}: {len(wrong)} differ, first at {wrong[0]}: "
        f"{got[tuple(wrong[0])]:#x}, expected {want[tuple(wrong[0])]:#x}"
    )


@pytest.mark.parametrize("n", range(8, 257, 8))
def test_every_n_multiplies(n: int) -> None:
    kinds = [types for types in TYPES if n in legal_n(types[0])]
    agree(Form(*kinds[n // 8 % len(kinds)], n, rs=n % 16 == 0), n)


@pytest.mark.parametrize("types", TYPES, ids=".".join)
@pytest.mark.parametrize("rs", [False, True], ids=["shared", "registers"])
def test_every_type_multiplies(types: tuple[str, str, str], rs: bool) -> None:
    for seed in (1, 2):
        chooser = random.Random(f"{types}{rs}{seed}")
        form = Form(*types, chooser.choice(legal_n(types[0])[:9]), rs)
        if types[0] == "s32":
            form = replace(form, satfinite=types[1] != "b1" and chooser.random() < 0.5)
        else:
            form = replace(form, negate=(chooser.random() < 0.5, chooser.random() < 0.5))
        agree(form, seed)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("transpose", [(False, True), (True, False), (True, True)])
def test_transposed_tiles_multiply(kind: str, transpose: tuple[bool, bool]) -> None:
    for seed in range(4):
        agree(Form("f32", kind, kind, random.Random(seed).choice([8, 24, 64, 128]), transpose=transpose), seed)
        agree(Form("f32", kind, kind, 32, rs=True, transpose=(False, True)), seed)


@every_order
def test_every_order_gives_the_same_bits(order: dict[str, object]) -> None:
    for form in (Form("f32", "bf16", "bf16", 64), Form("f16", "e4m3", "e5m2", 16, rs=True), Form("s32", "u8", "s8", 8)):
        agree(form, 7, **order)


@every_order
@pytest.mark.parametrize("above", [False, True], ids=["A below B", "A above B"])
def test_right_kernels_are_silent_with_all_checks(order: dict[str, object], above: bool) -> None:
    form = Form("f32", "bf16", "bf16", 64)
    image, _, _, c, fragments = random_case(form, 17)
    a, b = Place(0, 16, 1024, 128), Place(32768, 16, 1024, 128)
    if above:
        a, b = b, a
    got = run(form, image, a, b, c, fragments, check=("all",), **order)
    assert np.array_equal(unpack(form, got), expected(form, image, a, b, c, fragments))


@every_order
def test_without_accumulation_the_old_accumulators_are_not_read(order: dict[str, object]) -> None:
    form = Form("f32", "bf16", "bf16", 16)
    image, a, b, c, fragments = random_case(form, 3)
    got = run(form, image, a, b, np.full_like(c, 0x7FFFFFFF), fragments, accumulate=False, **order)
    assert np.array_equal(unpack(form, got), expected(form, image, a, b, None, fragments))


def test_the_bits_are_those_of_the_fraction_oracle() -> None:
    form = Form("f32", "e4m3", "e4m3", 24)
    image, a, b, c, fragments = random_case(form, 5)
    assert a is not None
    got = unpack(form, run(form, image, a, b, c, fragments))
    left, right, addend = matrix(image, a, 64, "e4m3", False), matrix(image, b, 24, "e4m3", False), unpack(form, c)
    for row, column in np.random.default_rng(5).integers(0, (64, 24), (60, 2)):
        exact = dot("f32", ("e4m3", "e4m3"), left[row].tolist(), right[column].tolist(), int(addend[row, column]))
        assert got[row, column] == exact


def test_the_start_address_wraps_at_18_bits() -> None:
    form = Form("f32", "bf16", "bf16", 8)
    image, _, _, c, fragments = random_case(form, 9)
    a, b = Place(1024, (1 << 18) - 128, 512), Place(4096, 128, 256)  # A's upper halves lie 128 bytes below the lower
    want = expected(form, image, a, b, c, fragments)
    assert np.array_equal(unpack(form, run(form, image, a, b, c, fragments)), want)


@every_order
def test_a_chain_over_a_swizzled_row_accumulates_in_order(order: dict[str, object]) -> None:
    form = Form("f32", "bf16", "bf16", 32)
    image, _, _, c, fragments = random_case(form, 11)
    image &= 0xBF  # finite values
    a, b = Place(0, 16, 1024, 128), Place(16384, 16, 1024, 128)
    steps = ["add.u64 %a, %a, 2; add.u64 %b, %b, 2;"] * 3
    lines = [form.line("%a", "%b", "%p")]
    for step in steps:
        lines += [step, form.line("%a", "%b", "1")]
    got = run(form, image, a, b, c, fragments, body="\n".join([FENCE, *lines, COMMIT, wait()]), **order)
    want = c
    for k in range(4):
        parts = [replace(x, start=x.start + 32 * k) for x in (a, b)]
        tile = expected(form, image, *parts, want, fragments)
        want = pack(form, tile)
    assert np.array_equal(got, want)


def pack(form: Form, tile: np.ndarray) -> np.ndarray:
    """The inverse of `unpack`, for a result of 32 bits."""
    places = unpack(form, np.arange(form.registers * 128, dtype=np.uint32).reshape(form.registers, 128))
    out = np.zeros(form.registers * 128, np.uint32)
    out[places.ravel()] = tile.ravel()
    return out.reshape(form.registers, 128)


@every_order
def test_two_accumulators_complete_group_by_group(order: dict[str, object]) -> None:
    # The first group is waited for while the second is in flight; the second result replaces the first in D.
    form = Form("f32", "bf16", "bf16", 16)
    image, a, b, c, fragments = random_case(form, 13)
    second = "\n".join(f"mov.b32 %e{r}, 0;" for r in range(form.registers))
    joined = "\n".join(f"add.f32 %c{r}, %c{r}, %e{r};" for r in range(form.registers))
    body = [second, FENCE, form.line("%a", "%b", "%p"), COMMIT, form.line("%a", "%b", "0", d="%e"), COMMIT, wait(1)]
    probe = ["mov.b32 %t4, %c0;", wait(0), joined]
    got = run(form, image, a, b, c, fragments, body="\n".join(body + probe), **order).view(np.float32)
    one, two = (pack(form, expected(form, image, a, b, addend, fragments)).view(np.float32) for addend in (c, None))
    with np.errstate(all="ignore"):
        assert np.array_equal(got, one + two, equal_nan=True)


def test_operands_are_read_when_a_late_multiply_completes() -> None:
    form = Form("f32", "bf16", "bf16", 8)
    image, a, b, c, fragments = random_case(form, 15)
    spoil = "mov.u32 %t4, smem; mad.lo.u32 %t4, %t0, 16, %t4; mov.b32 %t5, 0; st.shared.b32 [%t4+20480], %t5;"
    body = "\n".join([FENCE, form.line("%a", "%b", "%p"), COMMIT, spoil, wait()])
    early = run(form, image, a, b, c, fragments, body=plain_body(form))
    late = run(form, image, a, b, c, fragments, body=body, order="lazy", check=())
    assert not np.array_equal(early, late)
