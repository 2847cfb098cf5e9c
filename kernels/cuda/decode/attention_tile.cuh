// What the decode kernels have in common: the shape of a block of tokens in shared memory, and the numbers of
// the softmax.
#pragma once

#include "base.cuh"

namespace mla {

constexpr uint32_t kTokens = 64, kWidth = 512;
constexpr uint32_t kColumnBlock = kTokens * 128;  // 64 rows of 64 bfloat16
constexpr float kMinusHuge = -1e30f;  // a maximum before any score: finite, as its differences must be
constexpr float kLazy = 8.0f;         // log2 units a maximum may grow before the output is rescaled
constexpr float kInfinity = __builtin_bit_cast(float, 0x7F800000u);
constexpr float kLn2 = 0.69314718055994531f, kLog2E = 1.4426950408889634f;

// Where chunk `chunk` (16 bytes) of row `row` of a column block lies under swizzle 128B.
__device__ __forceinline__ uint32_t swizzled(uint32_t row, uint32_t chunk) {
    return row * 128 + ((chunk ^ (row & 7)) << 4);
}

}  // namespace mla
