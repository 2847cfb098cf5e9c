// A gathering warpgroup of sparse_decode_few_heads.cu: the rows of its blocks become values in shared memory,
// scores, and weights.
#pragma once

#include "convert.cuh"
#include "fence.cuh"
#include "few_heads_plan.cuh"
#include "layouts.cuh"
#include "memory.cuh"
#include "named_barrier.cuh"
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

// What a thread has read of its two tokens: of each column block the 16 columns that its place in the quad
// has. A token that is a hole keeps what was there before: finite codes, whose weight is 0.
template <class Layout>
struct Rows {
    uint4 codes[Layout::kNopeBlocks][2], rope[2][2];
    typename Layout::Scales scales[2];

    __device__ void read_codes(const Place (&places)[2], uint32_t block, uint32_t quarter) {
#pragma unroll
        for (uint32_t side = 0; side < 2; ++side)
            if (places[side].row)
                codes[block][side] = ld_global_v4_u32(places[side].row + 64 * block + 16 * quarter);
    }
    __device__ void read_scales(const Place (&places)[2]) {
#pragma unroll
        for (uint32_t side = 0; side < 2; ++side) {
            scales[side] = {};
            if (places[side].row) scales[side] = Layout::read_scales(places[side].scales);
        }
    }
    // 16 columns are 32 bytes here. Values must be zeros for a hole: 0 times infinity is no 0.
    __device__ void read_rope(const Place (&places)[2], uint32_t quarter) {
#pragma unroll
        for (uint32_t side = 0; side < 2; ++side)
#pragma unroll
            for (uint32_t half = 0; half < 2; ++half) {
                if (Layout::kRopeIsValue) rope[half][side] = {};
                if (places[side].row)
                    rope[half][side] =
                        ld_global_v4_u32(places[side].row + Layout::kRopeAt + 32 * quarter + 16 * half);
            }
    }
};

// The A operand of two steps of k times q, [step][register]: even columns of both tokens, then odd ones. Half
// a column block, of which each lane has 8 columns of both tokens. All of it is kStored times too small.
using Fragments = uint32_t[2][4];

template <class Layout>
__device__ __forceinline__ void convert_codes(Fragments& a, const Rows<Layout>& rows,
                                              const typename Layout::Scales (&scales)[2], uint32_t block,
                                              uint32_t half) {
#pragma unroll
    for (uint32_t side = 0; side < 2; ++side) {
        const uint32_t scale = mul_bf16x2(scales[side].pair(block), kTwoTo60);
        const uint4 codes = rows.codes[block][side];
        e4m3x4_to_bf16x4_shrunk(half == 0 ? codes.x : codes.z, scale, a[0][side], a[0][2 + side]);
        e4m3x4_to_bf16x4_shrunk(half == 0 ? codes.y : codes.w, scale, a[1][side], a[1][2 + side]);
    }
}
template <class Layout>
__device__ __forceinline__ void sort_rope(Fragments& a, const Rows<Layout>& rows, uint32_t half) {
#pragma unroll
    for (uint32_t side = 0; side < 2; ++side) {
        const uint4 piece = rows.rope[half][side];
        const auto sort = [&](uint32_t step, uint32_t left, uint32_t right) {
            a[step][side] = mul_bf16x2(__byte_perm(left, right, 0x5410), kTwoToMinus60);
            a[step][2 + side] = mul_bf16x2(__byte_perm(left, right, 0x7632), kTwoToMinus60);
        };
        sort(0, piece.x, piece.y);
        sort(1, piece.z, piece.w);
    }
}

// The largest of, or the sum of, each of a lane's values over the eight lanes of the same heads. While there
// are several values halves are exchanged: a lane ends with one, in values[0], of the pair that is returned.
template <uint32_t kPairs, class Merge>
__device__ __forceinline__ uint32_t reduce(float (&values)[kPairs], uint32_t lane, Merge merge) {
    uint32_t pair = 0, half = kPairs / 2;
#pragma unroll
    for (uint32_t distance = 16; distance >= 4; distance /= 2, half /= 2) {
        const bool upper = (lane & distance) != 0;
        if (upper) pair += half;
#pragma unroll
        for (uint32_t i = 0; i < (half > 1 ? half : 1); ++i) {
            const float kept = upper ? values[i + half] : values[i];
            const float given = upper ? values[i] : values[i + half];
            values[i] = merge(kept, __shfl_xor_sync(kWholeWarp, given, distance));
        }
    }
    return pair;
}

template <class Layout, uint32_t kHeads>
__device__ void gather(SharedPlan<Layout, kHeads>& shared, const SparseDecodeParams& params, uint32_t self) {
    using Plan = SharedPlan<Layout, kHeads>;
    constexpr uint32_t kPairs = kHeads / 4;
    const uint32_t warp = threadIdx.x / 32 % kWarps, lane = threadIdx.x % 32, quarter = lane % 4;
    const uint32_t token = 16 * warp + lane / 4;  // and token + 8
    // Lane 8 m + r stores row r of matrix m of a step: m % 2 the first or second tokens, m / 2 the columns.
    const uint32_t stored = swizzled(16 * warp + lane % 16, lane / 16);

    Rows<Layout> rows = {};
    Place places[2] = {shared.places[self][token], shared.places[self][token + 8]};
    BlockOwner owner = shared.owner[self];
    rows.read_scales(places);
    rows.read_rope(places, quarter);
#pragma unroll
    for (uint32_t i = 1; i < Plan::kBlocks; ++i)
        rows.read_codes(places, Layout::kNopeBlocks - i, quarter);

    const float scale_log2 = params.scale_log2 * kStored;
    for (uint32_t n = self; owner.ordinal >= 0; n += 2) {
        // A barrier of q must not be two phases away from the one that is waited for. With two of them the
        // block before the last, this warpgroup's own, had the heads of two requests ago; with one, the last
        // block had those of the request before, if this block is the first of its own.
        if (Plan::kQueries == 1 && owner.first && n > 0)
            mbarrier_wait_parity(&shared.v_full[self ^ 1], (n - 1) / 2 & 1);
        const uint32_t queries = owner.ordinal % Plan::kQueries;
        mbarrier_wait_parity(&shared.q_full[queries], owner.ordinal / Plan::kQueries & 1);
        const auto wait_for_piece = [&](uint32_t piece) {
            const uint32_t turn = kPieces * n + piece, place = turn % Plan::kRing;
            mbarrier_wait_parity(&shared.v_empty[place], ~(turn / Plan::kRing) & 1);
            return shared.v[place];
        };
        // Where this one is free, `values` has listed the next block too.
        uint8_t* v = wait_for_piece(0);
        const bool hole[2] = {places[0].row == nullptr, places[1].row == nullptr};
        const uint32_t next = (n + 2) % kListed;
        places[0] = shared.places[next][token], places[1] = shared.places[next][token + 8];

        // Convert, store, multiply, half a column block at a time, from the last to the first: so RoPE's many
        // loads are not those that softmax waits behind. Read the next block's rows into what gets free.
        const uint64_t q = matrix_descriptor<Swizzle::k128B, 1024>(shared.q[queries]);
        const typename Layout::Scales scales[2] = {rows.scales[0], rows.scales[1]};
        rows.read_scales(places);
        float s[kHeads / 2];
        Fragments a[2];
        wgmma_fence(s);
#pragma unroll
        for (uint32_t unit = 0; unit < 2 * Plan::kBlocks; ++unit) {
            const uint32_t block = Layout::kNopeBlocks - unit / 2, half = unit % 2;
            Fragments& now = a[half];
            if (block == Layout::kNopeBlocks) {
                sort_rope(now, rows, half);
                if (half == 1) rows.read_rope(places, quarter);
            } else {
                convert_codes(now, rows, scales, block, half);
                if (half == 1) rows.read_codes(places, block, quarter);
            }
            if (half == 0 && block % kPieceBlocks == kPieceBlocks - 1 && block < kValueBlocks - 1)
                v = wait_for_piece(kPieces - 1 - block / kPieceBlocks);
            if (block < kValueBlocks) {
#pragma unroll
                for (uint32_t step = 0; step < 2; ++step)
                    stmatrix_x4(v + block % kPieceBlocks * kColumnBlock + (stored ^ (2 * half + step) << 5),
                                now[step]);
            }
            wgmma_fence();
#pragma unroll
            for (uint32_t step = 0; step < 2; ++step)
                multiply_k<kHeads>(s, now[step], slice(q, block * Plan::kQBlock + 32 * (2 * half + step)),
                                   unit + step > 0);
            wgmma_commit_group();
            wgmma_wait_group<1>();
            __syncwarp();  // or the assembler moves all loads behind the last block, in softmax's way
        }
        wgmma_wait_group<0>(s);

        // The block's maxima: of a head a lane has two tokens, its warp 16, the warpgroup all.
        float top[kPairs];
#pragma unroll
        for (uint32_t i = 0; i < kPairs; ++i) {
            float &upper = s[4 * (i / 2) + i % 2], &lower = s[4 * (i / 2) + 2 + i % 2];
            upper = hole[0] ? -kInfinity : upper * scale_log2;
            lower = hole[1] ? -kInfinity : lower * scale_log2;
            top[i] = fmaxf(upper, lower);
        }
        const uint32_t top_pair = reduce(top, lane, [](float a, float b) { return fmaxf(a, b); });
        shared.top[self][warp][head_of(top_pair, lane)] = top[0];
        bar_sync(1 + self, 128);
        read_heads(top, shared.top[self][0], lane);
#pragma unroll
        for (uint32_t other = 1; other < kWarps; ++other) {
            float theirs[kPairs];
            read_heads(theirs, shared.top[self][other], lane);
#pragma unroll
            for (uint32_t i = 0; i < kPairs; ++i)
                top[i] = fmaxf(top[i], theirs[i]);
        }

        // The maximum so far comes from the block before, which is the other warpgroup's.
        float reference[kPairs], factor[kPairs], sum[kPairs];
        if (n > 0) {
            mbarrier_wait_parity(&shared.v_full[self ^ 1], (n - 1) / 2 & 1);
            read_heads(reference, shared.reference[self ^ 1], lane);
        }
#pragma unroll
        for (uint32_t i = 0; i < kPairs; ++i) {
            const float before = owner.first ? kMinusHuge : reference[i];
            reference[i] = top[i] > before + kLazy ? top[i] : before;
            factor[i] = exp2f(before - reference[i]);
            float &upper = s[4 * (i / 2) + i % 2], &lower = s[4 * (i / 2) + 2 + i % 2];
            upper = exp2f(upper - reference[i]), lower = exp2f(lower - reference[i]);
            sum[i] = upper + lower;
        }
        if (warp == 0 && lane < 4) {
            write_heads(shared.reference[self], reference, lane);
            write_heads(shared.factor[self], factor, lane);
        }
        const uint32_t sum_pair = reduce(sum, lane, [](float a, float b) { return a + b; });
        shared.sum[self][warp][head_of(sum_pair, lane)] = sum[0];
        // 8 heads by 8 tokens four times: lane 8 m + r names row r, a head, of matrix m.
#pragma unroll
        for (uint32_t i = 0; i < kHeads / 2; i += 8) {
            const uint32_t p[4] = {cvt_rn_bf16x2_f32(s[i], s[i + 1]), cvt_rn_bf16x2_f32(s[i + 2], s[i + 3]),
                                   cvt_rn_bf16x2_f32(s[i + 4], s[i + 5]),
                                   cvt_rn_bf16x2_f32(s[i + 6], s[i + 7])};
            stmatrix_x4_trans(
                shared.p[self] + swizzled(2 * i + 8 * (lane / 16) + lane % 8, 2 * warp + lane / 8 % 2), p);
        }
        fence_proxy_async_shared_cta();
        __syncwarp();
        mbarrier_arrive_warp(&shared.v_full[self], lane);
        owner = shared.owner[next];
    }
}

}  // namespace mla
