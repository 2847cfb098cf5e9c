// A ring of buffers between a warp that copies and a warpgroup that multiplies: copies of later blocks of k
// run while earlier ones are multiplied, and one multiply chain runs while the next is issued.
//
//   a [m, k] bfloat16 and b [n, k] bfloat16, both with k innermost -> c [m, n] float32 = a times b transposed
//
// Each CTA makes a 64 x 64 tile of c. Warps 0 to 3 multiply, warp 4 copies.
//
//   barrier       arrivals                            a phase ends when                  who waits
//   full[stage]   1 (the copying lane) + 16384 bytes  both tiles have landed             warps 0 to 3
//   empty[stage]  128 (warps 0 to 3)                  the stage's multiplies have ended  the copying lane
//
// Shared memory: kStages * 16384 bytes of tiles and 16 bytes of barriers a stage, dynamic.
// Launch: grid (n / 64, m / 64), block 160, dynamic shared memory 16400 * kStages; m, n and k are multiples
// of 64. Maps: boxes of 64 x 64, swizzle 128B.
#include "fence.cuh"
#include "mbarrier.cuh"
#include "names.cuh"
#include "tma.cuh"
#include "warp.cuh"
#include "wgmma.cuh"

using namespace mla;

constexpr uint32_t kStages = 2;
constexpr uint32_t BLOCK = 64, kGroupBytes = 8 * 128, kTileBytes = 64 * 128;
static_assert(kStages >= 2, "kStages: 2 or more; a stage is given back while the next one is multiplied");

struct SharedPlan {
    uint16_t a[kStages][BLOCK][BLOCK];
    uint16_t b[kStages][BLOCK][BLOCK];
    Mbarrier full[kStages], empty[kStages];
};
static_assert(sizeof(SharedPlan) == kStages * (2 * kTileBytes + 16), "tiles, then barriers");

__device__ void copy(SharedPlan& shared, const CUtensorMap* a_map, const CUtensorMap* b_map, int blocks) {
    for (int i = 0; i < blocks; ++i) {
        const uint32_t stage = i % kStages, round = i / kStages;
        mbarrier_wait_parity(&shared.empty[stage], ~round & 1);
        mbarrier_arrive_expect_tx(&shared.full[stage], 2 * kTileBytes);
        cp_async_bulk_tensor_2d_shared_global(shared.a[stage], a_map, i * BLOCK, blockIdx.y * BLOCK,
                                              &shared.full[stage]);
        cp_async_bulk_tensor_2d_shared_global(shared.b[stage], b_map, i * BLOCK, blockIdx.x * BLOCK,
                                              &shared.full[stage]);
    }
}

__device__ void multiply(SharedPlan& shared, int blocks, float (&d)[32]) {
    for (int i = 0; i < blocks; ++i) {
        const uint32_t stage = i % kStages, round = i / kStages;
        mbarrier_wait_parity(&shared.full[stage], round & 1);
        const uint64_t a = matrix_descriptor<Swizzle::k128B, kGroupBytes>(shared.a[stage]);
        const uint64_t b = matrix_descriptor<Swizzle::k128B, kGroupBytes>(shared.b[stage]);
        wgmma_fence(d);
#pragma unroll
        for (uint32_t slice = 0; slice < 4; ++slice)
            wgmma_m64n64k16_f32_bf16(d, advance(a, 32 * slice), advance(b, 32 * slice), i + slice > 0);
        wgmma_commit_group();
        // All but the chain just issued have ended: the stage before may be overwritten.
        wgmma_wait_group<1>(d);
        if (i > 0) mbarrier_arrive(&shared.empty[(i - 1) % kStages]);
    }
    wgmma_wait_group<0>(d);
}

extern "C" __global__ void __launch_bounds__(160)
    wgmma_ring(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map, float* c,
               int n, int k) {
    extern __shared__ __align__(1024) uint8_t bytes[];
    SharedPlan& shared = *reinterpret_cast<SharedPlan*>(bytes);
    if (threadIdx.x == 0) {
        for (uint32_t stage = 0; stage < kStages; ++stage) {
            mbarrier_init(&shared.full[stage], 1);
            mbarrier_init(&shared.empty[stage], 128);
        }
        name_shared_array("full", shared.full, sizeof(Mbarrier), kStages);
        name_shared_array("empty", shared.empty, sizeof(Mbarrier), kStages);
        name_shared_array("a", shared.a, kTileBytes, kStages);
        name_shared_array("b", shared.b, kTileBytes, kStages);
        fence_mbarrier_init();
    }
    __syncthreads();

    if (threadIdx.x >= 128) {
        name_role("copy");
        if (elect_sync()) copy(shared, &a_map, &b_map, k / BLOCK);
        return;
    }
    name_role("multiply");
    float d[32] = {};
    multiply(shared, k / BLOCK, d);
#pragma unroll
    for (uint32_t index = 0; index < 32; index += 2) {
        const int row = blockIdx.y * BLOCK + accumulator_row(threadIdx.x, index);
        const int column = blockIdx.x * BLOCK + accumulator_column(threadIdx.x, index);
        *reinterpret_cast<float2*>(&c[static_cast<int64_t>(row) * n + column]) = {d[index], d[index + 1]};
    }
}
