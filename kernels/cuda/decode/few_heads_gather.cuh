// A gathering warpgroup of sparse_decode_few_heads.cu: the staged rows of its blocks become values in shared
// memory, and scores.
#pragma once

#include "fence.cuh"
#include "few_heads_plan.cuh"
#include "fp8_rows.cuh"
#include "layouts.cuh"
#include "warp.cuh"
#include "warp_arrival.cuh"
#include "wgmma.cuh"

namespace mla {

// s += k times q, 16 columns of them.
template <uint32_t kHeads>
__device__ __forceinline__ void multiply_k(float (&d)[kHeads / 2], const uint32_t (&a)[4], uint64_t b,
                                           bool accumulate) {
    if constexpr (kHeads == 16)
        wgmma_m64n16k16_f32_bf16(d, a, b, accumulate);
    else
        wgmma_m64n32k16_f32_bf16(d, a, b, accumulate);
}

// The A operand of two steps of k times q, [step][register]: even columns of both tokens, then odd ones. Half
// a column block, of which each lane has 8 columns of both tokens. All of it is kStored times too small.
using Fragments = uint32_t[2][4];

// From 16 codes of each token.
template <class Layout>
__device__ __forceinline__ void convert_codes(Fragments& a, const uint4 (&codes)[2],
                                              const typename Layout::Scales (&scales)[2], uint32_t block,
                                              uint32_t half) {
#pragma unroll
    for (uint32_t side = 0; side < 2; ++side) {
        const uint32_t scale = mul_bf16x2(scales[side].pair(block), kTwoTo60);
        const uint4 piece = codes[side];
        e4m3x4_to_bf16x4_sorted(half == 0 ? piece.x : piece.z, scale, a[0][side], a[0][2 + side]);
        e4m3x4_to_bf16x4_sorted(half == 0 ? piece.y : piece.w, scale, a[1][side], a[1][2 + side]);
    }
}
// From 8 bfloat16 of each token.
__device__ __forceinline__ void sort_rope(Fragments& a, const uint4 (&rope)[2]) {
#pragma unroll
    for (uint32_t side = 0; side < 2; ++side) {
        const auto sort = [&](uint32_t step, uint32_t left, uint32_t right) {
            a[step][side] = mul_bf16x2(__byte_perm(left, right, 0x5410), kTwoToMinus60);
            a[step][2 + side] = mul_bf16x2(__byte_perm(left, right, 0x7632), kTwoToMinus60);
        };
        sort(0, rope[side].x, rope[side].y);
        sort(1, rope[side].z, rope[side].w);
    }
}

template <class Layout, uint32_t kHeads>
__device__ void gather(SharedPlan<Layout, kHeads>& shared, const SparseDecodeParams& params, uint32_t self) {
    using Plan = SharedPlan<Layout, kHeads>;
    const uint32_t warp = threadIdx.x / 32 % kWarps, lane = threadIdx.x % 32, quarter = lane % 4;
    // Lane 8 m + r stores row r of matrix m of a step: m % 2 the first or second tokens, m / 2 the columns.
    const uint32_t stored = swizzled(16 * warp + lane % 16, lane / 16);

    Turn<Plan::kRing> turn = {0, 1};
    turn.advance(self * kValueBlocks);
    const float scale_log2 = params.scale_log2 * kStored;
    for (uint32_t n = self;; n += 2) {
        const uint32_t part = 2 * n + warp / 2;
        mbarrier_wait_parity(&shared.staged_full[warp % 2][part % 4], part / 4 & 1);
        StagedRows<Layout>& staged = shared.staged[warp % 2][part % kStaged];
        const auto give_back = [&] {
            __syncwarp();
            // In this order: where fetch waits for a place, it knows by staged_used that the phase before is
            // over.
            mbarrier_arrive_warp(&shared.staged_empty[warp % 2][part % kStaged], lane);
            mbarrier_arrive_warp(&shared.staged_used[warp % 2][part % 4], lane);
        };
        const auto [holes, ordinal, starts, unused] = staged.about;
        if (ordinal < 0) return give_back();
        const bool first = starts != 0;
        const bool hole[2] = {(holes >> lane / 4 & 1) != 0, (holes >> lane / 4 + 8 & 1) != 0};

        // The lane's two tokens: of each column block it has the 16 columns of its place in the quad.
        const uint8_t* const rows[2] = {staged.row(lane / 4), staged.row(lane / 4 + 8)};
        const auto read = [&](uint4(&pieces)[2], uint32_t at) {
#pragma unroll
            for (uint32_t side = 0; side < 2; ++side)
                pieces[side] = *reinterpret_cast<const uint4*>(rows[side] + at);
        };
        typename Layout::Scales scales[2];
        uint4 rope[2][2], codes[Layout::kNopeBlocks][2];
#pragma unroll
        for (uint32_t half = 0; half < 2; ++half)
            read(rope[half], Layout::kRopeAt + 32 * quarter + 16 * half);
#pragma unroll
        for (uint32_t side = 0; side < 2; ++side)
            scales[side] = Layout::read_scales(rows[side] + Layout::kStagedScales);
#pragma unroll
        for (uint32_t block = 0; block < Layout::kNopeBlocks; ++block)
            read(codes[Layout::kNopeBlocks - 1 - block],
                 64 * (Layout::kNopeBlocks - 1 - block) + 16 * quarter);
        give_back();
        // What counts as 0 must be finite: 0 times infinity is no 0.
#pragma unroll
        for (uint32_t side = 0; side < 2; ++side) {
            if (!hole[side]) continue;
            scales[side] = {};
            if (Layout::kRopeIsValue) rope[0][side] = rope[1][side] = {};
        }

        // A barrier of q must not be two phases away from the one that is waited for. With two of them the
        // block before the last, this warpgroup's own, had the heads of two requests ago; with one, the last
        // block had those of the request before, if this block is the first of its own.
        if (Plan::kQueries == 1 && first && n > 0)
            mbarrier_wait_parity(&shared.v_full[self ^ 1], (n - 1) / 2 & 1);
        // From one lane: descriptors are numbers of the warp, and the compiler must know that this is one,
        // too.
        const uint32_t queries = __shfl_sync(kWholeWarp, ordinal % Plan::kQueries, 0);
        mbarrier_wait_parity(&shared.q_full[queries], ordinal / Plan::kQueries & 1);

        // Convert, store, multiply, half a column block at a time, from the last to the first.
        const uint64_t q = matrix_descriptor<Swizzle::k128B, 1024>(shared.q[queries]);
        float s[kHeads / 2];
        Fragments a[2];
        uint8_t* v = nullptr;
        // Asked a column block early: an answer takes a while.
        const auto is_free = [&] {
            return mbarrier_test_wait_parity(&shared.v_empty[turn.place], turn.parity);
        };
        bool free = is_free();
        wgmma_fence(s);
#pragma unroll
        for (uint32_t unit = 0; unit < 2 * Plan::kBlocks; ++unit) {
            const uint32_t block = Layout::kNopeBlocks - unit / 2, half = unit % 2;
            Fragments& now = a[half];
            if (block == Layout::kNopeBlocks)
                sort_rope(now, rope[half]);
            else
                convert_codes<Layout>(now, codes[block], scales, block, half);
            if (block < kValueBlocks) {
                if (half == 0) {
                    if (!free) mbarrier_wait_parity(&shared.v_empty[turn.place], turn.parity);
                    v = shared.v[turn.place];
                    turn.advance(1);
                    if (block > 0) free = is_free();
                }
#pragma unroll
                for (uint32_t step = 0; step < 2; ++step)
                    stmatrix_x4(v + (stored ^ (2 * half + step) << 5), now[step]);
            }
            wgmma_fence();
#pragma unroll
            for (uint32_t step = 0; step < 2; ++step)
                multiply_k<kHeads>(s, now[step], slice(q, block * Plan::kQBlock + 32 * (2 * half + step)),
                                   unit + step > 0);
            wgmma_commit_group();
            wgmma_wait_group<1>();
        }
        turn.advance(kValueBlocks);  // the other warpgroup's
        wgmma_wait_group<0>(s);

#pragma unroll
        for (uint32_t i = 0; i < kHeads / 2; ++i) {
            const uint32_t side = i / 2 % 2;
            shared.scores[self][8 * (i / 4) + 2 * quarter + i % 2][16 * warp + lane / 4 + 8 * side] =
                hole[side] ? -kInfinity : s[i] * scale_log2;
        }
        fence_proxy_async_shared_cta();
        __syncwarp();
        mbarrier_arrive_warp(&shared.v_full[self], lane);
    }
}

}  // namespace mla
