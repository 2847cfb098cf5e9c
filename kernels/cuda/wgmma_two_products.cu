// Two multiplies in a row, the second with the first's result as its A: out = bf16(q times kv^T) times kv.
//
//   q [64, 64] and kv [64, 64] bfloat16, rows contiguous -> out [64, 64] float32
//
// This is attention without its softmax. kv lies in shared memory once: the first product reads it as keys
// (K-major, along the dimensions), the second as values (N-major, along the tokens). The scores never leave
// registers: accumulators 8 j … 8 j + 7 of a thread, in pairs, are its fragment of A for tokens 16 j … 16 j +
// 15.
//
//   barrier   arrivals                           a phase ends when           who waits
//   full      1 (thread 0) + 16384 bytes         both tiles have landed      all 128 threads
//
// Launch: grid 1, block 128, no dynamic shared memory. Maps: boxes of 64 x 64, swizzle 128B.
#include "convert.cuh"
#include "fence.cuh"
#include "mbarrier.cuh"
#include "tma.cuh"
#include "wgmma.cuh"

using namespace mla;

constexpr uint32_t kRowBytes = 128, kGroupBytes = 8 * kRowBytes, kTileBytes = 64 * kRowBytes;

struct SharedPlan {
    alignas(1024) uint16_t q[64][64];
    alignas(1024) uint16_t kv[64][64];
    Mbarrier full;
};

extern "C" __global__ void __launch_bounds__(128)
    wgmma_two_products(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap kv_map,
                       float* out) {
    __shared__ SharedPlan shared;
    if (threadIdx.x == 0) {
        mbarrier_init(&shared.full, 1);
        fence_mbarrier_init();
        mbarrier_arrive_expect_tx(&shared.full, 2 * kTileBytes);
        cp_async_bulk_tensor_2d_shared_global(shared.q, &q_map, 0, 0, &shared.full);
        cp_async_bulk_tensor_2d_shared_global(shared.kv, &kv_map, 0, 0, &shared.full);
    }
    __syncthreads();
    mbarrier_wait_parity(&shared.full, 0);

    // Scores: both operands K-major, a slice of 16 dimensions is 32 bytes further in.
    const uint64_t q = matrix_descriptor<Swizzle::k128B, kGroupBytes>(shared.q);
    const uint64_t keys = matrix_descriptor<Swizzle::k128B, kGroupBytes>(shared.kv);
    float scores[32] = {};
    wgmma_fence(scores);
#pragma unroll
    for (uint32_t slice = 0; slice < 4; ++slice)
        wgmma_m64n64k16_f32_bf16(scores, advance(q, 32 * slice), advance(keys, 32 * slice), slice > 0);
    wgmma_commit_group();
    wgmma_wait_group<0>(scores);

    // Weights: two neighbouring accumulators make one register of A.
    uint32_t weights[4][4];
#pragma unroll
    for (uint32_t slice = 0; slice < 4; ++slice)
#pragma unroll
        for (uint32_t pair = 0; pair < 4; ++pair)
            weights[slice][pair] =
                cvt_rn_bf16x2_f32(scores[8 * slice + 2 * pair], scores[8 * slice + 2 * pair + 1]);

    // Output: B is N-major, a slice of 16 tokens is 16 rows further on.
    const uint64_t values = matrix_descriptor<Swizzle::k128B, kGroupBytes, kGroupBytes>(shared.kv);
    float d[32] = {};
    wgmma_fence(d);
#pragma unroll
    for (uint32_t slice = 0; slice < 4; ++slice)
        wgmma_m64n64k16_f32_bf16<1>(d, weights[slice], advance(values, 16 * kRowBytes * slice), slice > 0);
    wgmma_commit_group();
    wgmma_wait_group<0>(d);

#pragma unroll
    for (uint32_t index = 0; index < 32; index += 2) {
        const uint32_t row = accumulator_row(threadIdx.x, index);
        const uint32_t column = accumulator_column(threadIdx.x, index);
        *reinterpret_cast<float2*>(&out[64 * row + column]) = {d[index], d[index + 1]};
    }
}
