"""Reductions by bulk and tensor copies, every operation and type, against NumPy."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tensor_kernels import DONE, SHARED, WAIT, noise, reduce, run
from tensor_model import MODES, Bytes, Copy, aligned, random_copy

from mlacademy.gpu import Device, TensorMap

EMULATOR = Device("emulator", step_budget=1_000_000)
ORDERS = [{"order": "eager"}, {"order": "lazy", "seed": 3}, {"order": "seeded", "seed": 1}]
every_order = pytest.mark.parametrize("order", ORDERS, ids=lambda o: o["order"])
Array = np.ndarray[Any, Any]


MODELS: dict[str, Callable[[Array, Array], Array]] = {
    "add": lambda old, value: (old + value).astype(old.dtype),  # 16-bit floats: rounded once, float32 is wide enough
    "min": np.minimum,
    "max": np.maximum,
    "inc": lambda old, most: np.where(old >= most, 0, old + 1).astype(old.dtype),
    "dec": lambda old, most: np.where((old == 0) | (old > most), most, old - 1).astype(old.dtype),
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
TYPES: dict[str, Any] = {
    "uint32": np.uint32,
    "int32": np.int32,
    "uint64": np.uint64,
    "int64": np.int64,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float32": np.float32,
    "float64": np.float64,
}
TENSOR = {
    "uint32": tuple(MODELS),
    **dict.fromkeys(("int32", "uint64"), ("add", "min", "max", "and", "or", "xor")),
    "int64": ("min", "max"),
    **dict.fromkeys(("float16", "bfloat16"), ("add", "min", "max")),
    **dict.fromkeys(("float32", "float64"), ("add",)),
}
PTX = {"uint32": "u32", "int32": "s32", "uint64": "u64", "int64": "s64", "float16": "f16", "bfloat16": "bf16",
       "float32": "f32", "float64": "f64"}  # fmt: skip
LINEAR = [
    *((f"{op}.b{bits}", f"uint{bits}") for op in ("and", "or", "xor") for bits in (32, 64)),
    *((f"{op}.u32", "uint32") for op in ("inc", "dec")),
    *(
        (f"{op}.{PTX[t]}", t)
        for op in ("min", "max")
        for t in ("uint32", "int32", "uint64", "int64", "float16", "bfloat16")
    ),
    *((f"add.{PTX[t]}", t) for t in ("uint32", "int32", "uint64", "float32", "float64")),
    *((f"add.noftz.{PTX[t]}", t) for t in ("float16", "bfloat16")),
]
CLUSTER = [
    *((f"{op}.b32", "uint32") for op in ("and", "or", "xor")),
    *((f"{op}.u32", "uint32") for op in ("inc", "dec")),
    *((f"{op}.{PTX[t]}", t) for op in ("min", "max") for t in ("uint32", "int32")),
    *((f"add.{PTX[t]}", t) for t in ("uint32", "int32", "uint64")),
]


def values(data: Bytes, dtype: str, seed: int) -> Bytes:
    """Random bytes without NaNs, small numbers (so that sums cancel and increments wrap) among them."""
    array = data.view(TYPES[dtype]).copy()
    rng = np.random.default_rng(seed)
    if "float" in dtype:
        with np.errstate(invalid="ignore"):  # a signalling NaN
            array[~np.isfinite(array.astype(np.float64))] = 1
        # One decade of magnitudes, and float32 around its smallest normal number.
        scale = rng.choice([1.0, 1.5 * 2.0**-126] if dtype == "float32" else [1.0, 8.0], array.size)
        small = (rng.integers(-40, 40, array.size) / 8 * scale).astype(TYPES[dtype])
    else:
        small = rng.integers(0, 4, array.size).astype(TYPES[dtype])
    return np.where(rng.integers(0, 2, array.size) == 0, small, array).view(np.uint8)


def reduced(operation: str, old: Bytes, value: Bytes, dtype: str) -> Bytes:
    kind = TYPES[dtype]
    with np.errstate(over="ignore"):
        return MODELS[operation.split(".")[0]](old.view(kind), value.view(kind)).astype(kind).view(np.uint8)


@every_order
@pytest.mark.parametrize("dtype", TENSOR)
def test_a_tensor_reduction_works_on_each_element_inside(dtype: str, order: dict[str, Any]) -> None:
    for operation in TENSOR[dtype]:
        chooser = random.Random(f"{dtype} {operation}")
        for number in range(5):
            copy = random_copy(chooser, modes=(*MODES, "128B_ATOM_32B", "128B_ATOM_64B"), store=True, dtypes=(dtype,))
            tensor = values(noise(copy.tensor_map.tensor.size, number), dtype, number)
            shared = values(noise(SHARED, 99 + number), dtype, 9 + number)
            expected = tensor.copy()
            for _, place, byte in copy.taken(units=True):
                if byte is not None:
                    at = slice(byte, byte + copy.size)
                    expected[at] = reduced(operation, expected[at], shared[place : place + copy.size], dtype)
            got, kept = run(EMULATOR, copy, reduce(copy, operation), tensor, shared, **order)
            assert np.array_equal(got.view(TYPES[dtype]), expected.view(TYPES[dtype])), (operation, copy)
            assert np.array_equal(kept, shared)


def any_copy() -> Copy:
    return Copy(TensorMap(aligned(1024), "uint8", (64, 16), (64,), (64, 16)), (0, 0), 0)


@every_order
@pytest.mark.parametrize(("spelling", "dtype"), LINEAR)
def test_a_linear_reduction_works_on_global_memory(spelling: str, dtype: str, order: dict[str, Any]) -> None:
    size = 1040  # no multiple of a part
    memory = values(noise(SHARED, 1), dtype, 2)  # the kernel's input is also what the reduction changes
    before = memory.copy()
    body = f"""add.s32 %r14, %r10, 4096; cp.reduce.async.bulk.global.shared::cta.bulk_group.{spelling}
    [%d0+32], [%r14], {size}; {DONE}"""
    run(EMULATOR, any_copy(), body, noise(1024, 3), memory, **order)
    expected = before.copy()
    expected[32 : 32 + size] = reduced(spelling, before[32 : 32 + size], before[4096 : 4096 + size], dtype)
    assert np.array_equal(memory.view(TYPES[dtype]), expected.view(TYPES[dtype]))


@every_order
@pytest.mark.parametrize(("spelling", "dtype"), CLUSTER)
def test_a_linear_reduction_works_on_the_shared_memory_of_another_cta(
    spelling: str, dtype: str, order: dict[str, Any]
) -> None:
    shared = values(noise(2 * SHARED, 4), dtype, 5)
    body = f"""setp.ne.u32 %p3, %r20, 0; @%p3 bra READ; mapa.shared::cluster.u32 %r14, %r10, 1;
    mapa.shared::cluster.u32 %r15, %r12, 1; add.s32 %r16, %r10, 2048;
    cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.{spelling}
    [%r14], [%r16], 1024, [%r15];"""
    wait = f"setp.eq.u32 %p3, %r20, 0; @%p3 bra SKIP; {WAIT} SKIP:"
    _, got = run(EMULATOR, any_copy(), body, noise(1024, 3), shared, wait=wait, **order)
    expected = shared.copy()
    expected[SHARED : SHARED + 1024] = reduced(spelling, shared[SHARED : SHARED + 1024], shared[2048:3072], dtype)
    assert np.array_equal(got.view(TYPES[dtype]), expected.view(TYPES[dtype]))


def test_many_reductions_of_one_place_all_count() -> None:
    # 8 CTAs of 8 clusters add their shared memory to one tensor: integers in float32, so that the sum is exact.
    tensor_map = TensorMap(aligned(1024), "float32", (16, 16), (64,), (16, 16))
    copy = Copy(tensor_map, (0, 0), 0)
    shared = np.tile(np.arange(SHARED // 4, dtype=np.float32), 8).view(np.uint8)
    for seed in (1, 2, 3):
        got, _ = run(EMULATOR, copy, reduce(copy, "add"), np.zeros(1024, np.uint8), shared, order="seeded", seed=seed)
        assert np.array_equal(got.view(np.float32), 8 * np.arange(256, dtype=np.float32))
