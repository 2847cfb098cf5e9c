// The role `gather` of sparse decode: from lists of slots to keys and values in shared memory, as bfloat16.
//
// A block is 64 tokens, eight for each warp. All lanes read one token together, 256 bytes an instruction:
// eight tokens side by side would be eight cache lines an instruction, and four times the work for the L1
// cache. While a block's rows are on their way into registers, the next block's indices are too; nothing is
// looked at before the rows are, since a wait for one load may be a wait for all.
#pragma once

#include "cluster.cuh"
#include "cp_async.cuh"
#include "fence.cuh"
#include "fp8_rows.cuh"
#include "layouts.cuh"
#include "mbarrier.cuh"
#include "memory.cuh"
#include "places.cuh"
#include "shared_plan.cuh"
#include "walk.cuh"
#include "warp_arrival.cuh"

namespace mla {

// Keeps the compiler from computing `value` again where it could hold it.
__device__ __forceinline__ uint32_t keep(uint32_t value) {
    asm volatile("" : "+r"(value));
    return value;
}

// ---- rows

__device__ __forceinline__ uint32_t from_lane(uint32_t value, uint32_t lane) {
    return __shfl_sync(0xFFFFFFFFu, value, lane);
}

// A warp's rows of a block, in registers or on their way: all eight of its tokens or, in a pair of CTAs, the
// first four or the last. Row t is token t ^ first, where `first` is 0 or 4.
template <class Layout, bool kPair>
struct Rows {
    static constexpr uint32_t kRows = kPair ? 4 : 8;

    uint2 codes[kRows][2];  // of each row: 8 codes at 8 · lane, and 8 at 256 + 8 · lane
    uint4 rope[kRows / 4];  // 16 bytes of row lane / 8, and of row 4 + lane / 8
    uint32_t scales;        // a quarter of those of row lane / 4
    uint32_t marks;         // bit t: the warp's token t counts; bit 8: a request begins with the block

    __device__ bool there(uint32_t token) const { return (marks >> token & 1) != 0; }
    __device__ bool begins_request() const { return marks >> 8 != 0; }

    // `place` is that of token lane % 8.
    __device__ void ask(const CacheView& view, const Place& place, bool begins, uint32_t first,
                        uint32_t lane) {
        marks = __ballot_sync(0xFFFFFFFFu, place.there) & 0xFF | (begins ? 0x100 : 0);
#pragma unroll
        for (uint32_t t = 0; t < kRows; ++t) {
            const uint8_t* const row = view.kv + 16ull * from_lane(place.row, t ^ first) + 8 * lane;
            codes[t][0] = ld_global_nc_v2_u32(row);
            codes[t][1] = ld_global_nc_v2_u32(row + 256);
        }
#pragma unroll
        for (uint32_t i = 0; i < kRows / 4; ++i)
            rope[i] = ld_global_nc_v4_u32(view.kv + 16ull * from_lane(place.row, (4 * i + lane / 8) ^ first) +
                                          Layout::kRopeAt + 16 * (lane % 8));
        const uint32_t of = from_lane(place.scales, lane / 4 % kRows ^ first);
        scales = Layout::ask_quarter(view.kv + 8ull * of, lane % 4);
    }
    // Stores the rows as bfloat16, kStored times too small, among the eight rows of a block from `row` on
    // and, in a pair, of the peer's too; counted there at `peer_full`.
    __device__ void store(const uint8_t* block, uint32_t row, uint32_t first, uint32_t lane, uint32_t peer,
                          uint32_t peer_full) const {
        const uint32_t prepared =
            there(lane / 4 % kRows ^ first) ? mul_bf16x2(Layout::prepare_quarter(scales), kTwoTo60) : 0;
        // The first row's place. Eight rows are 1,024 bytes: under swizzle 128B the place of row t differs by
        // t in the bits of the row and in those of the chunk.
        constexpr uint32_t kRowAndChunk = 1 << 7 | 1 << 4;
        const uint32_t start = smem_address(block) + swizzled(row + first, lane % 8);
        const uint32_t to_peer = kPair ? mapa(start, peer) - start : 0;
        const auto put = [&](uint32_t at, const uint4& piece) {
            st_shared_v4_u32(at, piece);
            if constexpr (kPair) {
                const uint32_t words[4] = {piece.x, piece.y, piece.z, piece.w};
                st_async_v4_u32(at + to_peer, words, peer_full);
            }
        };
        const uint32_t nope = start + lane / 8 * kColumnBlock;
#pragma unroll
        for (uint32_t t = 0; t < kRows; ++t)
#pragma unroll
            for (uint32_t half = 0; half < 2; ++half) {
                const uint32_t column = 4 * half + lane / 8;
                const uint32_t scale = Layout::of_quarter(from_lane(prepared, 4 * t + column / 2), column);
                uint4 piece;
                e4m3x4_to_bf16x4(codes[t][half].x, scale, piece.x, piece.y);
                e4m3x4_to_bf16x4(codes[t][half].y, scale, piece.z, piece.w);
                if (column < Layout::kNopeBlocks)
                    put((nope ^ t * kRowAndChunk) + 4 * half * kColumnBlock, piece);
            }
#pragma unroll
        for (uint32_t i = 0; i < kRows / 4; ++i) {
            const uint32_t t = 4 * i + lane / 8;
            uint4 piece = {};
            if (there(t ^ first))
                piece = {mul_bf16x2(rope[i].x, kTwoToMinus60), mul_bf16x2(rope[i].y, kTwoToMinus60),
                         mul_bf16x2(rope[i].z, kTwoToMinus60), mul_bf16x2(rope[i].w, kTwoToMinus60)};
            put((start ^ t * kRowAndChunk) + Layout::kNopeBlocks * kColumnBlock, piece);
        }
    }
};

// ---- queries

// Copies the 64 heads of a request's queries to shared memory, swizzled; zeros where h_q ends before. Eight
// threads copy 128 bytes of a head side by side.
template <class Layout>
__device__ void load_q(SharedPlan<Layout>& shared, const SparseDecodeParams& params, int32_t request,
                       uint32_t thread) {
    const uint16_t* const q = params.q + request * params.q_stride_b + blockIdx.y * params.q_stride_s;
#pragma unroll 1
    for (uint32_t row = thread / 8; row < kHeads; row += kGatherThreads / 8) {
        const int32_t head = blockIdx.x * kHeads + row;
        const bool there = head < params.h_q;
        const uint16_t* const from = q + (there ? head * params.q_stride_h : 0) + 8 * (thread % 8);
        uint8_t* const to = shared.q + swizzled(row, thread % 8);
#pragma unroll
        for (uint32_t block = 0; block < SharedPlan<Layout>::kBlocks; ++block)
            cp_async_cg_16(to + block * kColumnBlock, from + 64 * block, there);
    }
    cp_async_mbarrier_arrive_noinc(&shared.q_full);
}

// ---- the role

// The token of a block whose index this thread of `gather` looks up.
__device__ __forceinline__ uint32_t token_of(uint32_t thread) {
    return thread / 32 * 8 + thread % 8;
}

// `index` is that of this thread's token in the first block.
template <class Layout, bool kPair>
__device__ void gather(SharedPlan<Layout>& shared, const SparseDecodeParams& params, int32_t index) {
    const uint32_t thread = keep(threadIdx.x) - 256, warp = thread / 32, lane = thread % 32;
    const uint32_t token = token_of(thread);

    const uint32_t rank = kPair ? cluster_ctarank() : 0, first = 4 * rank;
    Walk walk(params, shared.record);
    Rows<Layout, kPair> rows;
    // Asks for the rows of the block at which `walk` stands, by `index`, and moves both on. The index after
    // it is asked for first: it comes back first.
    const auto ask = [&] {
        const bool begins = walk.first;
        const CacheView& view = walk.extra() ? params.extra : params.cache;
        const Place place = place_of<Layout>(view, shared.page_reciprocal[walk.extra()], index);
        walk.step(params, 1);
        index = walk.index(params, token);
        rows.ask(view, place, begins, first, keep(thread) % 32);
    };
    ask();
    load_q(shared, params, shared.record.begin_req, thread);
    for (uint32_t filled = 0, requests = 0;; ++filled) {
        const uint32_t stage = filled % 2, round = filled / 2;
        mbarrier_wait_parity(&shared.k_empty[stage], ~round & 1);
        if (lane == 0) shared.valid[stage][warp] = rows.marks;
        // From a number that the compiler cannot know: else it holds addresses while the rows are on their
        // way.
        const uint32_t again = keep(thread);
        const uint32_t peer_full = kPair ? mapa(smem_address(&shared.k_full[stage]), rank ^ 1) : 0;
        rows.store(shared.k[stage], again / 32 * 8, first, again % 32, rank ^ 1, peer_full);
        fence_proxy_async_shared_cta();
        __syncwarp();
        if (kPair && thread == 0)
            mbarrier_arrive_expect_tx(&shared.k_full[stage], SharedPlan<Layout>::kRowsBytes / 2);
        else
            mbarrier_arrive_warp(&shared.k_full[stage], lane);
        if (!walk.there()) {
            // Nobody leaves while the peer may still store here, or arrive.
            if (kPair) mbarrier_wait_parity(&shared.k_empty[stage], round & 1);
            return;
        }
        ask();
        if (rows.begins_request()) {
            const uint32_t parity = requests++ & 1;
            mbarrier_wait_parity(&shared.q_empty, parity);
            load_q(shared, params, shared.record.begin_req + requests, thread);
        }
    }
}

}  // namespace mla
