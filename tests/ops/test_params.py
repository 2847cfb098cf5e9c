"""What Python packs is what the kernels read: every field of the parameter block, read back by a kernel."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mlacademy import gpu
from mlacademy.gpu.includes import header_layer
from mlacademy.ops import params

VIEW = ("page_stride", "index_stride_b", "index_stride_s", "page", "slots", "topk")
NUMBERS = (
    *("q_stride_b", "q_stride_s", "q_stride_h"),
    *(f"cache.{name}" for name in VIEW),
    *(f"extra.{name}" for name in VIEW),
    *("b", "s_q", "h_q"),
)
ADDRESSES = {
    "q": params.Q,
    "cache.kv": params.KV,
    "cache.indices": params.INDICES,
    "cache.lengths": params.LENGTHS,
    "extra.kv": params.EXTRA_KV,
    "extra.indices": params.EXTRA_INDICES,
    "extra.lengths": params.EXTRA_LENGTHS,
    "sink": params.SINK,
    "records": params.RECORDS,
    "num_splits": params.NUM_SPLITS,
    "out": params.OUT,
    "lse": params.LSE,
    "out_partial": params.OUT_PARTIAL,
    "lse_partial": params.LSE_PARTIAL,
    "planned_lengths": params.PLANNED_LENGTHS,
    "verdict": params.VERDICT,
    "notice": params.NOTICE,
}
SOURCE = """
#include "sparse_decode_params.cuh"
using namespace mla;
extern "C" __global__ void fields(const __grid_constant__ SparseDecodeParams params, int64_t* numbers,
                                  uint64_t* addresses, float* scale, uint64_t* size) {
    int at = 0;
    NUMBERS
    at = 0;
    ADDRESSES
    *scale = params.scale_log2;
    *size = sizeof(SparseDecodeParams);
}
"""


def read_back(block: params.Block) -> tuple[dict[str, int], dict[str, int], float, int]:
    """Every field as a kernel sees it: numbers, addresses, the scale, the struct's size."""
    text = SOURCE.replace("NUMBERS", " ".join(f"numbers[at++] = params.{name};" for name in NUMBERS))
    text = text.replace(
        "ADDRESSES", " ".join(f"addresses[at++] = reinterpret_cast<uint64_t>(params.{name});" for name in ADDRESSES)
    )
    kernel = gpu.compile(text, name="fields.cu", folders=(header_layer() / "decode",))["fields"]
    numbers, addresses = np.zeros(len(NUMBERS), np.int64), np.zeros(len(ADDRESSES), np.uint64)
    scale, size = np.zeros(1, np.float32), np.zeros(1, np.uint64)
    plan = gpu.LaunchPlan(grid=1, block=1)
    device = gpu.Device("emulator", arch="sm_90a")
    device.launch(kernel, plan, (bytes(block), numbers, addresses, scale, size))
    return (
        dict(zip(NUMBERS, numbers.tolist(), strict=True)),
        dict(zip(ADDRESSES, addresses.tolist(), strict=True)),
        float(scale[0]),
        int(size[0]),
    )


@pytest.mark.skipif(not gpu.nvrtc.identity(), reason="there is no compiler here")
def test_a_kernel_reads_every_field_that_python_packs() -> None:
    rng = np.random.default_rng(12)
    wide = [int(n) for n in rng.integers(2**33, 2**50, len(NUMBERS))]
    small = [int(n) for n in rng.integers(1, 2**31 - 1, len(NUMBERS))]
    is_wide = [name.startswith("q_stride") or "stride" in name for name in NUMBERS]
    want = {n: w if big else s for n, w, s, big in zip(NUMBERS, wide, small, is_wide, strict=True)}
    views = [params.View(*(want[f"{which}.{name}"] for name in VIEW)) for which in ("cache", "extra")]
    block = params.Block(
        b=want["b"],
        s_q=want["s_q"],
        h_q=want["h_q"],
        q_strides=(want["q_stride_b"], want["q_stride_s"], want["q_stride_h"]),
        cache=views[0],
        extra=views[1],
    )
    addresses = {name: int(n) for name, n in zip(ADDRESSES, rng.integers(2**40, 2**47, len(ADDRESSES)), strict=True)}
    for name, word in ADDRESSES.items():
        block.words[word] = addresses[name]
    block.scale(0.1352)
    numbers, seen, scale, size = read_back(block)
    assert numbers == want
    assert seen == addresses
    assert scale == pytest.approx(0.1352 * math.log2(math.e), rel=2**-23)
    assert size == params.DECODE_BYTES == len(bytes(block))


def test_a_fresh_block_has_no_addresses() -> None:
    block = params.Block(b=1, s_q=1, h_q=128)
    assert all(block.words[word] == 0 for word in ADDRESSES.values())
