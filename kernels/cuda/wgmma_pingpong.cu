// Two warpgroups take turns at the tensor cores: while one multiplies, the other computes exponentials.
//
//   q [m, 64] and keys [64, 64] bfloat16, rows contiguous -> w [m, 64] float32 = 2^(scale * q times keys^T)
//
// One CTA makes all m / 64 tiles of w. Warpgroup 0 copies everything into shared memory; warpgroup 1 makes
// the tiles 0, 2, 4 …, warpgroup 2 the tiles 1, 3, 5 …. The first gives registers away, the others take them:
// 40 + 232 + 232 = 3 * 168.
//
//   barrier      arrivals                         a phase ends when                    who waits
//   full         1 (thread 0) + all bytes         every tile has landed                warpgroups 1 and 2
//   named 1, 2   256: 128 arrive, 128 wait        the other's multiplies have ended    warpgroup 1, 2
//
// The named barriers are for speed: without them both multiply at once, and then both compute exponentials.
// Launch: grid 1, block 384, dynamic shared memory 8192 * (1 + m / 64); m a multiple of 64 up to 1,728.
// Maps: boxes of 64 x 64, swizzle 128B.
#include "fence.cuh"
#include "mbarrier.cuh"
#include "named_barrier.cuh"
#include "names.cuh"
#include "setmaxnreg.cuh"
#include "tma.cuh"
#include "wgmma.cuh"

using namespace mla;

constexpr int kTileBytes = 64 * 128, kGroupBytes = 8 * 128;
constexpr uint32_t kTurn = 1;  // named barriers kTurn and kTurn + 1

__device__ __forceinline__ void multiply(const uint8_t* q, const uint8_t* keys, float (&d)[32]) {
    const uint64_t a = matrix_descriptor<Swizzle::k128B, kGroupBytes>(q);
    const uint64_t b = matrix_descriptor<Swizzle::k128B, kGroupBytes>(keys);
    wgmma_fence(d);
#pragma unroll
    for (uint32_t slice = 0; slice < 4; ++slice)
        wgmma_m64n64k16_f32_bf16(d, advance(a, 32 * slice), advance(b, 32 * slice), slice > 0);
    wgmma_commit_group();
    wgmma_wait_group<0>(d);
}

extern "C" __global__ void __launch_bounds__(384, 1)
    wgmma_pingpong(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap keys_map,
                   float* w, int m, float scale) {
    extern __shared__ __align__(1024) uint8_t tiles[];  // keys, then q
    __shared__ Mbarrier full;
    const int count = m / 64;
    if (threadIdx.x == 0) {
        mbarrier_init(&full, 1);
        fence_mbarrier_init();
        name_shared("keys", tiles, kTileBytes);
        name_shared("q", tiles + kTileBytes, count * kTileBytes);
    }
    __syncthreads();

    if (threadIdx.x < 128) {
        name_role("copy");
        setmaxnreg_dec<40>();
        if (threadIdx.x > 0) return;
        mbarrier_arrive_expect_tx(&full, (1 + count) * kTileBytes);
        cp_async_bulk_tensor_2d_shared_global(tiles, &keys_map, 0, 0, &full);
        for (int tile = 0; tile < count; ++tile)
            cp_async_bulk_tensor_2d_shared_global(tiles + (1 + tile) * kTileBytes, &q_map, 0, 64 * tile,
                                                  &full);
        return;
    }

    setmaxnreg_inc<232>();
    const uint32_t mine = threadIdx.x / 128 - 1, thread = threadIdx.x % 128;
    if (mine == 0) {
        name_role("even tiles");
    } else {
        name_role("odd tiles");
    }
    mbarrier_wait_parity(&full, 0);
    for (int tile = mine; tile < count; tile += 2) {
        float d[32] = {};
        if (tile > 0) bar_sync(kTurn + mine, 256);
        multiply(tiles + (1 + tile) * kTileBytes, tiles, d);
        if (tile + 1 < count) bar_arrive(kTurn + (mine ^ 1), 256);
#pragma unroll
        for (uint32_t index = 0; index < 32; index += 2) {
            const uint32_t row = 64 * tile + accumulator_row(thread, index);
            float* const pair = &w[64 * row + accumulator_column(thread, index)];
            *reinterpret_cast<float2*>(pair) = {exp2f(scale * d[index]), exp2f(scale * d[index + 1])};
        }
    }
}
