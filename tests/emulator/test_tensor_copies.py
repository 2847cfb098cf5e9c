"""Tensor loads, stores, multicasts and prefetches against a model that moves one element at a time."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensor_kernels import DONE, SHARED, WAIT, load, multicast, noise, run, store
from tensor_model import ATOMS, MODES, SIZES, Copy, RowsCopy, aligned, random_copy, random_im2col, swizzled

from mlacademy.gpu import Device, TensorMap

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
EMULATOR = Device("emulator", step_budget=1_000_000)

ORDERS = [{"order": "eager"}, {"order": "lazy", "seed": 3}, *({"order": "seeded", "seed": s} for s in (1, 2))]
every_order = pytest.mark.parametrize("order", ORDERS, ids=lambda o: f"{o['order']}{o.get('seed', '')}")


@every_order
@pytest.mark.parametrize("batch", range(6))
def test_loads_bring_every_element_to_its_place(batch: int, order: dict[str, Any]) -> None:
    chooser = random.Random(f"load {batch}")
    for number in range(20):
        copy = random_copy(chooser, dtypes=tuple(SIZES), narrow=number % 4 == 0, inner_steps=number % 5 == 0)
        tensor, shared = noise(copy.tensor_map.tensor.size, number), noise(SHARED, 99 + number)
        body = load(copy, space=chooser.choice(["cluster", "cta"]), tile=chooser.choice(["", ".tile"]))
        _, got = run(EMULATOR, copy, body, tensor, shared, wait=WAIT, **order)
        expected = shared.copy()
        copy.load(tensor, expected)
        assert np.array_equal(got, expected), copy


@every_order
@pytest.mark.parametrize("batch", range(4))
def test_stores_write_what_is_inside_and_nothing_else(batch: int, order: dict[str, Any]) -> None:
    chooser = random.Random(f"store {batch}")
    for number in range(20):
        copy = random_copy(chooser, store=True, narrow=number % 4 == 0)
        tensor, shared = noise(copy.tensor_map.tensor.size, number), noise(SHARED, 99 + number)
        expected = tensor.copy()
        copy.store(expected, shared)
        body = store(copy, tile=chooser.choice(["", ".tile"]), done=chooser.choice([DONE, DONE.replace(".read", "")]))
        got, kept = run(EMULATOR, copy, body, tensor, shared, **order)
        assert np.array_equal(got, expected), copy
        assert np.array_equal(kept, shared), copy


@every_order
def test_multicast_brings_a_box_to_the_ctas_of_the_mask(order: dict[str, Any]) -> None:
    chooser = random.Random("multicast")
    for number in range(12):
        copy = random_copy(chooser)
        size = chooser.choice([2, 4, 8])
        mask = chooser.randrange(1, 1 << size)
        tensor, shared = noise(copy.tensor_map.tensor.size, number), noise(SHARED * size, 99 + number)
        body, wait = multicast(copy, size, mask, chooser.randrange(size))
        _, got = run(EMULATOR, copy, body, tensor, shared, wait=wait, **order)
        expected = shared.copy().reshape(size, SHARED)
        for rank in range(size):
            if mask >> rank & 1:
                copy.load(tensor, expected[rank])
        assert np.array_equal(got.reshape(size, SHARED), expected), (copy, mask)


@every_order
def test_im2col_walks_over_pixels(order: dict[str, Any]) -> None:
    chooser = random.Random("im2col")
    for number in range(60):
        copy = random_im2col(chooser)
        tensor, shared = noise(copy.tensor_map.tensor.size, number), noise(SHARED, 99 + number)
        body = load(copy, space=chooser.choice(["cluster", "cta"]))
        _, got = run(EMULATOR, copy, body, tensor, shared, wait=WAIT, **order)
        expected = shared.copy()
        copy.load(tensor, expected)
        assert np.array_equal(got, expected), copy


def test_im2col_stores_write_the_pixels_they_walk_over() -> None:
    chooser = random.Random("im2col store")
    for number in range(40):
        copy = random_im2col(chooser, store=True)
        tensor, shared = noise(copy.tensor_map.tensor.size, number), noise(SHARED, 99 + number)
        expected = tensor.copy()
        copy.store(expected, shared)
        got, _ = run(EMULATOR, copy, store(copy), tensor, shared)
        assert np.array_equal(got, expected), copy


@every_order
def test_four_rows_come_from_and_go_to_where_their_numbers_say(order: dict[str, Any]) -> None:
    chooser = random.Random("rows")
    for number in range(30):
        swizzle = chooser.choice([*MODES, *ATOMS[:2]])
        columns = {"none": 4 * chooser.randint(1, 20), "32B": 8, "64B": 16}.get(swizzle, 32)
        width = chooser.randint(1, 80)
        tensor_map = TensorMap(aligned(9 * 320), "float32", (width, 9), (320,), (columns, 1), swizzle=swizzle)
        # −1 and huge numbers stand for rows that are not there; a row may come twice.
        rows = [chooser.choice([-1, *range(9), 9, 1 << 30]) for _ in range(4)]
        copy = RowsCopy(tensor_map, (4 * chooser.randint(0, width // 4), *rows), 128 * chooser.randint(0, 9))
        tensor, shared = noise(9 * 320, number), noise(SHARED, 99 + number)
        _, got = run(EMULATOR, copy, load(copy), tensor, shared, wait=WAIT, **order)
        expected = shared.copy()
        copy.load(tensor, expected)
        assert np.array_equal(got, expected), copy
        if len({row for row in rows if 0 <= row < 9}) == sum(0 <= row < 9 for row in rows):
            expected = tensor.copy()
            copy.store(expected, shared)
            got, _ = run(EMULATOR, copy, store(copy), tensor, shared, **order)
            assert np.array_equal(got, expected), copy


@pytest.mark.parametrize(
    ("dtype", "bits", "unit"), [("16u4_align8b", 4, 8), ("16u4_align16b", 4, 16), ("16u6_align16b", 6, 16)]
)
@pytest.mark.parametrize("swizzle", ["none", "128B"])
def test_narrow_types_come_in_units_of_sixteen(dtype: str, bits: int, unit: int, swizzle: str) -> None:
    # 16 elements are `data` bytes of the tensor, and `unit` bytes of shared memory, the last of which stay.
    data, rows, pitch = 2 * bits, 5, 128 * bits // 8 + 32
    tensor_map = TensorMap(aligned(8 * pitch), dtype, (128, 8), (pitch,), (128, rows), swizzle=swizzle)
    copy = Copy(tensor_map, (0, 5), 1024)
    tensor, shared = noise(8 * pitch, 1), noise(SHARED, 2)
    _, got = run(EMULATOR, copy, load(copy), tensor, shared, wait=WAIT)
    expected = shared.copy()
    line = 8 * unit if swizzle == "none" or unit == 16 else 128
    for row in range(rows):
        for group in range(8):
            at = 1024 + row * line + group * unit
            at = swizzled(swizzle, at)
            start = (5 + row) * pitch + group * data
            expected[at : at + data] = tensor[start : start + data] if 5 + row < 8 else 0
    assert np.array_equal(got, expected)
    assert copy.box_bytes == rows * 8 * data


def test_im2col_reaches_several_ctas() -> None:
    copy = random_im2col(random.Random(3))
    body, wait = multicast(copy, 2, 3, 1)
    tensor, shared = noise(copy.tensor_map.tensor.size, 1), noise(2 * SHARED, 2)
    _, got = run(EMULATOR, copy, body, tensor, shared, wait=wait)
    expected = shared.copy().reshape(2, SHARED)
    for half in expected:
        copy.load(tensor, half)
    assert np.array_equal(got.reshape(2, SHARED), expected)


def test_without_the_wait_a_late_load_leaves_poison_in_the_box_only() -> None:
    copy = plain()
    shared = noise(SHARED, 2)
    _, got = run(EMULATOR, copy, load(copy), noise(4096, 1), shared, order="lazy", check=())
    expected = shared.copy()
    expected[256 : 256 + 1024] = 0xFF
    assert np.array_equal(got, expected)


def test_a_source_overwritten_before_it_is_read_shows_under_lazy_completion() -> None:
    copy = plain()
    body = store(copy, done="st.shared.u32 [%r11], 0x01020304; " + DONE)
    got, _ = run(EMULATOR, copy, body, noise(4096, 1), noise(SHARED, 2), order="lazy", check=())
    assert got[:4].tolist() == [4, 3, 2, 1]


def test_parts_of_a_load_arrive_one_after_the_other() -> None:
    # The barrier's tx count, read until the phase ends, goes down in several steps under some seed.
    copy = plain()
    look = """mov.u32 %r34, 0; mov.u32 %r35, 0x7fffffff;
    LOOK: ld.shared.u64 %d5, [%r12]; shl.b64 %d5, %d5, 3; shr.s64 %d5, %d5, 43; cvt.u32.u64 %r33, %d5;
    setp.eq.s32 %p4, %r33, %r35; @%p4 bra SAME; add.s32 %r34, %r34, 1; mov.u32 %r35, %r33; SAME:
    setp.ne.s32 %p4, %r33, 0; @%p4 bra LOOK; st.shared.u32 [%r10], %r34;"""
    steps = set()
    for seed in range(1, 12):
        _, got = run(
            EMULATOR, copy, load(copy) + look, noise(4096, 1), noise(SHARED, 2), order="seeded", seed=seed, check=()
        )
        steps.add(int(got[:4].view(np.uint32)[0]))
    assert max(steps) >= 3
    assert len(steps) >= 3


def plain(dtype: str = "float32", **fields: Any) -> Copy:
    """A box of 16 rows of 64 bytes inside of a tensor of 32 rows of 128 bytes."""
    size = {"float32": 4, "uint8": 1, "uint64": 8}[dtype]
    tensor_map = TensorMap(aligned(32 * 128), dtype, (128 // size, 32), (128,), (64 // size, 16), **fields)
    return Copy(tensor_map, (0, 0), 256)


def test_the_comparison_kept_from_a_gpu_shows_no_difference() -> None:
    rows = json.loads((RESULTS / "tma-nvidia-h200.json").read_text())["rows"]
    compared = {row["kind"]: row["copies"] - row["refused"] for row in rows if "copies" in row}
    document = (Path(__file__).parents[2] / "docs" / "numerics.md").read_text(encoding="utf-8")
    assert f"| {sum(compared.values())} random copies | 0 | `tma-nvidia-h200.json` |" in document
    assert compared["load"] == 250
    assert [row["kind"] for row in rows if row["different"]] == []
