// Attention of 128 queries over n keys, as the fast kernels for Hopper do it: a warpgroup copies, two
// multiply.
//
//   q [128, 64], k [n, 64], v [n, 64] bfloat16 -> out [128, 64] float32 = softmax(q k^T / 8) v
//
//   barrier               arrivals                        a phase ends when             who waits
//   q                     1 + 16384 bytes                 q has landed                  both multiplying
//   warpgroups k_full, v_full [2]    1 + 8192 bytes                  the tile has landed           both
//   multiplying warpgroups k_empty, v_empty [2]  8: a lane of each warp          all have multiplied with it
//   the copying lane named 1, 2            256: 128 arrive, 128 wait       the other has issued q k^T
//   warpgroup 1, 2
//
// While the product with v runs, the next product with k does too. Launch: grid 1, block 384, dynamic shared
// memory.
#include "convert.cuh"
#include "fence.cuh"
#include "mbarrier.cuh"
#include "named_barrier.cuh"
#include "names.cuh"
#include "setmaxnreg.cuh"
#include "tma.cuh"
#include "wgmma.cuh"

using namespace mla;

constexpr float kLowest = -3e38f;
constexpr uint32_t kStages = 2, kGroupBytes = 1024, kTileBytes = 8192, kTurn = 1;

struct SharedPlan {
    uint16_t q[2][64][64], k[kStages][64][64], v[kStages][64][64];
    Mbarrier q_full, k_full[kStages], v_full[kStages], k_empty[kStages], v_empty[kStages];
};

__device__ void copy(SharedPlan& s, const CUtensorMap* q, const CUtensorMap* k, const CUtensorMap* v,
                     int blocks) {
    mbarrier_arrive_expect_tx(&s.q_full, 2 * kTileBytes);
    for (int half = 0; half < 2; ++half)
        cp_async_bulk_tensor_2d_shared_global(s.q[half], q, 0, 64 * half, &s.q_full);
    for (int j = 0; j < blocks; ++j) {
        const uint32_t stage = j % kStages, parity = ~(j / kStages) & 1;
        mbarrier_wait_parity(&s.k_empty[stage], parity);
        mbarrier_arrive_expect_tx(&s.k_full[stage], kTileBytes);
        cp_async_bulk_tensor_2d_shared_global(s.k[stage], k, 0, 64 * j, &s.k_full[stage]);
        mbarrier_wait_parity(&s.v_empty[stage], parity);
        mbarrier_arrive_expect_tx(&s.v_full[stage], kTileBytes);
        cp_async_bulk_tensor_2d_shared_global(s.v[stage], v, 0, 64 * j, &s.v_full[stage]);
    }
}

// One warpgroup: 64 queries. Of each thread two rows, l / 4 and l / 4 + 8 of its warp's 16.
struct Consumer {
    SharedPlan& s;
    uint32_t mine, thread;
    int n, blocks;
    float o[32] = {}, scores[32], most[2] = {kLowest, kLowest}, sum[2] = {};
    uint32_t p[4][4];

    __device__ void issue_scores(int j) {
        mbarrier_wait_parity(&s.k_full[j % kStages], j / kStages & 1);
        bar_sync(kTurn + mine, 256);
        const uint64_t q = matrix_descriptor<Swizzle::k128B, kGroupBytes>(s.q[mine]);
        const uint64_t k = matrix_descriptor<Swizzle::k128B, kGroupBytes>(s.k[j % kStages]);
        wgmma_fence(scores);
#pragma unroll
        for (uint32_t slice = 0; slice < 4; ++slice)
            wgmma_m64n64k16_f32_bf16(scores, advance(q, 32 * slice), advance(k, 32 * slice), slice > 0);
        wgmma_commit_group();
        if (mine == 0 || j + 1 < blocks) bar_arrive(kTurn + (mine ^ 1), 256);
    }
    __device__ void issue_output(int j) {
        mbarrier_wait_parity(&s.v_full[j % kStages], j / kStages & 1);
        const uint64_t v = matrix_descriptor<Swizzle::k128B, kGroupBytes, kGroupBytes>(s.v[j % kStages]);
        wgmma_fence(o);
#pragma unroll
        for (uint32_t slice = 0; slice < 4; ++slice)
            wgmma_m64n64k16_f32_bf16<1>(o, p[slice], advance(v, 2048 * slice), j + slice > 0);
        wgmma_commit_group();
    }
    __device__ void release(Mbarrier& empty) {
        if (thread % 32 == 0) mbarrier_arrive(&empty);
    }
    // The weights of block j, in place; what the output so far must be multiplied by.
    __device__ void softmax(int j, float (&shrink)[2]) {
#pragma unroll
        for (uint32_t half = 0; half < 2; ++half) {
            float top = most[half];
#pragma unroll
            for (uint32_t i = 0; i < 32; ++i) {
                if (i / 2 % 2 != half) continue;
                scores[i] *= 0.125f * 1.4426950408889634f;
                if (64 * j + accumulator_column(thread, i) >= n) scores[i] = kLowest;
                top = fmaxf(top, scores[i]);
            }
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
            shrink[half] = exp2f(most[half] - top);
            most[half] = top;
            float total = 0;
#pragma unroll
            for (uint32_t i = 0; i < 32; ++i)
                if (i / 2 % 2 == half) total += scores[i] = exp2f(scores[i] - top);
            sum[half] = sum[half] * shrink[half] + total;
        }
    }
    __device__ void weights() {
#pragma unroll
        for (uint32_t i = 0; i < 16; ++i)
            p[i / 4][i % 4] = cvt_rn_bf16x2_f32(scores[2 * i], scores[2 * i + 1]);
    }
    __device__ void run(float* out) {
        float shrink[2];
        mbarrier_wait_parity(&s.q_full, 0);
        if (mine == 1) bar_arrive(kTurn, 256);
        issue_scores(0);
        wgmma_wait_group<0>(scores);
        release(s.k_empty[0]);
        softmax(0, shrink);
        weights();
        for (int j = 1; j < blocks; ++j) {
            issue_scores(j);
            issue_output(j - 1);
            wgmma_wait_group<1>(scores);
            release(s.k_empty[j % kStages]);
            softmax(j, shrink);
            wgmma_wait_group<0>(o);
            release(s.v_empty[(j - 1) % kStages]);
            weights();
#pragma unroll
            for (uint32_t i = 0; i < 32; ++i)
                o[i] *= shrink[i / 2 % 2];
        }
        issue_output(blocks - 1);
        wgmma_wait_group<0>(o);
#pragma unroll
        for (uint32_t half = 0; half < 2; ++half) {
            sum[half] += __shfl_xor_sync(~0u, sum[half], 1);
            sum[half] += __shfl_xor_sync(~0u, sum[half], 2);
        }
#pragma unroll
        for (uint32_t i = 0; i < 32; ++i)
            out[(64 * mine + accumulator_row(thread, i)) * 64 + accumulator_column(thread, i)] =
                o[i] / sum[i / 2 % 2];
    }
};

extern "C" __global__ void __launch_bounds__(384, 1)
    attention(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k,
              const __grid_constant__ CUtensorMap v, float* out, int n) {
    extern __shared__ __align__(1024) uint8_t bytes[];
    SharedPlan& s = *reinterpret_cast<SharedPlan*>(bytes);
    const int blocks = (n + 63) / 64;
    if (threadIdx.x == 0) {
        mbarrier_init(&s.q_full, 1);
        for (uint32_t stage = 0; stage < kStages; ++stage) {
            mbarrier_init(&s.k_full[stage], 1), mbarrier_init(&s.v_full[stage], 1);
            mbarrier_init(&s.k_empty[stage], 8), mbarrier_init(&s.v_empty[stage], 8);
        }
        fence_mbarrier_init();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        name_role("producer");
        setmaxnreg_dec<24>();
        if (threadIdx.x == 0) copy(s, &q, &k, &v, blocks);
    } else {
        name_role("consumer");
        setmaxnreg_inc<240>();
        Consumer{s, threadIdx.x / 128 - 1, threadIdx.x % 128, n, blocks}.run(out);
    }
}
