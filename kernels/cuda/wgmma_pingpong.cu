// Two warpgroups take turns at the tensor cores: while one multiplies, the other stores its tile.
//
//   a [m, k] bfloat16 and b [64, k] bfloat16, both with k innermost -> c [m, 64] float32 = a times b
//   transposed
//
// One CTA makes all m / 64 tiles of c. Warpgroup 0 copies; warpgroup 1 multiplies the tiles 0, 2, 4 …,
// warpgroup 2 the tiles 1, 3, 5 …. It gives registers away, they take them: 40 + 232 + 232 = 3 * 168.
//
//   barrier       arrivals                            a phase ends when                  who waits
//   full[stage]   1 (the copying lane) + 16384 bytes  both tiles have landed             one of warpgroups 1,
//   2 empty[stage]  128 (one of warpgroups 1, 2)        the stage's multiplies have ended  the copying lane
//   named 1, 2    256: 128 arrive, 128 wait           the other's multiplies have ended  warpgroup 1, 2
//
// Launch: grid 1, block 384, dynamic shared memory 16400 * kStages; m and k are multiples of 64. Maps: boxes
// of 64 x 64, swizzle 128B.
#include "fence.cuh"
#include "mbarrier.cuh"
#include "named_barrier.cuh"
#include "names.cuh"
#include "setmaxnreg.cuh"
#include "tma.cuh"
#include "wgmma.cuh"

using namespace mla;

constexpr uint32_t kStages = 4;
constexpr uint32_t BLOCK = 64, kGroupBytes = 8 * 128, kTileBytes = 64 * 128;
constexpr uint32_t kTurn = 1;  // named barriers kTurn and kTurn + 1

struct SharedPlan {
    uint16_t a[kStages][BLOCK][BLOCK];
    uint16_t b[kStages][BLOCK][BLOCK];
    Mbarrier full[kStages], empty[kStages];
};

__device__ void copy(SharedPlan& shared, const CUtensorMap* a_map, const CUtensorMap* b_map, int tiles,
                     int blocks) {
    for (int i = 0; i < tiles * blocks; ++i) {
        const uint32_t stage = i % kStages, round = i / kStages;
        mbarrier_wait_parity(&shared.empty[stage], ~round & 1);
        mbarrier_arrive_expect_tx(&shared.full[stage], 2 * kTileBytes);
        cp_async_bulk_tensor_2d_shared_global(shared.a[stage], a_map, i % blocks * BLOCK, i / blocks * BLOCK,
                                              &shared.full[stage]);
        cp_async_bulk_tensor_2d_shared_global(shared.b[stage], b_map, i % blocks * BLOCK, 0,
                                              &shared.full[stage]);
    }
}

// One tile: the blocks of k that are copies `first` … `first + blocks - 1`.
__device__ void multiply(SharedPlan& shared, int first, int blocks, float (&d)[32]) {
    for (int i = first; i < first + blocks; ++i) {
        const uint32_t stage = i % kStages, round = i / kStages;
        mbarrier_wait_parity(&shared.full[stage], round & 1);
        const uint64_t a = matrix_descriptor<Swizzle::k128B, kGroupBytes>(shared.a[stage]);
        const uint64_t b = matrix_descriptor<Swizzle::k128B, kGroupBytes>(shared.b[stage]);
        wgmma_fence(d);
#pragma unroll
        for (uint32_t slice = 0; slice < 4; ++slice)
            wgmma_m64n64k16_f32_bf16(d, advance(a, 32 * slice), advance(b, 32 * slice),
                                     i - first + slice > 0);
        wgmma_commit_group();
        wgmma_wait_group<1>(d);
        if (i > first) mbarrier_arrive(&shared.empty[(i - 1) % kStages]);
    }
    wgmma_wait_group<0>(d);
    mbarrier_arrive(&shared.empty[(first + blocks - 1) % kStages]);
}

extern "C" __global__ void __launch_bounds__(384, 1)
    wgmma_pingpong(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map,
                   float* c, int m, int k) {
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

    const int tiles = m / BLOCK, blocks = k / BLOCK;
    if (threadIdx.x < 128) {
        name_role("copy");
        setmaxnreg_dec<40>();
        if (threadIdx.x == 0) copy(shared, &a_map, &b_map, tiles, blocks);
        return;
    }
    setmaxnreg_inc<232>();
    const uint32_t mine = threadIdx.x / 128 - 1, thread = threadIdx.x % 128;
    if (mine == 0) {
        name_role("even tiles");
    } else {
        name_role("odd tiles");
    }
    for (int tile = mine; tile < tiles; tile += 2) {
        float d[32] = {};
        if (tile > 0) bar_sync(kTurn + mine, 256);
        multiply(shared, tile * blocks, blocks, d);
        if (tile + 1 < tiles) bar_arrive(kTurn + (mine ^ 1), 256);
#pragma unroll
        for (uint32_t index = 0; index < 32; index += 2) {
            const uint32_t row = tile * BLOCK + accumulator_row(thread, index);
            *reinterpret_cast<float2*>(&c[row * BLOCK + accumulator_column(thread, index)]) = {d[index],
                                                                                               d[index + 1]};
        }
    }
}
