// Sum float32 values: each CTA sums a slice, then one CTA of a cluster reads the others' sums from their
// shared memory.
//
//   values [n] -> sums [clusters]; cluster i adds the values i * block + thread + j * (clusters * block)…
//
// No atomics, no second kernel: distributed shared memory carries the last step. The order of additions is
// fixed, so two runs give the same bits. Launch: a grid of whole clusters (1, 2, 4 or 8 CTAs), block 128, no
// dynamic shared memory.
#include "cluster.cuh"

using namespace mla;

constexpr uint32_t kThreads = 128;
constexpr uint32_t kWarps = kThreads / 32;

// The sum of one value a lane, in every lane.
__device__ float warp_sum(float value) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        value += __shfl_xor_sync(0xFFFFFFFFu, value, distance);
    }
    return value;
}

extern "C" __global__ void __launch_bounds__(kThreads) cluster_sum(const float* values, float* sums, int n) {
    __shared__ float warp_sums[kWarps];
    __shared__ float cta_sum;

    // Sum this thread's values, the warp's, the CTA's.
    float mine = 0.0f;
    for (int i = blockIdx.x * kThreads + threadIdx.x; i < n; i += gridDim.x * kThreads)
        mine += values[i];
    mine = warp_sum(mine);
    if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = mine;
    __syncthreads();
    if (threadIdx.x == 0) {
        float total = 0.0f;
        for (uint32_t warp = 0; warp < kWarps; ++warp)
            total += warp_sums[warp];
        cta_sum = total;
    }

    // Every CTA's sum is written before any is read.
    cluster_sync();
    if (cluster_ctarank() == 0 && threadIdx.x == 0) {
        float total = 0.0f;
        for (uint32_t rank = 0; rank < cluster_nctarank(); ++rank) {
            total += ld_shared_cluster_f32(mapa(smem_address(&cta_sum), rank));
        }
        sums[blockIdx.x / cluster_nctarank()] = total;
    }

    // No CTA ends, and takes its shared memory with it, before it was read.
    cluster_sync();
}
