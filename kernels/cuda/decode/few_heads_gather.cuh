// A gathering warpgroup of sparse_decode_few_heads.cu: the rows of its blocks become values in shared memory,
// scores, and weights.
#pragma once

#include "convert.cuh"
#include "fence.cuh"
#include "few_heads_plan.cuh"
#include "layouts.cuh"
#include "named_barrier.cuh"
#include "walk.cuh"
#include "warp.cuh"
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
};

// Where the two tokens' rows are; null for a hole, which is every index that names no slot.
template <class Layout>
struct Places {
    const uint8_t *row[2], *scales[2];

    __device__ Places(const SparseDecodeParams& params, const Block<2>& block) {
        const CacheView& view = block.extra ? params.extra : params.cache;
#pragma unroll
        for (uint32_t side = 0; side < 2; ++side) {
            const uint32_t index = block.index[side], page_size = view.page, offset = index % page_size;
            const uint8_t* const page = view.kv + index / page_size * view.page_stride;
            const bool there = index < static_cast<uint32_t>(view.slots);
            row[side] = there ? page + offset * Layout::kRowBytes : nullptr;
            scales[side] = Layout::scales_at(page, page_size, offset);
        }
    }
    __device__ void read_codes(Rows<Layout>& rows, uint32_t block, uint32_t quarter) const {
#pragma unroll
        for (uint32_t side = 0; side < 2; ++side)
            if (row[side])
                rows.codes[block][side] =
                    __ldg(reinterpret_cast<const uint4*>(row[side] + 64 * block + 16 * quarter));
    }
    __device__ void read_scales(Rows<Layout>& rows) const {
#pragma unroll
        for (uint32_t side = 0; side < 2; ++side) {
            rows.scales[side] = {};
            if (row[side]) rows.scales[side] = Layout::read_scales(scales[side]);
        }
    }
    // 16 columns are 32 bytes here. Zeros for a hole: these may be values, and 0 times infinity is no 0.
    __device__ void read_rope(Rows<Layout>& rows, uint32_t quarter) const {
#pragma unroll
        for (uint32_t side = 0; side < 2; ++side)
#pragma unroll
            for (uint32_t half = 0; half < 2; ++half) {
                rows.rope[half][side] = {};
                if (row[side])
                    rows.rope[half][side] = __ldg(reinterpret_cast<const uint4*>(row[side] + Layout::kRopeAt +
                                                                                 32 * quarter + 16 * half));
            }
    }
    __device__ void read(Rows<Layout>& rows, uint32_t quarter) const {
#pragma unroll
        for (uint32_t block = 0; block < Layout::kNopeBlocks; ++block)
            read_codes(rows, block, quarter);
        read_scales(rows);
        read_rope(rows, quarter);
    }
    __device__ uint32_t holes() const { return (row[0] ? 0 : 1) | (row[1] ? 0 : 2); }
};

// The A operand of four steps of k times q, [step][register]: even columns of both tokens, then odd ones.
using Fragments = uint32_t[4][4];

template <class Layout>
__device__ __forceinline__ void convert_codes(Fragments& a, const Rows<Layout>& rows, uint32_t block) {
#pragma unroll
    for (uint32_t side = 0; side < 2; ++side) {
        const uint32_t scale = rows.scales[side].pair(block);
        const uint4 codes = rows.codes[block][side];
        const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
        for (uint32_t step = 0; step < 4; ++step)
            e4m3x4_to_bf16x4_sorted(words[step], scale, a[step][side], a[step][2 + side]);
    }
}
template <class Layout>
__device__ __forceinline__ void sort_rope(Fragments& a, const Rows<Layout>& rows) {
#pragma unroll
    for (uint32_t side = 0; side < 2; ++side)
#pragma unroll
        for (uint32_t half = 0; half < 2; ++half) {
            const uint4 piece = rows.rope[half][side];
            a[2 * half][side] = __byte_perm(piece.x, piece.y, 0x5410);
            a[2 * half][2 + side] = __byte_perm(piece.x, piece.y, 0x7632);
            a[2 * half + 1][side] = __byte_perm(piece.z, piece.w, 0x5410);
            a[2 * half + 1][2 + side] = __byte_perm(piece.z, piece.w, 0x7632);
        }
}
// As values: two chunks of each token's row. `even` is where the first token's first one belongs.
__device__ __forceinline__ void store_values(uint8_t* column_block, uint32_t even, const Fragments& a) {
#pragma unroll
    for (uint32_t side = 0; side < 2; ++side)
#pragma unroll
        for (uint32_t odd = 0; odd < 2; ++odd)
            *reinterpret_cast<uint4*>(column_block + (even ^ odd << 4) + side * 8 * 128) = {
                a[0][2 * odd + side], a[1][2 * odd + side], a[2][2 * odd + side], a[3][2 * odd + side]};
}

template <class Layout, uint32_t kHeads>
__device__ void gather(SharedPlan<Layout, kHeads>& shared, const SparseDecodeParams& params, uint32_t self) {
    using Plan = SharedPlan<Layout, kHeads>;
    constexpr uint32_t kPairs = kHeads / 4;
    const uint32_t warp = threadIdx.x / 32 % kWarps, lane = threadIdx.x % 32, quarter = lane % 4;
    const uint32_t token = 16 * warp + lane / 4;  // and token + 8
    const uint32_t even = swizzled(token, 2 * quarter);
    uint8_t* const v = shared.v[self];

    Walk walk(params, shared.record);
    const auto look_two_further = [&] {
        walk.step(params, 2);
        return walk.look<2>(params, token, 8);
    };
    walk.step(params, self);
    Block<2> here = walk.look<2>(params, token, 8);
    Block<2> next = look_two_further();
    Rows<Layout> rows = {};
    const Places<Layout> first_places(params, here);
    first_places.read(rows, quarter);
    uint32_t holes = first_places.holes();

    int32_t request = shared.record.begin_req;  // whose heads this thread has seen land
    mbarrier_wait_parity(&shared.q_full[0], 0);
    for (uint32_t n = self; here.request >= 0; n += 2) {
        const Block<2> after_next = look_two_further();
        const Places<Layout> places(params, next);
        while (request < here.request) {
            const uint32_t ordinal = ++request - shared.record.begin_req;
            mbarrier_wait_parity(&shared.q_full[ordinal % 2], ordinal / 2 & 1);
        }
        const uint64_t q =
            matrix_descriptor<Swizzle::k128B, 1024>(shared.q[(request - shared.record.begin_req) % 2]);
        mbarrier_wait_parity(&shared.v_empty[self], ~(n / 2) & 1);

        // Convert, store, multiply, a column block at a time; read the next block's rows into what gets free.
        float s[kHeads / 2];
        Fragments a[2];
        wgmma_fence(s);
#pragma unroll
        for (uint32_t block = 0; block < Plan::kBlocks; ++block) {
            Fragments& now = a[block % 2];
            if (block < Layout::kNopeBlocks) {
                convert_codes(now, rows, block);
                places.read_codes(rows, block, quarter);
            } else {
                sort_rope(now, rows);
                places.read_rope(rows, quarter);
                places.read_scales(rows);
            }
            if (block < kValueBlocks) store_values(v + block * kColumnBlock, even, now);
            wgmma_fence();
#pragma unroll
            for (uint32_t step = 0; step < 4; ++step)
                multiply_k<kHeads>(s, now[step], advance(q, block * Plan::kQBlock + 32 * step),
                                   block + step > 0);
            wgmma_commit_group();
            wgmma_wait_group<1>();
        }
        wgmma_wait_group<0>(s);

        // The block's maxima: of a head a lane has two tokens, its warp 16.
        float top[kPairs];
#pragma unroll
        for (uint32_t i = 0; i < kPairs; ++i) {
            float &upper = s[4 * (i / 2) + i % 2], &lower = s[4 * (i / 2) + 2 + i % 2];
            upper = holes & 1 ? -kInfinity : upper * params.scale_log2;
            lower = holes & 2 ? -kInfinity : lower * params.scale_log2;
            top[i] = fmaxf(upper, lower);
#pragma unroll
            for (uint32_t distance = 4; distance < 32; distance *= 2)
                top[i] = fmaxf(top[i], __shfl_xor_sync(kWholeWarp, top[i], distance));
        }
        if (lane < 4) write_heads(shared.top[self][warp], top, lane);
        bar_sync(1 + self, 128);
#pragma unroll
        for (uint32_t other = 0; other < kWarps; ++other) {
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
            const float before = here.first ? kMinusHuge : reference[i];
            reference[i] = top[i] > before + kLazy ? top[i] : before;
            factor[i] = exp2f(before - reference[i]);
            float &upper = s[4 * (i / 2) + i % 2], &lower = s[4 * (i / 2) + 2 + i % 2];
            upper = exp2f(upper - reference[i]), lower = exp2f(lower - reference[i]);
            sum[i] = upper + lower;
#pragma unroll
            for (uint32_t distance = 4; distance < 32; distance *= 2)
                sum[i] += __shfl_xor_sync(kWholeWarp, sum[i], distance);
        }
        if (lane < 4) {
            write_heads(shared.sum[self][warp], sum, lane);
            if (warp == 0) {
                write_heads(shared.reference[self], reference, lane);
                write_heads(shared.factor[self], factor, lane);
            }
        }
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
        if (lane == 0) mbarrier_arrive(&shared.v_full[self]);
        here = next, next = after_next, holes = places.holes();
    }
}

}  // namespace mla
