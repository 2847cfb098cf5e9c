"""Tensor maps that kernels change, and what is refused: each report by its sentence and its rule."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from tensor_kernels import DONE, SHARED, WAIT, load, multicast, noise, operand, reduce, run, store
from tensor_model import Copy, RowsCopy, aligned, random_copy

from mlacademy.gpu import Device, KernelTrap, PtxInvalid, TensorMap

EMULATOR = Device("emulator", step_budget=1_000_000)
RELEASE = "fence.proxy.tensormap::generic.release.gpu;"
ACQUIRE = "fence.proxy.tensormap::generic.acquire.gpu [%d2], 128;"


@dataclass(frozen=True)
class Patched(Copy):
    """A copy by way of `tensor_map`, which the kernel changes into `wanted` first."""

    wanted: TensorMap

    @property
    def box_bytes(self) -> int:
        return self.wanted.box_bytes


def fields(wanted: TensorMap, place: str, space: str) -> str:
    """PTX that gives the map at `place` all fields of `wanted` but the address."""
    mode = {"none": (0, 0), "32B": (1, 0), "64B": (2, 0)}.get(wanted.swizzle)
    atoms = ["128B", "128B_ATOM_32B", "128B_ATOM_32B_FLIP_8B", "128B_ATOM_64B"]
    swizzle_mode, atomicity = mode or (3, atoms.index(wanted.swizzle))
    values = [("rank.{}.b1024.b32", [wanted.rank - 1]), ("elemtype.{}.b1024.b32", [wanted.element.ptx_code])]
    values += [("swizzle_mode.{}.b1024.b32", [swizzle_mode]), ("swizzle_atomicity.{}.b1024.b32", [atomicity])]
    values += [("fill_mode.{}.b1024.b32", [int(wanted.oob_fill == "nan")])]
    values += [("interleave_layout.{}.b1024.b32", [0])]
    for axis in range(wanted.rank):
        values.append(("global_dim.{}.b1024.b32", [axis, wanted.dims[axis]]))
        values.append(("box_dim.{}.b1024.b32", [axis, wanted.box[axis]]))
        values.append(("element_stride.{}.b1024.b32", [axis, wanted.element_strides[axis]]))
    values += [("global_stride.{}.b1024.b64", [axis, stride]) for axis, stride in enumerate(wanted.strides)]
    lines = (f"{name.format(space)} [{place}], {', '.join(map(str, v))};" for name, v in values)
    return " ".join(f"tensormap.replace.tile.{line}" for line in lines)


def move(source: str, target: str) -> str:
    return " ".join(f"ld.b64 %d7, [{source}+{k}]; st.b64 [{target}+{k}], %d7;" for k in range(0, 128, 8))


def patched_load(
    wanted: TensorMap, at: tuple[int, ...], offset: int, *, release: str = RELEASE, acquire: str = ACQUIRE
) -> tuple[Patched, str]:
    """The map goes to shared memory, is changed there, goes to global memory and is used there."""
    plain = TensorMap(wanted.tensor, "uint8", (16,), (), (16,))
    copy = Patched(plain, at, offset, wanted)
    body = f"""add.s32 %r15, %r10, 8064; cvt.u64.u32 %d6, %r15; cvta.shared.u64 %d6, %d6; {move("%d2", "%d6")}
    {fields(wanted, "%r15", "shared::cta")} {move("%d6", "%d1")} {release} mov.b64 %d2, %d1; {acquire}
    {load(Copy(wanted, at, offset))}"""
    return copy, body


def test_a_changed_map_is_the_map_it_was_changed_into() -> None:
    chooser = random.Random("patched")
    for number in range(40):
        wanted = random_copy(chooser)
        copy, body = patched_load(wanted.tensor_map, wanted.at, wanted.offset)
        tensor, shared = noise(wanted.tensor_map.tensor.size, number), noise(SHARED, 99 + number)
        _, got = run(EMULATOR, copy, body, tensor, shared, wait=WAIT)
        expected = shared.copy()
        wanted.load(tensor, expected)
        assert np.array_equal(got[:8064], expected[:8064]), wanted


def plain(**changed: Any) -> Copy:
    """A box of 8 rows of 64 bytes of a float32 tensor of 16 rows of 128 bytes, at its start."""
    about = {"dtype": "float32", "dims": (32, 16), "strides": (128,), "box": (16, 8)} | changed
    return Copy(TensorMap(aligned(16 * 128), **about), about.pop("at", (0, 0)), 0)


def trapped(copy: Copy, body: str, *, ctas: int = 1, **options: Any) -> KernelTrap:
    with pytest.raises(KernelTrap) as caught:
        run(EMULATOR, copy, body, noise(16 * 128, 1), noise(SHARED * ctas, 2), **options)
    return caught.value


def test_a_change_that_is_not_released_is_reported() -> None:
    it = plain().tensor_map
    error = trapped(*patched_load(it, (0, 0), 0, release=""))
    assert "tensormap.replace has changed and no thread has released" in str(error)
    assert error.rule == "tensormap-fence"


def test_a_change_that_is_not_acquired_is_reported() -> None:
    it = plain().tensor_map
    error = trapped(*patched_load(it, (0, 0), 0, acquire=""))
    assert "without having acquired the change" in str(error)
    assert error.rule == "tensormap-fence"


def test_a_change_after_the_acquire_is_reported() -> None:
    it = plain().tensor_map
    late = "tensormap.replace.tile.global_dim.global.b1024.b32 [%d1], 0, 8;" + RELEASE
    error = trapped(*patched_load(it, (0, 0), 0, acquire=ACQUIRE + late))
    assert error.rule == "tensormap-fence"


def test_a_warp_copies_and_releases_a_map_at_once() -> None:
    wanted = plain()
    it = wanted.tensor_map
    copy = Patched(TensorMap(it.tensor, "uint8", (16,), (), (16,)), (0, 0), 0, it)
    # Whole warp: the body runs in one thread, so the copy stands in the wait, which all threads reach.
    first = f"""add.s32 %r15, %r10, 8064; cvt.u64.u32 %d6, %r15; cvta.shared.u64 %d6, %d6; {move("%d2", "%d6")}
    {fields(it, "%r15", "shared::cta")}"""
    fence = "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned"
    rest = f"""add.s32 %r15, %r10, 8064; bar.warp.sync 0xffffffff; {fence} [%d1], [%r15], 128;
    mov.b64 %d2, %d1; @!%p1 bra JOIN; {ACQUIRE} {load(wanted)} JOIN: {WAIT}"""
    tensor, shared = noise(16 * 128, 1), noise(SHARED, 2)
    _, got = run(EMULATOR, copy, first, tensor, shared, wait=rest)
    expected = shared.copy()
    wanted.load(tensor, expected)
    assert np.array_equal(got[:8064], expected[:8064])


@pytest.mark.parametrize(
    ("field", "sentence"),
    [
        ("rank.{}.b1024.b32 [%r15], 7", "its rank minus one is 7, allowed are 0 to 4"),
        ("box_dim.{}.b1024.b32 [%r15], 0, 257", "the box's size along axis 0 is 257, allowed are 1 to 256"),
        ("box_dim.{}.b1024.b32 [%r15], 1, 0", "the box's size along axis 1 is 0, allowed are 1 to 256"),
        ("box_dim.{}.b1024.b32 [%r15], 0, 3", "a row of its box has 96 bits, which is no multiple of 16 bytes"),
        ("element_stride.{}.b1024.b32 [%r15], 1, 9", "the element stride of axis 1 is 9, allowed are 1 to 8"),
        ("global_stride.{}.b1024.b64 [%r15], 0, 120", "the stride of axis 1 is 120, allowed are multiples of 16"),
        ("swizzle_mode.{}.b1024.b32 [%r15], 1", "a row of its box has 64 bytes, its swizzle allows 32"),
        ("interleave_layout.{}.b1024.b32 [%r15], 1", "it has an interleaved layout, which the emulator does not run"),
    ],
)
def test_a_map_that_breaks_a_rule_says_which(field: str, sentence: str) -> None:
    copy, body = patched_load(plain().tensor_map, (0, 0), 0)
    broken = f"tensormap.replace.tile.{field.format('shared::cta')};"
    marker = move("%d6", "%d1")
    error = trapped(copy, body.replace(marker, broken + marker))
    assert f"with a tensor map that breaks a rule: {sentence}" in str(error)
    assert error.rule == "tensor-map"


@pytest.mark.parametrize(
    ("at", "body", "sentence"),
    [
        ((2, 0), load, "with c0 = 2: 2 elements of float32 are no multiple of 16 bytes .* Move c0 by 4 elements"),
        ((-2, 0), load, "with c0 = -2: -2 elements of float32 are no multiple of 16 bytes"),
        ((1, 0), store, "with c0 = 1: 1 elements of float32 are no multiple of 16 bytes"),
        ((-4, 0), store, "with coordinate c0 = -4; stores and reductions take no negative coordinates"),
        ((0, -1), store, "with coordinate c1 = -1; stores and reductions take no negative coordinates"),
        ((0, -1), lambda copy: reduce(copy, "add"), "c1 = -1; stores and reductions take no negative"),
    ],
)
def test_coordinates_that_end_a_kernel_on_a_gpu_are_refused(at: Any, body: Any, sentence: str) -> None:
    copy = Copy(plain().tensor_map, at, 0)
    error = trapped(copy, body(copy))
    assert error.rule == "tensor-coordinate"
    with pytest.raises(KernelTrap, match=sentence):
        raise error


@pytest.mark.parametrize(
    ("body", "rule", "sentence"),
    [
        ("add.s32 %r11, %r11, 64; {load}", "alignment", "begins at a multiple of 128 bytes. Declare it alignas"),
        ("add.s32 %r11, %r11, 8192; {load}", "bounds", "but the CTA has 8200 bytes of shared memory"),
        ("add.s32 %r12, %r12, -8; {load}", "barrier-init", "where no mbarrier has been initialised"),
        ("mov.b64 %d2, %d0; {load}", "", "not a tensor map|no multiple of"),
        ("mov.b64 %d2, 0; {load}", "", "."),
        (
            "add.s32 %r14, %r10, 256; mbarrier.init.shared.b64 [%r14], 1; {load}",
            "barrier-overwrite",
            "over the mbarrier at offset 256",
        ),
        ("cvt.u64.u32 %d2, %r10; cvta.shared.u64 %d2, %d2; {load}", "tensor-map", "tensor map in shared memory"),
        (
            "{im2col}",
            "tensor-map",
            "with a tensor map of the other mode; .im2col and its like need a map made for im2col",
        ),
        ("{rows}", "tensor-map", "whose box has 8 rows; for four rows by their numbers, the box has one"),
        ("{flat}", "tensor-map", "gives 1 coordinates for a tensor map with 2 axes"),
        ("{add_s64}", "tensor-map", "on a tensor of int64, which has no reduction .add"),
        ("{inc}", "tensor-map", "on a tensor of float32, which has no reduction .inc"),
        ("cp.async.bulk.prefetch.tensor.1d.L2.global {one};", "tensor-map", "gives 1 coordinates"),
        ("prefetch.tensormap [%d1];", "tensor-map", "128 bytes that are not a tensor map"),
    ],
)
def test_copies_that_cannot_be_right_are_refused(body: str, rule: str, sentence: str) -> None:
    copy = plain()
    cube = Copy(TensorMap(aligned(2048), "float32", (4, 2, 2), (16, 32), (4, 2, 2)), (0, 0, 0), 0)
    im2col = load(cube).replace("global.mbar", "global.im2col.mbar").replace("[%r12]", "[%r12], {%h1}")
    if "im2col" in body:
        copy = cube
    if "s64" in body:
        copy = plain(dtype="int64", dims=(16, 16), box=(8, 8))
    flat = load(copy).replace("tensor.2d", "tensor.1d").replace(operand(2), operand(1))
    rows = load(RowsCopy(copy.tensor_map, (0, 0, 1, 2, 3), 0))
    text = body.format(
        rows=rows,
        load=load(copy),
        flat=flat,
        inc=reduce(copy, "inc"),
        one=operand(1),
        im2col=im2col,
        add_s64=reduce(copy, "add"),
    )
    error = trapped(copy, text)
    with pytest.raises(KernelTrap, match=sentence):
        raise error
    assert error.rule == rule or not rule


@pytest.mark.parametrize(
    ("mask", "sentence"), [(0, "with CTA mask 0 in a cluster of 2"), (6, "with CTA mask 6 in a cluster of 2 CTAs")]
)
def test_a_multicast_stays_in_its_cluster(mask: int, sentence: str) -> None:
    copy = plain()
    body, _ = multicast(copy, 2, mask, 0)
    error = trapped(copy, body, ctas=2)
    assert sentence in str(error)
    assert error.rule == "multicast-mask"


def test_a_multicast_to_a_cta_that_has_ended_is_reported() -> None:
    copy = plain()
    body, _ = multicast(copy, 2, 3, 0)
    # Rank 1 leaves, and rank 0 counts to 900 before it copies.
    leave = """@%p3 exit; setp.eq.u32 %p3, %r20, 1; @%p3 exit; mov.u32 %r33, 0;
    S: add.s32 %r33, %r33, 1; setp.lt.s32 %p3, %r33, 900; @%p3 bra S;"""
    wait = "setp.eq.u32 %p3, %r20, 1; @%p3 exit;"
    error = trapped(copy, body.replace("@%p3 bra READ;", leave), wait=wait, ctas=2)
    assert "copies to the CTA of rank 1, whose threads have all exited" in str(error)
    assert error.rule == "remote-exited"


def test_a_map_that_reaches_beyond_its_tensor_is_out_of_bounds() -> None:
    copy = plain()
    wide, body = patched_load(copy.tensor_map, (0, 12), 0)
    more = "tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r15], 1, 64;"
    marker = move("%d6", "%d1")
    error = trapped(wide, body.replace(marker, more + marker))
    assert "Out of bounds" in str(error)
    assert "of its tensor map reach beyond the memory that it describes" in str(error)
    assert error.rule == "bounds"


def test_a_store_into_a_read_only_tensor_is_reported() -> None:
    copy = plain()
    copy.tensor_map.tensor[:] = 0
    copy.tensor_map.tensor.flags.writeable = False
    try:
        with pytest.raises(KernelTrap, match=r"Read-only memory: .* writes 64 bytes at byte 0 of '"):
            run(EMULATOR, copy, store(copy), copy.tensor_map.tensor, noise(SHARED, 2))
    finally:
        copy.tensor_map.tensor.flags.writeable = True


def test_prefetches_have_no_effect() -> None:
    copy = plain()
    tensor, shared = noise(16 * 128, 1), noise(SHARED, 2)
    body = f"prefetch.tensormap [%d2]; cp.async.bulk.prefetch.tensor.2d.L2.global.tile {operand(2)};"
    after, got = run(EMULATOR, copy, body, tensor, shared)
    assert np.array_equal(after, tensor)
    assert np.array_equal(got, shared)


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%d2, {%r1}], [%r11];", "with 2 coordinates, "),
        ("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%d2], [%r11];", "with 2 coordinates, "),
        (
            "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
            "[%r11], [%d2, {%r1}], [%r12];",
            "a CTA mask is missing",
        ),
        ("tensormap.replace.tile.global_dim.global.b1024.b32 [%d2], 5, %r1;", "the axis must be 0 to 4"),
        ("tensormap.replace.tile.elemtype.global.b1024.b32 [%d2], 16;", "the value must be 0 to 15"),
        ("fence.proxy.tensormap::generic.acquire.gpu [%d2], 64;", "the size must be 128"),
    ],
)
def test_statements_that_are_no_ptx_are_refused_when_loaded(statement: str, sentence: str) -> None:
    with pytest.raises(PtxInvalid, match=sentence):
        run(EMULATOR, plain(), statement + DONE, noise(16 * 128, 1), noise(SHARED, 2))
