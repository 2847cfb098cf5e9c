// E4M3 codes to bfloat16, many at a time, in integer and packed arithmetic.
//
// An E4M3 number is sign, 4 exponent bits (bias 7), 3 mantissa bits. Put those seven bits at the top of a
// bfloat16's fields (bias 127) and the value is 2^-120 times the right one, subnormals included. One multiply
// mends half of that and applies the scale, both by a scale that is 2^60 times too large: what results is
// 2^-60 times the right value, well within a bfloat16's range, and so are keys and values throughout the
// decode kernels. The two NaN codes (0x7F, 0xFF) come out as ±480 before the scale.
#pragma once

#include "base.cuh"

namespace mla {

// Two bfloat16 products, nearest even, subnormals kept.
// section: mul (.bf16x2); from sm_90
__device__ __forceinline__ uint32_t mul_bf16x2(uint32_t a, uint32_t b) {
    uint32_t product;
    asm("mul.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
    return product;
}

// Four bytes, each a byte of `from` or, where the selector's digit has its top bit set, copies of that byte's
// sign.
// section: prmt; from sm_20
__device__ __forceinline__ uint32_t prmt(uint32_t from, uint32_t selector) {
    uint32_t bytes;
    asm("prmt.b32 %0, %1, 0, %2;" : "=r"(bytes) : "r"(from), "r"(selector));
    return bytes;
}

// A float32 rounded to bfloat16, in both halves.
__device__ __forceinline__ uint32_t both_halves_bf16(float value) {
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %1;" : "=r"(pair) : "f"(value));
    return pair;
}

constexpr uint32_t kTwoTo60 = 0x5D805D80u, kTwoToMinus60 = 0x21802180u;  // bfloat16, twice
constexpr float kStored = 0x1p60f;  // keys and values in the multiplies are so many times too small

// Four codes, lowest byte first, times `scale` (a bfloat16 in both halves) and 2^-120: two registers of two
// bfloat16.
__device__ __forceinline__ void e4m3x4_to_bf16x4(uint32_t codes, uint32_t scale, uint32_t& low,
                                                 uint32_t& high) {
    // A code in the lower byte of each half under eight copies of its sign; a move up by four puts sign,
    // exponent and mantissa into their places.
    low = mul_bf16x2(prmt(codes, 0x9180) << 4 & 0x87F087F0u, scale);
    high = mul_bf16x2(prmt(codes, 0xB3A2) << 4 & 0x87F087F0u, scale);
}

// The same, sorted: codes 0 and 2 in `even`, 1 and 3 in `odd`.
__device__ __forceinline__ void e4m3x4_to_bf16x4_sorted(uint32_t codes, uint32_t scale, uint32_t& even,
                                                        uint32_t& odd) {
    even = mul_bf16x2(prmt(codes, 0xA280) << 4 & 0x87F087F0u, scale);
    odd = mul_bf16x2(prmt(codes, 0xB391) << 4 & 0x87F087F0u, scale);
}

}  // namespace mla
