// wgmma: the matrix multiply of a warpgroup, four consecutive warps whose first has a number divisible by
// four.
//
// D (64 x N, float32, in registers) = A (64 x K) times B (K x N) [+ D]. B, and A unless it is in registers,
// are read from shared memory by the async proxy. Order of use:
//   wgmma_fence(d) - wgmma_m64n…(d, …) once or more - wgmma_commit_group() - wgmma_wait_group<0>(d)
// Between the first multiply and the wait nothing may touch d, registers of A, or the tiles in shared memory.
#pragma once

#include "base.cuh"

namespace mla {

// How rows are permuted in shared memory; the numbers are the descriptor's. The same name goes into the
// tensor map.
enum class Swizzle : uint32_t { kNone = 0, k128B = 1, k64B = 2, k32B = 3 };

// Where a tile lies in shared memory, as wgmma wants it told. Sizes in bytes.
// section: wgmma, "Matrix descriptor format"
struct MatrixDescriptor {
    uint32_t start_address;   // of the tile, or of a K slice in it: + 32 bytes a step within a swizzled row
    uint32_t leading_offset;  // K-major without swizzle: between neighbouring 16-byte columns; with swizzle:
                              // unused
    uint32_t stride_offset;   // K-major: between groups of 8 rows
    uint32_t base_offset;     // 0 where the swizzle pattern starts at a multiple of its repeat
    Swizzle swizzle;

    // The 64 bits: four fields in units of 16 bytes, all within 18 bits, which drops the CTA's rank in the
    // cluster.
    __host__ __device__ constexpr uint64_t bits() const {
        return static_cast<uint64_t>((start_address & 0x3FFFF) >> 4)           //  0 - 13
               | static_cast<uint64_t>((leading_offset & 0x3FFFF) >> 4) << 16  // 16 - 29
               | static_cast<uint64_t>((stride_offset & 0x3FFFF) >> 4) << 32   // 32 - 45
               | static_cast<uint64_t>(base_offset & 7) << 49                  // 49 - 51
               | static_cast<uint64_t>(swizzle) << 62;                         // 62 - 63
    }
};
static_assert(MatrixDescriptor{1024, 16, 1024, 0, Swizzle::k128B}.bits() == 0x4000004000010040ULL,
              "start 0x40, leading 1, stride 0x40, swizzle 1");

// The descriptor of a tile at `tile` whose offsets are known when compiling. Any thread; all of a warpgroup
// agree.
template <Swizzle kSwizzle, uint32_t kStrideOffset, uint32_t kLeadingOffset = 16>
__device__ __forceinline__ uint64_t matrix_descriptor(const void* tile) {
    static_assert(kStrideOffset % 16 == 0 && kStrideOffset < (1u << 18),
                  "kStrideOffset: a multiple of 16 below 2^18");
    static_assert(kLeadingOffset % 16 == 0 && kLeadingOffset < (1u << 18),
                  "kLeadingOffset: a multiple of 16 below 2^18");
    return MatrixDescriptor{smem_address(tile), kLeadingOffset, kStrideOffset, 0, kSwizzle}.bits();
}

// The descriptor of the same tile `bytes` further in: the next K slice. Stays within the 14 bits of the start
// address.
__device__ __forceinline__ uint64_t advance(uint64_t descriptor, uint32_t bytes) {
    return descriptor + (bytes >> 4);
}

// Row and column in D of accumulator register `index` (0 … N / 2 - 1) of thread `thread` (0 … 127) of the
// warpgroup.
// section: wgmma, "Register fragments"
__host__ __device__ constexpr uint32_t accumulator_row(uint32_t thread, uint32_t index) {
    return 16 * (thread / 32) + thread % 32 / 4 + 8 * (index / 2 % 2);
}
__host__ __device__ constexpr uint32_t accumulator_column(uint32_t thread, uint32_t index) {
    return 8 * (index / 4) + 2 * (thread % 4) + index % 2;
}

// Keep the compiler from moving uses of d across this point; no instruction.
template <int kRegisters>
__device__ __forceinline__ void hold(float (&d)[kRegisters]) {
#pragma unroll
    for (int i = 0; i < kRegisters; ++i)
        asm volatile("" : "+f"(d[i])::"memory");
}

// Order earlier accesses to d, to registers of A and to shared memory of this warpgroup before the multiplies
// that follow. Before the first multiply, and again whenever threads have written d or registers of A since.
// All four warps. Shared memory written by threads also needs fence_proxy_async_shared_cta().
// section: wgmma.fence; from sm_90a
template <int kRegisters>
__device__ __forceinline__ void wgmma_fence(float (&d)[kRegisters]) {
    hold(d);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// The same for a chain that goes on: d is in flight already, only registers of A or shared memory were
// written.
__device__ __forceinline__ void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// Close the group of multiplies since the last call. All four warps.
// section: wgmma.commit_group; from sm_90a
__device__ __forceinline__ void wgmma_commit_group() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Wait until at most kPending of the latest groups are unfinished; then d of the others may be read, and
// their tiles overwritten. All four warps.
// section: wgmma.wait_group; from sm_90a
template <int kPending, int kRegisters>
__device__ __forceinline__ void wgmma_wait_group(float (&d)[kRegisters]) {
    static_assert(kPending >= 0 && kPending <= 7, "kPending: 0 to 7 groups");
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
    hold(d);
}

// The same where d stays in flight: only registers of A and tiles of the finished groups are free again.
template <int kPending>
__device__ __forceinline__ void wgmma_wait_group() {
    static_assert(kPending >= 0 && kPending <= 7, "kPending: 0 to 7 groups");
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Operands of D: output lists and their text.
#define MLA_OUT_4(d, i) "+f"((d)[i]), "+f"((d)[(i) + 1]), "+f"((d)[(i) + 2]), "+f"((d)[(i) + 3])
#define MLA_OUT_8(d, i) MLA_OUT_4(d, i), MLA_OUT_4(d, (i) + 4)
#define MLA_OUT_16(d, i) MLA_OUT_4(d, i), MLA_OUT_4(d, (i) + 4), MLA_OUT_4(d, (i) + 8), MLA_OUT_4(d, (i) + 12)
#define MLA_OUT_32(d, i) MLA_OUT_16(d, i), MLA_OUT_16(d, (i) + 16)
#define MLA_OUT_64(d, i) MLA_OUT_32(d, i), MLA_OUT_32(d, (i) + 32)
#define MLA_OUT_128(d, i) MLA_OUT_64(d, i), MLA_OUT_64(d, (i) + 64)
#define MLA_TEXT_4 "{%0, %1, %2, %3}"
#define MLA_TEXT_8 "{%0, %1, %2, %3, %4, %5, %6, %7}"
#define MLA_TEXT_16 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}"
#define MLA_TEXT_32                                                           \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define MLA_TEXT_64                                                                    \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "          \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}"
#define MLA_TEXT_128                                                                               \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                      \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "             \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "             \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "             \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "             \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "             \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}"

// D (64 x N) = A times B, + D if `accumulate`; bfloat16, K = 16. A and B by descriptor; kTransA or kTransB
// = 1 says that the tile is M-major or N-major instead of K-major. All four warps, with the same
// descriptors and `accumulate`.
// section: wgmma.mma_async; from sm_90a
template <int kTransA = 0, int kTransB = 0>
__device__ __forceinline__ void wgmma_m64n8k16_f32_bf16(float (&d)[4], uint64_t a, uint64_t b,
                                                        bool accumulate) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %6, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 " MLA_TEXT_4
        ", %4, %5, p, 1, 1, %7, %8;\n"
        "}"
        : MLA_OUT_4(d, 0)
        : "l"(a), "l"(b), "r"(static_cast<uint32_t>(accumulate)), "n"(kTransA), "n"(kTransB)
        : "memory");
}
template <int kTransA = 0, int kTransB = 0>
__device__ __forceinline__ void wgmma_m64n16k16_f32_bf16(float (&d)[8], uint64_t a, uint64_t b,
                                                         bool accumulate) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %10, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 " MLA_TEXT_8
        ", %8, %9, p, 1, 1, %11, %12;\n"
        "}"
        : MLA_OUT_8(d, 0)
        : "l"(a), "l"(b), "r"(static_cast<uint32_t>(accumulate)), "n"(kTransA), "n"(kTransB)
        : "memory");
}
template <int kTransA = 0, int kTransB = 0>
__device__ __forceinline__ void wgmma_m64n32k16_f32_bf16(float (&d)[16], uint64_t a, uint64_t b,
                                                         bool accumulate) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %18, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 " MLA_TEXT_16
        ", %16, %17, p, 1, 1, %19, %20;\n"
        "}"
        : MLA_OUT_16(d, 0)
        : "l"(a), "l"(b), "r"(static_cast<uint32_t>(accumulate)), "n"(kTransA), "n"(kTransB)
        : "memory");
}
template <int kTransA = 0, int kTransB = 0>
__device__ __forceinline__ void wgmma_m64n64k16_f32_bf16(float (&d)[32], uint64_t a, uint64_t b,
                                                         bool accumulate) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " MLA_TEXT_32
        ", %32, %33, p, 1, 1, %35, %36;\n"
        "}"
        : MLA_OUT_32(d, 0)
        : "l"(a), "l"(b), "r"(static_cast<uint32_t>(accumulate)), "n"(kTransA), "n"(kTransB)
        : "memory");
}
template <int kTransA = 0, int kTransB = 0>
__device__ __forceinline__ void wgmma_m64n128k16_f32_bf16(float (&d)[64], uint64_t a, uint64_t b,
                                                          bool accumulate) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " MLA_TEXT_64
        ", %64, %65, p, 1, 1, %67, %68;\n"
        "}"
        : MLA_OUT_64(d, 0)
        : "l"(a), "l"(b), "r"(static_cast<uint32_t>(accumulate)), "n"(kTransA), "n"(kTransB)
        : "memory");
}
template <int kTransA = 0, int kTransB = 0>
__device__ __forceinline__ void wgmma_m64n256k16_f32_bf16(float (&d)[128], uint64_t a, uint64_t b,
                                                          bool accumulate) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %130, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 " MLA_TEXT_128
        ", %128, %129, p, 1, 1, %131, %132;\n"
        "}"
        : MLA_OUT_128(d, 0)
        : "l"(a), "l"(b), "r"(static_cast<uint32_t>(accumulate)), "n"(kTransA), "n"(kTransB)
        : "memory");
}

// The same with A in registers: register j of a thread holds values 2 j and 2 j + 1 of its fragment, whose
// rows and columns are those of accumulators 0 … 7. The registers stay untouched until the wait. All four
// warps.
// section: wgmma.mma_async; from sm_90a
template <int kTransB = 0>
__device__ __forceinline__ void wgmma_m64n16k16_f32_bf16(float (&d)[8], const uint32_t (&a)[4], uint64_t b,
                                                         bool accumulate) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %13, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 " MLA_TEXT_8
        ", {%8, %9, %10, %11}, %12, p, 1, 1, %14;\n"
        "}"
        : MLA_OUT_8(d, 0)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<uint32_t>(accumulate)),
          "n"(kTransB)
        : "memory");
}
template <int kTransB = 0>
__device__ __forceinline__ void wgmma_m64n32k16_f32_bf16(float (&d)[16], const uint32_t (&a)[4], uint64_t b,
                                                         bool accumulate) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %21, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 " MLA_TEXT_16
        ", {%16, %17, %18, %19}, %20, p, 1, 1, %22;\n"
        "}"
        : MLA_OUT_16(d, 0)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<uint32_t>(accumulate)),
          "n"(kTransB)
        : "memory");
}
template <int kTransB = 0>
__device__ __forceinline__ void wgmma_m64n64k16_f32_bf16(float (&d)[32], const uint32_t (&a)[4], uint64_t b,
                                                         bool accumulate) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " MLA_TEXT_32
        ", {%32, %33, %34, %35}, %36, p, 1, 1, %38;\n"
        "}"
        : MLA_OUT_32(d, 0)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<uint32_t>(accumulate)),
          "n"(kTransB)
        : "memory");
}
template <int kTransB = 0>
__device__ __forceinline__ void wgmma_m64n128k16_f32_bf16(float (&d)[64], const uint32_t (&a)[4], uint64_t b,
                                                          bool accumulate) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %69, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " MLA_TEXT_64
        ", {%64, %65, %66, %67}, %68, p, 1, 1, %70;\n"
        "}"
        : MLA_OUT_64(d, 0)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<uint32_t>(accumulate)),
          "n"(kTransB)
        : "memory");
}
template <int kTransB = 0>
__device__ __forceinline__ void wgmma_m64n256k16_f32_bf16(float (&d)[128], const uint32_t (&a)[4], uint64_t b,
                                                          bool accumulate) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %133, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 " MLA_TEXT_128
        ", {%128, %129, %130, %131}, %132, p, 1, 1, %134;\n"
        "}"
        : MLA_OUT_128(d, 0)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<uint32_t>(accumulate)),
          "n"(kTransB)
        : "memory");
}

// FP8 E4M3, K = 32, both K-major. Hopper keeps 13 bits after the point of the sum while it accumulates: add d
// to float32 registers and start afresh (`accumulate` false) every 128 elements of K. All four warps.
// section: wgmma.mma_async; from sm_90a
__device__ __forceinline__ void wgmma_m64n64k32_f32_e4m3(float (&d)[32], uint64_t a, uint64_t b,
                                                         bool accumulate) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 " MLA_TEXT_32
        ", %32, %33, p, 1, 1;\n"
        "}"
        : MLA_OUT_32(d, 0)
        : "l"(a), "l"(b), "r"(static_cast<uint32_t>(accumulate))
        : "memory");
}
__device__ __forceinline__ void wgmma_m64n128k32_f32_e4m3(float (&d)[64], uint64_t a, uint64_t b,
                                                          bool accumulate) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 " MLA_TEXT_64
        ", %64, %65, p, 1, 1;\n"
        "}"
        : MLA_OUT_64(d, 0)
        : "l"(a), "l"(b), "r"(static_cast<uint32_t>(accumulate))
        : "memory");
}

#undef MLA_OUT_4
#undef MLA_OUT_8
#undef MLA_OUT_16
#undef MLA_OUT_32
#undef MLA_OUT_64
#undef MLA_OUT_128
#undef MLA_TEXT_4
#undef MLA_TEXT_8
#undef MLA_TEXT_16
#undef MLA_TEXT_32
#undef MLA_TEXT_64
#undef MLA_TEXT_128

}  // namespace mla
