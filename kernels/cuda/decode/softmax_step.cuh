// The running softmax of sparse decode, in registers: 64 heads by 64 tokens as wgmma leaves the scores.
#pragma once

#include "attention_tile.cuh"

namespace mla {

// 2^x, within 2 units in the last place; results below 2^-126 become 0.
// section: ex2 (.approx.ftz); from sm_75
__device__ __forceinline__ float ex2_approx(float x) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}

// Of two rows, upper and lower (8 further down), of which a quad of lanes holds a quarter of the columns
// each. Maxima and scores are in log2 units.
struct Softmax {
    float maximum[2], sum[2], factor[2];

    __device__ void reset() {
        maximum[0] = maximum[1] = kMinusHuge;
        sum[0] = sum[1] = 0.0f;
    }

    // Products q·k become weights; factor is what earlier weights must be multiplied by. Bit i of `valid`:
    // token i counts. scale_log2 is above 0.
    __device__ void step(float (&s)[32], uint64_t valid, float scale_log2, uint32_t lane) {
        if (valid != ~0ull) hide(s, valid, lane);
#pragma unroll
        for (uint32_t side = 0; side < 2; ++side) {
            float top = s[2 * side];
#pragma unroll
            for (uint32_t i = 1; i < 32; ++i)
                if (i / 2 % 2 == side) top = fmaxf(top, s[i]);
            top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFu, top, 1));
            top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFu, top, 2)) * scale_log2;
            const float next = top > maximum[side] + kLazy ? top : maximum[side];
            factor[side] = ex2_approx(maximum[side] - next);
            maximum[side] = next;
            float added[2] = {};
#pragma unroll
            for (uint32_t i = 0; i < 32; ++i)
                if (i / 2 % 2 == side) added[i % 2] += s[i] = ex2_approx(fmaf(s[i], scale_log2, -next));
            sum[side] = fmaf(sum[side], factor[side], added[0] + added[1]);
        }
    }

    // The sum of all columns' weights; all lanes of a quad get it.
    __device__ float total(uint32_t side) const {
        float all = sum[side];
        all += __shfl_xor_sync(0xFFFFFFFFu, all, 1);
        return all + __shfl_xor_sync(0xFFFFFFFFu, all, 2);
    }

  private:
    __device__ static void hide(float (&s)[32], uint64_t valid, uint32_t lane) {
        const uint64_t mine = valid >> 2 * (lane % 4);
#pragma unroll
        for (uint32_t i = 0; i < 32; ++i)
            if ((mine >> (8 * (i / 4) + i % 2) & 1) == 0) s[i] = -kInfinity;
    }
};

}  // namespace mla
