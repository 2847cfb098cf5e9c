// What lies where in the shared memory of a CTA of sparse_decode.cu.
#pragma once

#include "attention_tile.cuh"
#include "destination.cuh"
#include "mbarrier.cuh"
#include "sparse_decode_params.cuh"
#include "walk.cuh"

namespace mla {

constexpr uint32_t kHeads = 64;
constexpr uint32_t kGatherThreads = 256;

template <class Layout>
struct SharedPlan {
    static constexpr uint32_t kBlocks = Layout::kNopeBlocks + 1, kRowsBytes = kBlocks * kColumnBlock;
    alignas(1024) uint8_t q[kRowsBytes];
    alignas(1024) uint8_t k[2][kRowsBytes];
    alignas(1024) uint8_t p[kColumnBlock];
    alignas(8) uint8_t valid[2][8];  // a bit a token
    float factor[kHeads], norm[kHeads];
    PartitionRecord record;
    Destination to[2];            // of every second request: `values` finds them out while it waits
    uint32_t page_reciprocal[2];  // of the cache, of the extra cache
    Mbarrier q_full, q_empty, k_full[2], k_empty[2];
};

}  // namespace mla
