// The warpgroup of sparse_decode_few_heads.cu that makes weights of the scores, multiplies the values by
// them, writes the results, and loads q.
#pragma once

#include "convert.cuh"
#include "destination.cuh"
#include "fence.cuh"
#include "few_heads_plan.cuh"
#include "fp8_rows.cuh"
#include "named_barrier.cuh"
#include "softmax_step.cuh"
#include "walk.cuh"
#include "warp_arrival.cuh"
#include "wgmma.cuh"

namespace mla {

// o += v^T times p^T: 64 columns of the output, 16 tokens.
template <uint32_t kHeads>
__device__ __forceinline__ void multiply_v(float (&d)[kHeads / 2], uint64_t a, uint64_t b, bool accumulate) {
    if constexpr (kHeads == 16)
        wgmma_m64n16k16_f32_bf16<1>(d, a, b, accumulate);
    else
        wgmma_m64n32k16_f32_bf16<1>(d, a, b, accumulate);
}

// The heads of a request, in the order of columns that gather's registers have; zeros beyond h_q.
template <class Layout, uint32_t kHeads>
__device__ void load_q(SharedPlan<Layout, kHeads>& shared, const SparseDecodeParams& params,
                       const Work& work) {
    using Plan = SharedPlan<Layout, kHeads>;
    if (!work.there()) return;
    const uint32_t buffer = (work.request - shared.record.begin_req) % Plan::kQueries;
    const uint16_t* const q = params.q + work.request * params.q_stride_b + blockIdx.y * params.q_stride_s;
    // A thread has a chunk of 8 columns in each column block. Chunk 2 t + u belongs to lane t of gather's
    // quads, for the steps 2 u and 2 u + 1.
    const uint32_t chunk = threadIdx.x % 8, step = 2 * (chunk % 2);
#pragma unroll 1
    for (uint32_t head = threadIdx.x % 128 / 8; head < kHeads; head += 16) {
        uint4 pieces[Plan::kBlocks] = {};
        const uint16_t* const from = q + head * params.q_stride_h + 8 * chunk;
#pragma unroll
        for (uint32_t block = 0; block < Plan::kBlocks; ++block)
            if (head < params.h_q) pieces[block] = __ldg(reinterpret_cast<const uint4*>(from + 64 * block));
#pragma unroll
        for (uint32_t block = 0; block < Plan::kBlocks; ++block) {
            const uint4 piece = pieces[block];
            const auto put = [&](uint32_t to, uint32_t two) {
                uint8_t* const row = shared.q[buffer] + block * Plan::kQBlock + 4 * (chunk / 2);
                *reinterpret_cast<uint32_t*>(row + swizzled(head, to)) = two;
            };
            put(2 * step, __byte_perm(piece.x, piece.y, 0x5410));
            put(2 * step + 1, __byte_perm(piece.x, piece.y, 0x7632));
            put(2 * step + 2, __byte_perm(piece.z, piece.w, 0x5410));
            put(2 * step + 3, __byte_perm(piece.z, piece.w, 0x7632));
        }
    }
    fence_proxy_async_shared_cta();
    __syncwarp();
    mbarrier_arrive_warp(&shared.q_full[buffer], threadIdx.x % 32);
}

// out^T in registers: of each 64 columns of the output a thread has two, neighbours, of each of its heads.
template <uint32_t kHeads>
__device__ __forceinline__ void write_columns(const SparseDecodeParams& params, const Destination& to,
                                              const float (&o)[kValueBlocks][kHeads / 2], const float* norms,
                                              uint32_t thread) {
    const int64_t line = to.line * params.h_q;
    const uint32_t lane = thread % 32, column = 16 * (lane / 8) + 4 * (thread / 32) + 2 * (lane / 4 % 2);
    float norm[kHeads / 4];
    read_heads(norm, norms, lane);
#pragma unroll
    for (uint32_t i = 0; i < kHeads / 4; ++i) {
        const int32_t head = head_of(i, lane);
        if (head >= params.h_q) continue;
        const int64_t start = (line + head) * kWidth + column;
#pragma unroll
        for (uint32_t block = 0; block < kValueBlocks; ++block) {
            const float left = o[block][4 * (i / 2) + i % 2] * norm[i];
            const float right = o[block][4 * (i / 2) + 2 + i % 2] * norm[i];
            if (to.split)
                *reinterpret_cast<float2*>(params.out_partial + start + 64 * block) = {left, right};
            else
                *reinterpret_cast<uint32_t*>(params.out + start + 64 * block) =
                    cvt_rn_bf16x2_f32(left, right);
        }
    }
}

// The running softmax. A warp has a quarter of the heads, all tokens of them: so maxima and sums concern no
// other warp. A lane has every fourth of these heads and the eight tokens 8 · group to 8 · group + 7; `sum`
// is that of its tokens.
template <uint32_t kHeads>
struct FewHeadsSoftmax {
    static constexpr uint32_t kMine = kHeads / 16;
    uint32_t first_head, group;
    float maximum[kMine], sum[kMine];

    __device__ explicit FewHeadsSoftmax(uint32_t thread)
        : first_head(kHeads / 4 * (thread / 32) + thread % 4), group(thread % 32 / 4) {}

    // Scores become weights; `begins`: with the first block of a request.
    __device__ void weigh(uint8_t* p, float* factors, const float (&scores)[kHeads][kTokens + 4],
                          bool begins) {
#pragma unroll
        for (uint32_t i = 0; i < kMine; ++i) {
            const uint32_t head = first_head + 4 * i;
            const auto* const mine = reinterpret_cast<const float4*>(&scores[head][8 * group]);
            const float4 left = mine[0], right = mine[1];
            float s[8] = {left.x, left.y, left.z, left.w, right.x, right.y, right.z, right.w};
            float top = s[0];
#pragma unroll
            for (uint32_t k = 1; k < 8; ++k)
                top = fmaxf(top, s[k]);
#pragma unroll
            for (uint32_t distance = 4; distance < 32; distance *= 2)
                top = fmaxf(top, __shfl_xor_sync(kWholeWarp, top, distance));
            const float before = begins ? kMinusHuge : maximum[i];
            maximum[i] = top > before + kLazy ? top : before;
            const float factor = ex2_approx(before - maximum[i]);
            float added = 0.0f;
#pragma unroll
            for (uint32_t k = 0; k < 8; ++k)
                added += s[k] = ex2_approx(s[k] - maximum[i]);
            sum[i] = begins ? added : fmaf(sum[i], factor, added);
            *reinterpret_cast<uint4*>(p + swizzled(head, group)) = {
                cvt_rn_bf16x2_f32(s[0], s[1]), cvt_rn_bf16x2_f32(s[2], s[3]), cvt_rn_bf16x2_f32(s[4], s[5]),
                cvt_rn_bf16x2_f32(s[6], s[7])};
            if (group == 0) factors[head] = factor;
        }
    }
    // What the outputs of a request that ends are multiplied by.
    __device__ void end(const SparseDecodeParams& params, const Destination& to, float* norms) {
#pragma unroll
        for (uint32_t i = 0; i < kMine; ++i) {
            const uint32_t head = first_head + 4 * i;
#pragma unroll
            for (uint32_t distance = 4; distance < 32; distance *= 2)
                sum[i] += __shfl_xor_sync(kWholeWarp, sum[i], distance);
            if (group == 0) norms[head] = kStored * finish(params, to, head, maximum[i], sum[i], true);
        }
    }
};

template <class Layout, uint32_t kHeads>
__device__ void values(SharedPlan<Layout, kHeads>& shared, const SparseDecodeParams& params) {
    using Plan = SharedPlan<Layout, kHeads>;
    constexpr uint32_t kPairs = kHeads / 4;
    const uint32_t thread = threadIdx.x % 128, lane = thread % 32;
    Work work{&shared.record, shared.record.begin_req};
    load_q(shared, params, work);
    if (Plan::kQueries > 1) load_q(shared, params, {&shared.record, work.request + 1});

    Turn<Plan::kRing> turn = {0, 0};
    FewHeadsSoftmax<kHeads> softmax(thread);
    float o[kValueBlocks][kHeads / 2];
    for (uint32_t n = 0, requests = 0; work.there(); ++work.request, ++requests) {
        const int32_t blocks = work.end(params) - work.begin();
        const Destination to(params, work);
        float* const norms = shared.norm[requests % 2];
        for (int32_t i = 0; i < blocks; ++i, ++n) {
            const uint32_t stage = n % 2;
            mbarrier_wait_parity(&shared.v_full[stage], n / 2 & 1);
            softmax.weigh(shared.p[stage], shared.factor[stage], shared.scores[stage], i == 0);
            fence_proxy_async_shared_cta();
            bar_sync(1, 128);
            float factor[kPairs];
            read_heads(factor, shared.factor[stage], lane);
            bool changed = false;
#pragma unroll
            for (uint32_t j = 0; j < kPairs; ++j)
                changed |= factor[j] != 1.0f;
            if (i > 0 && __any_sync(kWholeWarp, changed)) {
#pragma unroll
                for (uint32_t block = 0; block < kValueBlocks; ++block)
#pragma unroll
                    for (uint32_t j = 0; j < kHeads / 2; ++j)
                        o[block][j] *= factor[2 * (j / 4) + j % 2];
            }
            const uint64_t p = matrix_descriptor<Swizzle::k128B, 1024>(shared.p[stage]);
#pragma unroll
            for (uint32_t block = 0; block < kValueBlocks; ++block)
                wgmma_fence(o[block]);
            // In the order in which gather stores: from the last columns to the first.
            Turn<Plan::kRing> given_back = turn;
#pragma unroll
            for (uint32_t block = kValueBlocks; block-- > 0; turn.advance(1)) {
                const uint64_t v = matrix_descriptor<Swizzle::k128B, 1024>(shared.v[turn.place]);
#pragma unroll
                for (uint32_t step = 0; step < kTokens / 16; ++step)
                    multiply_v<kHeads>(o[block], slice(v, 2048 * step), slice(p, 32 * step), i + step > 0);
                wgmma_commit_group();
            }
            if (i + 1 == blocks) softmax.end(params, to, norms);
            const auto give_back = [&] {
                mbarrier_arrive_warp(&shared.v_empty[given_back.place], lane);
                given_back.advance(1);
            };
            wgmma_wait_group<7>(), give_back();
            wgmma_wait_group<6>(), give_back();
            wgmma_wait_group<5>(), give_back();
            wgmma_wait_group<4>(), give_back();
            wgmma_wait_group<3>(), give_back();
            wgmma_wait_group<2>(), give_back();
            wgmma_wait_group<1>(), give_back();
#pragma unroll
            for (uint32_t block = 0; block < kValueBlocks; ++block)
                wgmma_wait_group<0>(o[block]);
            give_back();
        }
        bar_sync(1, 128);
        write_columns<kHeads>(params, to, o, norms, thread);
        load_q(shared, params, {&shared.record, work.request + static_cast<int32_t>(Plan::kQueries)});
    }
}

}  // namespace mla
