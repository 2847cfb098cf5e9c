// Conversions between float32 and the narrow formats, two values at a time, as bits.
//
// In a pair the first argument goes to the low half and to the lower address. `rn` rounds to nearest, ties to
// even; `satfinite` gives the largest finite value of the sign instead of an infinity or overflow.
#pragma once

#include "base.cuh"

namespace mla {

// Two float32 to bfloat16. Any thread.
// section: cvt; from sm_80
__device__ __forceinline__ uint32_t cvt_rn_bf16x2_f32(float low, float high) {
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

// Two float32 to float16. Any thread.
// section: cvt; from sm_80
__device__ __forceinline__ uint32_t cvt_rn_f16x2_f32(float low, float high) {
    uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

// Two float32 to FP8 E4M3: beyond 448 becomes 448, NaN stays NaN. Any thread.
// section: cvt; from sm_89
__device__ __forceinline__ uint16_t cvt_rn_satfinite_e4m3x2_f32(float low, float high) {
    uint16_t pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
}

// Two float32 to FP8 E5M2: beyond 57344 becomes 57344, NaN stays NaN. Any thread.
// section: cvt; from sm_89
__device__ __forceinline__ uint16_t cvt_rn_satfinite_e5m2x2_f32(float low, float high) {
    uint16_t pair;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
}

// Two FP8 E4M3 to float16; exact. Any thread.
// section: cvt; from sm_89
__device__ __forceinline__ uint32_t cvt_rn_f16x2_e4m3x2(uint16_t pair) {
    uint32_t halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(pair));
    return halves;
}

// Two FP8 E5M2 to float16; exact. Any thread.
// section: cvt; from sm_89
__device__ __forceinline__ uint32_t cvt_rn_f16x2_e5m2x2(uint16_t pair) {
    uint32_t halves;
    asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"(pair));
    return halves;
}

// float16 to float32; exact. Any thread.
// section: cvt; from sm_53
__device__ __forceinline__ float cvt_f32_f16(uint16_t half) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
}

// bfloat16 to float32: the same bits above 16 zeros. Any thread.
__device__ __forceinline__ float bf16_to_f32(uint16_t bits) {
    return __uint_as_float(static_cast<uint32_t>(bits) << 16);
}

// float32 to TF32, ties away from zero: the low 13 bits become zero. Any thread.
// section: cvt (.rna.tf32); from sm_80
__device__ __forceinline__ uint32_t cvt_rna_tf32_f32(float value) {
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
    return bits;
}

}  // namespace mla
