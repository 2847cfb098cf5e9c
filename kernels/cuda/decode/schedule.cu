// The tile scheduler of split decode: which partition works on which blocks of which request.
//
//   lengths of b requests -> records [parts] (eight int32 each) and num_splits [b + 1]
//
// The rule is a greedy walk over the requests laid end to end, each as long as its cost, its blocks and a
// fixed overhead: a partition takes what fits into its room, and a request that does not fit is cut.
// `mlacademy.schedule` walks so in Python. Here nobody walks, because of what the walk comes to on that line:
//
//   A partition that begins at x ends at x + share, where share is the line's length over the partitions,
//   rounded up; unless a request ends there or up to `overhead` behind it: then it ends with that request.
//
// So the partitions from one end of a request to the next such end are equally long, and a leap from end to
// end depends on where it begins alone. All leaps are found at once, by searching; then leaps of 2, 4, 8, …
// by putting two together, which gives all ends that the walk meets in a logarithm of steps; then every
// partition and every request looks up its own place.
//
// Launch: one CTA of 32 to 1024 threads, dynamic shared memory 12 (b + 1) + 16 (parts + 1) bytes. b and parts
// are below 65,536, and the costs add up to less than 2^31.
#include "sparse_decode_params.cuh"

using namespace mla;

constexpr int32_t kBlockTokens = 64;
constexpr uint32_t kAll = 0xFFFFFFFFu;

// The lengths of sparse lists: [b] or null for all of the list, at least 1; a second list starts at a whole
// block. A dense cache gives `lengths` as they are, and 0 is allowed.
struct ScheduleParams {
    const int32_t *lengths, *extra_lengths;
    PartitionRecord* records;
    int32_t* num_splits;
    int32_t topk, extra_topk, b, parts, overhead, dense;
    int32_t* planned_lengths;  // [2, b] gets the lengths as they were given, 0 where there are none; or null

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
    // So that a decode can see whether its lengths are the ones that the schedule was made for.
    __device__ void note(int32_t request) const {
        if (!planned_lengths) return;
        const int32_t main = lengths ? lengths[request] : 0;
        const int32_t extra = extra_lengths ? extra_lengths[request] : 0;
        planned_lengths[request] = main, planned_lengths[b + request] = extra;
    }
};
static_assert(sizeof(ScheduleParams) == 64, "five pointers, six numbers");

// From the end of one request, over `parts` partitions, to the end of another.
struct alignas(4) Leap {
    uint16_t request, parts;
};

struct Line {
    int32_t* ends;    // [b + 1] where the requests before r end: 0, …, length
    int32_t* met;     // [parts + 1] the requests before which the walk begins a partition without a cut, …
    int32_t* met_at;  // [parts + 1] … and which partitions these are
    int32_t* starts;  // [parts + 1] where each partition begins
    int32_t* cuts;    // [parts + 1] how many partitions up to this one begin with a cut
    Leap *leaps, *longer;  // [b + 1]
    int32_t length, share;

    __device__ Line(int32_t* memory, int32_t b, int32_t parts)
        : ends(memory),
          met(ends + b + 1),
          met_at(met + parts + 1),
          starts(met_at + parts + 1),
          cuts(starts + parts + 1),
          leaps(reinterpret_cast<Leap*>(cuts + parts + 1)),
          longer(leaps + b + 1) {}
};

// How many of the n sorted values lie below `limit`.
__device__ int32_t count_below(const int32_t* values, int32_t n, int64_t limit) {
    int32_t count = 0;
    while (n > 0) {
        const int32_t half = (n + 1) / 2;
        if (values[count + half - 1] < limit) count += half;
        n -= half;
    }
    return count;
}

__device__ int32_t sum_up_to_lane(int32_t value, int32_t lane) {
#pragma unroll
    for (int32_t step = 1; step < 32; step *= 2) {
        const int32_t other = __shfl_up_sync(kAll, value, step);
        if (lane >= step) value += other;
    }
    return value;
}

// Lay the requests end to end.
__device__ void lay_out(Line& line, const ScheduleParams& params) {
    __shared__ int32_t warp_sums[32];
    const int32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, threads = blockDim.x;
    if (threadIdx.x == 0) line.ends[0] = 0;
    int32_t before = 0;
    for (int32_t start = 0; start < params.b; start += threads) {
        const int32_t request = start + threadIdx.x;
        int32_t sum = 0;
        if (request < params.b) {
            sum = params.cost(request);
            params.note(request);
        }
        sum = sum_up_to_lane(sum, lane);
        if (lane == 31) warp_sums[warp] = sum;
        __syncthreads();
        const int32_t of_warps = sum_up_to_lane(lane < threads / 32 ? warp_sums[lane] : 0, lane);
        const int32_t earlier = __shfl_sync(kAll, of_warps, max(warp - 1, 0));
        if (request < params.b) line.ends[request + 1] = before + sum + (warp > 0 ? earlier : 0);
        before += __shfl_sync(kAll, of_warps, 31);
        __syncthreads();
    }
    line.length = before;
    line.share = (before + params.parts - 1) / params.parts;
}

// From every request's begin: the first partition that ends with a request. Some lanes try as many partitions
// side by side.
__device__ void find_leaps(const Line& line, const ScheduleParams& params) {
    const int32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    int32_t lanes = 32;  // for one request
    while (lanes > 1 && params.b * lanes > static_cast<int32_t>(blockDim.x))
        lanes /= 2;
    const int32_t requests = 32 / lanes, mine = lane % lanes;
    for (int32_t first = warp * requests; first < params.b; first += warps * requests) {
        const int32_t from = first + lane / lanes;
        bool searching = from < params.b;
        for (int32_t parts = mine + 1; __any_sync(kAll, searching); parts += lanes) {
            bool found = false;
            int32_t to = 0;
            if (searching) {
                const int64_t end = min(line.ends[from] + static_cast<int64_t>(parts) * line.share,
                                        static_cast<int64_t>(line.length));
                to = count_below(line.ends, params.b + 1, end);
                found = line.ends[to] <= end + params.overhead;
            }
            const uint32_t vote = __ballot_sync(kAll, found) >> (lane - mine) & kAll >> (32 - lanes);
            if (searching && vote && __ffs(vote) - 1 == mine)
                line.leaps[from] = {static_cast<uint16_t>(to), static_cast<uint16_t>(parts)};
            searching = searching && !vote;
        }
    }
    if (threadIdx.x == 0) line.leaps[params.b] = {static_cast<uint16_t>(params.b), 0};
}

// The ends of requests that the walk meets, in order; the last of them is the line's. Returns how many.
__device__ int32_t follow_leaps(Line& line, const ScheduleParams& params) {
    if (threadIdx.x == 0) line.met[0] = line.met_at[0] = 0;
    int32_t known = 1;
    for (; known <= params.parts; known *= 2) {
        __syncthreads();
        if (line.met[known - 1] == params.b) return known;
        // `leaps` are of `known` ends now: they lead from all that is known to as much again.
        for (int32_t i = threadIdx.x; i < known && i + known <= params.parts; i += blockDim.x) {
            const Leap leap = line.leaps[line.met[i]];
            line.met[i + known] = leap.request;
            line.met_at[i + known] = line.met_at[i] + leap.parts;
        }
        for (int32_t i = threadIdx.x; i <= params.b; i += blockDim.x) {
            const Leap one = line.leaps[i], other = line.leaps[one.request];
            line.longer[i] = {other.request, static_cast<uint16_t>(one.parts + other.parts)};
        }
        Leap* const made = line.longer;
        line.longer = line.leaps, line.leaps = made;
    }
    __syncthreads();
    return params.parts + 1;
}

__device__ void place_partitions(const Line& line, const ScheduleParams& params, int32_t met) {
    for (int32_t part = threadIdx.x; part <= params.parts; part += blockDim.x) {
        const int32_t last = count_below(line.met_at, met, part + 1) - 1;
        const int64_t start =
            line.ends[line.met[last]] + static_cast<int64_t>(part - line.met_at[last]) * line.share;
        line.starts[part] = min(start, static_cast<int64_t>(line.length));
        line.cuts[part] = part - last;
    }
    __syncthreads();
}

__device__ PartitionRecord record_of(const Line& line, const ScheduleParams& params, int32_t part) {
    const int32_t begin = line.starts[part], end = line.starts[part + 1];
    const int32_t first = count_below(line.ends, params.b + 1, begin + 1ll) - 1;
    const int32_t next = count_below(line.ends, params.b + 1, end + 1ll) - 1;
    const int32_t done_before = begin - line.ends[first], done = end - line.ends[next];

    PartitionRecord record = {};
    record.begin_req = first, record.begin_block = done_before;
    record.begin_split = (done_before + line.share - 1) / line.share;
    record.end_req = next, record.end_block = done;
    if (done == 0) {
        record.end_req = next - 1;
        const int32_t blocks = line.ends[next] - line.ends[next - 1] - params.overhead;
        record.end_block = params.length(next - 1) == 0 ? 0 : blocks;
    }
    const bool alone = record.begin_req == record.end_req;
    record.first_is_split = done_before > 0 || (alone && done > 0);
    record.last_is_split = done > 0 || (alone && done_before > 0);
    return record;
}

extern "C" __global__ void __launch_bounds__(1024) schedule(const __grid_constant__ ScheduleParams params) {
    extern __shared__ int32_t memory[];
    Line line(memory, params.b, params.parts);
    lay_out(line, params);
    find_leaps(line, params);
    place_partitions(line, params, follow_leaps(line, params));

    for (int32_t part = threadIdx.x; part < params.parts; part += blockDim.x)
        params.records[part] = record_of(line, params, part);
    // A request has a piece more than cuts. The last threads begin: they had no partition.
    for (int32_t request = blockDim.x - 1 - threadIdx.x; request < params.b; request += blockDim.x) {
        const int32_t last = count_below(line.starts, params.parts, line.ends[request + 1]) - 1;
        params.num_splits[request + 1] = request + 1 + line.cuts[last];
    }
    if (threadIdx.x == 0) params.num_splits[0] = 0;
}
