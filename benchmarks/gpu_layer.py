"""Does the GPU layer give right results on a real GPU, and what does one launch cost?

The course's small kernels against exact and float64 answers, over seeds and sizes; in torch's streams and in a CUDA
graph; clusters of 16; programmatic dependent launch; structs with embedded addresses and tensor maps; the errors.
Needs an NVIDIA GPU of compute capability 9.0 and torch with CUDA. `peer` is torch doing the same copy or product.
"""

from __future__ import annotations

import datetime
import json
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _table
import numpy as np
import torch

from mlacademy.gpu import Device, DeviceError, DiskCache, LaunchPlan, Module, TensorMap, compile, nvrtc, samples
from mlacademy.gpu.includes import header_layer

BLOB = """
#include "mbarrier.cuh"
#include "fence.cuh"
#include "tma.cuh"
using namespace mla;
struct Job { int rows; float scale; const float* in; float* out; CUtensorMap map; };
extern "C" __global__ void blob(const __grid_constant__ Job job) {
    __shared__ alignas(128) float tile[8][32];
    __shared__ Mbarrier full;
    if (threadIdx.x == 0) {
        mbarrier_init(&full, 1);
        fence_mbarrier_init();
        mbarrier_arrive_expect_tx(&full, sizeof(tile));
        cp_async_bulk_tensor_2d_shared_global(tile, &job.map, 0, job.rows, &full);
    }
    __syncthreads();
    mbarrier_wait_parity(&full, 0);
    for (int i = 0; i < 8; ++i) job.out[i * 32 + threadIdx.x] = job.scale * tile[i][threadIdx.x] + job.in[threadIdx.x];
}
"""

DEPENDENT = """
#include "griddepcontrol.cuh"
extern "C" __global__ void produce(int* box, int value) {
    mla::griddepcontrol_launch_dependents();
    for (int i = 0; i < 64; ++i) __nanosleep(1000);
    if (threadIdx.x == 0) box[blockIdx.x] = value;
}
extern "C" __global__ void consume(const int* box, int* out) {
    mla::griddepcontrol_wait();
    if (threadIdx.x == 0) out[blockIdx.x] = box[blockIdx.x] + 1;
}
"""


def on_gpu(case: samples.Case) -> tuple[tuple[Any, ...], list[tuple[torch.Tensor, np.ndarray]]]:
    """The case's arguments with every array on the GPU, and the pairs (GPU tensor, host array) to copy back."""
    args, back = [], []
    for arg in case.args:
        if isinstance(arg, TensorMap):
            args.append(
                TensorMap.of(torch.from_numpy(arg.tensor).cuda(), arg.box[::-1], dtype=arg.dtype, swizzle=arg.swizzle)
            )
        elif isinstance(arg, np.ndarray):
            there = torch.from_numpy(arg).cuda()
            args.append(there)
            back.append((there, arg))
        else:
            args.append(arg)
    return tuple(args), back


def check_samples(device: Device) -> dict[str, Any]:
    """Every sample, 20 seeds and 3 sizes from host memory, then from GPU memory in a side stream and in a graph."""
    report = {}
    for name in samples.SAMPLES:
        elements, largest, launches = 0, 0.0, 0
        for seed in range(20):
            for scale in (1, 3, 8):
                _, outcome = samples.run(name, device, inputs=seed, scale=scale)
                assert outcome.right, (name, seed, scale, outcome)
                elements, largest, launches = elements + outcome.elements, max(largest, outcome.error), launches + 1
        case = samples.SAMPLES[name](99, 4)
        args, back = on_gpu(case)
        kernel = compile(header_layer() / f"{name}.cu")[name]
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            device.launch(kernel, case.plan, args)
        stream.synchronize()
        for there, host in back:
            np.copyto(host, there.cpu().numpy())
        side = case.compare()
        graph, case = torch.cuda.CUDAGraph(), samples.SAMPLES[name](100, 4)
        args, back = on_gpu(case)
        with torch.cuda.graph(graph):
            device.launch(kernel, case.plan, args)
        graph.replay()
        torch.cuda.synchronize()
        for there, host in back:
            np.copyto(host, there.cpu().numpy())
        captured = case.compare()
        assert side.right, (name, side)
        assert captured.right, (name, captured)
        report[name] = {
            "launches": launches,
            "elements": elements,
            "largest_error_of_bound": largest,
            "side_stream": side.right,
            "graph": captured.right,
        }
    return report


def check_large_cluster(device: Device) -> dict[str, Any]:
    """A cluster of 16 CTAs, which a kernel must be allowed."""
    values = np.arange(4096, dtype=np.float32)
    sums = np.full(1, np.nan, np.float32)
    device.launch(
        compile(header_layer() / "cluster_sum.cu")["cluster_sum"], LaunchPlan(16, 128, cluster=16), (values, sums, 4096)
    )
    assert sums[0] == values.astype(np.float64).sum(), sums
    return {"cluster": 16, "sum": float(sums[0])}


def check_blob(device: Device) -> dict[str, Any]:
    """A struct by value that holds a scalar, addresses, and a tensor map."""
    tensor = torch.randn(40, 32, device="cuda")
    bias, out = torch.randn(32, device="cuda"), torch.full((8, 32), float("nan"), device="cuda")
    tile = TensorMap.of(tensor, box=(8, 32))
    data = struct.pack("<ifQQ40x", 16, 2.0, device.address(bias), device.address(out)) + device.encode(tile)
    kernel = compile(BLOB, name="blob.cu")["blob"]
    data = data.ljust(kernel.params[0].size, b"\0")
    device.launch(kernel, LaunchPlan(1, 32), (data,))
    assert torch.equal(out, 2.0 * tensor[16:24] + bias), "blob"
    return {"bytes": len(data)}


def check_dependent(device: Device) -> dict[str, Any]:
    """The second kernel starts early and waits by griddepcontrol.wait."""
    module = compile(DEPENDENT, name="dependent.cu")
    box, out = torch.zeros(8, dtype=torch.int32, device="cuda"), torch.zeros(8, dtype=torch.int32, device="cuda")
    for value in range(100):
        device.launch(module["produce"], LaunchPlan(8, 32), (box, value))
        device.launch(module["consume"], LaunchPlan(8, 32, programmatic=True), (box, out))
        torch.cuda.synchronize()
        assert torch.equal(out.cpu(), torch.full((8,), value + 1, dtype=torch.int32)), value
    return {"pairs": 100}


def check_modules(device: Device) -> dict[str, Any]:
    """PTX assembled by the driver; large dynamic shared memory; sentences for what the driver refuses."""
    source = """extern "C" __global__ void fill(int* out, int n) {
    extern __shared__ int big[];
    for (int i = threadIdx.x; i < n; i += 32) big[i] = i;
    __syncwarp();
    for (int i = threadIdx.x; i < n; i += 32) out[i] = big[n - 1 - i];
}"""
    n = 227 * 256
    ptx = Module.from_ptx(compile(source, name="fill.cu").ptx)
    out = np.zeros(n, np.int32)
    device.launch(ptx["fill"], LaunchPlan(1, 32, smem_bytes=4 * n), (out, n))
    assert np.array_equal(out, np.arange(n)[::-1])
    sentences = []
    for trouble in (
        lambda: device.launch(
            Module.from_ptx(ptx.ptx.replace("st.global", "st.glbal"))["fill"], LaunchPlan(1, 32), (out, 8)
        ),
        lambda: device.launch(ptx["fill"], LaunchPlan(1, 1024, cluster=1, smem_bytes=0), (out,)),
    ):
        try:
            trouble()
        except (DeviceError, TypeError, ValueError) as error:
            sentences.append(str(error))
    assert len(sentences) == 2, sentences
    return {"dynamic_smem_bytes": 4 * n, "sentences": sentences}


COORDINATES = """
#include "bulk.cuh"
#include "fence.cuh"
#include "tma.cuh"
using namespace mla;
extern "C" __global__ void box_at(const __grid_constant__ CUtensorMap map, int what, int c0, int c1) {
    __shared__ alignas(128) float tile[8][32];
    __shared__ Mbarrier full;
    if (threadIdx.x != 0) return;
    mbarrier_init(&full, 1);
    fence_mbarrier_init();
    if (what == 0) {
        mbarrier_arrive_expect_tx(&full, sizeof(tile));
        cp_async_bulk_tensor_2d_shared_global(tile, &map, c0, c1, &full);
        mbarrier_wait_parity(&full, 0);
    }
    if (what == 1) cp_async_bulk_tensor_2d_global_shared(&map, c0, c1, tile);
    if (what == 2) cp_reduce_async_bulk_tensor_2d_add(&map, c0, c1, tile);
    cp_async_bulk_commit_group();
    cp_async_bulk_wait_group<0>();
}
"""
ACCESSES = ("load", "store", "reduce")


def box_at(access: str, c0: int, c1: int) -> str:
    """What the GPU says of a float32 box of 8 x 32 at (c0, c1) of a 20 x 64 tensor; an error ends the process's use."""
    tensor_map = TensorMap.of(np.zeros((20, 64), np.float32), box=(8, 32))
    try:
        kernel = compile(COORDINATES, name="coordinates.cu")["box_at"]
        Device("cuda").launch(kernel, LaunchPlan(1, 32), (tensor_map, ACCESSES.index(access), c0, c1))
    except DeviceError as error:
        return str(error)
    return "done"


def check_coordinates(device: Device) -> dict[str, str]:
    """Boxes that reach over each edge of the tensor, each in a process of its own."""
    places = ((0, 0), (40, 14), (64, 20), (-4, 0), (0, -3), (5, 0))
    tries = [(access, *place) for access in ACCESSES for place in places]
    running = {
        one: subprocess.Popen(
            [sys.executable, __file__, "--box-at", *map(str, one)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for one in tries
    }
    return {
        f"{access} at c0={c0}, c1={c1}": running[access, c0, c1].communicate()[0].strip() for access, c0, c1 in tries
    }


def gpu_us(call: Callable[[], Any], batch: int = 5, runs: int = 15) -> float:
    """Microseconds of GPU time a call, the median over runs of ``batch`` calls; a call must outlast its launch."""
    call()
    torch.cuda.synchronize()
    times = []
    for _ in range(runs):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(batch):
            call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / batch)
    return statistics.median(times)


def measure(device: Device) -> dict[str, Any]:
    """Bandwidth of bulk_copy beside torch's copy, the host cost of a launch, compile and cache times."""
    source = torch.randint(0, 256, (1 << 30,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    copy = compile(header_layer() / "bulk_copy.cu")["bulk_copy"]
    plans = {ctas: LaunchPlan(132 * ctas, 64) for ctas in (2, 8, 13)}
    rates = {
        f"{ctas} CTAs an SM": 2
        * source.numel()
        / gpu_us(lambda plan=plan: device.launch(copy, plan, (source, target, source.numel())))
        / 1e3
        for ctas, plan in plans.items()
    }
    assert torch.equal(source, target)
    peer = 2 * source.numel() / gpu_us(lambda: target.copy_(source)) / 1e3
    small, tiny = source[:4096], LaunchPlan(1, 64)
    began = time.perf_counter()
    for _ in range(2000):
        device.launch(copy, tiny, (small, target, 4096))
    host_us = (time.perf_counter() - began) / 2000 * 1e6
    torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        cache, times = DiskCache(Path(folder)), []
        for _ in range(12):
            began = time.perf_counter()
            compile(header_layer() / "wgmma_tile.cu", cache=cache)
            times.append((time.perf_counter() - began) * 1e3)
    return {
        "bulk_copy_GB_per_s": rates,
        "torch_copy_GB_per_s": peer,
        "launch_host_us": host_us,
        "compile_cold_ms": times[0],
        "compile_cached_ms": statistics.median(times[1:]),
    }


def main() -> int:
    parser = _table.parser(__doc__ or "", "gpu-layer")
    parser.add_argument("--commit", default=_table.commit(), help="for a copy of the tree without its repository")
    parser.add_argument("--box-at", nargs=3, metavar=("ACCESS", "C0", "C1"), help="try one box and say what happened")
    options = parser.parse_args()
    if options.box_at:
        print(box_at(options.box_at[0], int(options.box_at[1]), int(options.box_at[2])))
        return 0
    obstacle = Device.obstacles()["cuda"]
    if obstacle:
        print(f"skipped: {obstacle}")
        return 0
    device = Device("cuda")
    report: dict[str, Any] = {
        "title": "GPU layer on a real GPU",
        "gpu": device.name,
        "arch": device.arch,
        "compiler": nvrtc.identity(),
        "torch": torch.__version__,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": options.commit,
    }
    failed = 0
    for step in (
        check_samples,
        check_large_cluster,
        check_blob,
        check_dependent,
        check_modules,
        check_coordinates,
        measure,
    ):
        _table.progress(step.__name__)
        try:
            report[step.__name__] = step(device)
        except Exception as error:  # one failing step must not hide the others
            report[step.__name__] = {"failed": f"{type(error).__name__}: {error}"}
            failed += 1
    text = json.dumps(report, indent=1, ensure_ascii=False, default=str) + "\n"
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(text, encoding="utf-8")
    print(text)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
