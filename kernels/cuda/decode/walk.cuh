// How a partition walks through its share of the schedule: requests, and blocks of 64 tokens of their lists.
#pragma once

#include "lengths.cuh"
#include "sparse_decode_params.cuh"

namespace mla {

// The part of one request that a partition works on. The record lies in shared memory and is read again
// whenever it is asked, which keeps registers free.
struct Work {
    const PartitionRecord* record;
    int32_t request;

    __device__ bool first() const { return request == record->begin_req; }
    __device__ bool last() const { return request == record->end_req; }
    __device__ bool there() const { return request <= record->end_req; }
    __device__ int32_t begin() const { return first() ? record->begin_block : 0; }
    __device__ int32_t end(const SparseDecodeParams& params) const {
        return last() ? record->end_block : main_blocks(params) + extra_blocks(params);
    }
    __device__ int32_t main_blocks(const SparseDecodeParams& params) const {
        return (max(list_length(params.cache, request), 1) + 63) / 64;
    }
    __device__ int32_t extra_blocks(const SparseDecodeParams& params) const {
        return params.extra.kv ? (list_length(params.extra, request) + 63) / 64 : 0;
    }
    // Whether other partitions work on the request too.
    __device__ bool split() const {
        return (first() && record->first_is_split) || (last() && record->last_is_split);
    }
    // Row of the (partial) result: the request, or its slot among the partial results.
    __device__ int64_t line(const SparseDecodeParams& params) const {
        const int32_t place =
            split() ? params.num_splits[request] + (first() ? record->begin_split : 0) : request;
        return place * static_cast<int64_t>(params.s_q) + blockIdx.y;
    }
};

// Walks block by block. The lists' lengths are read once a request.
struct Walk {
    Work work;
    int32_t block, end, in_main, length, extra_length;
    bool first;  // block of its request here

    __device__ Walk(const SparseDecodeParams& params, const PartitionRecord& record)
        : work{&record, record.begin_req} {
        enter(params);
    }
    __device__ void enter(const SparseDecodeParams& params) {
        block = work.begin(), end = work.end(params), in_main = work.main_blocks(params);
        length = list_length(params.cache, work.request);
        extra_length = list_length(params.extra, work.request);
        first = true;
    }
    __device__ bool there() const { return block < end; }
    __device__ bool extra() const { return block >= in_main; }  // of the second cache
    __device__ void step(const SparseDecodeParams& params, uint32_t blocks) {
#pragma unroll 1
        while (blocks-- > 0 && there()) {
            first = false;
            if (++block < end || work.last()) continue;
            ++work.request;
            enter(params);
        }
    }
    // What stands in place `place` of the block; -1 beyond the list's end. Nothing waits for the load here.
    __device__ int32_t index(const SparseDecodeParams& params, int32_t place) const {
        const bool of_extra = extra();
        const CacheView& view = of_extra ? params.extra : params.cache;
        const int32_t* const list =
            view.indices + work.request * view.index_stride_b + blockIdx.y * view.index_stride_s;
        place += 64 * (of_extra ? block - in_main : block);
        const int32_t places = !there() ? 0 : of_extra ? extra_length : length;
        return place < places ? __ldg(list + place) : -1;
    }
};

}  // namespace mla
