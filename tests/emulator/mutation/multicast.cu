// Two CTAs share their loads: each brings half a box to both, in a ring of two.
//
//   barrier       arrivals                            a phase ends when             who waits
//   full[stage]   1 (warp 0) + 1024 bytes             both halves have landed       warp 1
//   empty[stage]  2 (warp 1 of each CTA of the pair)  both CTAs have read the box   warp 0
//
// map: float32 [8 steps, 32], boxes of 4 x 32; out [2, steps, 32]. Launch: a cluster of 2 CTAs of 64 threads.
#include "cluster.cuh"
#include "fence.cuh"
#include "mbarrier.cuh"
#include "names.cuh"
#include "tma.cuh"

using namespace mla;

constexpr uint32_t kStages = 2;

extern "C" __global__ void __launch_bounds__(64)
    multicast(const __grid_constant__ CUtensorMap map, float* out, int steps) {
    __shared__ alignas(128) float box[kStages][2][4][32];
    __shared__ Mbarrier full[kStages], empty[kStages];
    const uint32_t rank = cluster_ctarank();
    if (threadIdx.x == 0) {
#pragma unroll 1
        for (uint32_t stage = 0; stage < kStages; ++stage) {
            mbarrier_init(&full[stage], 1);
            mbarrier_init(&empty[stage], 2);
        }
        fence_mbarrier_init();
    }
    cluster_sync();
    if (threadIdx.x == 0) {
        name_role("copy");
#pragma unroll 1
        for (int step = 0; step < steps; ++step) {
            const uint32_t stage = step % kStages, round = step / kStages;
            mbarrier_wait_parity_cluster(&empty[stage], ~round & 1);
            mbarrier_arrive_expect_tx(&full[stage], sizeof(box[0]));
            cp_async_bulk_tensor_2d_shared_global_multicast(box[stage][rank], &map, 0, 8 * step + 4 * rank,
                                                            &full[stage], 3);
        }
    } else if (threadIdx.x >= 32) {
        name_role("add");
        const uint32_t lane = threadIdx.x - 32;
#pragma unroll 1
        for (int step = 0; step < steps; ++step) {
            const uint32_t stage = step % kStages, round = step / kStages;
            mbarrier_wait_parity(&full[stage], round & 1);
            float sum = 0;
            for (int row = 0; row < 8; ++row)
                sum += (row + 1) * box[stage][row / 4][row % 4][lane];
            out[(rank * steps + step) * 32 + lane] = sum;
            __syncwarp();
            if (lane < 2) mbarrier_arrive_cluster(mapa(smem_address(&empty[stage]), lane));
        }
    }
    cluster_sync();  // neither CTA leaves while the other still writes to it
}
