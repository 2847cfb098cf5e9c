"""The header layer: every wrapper assembles and is the instruction that it is named after."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mlacademy import gpu
from mlacademy.gpu.includes import header_layer
from mlacademy.gpu.shipped import opcodes

HEADERS = sorted(path.name for path in header_layer().glob("*.cuh"))
EVERY = Path(__file__).with_name("every_wrapper.cu")
WRAPPER = re.compile(r"__device__ __forceinline__ [\w ]+?\b(\w+)\(")
PIECES = {"mbarrier", "cp", "async", "bulk", "fence", "proxy", "wgmma", "setmaxnreg", "cvt", "barrier", "elect"}


def wrappers(header: str) -> list[str]:
    return WRAPPER.findall((header_layer() / header).read_text(encoding="utf-8"))


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("header", HEADERS)
def test_header_compiles_alone(header: str) -> None:
    module = gpu.compile(f'#include "{header}"\nextern "C" __global__ void k() {{}}\n')
    assert not module.warnings


def test_every_wrapper_is_called_by_the_test_kernel() -> None:
    text = EVERY.read_text(encoding="utf-8")
    internal = {"smem_address", "mbarrier_try_wait_parity", "mbarrier_try_wait_parity_cluster", "hold"}
    internal |= {"barrier_cluster_arrive"}  # through cluster_sync
    missing = [name for header in HEADERS for name in wrappers(header) if name not in text and name not in internal]
    assert not missing


@pytest.mark.usefixtures("compiler")
def test_every_wrapper_assembles() -> None:
    module = gpu.compile(EVERY)
    assert len(module.kernels) == 8
    serialised = [one.message for one in module.warnings]  # four accumulators at once do not fit into registers
    assert all("every_wgmma" in message for message in serialised)


@pytest.mark.usefixtures("compiler")
def test_wrappers_are_the_instructions_they_are_named_after() -> None:
    found = {opcode.replace("::", "_").replace(".", "_") for opcode in opcodes(gpu.compile(EVERY).ptx)}
    named = {
        "mbarrier_init": "mbarrier_init_shared_cta_b64",
        "mbarrier_arrive_expect_tx": "mbarrier_arrive_expect_tx_shared_cta_b64",
        "mbarrier_try_wait_parity": "mbarrier_try_wait_parity_shared_cta_b64",
        "fence_mbarrier_init": "fence_mbarrier_init_release_cluster",
        "fence_proxy_async_shared_cta": "fence_proxy_async_shared_cta",
        "cp_async_bulk_global_shared": "cp_async_bulk_global_shared_cta_bulk_group",
        "setmaxnreg_dec": "setmaxnreg_dec_sync_aligned_u32",
        "cvt_rn_satfinite_e4m3x2_f32": "cvt_rn_satfinite_e4m3x2_f32",
        "wgmma_m64n256k16_f32_bf16": "wgmma_mma_async_sync_aligned_m64n256k16_f32_bf16_bf16",
        "wgmma_m64n128k32_f32_e4m3": "wgmma_mma_async_sync_aligned_m64n128k32_f32_e4m3_e4m3",
        "bar_sync": "bar_sync",
        "griddepcontrol_wait": "griddepcontrol_wait",
        "st_async_v4_u32": "st_async_shared_cluster_mbarrier_complete_tx_bytes_v4_u32",
        "mapa": "mapa_shared_cluster_u32",
    }
    assert not {wrapper: opcode for wrapper, opcode in named.items() if opcode not in found}


def test_wrapper_that_waits_fences_or_signals_tells_the_compiler() -> None:
    silent = []
    for header in HEADERS:
        text = (header_layer() / header).read_text(encoding="utf-8")
        for statement in re.findall(r"asm volatile\((.*?)\);", text, flags=re.DOTALL):
            reads_constants = "ld.global.nc" in statement  # what nobody writes while a kernel runs
            if '"memory"' not in statement and "setmaxnreg" not in statement and not reads_constants:
                silent.append((header, statement[:60]))
    assert not silent


def test_wrapper_says_which_page_specifies_it_and_since_when() -> None:
    for header in HEADERS:
        text = (header_layer() / header).read_text(encoding="utf-8")
        if "asm" in text and header != "names.cuh":  # names are no instructions
            assert re.search(r"// section: .+; from sm_\d+|// section: wgmma", text), header


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("setmaxnreg_dec<100>();", "kRegisters: a multiple of 8 from 24 to 256"),
        ("cp_async_bulk_wait_group<-1>();", "kPending: 0 or more groups"),
        ("uint64_t d = matrix_descriptor<Swizzle::k128B, 1000>(0);", "kStrideOffset: a multiple of 16 below 2"),
    ],
)
def test_wrong_constant_is_refused_with_the_allowed_values(line: str, sentence: str) -> None:
    source = '#include "bulk.cuh"\n#include "setmaxnreg.cuh"\n#include "wgmma.cuh"\nusing namespace mla;\n'
    with pytest.raises(gpu.CompileError, match=sentence):
        gpu.compile(f"{source}__global__ void k() {{ {line} }}\n")


def test_readme_lists_every_header_and_kernel() -> None:
    listed = re.findall(r"^\| `([\w.]+)` \|", (header_layer() / "README.md").read_text(), flags=re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in header_layer().glob("*.cu*"))
