// How the multiplying roles of sparse_decode.cu write the results of a request.
#pragma once

#include "attention_tile.cuh"
#include "convert.cuh"
#include "destination.cuh"
#include "partial_tile.cuh"
#include "quad.cuh"
#include "shared_plan.cuh"
#include "wgmma.cuh"

namespace mla {

// A warpgroup's 256 columns of 64 heads, as its multiplies leave them: from column 256 · half on; each row is
// multiplied by upper or lower. Straight from registers: 16 bytes a lane, whole sectors.
struct Results {
    const float (&o)[2][64];
    uint32_t thread, half;
    float upper, lower;

    __device__ __forceinline__ void write(const SparseDecodeParams& params, const Destination& to) const {
        if (to.split)
            write_tile(params, to.line);
        else
            write_rows(params, to.line);
    }

  private:
    __device__ __forceinline__ float norm(uint32_t side) const { return side == 0 ? upper : lower; }
    // The `right`-th number of pair `pair` (0 … 31) of one of the thread's two rows, not yet multiplied.
    __device__ __forceinline__ float at(uint32_t side, uint32_t pair, uint32_t right) const {
        return o[pair / 16][4 * (pair % 16) + 2 * side + right];
    }
    __device__ __forceinline__ void write_rows(const SparseDecodeParams& params, int64_t line) const {
#pragma unroll
        for (uint32_t side = 0; side < 2; ++side) {
            const int32_t head = blockIdx.x * kHeads + accumulator_row(thread, 2 * side);
            uint4* const row =
                reinterpret_cast<uint4*>(params.out + (line * params.h_q + head) * kWidth + 256 * half);
#pragma unroll
            for (uint32_t piece = 0; piece < PartialTile::kPieces; ++piece) {
                uint32_t words[4];
#pragma unroll
                for (uint32_t j = 0; j < 4; ++j)
                    words[j] = cvt_rn_bf16x2_f32(at(side, 4 * piece + j, 0) * norm(side),
                                                 at(side, 4 * piece + j, 1) * norm(side));
                transpose_in_quad(words, thread % 32);
                if (head < params.h_q) row[4 * piece + thread % 4] = {words[0], words[1], words[2], words[3]};
            }
        }
    }
    __device__ __forceinline__ void write_tile(const SparseDecodeParams& params, int64_t line) const {
        PartialTile& tile =
            reinterpret_cast<PartialTile*>(params.out_partial)[tile_index(line, blockIdx.x, gridDim.x, half)];
#pragma unroll
        for (uint32_t side = 0; side < 2; ++side) {
            float largest = 0.0f;
#pragma unroll
            for (uint32_t pair = 0; pair < 32; ++pair)
                largest = fmaxf(largest, fmaxf(fabsf(at(side, pair, 0)), fabsf(at(side, pair, 1))));
            const Float16Scale scale(largest * norm(side));
            const float times = norm(side) * scale.times;
            tile.scales[side][thread] = scale.back;
#pragma unroll
            for (uint32_t piece = 0; piece < PartialTile::kPieces; ++piece) {
                uint32_t words[4];
#pragma unroll
                for (uint32_t j = 0; j < 4; ++j)
                    words[j] = cvt_rn_f16x2_f32(at(side, 4 * piece + j, 0) * times,
                                                at(side, 4 * piece + j, 1) * times);
                tile.pieces[side][piece][thread] = {words[0], words[1], words[2], words[3]};
            }
        }
    }
};

}  // namespace mla
