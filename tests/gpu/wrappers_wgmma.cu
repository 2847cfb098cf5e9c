// What the wrappers do, shown by small kernels that run on the emulator and on a GPU: every wgmma of the
// header layer on one tile.
#include "fence.cuh"
#include "wgmma.cuh"

using namespace mla;

// Rows of 128 bytes into shared memory, swizzled as TMA would.
__device__ void load_rows(uint8_t* tile, const uint8_t* rows, uint32_t count) {
    for (uint32_t byte = threadIdx.x * 16; byte < count * 128; byte += 128 * 16) {
        const uint32_t place = byte ^ (byte >> 3 & 0x70);
        *reinterpret_cast<uint4*>(tile + place) = *reinterpret_cast<const uint4*>(rows + byte);
    }
}

enum class From { kShared, kRegisters };

// Block 128. a: 64 rows of 128 bytes, b: kRows rows of 128 bytes, out [64, kN]: four slices of K, kStep bytes
// apart.
template <int kN, int kRows, int kStep, From kA, typename Multiply>
__device__ void multiply_tile(const uint8_t* a, const uint8_t* b, float* out, Multiply multiply) {
    __shared__ alignas(1024) uint8_t a_tile[64 * 128], b_tile[kRows * 128];
    load_rows(a_tile, a, 64);
    load_rows(b_tile, b, kRows);
    fence_proxy_async_shared_cta();
    __syncthreads();

    uint32_t fragments[4][4];  // of the four slices, where A comes from registers
    for (int slice = 0; kA == From::kRegisters && slice < 4; ++slice) {
        for (int j = 0; j < 4; ++j) {
            const uint32_t row = accumulator_row(threadIdx.x, 2 * j),
                           k = accumulator_column(threadIdx.x, 2 * j);
            fragments[slice][j] = *reinterpret_cast<const uint32_t*>(a + row * 128 + slice * 32 + k * 2);
        }
    }
    float d[kN / 2];
    for (int i = 0; i < kN / 2; ++i)
        d[i] = 1e30f;  // left out by the first multiply
    const uint64_t a_matrix = matrix_descriptor<Swizzle::k128B, 1024>(a_tile);
    const uint64_t b_matrix = matrix_descriptor<Swizzle::k128B, 1024>(b_tile);
    wgmma_fence(d);
#pragma unroll
    for (int slice = 0; slice < 4; ++slice) {
        const uint64_t b_slice = advance(b_matrix, slice * kStep);
        if constexpr (kA == From::kShared) {
            multiply(d, advance(a_matrix, slice * kStep), b_slice, slice > 0);
        } else {
            multiply(d, fragments[slice], b_slice, slice > 0);
        }
    }
    wgmma_commit_group();
    wgmma_wait_group<0>(d);
    for (int i = 0; i < kN / 2; ++i) {
        out[accumulator_row(threadIdx.x, i) * kN + accumulator_column(threadIdx.x, i)] = d[i];
    }
}

#define TILE_KERNEL(name, n, rows, step, from, multiply)                                                     \
    struct name##_multiply {                                                                                 \
        __device__ void operator()(auto& d, const auto& left, uint64_t right, bool more) const {             \
            multiply(d, left, right, more);                                                                  \
        }                                                                                                    \
    };                                                                                                       \
    extern "C" __global__ void __launch_bounds__(128) name(const uint8_t* a, const uint8_t* b, float* out) { \
        multiply_tile<n, rows, step, from>(a, b, out, name##_multiply{});                                    \
    }
TILE_KERNEL(bf16_n8, 8, 8, 32, From::kShared, wgmma_m64n8k16_f32_bf16)
TILE_KERNEL(bf16_n16, 16, 16, 32, From::kShared, wgmma_m64n16k16_f32_bf16)
TILE_KERNEL(bf16_n32, 32, 32, 32, From::kShared, wgmma_m64n32k16_f32_bf16)
TILE_KERNEL(bf16_n64, 64, 64, 32, From::kShared, wgmma_m64n64k16_f32_bf16)
TILE_KERNEL(bf16_n128, 128, 128, 32, From::kShared, wgmma_m64n128k16_f32_bf16)
TILE_KERNEL(bf16_n256, 256, 256, 32, From::kShared, wgmma_m64n256k16_f32_bf16)
TILE_KERNEL(bf16_n64_transposed, 64, 64, 2048, From::kShared, (wgmma_m64n64k16_f32_bf16<1, 1>))
TILE_KERNEL(bf16_n16_registers, 16, 16, 32, From::kRegisters, wgmma_m64n16k16_f32_bf16)
TILE_KERNEL(bf16_n32_registers, 32, 32, 32, From::kRegisters, wgmma_m64n32k16_f32_bf16)
TILE_KERNEL(bf16_n64_registers, 64, 64, 32, From::kRegisters, wgmma_m64n64k16_f32_bf16)
TILE_KERNEL(bf16_n256_registers, 256, 256, 32, From::kRegisters, wgmma_m64n256k16_f32_bf16)
TILE_KERNEL(e4m3_n64, 64, 64, 32, From::kShared, wgmma_m64n64k32_f32_e4m3)
TILE_KERNEL(e4m3_n128, 128, 128, 32, From::kShared, wgmma_m64n128k32_f32_e4m3)
