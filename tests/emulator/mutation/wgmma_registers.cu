// Operand A of wgmma in registers that are scaled between two multiplies; threads bring B to shared memory.
//
// a [64, k] bfloat16, b [64, k] bfloat16 (k a multiple of 16) -> c [64, 64] float32 = a times b transposed,
// times 1 + 2 + 4: each block of 16 elements of k is multiplied three times, and A doubled in place after
// each. Launch: one CTA of 128 threads.
#include "fence.cuh"
#include "wgmma.cuh"

using namespace mla;

// A pair of bfloat16 times two: one more in each exponent.
__device__ uint32_t doubled(uint32_t pair) {
    return pair + 0x00800080;
}

extern "C" __global__ void __launch_bounds__(128)
    wgmma_registers(const uint16_t* a, const uint16_t* b, float* c, int k) {
    __shared__ alignas(1024) uint16_t tile[2][64][64];  // rows of 128 bytes, of which 32 are used
    float d[32] = {};
#pragma unroll 1
    for (int block = 0; block < k / 16; ++block) {
        // Thread t brings 16 bytes of row t / 2, to where swizzle 128B puts them.
        const uint32_t row = threadIdx.x / 2, place = row * 128 + threadIdx.x % 2 * 16;
        auto* bytes = reinterpret_cast<uint8_t*>(tile[block % 2]);
        *reinterpret_cast<uint4*>(bytes + (place ^ (place >> 3 & 0x70))) =
            *reinterpret_cast<const uint4*>(b + row * k + block * 16 + threadIdx.x % 2 * 8);
        uint32_t fragment[4];
        for (int j = 0; j < 4; ++j)
            fragment[j] =
                *reinterpret_cast<const uint32_t*>(a + accumulator_row(threadIdx.x, 2 * j) * k + block * 16 +
                                                   accumulator_column(threadIdx.x, 2 * j));
        fence_proxy_async_shared_cta();
        __syncthreads();

        const uint64_t right = matrix_descriptor<Swizzle::k128B, 1024>(tile[block % 2]);
#pragma unroll 1
        for (int time = 0; time < 3; ++time) {
            wgmma_fence(d);
            wgmma_m64n64k16_f32_bf16(d, fragment, right, true);
            wgmma_commit_group();
            wgmma_wait_group<0>(d);
            for (uint32_t& pair : fragment)
                pair = doubled(pair);
        }
    }
    for (uint32_t index = 0; index < 32; ++index)
        c[accumulator_row(threadIdx.x, index) * 64 + accumulator_column(threadIdx.x, index)] = d[index];
}
