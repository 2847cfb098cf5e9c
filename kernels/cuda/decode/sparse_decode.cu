// Sparse decode of multi-head latent attention on Hopper: 64 query heads a CTA, the latents of a list of
// slots as keys and values, FP8 in the cache, bfloat16 in the multiplies. 128 heads are a cluster of two CTAs
// that read and convert half of the tokens each and store every piece in both.
//
// Three roles, and what they do with a block of 64 tokens:
//
//   scores   4 warps   q times k (64 x 64), softmax; then p times v for the columns 0 - 255 of the output
//   values   4 warps   p times v for the columns 256 - 511
//   gather   8 warps   reads the rows of the slots, stores them as bfloat16, swizzled (in the peer too);
//                      loads q (gather.cuh)
//
// The multiplies of `scores` run one ahead: while p times v of block i is in flight, q times k of block i + 1
// is too.
//
//   barrier     arrivals a phase                      ends when                         who waits
//   q_full      256 (gather: its cp.async)            a request's heads have landed     scores
//   q_empty     4 (one a warp of scores)              its last scores are made          gather
//   k_full[2]   8 (one a warp of gather), + the       64 tokens have landed             scores, values
//               peer's bytes
//   k_empty[2]  8 a CTA (one a multiplying warp)      both halves of p times v are made gather
//   1 (named)   256                                   p and the factors are in memory   values
//   2 (named)   256                                   values has used them              scores
//   3 (named)   256                                   a request's norms are in memory   values
//
// Launch: grid (h_q / 64, s_q, partitions), cluster (h_q / 64, 1, 1), block 512, dynamic shared memory
// sizeof(SharedPlan), with programmatic serialisation or without: it waits for the kernels ahead, then lets
// combine start, which reads what the scheduler wrote. Layouts of the cache: 656 bytes a token (V3.2) or 584
// (MODEL1).
#include "cluster.cuh"
#include "convert.cuh"
#include "gather.cuh"
#include "griddepcontrol.cuh"
#include "lengths.cuh"
#include "named_barrier.cuh"
#include "names.cuh"
#include "results.cuh"
#include "setmaxnreg.cuh"
#include "softmax_step.cuh"
#include "warp.cuh"
#include "warp_arrival.cuh"
#include "wgmma.cuh"

using namespace mla;

constexpr uint32_t kPReady = 1, kPFree = 2, kNorms = 3;

static_assert(sizeof(SharedPlan<V32>) <= 232448, "shared memory of a CTA");

// ---- scores and values

// A multiplying warp says in every CTA that it is done with buffer `stage`.
template <class Layout, bool kPair>
__device__ __forceinline__ void give_back(SharedPlan<Layout>& shared, uint32_t stage, uint32_t lane) {
    if (kPair)
        mbarrier_arrive_warp_pair(&shared.k_empty[stage], lane);
    else
        mbarrier_arrive_warp(&shared.k_empty[stage], lane);
}

template <bool kPair>
__device__ __forceinline__ void wait_full(Mbarrier* barrier, uint32_t parity) {
    mbarrier_wait_parity(barrier, parity);
    if (kPair) fence_proxy_async_shared_cta();  // no fence of the peer can follow its st.async
}

template <class Layout>
__device__ __forceinline__ void issue_scores(const SharedPlan<Layout>& shared, uint32_t stage,
                                             float (&s)[32]) {
    const uint64_t q = matrix_descriptor<Swizzle::k128B, 1024>(shared.q);
    const uint64_t k = matrix_descriptor<Swizzle::k128B, 1024>(shared.k[stage]);
#pragma unroll
    for (uint32_t step = 0; step < 4 * SharedPlan<Layout>::kBlocks; ++step) {
        const uint32_t at = step / 4 * kColumnBlock + step % 4 * 32;
        wgmma_m64n64k16_f32_bf16(s, advance(q, at), advance(k, at), step > 0);
    }
}

// The columns 256 `half` to 256 `half` + 255 of the values, tokens along k: 64 columns are a column block.
__device__ __forceinline__ uint64_t values_descriptor(const uint8_t* buffer, uint32_t half) {
    return matrix_descriptor<Swizzle::k128B, 1024, kColumnBlock>(buffer + half * 4 * kColumnBlock);
}

__device__ __forceinline__ void scale_rows(float (&o)[2][64], float upper, float lower) {
    if (__all_sync(0xFFFFFFFFu, upper == 1.0f && lower == 1.0f)) return;
#pragma unroll
    for (uint32_t i = 0; i < 128; ++i)
        o[i / 64][i % 64] *= i / 2 % 2 == 0 ? upper : lower;
}

template <class Layout, bool kPair>
__device__ void scores(SharedPlan<Layout>& shared, const SparseDecodeParams& params) {
    Work work{&shared.record, shared.record.begin_req};
    const uint32_t thread = keep(threadIdx.x % 128), warp = thread / 32, lane = thread % 32;
    const uint32_t row = accumulator_row(thread, 0);
    const float scale_log2 = params.scale_log2 * kStored;
    float o[2][64], s[32];
    uint32_t p[4][4];
    Softmax softmax;

    // Softmax of the scores in s; p to registers and to memory, with the factors, for `values`.
    const auto weigh = [&](uint64_t valid) {
        softmax.step(s, valid, scale_log2, lane);
#pragma unroll
        for (uint32_t k = 0; k < 4; ++k)
#pragma unroll
            for (uint32_t j = 0; j < 4; ++j)
                p[k][j] = cvt_rn_bf16x2_f32(s[8 * k + 2 * j], s[8 * k + 2 * j + 1]);
        bar_sync(kPFree, 256);
#pragma unroll
        for (uint32_t k = 0; k < 4; ++k)
            stmatrix_x4(shared.p + swizzled(16 * warp + lane % 16, 2 * k + lane / 16), p[k]);
        if (lane % 4 == 0) shared.factor[row] = softmax.factor[0], shared.factor[row + 8] = softmax.factor[1];
        fence_proxy_async_shared_cta();
        bar_arrive(kPReady, 256);
    };

    uint32_t used = 0, requests = 0;
    for (; work.there(); ++work.request, ++requests) {
        mbarrier_wait_parity(&shared.q_full, requests & 1);
        fence_proxy_async_shared_cta();  // q came by cp.async, which no fence of the writer can follow
        softmax.reset();
        wait_full<kPair>(&shared.k_full[used % 2], used / 2 & 1);
        wgmma_fence(s);
        issue_scores(shared, used % 2, s);
        wgmma_commit_group();
        const uint64_t first_valid = *reinterpret_cast<const uint64_t*>(shared.valid[used % 2]);
        wgmma_wait_group<0>(s);
        const int32_t blocks = work.end(params) - work.begin();
        if (blocks == 1) mbarrier_arrive_warp(&shared.q_empty, lane);
        weigh(first_valid);
        float norm[2];
        for (int32_t i = 0; i < blocks; ++i, ++used) {
            const uint32_t stage = used % 2;
            const uint64_t v = values_descriptor(shared.k[stage], 0);
            wgmma_fence(o[0]), wgmma_fence(o[1]);
#pragma unroll
            for (uint32_t k = 0; k < 4; ++k)
#pragma unroll
                for (uint32_t n = 0; n < 2; ++n)
                    wgmma_m64n128k16_f32_bf16<1>(o[n], p[k], advance(v, 2 * kColumnBlock * n + 2048 * k),
                                                 i + k > 0);
            wgmma_commit_group();
            if (i + 1 < blocks) {
                const uint32_t parity = (used + 1) / 2 & 1;
                const bool waits = !mbarrier_test_wait_parity(&shared.k_full[stage ^ 1], parity);
                if (waits) {
                    wgmma_wait_group<0>(o[0]), hold(o[1]);
                    give_back<Layout, kPair>(shared, stage, lane);
                }
                wait_full<kPair>(&shared.k_full[stage ^ 1], parity);
                wgmma_fence(s);
                issue_scores(shared, stage ^ 1, s);
                wgmma_commit_group();
                const uint64_t valid = *reinterpret_cast<const uint64_t*>(shared.valid[stage ^ 1]);
                wgmma_wait_group<1>(o[0]), hold(o[1]);
                if (!waits) give_back<Layout, kPair>(shared, stage, lane);
                wgmma_wait_group<0>(s);
                if (i + 2 == blocks) mbarrier_arrive_warp(&shared.q_empty, lane);
                weigh(valid);
                scale_rows(o, softmax.factor[0], softmax.factor[1]);
            } else {
                // While the last products are made.
                const Destination to = shared.to[requests % 2];
#pragma unroll
                for (uint32_t side = 0; side < 2; ++side) {
                    norm[side] = kStored * finish(params, to, blockIdx.x * kHeads + row + 8 * side,
                                                  softmax.maximum[side], softmax.total(side), lane % 4 == 0);
                    if (lane % 4 == 0) shared.norm[row + 8 * side] = norm[side];
                }
                bar_arrive(kNorms, 256);
                wgmma_wait_group<0>(o[0]), hold(o[1]);
                give_back<Layout, kPair>(shared, stage, lane);
            }
        }
        Results{o, keep(thread), 0, norm[0], norm[1]}.write(params, shared.to[requests % 2]);
    }
}

template <class Layout, bool kPair>
__device__ void values(SharedPlan<Layout>& shared, const SparseDecodeParams& params) {
    Work work{&shared.record, shared.record.begin_req};
    const uint32_t thread = keep(threadIdx.x % 128), lane = thread % 32, row = accumulator_row(thread, 0);
    float o[2][64];
    uint32_t used = 0, requests = 0;
    if (thread == 0) shared.to[0] = Destination(params, work);
    bar_arrive(kPFree, 256);
    for (; work.there(); ++work.request, ++requests) {
        const int32_t blocks = work.end(params) - work.begin();
        for (int32_t i = 0; i < blocks; ++i, ++used) {
            const uint32_t stage = used % 2;
            bar_sync(kPReady, 256);
            wait_full<kPair>(&shared.k_full[stage], used / 2 & 1);
            if (i > 0) scale_rows(o, shared.factor[row], shared.factor[row + 8]);
            const uint64_t p = matrix_descriptor<Swizzle::k128B, 1024>(shared.p);
            const uint64_t v = values_descriptor(shared.k[stage], 1);
            wgmma_fence(o[0]), wgmma_fence(o[1]);
#pragma unroll
            for (uint32_t k = 0; k < 4; ++k)
#pragma unroll
                for (uint32_t n = 0; n < 2; ++n)
                    wgmma_m64n128k16_f32_bf16<0, 1>(o[n], advance(p, 32 * k),
                                                    advance(v, 2 * kColumnBlock * n + 2048 * k), i + k > 0);
            wgmma_commit_group();
            wgmma_wait_group<0>(o[0]), hold(o[1]);
            give_back<Layout, kPair>(shared, stage, lane);
            if (i + 1 < blocks) bar_arrive(kPFree, 256);
        }
        bar_sync(kNorms, 256);
        const float upper = shared.norm[row], lower = shared.norm[row + 8];
        const Destination to = shared.to[requests % 2];
        if (!work.last()) {
            if (thread == 0)
                shared.to[(requests + 1) % 2] = Destination(params, {work.record, work.request + 1});
            bar_arrive(kPFree, 256);
        }
        Results{o, keep(thread), 1, upper, lower}.write(params, to);
    }
}

// ---- the kernel

template <class Layout, bool kPair>
__device__ void sparse_decode(const SparseDecodeParams& params) {
    extern __shared__ __align__(1024) uint8_t bytes[];
    SharedPlan<Layout>& shared = *reinterpret_cast<SharedPlan<Layout>*>(bytes);
    if (threadIdx.x == 32) {
        shared.page_reciprocal[0] = reciprocal_of(params.cache.page);
        shared.page_reciprocal[1] = reciprocal_of(max(params.extra.page, 1));
    } else if (threadIdx.x == 64) {
        name_shared("q_full", &shared.q_full, sizeof(Mbarrier));
        name_shared("q_empty", &shared.q_empty, sizeof(Mbarrier));
        name_shared_array("k_full", shared.k_full, sizeof(Mbarrier), 2);
        name_shared_array("k_empty", shared.k_empty, sizeof(Mbarrier), 2);
        name_shared("q", shared.q, sizeof(shared.q));
        name_shared_array("k", shared.k, sizeof(shared.k[0]), 2);
        name_shared("p", shared.p, sizeof(shared.p));
        name_shared_array("valid", shared.valid, sizeof(shared.valid[0]), 2);
        name_shared("factor", shared.factor, sizeof(shared.factor));
        name_shared("norm", shared.norm, sizeof(shared.norm));
        mbarrier_init(&shared.q_full, kGatherThreads);
        mbarrier_init(&shared.q_empty, 4 * kWarpArrivals);
        for (uint32_t stage = 0; stage < 2; ++stage) {
            mbarrier_init(&shared.k_full[stage], kGatherThreads / 32 * kWarpArrivals);
            mbarrier_init(&shared.k_empty[stage], (kPair ? 16 : 8) * kWarpArrivals);
        }
        fence_mbarrier_init();
    }
    if (kPair) cluster_sync();  // barriers of both CTAs stand
    // So far nothing was read that a kernel ahead may have written.
    griddepcontrol_wait();
    griddepcontrol_launch_dependents();
    if (lengths_changed(params)) return poison(params, blockIdx.x * kHeads, kHeads);
    const PartitionRecord& record = params.records[blockIdx.z];
    if (record.begin_req >= params.b) return;  // both CTAs of a pair alike
    const uint32_t warpgroup = threadIdx.x / 128;
    // Two trips to memory, for the record and for the first indices: under way before all threads meet.
    int32_t index = -1;
    if (warpgroup >= 2) index = Walk(params, record).index(params, token_of(threadIdx.x - 256));
    if (threadIdx.x == 0) shared.record = record;
    __syncthreads();

    // 208 + 160 + 2 * 72 = 512 registers for a thread of each warpgroup: all 65,536.
    if (warpgroup == 0) {
        setmaxnreg_inc<208>();
        name_role("scores");
        scores<Layout, kPair>(shared, params);
    } else if (warpgroup == 1) {
        setmaxnreg_inc<160>();
        name_role("values");
        values<Layout, kPair>(shared, params);
    } else {
        setmaxnreg_dec<72>();
        name_role("gather");
        gather<Layout, kPair>(shared, params, index);
    }
}

extern "C" __global__ void __launch_bounds__(512, 1)
    sparse_decode_v32(const __grid_constant__ SparseDecodeParams params) {
    sparse_decode<V32, false>(params);
}
extern "C" __global__ void __launch_bounds__(512, 1)
    sparse_decode_v32_pair(const __grid_constant__ SparseDecodeParams params) {
    sparse_decode<V32, true>(params);
}
extern "C" __global__ void __launch_bounds__(512, 1)
    sparse_decode_model1(const __grid_constant__ SparseDecodeParams params) {
    sparse_decode<Model1, false>(params);
}
extern "C" __global__ void __launch_bounds__(512, 1)
    sparse_decode_model1_pair(const __grid_constant__ SparseDecodeParams params) {
    sparse_decode<Model1, true>(params);
}
