"""Device functions that are called rather than inlined: recursion, function pointers, frames, `alloca`."""

from __future__ import annotations

import re

import numpy as np
import pytest
from ptxrun import HEADER, launch

from mlacademy import _emulator

KERNEL = """{functions}
.visible .entry k(.param .u64 data) {{
    .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .pred %p<4>;
    mov.u32 %r0, %tid.x; ld.param.u64 %d0, [data]; mad.wide.u32 %d0, %r0, 4, %d0; ld.global.u32 %r1, [%d0];
    {body}
    st.global.u32 [%d0], %r2; ret;
}}"""
CALL = (
    "{{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call (b), {target}, (a){tail}; ld.param.b32 %r2, [b]; }}"
)


def run(functions: str, body: str, data: np.ndarray, **options: object) -> list[int]:
    out = data.astype(np.uint32)
    launch(KERNEL.format(functions=functions, body=body), out, block=(len(out), 1, 1), **options)
    return out.tolist()


FIBONACCI = """.func (.param .b32 r) fib(.param .b32 n) {
    .reg .b32 %n, %a, %b; .reg .pred %small;
    ld.param.b32 %n, [n]; setp.lt.u32 %small, %n, 2; @%small bra DONE;
    add.s32 %a, %n, -1; add.s32 %b, %n, -2;
    { .param .b32 x; .param .b32 y; st.param.b32 [x], %a; call (y), fib, (x); ld.param.b32 %a, [y]; }
    { .param .b32 x; .param .b32 y; st.param.b32 [x], %b; call (y), fib, (x); ld.param.b32 %b, [y]; }
    add.s32 %n, %a, %b;
    DONE: st.param.b32 [r], %n; ret;
}"""


def fibonacci(n: int) -> int:
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_each_lane_recurses_to_its_own_depth(seed: int) -> None:
    data = np.arange(61) % 13
    assert run(FIBONACCI, CALL.format(target="fib", tail=""), data, seed=seed) == [fibonacci(int(n)) for n in data]


def test_the_caller_keeps_its_registers_over_a_call() -> None:
    # The loop's counter, bound, sum and predicate live in the caller while `fib` uses registers of its own.
    body = f"""mov.u32 %r3, 0; mov.u32 %r4, 0; mov.u32 %r5, %r1;
    LOOP: mov.u32 %r1, %r3; {CALL.format(target="fib", tail="")} setp.lt.u32 %p1, %r3, %r5; add.s32 %r4, %r4, %r2;
    add.s32 %r3, %r3, 1; @%p1 bra LOOP; mov.u32 %r2, %r4;"""
    data = np.arange(40) % 9
    assert run(FIBONACCI, body, data) == [sum(fibonacci(i) for i in range(n + 1)) for n in data]


def test_a_guarded_call_takes_its_lanes_alone() -> None:
    body = """setp.ge.u32 %p1, %r1, 5; mov.u32 %r2, 77; { .param .b32 a; .param .b32 b; st.param.b32 [a], %r1;
    @%p1 call (b), fib, (a); @%p1 ld.param.b32 %r2, [b]; } bar.sync 0;"""
    data = np.arange(32) % 11
    assert run(FIBONACCI, body, data) == [fibonacci(n) if n >= 5 else 77 for n in data]


MUTUAL = """.func (.param .b32 r) odd(.param .b32 n);
.func (.param .b32 r) even(.param .b32 n) {{ {even} }}
.func (.param .b32 r) odd(.param .b32 n) {{ {odd} }}"""
PARITY = """.reg .b32 %n; .reg .pred %zero; ld.param.b32 %n, [n]; setp.eq.s32 %zero, %n, 0; @%zero bra END;
add.s32 %n, %n, -1;
{{ .param .b32 x; .param .b32 y; st.param.b32 [x], %n; call (y), {other}, (x); ld.param.b32 %n, [y]; }}
st.param.b32 [r], %n; ret; END: st.param.b32 [r], {result}; ret;"""


def test_functions_that_call_each_other() -> None:
    functions = MUTUAL.format(even=PARITY.format(other="odd", result=1), odd=PARITY.format(other="even", result=0))
    assert run(functions, CALL.format(target="even", tail=""), np.arange(33)) == [1 - n % 2 for n in range(33)]


POINTERS = """.func (.param .b32 r) double(.param .b32 x) { .reg .b32 %a; ld.param.b32 %a, [x]; shl.b32 %a, %a, 1;
    st.param.b32 [r], %a; ret; }
.func (.param .b32 r) square(.param .b32 x) { .reg .b32 %a; ld.param.b32 %a, [x]; mul.lo.s32 %a, %a, %a;
    st.param.b32 [r], %a; ret; }
.func (.param .b32 r) half(.param .b64 x) { st.param.b32 [r], 0; ret; }
.global .u64 table[3] = { double, square, half };"""


@pytest.mark.parametrize("tail", [", proto", ", targets"])
def test_calls_through_a_table_of_functions(tail: str) -> None:
    body = f"""proto: .callprototype (.param .b32 _) _ (.param .b32 _); targets: .calltargets double, square;
    and.b32 %r3, %r0, 1; mov.u64 %d1, table; mad.wide.u32 %d1, %r3, 8, %d1; ld.global.u64 %d2, [%d1];
    {CALL.format(target="%d2", tail=tail)}"""
    data = np.arange(32) * 3
    assert run(POINTERS, body, data) == [x * x if i % 2 else 2 * x for i, x in enumerate(data.tolist())]


def test_the_address_of_a_function_is_a_value() -> None:
    body = f"""proto: .callprototype (.param .b32 _) _ (.param .b32 _); setp.gt.u32 %p1, %r1, 10;
    mov.u64 %d1, double; mov.u64 %d2, square; selp.b64 %d3, %d1, %d2, %p1;
    {CALL.format(target="%d3", tail=", proto")}"""
    assert run(POINTERS, body, np.arange(20)) == [2 * x if x > 10 else x * x for x in range(20)]


@pytest.mark.parametrize(
    ("pointer", "words"),
    [
        ("mov.u64 %d2, 4660;", "Call through a pointer that holds 4660, which is no function of this module"),
        ("ld.global.u64 %d2, [table+16];", "pointer to 'half', which takes 8 bytes and gives 4; the call passes 4 and"),
    ],
)
def test_a_wrong_pointer_is_named(pointer: str, words: str) -> None:
    call = CALL.format(target="%d2", tail=", proto")
    body = f"proto: .callprototype (.param .b32 _) _ (.param .b32 _); {pointer} {call}"
    with pytest.raises(_emulator.KernelTrap, match=words):
        run(POINTERS, body, np.arange(3))


def test_endless_recursion_overflows_the_stack() -> None:
    endless = ".func f(.param .b32 n) { .reg .b32 %a; ld.param.b32 %a, [n]; call f, (%a); ret; }"
    with pytest.raises(_emulator.KernelTrap, match=r"Stack overflow: the call of 'f', \d+ calls deep.*65536 bytes"):
        run(endless, "call f, (%r1);", np.arange(5))


def test_each_activation_has_its_own_variables() -> None:
    # Writes n to a local array, recurses with the array's address in hand, and reads it back: sum of 0 … n.
    functions = """.func (.param .b32 r) down(.param .b32 n, .param .b64 above) {
    .local .align 4 .b8 own[8]; .reg .b32 %n, %m, %s, %up; .reg .b64 %at, %q; .reg .pred %zero;
    ld.param.b32 %n, [n]; ld.param.b64 %q, [above]; mov.u64 %at, own; st.local.b32 [%at+4], %n; cvta.local.u64 %at, %at;
    mov.u32 %s, 0; setp.eq.s32 %zero, %n, 0; @%zero bra END; add.s32 %m, %n, -1;
    { .param .b32 x; .param .b64 y; .param .b32 z; st.param.b32 [x], %m; st.param.b64 [y], %at;
      call (z), down, (x, y); ld.param.b32 %s, [z]; }
    END: ld.local.b32 %m, [own+4]; add.s32 %s, %s, %m; setp.eq.s64 %zero, %q, 0; @%zero bra LAST;
    ld.b32 %up, [%q+4]; sub.s32 %up, %up, %n; add.s32 %up, %up, -1; add.s32 %s, %s, %up;
    LAST: st.param.b32 [r], %s; ret; }"""
    body = """{ .param .b32 x; .param .b64 y; .param .b32 z; st.param.b32 [x], %r1; st.param.b64 [y], 0;
    call (z), down, (x, y); ld.param.b32 %r2, [z]; }"""
    assert run(functions, body, np.arange(30)) == [n * (n + 1) // 2 for n in range(30)]


def test_parameters_in_registers() -> None:
    inlined = ".func (.reg .b32 r, .reg .b64 s) f(.reg .b32 x) { add.s32 r, x, 5; cvt.u64.u32 s, x; ret; }"
    body = "call (%r2, %d3), f, (%r1); cvt.u32.u64 %r4, %d3; mad.lo.s32 %r2, %r4, 100, %r2; call (%r4, _), f, (7);"
    assert run(inlined, body + "add.s32 %r2, %r2, %r4;", np.arange(8)) == [101 * x + 17 for x in range(8)]
    recursive = """.func (.reg .b32 r) f(.reg .b32 x) { .reg .pred %p; .reg .b32 t; mov.u32 r, 1; setp.eq.s32 %p, x, 0;
    @%p ret; add.s32 t, x, -1; call (r), f, (t); mul.lo.s32 r, r, x; ret; }"""
    assert run(recursive, "call (%r2), f, (%r1);", np.arange(8)) == [1, 1, 2, 6, 24, 120, 720, 5040]


def test_an_alias_is_the_function_it_names() -> None:
    functions = FIBONACCI + "\n.func (.param .b32 r) other(.param .b32 n);\n.alias other, fib;"
    assert run(functions, CALL.format(target="other", tail=""), np.arange(10)) == [fibonacci(n) for n in range(10)]


def test_inlining_stops_before_a_chain_of_calls_explodes() -> None:
    # 40 functions, each calling the next twice: 2^40 calls if all were inlined, 40 levels deep.
    leaf = ".func (.param .b32 r) f0(.param .b32 n) { .reg .b32 %a; ld.param.b32 %a, [n]; st.param.b32 [r], %a; ret; }"
    level = """.func (.param .b32 r) f{n}(.param .b32 n) {{ .reg .b32 %a; .reg .pred %p; ld.param.b32 %a, [n];
    setp.eq.s32 %p, %a, 99; {{ .param .b32 x; .param .b32 y; st.param.b32 [x], %a; call (y), f{m}, (x);
    @%p call (y), f{m}, (x); ld.param.b32 %a, [y]; }} add.s32 %a, %a, 1; st.param.b32 [r], %a; ret; }}"""
    functions = leaf + "".join(level.format(n=n, m=n - 1) for n in range(1, 41))
    program = _emulator.Program(HEADER + KERNEL.format(functions=functions, body=CALL.format(target="f40", tail="")))
    assert program.kernels[0]["instructions"] < 100_000
    out = np.arange(4, dtype=np.uint32)
    launch(program, out, block=(4, 1, 1))
    assert out.tolist() == [40, 41, 42, 43]


def test_memory_on_the_stack() -> None:
    body = """.reg .b64 %s; stacksave.u64 %s; cvt.u64.u32 %d1, %r0; mad.lo.u64 %d1, %d1, 4, 4; alloca.u64 %d2, %d1;
    alloca.u64 %d3, 16, 64; st.local.u32 [%d2], %r0; st.local.u32 [%d3+12], %r1; ld.local.u32 %r2, [%d2];
    ld.local.u32 %r3, [%d3+12]; mad.lo.s32 %r2, %r2, 1000, %r3; and.b64 %d4, %d3, 63; cvt.u32.u64 %r4, %d4;
    add.s32 %r2, %r2, %r4; stackrestore.u64 %s; alloca.u64 %d5, 4; setp.ne.u64 %p1, %d5, %d2; @%p1 trap;"""
    assert run("", body, np.arange(32)) == [1001 * i for i in range(32)]
    with pytest.raises(_emulator.KernelTrap, match=r"Stack overflow: 'alloca\.u64' of 70000 bytes, 65536 are left"):
        run("", "alloca.u64 %d1, 70000; mov.u32 %r2, 0;", np.arange(2))
    with pytest.raises(_emulator.KernelTrap, match="which no 'stacksave' of this function gave"):
        run("", "mov.u64 %d1, 4096; stackrestore.u64 %d1; mov.u32 %r2, 0;", np.arange(2))
    with pytest.raises(_emulator.PtxInvalid, match="the alignment must be a power of two"):
        run("", "alloca.u64 %d1, 8, 3;", np.arange(2))


def test_a_function_gives_its_stack_memory_back() -> None:
    functions = """.func (.param .b32 r) f(.param .b32 n) { .reg .b32 %a; .reg .b64 %d<3>; ld.param.b32 %a, [n];
    alloca.u64 %d0, 1024; st.local.u32 [%d0+1020], %a; ld.local.u32 %a, [%d0+1020]; st.param.b32 [r], %a; ret; }"""
    body = f"""mov.u32 %r3, 0; LOOP: {CALL.format(target="f", tail="")} add.s32 %r3, %r3, 1;
    setp.lt.u32 %p1, %r3, 100; @%p1 bra LOOP;"""
    assert run(functions, body, np.arange(6)) == list(range(6))


@pytest.mark.parametrize(
    ("functions", "body", "words"),
    [
        ("", "call nowhere, (%r1);", "Call of 'nowhere', which has no body in this module"),
        (FIBONACCI, "call (%r2), fib, (%r1, %r1);", "The call of 'fib' does not match its parameters"),
        (POINTERS, "call (%r2), %d1, (%r1);", "A call through a register needs a prototype"),
        (POINTERS, "call (%r2), %d1, (%r1), gone;", "There is no prototype 'gone' in reach"),
        (FIBONACCI, "{ .param .b8 a; call (%r2), fib, (a); }", "'a' has 1 bytes, the function takes 4"),
    ],
)
def test_calls_that_do_not_fit_are_refused(functions: str, body: str, words: str) -> None:
    with pytest.raises(_emulator.PtxError, match=re.escape(words)):
        run(functions, body, np.arange(2))


def test_shared_variables_of_one_name_in_two_functions_are_two() -> None:
    function = """.func (.param .b32 r) {name}(.param .b32 n) {{ .reg .b32 %a; .shared .align 4 .b8 {var}[{size}];
    ld.param.b32 %a, [n]; st.shared.b32 [{var}+{at}], %a; ld.shared.b32 %a, [{var}+{at}];
    st.param.b32 [r], %a; ret; }}"""
    functions = function.format(name="f", var="room", size=4, at=0) + function.format(
        name="g", var="room", size=400, at=396
    )
    body = CALL.format(target="f", tail="") + CALL.format(target="g", tail="")
    assert run(functions, body, np.array([41])) == [41]
