"""The same operator on the oracle and on the emulator gives the same, and `on` keeps what was launched."""

from __future__ import annotations

import contextvars
import doctest
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from decode_inputs import Inputs, decode_inputs

from mlacademy import cache, ops
from mlacademy.ops import plan

each_layout = pytest.mark.parametrize("layout", [cache.V32, cache.MODEL1], ids=lambda layout: layout.name)


def test_the_launches_of_a_call_are_kept() -> None:
    inputs = decode_inputs(cache.V32, b=2, h_q=128, topk=128)
    with ops.on("emulator") as run:
        inputs.decode()
    assert [one.kernel for one in run.launches] == ["schedule", "sparse_decode_v32_pair", "combine_tiles"]
    assert run.launches[1].plan.grid == (2, 1, 66)
    assert run.launches[1].report.statistics["instructions"] > 0


@pytest.mark.parametrize(
    ("heads", "kernel"), [(8, "_few_heads_v32_16"), (17, "_few_heads_v32_32"), (33, "_v32"), (65, "_v32_pair")]
)
def test_the_kernel_is_the_narrowest_that_holds_the_heads(heads: int, kernel: str) -> None:
    inputs = decode_inputs(cache.V32, b=1, h_q=heads)
    with ops.on("emulator") as run:
        inputs.decode()
    assert run.launches[1].kernel == f"sparse_decode{kernel}"


def test_the_example_of_the_launch_plan_is_right() -> None:
    assert doctest.testmod(plan) == (0, 1)


def test_outside_of_the_block_the_oracle_answers() -> None:
    inputs = decode_inputs(cache.V32, b=1)
    before = inputs.decode()
    with ops.on("emulator"):
        pass
    assert torch.equal(inputs.decode()[0], before[0])


def test_only_the_emulator_is_chosen_by_name() -> None:
    with pytest.raises(ValueError, match="device must be \"emulator\", got 'cuda'"), ops.on("cuda"):
        pass


@each_layout
def test_metadata_of_both_backends_is_the_same(layout: cache.CacheLayout) -> None:
    lengths = torch.tensor([64, 3, 128], dtype=torch.int32)
    extra = torch.tensor([0, 64, 5], dtype=torch.int32)
    numbers = {"s_q": 2, "h_q": 64, "topk_length": lengths, "extra_topk": 64, "extra_topk_length": extra}
    by_python = ops.schedule(3, 128, **numbers)
    with ops.on("emulator"):
        by_kernel = ops.schedule(3, 128, **numbers)
    assert torch.equal(by_python.buffer, by_kernel.buffer)
    assert by_python.parts == by_kernel.parts == 66
    assert by_python.lengths.tolist() == [[64, 3, 128], [0, 64, 5]]


@each_layout
def test_append_stores_the_bytes_of_the_reference(layout: cache.CacheLayout) -> None:
    kv, again = (cache.new_cache(layout, 3, 5) for _ in range(2))
    generator = torch.Generator().manual_seed(3)
    nope = torch.randn(4, layout.d_nope, generator=generator).bfloat16()
    rope = torch.randn(4, layout.d_rope, generator=generator).bfloat16()
    slots = torch.tensor([14, 0, -1, 7])
    ops.cache_append(kv, slots, nope, rope, layout=layout)
    with ops.on("emulator"):
        ops.cache_append(again, slots, nope, rope, layout=layout.name)
    assert torch.equal(kv, again)
    assert kv.any()
    ops.check()


def _combine_inputs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(4)
    lse = torch.randn(6, 2, 16, generator=generator) * 4
    lse[1, 0, 3] = lse[3:5, 1, 2] = -torch.inf
    out = torch.randn(6, 2, 16, 512, generator=generator)
    out[lse == -torch.inf] = 0.0
    return out, lse, torch.tensor([0, 3, 5, 6], dtype=torch.int32)


@pytest.mark.parametrize("sunk", [False, True])
def test_combine_merges_every_request(sunk: bool) -> None:
    out, lse, splits = _combine_inputs()
    sink = torch.linspace(-4, 4, 16) if sunk else None
    exact, exact_lse = ops.combine(out, lse, splits, attn_sink=sink)
    with ops.on("emulator"):
        got, got_lse = ops.combine(out, lse, splits, attn_sink=sink)
    assert exact_lse[1, 2, 1] == torch.inf
    torch.testing.assert_close(got_lse, exact_lse, atol=2e-6, rtol=2e-6)  # float32 sums of at most three terms
    torch.testing.assert_close(got, exact, atol=2**-16, rtol=2**-7)  # one unit of bfloat16 where rounding tips over


def check(inputs: Inputs, **options: object) -> None:
    """The emulator within the tolerance of the oracle."""
    exact, exact_lse = inputs.decode()
    with ops.on("emulator", **options):
        out, lse = inputs.decode()
    inputs.compare(out, lse, exact, exact_lse)


@each_layout
@pytest.mark.parametrize("heads", [1, 16, 24, 64, 100, 128])
def test_any_number_of_heads(layout: cache.CacheLayout, heads: int) -> None:
    check(decode_inputs(layout, b=2, h_q=heads, page=13, seed=heads))


def test_a_changed_text_runs_in_place_of_a_kernel() -> None:
    inputs = decode_inputs(cache.V32, b=2, h_q=64, topk=128)
    text = ops.source("combine_tiles.cu").read_text()
    wrong = text.replace("params.out + place * kWidth", "params.out + 0 * kWidth")
    assert wrong != text
    with ops.on("emulator"):
        right, _ = inputs.decode()
    with ops.on("emulator", sources={"combine_tiles.cu": text}):
        again, _ = inputs.decode()
    with ops.on("emulator", sources={"combine_tiles.cu": wrong}, check=()):
        changed, _ = inputs.decode()
    assert torch.equal(right, again)
    assert not torch.equal(right, changed)


def test_only_files_of_the_decode_kernels_are_replaced() -> None:
    wanted = pytest.raises(ValueError, match=r"no file 'x\.cu': it must be one of .*combine\.cu")
    with wanted, ops.on("emulator", sources={"x.cu": ""}):
        pass


@pytest.mark.parametrize(("heads", "file"), [(64, "combine_tiles.cu"), (8, "combine.cu")])
def test_combine_starts_early_and_must_wait(heads: int, file: str) -> None:
    inputs = decode_inputs(cache.V32, b=2, h_q=heads, topk=128)
    hasty = ops.source(file).read_text().replace("griddepcontrol_wait();", "")
    with ops.on("emulator", check=()):
        right, _ = inputs.decode()
    with ops.on("emulator", check=(), sources={file: hasty}):
        early, _ = inputs.decode()
    assert not torch.equal(right, early)


LATE = """
#include "griddepcontrol.cuh"
#include "sparse_decode_params.cuh"
using namespace mla;
extern "C" __global__ void check_slots(const __grid_constant__ SparseDecodeParams params) {
    griddepcontrol_launch_dependents();
    const uint64_t since = clock64();
    while (clock64() - since < 20000);
    uint16_t* const q = const_cast<uint16_t*>(params.q) + blockIdx.x * params.q_stride_b;
    for (int32_t i = threadIdx.x; i < params.h_q * 576; i += blockDim.x)
        q[i] = 0;
}
"""


@pytest.mark.parametrize(("heads", "file"), [(64, "sparse_decode.cu"), (8, "sparse_decode_few_heads.cu")])
def test_decode_starts_early_and_must_wait(heads: int, file: str) -> None:
    """Behind a kernel, in the place of the one that checks, that lets it start before it zeroes q."""
    inputs = decode_inputs(cache.V32, b=2, h_q=heads, topk=128)
    hasty = ops.source(file).read_text().replace("    griddepcontrol_wait();\n", "")
    q = inputs.q.clone()
    with ops.checked(), ops.on("emulator", sources={"check_slots.cu": LATE}):
        out, _ = inputs.decode()
    assert not inputs.q.any()
    with ops.on("emulator"):
        wanted, _ = inputs.decode()
    assert torch.equal(out, wanted)
    inputs.q.copy_(q)
    sources = {"check_slots.cu": LATE, file: hasty}
    with ops.checked(), ops.on("emulator", sources=sources, check=()):
        early, _ = inputs.decode()
    assert not torch.equal(early, wanted)


def test_a_changed_header_runs_in_every_kernel_that_includes_it() -> None:
    inputs = decode_inputs(cache.V32, b=1, h_q=64, topk=64)
    text = ops.source("fp8_rows.cuh").read_text()
    doubled = text.replace("kTwoTo60 = 0x5D805D80u", "kTwoTo60 = 0x5E005E00u")  # 2^61
    assert doubled != text
    with ops.on("emulator"):
        right, _ = inputs.decode()
    with ops.on("emulator", sources={"fp8_rows.cuh": doubled}):
        changed, _ = inputs.decode()
    assert not torch.equal(right, changed)


def test_threads_that_share_a_run_wait_for_each_other() -> None:
    """Launches of one sequence run together; what another thread launches meanwhile must not be put off with them."""
    inputs = [decode_inputs(cache.V32, b=2, h_q=5, topk=64, seed=seed) for seed in range(6)]
    wanted = [one.decode() for one in inputs]
    with ops.on("emulator") as run:
        with ThreadPoolExecutor(6) as pool:
            calls = [pool.submit(contextvars.copy_context().run, one.decode) for one in inputs]
        for one, exact, call in zip(inputs, wanted, calls, strict=True):
            one.compare(*call.result(), *exact)
    assert len(run.launches) == 12


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"check": 3}, TypeError, "check must be several names, such as ('init', 'race'), got 3"),
        ({"check": "race"}, TypeError, "check must be several names, such as ('init', 'race'), got 'race'"),
        ({"check": ("speed",)}, ValueError, "check: 'init', 'race'"),
        ({"seed": "x"}, TypeError, "seed must be a whole number, at least 0, got 'x'"),
        ({"seed": -1}, TypeError, "seed must be a whole number, at least 0, got -1"),
        ({"order": "random"}, ValueError, "order: 'eager', 'lazy' or 'seeded', got 'random'"),
        ({"arch": "sm_100"}, ValueError, "arch must be left out, the kernels are for sm_90a"),
        ({"sources": 3}, TypeError, "sources must map names of files to their text, got int"),
        ({"sources": {"combine.cu": 3}}, TypeError, "sources must give the text of each file, got int for combine.cu"),
        ({"sources": {"a.cu": ""}}, ValueError, "the decode kernels have no file 'a.cu'"),
    ],
)
def test_wrong_options_get_a_sentence(options: dict[str, Any], error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=re.escape(sentence)), ops.on("emulator", **options):
        ops.schedule(2, 64)
