// What the wrappers do, shown by small kernels that run on the emulator and on a GPU: conversions.
#include "convert.cuh"

using namespace mla;

// One pair of values a thread.
extern "C" __global__ void narrow(const float* in, uint32_t* bf16, uint32_t* f16, uint16_t* e4m3,
                                  uint16_t* e5m2, uint32_t* tf32, int pairs) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= pairs) return;
    const float low = in[2 * i], high = in[2 * i + 1];
    bf16[i] = cvt_rn_bf16x2_f32(low, high);
    f16[i] = cvt_rn_f16x2_f32(low, high);
    e4m3[i] = cvt_rn_satfinite_e4m3x2_f32(low, high);
    e5m2[i] = cvt_rn_satfinite_e5m2x2_f32(low, high);
    tf32[i] = cvt_rna_tf32_f32(low);
}

// Block 128: two codes a thread. e4m3, e5m2 [256] float32; bf16 [128] from the 16 bits of the thread's pair.
extern "C" __global__ void widen(const uint16_t* pairs, float* e4m3, float* e5m2, float* bf16) {
    const uint32_t four = cvt_rn_f16x2_e4m3x2(pairs[threadIdx.x]);
    const uint32_t five = cvt_rn_f16x2_e5m2x2(pairs[threadIdx.x]);
    for (int half = 0; half < 2; ++half) {
        e4m3[2 * threadIdx.x + half] = cvt_f32_f16(static_cast<uint16_t>(four >> (16 * half)));
        e5m2[2 * threadIdx.x + half] = cvt_f32_f16(static_cast<uint16_t>(five >> (16 * half)));
    }
    bf16[threadIdx.x] = bf16_to_f32(pairs[threadIdx.x]);
}
