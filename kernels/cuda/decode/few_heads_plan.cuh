// What the roles of sparse_decode_few_heads.cu share: constants, the plan of shared memory, and which heads a
// thread has.
#pragma once

#include "attention_tile.cuh"
#include "mbarrier.cuh"
#include "sparse_decode_params.cuh"

namespace mla {

constexpr uint32_t kWarps = 4;
constexpr uint32_t kValueBlocks = kWidth / 64;
constexpr uint32_t kWholeWarp = 0xFFFFFFFFu;

template <class Layout, uint32_t kHeads>
struct SharedPlan {
    static constexpr uint32_t kBlocks = Layout::kNopeBlocks + 1;
    static constexpr uint32_t kQBlock = kHeads * 128;  // a row of 64 bfloat16 a head
    alignas(1024) uint8_t q[2][kBlocks * kQBlock];
    alignas(1024) uint8_t v[2][kValueBlocks * kColumnBlock];
    alignas(1024) uint8_t p[2][kHeads * 128];  // a row of 64 tokens a head
    // With each p: the maximum that its exponents are relative to, what earlier weights are multiplied by,
    // and by warp of gather the maxima of the scores and the sums of the weights.
    alignas(16) float reference[2][kHeads], factor[2][kHeads], top[2][kWarps][kHeads], sum[2][kWarps][kHeads];
    PartitionRecord record;
    Mbarrier q_full[2], v_full[2], v_empty[2];
};

// A thread's accumulators of n heads belong to n / 4 heads: these two, in each group of eight.
__device__ __forceinline__ uint32_t head_of(uint32_t pair, uint32_t lane) {
    return 8 * (pair / 2) + 2 * (lane % 4) + pair % 2;
}
template <uint32_t kPairs>
__device__ __forceinline__ void read_heads(float (&mine)[kPairs], const float* of_heads, uint32_t lane) {
#pragma unroll
    for (uint32_t i = 0; i < kPairs; i += 2) {
        const float2 two = *reinterpret_cast<const float2*>(of_heads + head_of(i, lane));
        mine[i] = two.x, mine[i + 1] = two.y;
    }
}
template <uint32_t kPairs>
__device__ __forceinline__ void write_heads(float* of_heads, const float (&mine)[kPairs], uint32_t lane) {
#pragma unroll
    for (uint32_t i = 0; i < kPairs; i += 2)
        *reinterpret_cast<float2*>(of_heads + head_of(i, lane)) = {mine[i], mine[i + 1]};
}

}  // namespace mla
