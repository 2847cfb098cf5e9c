// Both operands of wgmma in shared memory, two stages: warp 4 copies, warps 0 to 3 multiply.
//
//   barrier       arrivals                    a phase ends when                  who waits
//   full[stage]   1 (warp 4) + 9216 bytes     both tiles have landed             warps 0 to 3
//   empty[stage]  4 (lane 0 of each warp)     the stage's multiplies have ended  warp 4
//
// a [64, k] and b [8, k] bfloat16, boxes 64 x 64 and 8 x 64, swizzle 128B -> c [64, 8] float32 = a times b
// transposed. Launch: one CTA of 160 threads.
#include "fence.cuh"
#include "mbarrier.cuh"
#include "names.cuh"
#include "tma.cuh"
#include "wgmma.cuh"

using namespace mla;

constexpr uint32_t kStages = 2;

extern "C" __global__ void __launch_bounds__(160)
    wgmma_shared(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map,
                 float* c, int blocks) {
    __shared__ alignas(1024) uint16_t a[kStages][64][64], b[kStages][8][64];
    __shared__ Mbarrier full[kStages], empty[kStages];
    if (threadIdx.x == 0) {
#pragma unroll 1
        for (uint32_t stage = 0; stage < kStages; ++stage) {
            mbarrier_init(&full[stage], 1);
            mbarrier_init(&empty[stage], 4);
        }
        fence_mbarrier_init();
    }
    __syncthreads();
    if (threadIdx.x >= 128) {
        name_role("copy");
        if (threadIdx.x == 128) {
#pragma unroll 1
            for (int block = 0; block < blocks; ++block) {
                const uint32_t stage = block % kStages, round = block / kStages;
                mbarrier_wait_parity(&empty[stage], ~round & 1);
                mbarrier_arrive_expect_tx(&full[stage], sizeof(a[0]) + sizeof(b[0]));
                cp_async_bulk_tensor_2d_shared_global(a[stage], &a_map, 64 * block, 0, &full[stage]);
                cp_async_bulk_tensor_2d_shared_global(b[stage], &b_map, 64 * block, 0, &full[stage]);
            }
        }
        return;
    }
    name_role("multiply");
    float d[4] = {};
#pragma unroll 1
    for (int block = 0; block < blocks; ++block) {
        const uint32_t stage = block % kStages, round = block / kStages;
        mbarrier_wait_parity(&full[stage], round & 1);
        const uint64_t left = matrix_descriptor<Swizzle::k128B, 1024>(a[stage]);
        const uint64_t right = matrix_descriptor<Swizzle::k128B, 1024>(b[stage]);
        wgmma_fence(d);
#pragma unroll
        for (uint32_t slice = 0; slice < 4; ++slice)
            wgmma_m64n8k16_f32_bf16(d, advance(left, 32 * slice), advance(right, 32 * slice),
                                    block + slice > 0);
        wgmma_commit_group();
        wgmma_wait_group<1>(d);  // all but the chain just issued have ended
        if (block > 0 && threadIdx.x % 32 == 0) mbarrier_arrive(&empty[(block - 1) % kStages]);
    }
    wgmma_wait_group<0>(d);
    for (uint32_t index = 0; index < 4; ++index)
        c[accumulator_row(threadIdx.x, index) * 8 + accumulator_column(threadIdx.x, index)] = d[index];
}
