"""The tensor copies of `tma.py`: random ones by kind, and single ones that break a rule."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from tensor_kernels import DONE, SHARED, WAIT, load, multicast, noise, operand, reduce, run, store
from tensor_model import ATOMS, MODES, SIZES, Bytes, Copy, aligned, random_copy, random_im2col

from mlacademy.gpu import Device, TensorMap

# A wait that gives up: what breaks a rule may never complete.
GIVES_UP = """mov.u32 %r33, 0; W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r12], 0, 1000; @%p2 bra OVER;
add.s32 %r33, %r33, 1; setp.lt.s32 %p3, %r33, 2000; @%p3 bra W; OVER:"""


@dataclass(frozen=True)
class Case:
    """One copy with its kernel and its inputs."""

    kind: str
    number: int
    copy: Copy
    body: str
    wait: str = ""
    ctas: int = 1
    floats: str = ""  # what the tensor and the shared memory hold: a float type with special values, or any bytes
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.kind} {self.number}"

    def inputs(self) -> tuple[Bytes, Bytes]:
        tensor, shared = (
            noise(size, 1000 * self.number + k)
            for k, size in enumerate((self.copy.tensor_map.tensor.size, SHARED * self.ctas))
        )
        if self.floats:
            tensor, shared = (special(data, self.floats, self.number + k) for k, data in enumerate((tensor, shared)))
        return tensor, shared

    def run(self, device: Device) -> tuple[Bytes, Bytes]:
        tensor, shared = self.inputs()
        after = run(device, self.copy, self.body, tensor, shared, wait=self.wait)
        return (shared, after[1]) if self.kind.startswith("linear") else after  # which work on the kernel's input

    def differences(self, got: dict[str, Any], tensor: Bytes, shared: Bytes) -> str:
        """What differs from what a GPU gave; empty where nothing does."""
        if "refused" in got:
            return f"the emulator refuses: {got['refused']}"
        compared = 8064 if self.kind == "load-patched" else shared.size  # the map itself lies behind
        for what, ours, theirs in (
            ("tensor", got["tensor"], tensor),
            ("shared", got["shared"][:compared], shared[:compared]),
        ):
            places = np.flatnonzero(ours != theirs)
            if places.size:
                at = int(places[0]) // 8 * 8
                return (
                    f"{places.size} bytes of {what}, first at {int(places[0])}: "
                    f"GPU {theirs[at : at + 16].tobytes().hex()}, emulator {ours[at : at + 16].tobytes().hex()}"
                )
        return ""


def special(data: Bytes, dtype: str, seed: int) -> Bytes:
    """A third of the values replaced by zeros, subnormals, infinities, NaNs and numbers of one magnitude."""
    size = SIZES[dtype]
    bits = {"float16": (5, 10), "bfloat16": (8, 7), "float64": (11, 52)}.get(dtype, (8, 23))
    words = data[: data.size // size * size].view(f"u{size}").copy()
    rng = np.random.default_rng(seed)
    exponent, mantissa = (1 << bits[0]) - 1, (1 << bits[1]) - 1
    bias = exponent >> 1
    patterns = [0, 1, mantissa, exponent << bits[1], exponent << bits[1] | 1, exponent << bits[1] | mantissa]
    patterns += [1 << bits[1], bias << bits[1], bias << bits[1] | 1, bias << bits[1] | mantissa, 3, mantissa >> 1]
    picks = np.array(patterns, np.uint64)[rng.integers(0, len(patterns), words.size)]
    signs = rng.integers(0, 2, words.size).astype(np.uint64) << np.uint64(8 * size - 1)
    chosen = rng.integers(0, 3, words.size) == 0
    words[chosen] = (picks | signs)[chosen].astype(words.dtype)
    if dtype.startswith("tfloat32"):  # ties between its neighbours
        ties = rng.integers(0, 4, words.size) == 0
        words[ties] = words[ties] & np.uint32(0xFFFFE000) | np.uint32(0x1000)
    return words.view(np.uint8)


def cases() -> Iterator[Case]:
    """Every legal case, in a fixed order."""
    for kind, count, how in (
        ("load", 250, {}),
        ("load-narrow", 60, {"narrow": True}),
        ("load-inner-steps", 30, {"inner_steps": True}),
        ("load-converting", 60, {"dtypes": ("float32_ftz", "tfloat32", "tfloat32_ftz")}),
    ):
        chooser = random.Random(kind)
        for number in range(count):
            copy = random_copy(chooser, modes=MODES, **how)
            floats = copy.tensor_map.dtype if "float" in copy.tensor_map.dtype else ""
            yield Case(kind, number, copy, load(copy), WAIT, floats=floats)
    for kind, count, how in (
        ("store", 120, {}),
        ("store-narrow", 30, {"narrow": True}),
        ("store-inner-steps", 20, {"inner_steps": True}),
        ("store-converting", 20, {"dtypes": ("float32_ftz", "tfloat32", "tfloat32_ftz")}),
    ):
        chooser = random.Random(kind)
        for number in range(count):
            copy = random_copy(chooser, modes=MODES, store=True, **how)
            floats = copy.tensor_map.dtype if "float" in copy.tensor_map.dtype else ""
            yield Case(kind, number, copy, store(copy), floats=floats)
    chooser = random.Random("im2col")
    for number in range(80):
        copy = random_im2col(chooser)
        yield Case("load-im2col", number, copy, load(copy), WAIT)
    for number in range(30):
        copy = random_im2col(chooser, store=True)
        yield Case("store-im2col", number, copy, store(copy))
    chooser = random.Random("multicast")
    for number in range(16):
        copy, size = random_copy(chooser, modes=MODES), chooser.choice([2, 4])
        body, wait = multicast(copy, size, chooser.randrange(1, 1 << size), chooser.randrange(size))
        yield Case("load-multicast", number, copy, body, wait, ctas=size)
    for dtype, operations in REDUCTIONS.items():
        for operation in operations:
            chooser = random.Random(f"{dtype} {operation}")
            for number in range(4):
                copy = random_copy(chooser, modes=MODES, store=True, dtypes=(dtype,))
                floats = dtype if "float" in dtype else ""
                yield Case(f"reduce-{operation}-{dtype}", number, copy, reduce(copy, operation), floats=floats)
    for spelling in LINEAR:
        dtype = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}.get(
            spelling.split(".")[-1], ""
        )
        body = (
            "add.s32 %r14, %r10, 4096; "
            f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{spelling} [%d0], [%r14], 2048; {DONE}"
        )
        for number in range(2):
            yield Case(f"linear-{spelling}", number, one(), body, floats=dtype)
    chooser = random.Random("patched")
    for number in range(24):
        copy = random_copy(chooser, modes=MODES)
        it = copy.tensor_map
        plain = TensorMap(it.tensor, "uint8", (16,), (), (16,))
        yield Case("load-patched", number, Patched(plain, copy.at, copy.offset, it), patch(it) + load(copy), WAIT)


@dataclass(frozen=True)
class Patched(Copy):
    """A copy by way of `tensor_map` that the kernel changes into `wanted` first."""

    wanted: TensorMap

    @property
    def box_bytes(self) -> int:
        return self.wanted.box_bytes


def patch(wanted: TensorMap) -> str:
    """PTX of one thread: the map goes to shared memory, is changed, goes to `out` and becomes the map of the copy."""
    here, there = "[%r15+{}]", "[%d1+{}]"
    words = range(0, 128, 8)
    code = ["add.s32 %r15, %r10, 8064;"]
    code += [f"ld.b64 %d7, [%d2+{k}]; st.shared.b64 {here.format(k)}, %d7;" for k in words]
    code.append("fence.proxy.async;")

    def replace_field(field: str, bits: int, *values: int) -> None:
        place = here.format(0)
        texts = ", ".join(map(str, values))
        code.append(f"tensormap.replace.tile.{field}.shared::cta.b1024.b{bits} {place}, {texts};")

    replace_field("rank", 32, wanted.rank - 1)
    replace_field("elemtype", 32, wanted.element.ptx_code)
    replace_field("swizzle_mode", 32, ["none", "32B", "64B", "128B"].index(wanted.swizzle))
    replace_field("fill_mode", 32, int(wanted.oob_fill == "nan"))
    for axis in range(wanted.rank):
        replace_field("global_dim", 32, axis, wanted.dims[axis])
        replace_field("box_dim", 32, axis, wanted.box[axis])
        replace_field("element_stride", 32, axis, wanted.element_strides[axis])
    for axis, stride in enumerate(wanted.strides):
        replace_field("global_stride", 64, axis, stride)
    code += [f"ld.shared.b64 %d7, {here.format(k)}; st.global.b64 {there.format(k)}, %d7;" for k in words]
    code.append("fence.proxy.tensormap::generic.release.gpu; mov.b64 %d2, %d1;")
    code.append("fence.proxy.tensormap::generic.acquire.gpu [%d2], 128;")
    return " ".join(code)


REDUCTIONS = {
    "uint32": ("add", "min", "max", "inc", "dec", "and", "or", "xor"),
    "int32": ("add", "min", "max", "and", "or", "xor"),
    "uint64": ("add", "min", "max", "and", "or", "xor"),
    "int64": ("add", "min", "max", "and", "or", "xor"),
    "float16": ("add", "min", "max"),
    "bfloat16": ("add", "min", "max"),
    "float32": ("add",),
    "float32_ftz": ("add",),
    "tfloat32": ("add",),
    "float64": ("add",),
}
LINEAR = [
    *(f"{op}.{kind}" for op in ("and", "or", "xor") for kind in ("b32", "b64")),
    *("inc.u32", "dec.u32", "add.u32", "add.s32", "add.u64", "add.f32", "add.f64"),
    *(f"{op}.{kind}" for op in ("min", "max") for kind in ("u32", "s32", "u64", "s64", "f16", "bf16")),
    *("add.noftz.f16", "add.noftz.bf16"),
]


def one(dtype: str = "float32", at: tuple[int, ...] = (0, 0), offset: int = 0, **fields: Any) -> Copy:
    """A box of 8 rows of 64 bytes in a tensor of 16 rows of 128."""
    size = SIZES[dtype]
    tensor_map = TensorMap(aligned(16 * 128), dtype, (128 // size, 16), (128,), (64 // size, 8), **fields)
    return Copy(tensor_map, at, offset)


def broken() -> Iterator[Case]:
    """Copies of which some end a kernel on a GPU."""
    for dtype in ("uint8", "uint16", "float32", "float64"):
        for bytes_off in (8, 16):
            step = bytes_off // SIZES[dtype]
            copy = one(dtype, (step, 0))
            yield Case(f"load at c0 of {bytes_off} bytes of {dtype}", 0, copy, load(copy), GIVES_UP)
            yield Case(f"store at c0 of {bytes_off} bytes of {dtype}", 0, copy, store(copy))
    for at in ((-4, 0), (0, -1), (0, -8)):
        copy = one(at=at)
        yield Case(f"load at {at}", 0, copy, load(copy), GIVES_UP)
        yield Case(f"store at {at}", 0, copy, store(copy))
        yield Case(f"reduce at {at}", 0, copy, reduce(copy, "add"))
        prefetch = f"cp.async.bulk.prefetch.tensor.2d.L2.global {operand(2)};"
        yield Case(f"prefetch at {at}", 0, copy, prefetch)
    for offset in (16, 32, 64):
        copy = one(offset=offset)
        yield Case(f"load to an offset of {offset}", 0, copy, load(copy), GIVES_UP)
        yield Case(f"store from an offset of {offset}", 0, copy, store(copy))
    for mode in ATOMS:
        copy = one(swizzle=mode)
        yield Case(f"load with {mode}, of Blackwell", 0, copy, load(copy), GIVES_UP)
    copy = one()
    for mask in (0, 2):
        yield Case(f"multicast to mask {mask} of one CTA", 0, copy, multicast(copy, 1, mask, 0)[0])
    for rank in (1, 3):
        body = load(copy).replace("tensor.2d", f"tensor.{rank}d").replace(operand(2), operand(rank))
        yield Case(f"{rank}-D load of a 2-D map", 0, copy, body, GIVES_UP)
    for dtype, operations in {
        **dict.fromkeys(("uint8", "uint16"), ("add", "and", "min")),
        **dict.fromkeys(("int32", "uint64", "int64"), ("inc", "dec")),
        **dict.fromkeys(("float32", "float64", "float16", "bfloat16"), ("add", "min", "inc", "and")),
        **dict.fromkeys(("float32_ftz", "tfloat32", "tfloat32_ftz"), ("add", "min")),
    }.items():
        for operation in operations:
            if operation not in REDUCTIONS.get(dtype, ()):
                copy = one(dtype)
                yield Case(f"reduce .{operation} of {dtype}", 0, copy, reduce(copy, operation))


BROKEN = {case.kind: replace(case, number=7) for case in broken()}
