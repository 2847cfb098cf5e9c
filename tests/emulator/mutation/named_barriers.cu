// Two groups of two warps take turns on one buffer, by named barriers 1 and 2: "it is group g's turn".
//
// out [64] uint32. Launch: one CTA of 128 threads.
#include "base.cuh"
#include "named_barrier.cuh"
#include "names.cuh"

using namespace mla;

extern "C" __global__ void __launch_bounds__(128) named_barriers(uint32_t* out, int rounds) {
    __shared__ uint32_t shared[64];
    const uint32_t group = threadIdx.x / 64, thread = threadIdx.x % 64;
    if (group == 0) {
        name_role("first");
        shared[thread] = thread;
        bar_sync(3, 64);  // the first turn reads what the neighbour warp has written
#pragma unroll 1
        for (int round = 0; round < rounds; ++round) {
            if (round > 0) bar_sync(1, 128);
            const uint32_t other = shared[63 - thread];
            bar_sync(3, 64);
            shared[thread] = 2 * other + 1;
            bar_arrive(2, 128);
        }
    } else {
        name_role("second");
#pragma unroll 1
        for (int round = 0; round < rounds; ++round) {
            bar_sync(2, 128);
            const uint32_t other = shared[(thread + 32) % 64];
            bar_sync(4, 64);
            shared[thread] = 3 * other + 5;
            if (round + 1 < rounds) bar_arrive(1, 128);
        }
        bar_sync(4, 64);
        out[thread] = shared[63 - thread];
    }
}
