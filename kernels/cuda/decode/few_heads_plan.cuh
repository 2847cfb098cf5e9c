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
constexpr uint32_t kWholeWarp = 0xFFFFFFFFu;

// What gather must know of staged rows.
struct alignas(16) AboutRows {
    uint32_t holes;   // bit t: token t is one
    int32_t ordinal;  // whose block it is: the request's number here, -1 where the work has ended
    uint32_t first;   // block of its request here
    uint32_t unused;
};
// 16 tokens of a block as they lie in the cache, for one warp of gather.
template <class Layout>
struct StagedRows {
    alignas(16) uint8_t rows[16][Layout::kStagedBytes];
    AboutRows about;

    // A row is an odd number of 16 bytes. So 64 bytes of a token and of the next one, in rows four apart, are
    // in different banks.
    static_assert(Layout::kStagedBytes % 32 == 16, "kStagedBytes: an odd number of 16 bytes");
    __device__ uint8_t* row(uint32_t token) {
        return rows[(token & 10) | (token & 1) << 2 | (token >> 2 & 1)];
    }
};

// The descriptor of a tile `bytes` further in. Only the low half changes: one addition, and no carry.
__device__ __forceinline__ uint64_t slice(uint64_t descriptor, uint32_t bytes) {
    return (descriptor & 0xFFFFFFFF00000000u) | (static_cast<uint32_t>(descriptor) + (bytes >> 4));
}

// Warps w and w + 2 of both gathering warpgroups take what they need from one ring, in the order of blocks:
// the m-th part, 16 rows, has place m % kStaged and barriers m % 4. So each of the four warps, and the warp
// of fetch that serves it, has barriers of its own, and a place's barrier turns once a part.
constexpr uint32_t kStaged = 3;
static_assert(kStaged <= 4, "with more places two parts would share a barrier");

// Where the next column block of values goes, in the ring of `kRing` places.
template <uint32_t kRing>
struct Turn {
    uint32_t place, parity;

    __device__ void advance(uint32_t places) {
        place += places;
        if (place >= kRing) place -= kRing, parity ^= 1;
    }
};

template <class Layout, uint32_t kHeads>
struct SharedPlan {
    static constexpr uint32_t kBlocks = Layout::kNopeBlocks + 1;
    static constexpr uint32_t kQBlock = kHeads * 128;           // a row of 64 bfloat16 a head
    static constexpr uint32_t kQueries = kHeads == 16 ? 2 : 1;  // requests whose heads are here
    alignas(1024) uint8_t q[kQueries][kBlocks * kQBlock];
    static constexpr uint32_t kRing = kHeads == 16 ? 14 : 12;  // column blocks of values
    static_assert(kRing > kValueBlocks,
                  "gather might wait for a phase of v_empty while the one before still lasts");
    static_assert(kRing <= 2 * kValueBlocks,
                  "where gather may store a block's last columns, scores of two blocks ago have been read");
    alignas(1024) uint8_t v[kRing][kColumnBlock];
    alignas(1024) uint8_t p[2][kHeads * 128];  // a row of 64 tokens a head
    // A head's scores lie side by side. Two heads further they begin eight banks further: gather's lanes,
    // four pairs of heads by eight tokens, do not meet in one.
    alignas(16) float scores[2][kHeads][kTokens + 4];
    float factor[2][kHeads];  // what earlier weights are multiplied by
    float norm[2][kHeads];    // what a request's output is multiplied by
    StagedRows<Layout> staged[2][kStaged];
    PartitionRecord record;
    Mbarrier q_full[kQueries], v_full[2], v_empty[kRing], staged_full[2][4], staged_used[2][4],
        staged_empty[2][kStaged];
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

}  // namespace mla
