// Partial results on their way from sparse_decode.cu to combine_tiles.cu: float16, as threads hold them.
//
// Nobody but combine reads them, so they need no rows and columns: a thread stores what it has, 16 bytes at a
// time, side by side with its neighbours. Half as many bytes as float32, and no thread waits for another.
#pragma once

#include "attention_tile.cuh"

namespace mla {

// The results of a warpgroup for one slot: 64 heads by 256 columns. Thread t has rows accumulator_row(t, 0)
// and 8 further down, its sides 0 and 1, of them 64 columns each. Piece p of a side holds 8 of them: of the
// 32 columns from 32 p on the pairs 8 j + 2 (t % 4), j = 0 … 3.
struct PartialTile {
    static constexpr uint32_t kPieces = 8, kThreads = 128;
    uint4 pieces[2][kPieces][kThreads];
    float scales[2][kThreads];  // what the float16 must be multiplied by, a power of two for 64 of them
};
static_assert(sizeof(PartialTile) == 33792, "mlacademy.ops.plan.PARTIAL_TILE_BYTES");

// The tile of 256 columns (`half`) of 64 heads (`head_block` of `head_blocks`) of a slot's query row: `line`.
__device__ __forceinline__ int64_t tile_index(int64_t line, uint32_t head_block, uint32_t head_blocks,
                                              uint32_t half) {
    return (line * head_blocks + head_block) * 2 + half;
}

// The power of two that makes the largest of some numbers a float16 of 2^14 to 2^15, and its inverse. Numbers
// below 2^-52 count as that large: so `times` stays below 2^67, and 2^60 times it is finite.
struct Float16Scale {
    float times, back;

    __device__ explicit Float16Scale(float largest) {
        const uint32_t exponent = max(__float_as_uint(largest) >> 23, 127u - 52u);
        times = __uint_as_float((2 * 127 + 14 - exponent) << 23);
        back = __uint_as_float((exponent - 14) << 23);
    }
};

}  // namespace mla
