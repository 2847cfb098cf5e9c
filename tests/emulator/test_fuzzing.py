"""Mutated and hostile PTX: every answer is a result or a named error, and comes soon."""

from __future__ import annotations

import random

import pytest
from fuzzing import SMALL, attempt, mutate, seeds, vocabulary
from ptxrun import HEADER

from mlacademy import _emulator

WORDS = vocabulary()


def test_the_seeds_themselves_are_sound() -> None:
    assert attempt(SMALL, budget=100_000) == "ran"
    assert not any(attempt(text, budget=200).startswith("Ptx") for text in seeds())


@pytest.mark.parametrize("seed", range(40))
def test_mutants_of_a_small_kernel(seed: int) -> None:
    chooser = random.Random(seed)
    for _ in range(40):
        attempt(mutate(SMALL, chooser, WORDS), seed=chooser.randrange(3), order=chooser.choice(["eager", "lazy"]))


@pytest.mark.parametrize("number", range(len(seeds()) - 1))
def test_mutants_of_the_shipped_kernels(number: int) -> None:
    chooser = random.Random(100 + number)
    text = seeds()[1 + number]
    for _ in range(12):
        attempt(mutate(text, chooser, WORDS), budget=3000)


def test_random_bytes_and_every_beginning() -> None:
    chooser = random.Random(7)
    for _ in range(100):
        attempt(bytes(chooser.randrange(256) for _ in range(chooser.randrange(400))).decode("latin-1"))
    for stop in range(0, len(SMALL), 37):
        attempt(SMALL[:stop])


def entry(body: str, params: str = "", before: str = "") -> str:
    return f"{HEADER}{before}\n.visible .entry k({params}) {{ {body} }}"


DEEP = 5000
HOSTILE = {
    "scopes": entry("{" * DEEP + "}" * DEEP),
    "operands": entry(".reg .b32 %r<3>; mov.b32 %r1, " + "{" * DEEP + "%r2" + "}" * DEEP + ";"),
    "lists": entry("call " + "(" * DEEP + ")" * DEEP + ", f;"),
    "comment": HEADER + "/*" * DEEP,
    "registers": entry(".reg .b32 %r<4000000000>; ret;"),
    "many registers": entry("".join(f".reg .b32 %a{i}<1048576>;" for i in range(9)) + "ret;"),
    "long name": entry(f".reg .b32 %r<9>; mov.b32 %r{'1' * 100_000}, 0; ret;"),
    "shared": entry(".shared .b8 a[4294967295]; .shared .b8 b[4294967295]; ret;"),
    "local": entry(".local .b8 a[4294967295]; ret;"),
    "local that fits": entry(".local .b8 a[1000000]; .reg .b64 %d; mov.u64 %d, a; st.local.u8 [%d], 1; ret;"),
    "global": HEADER + ".global .b8 a[1099511627776][1099511627776];",
    "globals": HEADER + "".join(f".global .b8 a{i}[2000000000];" for i in range(9)),
    "negative size": HEADER + ".global .b8 a[-1];",
    "alignment": HEADER + ".global .align 1073741824 .b8 a[1];",
    "initialiser": HEADER + ".global .b8 a[2] = {" + ",".join("1" for _ in range(DEEP)) + "};",
    "parameters": entry("ret;", ", ".join(f".param .b8 p{i}[32000]" for i in range(9))),
    "branch tables": entry(
        ".reg .b32 %r; mov.u32 %r, 0; L: t: .branchtargets "
        + ", ".join(["L"] * DEEP)
        + "; brx.idx %r, t;" * DEEP
        + " ret;"
    ),
    "displacement": entry(
        ".reg .b32 %r; .reg .b64 %d; mov.u64 %d, -1; ld.global.u32 %r, [%d+9223372036854775807]; ret;"
    ),
    "shared wrap": entry(".shared .b8 a[16]; .reg .b32 %r; ld.shared.u32 %r, [a+-4]; ret;"),
    "local wrap": entry(".local .align 8 .b8 a[16]; .reg .b64 %d; mov.u64 %d, -8; ld.local.u64 %d, [%d]; ret;"),
    "param wrap": entry(".reg .b64 %d; mov.u64 %d, -8; ld.param.u64 %d, [%d]; ret;", ".param .u64 p"),
    "own call": HEADER + ".func f() { call f; ret; } .visible .entry k() { call f; ret; }",
    "chain of calls": HEADER
    + ".func f0() { ret; }\n"
    + "\n".join(f".func f{i}() {{ call f{i - 1}; ret; }}" for i in range(1, DEEP))
    + f"\n.visible .entry k() {{ call f{DEEP - 1}; ret; }}",
    "files": HEADER + '.file 2147483647 "x"\n' + entry(".loc 2147483647 1 1\nret;").removeprefix(HEADER),
    "locations": HEADER + '.file 1 "x"\n' + entry(".loc 1 2147483647 0, function_name x, inlined_at 1 1 1\nret;")[49:],
    "no end of a string": HEADER + '.file 1 "x',
    "shuffle": entry(".reg .b32 %r; shfl.sync.idx.b32 %r, %r, 4294967295, 4294967295, 4294967295; ret;"),
    "barrier number": entry(".reg .b32 %r; mov.u32 %r, -1; bar.sync %r, %r; ret;"),
    "bulk size": entry(
        ".shared .align 16 .b8 a[16]; .shared .align 8 .b8 m[8]; .reg .b64 %d; mov.u64 %d, 0;"
        "mbarrier.init.shared.b64 [m], 1;"
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [a], [%d], 4294967280, [m]; ret;"
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_sizes_are_refused_or_survived(name: str) -> None:
    assert attempt(HOSTILE[name])


def test_local_memory_has_an_end_on_both_sides() -> None:
    assert attempt(HOSTILE["local wrap"]) == attempt(HOSTILE["param wrap"]) == "KernelTrap"
    text = entry(".local .b8 a[1048576]; .reg .b64 %d; mov.u64 %d, a; st.local.u8 [%d], 1; ret;", before="")
    program = _emulator.Program(text)
    with pytest.raises(ValueError, match="bytes of local memory a thread make 17179869184 bytes a cluster"):
        _emulator.launch(program, "k", (16, 1, 1), (1024, 1, 1), (16, 1, 1), 0, b"", [], {})
