"""Kernels in PTX: names, parameters and their places, and the C++ signatures that give them names."""

from __future__ import annotations

import shutil

import pytest

from mlacademy import gpu
from mlacademy.gpu import DiskCache, Module
from mlacademy.gpu.kernel import _innermost, base_name, demangle
from mlacademy.gpu.signature import CParameter, signatures

HEAD = ".version 9.0\n.target sm_90a\n.address_size 64\n"


def test_parameters_lie_at_multiples_of_their_alignment() -> None:
    text = """.visible .entry k(
	.param .u8 k_param_0,
	.param .f64 k_param_1,
	.param .u16 k_param_2,
	.param .align 64 .b8 k_param_3[128],
	.param .u64 .ptr .global .align 16 k_param_4,
	.param .align 2 .b8 k_param_5[2],
	.param .b32 k_param_6
) .maxntid 384, 1, 1
{ ret; }"""
    params = Module.from_ptx(HEAD + text)["k"].params
    assert [(param.type, param.size, param.align, param.offset) for param in params] == [
        ("u8", 1, 1, 0),
        ("f64", 8, 8, 8),
        ("u16", 2, 2, 16),
        ("b8", 128, 64, 64),
        ("u64", 8, 8, 192),
        ("b8", 2, 2, 200),
        ("b32", 4, 4, 204),
    ]
    assert Module.from_ptx(HEAD + text)["k"].param_bytes == 208
    assert [param.pointer for param in params] == [None, None, None, False, True, False, None]
    assert params[2].name == "argument 2"
    assert Module.from_ptx(HEAD + text)["k"].max_threads == 384


def test_comments_declarations_and_functions_are_no_kernels() -> None:
    text = "// .entry no()\n.entry later(.param .u32 a);\n.func helper()\n{ ret; }\n.weak .entry yes\n{ ret; }\n"
    assert list(Module.from_ptx(HEAD + text).kernels) == ["yes"]


def test_text_without_target_is_no_ptx() -> None:
    with pytest.raises(ValueError, match=r"mine.ptx is not PTX: it has no .target line"):
        Module.from_ptx("__global__ void k() {}", name="mine.ptx")


@pytest.mark.parametrize(
    ("symbol", "demangled", "base"),
    [
        ("saxpy", "saxpy", "saxpy"),
        ("_Z5saxpyfPf", "saxpy(float, float*)", "saxpy"),
        ("_ZN3foo2k2EPf", "foo::k2(float*)", "k2"),
        ("_Z2tkILi3EEvPf", "void tk<3>(float*)", "tk"),
    ],
)
def test_mangled_names_become_readable(symbol: str, demangled: str, base: str) -> None:
    if symbol != demangled and demangle("_Z1fv") != "f()":
        pytest.skip("no C++ runtime here")
    assert demangle(symbol) == demangled
    assert base_name(demangled) == base


def test_without_a_cxx_runtime_the_plain_name_remains() -> None:
    assert [base_name(_innermost(name)) for name in ("_Z5saxpyfPf", "_ZN3foo2k2EPf")] == ["saxpy", "k2"]


def test_kernel_is_found_by_any_of_its_names() -> None:
    entries = [".entry _ZN3foo2k2EPf(.param .u64 a)", ".entry _Z2k2i(.param .u32 a)"]
    module = Module.from_ptx(HEAD + "".join(f"{entry}\n{{ ret; }}\n" for entry in entries))
    assert module["foo::k2(float*)"] is module["_ZN3foo2k2EPf"]
    with pytest.raises(KeyError, match=r"has 2 kernels called 'k2': say which of foo::k2\(float\*\), k2\(int\)"):
        module["k2"]
    with pytest.raises(KeyError, match="has no kernel 'k22': did you mean 'k2'"):
        module["k22"]
    with pytest.raises(KeyError, match="it has k2, k2"):
        module["zebra"]


def test_signatures_are_read_from_source() -> None:
    source = """
    // __global__ void commented(int a);
    template <int N> __global__ void __launch_bounds__(N * (2 + 1), 1)
    first(const float* __restrict__ x, std::pair<int, float> both, unsigned long long n = 4, /* none, */ bool b) {}
    extern "C" __global__ void second() { call(1, 2); }
    __global__ __cluster_dims__(2, 1, 1) void third(const __grid_constant__ CUtensorMap map, int, uint8_t *out[]);
    """
    found = signatures(source)
    assert list(found) == ["first", "second", "third"]
    assert found["first"] == (
        CParameter("x", "float", True),
        CParameter("both", "pair<int, float>", False),
        CParameter("n", "unsigned long long", False),
        CParameter("b", "bool", False),
    )
    assert found["second"] == ()
    assert [(one.name, one.type, one.pointer) for one in found["third"]] == [
        ("map", "CUtensorMap", False),
        ("", "int", False),
        ("out", "uint8_t", True),
    ]


@pytest.mark.usefixtures("compiler")
def test_offsets_are_those_the_compiler_reads_from() -> None:
    source = """struct Pair { double a; char b; };
    extern "C" __global__ void k(char c, Pair p, short s, float* out, bool b, float f) {
        out[0] = c + p.a + p.b + s + b + f;
    }"""
    params = gpu.compile(source)["k"].params
    assert [(param.name, param.offset, param.size) for param in params] == [
        ("c", 0, 1),
        ("p", 8, 16),
        ("s", 24, 2),
        ("out", 32, 8),
        ("b", 40, 1),
        ("f", 44, 4),
    ]


@pytest.mark.usefixtures("compiler")
def test_machine_code_of_one_kernel_can_be_read(tmp_path: object) -> None:
    module = gpu.compile('extern "C" __global__ void a(float* x) { *x = 1; }\nextern "C" __global__ void b() {}\n')
    try:
        whole, one = module.sass(), module.sass("a")
    except gpu.CompilerMissing as missing:
        pytest.skip(str(missing))
    assert "STG.E" in one
    assert ".text.b" in whole
    assert ".text.b" not in one
    with pytest.raises(KeyError, match="no kernel 'c'"):
        module.sass("c")


def test_machine_code_from_bare_ptx_takes_an_assembler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    module = Module.from_ptx(HEAD + ".entry k()\n{ ret; }", name="mine.ptx")
    assert not module.assembled
    with pytest.raises(gpu.CompilerMissing, match=r"mine.ptx came as PTX, .* takes ptxas"):
        module.cubin()


def test_cache_is_used_by_default(compiler: str, shared_cache: object) -> None:
    source = 'extern "C" __global__ void only_here() {}\n'
    assert [gpu.compile(source).origin for _ in range(2)] == ["compiled", "cache"]
    assert DiskCache().folder.parent == shared_cache
