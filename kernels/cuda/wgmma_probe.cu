// A chain of four multiplies with everything in the caller's hands: the bytes of shared memory and the
// descriptors.
//
//   image [bytes] uint8, descriptors [4, 2] uint64 (of A, of B) -> d [128, 32] float32, the registers of 128
//   threads
//
// `image` is copied to shared memory as it is, to a multiple of 1024 bytes; start addresses in the
// descriptors count from there. Each step multiplies a 64 x 16 slice of A by a 16 x 64 slice of B (bfloat16)
// and adds to d; the first overwrites it. `wgmma_probe` reads B K-major, `wgmma_probe_n` N-major.
// Launch: grid 1, block 128, dynamic shared memory `bytes`, a multiple of 16.
#include "fence.cuh"
#include "wgmma.cuh"

using namespace mla;

constexpr uint32_t kSteps = 4;

template <int kTransB>
__device__ __forceinline__ void probe(const uint8_t* image, uint32_t bytes, const uint64_t* descriptors,
                                      float* out) {
    extern __shared__ __align__(1024) uint8_t shared[];
    for (uint32_t i = 16 * threadIdx.x; i < bytes; i += 16 * 128)
        *reinterpret_cast<uint4*>(shared + i) = *reinterpret_cast<const uint4*>(image + i);
    fence_proxy_async_shared_cta();
    __syncthreads();

    // The address of the image, in the unit and the place of the descriptors' first field.
    const uint64_t base = smem_address(shared) >> 4;
    uint64_t a[kSteps], b[kSteps];
#pragma unroll
    for (uint32_t step = 0; step < kSteps; ++step) {
        a[step] = descriptors[2 * step] + base;
        b[step] = descriptors[2 * step + 1] + base;
    }
    float d[32] = {};
    wgmma_fence(d);
#pragma unroll
    for (uint32_t step = 0; step < kSteps; ++step)
        wgmma_m64n64k16_f32_bf16<0, kTransB>(d, a[step], b[step], step > 0);
    wgmma_commit_group();
    wgmma_wait_group<0>(d);

#pragma unroll
    for (uint32_t index = 0; index < 32; ++index)
        out[32 * threadIdx.x + index] = d[index];
}

extern "C" __global__ void __launch_bounds__(128)
    wgmma_probe(const uint8_t* image, uint32_t bytes, const uint64_t* descriptors, float* d) {
    probe<0>(image, bytes, descriptors, d);
}
extern "C" __global__ void __launch_bounds__(128)
    wgmma_probe_n(const uint8_t* image, uint32_t bytes, const uint64_t* descriptors, float* d) {
    probe<1>(image, bytes, descriptors, d);
}
