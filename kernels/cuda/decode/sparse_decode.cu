// Sparse decode of multi-head latent attention on Hopper: 64 query heads a CTA, the latents of a list of
// slots as keys and values, FP8 in the cache, bfloat16 in the multiplies. 128 heads are a cluster of two CTAs
// that read and convert half of the tokens each and store every piece in both.
//
// Three warpgroups, and what they do with a block of 64 tokens:
//
//   scores   q times k (64 x 64), softmax; then p times v for the columns 0 - 255 of the output
//   values   p times v for the columns 256 - 511
//   gather   reads the rows of the slots, stores them as bfloat16, swizzled (in the peer too); loads q
//
// The multiplies of `scores` run one ahead: while p times v of block i is in flight, q times k of block i + 1
// is too.
//
//   barrier     arrivals a phase                      ends when                         who waits
//   q_full      128 (gather: its cp.async)            a request's heads have landed     scores
//   q_empty     4 (one a warp of scores)              its last scores are made          gather
//   k_full[2]   128 (gather), + the peer's bytes      64 tokens have landed             scores, values
//   k_empty[2]  8 a CTA (one a multiplying warp)      both halves of p times v are made gather
//   1 (named)   256                                   p and the factors are in memory   values
//   2 (named)   256                                   values has used them              scores
//
// Launch: grid (h_q / 64, s_q, partitions), cluster (h_q / 64, 1, 1), block 384, dynamic shared memory
// sizeof(SharedPlan). Layouts of the cache: 656 bytes a token (V3.2) or 584 (MODEL1).
#include "cluster.cuh"
#include "convert.cuh"
#include "fence.cuh"
#include "fp8_rows.cuh"
#include "griddepcontrol.cuh"
#include "lengths.cuh"
#include "mbarrier.cuh"
#include "named_barrier.cuh"
#include "names.cuh"
#include "setmaxnreg.cuh"
#include "sparse_decode_params.cuh"
#include "warp.cuh"
#include "wgmma.cuh"

using namespace mla;

constexpr uint32_t kHeads = 64, kTokens = 64, kWidth = 512;
constexpr uint32_t kColumnBlock = kTokens * 128;  // 64 rows of 64 bfloat16
constexpr uint32_t kPReady = 1, kPFree = 2;
constexpr float kMinusHuge = -1e30f;  // a maximum before any score: finite, as its differences must be
constexpr float kLazy = 8.0f;         // log2 units a maximum may grow before the output is rescaled
constexpr float kInfinity = __builtin_bit_cast(float, 0x7F800000u);
constexpr float kLn2 = 0.69314718055994531f, kLog2E = 1.4426950408889634f;

// DeepSeek-V3.2: 512 codes, 4 float32 scales (one for 128 values), 64 bfloat16 that are keys only.
struct V32 {
    static constexpr uint32_t kNopeBlocks = 8, kRowBytes = 656, kRopeAt = 528;
    struct Scales {
        float4 of;
        __device__ uint32_t pair(uint32_t block) const {
            return both_halves_bf16(block < 2 ? of.x : block < 4 ? of.y : block < 6 ? of.z : of.w);
        }
    };
    static __device__ Scales scales(const uint8_t* page, const uint8_t* row, uint32_t, uint32_t) {
        return {__ldg(reinterpret_cast<const float4*>(row + 512))};
    }
};
// MODEL1: 448 codes, 64 bfloat16 that are keys and values; 7 scales of 8 bits (one for 64 values) after the
// page's rows.
struct Model1 {
    static constexpr uint32_t kNopeBlocks = 7, kRowBytes = 576, kRopeAt = 448;
    struct Scales {
        uint2 of;
        __device__ uint32_t pair(uint32_t block) const {
            const uint32_t code = (block < 4 ? of.x : of.y) >> (8 * (block & 3)) & 0xFF;
            const uint32_t bits = code == 0 ? 0x0040u : code == 255 ? 0x7FFFu : code << 7;
            return bits << 16 | bits;
        }
    };
    static __device__ Scales scales(const uint8_t* page, const uint8_t*, uint32_t page_size,
                                    uint32_t offset) {
        return {__ldg(reinterpret_cast<const uint2*>(page + page_size * kRowBytes + 8 * offset))};
    }
};

template <class Layout>
struct SharedPlan {
    static constexpr uint32_t kBlocks = Layout::kNopeBlocks + 1;
    alignas(1024) uint8_t q[kBlocks * kColumnBlock];
    alignas(1024) uint8_t k[2][kBlocks * kColumnBlock];
    alignas(1024) uint8_t p[kColumnBlock];
    alignas(8) uint8_t valid[2][8];  // a bit a token
    float factor[kHeads], norm[kHeads];
    PartitionRecord record;
    Mbarrier q_full, q_empty, k_full[2], k_empty[2];
};
static_assert(sizeof(SharedPlan<V32>) <= 232448, "shared memory of a CTA");

// Where chunk `chunk` (16 bytes) of row `row` of a column block lies under swizzle 128B.
__device__ __forceinline__ uint32_t swizzled(uint32_t row, uint32_t chunk) {
    return row * 128 + ((chunk ^ (row & 7)) << 4);
}

// The part of one request that a partition works on. The record lies in shared memory and is read again
// whenever it is asked, which keeps registers free.
struct Work {
    const PartitionRecord* record;
    int32_t request;

    __device__ bool first() const { return request == record->begin_req; }
    __device__ bool last() const { return request == record->end_req; }
    __device__ bool there() const { return request <= record->end_req; }
    __device__ int32_t begin() const { return first() ? record->begin_block : 0; }
    __device__ int32_t end(const SparseDecodeParams& params) const {
        return last() ? record->end_block : main_blocks(params) + extra_blocks(params);
    }
    __device__ int32_t main_blocks(const SparseDecodeParams& params) const {
        return (max(list_length(params.cache, request), 1) + 63) / 64;
    }
    __device__ int32_t extra_blocks(const SparseDecodeParams& params) const {
        return params.extra.kv ? (list_length(params.extra, request) + 63) / 64 : 0;
    }
    // Whether other partitions work on the request too.
    __device__ bool split() const {
        return (first() && record->first_is_split) || (last() && record->last_is_split);
    }
    // Row of the (partial) result: the request, or its slot among the partial results.
    __device__ int64_t line(const SparseDecodeParams& params) const {
        const int32_t place =
            split() ? params.num_splits[request] + (first() ? record->begin_split : 0) : request;
        return place * static_cast<int64_t>(params.s_q) + blockIdx.y;
    }
};

// ---- gather

// What a thread has read of one token: every fourth 16 bytes of the codes, two of the eight pieces of the
// RoPE part.
template <class Layout>
struct Row {
    uint4 codes[Layout::kNopeBlocks], rope[2];
    typename Layout::Scales scales;
};

// What stands in place `position` of the request's list, not looked at yet, so that nothing waits for the
// load; -1 beyond the list's end.
__device__ __forceinline__ int32_t index_at(const CacheView& view, int32_t request, int32_t query,
                                            int32_t position) {
    if (position >= list_length(view, request)) return -1;
    return __ldg(view.indices + request * view.index_stride_b + query * view.index_stride_s + position);
}
// Whether an index names a slot; -1 and everything out of range is a hole.
__device__ __forceinline__ bool names_slot(const CacheView& view, int32_t index) {
    return static_cast<uint32_t>(index) < static_cast<uint32_t>(view.slots);
}

template <class Layout>
__device__ __forceinline__ void read_row(Row<Layout>& row, const CacheView& view, int32_t index,
                                         uint32_t slice) {
    if (!names_slot(view, index)) {
        row = {};
        return;
    }
    const uint32_t page = static_cast<uint32_t>(index) / view.page,
                   offset = static_cast<uint32_t>(index) % view.page;
    const uint8_t* const page_start = view.kv + page * view.page_stride;
    const uint8_t* const start = page_start + offset * Layout::kRowBytes;
#pragma unroll
    for (uint32_t block = 0; block < Layout::kNopeBlocks; ++block)
        row.codes[block] = __ldg(reinterpret_cast<const uint4*>(start + 64 * block + 16 * slice));
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half)
        row.rope[half] =
            __ldg(reinterpret_cast<const uint4*>(start + Layout::kRopeAt + 64 * half + 16 * slice));
    row.scales = Layout::scales(page_start, start, view.page, offset);
}

// Stores 16 bytes here and, in a pair, at the same place of the peer.
template <bool kPair>
__device__ __forceinline__ void put(uint8_t* place, uint32_t peer_place, uint32_t peer_full,
                                    const uint32_t (&piece)[4]) {
    *reinterpret_cast<uint4*>(place) = {piece[0], piece[1], piece[2], piece[3]};
    if constexpr (kPair) st_async_v4_u32(peer_place, piece, peer_full);
}

template <class Layout, bool kPair>
__device__ __forceinline__ void store_row(const Row<Layout>& row, uint8_t* buffer, uint32_t peer_buffer,
                                          uint32_t peer_full, uint32_t token, uint32_t slice) {
#pragma unroll
    for (uint32_t block = 0; block < Layout::kNopeBlocks; ++block) {
        const uint32_t scale = row.scales.pair(block);
        const uint32_t words[4] = {row.codes[block].x, row.codes[block].y, row.codes[block].z,
                                   row.codes[block].w};
#pragma unroll
        for (uint32_t half = 0; half < 2; ++half) {
            uint32_t piece[4];
            e4m3x4_to_bf16x4(words[2 * half], scale, piece[0], piece[1]);
            e4m3x4_to_bf16x4(words[2 * half + 1], scale, piece[2], piece[3]);
            const uint32_t at = block * kColumnBlock + swizzled(token, 2 * slice + half);
            put<kPair>(buffer + at, peer_buffer + at, peer_full, piece);
        }
    }
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
        const uint32_t piece[4] = {row.rope[half].x, row.rope[half].y, row.rope[half].z, row.rope[half].w};
        const uint32_t at = Layout::kNopeBlocks * kColumnBlock + swizzled(token, 4 * half + slice);
        put<kPair>(buffer + at, peer_buffer + at, peer_full, piece);
    }
}

template <class Layout>
__device__ void load_q(SharedPlan<Layout>& shared, const SparseDecodeParams& params, int32_t request,
                       uint32_t thread) {
    constexpr uint32_t kChunks = 8 * SharedPlan<Layout>::kBlocks;
    const int32_t first_head = blockIdx.x * kHeads;
    const uint16_t* const q = params.q + request * params.q_stride_b + blockIdx.y * params.q_stride_s;
    for (uint32_t i = thread; i < kHeads * kChunks; i += 128) {
        const uint32_t head = i / kChunks, chunk = i % kChunks;
        const bool there = first_head + head < params.h_q;
        const uint16_t* const from = q + (there ? (first_head + head) * params.q_stride_h + 8 * chunk : 0);
        uint8_t* const to = shared.q + chunk / 8 * kColumnBlock + swizzled(head, chunk % 8);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(smem_address(to)),
                     "l"(__cvta_generic_to_global(from)), "r"(there ? 16 : 0)
                     : "memory");
    }
    cp_async_mbarrier_arrive_noinc(&shared.q_full);
}

// Where the gathering stands: a block of a request, and the indices of this thread's two tokens of it.
struct Place {
    Work work;
    int32_t block, end, in_main, low, high;  // low: of the token in half 0; high: 32 tokens further

    __device__ void enter(const SparseDecodeParams& params) {
        block = work.begin(), end = work.end(params), in_main = work.main_blocks(params);
    }
    __device__ const CacheView& view(const SparseDecodeParams& params) const {
        return block < in_main ? params.cache : params.extra;
    }
    // The peer's half is looked at too, for its holes.
    __device__ void look(const SparseDecodeParams& params, uint32_t token) {
        const int32_t first = (block < in_main ? block : block - in_main) * 64 + token;
        low = index_at(view(params), work.request, blockIdx.y, first);
        high = index_at(view(params), work.request, blockIdx.y, first + 32);
    }
    __device__ bool advance(const SparseDecodeParams& params) {
        if (++block < end) return true;
        ++work.request;
        if (!work.there()) return false;
        enter(params);
        return true;
    }
};

template <class Layout, bool kPair>
__device__ void gather(SharedPlan<Layout>& shared, const SparseDecodeParams& params) {
    const uint32_t thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
    const uint32_t slice = lane / 8, own = 8 * warp + lane % 8, rank = kPair ? cluster_ctarank() : 0;
    const uint32_t peer_k = kPair ? mapa(smem_address(shared.k[0]), rank ^ 1) : 0;
    const uint32_t peer_full = kPair ? mapa(smem_address(&shared.k_full[0]), rank ^ 1) : 0;

    Place here{{&shared.record, shared.record.begin_req}};
    here.enter(params);
    here.look(params, own);
    Row<Layout> row;
    read_row(row, here.view(params), rank == 0 ? here.low : here.high, slice);
    load_q(shared, params, here.work.request, thread);
    uint32_t requests = 0;
    for (uint32_t filled = 0;; ++filled) {
        const uint32_t stage = filled % 2, round = filled / 2;
        Place next = here;
        const bool more = next.advance(params);
        if (more) next.look(params, own);
        mbarrier_wait_parity(&shared.k_empty[stage], ~round & 1);
        const auto store = [&](uint32_t half) {
            store_row<Layout, kPair>(row, shared.k[stage], peer_k + stage * sizeof(shared.k[0]),
                                     peer_full + stage * sizeof(Mbarrier), 32 * half + own, slice);
        };
        store(rank);
        if (!kPair) {
            read_row(row, here.view(params), here.high, slice);
            store(1);
        }
        const uint32_t low = __ballot_sync(0xFFFFFFFFu, names_slot(here.view(params), here.low));
        const uint32_t high = __ballot_sync(0xFFFFFFFFu, names_slot(here.view(params), here.high));
        if (lane == 0) shared.valid[stage][warp] = low & 0xFF, shared.valid[stage][4 + warp] = high & 0xFF;
        fence_proxy_async_shared_cta();
        if (kPair && thread == 0)
            mbarrier_arrive_expect_tx(&shared.k_full[stage], sizeof(shared.k[0]) / 2);
        else
            mbarrier_arrive(&shared.k_full[stage]);
        if (!more) return;
        read_row(row, next.view(params), rank == 0 ? next.low : next.high, slice);
        if (next.work.request != here.work.request) {
            mbarrier_wait_parity(&shared.q_empty, requests++ & 1);
            load_q(shared, params, next.work.request, thread);
        }
        here = next;
    }
}

// ---- scores and values

// A lane of a multiplying warp says in every CTA that its warp is done with buffer `stage`.
template <class Layout, bool kPair>
__device__ __forceinline__ void give_back(SharedPlan<Layout>& shared, uint32_t stage, uint32_t lane) {
    if (kPair) {
        if (lane < 2) mbarrier_arrive_remote(mapa(smem_address(&shared.k_empty[stage]), lane));
    } else {
        if (lane == 0) mbarrier_arrive(&shared.k_empty[stage]);
    }
}

__device__ __forceinline__ void wait_full(Mbarrier* barrier, uint32_t parity) {
    mbarrier_wait_parity(barrier, parity);
    fence_proxy_async_shared_cta();
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

__device__ __forceinline__ void scale_rows(float (&o)[128], float upper, float lower) {
    if (__all_sync(0xFFFFFFFFu, upper == 1.0f && lower == 1.0f)) return;
#pragma unroll
    for (uint32_t i = 0; i < 128; ++i)
        o[i] *= i / 2 % 2 == 0 ? upper : lower;
}

// Writes the warpgroup's 256 columns. Lanes of a quad hold neighbouring pairs of columns.
__device__ __forceinline__ void write_rows(const SparseDecodeParams& params, const Work& work,
                                           const float (&o)[128], uint32_t thread, uint32_t half, float upper,
                                           float lower) {
    const bool split = work.split();
#pragma unroll
    for (uint32_t side = 0; side < 2; ++side) {
        const int32_t head = blockIdx.x * kHeads + accumulator_row(thread, 2 * side);
        if (head >= params.h_q) continue;
        const float norm = side == 0 ? upper : lower;
        const int64_t start =
            (work.line(params) * params.h_q + head) * kWidth + 256 * half + 2 * (thread % 4);
#pragma unroll
        for (uint32_t i = 0; i < 32; ++i) {
            const float left = o[4 * i + 2 * side] * norm, right = o[4 * i + 2 * side + 1] * norm;
            if (split)
                *reinterpret_cast<float2*>(params.out_partial + start + 8 * i) = {left, right};
            else
                *reinterpret_cast<uint32_t*>(params.out + start + 8 * i) = cvt_rn_bf16x2_f32(left, right);
        }
    }
}

// The running softmax of two rows, upper and lower, of which a quad of lanes holds a quarter of the columns
// each.
struct Softmax {
    float maximum[2], sum[2], factor[2];

    __device__ void reset() {
        maximum[0] = maximum[1] = kMinusHuge;
        sum[0] = sum[1] = 0.0f;
    }
    // Scores become weights; factor is what earlier weights must be multiplied by.
    __device__ void step(float (&s)[32], uint64_t valid, float scale, uint32_t lane) {
#pragma unroll
        for (uint32_t i = 0; i < 32; ++i) {
            const uint32_t column = 8 * (i / 4) + 2 * (lane % 4) + i % 2;
            s[i] = (valid >> column & 1) != 0 ? s[i] * scale : -kInfinity;
        }
#pragma unroll
        for (uint32_t side = 0; side < 2; ++side) {
            float top = -kInfinity;
#pragma unroll
            for (uint32_t i = 0; i < 32; ++i)
                if (i / 2 % 2 == side) top = fmaxf(top, s[i]);
            top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFu, top, 1));
            top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFu, top, 2));
            const float next = top > maximum[side] + kLazy ? top : maximum[side];
            factor[side] = exp2f(maximum[side] - next);
            maximum[side] = next;
            float added = 0.0f;
#pragma unroll
            for (uint32_t i = 0; i < 32; ++i)
                if (i / 2 % 2 == side) added += s[i] = exp2f(s[i] - next);
            sum[side] = sum[side] * factor[side] + added;
        }
    }
    __device__ float total(uint32_t side) const {
        float all = sum[side];
        all += __shfl_xor_sync(0xFFFFFFFFu, all, 1);
        return all + __shfl_xor_sync(0xFFFFFFFFu, all, 2);
    }
};

// What the output is multiplied by, and the lse that is stored, of a row whose request has ended.
__device__ __forceinline__ float finish(const SparseDecodeParams& params, const Work& work, int32_t head,
                                        float maximum, float sum, bool writes) {
    if (head >= params.h_q) return 0.0f;
    const int64_t place = work.line(params) * params.h_q + head;
    const float log2_sum = maximum + log2f(sum);
    if (work.split()) {
        if (writes) params.lse_partial[place] = sum == 0.0f ? -kInfinity : log2_sum;
        return sum == 0.0f ? 0.0f : 1.0f / sum;
    }
    if (writes) params.lse[place] = sum == 0.0f ? kInfinity : log2_sum * kLn2;
    if (sum == 0.0f) return 0.0f;
    return 1.0f / (params.sink ? sum + exp2f(params.sink[head] * kLog2E - maximum) : sum);
}

template <class Layout, bool kPair>
__device__ void scores(SharedPlan<Layout>& shared, const SparseDecodeParams& params) {
    Work work{&shared.record, shared.record.begin_req};
    const uint32_t thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
    const uint32_t row = accumulator_row(thread, 0);
    float o[128], s[32];
    uint32_t p[4][4];
    Softmax softmax;

    // Softmax of the scores in s; p to registers and to memory, with the factors (and, last, the norms) for
    // `values`.
    const auto weigh = [&](uint32_t stage, bool last) {
        if (last && lane == 0) mbarrier_arrive(&shared.q_empty);
        const uint64_t valid = *reinterpret_cast<const uint64_t*>(shared.valid[stage]);
        softmax.step(s, valid, params.scale_log2, lane);
#pragma unroll
        for (uint32_t k = 0; k < 4; ++k)
#pragma unroll
            for (uint32_t j = 0; j < 4; ++j)
                p[k][j] = cvt_rn_bf16x2_f32(s[8 * k + 2 * j], s[8 * k + 2 * j + 1]);
        bar_sync(kPFree, 256);
#pragma unroll
        for (uint32_t k = 0; k < 4; ++k)
            stmatrix_x4(shared.p + swizzled(16 * warp + lane % 16, 2 * k + lane / 16), p[k]);
#pragma unroll
        for (uint32_t side = 0; side < 2; ++side) {
            if (lane % 4 == 0) shared.factor[row + 8 * side] = softmax.factor[side];
            if (!last) continue;
            const float norm = finish(params, work, blockIdx.x * kHeads + row + 8 * side,
                                      softmax.maximum[side], softmax.total(side), lane % 4 == 0);
            if (lane % 4 == 0) shared.norm[row + 8 * side] = norm;
        }
        __syncwarp();
        fence_proxy_async_shared_cta();
        bar_arrive(kPReady, 256);
    };

    uint32_t used = 0, requests = 0;
    for (; work.there(); ++work.request, ++requests) {
        wait_full(&shared.q_full, requests & 1);
        softmax.reset();
        wait_full(&shared.k_full[used % 2], used / 2 & 1);
        wgmma_fence(s);
        issue_scores(shared, used % 2, s);
        wgmma_commit_group();
        wgmma_wait_group<0>(s);
        const int32_t blocks = work.end(params) - work.begin();
        weigh(used % 2, blocks == 1);
        for (int32_t i = 0; i < blocks; ++i, ++used) {
            const uint32_t stage = used % 2;
            const uint64_t v = values_descriptor(shared.k[stage], 0);
            wgmma_fence(o);
#pragma unroll
            for (uint32_t k = 0; k < 4; ++k)
                wgmma_m64n256k16_f32_bf16<1>(o, p[k], advance(v, 2048 * k), i + k > 0);
            wgmma_commit_group();
            if (i + 1 < blocks) {
                wait_full(&shared.k_full[stage ^ 1], (used + 1) / 2 & 1);
                wgmma_fence(s);
                issue_scores(shared, stage ^ 1, s);
                wgmma_commit_group();
                wgmma_wait_group<1>(o);
                give_back<Layout, kPair>(shared, stage, lane);
                wgmma_wait_group<0>(s);
                weigh(stage ^ 1, i + 2 == blocks);
                scale_rows(o, softmax.factor[0], softmax.factor[1]);
            } else {
                wgmma_wait_group<0>(o);
                give_back<Layout, kPair>(shared, stage, lane);
            }
        }
        write_rows(params, work, o, thread, 0, shared.norm[row], shared.norm[row + 8]);
    }
}

template <class Layout, bool kPair>
__device__ void values(SharedPlan<Layout>& shared, const SparseDecodeParams& params) {
    Work work{&shared.record, shared.record.begin_req};
    const uint32_t thread = threadIdx.x % 128, lane = thread % 32, row = accumulator_row(thread, 0);
    float o[128];
    uint32_t used = 0;
    bar_arrive(kPFree, 256);
    for (; work.there(); ++work.request) {
        const int32_t blocks = work.end(params) - work.begin();
        float norm[2] = {};
        for (int32_t i = 0; i < blocks; ++i, ++used) {
            const uint32_t stage = used % 2;
            bar_sync(kPReady, 256);
            wait_full(&shared.k_full[stage], used / 2 & 1);
            if (i > 0) scale_rows(o, shared.factor[row], shared.factor[row + 8]);
            if (i + 1 == blocks) norm[0] = shared.norm[row], norm[1] = shared.norm[row + 8];
            const uint64_t p = matrix_descriptor<Swizzle::k128B, 1024>(shared.p);
            const uint64_t v = values_descriptor(shared.k[stage], 1);
            wgmma_fence(o);
#pragma unroll
            for (uint32_t k = 0; k < 4; ++k)
                wgmma_m64n256k16_f32_bf16<0, 1>(o, advance(p, 32 * k), advance(v, 2048 * k), i + k > 0);
            wgmma_commit_group();
            wgmma_wait_group<0>(o);
            give_back<Layout, kPair>(shared, stage, lane);
            if (i + 1 < blocks || !work.last()) bar_arrive(kPFree, 256);
        }
        write_rows(params, work, o, thread, 1, norm[0], norm[1]);
    }
}

// ---- the kernel

template <class Layout, bool kPair>
__device__ void sparse_decode(const SparseDecodeParams& params) {
    extern __shared__ __align__(1024) uint8_t bytes[];
    SharedPlan<Layout>& shared = *reinterpret_cast<SharedPlan<Layout>*>(bytes);
    griddepcontrol_launch_dependents();
    if (lengths_changed(params)) return poison(params, blockIdx.x * kHeads, kHeads);
    if (params.records[blockIdx.z].begin_req >= params.b) return;  // both CTAs of a pair alike

    if (threadIdx.x == 0) {
        shared.record = params.records[blockIdx.z];
        mbarrier_init(&shared.q_full, 128);
        mbarrier_init(&shared.q_empty, 4);
        for (uint32_t stage = 0; stage < 2; ++stage) {
            mbarrier_init(&shared.k_full[stage], 128);
            mbarrier_init(&shared.k_empty[stage], kPair ? 16 : 8);
        }
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
        fence_mbarrier_init();
    }
    if (kPair)
        cluster_sync();
    else
        __syncthreads();

    // 208 + 160 + 136 = 504 registers for a thread of each: 64,512 of 65,536.
    const uint32_t warpgroup = threadIdx.x / 128;
    if (warpgroup == 0) {
        setmaxnreg_inc<208>();
        name_role("scores");
        scores<Layout, kPair>(shared, params);
    } else if (warpgroup == 1) {
        setmaxnreg_dec<160>();
        name_role("values");
        values<Layout, kPair>(shared, params);
    } else {
        setmaxnreg_dec<136>();
        name_role("gather");
        gather<Layout, kPair>(shared, params);
    }
    // Nobody leaves while the peer may still store here.
    if (kPair) cluster_sync();
}

extern "C" __global__ void __launch_bounds__(384, 1)
    sparse_decode_v32(const __grid_constant__ SparseDecodeParams params) {
    sparse_decode<V32, false>(params);
}
extern "C" __global__ void __launch_bounds__(384, 1)
    sparse_decode_v32_pair(const __grid_constant__ SparseDecodeParams params) {
    sparse_decode<V32, true>(params);
}
extern "C" __global__ void __launch_bounds__(384, 1)
    sparse_decode_model1(const __grid_constant__ SparseDecodeParams params) {
    sparse_decode<Model1, false>(params);
}
extern "C" __global__ void __launch_bounds__(384, 1)
    sparse_decode_model1_pair(const __grid_constant__ SparseDecodeParams params) {
    sparse_decode<Model1, true>(params);
}
