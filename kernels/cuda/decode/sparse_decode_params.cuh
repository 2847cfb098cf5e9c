// What sparse decode, combine and the scheduler hand to each other: the parameter block and the schedule's
// record. `mlacademy.ops` packs the same bytes in Python.
#pragma once

#include "base.cuh"

namespace mla {

// One partition's share of the schedule. end_req is inclusive, end_block exclusive; begin_split counts within
// begin_req. A partition without work has begin_req >= b.
struct alignas(32) PartitionRecord {
    int32_t begin_req, end_req, begin_block, end_block, begin_split, first_is_split, last_is_split, padding;
};
static_assert(sizeof(PartitionRecord) == 32, "eight int32");

// One cache and the lists of slots to read from it. Strides of kv in bytes, of indices in elements.
struct CacheView {
    const uint8_t* kv;
    const int32_t* indices;  // [b, s_q, topk], -1 or out of range = hole
    const int32_t* lengths;  // [b] valid prefix of each list, or null: all of it
    int64_t page_stride, index_stride_b, index_stride_s;
    int32_t page, slots, topk, unused;
};
static_assert(sizeof(CacheView) == 64, "three pointers, three strides, four numbers");

// What a kernel tells `ops.check()`: the first finding stays until it is read.
struct Notice {
    int32_t kind;  // 0 nothing, 1 a length is not the one of the schedule, 2 an index names no slot
    int32_t request, query, position, value, expected, list, unused;  // list: 0 the main one, 1 the extra one
};
static_assert(sizeof(Notice) == 32, "eight int32");

// Shapes: q [b, s_q, h_q, d_qk] bfloat16 with the last axis dense, strides in elements; out [b, s_q, h_q,
// 512] bfloat16; lse [b, s_q, h_q] float32, natural log; partial results by split slot: out_partial [slots,
// s_q, h_q, 512] float32 or, of sparse_decode.cu, PartialTile (partial_tile.cuh); lse_partial [slots, s_q,
// h_q] float32, log2.
struct SparseDecodeParams {
    const uint16_t* q;
    int64_t q_stride_b, q_stride_s, q_stride_h;
    CacheView cache, extra;  // extra.kv null: none
    const float* sink;       // [h_q], natural log, or null
    const PartitionRecord* records;
    const int32_t* num_splits;  // [b + 1]
    uint16_t* out;
    float *lse, *out_partial, *lse_partial;
    float scale_log2;  // softmax scale times log2 e
    int32_t b, s_q, h_q;
    // [2, b]: the lengths that the records were made for, of the lists and of the extra lists; null: there
    // are no lengths, hence none to compare.
    const int32_t* planned_lengths;
    int32_t*
        verdict;  // decode tells combine: 1 where lengths differ from the planned ones, all outputs are NaN
    Notice* notice;
};
static_assert(sizeof(SparseDecodeParams) == 256, "what ops packs");

}  // namespace mla
