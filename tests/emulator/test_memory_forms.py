"""Loads, stores, atomics and matrices: each row of memory.forms, and what happens outside of a buffer."""

from __future__ import annotations

import numpy as np
import pytest
from conformance import row_id, rows
from floatmodel import FORMATS, add, decode, encode, flush
from formtable import BITS, Form, sample, types_of
from ptxrun import launch
from test_float_forms import minmax_scalar
from test_integer_forms import as_type

from mlacademy import _emulator

KERNEL = """.visible .entry k(.param .u64 data, .param .u64 out) {{
.reg .pred %p<9>; .reg .b16 %h<40>; .reg .b32 %r<40>; .reg .b64 %d<40>; .reg .b128 %q<9>;
{shared}
mov.u32 %r0, %tid.x; ld.param.u64 %d0, [data]; ld.param.u64 %d1, [out];
{body}
ret; }}"""
SPACES = {"global", "shared", "shared::cta", "shared::cluster"}


def kernel(body: str, shared: str = "") -> str:
    return KERNEL.format(body=body, shared=shared)


def vector(names: list[str]) -> str:
    return names[0] if len(names) == 1 else "{" + ", ".join(names) + "}"


def spellings(form: Form, limit: int = 30) -> list[tuple[str, ...]]:
    """Those of a load or store that move at most 16 bytes between global or shared memory, without a cache policy."""
    chosen = []
    for mods in sample(form, limit):
        spaces = [mod for mod in mods if mod.split("::")[0] in ("const", "local", "param")]
        count = {"v2": 2, "v4": 4}.get(next((mod for mod in mods if mod in ("v2", "v4")), ""), 1)
        if not spaces and "v8" not in mods and count * BITS[types_of(mods)[0]] <= 128:
            chosen.append(tuple(mod for mod in mods if mod != "L2::cache_hint"))
    return chosen


@pytest.mark.parametrize("form", rows("ld", "st"), ids=row_id)
def test_loads_and_stores_move_the_bytes(form: Form) -> None:
    rng = np.random.default_rng(0)
    for mods in spellings(form):
        kind = types_of(mods)[0]
        count = next((int(mod[1]) for mod in mods if mod in ("v2", "v4")), 1)
        size = BITS[kind] // 8 * count
        source = rng.integers(0, 256, 32 * size, dtype=np.uint8)
        result = np.zeros_like(source)
        prefix = {8: "%h", 16: "%h", 32: "%r", 64: "%d", 128: "%q"}[BITS[kind]]
        registers = vector([f"{prefix}{5 + i}" for i in range(count)])
        plain = f"{'.v2' if count == 2 else '.v4' if count == 4 else ''}.b{BITS[kind]}"
        shared = any(mod.startswith("shared") for mod in mods)
        tested = ".".join([form.opcode, *mods])
        copy = [f"ld.global{plain} {registers}, [%d2];", f"st.global{plain} [%d3], {registers};"]
        steps = [f"mad.wide.u32 %d2, %r0, {size}, %d0; mad.wide.u32 %d3, %r0, {size}, %d1;"]
        if shared:
            steps.append(f"mov.u32 %r1, buffer; mad.lo.s32 %r1, %r0, {size}, %r1;")
            here = "[%r1]"
            if form.opcode == "ld":
                steps += [copy[0], f"st.shared{plain} {here}, {registers};", f"{tested} {registers}, {here};", copy[1]]
            else:
                steps += [copy[0], f"{tested} {here}, {registers};", f"ld.shared{plain} {registers}, {here};", copy[1]]
        elif form.opcode.startswith("ld"):
            steps += [f"{tested} {registers}, [%d2];", copy[1]]
        else:
            steps += [copy[0], f"{tested} [%d3], {registers};"]
        launch(kernel("\n".join(steps), ".shared .align 16 .b8 buffer[512];"), source, result)
        assert (source == result).all(), tested


@pytest.mark.parametrize(
    ("kind", "register"), [("u8", 16), ("s8", 16), ("s8", 32), ("s16", 32), ("u16", 64), ("s32", 64), ("s8", 64)]
)
def test_narrow_loads_extend_to_the_register(kind: str, register: int) -> None:
    values = np.arange(-16, 16).astype(f"i{BITS[kind] // 8}")
    name = {16: "%h5", 32: "%r5", 64: "%d5"}[register]
    out = np.zeros(32, f"u{register // 8}")
    body = f"mad.wide.u32 %d2, %r0, {values.itemsize}, %d0; mad.wide.u32 %d3, %r0, {out.itemsize}, %d1;\n"
    launch(kernel(body + f"ld.global.{kind} {name}, [%d2]; st.global.b{register} [%d3], {name};"), values, out)
    assert out.tolist() == [as_type(int(v) % (1 << BITS[kind]), kind) % (1 << register) for v in values]


def combine(form: Form, mods: tuple[str, ...], old: int, a: int, b: int, flushed: bool) -> int:
    kind = types_of(mods)[0]
    operation = next(m for m in ("and", "or", "xor", "exch", "cas", "inc", "dec", "add", "min", "max") if m in mods)
    if kind.endswith("x2"):
        narrow = tuple(mod.removesuffix("x2") for mod in mods)
        low, high = (combine(form, narrow, old >> s & 0xFFFF, a >> s & 0xFFFF, 0, flushed) for s in (0, 16))
        return low | high << 16
    if kind in FORMATS:
        f = FORMATS[kind]
        if operation != "add":
            fake = type("Row", (), {"opcode": operation})
            return minmax_scalar(fake, kind, (), (old, a))
        if kind == "f32" and flushed:
            old, a = flush(old, f), flush(a, f)
        bits = encode(add(decode(old, f), decode(a, f)), f)
        return flush(bits, f) if kind == "f32" and flushed else bits
    x, y = as_type(old, kind), as_type(a, kind)
    return {
        "and": old & a, "or": old | a, "xor": old ^ a, "exch": a, "cas": b if old == a else old, "add": old + a,
        "inc": 0 if old >= a else old + 1, "dec": a if old == 0 or old > a else old - 1, "min": min(x, y),
        "max": max(x, y),
    }[operation] % (1 << BITS[kind])  # fmt: skip


@pytest.mark.parametrize("form", rows("atom", "red"), ids=row_id)
def test_atomics_update_memory(form: Form) -> None:
    rng = np.random.default_rng(1)
    for mods in sample(form, 30):
        kind = types_of(mods)[0]
        bits = BITS[kind]
        count = next((int(mod[1]) for mod in mods if mod in ("v2", "v4", "v8")), 1)
        if count * bits > 128 or bits == 128:
            continue
        mods = tuple(mod for mod in mods if mod != "L2::cache_hint")
        shared = any(mod.startswith("shared") for mod in mods)
        dtype = f"u{bits // 8}"
        n = 32 * count
        old = rng.integers(0, 1 << min(bits, 63), n, dtype=np.uint64).astype(dtype)
        a = rng.integers(0, 1 << min(bits, 63), n, dtype=np.uint64).astype(dtype)
        old[:8], a[:8] = [0, 1, 2, 3, 5, 5, 0, 9], [0, 1, 1, 7, 5, 4, 3, 9]
        b = rng.integers(0, 1 << min(bits, 63), n, dtype=np.uint64).astype(dtype)
        data = np.stack([old, a, b])
        out = np.zeros_like(data)
        prefix = {16: "%h", 32: "%r", 64: "%d"}[bits]
        names = {k: [f"{prefix}{base + i}" for i in range(count)] for k, base in (("a", 5), ("b", 13), ("d", 21))}
        size = bits // 8
        lines = [f"mad.wide.u32 %d2, %r0, {size * count}, %d0; mad.wide.u32 %d3, %r0, {size * count}, %d1;"]
        lines += [f"ld.global.b{bits} {name}, [%d2+{n * size + i * size}];" for i, name in enumerate(names["a"])]
        lines += [f"ld.global.b{bits} {name}, [%d2+{2 * n * size + i * size}];" for i, name in enumerate(names["b"])]
        operands = vector(names["a"]) + (f", {names['b'][0]}" if "cas" in mods else "")
        destination = f"{vector(names['d'])}, " if form.opcode == "atom" else ""
        tested = ".".join([form.opcode, *mods])
        if shared:
            lines.append(
                f"mov.u32 %r1, buffer; mad.lo.s32 %r1, %r0, {size}, %r1; ld.global.b{bits} {names['d'][0]}, [%d2];"
            )
            lines.append(f"st.shared.b{bits} [%r1], {names['d'][0]}; {tested} {destination}[%r1], {operands};")
            lines.append(f"ld.shared.b{bits} {names['b'][0]}, [%r1]; st.global.b{bits} [%d2], {names['b'][0]};")
        else:
            lines.append(f"{tested} {destination}[%d2], {operands};")
        if form.opcode == "atom":
            lines += [f"st.global.b{bits} [%d3+{i * size}], {name};" for i, name in enumerate(names["d"])]
        launch(kernel("\n".join(lines), ".shared .align 16 .b8 buffer[512];"), data, out)
        want = [combine(form, mods, int(x), int(y), int(z), not shared) for x, y, z in zip(old, a, b, strict=True)]
        assert data[0].tolist() == want, tested
        if form.opcode == "atom":
            assert out[0].tolist() == old.tolist(), tested


def test_atomic_add_sums_all_lanes_of_all_blocks() -> None:
    total = np.zeros(1, np.uint32)
    launch(kernel("atom.global.add.u32 %r5, [%d0], 1;"), total, total, grid=(7, 1, 1), block=(100, 1, 1))
    assert total[0] == 700


def test_wide_compare_and_swap() -> None:
    data = np.array([1, 2, 3, 4, 5, 6], np.uint64)
    body = """mov.b128 %q1, {%d5, %d6}; ld.global.b64 %d5, [%d0]; ld.global.b64 %d6, [%d0+8]; mov.b128 %q1, {%d5, %d6};
    ld.global.b64 %d5, [%d0+16]; ld.global.b64 %d6, [%d0+24]; mov.b128 %q2, {%d5, %d6};
    atom.global.cas.b128 %q3, [%d0], %q1, %q2; mov.b128 {%d7, %d8}, %q3;
    st.global.b64 [%d0+32], %d7; st.global.b64 [%d0+40], %d8;"""
    launch(kernel(body), data, data, block=(1, 1, 1))
    assert data.tolist() == [3, 4, 3, 4, 1, 2]


@pytest.mark.parametrize("trans", ["", ".trans"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_matrices_load_and_store_by_rows(trans: str, count: int) -> None:
    tiles = np.arange(count * 64, dtype=np.uint16).reshape(count, 8, 8)
    out = np.zeros((count, 32), np.uint32)
    back = np.zeros_like(tiles)
    registers = "{" + ", ".join(f"%r{10 + i}" for i in range(count)) + "}"
    steps = [
        f"mov.u32 %r1, buffer; and.b32 %r2, %r0, {8 * count - 1}; mad.lo.s32 %r3, %r2, 16, %r1;",
        f"setp.lt.u32 %p1, %r0, {8 * count}; mad.wide.u32 %d2, %r2, 16, %d0; ld.global.v2.u64 {{%d5, %d6}}, [%d2];",
        "@%p1 st.shared.v2.u64 [%r3], {%d5, %d6}; bar.sync 0;",
        f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {registers}, [%r3];",
        *[f"mad.wide.u32 %d3, %r0, 4, %d1; st.global.u32 [%d3+{128 * i}], %r{10 + i};" for i in range(count)],
        f"add.s32 %r4, %r3, 512; stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%r4], {registers};",
        "bar.sync 0; ld.shared.v2.u64 {%d5, %d6}, [%r4];",
        f"add.s64 %d2, %d2, {tiles.nbytes}; @%p1 st.global.v2.u64 [%d2], {{%d5, %d6}};",
    ]
    data = np.concatenate([tiles.ravel(), back.ravel()])
    launch(kernel("\n".join(steps), ".shared .align 16 .b8 buffer[1024];"), data, out)
    for m in range(count):
        source = tiles[m].T if trans else tiles[m]
        for lane in range(32):
            low, high = (int(source[lane // 4, 2 * (lane % 4) + half]) for half in (0, 1))
            assert out[m, lane] == low | high << 16
    assert (data[tiles.size :] == tiles.ravel()).all()


# ---- outside of a buffer -------------------------------------------------------------------------------------------


def failure(body: str, *args: np.ndarray, shared: str = "", **options: object) -> _emulator.KernelTrap:
    data = args[0] if args else np.zeros(8, np.uint32)
    with pytest.raises(_emulator.KernelTrap) as caught:
        launch(kernel(body, shared), data, args[1] if len(args) > 1 else np.zeros(8, np.uint32), **options)
    return caught.value


def test_a_read_past_the_end_names_the_buffer() -> None:
    error = failure("mad.wide.u32 %d2, %r0, 4, %d0; ld.global.u32 %r5, [%d2];", np.zeros(20, np.uint32))
    assert "Out of bounds: 'ld.global.u32' reads 4 bytes just past the end of 'data', which has 80 bytes" in str(error)
    assert "kernel k" in str(error)
    assert "thread (20, 0, 0)" in str(error)
    assert (error.object_name, error.lanes, error.warp, error.block) == ("data", 1 << 20, 0, (0, 0, 0))


def test_a_read_before_the_start_counts_backwards() -> None:
    assert "8 bytes before the start of 'data'" in str(failure("ld.global.u32 %r5, [%d0+-8];"))


def test_a_vector_that_sticks_out_is_refused_whole() -> None:
    data = np.zeros(10, np.uint32)
    start = data[2:] if data.ctypes.data % 16 == 8 else data[: 4 + 2]
    error = failure("ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%d0+16];", start if start.ctypes.data % 16 == 0 else data)
    assert "16 bytes" in str(error)


def test_null_is_no_buffer() -> None:
    assert "a null pointer" in str(failure("mov.u64 %d2, 0; ld.global.u32 %r5, [%d2];"))


def test_a_read_only_buffer_refuses_stores() -> None:
    data = np.zeros(8, np.uint32)
    data.flags.writeable = False
    error = failure("st.global.u32 [%d0+4], %r0;", data)
    assert "Read-only memory: 'st.global.u32' writes 4 bytes at byte 4 of 'data'" in str(error)


def test_a_misaligned_access_states_the_multiple() -> None:
    assert "Misaligned access: 'ld.global.u32' reads 4 bytes" in str(failure("ld.global.u32 %r5, [%d0+2];"))


def test_shared_memory_has_an_end() -> None:
    error = failure("st.shared.u32 [buffer+64], %r0;", shared=".shared .align 4 .b8 buffer[64];")
    assert "at shared offset 64, but the CTA has 64 bytes of shared memory" in str(error)


def test_another_rank_needs_shared_cluster() -> None:
    body = "mov.u32 %r1, buffer; xor.b32 %r1, %r1, 16777216; ld.shared.u32 %r5, [%r1];"
    error = failure(body, shared=".shared .align 4 .b8 buffer[64];", grid=(2, 1, 1), cluster=(2, 1, 1))
    assert "without .shared::cluster" in str(error)


def test_a_rank_beyond_the_cluster_is_refused() -> None:
    body = "mov.u32 %r1, buffer; or.b32 %r1, %r1, 83886080; ld.shared::cluster.u32 %r5, [%r1];"
    error = failure(body, shared=".shared .align 4 .b8 buffer[64];")
    assert "rank 5, but the cluster has 1 CTAs" in str(error)


def test_parameters_are_read_only_and_bounded() -> None:
    assert "read-only" in str(failure("mov.b64 %d2, data; cvta.param.u64 %d2, %d2; st.u32 [%d2], %r0;"))
    assert "parameter offset 16" in str(failure("ld.param.u32 %r5, [data+16];"))


def test_local_memory_belongs_to_the_thread() -> None:
    out = np.zeros(32, np.uint32)
    body = """mov.u64 %d2, slots; cvta.local.u64 %d3, %d2; st.local.u32 [%d2+4], %r0; ld.u32 %r5, [%d3+4];
    mad.wide.u32 %d4, %r0, 4, %d1; st.global.u32 [%d4], %r5;"""
    launch(kernel(body, ".local .align 4 .b8 slots[8];"), out, out)
    assert out.tolist() == list(range(32))
    assert "local offset 8" in str(failure("st.local.u32 [slots+8], %r0;", shared=".local .align 4 .b8 slots[8];"))
