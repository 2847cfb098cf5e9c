// Two CTAs hand numbers to and fro: each round, a warp stores its 32 numbers into the other CTA's inbox.
//
//   barrier       arrivals                  a phase ends when                  who waits
//   full[slot]    1 (own lane 0) + 128 B    the other CTA's numbers are here   the warp
//   taken[slot]   1 (the other's lane 0)    the other CTA has read them        the warp
//
// start [2, 32] uint32 -> out [2, 32]. Launch: a cluster of 2 CTAs of 32 threads.
#include "cluster.cuh"
#include "fence.cuh"
#include "mbarrier.cuh"
#include "names.cuh"

using namespace mla;

extern "C" __global__ void __launch_bounds__(32) st_async(const uint32_t* start, uint32_t* out, int rounds) {
    __shared__ uint32_t inbox[2][32];
    __shared__ Mbarrier full[2], taken[2];
    const uint32_t rank = cluster_ctarank(), lane = threadIdx.x;
    if (lane == 0) {
#pragma unroll 1
        for (int slot = 0; slot < 2; ++slot) {
            mbarrier_init(&full[slot], 1);
            mbarrier_init(&taken[slot], 1);
        }
        fence_mbarrier_init();
    }
    cluster_sync();
    uint32_t value = start[32 * rank + lane];
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
        const uint32_t slot = round % 2, parity = round / 2 % 2;
        mbarrier_wait_parity_cluster(&taken[slot], parity ^ 1);
        if (lane == 0) mbarrier_arrive_expect_tx(&full[slot], sizeof(inbox[0]));
        st_async_u32(mapa(smem_address(&inbox[slot][lane]), rank ^ 1), value,
                     mapa(smem_address(&full[slot]), rank ^ 1));
        mbarrier_wait_parity_cluster(&full[slot], parity);
        value = 3 * value + inbox[slot][(lane + 1) % 32] + round;
        __syncwarp();
        if (lane == 0) mbarrier_arrive_cluster(mapa(smem_address(&taken[slot]), rank ^ 1));
    }
    out[32 * rank + lane] = value;
    cluster_sync();  // the other CTA's last arrival still comes
}
