"""How many lane-instructions a second does the PTX emulator execute on one core?

    python benchmarks/emulator.py [--repeat 3] [--json results/emulator-cpu.json]

The kernel is the inner loop of a sparse decode's producer: read 16 E4M3 codes and a tile scale from global memory,
widen to half and to float, scale, round to bf16 and store 32 bytes to shared memory, then read them back and sum.
Bounds checks cannot be switched off; `all` adds races, the proxy rule, initialisation and barriers. A second kernel
diverges in every round. A third multiplies with wgmma and the exact arithmetic of the tensor core, in floating-point
operations a second; on a busy machine its processor time says more than the clock's, so both are kept.
"""

from __future__ import annotations

import argparse
import json
import platform
import struct
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "emulator"))
from ptxrun import pack_params
from wgmma_ptx import COMMIT, FENCE, SMEM, Form, Place, kernel, wait

from mlacademy import _emulator

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


def run(
    text: str, arrays: list[np.ndarray], rounds: int, block: int, repeat: int, **options: object
) -> tuple[int, float]:
    """Lane-instructions of one launch, and the shortest of `repeat` times in seconds."""
    program = _emulator.Program(text)
    kernel = program.kernels[0]
    params = b"".join(struct.pack("<Q", a.ctypes.data) for a in arrays) + struct.pack("<I", rounds)
    buffers = [(a.ctypes.data, a.nbytes, p["name"], True) for a, p in zip(arrays, kernel["params"], strict=False)]
    one = (1, 1, 1)
    best, lanes = float("inf"), 0
    for _ in range(repeat):
        start = time.perf_counter()
        result = _emulator.launch(program, kernel["name"], one, (block, 1, 1), one, 0, params, buffers, options)
        best, lanes = min(best, time.perf_counter() - start), result["lane_instructions"]
    return lanes, best


def multiply(form: Form, rounds: int, repeat: int, **options: object) -> tuple[float, float, float]:
    """Operations of `rounds` times four wgmmas on swizzled tiles; the shortest seconds by clock and by processor."""
    chain = " ".join(form.line("%a", "%b", "1") for _ in range(4))
    body = f"""mov.u32 %t4, 0; LOOP: {FENCE} {chain} {COMMIT} {wait()}
    add.u32 %t4, %t4, 1; setp.lt.u32 %q1, %t4, {rounds}; @%q1 bra LOOP;"""
    program = _emulator.Program(HEADER + kernel(form, body))
    image = np.random.default_rng(0).integers(0, 256, SMEM, dtype=np.uint8) & np.uint8(0xBF)
    c = np.zeros((form.registers, 128), np.uint32)
    places = [Place(start, 16, 1024, 128).bits for start in (0, 16384)]
    args = (image, np.zeros((4, 128), np.uint32), c, np.zeros_like(c), *places, 1)
    params, buffers = pack_params(program.kernels[0], args)
    clock = processor = float("inf")
    one = (1, 1, 1)
    for _ in range(repeat):
        began = time.perf_counter(), time.process_time()
        _emulator.launch(program, "k", one, (128, 1, 1), one, SMEM, params, buffers, options)
        clock = min(clock, time.perf_counter() - began[0])
        processor = min(processor, time.process_time() - began[1])
    return 2.0 * 64 * form.n * form.k * 4 * rounds, clock, processor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3, help="launches of each kernel; the fastest counts")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 0x7F, 128 * 16, dtype=np.uint8)
    scales = rng.random(16, dtype=np.float32)
    out = np.zeros(128, np.uint32)
    cases = {
        "dequantise and store": (DEQUANTISE, [codes, scales, out], 5000, 128),
        "divergent loop": (DIVERGE, [out], 20000, 128),
    }
    rows = []
    print(f"{'kernel':24} {'checks':>7} {'lane-instructions':>18} {'seconds':>9} {'G/s':>7}")
    for name, (text, arrays, rounds, block) in cases.items():
        for check in ("bounds", "all"):
            lanes, seconds = run(text, arrays, rounds, block, options.repeat, check=(check,))
            speed = lanes / seconds
            rows.append(
                {"kernel": name, "checks": check, "lane_instructions": lanes, "seconds": seconds, "per_second": speed}
            )
            print(f"{name:24} {check:>7} {lanes:18,} {seconds:9.3f} {speed / 1e9:7.3f}")
    print(f"{'wgmma':40} {'checks':>7} {'GFLOP':>9} {'seconds':>9} {'GFLOP/s':>8} {'processor':>10}")
    for form in (Form("f32", "bf16", "bf16", 256), Form("f32", "bf16", "bf16", 64), Form("f32", "e4m3", "e4m3", 128)):
        for check in ("bounds", "all"):
            operations, clock, processor = multiply(form, 40, options.repeat, check=(check,))
            name = form.opcode.removeprefix("wgmma.mma_async.sync.aligned.")
            row = {"kernel": name, "checks": check, "operations": operations, "seconds": clock}
            rows.append(row | {"per_second": operations / clock, "per_processor_second": operations / processor})
            speeds = f"{operations / clock / 1e9:8.2f} {operations / processor / 1e9:10.2f}"
            print(f"{name:40} {check:>7} {operations / 1e9:9.2f} {clock:9.3f} {speeds}")
    empty = [run(DIVERGE, [out], 1, 32, 20)[1]]
    print(f"a launch of one warp: {empty[0] * 1e6:.0f} µs")
    rows.append({"kernel": "one warp", "seconds": empty[0]})
    if options.json:
        record = {"machine": platform.processor() or platform.machine(), "threads": 1, "rows": rows}
        options.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
