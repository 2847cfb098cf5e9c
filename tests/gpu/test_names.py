"""Names for people, names.cuh: they reach the PTX, cost no instruction in machine code, and appear in reports."""

from __future__ import annotations

import re

import numpy as np
import pytest

from mlacademy import gpu
from mlacademy.gpu import Device, LaunchPlan, nvrtc
from mlacademy.gpu.includes import header_layer

NAME = re.compile(r"^\s*name_\w+\((?:[^()]|\([^()]*\))*\);\n", re.MULTILINE)

LOOP = """#include "mbarrier.cuh"
#include "names.cuh"
using namespace mla;
extern "C" __global__ void k(float* out, int stages) {
    extern __shared__ __align__(128) float ring[];
    __shared__ Mbarrier full[3];
    if (threadIdx.x == 0) {
        for (int i = 0; i < stages; ++i) {
            name_shared_element("stage", i, ring + 32 * i, 128);
        }
        name_shared_array("full", full, sizeof(Mbarrier), 3);
        name_shared("last", &full[2], sizeof(Mbarrier));
        for (int i = 0; i < 3; ++i) mbarrier_init(&full[i], 1);
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        name_role("producer");
        ring[threadIdx.x] = out[threadIdx.x] + stages;
        mbarrier_wait_parity(&full[2], 0);
    } else {
        name_role("consumer");
        mbarrier_wait_parity(&full[1], 0);
        out[threadIdx.x] = ring[threadIdx.x - 32];
    }
}
"""


def machine_opcodes(module: gpu.Module) -> list[str]:
    found = re.findall(r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?\w+\s+)?([A-Z][\w.]*)", module.sass(), flags=re.MULTILINE)
    assert len(found) > 20
    return found


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("kernel", ["loop", *sorted(path.name for path in header_layer().glob("*.cu"))])
def test_machine_code_is_the_same_without_the_names(kernel: str) -> None:
    if nvrtc.tool("nvdisasm") is None:
        pytest.skip("NVIDIA's disassembler is not installed")
    source = LOOP if kernel == "loop" else (header_layer() / kernel).read_text()
    named, plain = gpu.compile(source), gpu.compile(NAME.sub("", source))
    assert "mla." not in plain.ptx
    assert machine_opcodes(named) == machine_opcodes(plain)  # registers may be numbered in another order


@pytest.mark.usefixtures("compiler")
def test_names_reach_the_ptx() -> None:
    found = re.findall(r'^\s*// (mla\.\w+ "[^"]*")', gpu.compile(LOOP).ptx, flags=re.MULTILINE)
    assert {
        'mla.element "stage"',
        'mla.array "full"',
        'mla.buffer "last"',
        'mla.role "producer"',
        'mla.role "consumer"',
    } == set(found)


@pytest.mark.usefixtures("compiler")
def test_a_hang_is_told_with_the_names_of_the_source() -> None:
    kernel = gpu.compile(LOOP)["k"]
    with pytest.raises(gpu.Deadlock) as caught:
        Device("emulator").launch(kernel, LaunchPlan(grid=1, block=64, smem_bytes=512), (np.zeros(64, np.float32), 4))
    told = str(caught.value)
    assert re.search(r"warp 0 \(producer\) .* \(last\)", told)
    assert re.search(r"warp 1 \(consumer\) .* \(full\[1\]\)", told)
