"""The microbenchmarks behind the cost model, as CUDA source: each times a step, repeated so many times, with the clock.

A kernel's time at two numbers of repetitions gives the time of one step; what is the same at both drops out.
"""

# ruff: noqa: E501 - an instruction with its operands is easier to read in one line

from __future__ import annotations

from dataclasses import dataclass

REPETITIONS = 15  # timings of one launch, of which the first three do not count

HEADER = """#include "bulk.cuh"
#include "cluster.cuh"
#include "convert.cuh"
#include "fence.cuh"
#include "mbarrier.cuh"
#include "named_barrier.cuh"
#include "tma.cuh"
#include "warp.cuh"
#include "wgmma.cuh"
using namespace mla;
#define EIGHT(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
"""

KERNEL = """
extern "C" __global__ void __launch_bounds__({threads}) {name}_{count}(
    long long* out, uint8_t* global, uint32_t zero, const __grid_constant__ CUtensorMap tall,
    const __grid_constant__ CUtensorMap flat) {{
    __shared__ alignas(1024) uint8_t smem[32768];
    __shared__ Mbarrier bars[4];
    const uint32_t tid = threadIdx.x, rank = {rank};
    uint32_t done = 0;
    for (uint32_t i = tid; i < 8192; i += blockDim.x) reinterpret_cast<uint32_t*>(smem)[i] = zero;
    if (tid == 0) {{
        for (int i = 0; i < 4; ++i) mbarrier_init(&bars[i], {arrivals});
        fence_mbarrier_init();
        fence_proxy_async();
    }}
    __syncthreads();
    {setup}
    {meet}
    for (int rep = 0; rep < {repetitions}; ++rep) {{
        {meet}
        const long long t0 = clock64();
        #pragma unroll {unroll}
        for (int i = 0; i < {count}; ++i) {{
            {step}
        }}
        {end}
        const long long t1 = clock64();
        {after}
        if (tid == 0 && rank == 0) out[blockIdx.x * {repetitions} + rep] = t1 - t0;
    }}
    if (done == 0x12345) out[1 << 16] = done;
    {sink}
    {meet}
}}
"""


@dataclass(frozen=True)
class Bench:
    """One timed step. `items`: what one step holds for one sub-partition, pipe or byte counter: the divisor."""

    name: str
    step: str
    setup: str = ""
    end: str = ""
    after: str = ""
    sink: str = ""
    threads: int = 32
    cluster: int = 1
    grid: int = 1
    counts: tuple[int, int] = (32, 96)
    items: float = 1
    unroll: int | None = None
    arrivals: int = 1

    def source(self) -> str:
        meet = "cluster_sync();" if self.cluster > 1 else "__syncthreads();"
        rank = "cluster_ctarank()" if self.cluster > 1 else "0"
        return "".join(
            KERNEL.format(
                **{k: v for k, v in vars(self).items() if k not in ("counts", "unroll")},
                count=count,
                unroll=count if self.unroll is None else self.unroll,
                meet=meet,
                rank=rank,
                repetitions=REPETITIONS,
            )
            for count in self.counts
        )


def chain(name: str, asm: str, kind: str = "f", start: str = "zero", items: float = 1, **more: object) -> list[Bench]:
    """Latency of dependent instructions in one warp, and occupancy of the pipe with 16 warps of 8 chains."""
    types = {"f": "float", "r": "uint32_t", "d": "double", "l": "uint64_t", "h": "uint16_t"}
    one = f'asm volatile("{asm}" : "+{kind}"(x) : "{kind}"(y));'
    eight = f'#define STEP(i) asm volatile("{asm}" : "+{kind}"(x##i) : "{kind}"(y));'
    start += " + tid"  # the assembler drops what it can tell for all lanes at once
    declare = f"{types[kind]} y = {start};"
    many = " ".join(f"{types[kind]} x{i} = {start} + {i};" for i in range(8))
    total = " + ".join(f"x{i}" for i in range(8))
    return [
        Bench(name, one, f"{declare} {types[kind]} x = {start};", sink="if (x == 77) out[1 << 16] = 1;", items=items),
        Bench(
            f"{name}_pipe",
            "EIGHT(STEP) EIGHT(STEP) EIGHT(STEP) EIGHT(STEP)",
            f"{declare} {many}\n{eight}\n",
            end="__syncthreads();",
            sink=f"if ({total} == 77) out[1 << 16] = 1;\n#undef STEP\n",
            threads=512,
            counts=(16, 48),
            unroll=4,
            items=128 * items,
        ),
    ]


OWN = "uint32_t p = smem_address(smem) + {at}; reinterpret_cast<uint32_t*>(smem)[({at}) / 4] = p; __syncthreads();"
CHASE = "if (p == 77) out[1 << 16] = 1;"
ONE = "if (tid == 0) {{ {} }}"


def memory() -> list[Bench]:
    load = 'asm volatile("ld.shared.b32 %0, [%0];" : "+r"(p) :: "memory");'
    wide = (
        '#define STEP(j) {{ uint32_t a, b, c, d; asm volatile("{op} {{%0, %1, %2, %3}}, [%4];" : "=r"(a), "=r"(b), '
        '"=r"(c), "=r"(d) : "{kind}"({at}) : "memory"); done |= a | b | c | d; }}\n'
    )
    walk = "global + {base} + (i * 8 + j) * 8192 + tid * 16"
    many = {"threads": 512, "end": "__syncthreads();", "sink": "\n#undef STEP\n"}
    each = "uint64_t p = reinterpret_cast<uint64_t>(global) + tid * 8; *reinterpret_cast<uint64_t*>(p) = p; __syncthreads();"
    chase = 'asm volatile("{} %0, [%0];" : "+l"(p) :: "memory");'
    fresh = 'asm volatile("ld.global.cg.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory"); p += 264192 + v;'
    return [
        Bench("ld_shared", load, OWN.format(at="tid * 4"), sink=CHASE),
        Bench("ld_shared_8way", load, OWN.format(at="tid * 32"), sink=CHASE),
        Bench(
            "ld_shared_pipe",
            "EIGHT(STEP)",
            wide.format(op="ld.volatile.shared.v4.b32", kind="r", at="smem_address(smem) + j * 2048 + tid % 128 * 16"),
            counts=(8, 24),
            items=16 * 8 * 512,
            **many,
        ),
        Bench(
            "atom_shared",
            'asm volatile("atom.shared.add.u32 %0, [%1], %0;" : "+r"(v) : "r"(p) : "memory");',
            "uint32_t v = zero; " + OWN.format(at="tid * 4"),
            sink="if (v == 77) out[1 << 16] = 1;",
        ),
        Bench(
            "ldmatrix",
            'asm volatile("{ .reg .b32 a, b, c; ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, a, b, c}, [%1]; }" : "=r"(v) : "r"(p) : "memory"); p += v;',
            "uint32_t v = 0, p = smem_address(smem) + tid * 16;",
            sink=CHASE,
        ),
        Bench("ld_l1", chase.format("ld.global.ca.u64"), each, sink=CHASE),
        Bench("ld_l2", chase.format("ld.global.cg.u64"), each, sink=CHASE),
        Bench(
            "ld_dram",
            fresh,
            "uint64_t v = 0, p = reinterpret_cast<uint64_t>(global);",
            sink=CHASE,
            threads=1,
            counts=(16, 48),
        ),
        Bench(
            "l2_one",
            "EIGHT(STEP)",
            wide.format(op="ld.volatile.global.v4.b32", kind="l", at=walk.format(base="0")),
            counts=(8, 24),
            items=65536,
            **many,
        ),
        Bench(
            "l2_all",
            "EIGHT(STEP)",
            wide.format(
                op="ld.volatile.global.v4.b32",
                kind="l",
                at="global + blockIdx.x * 131072 + (i * 8 + j) % 16 * 8192 + tid * 16",
            ),
            counts=(8, 24),
            items=65536,
            grid=132,
            **many,
        ),
        Bench(
            "dram_all",
            "EIGHT(STEP)",
            wide.format(
                op="ld.volatile.global.v4.b32", kind="l", at=walk.format(base="(blockIdx.x * 15ull + rep) * 1572864")
            ),
            counts=(8, 24),
            items=65536,
            grid=132,
            **many,
        ),
        Bench(
            "atom_global",
            'asm volatile("atom.global.add.u32 %0, [%1], %0;" : "+r"(v) : "l"(p) : "memory");',
            "uint32_t v = zero; uint8_t* p = global + tid * 4;",
            sink="if (v == 77) out[1 << 16] = 1;",
        ),
        *(
            Bench(
                name,
                "EIGHT(STEP)",
                f'#define STEP(j) asm volatile("st.global.{op};" :: "l"(global + i * 65536ull + tid / 32 * 16384 + {at}), "r"(tid) : "memory");\n',
                sink="\n#undef STEP\n",
                threads=128,
                counts=(8, 24),
                items=items,
            )
            for name, op, at, items in (
                (
                    "st_fragment",
                    "v2.b32 [%0], {{%1, %1}}".replace("{{", "{").replace("}}", "}"),
                    "tid % 32 / 4 * 1024 + tid % 4 * 8 + j * 32",
                    256,
                ),
                (
                    "st_row",
                    "v4.b32 [%0], {{%1, %1, %1, %1}}".replace("{{", "{").replace("}}", "}"),
                    "tid % 32 * 16 + j * 512",
                    128,
                ),
            )
        ),
        Bench("fence_cta", "fence_acq_rel_cta();"),
        Bench("fence_cluster", "fence_acq_rel_cluster();"),
        Bench("fence_gpu", "fence_acq_rel_gpu();"),
        Bench("fence_proxy", "fence_proxy_async_shared_cta();"),
        Bench(
            "cp_async",
            'asm volatile("cp.async.cg.shared.global [%0], [%1], 16; cp.async.commit_group; cp.async.wait_group 0;" :: "r"(smem_address(smem) + tid * 16), "l"(global + tid * 16) : "memory");',
        ),
    ]


def meetings() -> list[Bench]:
    far = "uint32_t there = mapa(smem_address(&bars[0]), rank ^ 1);"
    remote = (
        OWN.format(at="tid * 4").replace("__syncthreads();", "")
        + " cluster_sync(); p = mapa(p, rank ^ 1); cluster_sync(); reinterpret_cast<uint32_t*>(smem)[tid] = mapa(smem_address(smem) + tid * 4, rank);"
    )
    return [
        Bench("mbarrier_arrive", "mbarrier_arrive(&bars[0]);", threads=1, arrivals=1 << 19),
        Bench("mbarrier_arrive_32", "mbarrier_arrive(&bars[0]);", arrivals=1 << 19),
        Bench(
            "mbarrier_state",
            'asm volatile("{ .reg .b64 s; mbarrier.arrive.shared::cta.b64 s, [%0]; shr.u64 s, s, 63; cvt.u32.u64 %1, s; }" : "+r"(p), "=r"(v) :: "memory"); p += v;',
            "uint32_t v = 0, p = smem_address(&bars[0]);",
            sink=CHASE,
            threads=1,
            arrivals=1 << 19,
        ),
        Bench("mbarrier_wait", "mbarrier_wait_parity(&bars[0], 1);", threads=1),
        Bench(
            "mbarrier_ping",
            "if (tid == 0) { mbarrier_arrive(&bars[0]); mbarrier_wait_parity(&bars[1], i & 1); } else if (tid == 32) { mbarrier_wait_parity(&bars[0], i & 1); mbarrier_arrive(&bars[1]); }",
            threads=64,
        ),
        Bench("bar_4", "__syncthreads();", threads=128),
        Bench("bar_16", "__syncthreads();", threads=512),
        Bench("cluster_sync", "cluster_sync();", threads=128, cluster=2, grid=2),
        Bench(
            "cluster_ping",
            "if (rank == 0) { mbarrier_arrive_cluster(there); mbarrier_wait_parity_cluster(&bars[0], i & 1); } else { mbarrier_wait_parity_cluster(&bars[0], i & 1); mbarrier_arrive_cluster(there); }",
            far,
            threads=1,
            cluster=2,
            grid=2,
        ),
        Bench(
            "ld_remote",
            'asm volatile("ld.shared::cluster.b32 %0, [%0];" : "+r"(p) :: "memory");',
            remote,
            sink=CHASE,
            cluster=2,
            grid=2,
        ),
        Bench(
            "remote_pipe",
            "EIGHT(STEP)",
            '#define STEP(j) { uint32_t a, b, c, d; asm volatile("ld.volatile.shared::cluster.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(mapa(smem_address(smem) + j * 2048 + tid % 128 * 16, rank ^ 1)) : "memory"); done |= a | b | c | d; }\n',
            sink="\n#undef STEP\n",
            end="__syncthreads();",
            threads=512,
            cluster=2,
            grid=2,
            counts=(4, 12),
            items=16 * 8 * 512,
        ),
    ]


def copies() -> list[Bench]:
    benches = []
    load = "cp_async_bulk_shared_global(smem, global, {bytes}, &bars[0]);"
    tall = "cp_async_bulk_tensor_2d_shared_global(smem, &tall, 0, 0, &bars[0]);"
    flat = "cp_async_bulk_tensor_2d_shared_global(smem, &flat, 0, 0, &bars[0]);"
    kinds = [(f"bulk_{bytes}", load.format(bytes=bytes), bytes) for bytes in (16, 512, 2048, 8192, 32768)]
    for name, start, size in [*kinds, ("tensor_8192", tall, 8192), ("tensor_1024", flat, 1024)]:
        alone = f"mbarrier_arrive_expect_tx(&bars[0], {size}); {start} mbarrier_wait_parity(&bars[0], i & 1);"
        benches.append(Bench(f"{name}_alone", alone, threads=1, counts=(8, 24)))
        end = (
            "mbarrier_arrive_expect_tx(&bars[0], {count} * " + str(size) + "); mbarrier_wait_parity(&bars[0], rep & 1);"
        )
        benches.append(_counted(Bench(f"{name}_queue", start, end=end, threads=1, counts=(8, 24))))
    start = load.format(bytes=16)
    after = "mbarrier_arrive_expect_tx(&bars[0], {count} * 16); mbarrier_wait_parity(&bars[0], rep & 1);"
    benches.append(_counted(Bench("bulk_issue", start, after=after, threads=1, counts=(2, 8))))
    for size in (512, 8192):
        store = f"cp_async_bulk_global_shared(global, smem, {size}); cp_async_bulk_commit_group(); "
        benches.append(
            Bench(f"store_{size}_read", store + "cp_async_bulk_wait_group_read<0>();", threads=1, counts=(8, 24))
        )
        benches.append(Bench(f"store_{size}_done", store + "cp_async_bulk_wait_group<0>();", threads=1, counts=(8, 24)))
    return benches


def _counted(bench: Bench) -> Bench:
    """The same with the number of steps in its end: a macro, because each count is a kernel of its own."""
    return Bench(
        **{
            **vars(bench),
            "end": bench.end.replace("{count}", "COUNT"),
            "after": bench.after.replace("{count}", "COUNT"),
        }
    )


def multiplies() -> list[Bench]:
    benches = []
    for name, registers, call in (
        ("wgmma_n64", 32, "wgmma_m64n64k16_f32_bf16(d, a, b, true);"),
        ("wgmma_n128", 64, "wgmma_m64n128k16_f32_bf16(d, a, b, true);"),
        ("wgmma_n256", 128, "wgmma_m64n256k16_f32_bf16(d, a, b, true);"),
        ("wgmma_n128_e4m3", 64, "wgmma_m64n128k32_f32_e4m3(d, a, b, true);"),
    ):
        setup = (
            f"float d[{registers}] = {{}}; const uint64_t a = matrix_descriptor<Swizzle::k128B, 1024>(smem), "
            "b = matrix_descriptor<Swizzle::k128B, 1024>(smem);"
        )
        sink = f"float sum = 0; for (int i = 0; i < {registers}; ++i) sum += d[i]; if (sum == 77) out[1 << 16] = 1;"
        close = "wgmma_commit_group(); wgmma_wait_group<0>(d);"
        benches.append(Bench(name, call, setup + " wgmma_fence(d);", end=close, sink=sink, threads=128, counts=(8, 24)))
        benches.append(
            Bench(f"{name}_alone", f"wgmma_fence(d); {call} {close}", setup, sink=sink, threads=128, counts=(4, 12))
        )
    mma = 'asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %4, %4, %4}, {%4, %4}, {%0, %1, %2, %3};" : "+f"(d[{}][0]), "+f"(d[{}][1]), "+f"(d[{}][2]), "+f"(d[{}][3]) : "r"(zero));'
    sink = "float sum = 0; for (int i = 0; i < 8; ++i) for (int j = 0; j < 4; ++j) sum += d[i][j]; if (sum == 77) out[1 << 16] = 1;"
    benches.append(Bench("mma", mma.replace("{}", "0"), "float d[8][4] = {};", sink=sink))
    eight = " ".join(mma.replace("{}", str(j)) for j in range(8))
    benches.append(
        Bench(
            "mma_pipe",
            eight,
            "float d[8][4] = {};",
            end="__syncthreads();",
            sink=sink,
            threads=512,
            counts=(4, 12),
            items=32,
        )
    )
    return benches


def arithmetic() -> list[Bench]:
    cvt = "{{ .reg .b32 t; cvt.rn.bf16x2.f32 t, %0, %0; mov.b32 %0, t; }}".replace("{{", "{").replace("}}", "}")
    back = "{ .reg .b16 h; cvt.u16.u32 h, %0; cvt.rn.f16x2.e4m3x2 %0, h; }"
    narrow = "{ .reg .b16 h; .reg .b32 t; cvt.rn.satfinite.e4m3x2.f32 h, %0, %0; cvt.u32.u16 t, h; mov.b32 %0, t; }"
    return [
        *chain("fma", "fma.rn.f32 %0, %0, %1, %1;"),
        *chain("add_xor", "add.s32 %0, %0, %1; xor.b32 %0, %0, %1;", "r", "zero + 1", items=2),
        *chain("mad", "mad.lo.s32 %0, %0, %1, %1;", "r", "zero + 3"),
        *chain("hfma2", "fma.rn.bf16x2 %0, %0, %1, %1;", "r"),
        *chain("dfma", "fma.rn.f64 %0, %0, %1, %1;", "d"),
        *chain("cvt_bf16", cvt),
        *chain("cvt_f16_e4m3", back, "r"),
        *chain("cvt_e4m3", narrow),
        *chain("ex2", "ex2.approx.ftz.f32 %0, %0;"),
        *chain("shfl", "shfl.sync.bfly.b32 %0, %0, 1, 0x1f, 0xffffffff;", "r"),
        *chain("div_f32", "div.rn.f32 %0, %0, %1;", start="zero + 3.0f"),
        *chain("div_u32", "div.u32 %0, %0, %1;", "r", "zero + 3"),
        Bench(
            "clock",
            'asm volatile("mov.u64 %0, %clock64;" : "=l"(c) :: "memory");',
            "uint64_t c = 0;",
            sink="if (c == 77) out[1 << 16] = 1;",
        ),
        Bench(
            "loop",
            'asm volatile("fma.rn.f32 %0, %0, %1, %1;" : "+f"(x) : "f"(y));',
            "float x = zero, y = zero;",
            sink="if (x == 77) out[1 << 16] = 1;",
            unroll=1,
        ),
    ]


def every_bench() -> list[Bench]:
    return [*arithmetic(), *memory(), *meetings(), *copies(), *multiplies()]


def source(bench: Bench) -> str:
    """A file with the bench's two kernels."""
    kernels = []
    for count, text in zip(bench.counts, bench.source().split('\nextern "C"')[1:], strict=True):
        kernels.append(f'#undef COUNT\n#define COUNT {count}\nextern "C"{text}')
    return HEADER + "\n".join(kernels)
