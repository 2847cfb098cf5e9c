"""How fast is the PTX emulator, and how does it compare with Numba's CUDA simulator?

    python benchmarks/emulator.py [--repeat 3] [--numba PYTHON] [--json PATH]

The first kernel is the inner loop of a sparse decode's producer: read 16 E4M3 codes and a tile scale from global
memory, widen to half and to float, scale, round to bf16 and store 32 bytes to shared memory, then read them back and
sum. Bounds checks cannot be switched off; `race` adds data races, `all` also the proxy rule, initialisation and
barriers. A second kernel diverges in every round. Then wgmma with the exact arithmetic of the tensor core, two
clusters on two threads, a launch of one warp, and the compiler. `--numba` names a Python that has Numba (an
environment of its own): its simulator runs saxpy, a tiled matrix product and a reduction, the same algorithms on the
same sizes as our CUDA C++.
One thread unless said otherwise; take the figures on a quiet machine: the load at the start is kept.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "emulator"))
from _table import Row, Times, finish, machine, parser, progress
from ptxrun import pack_params
from wgmma_ptx import COMMIT, FENCE, SMEM, Form, Place, kernel, wait

from mlacademy import _emulator, gpu
from mlacademy.gpu.disk_cache import DiskCache

HEADER = ".version 9.0\n.target sm_90a\n.address_size 64\n"
WIDEN = "\n".join(
    f"""    mov.b32 {{%h1, %h2}}, %c{word};
    cvt.rn.f16x2.e4m3x2 %r10, %h1; cvt.rn.f16x2.e4m3x2 %r11, %h2;
    mov.b32 {{%h3, %h4}}, %r10; mov.b32 {{%h5, %h6}}, %r11;
    cvt.f32.f16 %f1, %h3; cvt.f32.f16 %f2, %h4; cvt.f32.f16 %f3, %h5; cvt.f32.f16 %f4, %h6;
    mul.f32 %f1, %f1, %scale; mul.f32 %f2, %f2, %scale; mul.f32 %f3, %f3, %scale; mul.f32 %f4, %f4, %scale;
    cvt.rn.bf16x2.f32 %o{2 * word}, %f2, %f1; cvt.rn.bf16x2.f32 %o{2 * word + 1}, %f4, %f3;"""
    for word in range(4)
)
DEQUANTISE = f"""{HEADER}.visible .entry dequantise(.param .u64 codes, .param .u64 scales,
    .param .u64 out, .param .u32 rounds) {{
    .shared .align 16 .b8 tile[4096];
    .reg .b16 %h<7>; .reg .b32 %r<30>; .reg .b32 %c<4>; .reg .b32 %o<8>; .reg .f32 %f<5>; .reg .f32 %scale;
    .reg .b64 %d<9>; .reg .pred %p1;
    mov.u32 %r0, %tid.x; ld.param.u64 %d0, [codes]; ld.param.u64 %d1, [scales]; ld.param.u64 %d2, [out];
    ld.param.u32 %r1, [rounds];
    mad.wide.u32 %d3, %r0, 16, %d0; mov.u32 %r2, tile; mad.lo.s32 %r3, %r0, 32, %r2; mov.u32 %r9, 0; mov.u32 %r4, 0;
LOOP:
    ld.global.nc.v4.u32 {{%c0, %c1, %c2, %c3}}, [%d3]; shr.u32 %r5, %r0, 3; mad.wide.u32 %d4, %r5, 4, %d1;
    ld.global.nc.f32 %scale, [%d4];
{WIDEN}
    st.shared.v4.u32 [%r3], {{%o0, %o1, %o2, %o3}}; st.shared.v4.u32 [%r3+16], {{%o4, %o5, %o6, %o7}};
    bar.sync 0; ld.shared.u32 %r6, [%r3+4]; xor.b32 %r9, %r9, %r6; bar.sync 0;
    add.s32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, %r1; @%p1 bra LOOP;
    mad.wide.u32 %d5, %r0, 4, %d2; st.global.u32 [%d5], %r9; ret;
}}"""
DIVERGE = f"""{HEADER}.visible .entry diverge(.param .u64 out, .param .u32 rounds) {{
    .reg .b32 %r<9>; .reg .pred %p<3>; .reg .b64 %d<3>;
    mov.u32 %r0, %tid.x; ld.param.u32 %r1, [rounds]; ld.param.u64 %d0, [out]; mov.u32 %r2, 0; mov.u32 %r3, %r0;
LOOP: and.b32 %r4, %r3, 1; setp.eq.s32 %p1, %r4, 0; @%p1 bra EVEN; mad.lo.s32 %r3, %r3, 3, 1; bra NEXT;
EVEN: shr.u32 %r3, %r3, 1; add.s32 %r3, %r3, %r2;
NEXT: add.s32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, %r1; @%p2 bra LOOP;
    mad.wide.u32 %d1, %r0, 4, %d0; st.global.u32 [%d1], %r3; ret;
}}"""


SAME_AS_NUMBA = r"""
extern "C" __global__ void saxpy(int n, float a, const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
extern "C" __global__ void product(const float* a, const float* b, float* c, int n) {
    __shared__ float left[16][16], right[16][16];
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 16 + ty, col = blockIdx.x * 16 + tx;
    float total = 0;
    for (int k = 0; k < n; k += 16) {
        left[ty][tx] = a[row * n + k + tx];
        right[ty][tx] = b[(k + ty) * n + col];
        __syncthreads();
        for (int j = 0; j < 16; ++j) total += left[ty][j] * right[j][tx];
        __syncthreads();
    }
    c[row * n + col] = total;
}
extern "C" __global__ void reduction(const float* x, float* out, int n) {
    __shared__ float part[128];
    float total = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) total += x[i];
    part[threadIdx.x] = total;
    __syncthreads();
    for (int step = 64; step > 0; step /= 2) {
        if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(out, part[0]);
}
"""
LINES = 400


def timed(call: Callable[[], object], repeat: int) -> dict[str, Times]:
    """Seconds of `repeat` calls after one that warms up: by the clock, and of the processor."""
    call()
    clock, processor = [], []
    for _ in range(repeat):
        began = time.perf_counter(), time.process_time()
        call()
        clock.append(time.perf_counter() - began[0])
        processor.append(time.process_time() - began[1])
    return {"ours": times_of(clock), "processor": times_of(processor)}


def times_of(seconds: list[float]) -> Times:
    return Times(sorted(seconds)[len(seconds) // 2], min(seconds), max(seconds), len(seconds))


def throughput(name: str, amount: float, unit: str, goal: float | None, times: dict[str, Times]) -> Row:
    """A row of so much a second; on a busy machine the processor's time says more than the clock's."""
    print(f"{name}: {amount / times['processor'].least / 1e9:.3g} {unit} of processor time", file=sys.stderr)
    return Row(name, amount / times["ours"].least / 1e9, None, "", unit, goal, times)


def ready(text: str, arrays: list[np.ndarray], *scalars: int) -> Callable[..., dict[str, int]]:
    """A launch of the text's kernel on these arguments, waiting for its shape and options."""
    program = _emulator.Program(text)
    kernel = program.kernels[0]
    params = b"".join(struct.pack("<Q", a.ctypes.data) for a in arrays) + b"".join(
        struct.pack("<I", n) for n in scalars
    )
    buffers = [(a.ctypes.data, a.nbytes, p["name"], True) for a, p in zip(arrays, kernel["params"], strict=False)]

    def launch(grid: int, block: int, **options: object) -> dict[str, int]:
        one = (1, 1, 1)
        return _emulator.launch(program, kernel["name"], (grid, 1, 1), (block, 1, 1), one, 0, params, buffers, options)

    return launch


def lanes(repeat: int) -> list[Row]:
    """Lane-instructions a second."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 0x7F, 128 * 16, dtype=np.uint8)
    scales, out = rng.random(16, dtype=np.float32), np.zeros(128, np.uint32)
    dequantise = ready(DEQUANTISE, [codes, scales, out], 5000)
    diverge = ready(DIVERGE, [out], 20000)
    rows = []
    for name, launch, check, goal in (
        ("FP8 dequantise and store, bounds", dequantise, (), 0.3),
        ("FP8 dequantise and store, bounds and races", dequantise, ("race",), 0.05),
        ("FP8 dequantise and store, all checks", dequantise, ("all",), None),
        ("loop that diverges, bounds", diverge, (), None),
        ("loop that diverges, all checks", diverge, ("all",), None),
    ):
        progress(name)
        count = launch(1, 128, check=check)["lane_instructions"]
        times = timed(lambda launch=launch, check=check: launch(1, 128, check=check), repeat)
        rows.append(throughput(name, count, "G lane-instr/s", goal, times))
    return rows


def multiply(form: Form, rounds: int, repeat: int, check: tuple[str, ...], goal: float | None) -> Row:
    """Exact wgmma on swizzled tiles, four in a group."""
    name = f"wgmma {form.opcode.removeprefix('wgmma.mma_async.sync.aligned.')}, {'all checks' if check else 'bounds'}"
    progress(name)
    chain = " ".join(form.line("%a", "%b", "1") for _ in range(4))
    body = f"""mov.u32 %t4, 0; LOOP: {FENCE} {chain} {COMMIT} {wait()}
    add.u32 %t4, %t4, 1; setp.lt.u32 %q1, %t4, {rounds}; @%q1 bra LOOP;"""
    program = _emulator.Program(HEADER + kernel(form, body))
    image = np.random.default_rng(0).integers(0, 256, SMEM, dtype=np.uint8) & np.uint8(0xBF)
    c = np.zeros((form.registers, 128), np.uint32)
    places = [Place(start, 16, 1024, 128).bits for start in (0, 16384)]
    args = (image, np.zeros((4, 128), np.uint32), c, np.zeros_like(c), *places, 1)
    params, buffers = pack_params(program.kernels[0], args)
    one, options = (1, 1, 1), {"check": check}
    times = timed(lambda: _emulator.launch(program, "k", one, (128, 1, 1), one, SMEM, params, buffers, options), repeat)
    operations = 2.0 * 64 * form.n * form.k * 4 * rounds
    return throughput(name, operations, "GFLOP/s", goal, times)


def two_clusters(repeat: int) -> Row:
    """Two clusters on two threads beside two on one."""
    progress("two clusters on two threads")
    codes, scales = np.zeros(128 * 16, np.uint8), np.ones(16, np.float32)
    launch = ready(DEQUANTISE, [codes, scales, np.zeros(128, np.uint32)], 10000)
    both = {n: timed(lambda n=n: launch(2, 128, threads=n, check=()), repeat)["ours"] for n in (1, 2)}
    ours, peer = 2 / both[2].least, 2 / both[1].least
    is_what = "the same two clusters on one thread"
    return Row(
        "two clusters on two threads", ours, peer, is_what, "clusters/s", 1.8 * peer, {"ours": both[2], "peer": both[1]}
    )


def tiny_launch(repeat: int) -> Row:
    progress("a launch of one warp")
    launch = ready(DIVERGE, [np.zeros(32, np.uint32)], 1)
    times = timed(lambda: launch(1, 32), max(repeat, 50))
    return Row("a launch of one warp", times["ours"].median * 1e3, None, "", "ms", 1.0, times)


def compiler(repeat: int) -> list[Row]:
    """A kernel of 400 lines, compiled cold and found in the cache."""
    progress("the compiler")
    lines = [
        f"    x[{i % 7}] = x[{i % 5}] * {i}.5f + __shfl_xor_sync(~0u, x[{i % 3}], {1 << i % 5});"
        for i in range(LINES - 6)
    ]

    def source(number: int) -> str:
        head = f'extern "C" __global__ void long_kernel_{number}(float* out) {{\n    float x[7] = {{}};\n'
        return head + "\n".join(lines) + "\n    out[threadIdx.x] = x[0] + x[3];\n}\n"

    with tempfile.TemporaryDirectory() as folder:
        cache = DiskCache(Path(folder))
        gpu.compile('extern "C" __global__ void warm() {}', arch="sm_90a", cache=cache)
        cold = []
        for number in range(repeat):
            began = time.perf_counter()
            gpu.compile(source(number), arch="sm_90a", cache=cache)
            cold.append(time.perf_counter() - began)
        warm = timed(lambda: gpu.compile(source(0), arch="sm_90a", cache=cache), max(repeat, 20))["ours"]
    first = times_of(cold)
    return [
        Row(f"compile a kernel of {LINES} lines, cold", first.median, None, "", "s", 2.5, {"ours": first}),
        Row(f"compile a kernel of {LINES} lines, cached", warm.median * 1e3, None, "", "ms", 5.0, {"ours": warm}),
    ]


def beside_numba(python: Path, repeat: int) -> list[Row]:
    """Three kernels beside Numba's CUDA simulator."""
    progress("Numba's CUDA simulator")
    script = Path(__file__).with_name("_numba_simulator.py")
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
    done = subprocess.run([str(python), str(script)], env=environment, capture_output=True, text=True, check=True)
    theirs = json.loads(done.stdout)
    device, rng = gpu.Device("emulator", check=()), np.random.default_rng(0)
    module = gpu.compile(SAME_AS_NUMBA, arch="sm_90a")
    x, y = (rng.standard_normal(4096).astype(np.float32) for _ in range(2))
    a, b = (rng.integers(-8, 8, (48, 48)).astype(np.float32) for _ in range(2))
    c, out = np.zeros((48, 48), np.float32), np.zeros(1, np.float32)
    launches = {
        "saxpy": ("saxpy", gpu.LaunchPlan(32, 128), [4096, 2.0, x, y]),
        "tiled matmul": ("product", gpu.LaunchPlan((3, 3), (16, 16)), [a, b, c, 48]),
        "reduction": ("reduction", gpu.LaunchPlan(4, 128), [x, out, 4096]),
    }
    rows = []
    for name, (entry, plan, args) in launches.items():
        times = timed(
            lambda entry=entry, plan=plan, args=args: device.launch(module[entry], plan, args), max(repeat, 10)
        )
        peer = theirs[name]
        kept = {**times, "peer": Times(peer, peer, peer, 3)}
        rows.append(
            Row(
                f"{name} beside Numba",
                times["ours"].least * 1e3,
                peer * 1e3,
                "Numba's CUDA simulator",
                "ms",
                None,
                kept,
            )
        )
    assert (c == a @ b).all()
    return rows


def main() -> int:
    options = parser(__doc__ or "", "emulator")
    options.add_argument("--repeat", type=int, default=3, help="runs of each row; the fastest counts for throughput")
    options.add_argument("--numba", type=Path, metavar="PYTHON", help="a Python that has Numba, for the last rows")
    given = options.parse_args()
    about = machine()
    rows = lanes(given.repeat)
    for form, goal in ((Form("f32", "bf16", "bf16", 256), 2.0), (Form("f32", "e4m3", "e4m3", 128), 2.0)):
        rows += [multiply(form, 40, given.repeat, (), goal), multiply(form, 40, given.repeat, ("all",), None)]
    rows += [two_clusters(given.repeat), tiny_launch(given.repeat), *compiler(given.repeat)]
    if given.numba:
        rows += beside_numba(given.numba, given.repeat)
    return finish("The PTX emulator", rows, given.json, about={"machine": about})


if __name__ == "__main__":
    sys.exit(main())
