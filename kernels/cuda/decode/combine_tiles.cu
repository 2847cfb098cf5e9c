// Merge the partial results that sparse_decode.cu left of a request that several partitions worked on.
//
//   out_partial [slots, s_q, head blocks, 2] PartialTile and lse_partial [slots, s_q, h_q] float32 (log2)
//     -> out [b, s_q, h_q, 512] bfloat16 and lse [b, s_q, h_q] float32 (natural log)
//
// The rules are those of combine.cu: weights 2^(a slot's lse - the total lse), a sink that joins the total of
// the output alone, requests with one slot left alone, and NaN that stay where decode found changed lengths.
//
// A CTA takes 8 heads, the rows that a warp has on one side of a tile, and some of their 512 columns. A warp
// takes 32 of these at a time, and of each request the slots of its group. It asks for eight slots at once,
// with their scales and log-sum-exps, and so waits for memory once where there are no more.
//
// Launch: grid (heads / 8 times CTAs for the columns of a head, s_q, b), block (32, warps for columns, groups
// that share the slots). CTAs times warps for the columns of a head are 2, 4, 8 or 16. With programmatic
// serialisation or without: every CTA waits for the decode kernel, then a next kernel may start, which waits
// for this one.
#include "attention_tile.cuh"
#include "convert.cuh"
#include "griddepcontrol.cuh"
#include "partial_tile.cuh"
#include "quad.cuh"
#include "sparse_decode_params.cuh"

using namespace mla;

constexpr int32_t kBatch = 8;                           // slots that a warp asks for at once
constexpr uint32_t kWarps = 8;                          // of a CTA, at most
constexpr uint32_t kPieces = 2 * PartialTile::kPieces;  // of a head's 512 columns, 32 each

// What some slots come to, for eight columns of a head in the order of a piece: sum(2^(lse - top) * column),
// sum(2^(lse - top)), and the largest lse.
struct Merged {
    float columns[8], weights, top;

    // Takes over a larger maximum: what has been summed up shrinks.
    __device__ void raise(float new_top) {
        const float factor = exp2f(top - new_top);
#pragma unroll
        for (float& column : columns)
            column *= factor;
        weights *= factor, top = new_top;
    }
    // `factor` times the float16 of a piece.
    __device__ void add(const uint4& piece, float factor) {
        const uint32_t words[4] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
        for (uint32_t j = 0; j < 4; ++j) {
            columns[2 * j] = fmaf(cvt_f32_f16(words[j] & 0xFFFF), factor, columns[2 * j]);
            columns[2 * j + 1] = fmaf(cvt_f32_f16(words[j] >> 16), factor, columns[2 * j + 1]);
        }
    }
    // What others have merged; this one's maximum is as large as theirs.
    __device__ void add(const Merged& other) {
        const float factor = exp2f(other.top - top);
#pragma unroll
        for (uint32_t i = 0; i < 8; ++i)
            columns[i] = fmaf(other.columns[i], factor, columns[i]);
        weights = fmaf(other.weights, factor, weights);
    }
};

// What a lane reads of a request's slots: its thread's row of a tile, and its head's log-sum-exps.
struct Slots {
    const PartialTile* tiles;  // of the first slot
    const float* lse;          // of the lane's head
    int64_t tiles_apart;
    int32_t lse_apart, count;
    uint32_t side, thread;

    // Merges the slots first, first + step, … A batch of them is asked for before any is waited for.
    __device__ Merged merge(uint32_t piece, int32_t first, int32_t step) const {
        Merged merged = {{}, 0.0f, kMinusHuge};
#pragma unroll 1
        for (int32_t start = first; start < count; start += kBatch * step) {
            uint4 pieces[kBatch];
            float scales[kBatch], log_sums[kBatch], top = merged.top;
#pragma unroll
            for (int32_t i = 0; i < kBatch; ++i) {
                const int32_t slot = start + i * step;
                pieces[i] = {}, scales[i] = 0.0f, log_sums[i] = -kInfinity;  // weighs nothing
                if (slot >= count) continue;
                log_sums[i] = lse[slot * lse_apart];
                const PartialTile& tile = tiles[slot * tiles_apart];
                scales[i] = tile.scales[side][thread];
                pieces[i] = tile.pieces[side][piece][thread];
            }
#pragma unroll
            for (int32_t i = 0; i < kBatch; ++i)
                top = fmaxf(top, log_sums[i]);
            merged.raise(top);
#pragma unroll
            for (int32_t i = 0; i < kBatch; ++i) {
                const float weight = exp2f(log_sums[i] - top);
                merged.weights += weight;
                merged.add(pieces[i], weight * scales[i]);
            }
        }
        return merged;
    }
};

extern "C" __global__ void __launch_bounds__(32 * kWarps, 3)
    combine_tiles(const __grid_constant__ SparseDecodeParams params) {
    __shared__ Merged others[kWarps][32];
    const int32_t request = blockIdx.z, query = blockIdx.y;
    const int32_t first = params.num_splits[request], count = params.num_splits[request + 1] - first;
    griddepcontrol_wait();
    griddepcontrol_launch_dependents();
    if (count < 2) return;
    if (params.verdict && *params.verdict != 0) return;

    const uint32_t lane = threadIdx.x;
    const int32_t group = threadIdx.z, groups = blockDim.z;
    const uint32_t ctas = gridDim.x / ((params.h_q + 7) / 8), eight = blockIdx.x / ctas;
    const uint32_t each = kPieces / (ctas * blockDim.y);  // pieces of this warp, of one half
    const uint32_t piece = (blockIdx.x % ctas * blockDim.y + threadIdx.y) * each;
    const int32_t head = 8 * eight + lane / 4;
    const bool there = head < params.h_q;

    const int64_t line = static_cast<int64_t>(first) * params.s_q + query;
    const uint32_t head_blocks = (params.h_q + 63) / 64;
    const Slots slots = {
        reinterpret_cast<const PartialTile*>(params.out_partial) +
            tile_index(line, eight / 8, head_blocks, piece / PartialTile::kPieces),
        params.lse_partial + line * params.h_q + (there ? head : 0),
        tile_index(params.s_q, 0, head_blocks, 0),
        params.s_q * params.h_q,
        count,
        eight % 2,
        eight % 8 / 2 * 32 + lane,
    };
    const int64_t place = (static_cast<int64_t>(request) * params.s_q + query) * params.h_q + head;
    for (uint32_t i = 0; i < each; ++i) {
        Merged merged = slots.merge((piece + i) % PartialTile::kPieces, group, groups);
        // The first group takes in the others, in their order, and writes.
        if (groups > 1) {
            Merged* const beside = &others[threadIdx.y * groups][lane];
            if (i > 0) __syncthreads();  // all of the piece before has been taken in
            if (group > 0) beside[32 * group] = merged;
            __syncthreads();
            if (group > 0) continue;
            float top = merged.top;
            for (int32_t other = 1; other < groups; ++other)
                top = fmaxf(top, beside[32 * other].top);
            merged.raise(top);
            for (int32_t other = 1; other < groups; ++other)
                merged.add(beside[32 * other]);
        }
        const bool empty = merged.weights == 0.0f;  // every token is a hole
        const float sink = there && params.sink ? exp2f(params.sink[head] * kLog2E - merged.top) : 0.0f;
        const float norm = empty ? 0.0f : 1.0f / (merged.weights + sink);
        uint32_t words[4];
#pragma unroll
        for (uint32_t j = 0; j < 4; ++j)
            words[j] = cvt_rn_bf16x2_f32(merged.columns[2 * j] * norm, merged.columns[2 * j + 1] * norm);
        transpose_in_quad(words, lane);
        if (!there) continue;
        reinterpret_cast<uint4*>(params.out + place * kWidth)[4 * (piece + i) + lane % 4] = {
            words[0], words[1], words[2], words[3]};
        if (piece + i == 0 && lane % 4 == 0)
            params.lse[place] = empty ? kInfinity : (merged.top + log2f(merged.weights)) * kLn2;
    }
}
