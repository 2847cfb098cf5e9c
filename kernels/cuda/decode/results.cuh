// How the multiplying roles of sparse_decode.cu write the rows of a request.
#pragma once

#include "attention_tile.cuh"
#include "bulk.cuh"
#include "convert.cuh"
#include "destination.cuh"
#include "fence.cuh"
#include "shared_plan.cuh"
#include "walk.cuh"
#include "wgmma.cuh"

namespace mla {

// A warpgroup's 256 columns of a request's rows, as its multiplies leave them: from column 256 · half on;
// each row is multiplied by upper or lower. Lanes of a quad hold neighbouring pairs of columns.
struct Rows256 {
    const float (&o)[2][64];
    uint32_t thread, half;
    float upper, lower;

    // Of the side-th of the thread's two rows, all pairs: float32 if kSplit, else bfloat16.
    template <bool kSplit>
    __device__ __forceinline__ void store(uint8_t* to, uint32_t side) const {
        const float norm = side == 0 ? upper : lower;
#pragma unroll
        for (uint32_t i = 0; i < 32; ++i) {
            const float left = o[i / 16][4 * (i % 16) + 2 * side] * norm;
            const float right = o[i / 16][4 * (i % 16) + 2 * side + 1] * norm;
            if constexpr (kSplit)
                *reinterpret_cast<float2*>(to + 32 * i) = {left, right};
            else
                *reinterpret_cast<uint32_t*>(to + 16 * i) = cvt_rn_bf16x2_f32(left, right);
        }
    }
    // Straight from registers: 8 rows an instruction, which are 8 cache lines.
    template <bool kSplit>
    __device__ __forceinline__ void write(const SparseDecodeParams& params, int64_t line) const {
#pragma unroll
        for (uint32_t side = 0; side < 2; ++side) {
            const int32_t head = blockIdx.x * kHeads + accumulator_row(thread, 2 * side);
            if (head < params.h_q)
                store<kSplit>(place<kSplit>(params, line, head) + 2 * bytes<kSplit> * (thread % 4), side);
        }
    }
    // By way of shared memory, a bulk copy a row.
    template <bool kSplit>
    __device__ __forceinline__ void write_staged(const SparseDecodeParams& params, int64_t line,
                                                 uint8_t* stage) const {
#pragma unroll
        for (uint32_t side = 0; side < 2; ++side)
            store<kSplit>(
                stage + accumulator_row(thread, 2 * side) * kStageRow + 2 * bytes<kSplit> * (thread % 4),
                side);
        fence_proxy_async_shared_cta();
        __syncwarp();
        const uint32_t row = thread / 32 * 16 + thread % 16;  // a lane each of the warp's 16
        const int32_t head = blockIdx.x * kHeads + row;
        if (thread % 32 >= 16 || head >= params.h_q) return;
        cp_async_bulk_global_shared(place<kSplit>(params, line, head), stage + row * kStageRow,
                                    256 * bytes<kSplit>);
        cp_async_bulk_commit_group();
        cp_async_bulk_wait_group<0>();
    }

  private:
    template <bool kSplit>
    static constexpr uint32_t bytes = kSplit ? 4 : 2;
    template <bool kSplit>
    __device__ __forceinline__ uint8_t* place(const SparseDecodeParams& params, int64_t line,
                                              int32_t head) const {
        uint8_t* const out =
            kSplit ? reinterpret_cast<uint8_t*>(params.out_partial) : reinterpret_cast<uint8_t*>(params.out);
        return out + ((line * params.h_q + head) * kWidth + 256 * half) * bytes<kSplit>;
    }
};

// Writes the rows. At the end of a partition there is room of kStageBytes in shared memory to stage them in.
__device__ __forceinline__ void write_rows(const SparseDecodeParams& params, const Destination& to,
                                           const Rows256& rows, bool ends_partition, uint8_t* stage) {
    if (ends_partition && to.split)
        rows.write_staged<true>(params, to.line, stage);
    else if (ends_partition)
        rows.write_staged<false>(params, to.line, stage);
    else if (to.split)
        rows.write<true>(params, to.line);
    else
        rows.write<false>(params, to.line);
}

}  // namespace mla
