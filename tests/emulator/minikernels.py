"""One small deterministic kernel for each spelling of the rows that are no function of registers alone.

Memory, barriers, collectives, copies: each kernel does the one thing between a fixed beginning and end, so that what it
leaves in its result, in shared memory and in global memory can be compared between the emulator and a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

from formtable import BITS, NAMES, VECTOR, Form, types_of

HEADER = ".version 9.0\n.target sm_90a\n.address_size 64\n"
WORDS = 2048  # of each of the two buffers, 4 bytes each
FRAME = """.visible .entry k(.param .u64 data, .param .u64 out) {maxntid} {{
    .reg .pred %p<9>; .reg .b16 %h<40>; .reg .b32 %r<40>; .reg .b64 %d<40>; .reg .b128 %q<9>; .reg .f32 %f<9>;
    .shared .align 128 .b8 tile[2048]; .shared .align 8 .b8 bar[64]; .local .align 16 .b8 mine[64];
    mov.u32 %r0, %tid.x; ld.param.u64 %d0, [data]; ld.param.u64 %d1, [out]; mov.u32 %r30, tile; mov.u32 %r31, bar;
    mov.u64 %d30, bar; cvta.shared.u64 %d30, %d30; mov.u64 %d31, tile; cvta.shared.u64 %d31, %d31;
    mad.wide.u32 %d2, %r0, 16, %d0; mad.wide.u32 %d3, %r0, 4, %d1; mad.lo.s32 %r10, %r0, 16, %r30;
    mad.wide.u32 %d10, %r0, 16, %d31;
    ld.global.v4.u32 {{%r1, %r2, %r3, %r4}}, [%d2]; st.shared.v4.u32 [%r10], {{%r1, %r2, %r3, %r4}};
    setp.eq.s32 %p8, %r0, 0; mov.u32 %r20, 0; mov.u64 %d20, 0; bar.sync 0;
    {body}
    bar.sync 0; st.global.u32 [%d3], %r20; ld.shared.v4.u32 {{%r1, %r2, %r3, %r4}}, [%r10];
    mad.wide.u32 %d4, %r0, 16, %d1; st.global.v4.u32 [%d4+2048], {{%r1, %r2, %r3, %r4}}; ret;
}}
"""
INIT = "@%p8 mbarrier.init.shared::cta.b64 [%r31], {count}; fence.mbarrier_init.release.cluster; bar.sync 0;"
WAIT = "W{n}: mbarrier.try_wait.parity.shared::cta.b64 %p7, [%r31], {parity}; @!%p7 bra W{n};"


@dataclass(frozen=True)
class Mini:
    """A kernel ``k(data, out)`` of one block or one cluster of blocks of `block` threads."""

    text: str
    block: int = 128
    cluster: int = 1


def spelled(form: Form, mods: tuple[str, ...]) -> str:
    return ".".join([form.opcode, *(mod for mod in mods if mod)])


def registers(bits: int, count: int, first: int = 5) -> str:
    names = [f"{NAMES[max(bits, 8)]}{(first % 8 if bits == 128 else first) + i}" for i in range(count)]
    return names[0] if count == 1 else "{" + ", ".join(names) + "}"


def length(mods: tuple[str, ...]) -> int:
    return next((VECTOR[mod] for mod in mods if mod in VECTOR), 1)


def place(mods: tuple[str, ...]) -> str:
    """An address in the space that the modifiers name; a generic one is global."""
    spaces = {mod.split("::")[0] for mod in mods}
    return (
        "[%r10]"
        if "shared" in spaces
        else "[mine]"
        if "local" in spaces
        else "[data]"
        if "param" in spaces
        else "[%d2]"
    )


def policy(mods: tuple[str, ...]) -> tuple[str, str]:
    """Code before, and the operand of a cache policy, where there is one."""
    if "L2::cache_hint" not in mods:
        return "", ""
    return "createpolicy.fractional.L2::evict_first.b64 %d19, 1.0; ", ", %d19"


def load(form: Form, mods: tuple[str, ...]) -> str | None:
    bits, count = BITS[types_of(mods)[0]], length(mods)
    if bits * count > 128 or "const" in mods or ("param" in mods and bits * count > 64):
        return None
    before, hint = policy(mods)
    local = "st.local.v4.u32 [mine], {%r1, %r2, %r3, %r4}; " if "local" in mods else ""
    value = registers(bits, count)
    vector = f".v{count}" if count > 1 else ""
    dump = "" if "param" in mods or "param::entry" in mods else f"st.shared{vector}.b{bits} [%r10], {value};"
    return f"{before}{local}{spelled(form, mods)} {value}, {place(mods)}{hint}; {dump}"


def store(form: Form, mods: tuple[str, ...]) -> str | None:
    bits, count = BITS[types_of(mods)[0]], length(mods)
    if bits * count > 128 or form.opcode == "multimem" or any(mod.startswith("param") for mod in mods):
        return None
    before, hint = policy(mods)
    vector, value = f".v{count}" if count > 1 else "", registers(bits, count)
    back = "ld.local.v4.u32 {%r1, %r2, %r3, %r20}, [mine];" if "local" in mods else ""
    first = "st.local.v4.u32 [mine], {%r1, %r2, %r3, %r4}; " if "local" in mods else ""
    return (
        f"{before}{first}ld.global{vector}.b{bits} {value}, [%d2+2048]; "
        f"{spelled(form, mods)} {place(mods)}, {value}{hint}; {back}"
    )


def atomic(form: Form, mods: tuple[str, ...]) -> str | None:
    bits, count = BITS[types_of(mods)[0]], length(mods)
    before, hint = policy(mods)
    vector = f".v{count}" if count > 1 else ""
    if count * bits > 128 or form.opcode == "multimem":
        return None
    b, old = registers(bits, count, 5), registers(bits, count, 15)
    if bits == 16 and count == 8:
        fetch = "ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%d2+2048]; " + " ".join(
            f"mov.b32 {{%h{5 + 2 * i}, %h{6 + 2 * i}}}, %r{5 + i};" for i in range(4)
        )
        keep = ""
    else:
        fetch = f"ld.global{vector}.b{bits} {b}, [%d2+2048];"
        keep = f"st.global{vector}.b{bits} [%d2+4096], {old};"
    third = f", {registers(bits, 1, 6)}" if "cas" in mods else ""
    more = f"ld.global.b{bits} {registers(bits, 1, 6)}, [%d2+3072];" if "cas" in mods else ""
    result = f"{old}, " if form.opcode == "atom" else ""
    keep = keep if result else ""
    return f"{before}{fetch} {more} {spelled(form, mods)} {result}{place(mods)}, {b}{third}{hint}; {keep}"


def matrix(form: Form, mods: tuple[str, ...]) -> str:
    count = length(mods)
    value = "{" + ", ".join(f"%r{5 + i}" for i in range(count)) + "}"
    it = "[%r10]" if any(mod.startswith("shared") for mod in mods) else "[%d10]"
    keep = " ".join(f"st.global.u32 [%d3+{4096 + 512 * i}], %r{5 + i};" for i in range(count))
    if form.opcode == "ldmatrix":
        return f"{spelled(form, mods)} {value}, {it}; {keep}"
    fill = " ".join(f"ld.global.u32 %r{5 + i}, [%d2+{2048 + 4 * i}];" for i in range(count))
    return f"{fill} {spelled(form, mods)} {it}, {value};"


def barrier(form: Form, mods: tuple[str, ...]) -> str:
    name = spelled(form, mods)
    if "arrive" in mods:
        return f"setp.lt.u32 %p1, %r0, 64; @%p1 {name} 3, 128; @!%p1 bar.sync 3, 128; mov.u32 %r20, 7;"
    if "red" in mods:
        to = "%r20" if "popc" in mods else "%p2"
        tail = "" if "popc" in mods else " selp.u32 %r20, 1, 0, %p2;"
        return f"and.b32 %r5, %r1, 3; setp.eq.u32 %p1, %r5, 1; {name} {to}, 2, 128, %p1;{tail}"
    return f"st.shared.u32 [%r10], %r2; {name} 2, 128; xor.b32 %r5, %r10, 1008; ld.shared.u32 %r20, [%r5]; bar.sync 0;"


def mbarrier(form: Form, mods: tuple[str, ...]) -> str | None:
    name, remote = spelled(form, mods), "shared::cluster" in mods
    it = "[%r31]" if any(mod.startswith("shared") for mod in mods) else "[%d30]"
    init = INIT.format(count=128 if form.handler != "mbarrier_tx" else 1)
    if form.handler == "mbarrier_init":
        return (
            f"@%p8 {name} {it}, 5; bar.sync 0; @%p8 mbarrier.arrive.shared::cta.b64 %d5, [%r31]; "
            "@%p8 mbarrier.pending_count.b64 %r20, %d5; bar.sync 0;"
        )
    if form.handler == "mbarrier_inval":
        return f"{init} @%p8 {name} {it}; bar.sync 0; mov.u32 %r20, 3;"
    if form.handler == "mbarrier_pending":
        return (
            f"{init} mbarrier.arrive.shared::cta.b64 %d5, [%r31]; {name} %r5, %d5; setp.le.u32 %p1, %r5, 128; "
            "selp.u32 %r20, 1, 0, %p1;"
        )
    if form.handler == "mbarrier_tx":
        second = "complete_tx" if "expect_tx" in mods else "expect_tx"
        other = f"mbarrier.{second}.relaxed.cta.shared::cta.b64 [%r31], 64;"
        return (
            f"{init} @%p8 {name} {it}, 64; @%p8 {other} @%p8 mbarrier.arrive.shared::cta.b64 _, [%r31]; "
            f"{WAIT.format(n=1, parity=0)} mov.u32 %r20, 9;"
        )
    if form.handler == "mbarrier_arrive":
        drop = "arrive_drop" in mods
        if "noComplete" in mods:
            return (
                f"{init} setp.lt.u32 %p1, %r0, 127; @%p1 {name} %d5, {it}, 1; bar.sync 0; "
                "setp.eq.u32 %p2, %r0, 127; @%p2 mbarrier.arrive.shared::cta.b64 _, [%r31]; "
                f"{WAIT.format(n=1, parity=0)} mov.u32 %r20, 5;"
            )
        count = ", 0" if "expect_tx" in mods else ""
        state = "_" if remote else "%d5"
        again = "" if drop else f"{name} {state}, {it}{count}; {WAIT.format(n=2, parity=1)}"
        return f"{init} {name} {state}, {it}{count}; {WAIT.format(n=1, parity=0)} {again} mov.u32 %r20, 5;"
    if form.handler == "mbarrier_wait":
        what = "0" if "parity" in mods else "%d5"
        return (
            f"{init} mbarrier.arrive.shared::cta.b64 %d5, [%r31]; L: {name} %p1, {it}, {what}; @!%p1 bra L; "
            f"mov.u32 %r20, 6;"
        )
    return None


def copies(form: Form, mods: tuple[str, ...]) -> str | None:
    name = spelled(form, mods)
    before, hint = policy(mods)
    end = "cp.async.wait_all; "
    if form.handler == "cp_async":
        size = ", %p1" if any(o.type == "pred" for o in form.operands) else ", %r5"
        part = "and.b32 %r5, %r0, 15; and.b32 %r6, %r0, 1; setp.eq.u32 %p1, %r6, 1; "
        return f"{before}{part}{name} [%r10], [%d2+2048], 16{size}{hint}; {end}"
    if form.handler == "cp_async_commit":
        return f"cp.async.ca.shared.global [%r10], [%d2+2048], 4; {name}; cp.async.wait_group 0;"
    if form.handler == "cp_async_wait":
        wait = f"cp.async.commit_group; {name} 0;" if "wait_group" in mods else f"{name};"
        return f"cp.async.ca.shared.global [%r10], [%d2+2048], 8; {wait}"
    if form.handler == "cp_async_arrive":
        it = "[%r31]" if any(mod.startswith("shared") for mod in mods) else "[%d30]"
        arrive = "" if "noinc" in mods else "mbarrier.arrive.shared::cta.b64 _, [%r31]; "
        return (
            f"{INIT.format(count=128)} cp.async.ca.shared.global [%r10], [%d2+2048], 4; {name} {it}; "
            f"{arrive}{WAIT.format(n=1, parity=0)}"
        )
    if form.handler in ("st_async", "red_async"):
        bits, count = BITS[types_of(mods)[0]], length(mods)
        value, vector = registers(bits, count), f".v{count}" if count > 1 else ""
        size = bits // 8 * count * 128
        return (
            f"{INIT.format(count=1)} ld.global{vector}.b{bits} {value}, [%d2+2048]; "
            f"@%p8 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r31], {size}; "
            f"{name} [%r10], {value}, [%r31]; {WAIT.format(n=1, parity=0)}"
        )
    if form.handler == "bulk_load":
        source = "[%r30]" if mods.count("shared::cta") and "global" not in mods else "[%d0]"
        to = "[%r5]"
        mask = ", %h5" if "multicast::cluster" in mods else ""
        return (
            f"{before}{INIT.format(count=1)} mov.u16 %h5, 1; add.s32 %r5, %r30, 1024; fence.proxy.async; bar.sync 0; "
            "@%p8 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r31], 512; "
            f"@%p8 {name} {to}, {source}, 512, [%r31]{mask}{hint}; {WAIT.format(n=1, parity=0)}"
        )
    if form.handler == "bulk_store":
        return (
            f"{before} fence.proxy.async; bar.sync 0; @%p8 {name} [%d0], [%r30], 1024{hint}; "
            "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
        )
    if form.handler == "bulk_reduce":
        if "shared::cluster" in mods:
            return (
                f"{INIT.format(count=1)} add.s32 %r5, %r30, 1024; fence.proxy.async; bar.sync 0; "
                "@%p8 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r31], 512; "
                f"@%p8 {name} [%r5], [%r30], 512, [%r31]; {WAIT.format(n=1, parity=0)}"
            )
        return (
            f"{before} fence.proxy.async; bar.sync 0; @%p8 {name} [%d0+4096], [%r30], 1024{hint}; "
            "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
        )
    group = "fence.proxy.async; bar.sync 0; @%p8 cp.async.bulk.global.shared::cta.bulk_group [%d0], [%r30], 1024; "
    if form.handler == "bulk_commit":
        return f"{group}{name}; cp.async.bulk.wait_group 0;"
    return f"{group}cp.async.bulk.commit_group; {name} 0; cp.async.bulk.wait_group 0;"


def collective(form: Form, mods: tuple[str, ...]) -> str | None:
    name = spelled(form, mods)
    pred = " selp.u32 %r5, 1, 0, %p1; shl.b32 %r5, %r5, 8; xor.b32 %r20, %r20, %r5;"
    if form.handler == "shfl":
        return f"and.b32 %r6, %r3, 31; and.b32 %r7, %r4, 7967; {name} %r20|%p1, %r1, %r6, %r7, -1;{pred}"
    if form.handler == "vote":
        source = "and.b32 %r6, %r1, 1; setp.eq.u32 %p2, %r6, 1; "
        return f"{source}{name} %r20, %p2, -1;" if "ballot" in mods else f"{source}{name} %p1, %p2, -1;{pred}"
    if form.handler == "match":
        value = "and.b32 %r6, %r1, 3; cvt.u64.u32 %d6, %r6; "
        operand = "%d6" if "b64" in mods else "%r6"
        return (
            f"{value}{name} %r20|%p1, {operand}, -1;{pred}" if "all" in mods else f"{value}{name} %r20, {operand}, -1;"
        )
    if form.handler == "redux":
        return f"{name} %r20, %r1, -1;"
    if form.handler == "elect":
        return f"{name} %r20|%p1, -1;{pred}"
    return f"{name} %r20;"


def control(form: Form, mods: tuple[str, ...]) -> str | None:
    name = spelled(form, mods)
    odd = "and.b32 %r5, %r0, 1; setp.eq.u32 %p1, %r5, 1; "
    if form.handler == "bra":
        return f"{odd}mov.u32 %r20, 1; @%p1 bra ODD; mov.u32 %r20, 2; ODD: {name} END; mov.u32 %r20, 3; END:"
    if form.handler == "brx":
        choose = "mov.u32 %r5, 1;" if "uni" in mods else "and.b32 %r5, %r0, 1;"
        ways = "A: mov.u32 %r20, 1; bra C; B: mov.u32 %r20, 2; C:"
        return f"t: .branchtargets A, B; {choose} {name} %r5, t; {ways}"
    if form.handler == "call":
        return (
            f"{{ .param .b32 x; .param .b32 y; st.param.b32 [x], %r1; {name} (y), twice, (x); "
            "ld.param.b32 %r20, [y]; }"
        )
    if form.handler == "setmaxnreg":
        first = "setmaxnreg.dec.sync.aligned.u32 40; " if "inc" in mods else ""
        return f"{first}{name} 40; mov.u32 %r20, 4;"
    if form.handler in ("nanosleep", "griddepcontrol", "nothing", "touch", "fence", "map_acquire", "map_release"):
        operands = ""
        if form.operands:
            address = "[%d2]" if "L2" not in mods or "discard" not in form.opcode else "[%d0]"
            texts = {"u32": "20", "imm": "128" if form.opcode in ("applypriority", "discard") else "3", "[]": address}
            operands = " " + ", ".join(texts[o.type] for o in form.operands if o.type in texts and not o.optional)
        if form.opcode == "cp":
            operands = " [%d0], 512"
        if form.opcode == "prefetch" and "local" in mods:
            operands = " [mine]"
        if form.opcode == "discard" or "tensormap" in mods or form.handler.startswith("map_"):
            return None
        before, hint = policy(mods)
        return f"{before}{name}{operands}{hint}; mov.u32 %r20, 8;"
    if form.handler == "policy":
        operand = {"fractional": "1.0", "range": "[%d0], 512, 1024", "cvt": "%d6"}[mods[0]]
        create = "createpolicy.fractional.L2::evict_first.b64 %d6, 1.0; " if mods[0] == "cvt" else ""
        return f"{create}{name} %d5, {operand}; ld.global.L2::cache_hint.u32 %r20, [%d2+2048], %d5;"
    if form.handler == "warp_sync":
        return (
            f"{odd}@%p1 bra ODD; st.shared.u32 [%r10], %r2; ODD: {name} -1; xor.b32 %r6, %r10, 16; "
            "ld.shared.u32 %r20, [%r6]; bar.warp.sync -1;"
        )
    if form.handler == "cluster_arrive":
        return (
            f"{name}; barrier.cluster.wait.aligned; mov.u32 %r20, 2;"
            if "aligned" in mods
            else f"{name}; barrier.cluster.wait; mov.u32 %r20, 2;"
        )
    if form.handler == "cluster_wait":
        return f"barrier.cluster.arrive; {name}; mov.u32 %r20, 2;"
    if form.handler == "mapa":
        wide = "u64" in mods
        generic = "" if "shared::cluster" in mods else "cvta.shared.u64 %d5, %d5; "
        source = f"cvt.u64.u32 %d5, %r10; {generic}" if wide else ""
        if not wide and "shared::cluster" not in mods:
            return None
        operand, result = ("%d5", "%d6") if wide else ("%r10", "%r6")
        space = ".shared::cluster" if "shared::cluster" in mods else ""
        read = f"ld{space}.u32 %r20, [{result}+4];"
        peer = "mov.u32 %r7, %cluster_ctarank; xor.b32 %r7, %r7, 1; "
        sync = "barrier.cluster.arrive; barrier.cluster.wait; "
        return f"{source}{peer}{name} {result}, {operand}, %r7; {sync}{read} {sync}"
    if form.handler == "getctarank":
        wide = "u64" in mods
        if not wide and "shared::cluster" not in mods:
            return None
        source = (
            "cvt.u64.u32 %d5, %r10; " + ("" if "shared::cluster" in mods else "cvta.shared.u64 %d5, %d5; ")
            if wide
            else ""
        )
        return f"{source}{name} %r20, {'%d5' if wide else '%r10'};"
    if form.handler == "cvta":
        if "param" in mods or "param::entry" in mods or "const" in mods:
            return None
        space = next(mod for mod in mods if mod not in ("to", "u64"))
        give = {
            "global": "mov.u64 %d5, %d2;",
            "local": "st.local.v4.u32 [mine], {%r1, %r2, %r3, %r4}; mov.u64 %d5, mine;",
        }
        start = give.get(space, "cvt.u64.u32 %d5, %r10;")
        if "to" in mods:
            whole = f"cvta.{space}.u64 %d5, %d5; {name} %d6, %d5; ld.{space}.u32 %r20, [%d6+4];"
        else:
            whole = f"{name} %d6, %d5; ld.u32 %r20, [%d6+4];"
        return f"{start} {whole}"
    if form.handler == "isspacep":
        if mods[0] in ("param", "param::entry", "const"):
            return None
        return (
            "mov.u64 %d5, %d2; cvt.u64.u32 %d6, %r10; cvta.shared.u64 %d6, %d6; mov.u64 %d7, mine; "
            "cvta.local.u64 %d7, %d7; "
            + " ".join(f"{name} %p1, %d{i}; selp.u32 %r5, 1, 0, %p1; mad.lo.s32 %r20, %r20, 2, %r5;" for i in (5, 6, 7))
        )
    if form.handler == "alloca":
        if "u32" in mods:
            return None
        return f"{name} %d5, 32; st.local.u32 [%d5+28], %r1; ld.local.u32 %r20, [%d5+28];"
    if form.handler in ("stacksave", "stackrestore"):
        if "u32" in mods:
            return None
        return (
            "stacksave.u64 %d5; alloca.u64 %d6, 32; st.local.u32 [%d6], %r1; ld.local.u32 %r20, [%d6]; "
            "stackrestore.u64 %d5;"
        )
    if form.handler == "movmatrix":
        return f"{name} %r20, %r1;"
    return None


MAKERS = {
    load: ("ld",),
    store: ("st",),
    atomic: ("atom", "red"),
    matrix: ("ldmatrix", "stmatrix"),
    barrier: ("bar_sync", "bar_arrive", "bar_red"),
    mbarrier: (
        *("mbarrier_init", "mbarrier_inval", "mbarrier_tx", "mbarrier_arrive", "mbarrier_wait", "mbarrier_pending"),
    ),
    copies: (
        *("cp_async", "cp_async_commit", "cp_async_wait", "cp_async_arrive", "st_async", "red_async", "bulk_load"),
        *("bulk_store", "bulk_reduce", "bulk_commit", "bulk_wait"),
    ),
    collective: ("shfl", "vote", "match", "redux", "elect", "activemask"),
    control: (
        *("bra", "brx", "call", "setmaxnreg", "nanosleep", "griddepcontrol", "nothing", "touch", "fence", "policy"),
        *("warp_sync", "cluster_arrive", "cluster_wait", "mapa", "getctarank", "cvta", "isspacep", "alloca"),
        *("stacksave", "stackrestore", "movmatrix", "map_acquire", "map_release"),
    ),
}
MAKER_OF = {handler: maker for maker, handlers in MAKERS.items() for handler in handlers}
TWICE = (
    ".func (.param .b32 r) twice(.param .b32 x) { .reg .b32 %a; ld.param.b32 %a, [x]; shl.b32 %a, %a, 1; "
    "st.param.b32 [r], %a; ret; }\n"
)


def mini(form: Form, mods: tuple[str, ...]) -> Mini | None:
    """The kernel of a spelling; None where none is made (a const or parameter access, a vector of 32 bytes …)."""
    maker = MAKER_OF.get(form.handler)
    body = maker(form, mods) if maker else None
    if body is None:
        return None
    before = TWICE if form.handler == "call" else ""
    # setmaxnreg needs a kernel whose registers are fixed.
    maxntid = ".maxntid 128, 1, 1 .maxnreg 64" if form.handler == "setmaxnreg" else ".maxntid 128, 1, 1"
    # Outside of a cluster a GPU refuses what writes to shared memory of a cluster asynchronously.
    within = form.handler.startswith("bulk") and {"shared::cluster", "shared::cta"} <= set(mods)
    cluster = 2 if within or form.handler in ("mapa", "st_async", "red_async") else 1
    if cluster > 1:
        maxntid += f" .explicitcluster .reqnctapercluster {cluster}, 1, 1"
    return Mini(HEADER + before + FRAME.format(body=body, maxntid=maxntid), cluster=cluster)
