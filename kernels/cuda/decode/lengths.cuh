// The lengths of index lists, and what happens where they are not the ones the schedule was made for: the
// CTAs of the decode kernel notice before they do anything, and every output becomes NaN.
#pragma once

#include "sparse_decode_params.cuh"

namespace mla {

// Entries of a request's list that count.
__device__ __forceinline__ int32_t list_length(const CacheView& view, int32_t request) {
    return view.lengths ? min(max(view.lengths[request], 0), view.topk) : view.topk;
}

// Says what was found, unless something said before has not been read yet.
__device__ __forceinline__ void tell(Notice* notice, const Notice& found) {
    if (!notice || atomicCAS(&notice->kind, 0, found.kind) != 0) return;
    notice->request = found.request, notice->query = found.query, notice->position = found.position;
    notice->value = found.value, notice->expected = found.expected, notice->list = found.list;
}

// Whether any length differs from the planned ones; all threads of a CTA call it and get one answer.
__device__ __forceinline__ bool lengths_changed(const SparseDecodeParams& params) {
    if (!params.planned_lengths) return false;
    const bool first_cta = blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0;
    bool differs = false;
    for (int32_t i = threadIdx.x; i < 2 * params.b; i += blockDim.x) {
        const bool extra = i >= params.b;
        const int32_t* const lengths = extra ? params.extra.lengths : params.cache.lengths;
        const int32_t request = extra ? i - params.b : i;
        if (!lengths || lengths[request] == params.planned_lengths[i]) continue;
        differs = true;
        if (first_cta)
            tell(params.notice, {1, request, 0, 0, lengths[request], params.planned_lengths[i], extra});
    }
    const bool changed = __syncthreads_or(differs) != 0;
    if (first_cta && threadIdx.x == 0) *params.verdict = changed;
    return changed;
}

// Writes NaN over the outputs of `heads` heads: the partitions share the requests.
__device__ __forceinline__ void poison(const SparseDecodeParams& params, int32_t first_head, int32_t heads) {
    heads = min(heads, params.h_q - first_head);
    for (int32_t request = blockIdx.z; request < params.b; request += gridDim.z) {
        const int64_t row =
            (static_cast<int64_t>(request) * params.s_q + blockIdx.y) * params.h_q + first_head;
        for (int32_t i = threadIdx.x; i < heads * 512; i += blockDim.x)
            params.out[row * 512 + i] = 0x7FFF;
        for (int32_t i = threadIdx.x; i < heads; i += blockDim.x)
            params.lse[row + i] = __builtin_bit_cast(float, 0x7FFFFFFFu);
    }
}

}  // namespace mla
