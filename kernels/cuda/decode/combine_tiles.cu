// Merge the partial results that sparse_decode.cu left of a request that several partitions worked on.
//
//   out_partial [slots, s_q, head blocks, 2] PartialTile and lse_partial [slots, s_q, h_q] float32 (log2)
//     -> out [b, s_q, h_q, 512] bfloat16 and lse [b, s_q, h_q] float32 (natural log)
//
// The rules are those of combine.cu: weights 2^(a slot's lse - the total lse), a sink that joins the total of
// the output alone, requests with one slot left alone, and NaN that stay where decode found changed lengths.
//
// A CTA takes 8 heads, the rows that a warp has on one side of a tile, and some of their 512 columns. A warp
// takes 32 columns at a time of some of the slots. Its first rows are asked for before the weights are known:
// log-sum-exps come with them, in one trip to memory. All lanes of a quad have the same head; they share the
// work of its total.
//
// Launch: grid (heads / 8 times CTAs for the columns of a head, s_q, b), block (32, warps for columns, groups
// that share the slots), the first two a power of two; with or without programmatic serialisation, as
// combine.cu.
#include "attention_tile.cuh"
#include "convert.cuh"
#include "griddepcontrol.cuh"
#include "partial_tile.cuh"
#include "quad.cuh"
#include "sparse_decode_params.cuh"
#include "wgmma.cuh"

using namespace mla;

constexpr int32_t kBatch = 8;                           // slots that a warp asks for at once
constexpr uint32_t kWarps = 16;                         // of a CTA, at most
constexpr uint32_t kPieces = 2 * PartialTile::kPieces;  // of a head's 512 columns, 32 each

// The log-sum-exps of one head's slots, which are `stride` apart.
struct Weights {
    const float* lse;
    int32_t stride, count;
    float top, total;  // the largest, and sum(2^(lse - top))

    // A quad's lanes have the same head. All 32 lanes together.
    __device__ Weights(const float* lse, int32_t stride, int32_t count)
        : lse(lse), stride(stride), count(count), top(kMinusHuge), total(0.0f) {
        const int32_t first = threadIdx.x % 4;
#pragma unroll 8
        for (int32_t slot = first; slot < count; slot += 4)
            top = fmaxf(top, lse[slot * stride]);
        top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFu, top, 2));
#pragma unroll 8
        for (int32_t slot = first; slot < count; slot += 4)
            total += exp2f(lse[slot * stride] - top);
        total += __shfl_xor_sync(0xFFFFFFFFu, total, 1);
        total += __shfl_xor_sync(0xFFFFFFFFu, total, 2);
    }
};

// Eight columns of a head, in the order of a piece.
struct Columns {
    float of[8];

    // `factor` times the float16 of a piece.
    __device__ void add(const uint4& piece, float factor) {
        const uint32_t words[4] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
        for (uint32_t j = 0; j < 4; ++j) {
            of[2 * j] = fmaf(cvt_f32_f16(words[j] & 0xFFFF), factor, of[2 * j]);
            of[2 * j + 1] = fmaf(cvt_f32_f16(words[j] >> 16), factor, of[2 * j + 1]);
        }
    }
};

// Some slots of a warp's rows, on their way or there: a piece of each, and what it must be multiplied by.
struct Batch {
    uint4 pieces[kBatch];
    float factors[kBatch], lse[kBatch];
};

extern "C" __global__ void __launch_bounds__(32 * kWarps, 1)
    combine_tiles(const __grid_constant__ SparseDecodeParams params) {
    __shared__ Columns others[kWarps][32];
    const int32_t request = blockIdx.z, query = blockIdx.y;
    const int32_t first = params.num_splits[request], count = params.num_splits[request + 1] - first;
    const bool split = count > 1;
    if (split || blockIdx.x + blockIdx.y + blockIdx.z == 0) griddepcontrol_wait();
    griddepcontrol_launch_dependents();
    if (!split) return;
    if (params.verdict && *params.verdict != 0) return;

    const uint32_t lane = threadIdx.x;
    const int32_t group = threadIdx.z, groups = blockDim.z;
    const uint32_t ctas = gridDim.x / ((params.h_q + 7) / 8), eight = blockIdx.x / ctas;
    const uint32_t each = kPieces / (ctas * blockDim.y);  // pieces of this warp, of one half
    const uint32_t piece = (blockIdx.x % ctas * blockDim.y + threadIdx.y) * each;
    const uint32_t half = piece / PartialTile::kPieces, side = eight % 2;
    const uint32_t thread = eight % 8 / 2 * 32 + lane;  // of the warpgroup that wrote the tile
    const int32_t head = 8 * eight + lane / 4;

    const int64_t line = static_cast<int64_t>(first) * params.s_q + query;
    const uint32_t head_blocks = (params.h_q + 63) / 64;
    const PartialTile* const tiles = reinterpret_cast<const PartialTile*>(params.out_partial) +
                                     tile_index(line, eight / 8, head_blocks, half);
    const int64_t tiles_apart = tile_index(params.s_q, 0, head_blocks, 0);
    const float* const lse = params.lse_partial + line * params.h_q + min(head, params.h_q - 1);
    const int32_t lse_apart = params.s_q * params.h_q;

    Batch batch;
    const auto ask_pieces = [&](int32_t start, uint32_t i) {
#pragma unroll
        for (int32_t j = 0; j < kBatch; ++j) {
            const int32_t slot = start + group + j * groups;
            batch.pieces[j] = {};
            if (slot < count)
                batch.pieces[j] =
                    tiles[slot * tiles_apart].pieces[side][piece % PartialTile::kPieces + i][thread];
        }
    };
    const auto ask_factors = [&](int32_t start) {
#pragma unroll
        for (int32_t j = 0; j < kBatch; ++j) {
            const int32_t slot = start + group + j * groups;
            batch.factors[j] = 0.0f, batch.lse[j] = -kInfinity;
            if (slot >= count) continue;
            batch.factors[j] = tiles[slot * tiles_apart].scales[side][thread];
            batch.lse[j] = lse[slot * lse_apart];
        }
    };
    ask_pieces(0, 0), ask_factors(0);

    const Weights weights(lse, lse_apart, count);
    const bool empty = weights.total == 0.0f;  // every token is a hole
    const float sink =
        params.sink ? exp2f(params.sink[min(head, params.h_q - 1)] * kLog2E - weights.top) : 0.0f;
    const float norm = empty ? 0.0f : 1.0f / (weights.total + sink);
    const auto weigh = [&] {
#pragma unroll
        for (int32_t j = 0; j < kBatch; ++j)
            batch.factors[j] *= exp2f(batch.lse[j] - weights.top) * norm;
    };
    weigh();

    const int64_t place = (static_cast<int64_t>(request) * params.s_q + query) * params.h_q + head;
    for (uint32_t i = 0; i < each; ++i) {
        Columns columns = {};
        for (int32_t start = 0; start < count; start += kBatch * groups) {
            if (i > 0 || start > 0) ask_pieces(start, i);
            if (start > 0 || (i > 0 && count > kBatch * groups)) ask_factors(start), weigh();
#pragma unroll
            for (int32_t j = 0; j < kBatch; ++j)
                columns.add(batch.pieces[j], batch.factors[j]);
        }
        // The first group takes in the others, in their order, and writes.
        if (groups > 1) {
            __syncthreads();  // all of the piece before has been taken in
            if (group > 0) others[threadIdx.y * groups + group][lane] = columns;
            __syncthreads();
        }
        if (group > 0) continue;
        for (int32_t other = 1; other < groups; ++other)
#pragma unroll
            for (uint32_t j = 0; j < 8; ++j)
                columns.of[j] += others[threadIdx.y * groups + other][lane].of[j];
        uint32_t words[4];
#pragma unroll
        for (uint32_t j = 0; j < 4; ++j)
            words[j] = cvt_rn_bf16x2_f32(columns.of[2 * j], columns.of[2 * j + 1]);
        transpose_in_quad(words, lane);
        if (head < params.h_q)
            reinterpret_cast<uint4*>(params.out + place * kWidth)[4 * (piece + i) + lane % 4] = {
                words[0], words[1], words[2], words[3]};
    }
    if (piece == 0 && group == 0 && lane % 4 == 0 && head < params.h_q)
        params.lse[place] = empty ? kInfinity : (weights.top + log2f(weights.total)) * kLn2;
}
