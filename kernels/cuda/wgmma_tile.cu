// One warpgroup multiplies tiles: TMA brings them swizzled, wgmma reads them through descriptors.
//
//   a [m, k] bfloat16 and b [n, k] bfloat16, both with k innermost -> c [m, n] float32 = a times b transposed
//
// Each CTA makes a 64 x 64 tile of c. For each 64 elements of k: two boxes of 64 x 64 come in with swizzle
// 128B (a row is 128 bytes), then a chain of four m64n64k16 multiplies. One buffer: the copies and the
// multiplies take turns.
//
//   barrier   arrivals                           a phase ends when           who waits
//   full      1 (thread 0) + 16384 bytes         both tiles have landed      all 128 threads
//
// Shared memory: 8192 bytes each for a and b, aligned to the 1024 bytes after which the swizzle repeats.
// Launch: grid (n / 64, ceil(m / 64)), block 128, no dynamic shared memory; n and k are multiples of 64.
#include "fence.cuh"
#include "mbarrier.cuh"
#include "names.cuh"
#include "tma.cuh"
#include "wgmma.cuh"

using namespace mla;

constexpr uint32_t BLOCK_M = 64, BLOCK_N = 64, BLOCK_K = 64, MMA_K = 16;
constexpr uint32_t kRowBytes = BLOCK_K * 2;
static_assert(kRowBytes == 128, "BLOCK_K: 64, so that a row is one span of swizzle 128B");

struct SharedPlan {
    alignas(1024) uint16_t a[BLOCK_M][BLOCK_K];
    alignas(1024) uint16_t b[BLOCK_N][BLOCK_K];
    Mbarrier full;
};
constexpr uint32_t kTileBytes = sizeof(SharedPlan::a) + sizeof(SharedPlan::b);
static_assert(kTileBytes == 16384, "two tiles of 64 rows of 128 bytes");

extern "C" __global__ void __launch_bounds__(128)
    wgmma_tile(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map, float* c,
               int m, int n, int k) {
    __shared__ SharedPlan shared;
    const int first_row = blockIdx.y * BLOCK_M, first_column = blockIdx.x * BLOCK_N;
    if (threadIdx.x == 0) {
        name_shared("tile of a", shared.a, sizeof(shared.a));
        name_shared("tile of b", shared.b, sizeof(shared.b));
        name_shared("full", &shared.full, sizeof(Mbarrier));
        mbarrier_init(&shared.full, 1);
        fence_mbarrier_init();
    }
    __syncthreads();

    float d[BLOCK_N / 2] = {};
    uint32_t parity = 0;
    for (int k_block = 0; k_block < k; k_block += BLOCK_K) {
        // Copy a tile of a and a tile of b.
        if (threadIdx.x == 0) {
            mbarrier_arrive_expect_tx(&shared.full, kTileBytes);
            cp_async_bulk_tensor_2d_shared_global(shared.a, &a_map, k_block, first_row, &shared.full);
            cp_async_bulk_tensor_2d_shared_global(shared.b, &b_map, k_block, first_column, &shared.full);
        }
        mbarrier_wait_parity(&shared.full, parity);
        parity ^= 1;

        // Multiply: groups of 8 rows are 1024 bytes apart, a slice of 16 elements of k is 32 bytes further
        // in.
        const uint64_t a = matrix_descriptor<Swizzle::k128B, 8 * kRowBytes>(shared.a);
        const uint64_t b = matrix_descriptor<Swizzle::k128B, 8 * kRowBytes>(shared.b);
        wgmma_fence(d);
#pragma unroll
        for (uint32_t slice = 0; slice < BLOCK_K / MMA_K; ++slice) {
            const uint32_t bytes = slice * MMA_K * 2;
            wgmma_m64n64k16_f32_bf16(d, advance(a, bytes), advance(b, bytes), k_block + slice > 0);
        }
        wgmma_commit_group();
        wgmma_wait_group<0>(d);
        __syncthreads();  // all have read the tiles: thread 0 may overwrite them
    }

    // Store the fragment: two neighbouring columns at a time.
#pragma unroll
    for (uint32_t index = 0; index < BLOCK_N / 2; index += 2) {
        const int row = first_row + accumulator_row(threadIdx.x, index);
        const int column = first_column + accumulator_column(threadIdx.x, index);
        if (row < m)
            *reinterpret_cast<float2*>(&c[static_cast<int64_t>(row) * n + column]) = {d[index], d[index + 1]};
    }
}
