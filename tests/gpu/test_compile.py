"""CUDA C++ to PTX: what the learner reads when it fails, what the cache remembers, what works without a compiler."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mlacademy import gpu
from mlacademy.gpu import CompileError, CompilerMissing, DiskCache, Resources, nvrtc
from mlacademy.gpu import compiler as compiler_module
from mlacademy.gpu.includes import header_layer
from mlacademy.gpu.resources import parse_resources

SCALE = """extern "C" __global__ void scale(float* x, float factor, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= factor;
}
"""


@pytest.fixture
def cache(tmp_path: Path) -> DiskCache:
    return DiskCache(tmp_path / "cache")


def test_import_loads_neither_torch_nor_bindings_nor_the_emulator() -> None:
    script = (
        "import sys, mlacademy.gpu; "
        "print([m for m in ('torch', 'cuda', 'cuda.bindings', 'mlacademy._emulator') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.usefixtures("compiler")
def test_kernel_compiles_to_ptx_with_line_numbers_and_to_cubin(cache: DiskCache) -> None:
    module = gpu.compile(SCALE, name="scale.cu", cache=cache)
    assert ".target sm_90a" in module.ptx
    assert not module.ptx.endswith("\0")
    assert '.file\t1 "scale.cu"' in module.ptx
    assert "\t.loc\t1 3 " in module.ptx
    assert module.cubin().startswith(b"\x7fELF")
    assert module.kernels == {"scale": "scale"}
    assert repr(module["scale"]) == "<Kernel scale(float* x, float factor, int n)>"


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a", "sm_80"])
def test_every_architecture_of_the_course_compiles(arch: str, cache: DiskCache) -> None:
    assert gpu.compile(SCALE, arch=arch, cache=cache).arch == arch


@pytest.mark.parametrize("arch", ["90a", "sm_91", "compute_90a", "sm_"])
def test_unknown_architecture_is_refused(arch: str) -> None:
    with pytest.raises(ValueError, match=r"arch must be sm_ and one of 75, .*; got"):
        gpu.compile(SCALE, arch=arch)


@pytest.mark.usefixtures("compiler")
def test_error_names_line_and_column_of_the_source_and_quotes_it(cache: DiskCache) -> None:
    with pytest.raises(CompileError) as caught:
        gpu.compile(SCALE.replace("factor;", "facter;"), name="mine.cu", cache=cache)
    (error,) = caught.value.diagnostics
    assert (error.file, error.line, error.severity) == ("mine.cu", 3, "error")
    assert str(caught.value).splitlines() == [
        'mine.cu, line 3: error: identifier "facter" is undefined',
        "    3 |     if (i < n) x[i] *= facter;",
        "      |" + " " * 24 + "^",
    ]
    assert error.source[error.column - 1 :].startswith("facter")


@pytest.mark.usefixtures("compiler")
def test_caret_stands_below_the_fault_after_tabs(cache: DiskCache) -> None:
    with pytest.raises(CompileError) as caught:
        gpu.compile("__global__ void k(int* p) {\n\t\tfoo(p);\n}\n", cache=cache)
    (error,) = caught.value.diagnostics
    assert error.source == "\t\tfoo(p);"
    assert error.column == 3
    assert str(error).splitlines()[-1].endswith("| \t\t^")


@pytest.mark.usefixtures("compiler")
def test_every_error_is_reported(cache: DiskCache) -> None:
    with pytest.raises(CompileError) as caught:
        gpu.compile("__global__ void k(int* p) {\n  int a = q;\n  int b = r;\n  *p = a + b\n}\n", cache=cache)
    assert [one.line for one in caught.value.diagnostics if one.severity == "error"] == [2, 3, 5]


@pytest.mark.usefixtures("compiler")
def test_message_shows_the_first_five_of_many_errors(cache: DiskCache) -> None:
    lines = "".join(f"  *p = missing{i};\n" for i in range(12))
    with pytest.raises(CompileError) as caught:
        gpu.compile(f"__global__ void k(int* p) {{\n{lines}}}\n", cache=cache)
    assert len(caught.value.diagnostics) == 12
    assert str(caught.value).count("error: identifier") == 5
    assert str(caught.value).endswith("and 7 more errors, in .diagnostics")


@pytest.mark.usefixtures("compiler")
def test_error_in_a_header_names_the_header(tmp_path: Path, cache: DiskCache) -> None:
    (tmp_path / "inner.cuh").write_text("#pragma once\n__device__ int f() { return missing; }\n")
    (tmp_path / "k.cu").write_text('#include "inner.cuh"\n__global__ void k(int* p) { *p = f(); }\n')
    with pytest.raises(CompileError, match=r"inner.cuh, line 2: error: identifier \"missing\" is undefined"):
        gpu.compile(tmp_path / "k.cu", cache=cache)


@pytest.mark.usefixtures("compiler")
def test_missing_header_is_an_error_of_the_learners_line(cache: DiskCache) -> None:
    with pytest.raises(CompileError, match=r'kernel.cu, line 1: error: (cannot|could not) open source file "none.cuh"'):
        gpu.compile('#include "none.cuh"\n__global__ void k() {}\n', cache=cache)


@pytest.mark.usefixtures("compiler")
def test_unknown_instruction_is_traced_to_the_line_of_its_asm(cache: DiskCache) -> None:
    source = (
        '__global__ void k(int* p) {\n  int x = p[0];\n  asm volatile("bogus.u32 %0, 1;" : "+r"(x));\n  p[1] = x;\n}\n'
    )
    with pytest.raises(CompileError) as caught:
        gpu.compile(source, cache=cache)
    (error,) = caught.value.diagnostics
    assert error.line == 3
    assert error.source.strip().startswith("asm volatile")
    assert "bogus" in error.message


@pytest.mark.usefixtures("compiler")
def test_notebook_shows_the_message_without_pythons_stack(cache: DiskCache) -> None:
    with pytest.raises(CompileError) as caught:
        gpu.compile("__global__ void k() { x; }\n", cache=cache)
    shown = caught.value._render_traceback_()
    assert shown == [f"CompileError: {caught.value}"]


@pytest.mark.usefixtures("compiler")
def test_warnings_are_kept_and_remembered_by_the_cache(cache: DiskCache) -> None:
    source = "__global__ void k(int* p) {\n  int unused;\n  *p = 1;\n}\n"
    first, second = (gpu.compile(source, cache=cache) for _ in range(2))
    assert (first.origin, second.origin) == ("compiled", "cache")
    for module in (first, second):
        (warning,) = module.warnings
        assert (warning.line, warning.severity, warning.source) == (2, "warning", "  int unused;")
    assert first.ptx == second.ptx
    assert first.cubin() == second.cubin()


@pytest.mark.usefixtures("compiler")
def test_registers_and_shared_memory_are_known(cache: DiskCache) -> None:
    for _ in range(2):
        tile = gpu.compile("wgmma_tile.cu", cache=cache)["wgmma_tile"]
        assert tile.resources is not None
        assert 32 < tile.resources.registers <= 168
        assert tile.resources.smem_bytes >= 16384 + 8
        assert tile.resources.spill_store_bytes == 0


def test_assemblers_report_is_read_kernel_by_kernel() -> None:
    log = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'first' for 'sm_90a'
ptxas info    : Function properties for first
ptxas         .     24 bytes stack frame, 16 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 254 registers, used 0 barriers, 16 bytes cumulative stack size, 5120 bytes smem
ptxas info    : Compiling entry function 'second' for 'sm_90a'
ptxas info    : Function properties for second
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 4 registers, used 3 barriers
"""
    found = parse_resources(log)
    assert found == {"first": Resources(254, 5120, 24, 16, 12), "second": Resources(4)}
    assert str(found["first"]) == "254 registers, 5,120 bytes of static shared memory, 16 bytes of registers spilled"


@pytest.mark.usefixtures("compiler")
def test_remark_of_the_assembler_on_speed_is_a_warning_at_its_line(cache: DiskCache) -> None:
    source = """#include "wgmma.cuh"
extern "C" __global__ void __launch_bounds__(128) k(const unsigned* x, float* out) {
    __shared__ alignas(1024) char tile[8192];
    const unsigned long long b = mla::matrix_descriptor<mla::Swizzle::k128B, 1024>(tile);
    float d[32] = {};
    mla::wgmma_fence(d);
    for (int i = 0; i < 4; ++i) {
        const unsigned a[4] = {x[i], x[i + 1], x[i + 2], x[i + 3]};
        mla::wgmma_m64n64k16_f32_bf16(d, a, b, true);
    }
    mla::wgmma_commit_group();
    mla::wgmma_wait_group<0>(d);
    for (int i = 0; i < 32; ++i) out[i * 128 + threadIdx.x] = d[i];
}
"""
    warnings = gpu.compile(source, cache=cache).warnings
    assert warnings
    assert all("warpgroup.arrive is injected" in warning.message for warning in warnings)
    assert {warning.file for warning in warnings} <= {"kernel.cu", "wgmma.cuh"}
    assert all(warning.line > 0 for warning in warnings)


@pytest.mark.usefixtures("compiler")
def test_unknown_option_is_refused_by_name(cache: DiskCache) -> None:
    with pytest.raises(ValueError, match="bogus-option"):
        gpu.compile(SCALE, options=("--bogus-option",), cache=cache)


@pytest.mark.parametrize("option", ["-I/opt/headers", "--include-path=x", "-include=x.cuh", "--pre-include=x.cuh"])
def test_option_that_brings_in_headers_is_refused(option: str) -> None:
    with pytest.raises(ValueError, match=r"options must not add headers, .*: use folders="):
        gpu.compile(SCALE, options=(option,))


@pytest.mark.usefixtures("compiler")
def test_cache_tells_sources_options_architectures_names_and_headers_apart(cache: DiskCache) -> None:
    source = '#include "factor.cuh"\n' + SCALE.replace("factor;", "factor * FACTOR;")
    variants = [
        {},
        {"arch": "sm_100a"},
        {"options": ("--use_fast_math",)},
        {"name": "other.cu"},
        {"headers": {"factor.cuh": "#define FACTOR 3\n"}},
    ]
    defaults = {"headers": {"factor.cuh": "#define FACTOR 2\n"}, "cache": cache}
    for variant in variants:
        assert gpu.compile(source, **{**defaults, **variant}).origin == "compiled"
    for variant in variants:
        assert gpu.compile(source, **{**defaults, **variant}).origin == "cache"


@pytest.mark.usefixtures("compiler")
def test_change_of_a_header_reached_through_another_is_noticed(tmp_path: Path, cache: DiskCache) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "inner.cuh").write_text("#define VALUE 1\n")
    (tmp_path / "deep" / "outer.cuh").write_text('#include "inner.cuh"\n')
    file = tmp_path / "k.cu"
    file.write_text('#include "deep/outer.cuh"\nextern "C" __global__ void k(int* p) { *p = VALUE; }\n')
    assert gpu.compile(file, cache=cache).origin == "compiled"
    assert gpu.compile(file, cache=cache).origin == "cache"
    (tmp_path / "deep" / "inner.cuh").write_text("#define VALUE 12345\n")
    changed = gpu.compile(file, cache=cache)
    assert changed.origin == "compiled"
    assert "12345" in changed.ptx


@pytest.mark.usefixtures("compiler")
def test_change_of_the_compiler_is_noticed(cache: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu.compile(SCALE, cache=cache)
    monkeypatch.setattr(compiler_module.nvrtc, "_installed", lambda: "nvidia-cuda-nvrtc=99")
    assert gpu.compile(SCALE, cache=cache).origin == "compiled"


@pytest.mark.usefixtures("compiler")
def test_include_through_a_macro_is_compiled_each_time(tmp_path: Path, cache: DiskCache) -> None:
    (tmp_path / "value.cuh").write_text("#define VALUE 1\n")
    source = '#define FILE "value.cuh"\n#include FILE\nextern "C" __global__ void k(int* p) { *p = VALUE; }\n'
    origins = [gpu.compile(source, folders=(tmp_path,), cache=cache).origin for _ in range(2)]
    assert origins == ["compiled", "compiled"]


@pytest.mark.usefixtures("compiler")
def test_headers_of_the_wheels_are_found(cache: DiskCache) -> None:
    source = (
        "#include <cuda/std/cstdint>\n#include <cuda_bf16.h>\n"
        'extern "C" __global__ void k(uint64_t* p, __nv_bfloat16* q) { *p = 1; *q = __float2bfloat16(2.0f); }\n'
    )
    module = gpu.compile(source, cache=cache)
    assert [param.c_type for param in module["k"].params] == ["uint64_t", "__nv_bfloat16"]


@pytest.mark.usefixtures("compiler")
def test_threads_may_compile_at_once(cache: DiskCache) -> None:
    modules = []
    sources = [SCALE.replace("scale", f"scale{i % 3}") for i in range(9)]
    threads = [threading.Thread(target=lambda s=s: modules.append(gpu.compile(s, cache=cache))) for s in sources]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(next(iter(module.kernels)) for module in modules) == sorted(["scale0", "scale1", "scale2"] * 3)


def test_bare_name_finds_a_kernel_of_the_course() -> None:
    assert compiler_module._Unit.of("bulk_copy.cu", None, {}, ()).path == header_layer() / "bulk_copy.cu"


def test_missing_file_is_named() -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no CUDA source nowhere.cu, nor a kernel of that name"):
        gpu.compile("nowhere.cu")


def test_without_compiler_the_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLACADEMY_NVRTC", "0")
    monkeypatch.setattr("platform.system", lambda: "Linux")
    with pytest.raises(CompilerMissing, match=r"not installed: pip install 'mlacademy\[kernels\]'"):
        gpu.compile(SCALE)


def test_on_macos_the_sentence_says_that_there_is_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLACADEMY_NVRTC", "0")
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    with pytest.raises(CompilerMissing, match="NVRTC has no build for macOS"):
        gpu.compile(SCALE)


@pytest.mark.parametrize("size", [0, 1, 2, 300])
def test_nvrtc_writes_into_no_object_that_python_shares(size: int) -> None:
    """Bytes of length 0 and 1 are one object for the whole process; what is written there is written everywhere."""
    written: list[bytes] = []
    read = nvrtc._bytes(None, lambda program: (0, size), lambda program, buffer: written.append(buffer) or (0,))
    assert len(read) == size
    assert [len(buffer) > 1 for buffer in written] == [True] * (size > 0)
