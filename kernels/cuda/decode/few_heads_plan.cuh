// What the roles of sparse_decode_few_heads.cu share: constants, the plan of shared memory, and which heads a
// thread has.
#pragma once

#include "attention_tile.cuh"
#include "mbarrier.cuh"
#include "sparse_decode_params.cuh"
#include "walk.cuh"

namespace mla {

constexpr uint32_t kWarps = 4;
constexpr uint32_t kValueBlocks = kWidth / 64;
constexpr uint32_t kPieces = 4;  // of a block of values, which are handed over one by one
constexpr uint32_t kPieceBlocks = kValueBlocks / kPieces;
constexpr uint32_t kWholeWarp = 0xFFFFFFFFu;
constexpr uint32_t kTwoTo60 = 0x5D805D80u, kTwoToMinus60 = 0x21802180u;  // bfloat16, twice
constexpr float kStored = 0x1p60f;  // keys and values in the multiplies are so many times too small

// Where a token lies in the cache; row is null for a hole.
struct Place {
    const uint8_t *row, *scales;
};
// Whose block it is: the request's number in this partition, -1 where the work has ended.
struct BlockOwner {
    int32_t ordinal;
    uint32_t first;  // of its request here
};
// A walk that waits in shared memory, which keeps registers free.
struct KeptWalk {
    int32_t request, block, end, in_main, length, extra_length, first;

    __device__ KeptWalk& operator=(const Walk& walk) {
        request = walk.work.request, block = walk.block, end = walk.end, in_main = walk.in_main;
        length = walk.length, extra_length = walk.extra_length, first = walk.first;
        return *this;
    }
    __device__ Walk taken(const PartitionRecord& record) const {
        Walk walk;
        walk.work = {&record, request};
        walk.block = block, walk.end = end, walk.in_main = in_main;
        walk.length = length, walk.extra_length = extra_length, walk.first = first != 0;
        return walk;
    }
};
constexpr uint32_t kListed = 8;  // blocks whose places are kept
constexpr uint32_t kAhead = 6;   // how many blocks the list is ahead of `values`

// The descriptor of a tile `bytes` further in. Only the low half changes: one addition, and no carry.
__device__ __forceinline__ uint64_t slice(uint64_t descriptor, uint32_t bytes) {
    return (descriptor & 0xFFFFFFFF00000000u) | (static_cast<uint32_t>(descriptor) + (bytes >> 4));
}

template <class Layout, uint32_t kHeads>
struct SharedPlan {
    static constexpr uint32_t kBlocks = Layout::kNopeBlocks + 1;
    static constexpr uint32_t kQBlock = kHeads * 128;           // a row of 64 bfloat16 a head
    static constexpr uint32_t kQueries = kHeads == 16 ? 2 : 1;  // requests whose heads are here
    alignas(1024) uint8_t q[kQueries][kBlocks * kQBlock];
    // Rows in flight need L1, which gets what shared memory leaves: 92 KB below 163 KB of it, 60 below 195.
    static constexpr uint32_t kRing = kHeads == 16 ? 7 : 8;
    static_assert(kRing >= 7, "gather might wait for a phase of v_empty while the one before still lasts");
    static_assert(kRing <= 8, "where gather may store a block's last piece, p of two blocks ago is used");
    alignas(1024) uint8_t v[kRing][kPieceBlocks * kColumnBlock];
    alignas(1024) uint8_t p[2][kHeads * 128];  // a row of 64 tokens a head
    // With each p: the maximum that its exponents are relative to, what earlier weights are multiplied by,
    // and by warp of gather the maxima of the scores and the sums of the weights.
    alignas(16) float reference[2][kHeads], factor[2][kHeads], top[2][kWarps][kHeads], sum[2][kWarps][kHeads];
    alignas(16) Place places[kListed][kTokens];
    BlockOwner owner[kListed];
    float norm[2][kHeads];  // what a request's output is multiplied by
    KeptWalk walk[2];       // of the warps that list places
    PartitionRecord record;
    Mbarrier q_full[kQueries], v_full[2], v_empty[kRing];
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

// Lists place `token` of block n of the partition, where `walk` stands. Every index that names no slot is a
// hole.
template <class Layout, uint32_t kHeads>
__device__ __forceinline__ void list_place(SharedPlan<Layout, kHeads>& shared,
                                           const SparseDecodeParams& params, const Walk& walk, uint32_t index,
                                           uint32_t n, uint32_t token) {
    const CacheView& view = walk.extra() ? params.extra : params.cache;
    const uint32_t page_size = view.page, offset = index % page_size;
    const uint8_t* const page = view.kv + index / page_size * view.page_stride;
    const bool there = index < static_cast<uint32_t>(view.slots);
    shared.places[n % kListed][token] = {there ? page + offset * Layout::kRowBytes : nullptr,
                                         Layout::scales_at(page, page_size, offset)};
    if (token == 0)
        shared.owner[n % kListed] = {walk.there() ? walk.work.request - shared.record.begin_req : -1,
                                     walk.first};
}

}  // namespace mla
