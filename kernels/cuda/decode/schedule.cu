// The tile scheduler of split decode: which partition works on which blocks of which request.
//
//   lengths of b requests -> records [parts] (eight int32 each) and num_splits [b + 1]
//
// The rule is a greedy walk over the requests laid end to end: a partition takes what fits into its room, a
// request costs its blocks and a fixed overhead, and a request that does not fit is cut. `mlacademy.schedule`
// is the same in Python. Here the walk takes one step a partition: prefix sums of the costs are in shared
// memory, and a warp finds with one vote how many of the next 32 requests still fit.
//
// Launch: one CTA of 1024 threads, dynamic shared memory 4 * (b + 32) bytes.
#include "sparse_decode_params.cuh"

using namespace mla;

constexpr int32_t kThreads = 1024, kBlockTokens = 64;
constexpr uint32_t kAll = 0xFFFFFFFFu;

// The lengths of sparse lists: [b] or null for all of the list, at least 1; a second list starts at a whole
// block. A dense cache gives `lengths` as they are, and 0 is allowed.
struct ScheduleParams {
    const int32_t *lengths, *extra_lengths;
    PartitionRecord* records;
    int32_t* num_splits;
    int32_t topk, extra_topk, b, parts, overhead, dense;
    int32_t* planned_lengths;  // [2, b]: gets the lengths as they were given, 0 where there are none; or null

    __device__ int32_t length(int32_t request) const {
        if (dense) return lengths[request];
        const int32_t main = max(lengths ? min(lengths[request], topk) : topk, 1);
        if (extra_topk == 0) return main;
        const int32_t extra = extra_lengths ? min(max(extra_lengths[request], 0), extra_topk) : extra_topk;
        return (main + kBlockTokens - 1) / kBlockTokens * kBlockTokens + extra;
    }
    __device__ int32_t cost(int32_t request) const {
        return max(length(request) - 1, 0) / kBlockTokens + 1 + overhead;
    }
    __device__ void note(int32_t request) const {
        if (!planned_lengths) return;
        planned_lengths[request] = lengths ? lengths[request] : 0;
        planned_lengths[b + request] = extra_lengths ? extra_lengths[request] : 0;
    }
};
static_assert(sizeof(ScheduleParams) == 64, "five pointers, six numbers");

// costs[r] becomes the sum of the costs of the requests 0 … r. Returns the sum of all, in every thread.
__device__ int32_t sum_costs(const ScheduleParams& params, int32_t* costs) {
    __shared__ int32_t warp_sums[32];
    const int32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int32_t before = 0;
    for (int32_t start = 0; start < params.b; start += kThreads) {
        const int32_t request = start + threadIdx.x;
        int32_t sum = request < params.b ? params.cost(request) : 0;
        if (request < params.b) params.note(request);
#pragma unroll
        for (int32_t step = 1; step < 32; step *= 2) {
            const int32_t other = __shfl_up_sync(kAll, sum, step);
            if (lane >= step) sum += other;
        }
        if (lane == 31) warp_sums[warp] = sum;
        __syncthreads();
        int32_t of_warp = warp_sums[lane];
#pragma unroll
        for (int32_t step = 1; step < 32; step *= 2) {
            const int32_t other = __shfl_up_sync(kAll, of_warp, step);
            if (lane >= step) of_warp += other;
        }
        const int32_t earlier = __shfl_sync(kAll, of_warp, max(warp - 1, 0));
        if (request < params.b) costs[request] = before + sum + (warp > 0 ? earlier : 0);
        before += __shfl_sync(kAll, of_warp, 31);
        __syncthreads();
    }
    return before;
}

// Requests from `first` on whose costs, `spent` less, fit into `room`.
__device__ int32_t fitting(const int32_t* costs, int32_t b, int32_t first, int32_t limit, int32_t lane) {
    for (int32_t at = first;; at += 32) {
        const bool fits = at + lane < b && costs[at + lane] <= limit;
        const uint32_t vote = __ballot_sync(kAll, fits);
        if (vote != kAll) return at - first + __popc(vote);
    }
}

extern "C" __global__ void __launch_bounds__(kThreads)
    schedule(const __grid_constant__ ScheduleParams params) {
    extern __shared__ int32_t costs[];
    const int32_t total = sum_costs(params, costs);
    if (threadIdx.x >= 32) return;

    const int32_t lane = threadIdx.x, f = params.overhead;
    const int32_t payload = (total + params.parts - 1) / params.parts + f;
    int32_t request = 0, done = 0, split = 0, slots = 0;
    if (lane == 0) params.num_splits[0] = 0;
    for (int32_t part = 0; part < params.parts; ++part) {
        PartitionRecord record = {};
        record.begin_req = request, record.begin_block = done, record.begin_split = split;
        const bool cut_before = done > 0;

        // Finish as many requests as fit.
        const int32_t base = request > 0 ? costs[request - 1] : 0;
        const int32_t whole = fitting(costs, params.b, request, base + done + payload, lane);
        for (int32_t i = lane; i < whole; i += 32)
            params.num_splits[request + i + 1] = slots + split + i + 1;
        int32_t room = payload;
        if (whole > 0) {
            room -= costs[request + whole - 1] - base - done;
            slots += split + whole, request += whole;
            done = split = 0;
        }
        // Cut the next one where room is left for a block of it.
        if (request < params.b && room > f) done += room - f, ++split;

        if (done > 0) {
            record.end_req = request, record.end_block = done;
        } else {
            record.end_req = request - 1;
            const int32_t blocks = costs[request - 1] - (request > 1 ? costs[request - 2] : 0) - f;
            record.end_block = params.length(request - 1) == 0 ? 0 : blocks;
        }
        const bool cut_after = done > 0, alone = record.begin_req == record.end_req;
        record.first_is_split = cut_before || (alone && cut_after);
        record.last_is_split = cut_after || (alone && cut_before);
        if (lane == 0) params.records[part] = record;
    }
}
