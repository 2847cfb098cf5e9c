// The checked mode of sparse decode: says which index names no slot, and which length its list does not have.
//
//   the lists of a decode, before the decode itself -> the notice that `ops.check()` reads
//
// Every index within its list's length must be -1 (a hole) or name a slot. The decode kernel takes what is
// out of range for a hole, with or without this.
//
// Launch: grid (b, s_q), block 256.
#include "lengths.cuh"

using namespace mla;

constexpr int32_t kNoSlot = 2, kNoLength = 3;  // kinds of a notice

__device__ void look(const SparseDecodeParams& params, const CacheView& view, int32_t list) {
    const int32_t request = blockIdx.x, query = blockIdx.y;
    if (view.lengths && threadIdx.x == 0) {
        const int32_t length = view.lengths[request];
        if (length < 0 || length > view.topk)
            tell(params.notice, {kNoLength, request, query, 0, length, view.topk, list});
    }
    const int32_t* const indices = view.indices + request * view.index_stride_b + query * view.index_stride_s;
    for (int32_t position = threadIdx.x; position < list_length(view, request); position += blockDim.x) {
        const int32_t index = indices[position];
        if (index != -1 && static_cast<uint32_t>(index) >= static_cast<uint32_t>(view.slots))
            tell(params.notice, {kNoSlot, request, query, position, index, view.slots, list});
    }
}

extern "C" __global__ void __launch_bounds__(256)
    check_slots(const __grid_constant__ SparseDecodeParams params) {
    look(params, params.cache, 0);
    if (params.extra.kv) look(params, params.extra, 1);
}
