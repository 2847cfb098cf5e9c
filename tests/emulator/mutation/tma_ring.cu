// A ring of three boxes: warp 0 copies them by TMA, warps 1 and 2 add them up.
//
//   barrier       arrivals                   a phase ends when           who waits
//   full[stage]   1 (warp 0) + 1024 bytes    the box has landed          warps 1 and 2
//   empty[stage]  2 (lane 0 of each warp)    both warps have read it     warp 0
//
// map: float32 [8 steps, 32], boxes of 8 x 32; out [steps, 64]. Launch: one CTA of 96 threads.
#include "fence.cuh"
#include "mbarrier.cuh"
#include "names.cuh"
#include "tma.cuh"

using namespace mla;

constexpr uint32_t kStages = 3, kBoxBytes = 8 * 32 * 4;

extern "C" __global__ void __launch_bounds__(96)
    tma_ring(const __grid_constant__ CUtensorMap map, float* out, int steps) {
    __shared__ alignas(128) float box[kStages][256];
    __shared__ Mbarrier full[kStages], empty[kStages];
    if (threadIdx.x == 0) {
#pragma unroll 1
        for (uint32_t stage = 0; stage < kStages; ++stage) {
            mbarrier_init(&full[stage], 1);
            mbarrier_init(&empty[stage], 2);
        }
        fence_mbarrier_init();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        name_role("copy");
#pragma unroll 1
        for (int step = 0; step < steps; ++step) {
            const uint32_t stage = step % kStages, round = step / kStages;
            mbarrier_wait_parity(&empty[stage], ~round & 1);
            mbarrier_arrive_expect_tx(&full[stage], kBoxBytes);
            cp_async_bulk_tensor_2d_shared_global(box[stage], &map, 0, 8 * step, &full[stage]);
        }
    } else if (threadIdx.x >= 32) {
        name_role("add");
        const uint32_t thread = threadIdx.x - 32;
#pragma unroll 1
        for (int step = 0; step < steps; ++step) {
            const uint32_t stage = step % kStages, round = step / kStages;
            mbarrier_wait_parity(&full[stage], round & 1);
            const float4 values = *reinterpret_cast<const float4*>(&box[stage][4 * thread]);
            out[step * 64 + thread] = values.x + values.y + values.z + values.w;
            __syncwarp();
            if (thread % 32 == 0) mbarrier_arrive(&empty[stage]);
        }
    }
}
