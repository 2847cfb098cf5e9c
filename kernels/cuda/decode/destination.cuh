// How a request ends: where its results go, its log-sum-exp, and what its output is multiplied by.
#pragma once

#include "attention_tile.cuh"
#include "sparse_decode_params.cuh"
#include "walk.cuh"

namespace mla {

// Where the results of a request go: its row of out and lse or, where it is split, of the partial results.
struct Destination {
    int64_t line;
    bool split;

    Destination() = default;
    __device__ Destination(const SparseDecodeParams& params, const Work& work)
        : line(work.line(params)), split(work.split()) {}
};

// Stores the lse of a head; answers what its row of the output is multiplied by.
__device__ __forceinline__ float finish(const SparseDecodeParams& params, const Destination& to, int32_t head,
                                        float maximum, float sum, bool writes) {
    if (head >= params.h_q) return 0.0f;
    const int64_t place = to.line * params.h_q + head;
    const float log2_sum = maximum + log2f(sum);
    if (to.split) {
        if (writes) params.lse_partial[place] = sum == 0.0f ? -kInfinity : log2_sum;
        return sum == 0.0f ? 0.0f : 1.0f / sum;
    }
    if (writes) params.lse[place] = sum == 0.0f ? kInfinity : log2_sum * kLn2;
    if (sum == 0.0f) return 0.0f;
    return 1.0f / (params.sink ? sum + exp2f(params.sink[head] * kLog2E - maximum) : sum);
}

}  // namespace mla
