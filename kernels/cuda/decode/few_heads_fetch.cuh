// The warpgroup of sparse_decode_few_heads.cu that walks through the lists and has the rows of the slots
// copied to shared memory, as they are.
//
// Each warp works for one warp of both gathering warpgroups: 16 tokens of each block.
#pragma once

#include "bulk.cuh"
#include "few_heads_plan.cuh"
#include "layouts.cuh"
#include "memory.cuh"
#include "places.cuh"
#include "walk.cuh"
#include "warp.cuh"
#include "warp_arrival.cuh"

namespace mla {

// The token of a block whose index this thread of `fetch` looks up.
__device__ __forceinline__ uint32_t token_of(uint32_t thread) {
    return thread / 32 * 16 + thread % 16;
}

// `index` is that of this thread's token in the first block.
template <class Layout, uint32_t kHeads>
__device__ void fetch(SharedPlan<Layout, kHeads>& shared, const SparseDecodeParams& params, int32_t index) {
    const uint32_t warp = threadIdx.x / 32 % kWarps, lane = threadIdx.x % 32, token = lane % 16;
    const uint32_t ring = warp % 2;
    const uint32_t reciprocal = reciprocal_of(params.cache.page),
                   extra_reciprocal = reciprocal_of(max(params.extra.page, 1));
    Walk walk(params, shared.record);
    // Each gathering warpgroup is told once that the work has ended.
    for (uint32_t part = warp / 2, ends = 0; ends < 2; part += 2) {
        const bool there = walk.there();
        const uint32_t first = walk.first;
        const int32_t ordinal = there ? walk.work.request - shared.record.begin_req : -1;
        const CacheView& view = walk.extra() ? params.extra : params.cache;
        const Place place = place_of<Layout>(view, walk.extra() ? extra_reciprocal : reciprocal, index);
        uint2 scales = {};
        if (Layout::kScalesApart && there) scales = ld_global_nc_v2_u32(view.kv + 8ull * place.scales);
        walk.step(params, 1);
        index = walk.index(params, token_of(threadIdx.x % 128));
        ends += !there;

        StagedRows<Layout>& staged = shared.staged[ring][part % kStaged];
        mbarrier_wait_parity(&shared.staged_used[ring][part % 4], ~(part / 4) & 1);
        mbarrier_wait_parity(&shared.staged_empty[ring][part % kStaged], ~(part / kStaged) & 1);
        if (Layout::kScalesApart && there && lane < 16)
            *reinterpret_cast<uint2*>(staged.row(token) + Layout::kStagedScales) = scales;
        staged.about = AboutRows{__ballot_sync(kWholeWarp, !place.there), ordinal, first, 0};
        __syncwarp();
        Mbarrier* const full = &shared.staged_full[ring][part % 4];
        const bool elected = elect_sync();
        if (elected && there) mbarrier_expect_tx(full, 16 * Layout::kRowBytes);
        __syncwarp();
        mbarrier_arrive_warp(full, lane);
        if (!there) continue;
        // One lane asks for all rows: a copy's operands are the warp's, so lanes would only take turns.
#pragma unroll
        for (uint32_t i = 0; i < 16; ++i) {
            const uint8_t* const from = view.kv + 16ull * __shfl_sync(kWholeWarp, place.row, i);
            if (elected) cp_async_bulk_shared_global(staged.row(i), from, Layout::kRowBytes, full);
        }
    }
}

}  // namespace mla
