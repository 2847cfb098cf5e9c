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
// are below 65,536, and the costs add up to less than 2^29.
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

// Where a partition begins: behind so many blocks of a request.
struct Start {
    int32_t request, block;
};

struct Line {
    Start* starts;    // [parts + 1]
    int32_t* met;     // [parts + 1] the requests before which a partition begins without a cut, in order, …
    int32_t* met_at;  // [parts + 1] … and which partition does
    int32_t* ends;    // [b + 1] where the requests before r end: 0, …, length
    Leap *leaps, *longer;  // [b + 1]
    int32_t length, share;

    __device__ Line(int32_t* memory, int32_t b, int32_t parts)
        : starts(reinterpret_cast<Start*>(memory)),
          met(memory + 2 * (parts + 1)),
          met_at(met + parts + 1),
          ends(met_at + parts + 1),
          leaps(reinterpret_cast<Leap*>(ends + b + 1)),
          longer(leaps + b + 1) {}
};

// The CTA's threads in teams of up to 32 neighbours, one for each of `jobs` jobs where there are enough.
struct Teams {
    int32_t size, mine, team, count;  // lanes of a team, which one this is; which team, of how many

    __device__ explicit Teams(int32_t jobs) {
        const int32_t threads_log2 = 31 - __clz(blockDim.x), jobs_log2 = 32 - __clz(jobs - 1);
        const int32_t size_log2 = min(max(threads_log2 - jobs_log2, 0), 5);
        size = 1 << size_log2, mine = threadIdx.x & (size - 1);
        team = threadIdx.x >> size_log2, count = blockDim.x >> size_log2;
    }
    // The lanes of this team, as votes take them.
    __device__ uint32_t lanes() const { return kAll >> (32 - size) << (threadIdx.x % 32 - mine); }
};

// How many of the n sorted values lie below `limit`.
__device__ __forceinline__ int32_t count_below(const int32_t* values, uint32_t n, int32_t limit) {
    uint32_t count = 0;
    while (n > 0) {
        const uint32_t half = (n + 1) / 2;
        if (values[count + half - 1] < limit) count += half;
        n /= 2;
    }
    return static_cast<int32_t>(count);
}

// Lay the requests end to end.
__device__ void lay_out(Line& line, const ScheduleParams& params) {
    __shared__ int32_t warp_sums[32];
    const int32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, threads = blockDim.x;
    if (threadIdx.x == 0) line.ends[0] = 0;
    line.length = 0;
    for (int32_t start = 0; start < params.b; start += threads) {
        const int32_t request = start + threadIdx.x;
        int32_t sum = 0;
        if (request < params.b) {
            sum = params.cost(request);
            params.note(request);
        }
#pragma unroll
        for (int32_t step = 1; step < 32; step *= 2) {
            const int32_t other = __shfl_up_sync(kAll, sum, step);
            if (lane >= step) sum += other;
        }
        if (lane == 31) warp_sums[warp] = sum;
        __syncthreads();
        const int32_t of_warp = lane < threads / 32 ? warp_sums[lane] : 0;
        const int32_t before = line.length + __reduce_add_sync(kAll, lane < warp ? of_warp : 0);
        if (request < params.b) line.ends[request + 1] = before + sum;
        line.length += __reduce_add_sync(kAll, of_warp);
        __syncthreads();
    }
    line.share = (line.length + params.parts - 1) / params.parts;
}

// From every request's begin: the first partition that ends with a request. The lanes of a team try as many
// partitions side by side.
__device__ void find_leaps(const Line& line, const ScheduleParams& params) {
    const Teams teams(params.b);
    const int32_t most_ends =
        line.share / (1 + params.overhead) + 1;  // in a partition: no request costs less
    for (int32_t round = 0; round < params.b; round += teams.count) {
        const int32_t from = min(round + teams.team, params.b - 1);
        bool searching = round + teams.team < params.b;
        for (int32_t ahead = teams.mine + 1; __any_sync(kAll, searching); ahead += teams.size) {
            const int32_t parts = min(ahead, params.parts);
            const int32_t end = min(line.ends[from] + parts * line.share, line.length);
            const int32_t near = min(parts * most_ends, params.b + 1 - from);
            const int32_t to = from + count_below(line.ends + from, near, end);
            const bool found = searching && line.ends[to] <= end + params.overhead;
            const uint32_t votes = __ballot_sync(kAll, found) & teams.lanes();
            if (found && __ffs(votes) - 1 == threadIdx.x % 32)
                line.leaps[from] = {static_cast<uint16_t>(to), static_cast<uint16_t>(parts)};
            searching = searching && votes == 0;
        }
    }
    if (threadIdx.x == 0) line.leaps[params.b] = {static_cast<uint16_t>(params.b), 0};
}

// The ends of requests that the walk meets, in order; the last of them is the line's. Returns how many.
__device__ int32_t follow_leaps(Line& line, const ScheduleParams& params) {
    if (threadIdx.x == 0) line.met[0] = line.met_at[0] = 0;
    const int32_t from_behind = blockDim.x - 1 - threadIdx.x;  // other warps than those with few requests
    int32_t known = 1;
    for (bool at_the_end = false; !__syncthreads_or(at_the_end); known *= 2) {
        // `leaps` are of `known` ends now: they lead from all that is known to as much again.
        for (int32_t i = from_behind; i < known && i + known <= params.parts; i += blockDim.x) {
            const Leap leap = line.leaps[line.met[i]];
            line.met[i + known] = leap.request;
            line.met_at[i + known] = line.met_at[i] + leap.parts;
            at_the_end = leap.request == params.b;
        }
        for (int32_t i = threadIdx.x; i <= params.b; i += blockDim.x) {
            const Leap one = line.leaps[i], other = line.leaps[one.request];
            line.longer[i] = {other.request, static_cast<uint16_t>(one.parts + other.parts)};
        }
        Leap* const made = line.longer;
        line.longer = line.leaps, line.leaps = made;
    }
    return min(known, params.parts + 1);
}

// A team for every stretch between two ends that the walk meets: partitions begin in it at equal distances.
__device__ void cut(const Line& line, const ScheduleParams& params, int32_t met) {
    const Teams teams(met - 1);
    for (int32_t stretch = teams.team; stretch < met - 1; stretch += teams.count) {
        const int32_t from = line.met[stretch], to = line.met[stretch + 1], begin = line.ends[from];
        const int32_t first = line.met_at[stretch], parts = line.met_at[stretch + 1] - first;
        for (int32_t part = teams.mine; part < parts; part += teams.size) {
            const int32_t start = begin + part * line.share;
            const int32_t request =
                from + count_below(line.ends + from + 1, part == 0 ? 0 : to - from - 1, start + 1);
            line.starts[first + part] = {request, start - line.ends[request]};
        }
        // Every partition but the first begins with a cut, and a request has a piece more than cuts.
        const int32_t earlier_cuts = first - stretch;
        for (int32_t request = from + teams.mine; request < to; request += teams.size) {
            const int32_t cuts = min((line.ends[request + 1] - begin - 1) / line.share, parts - 1);
            params.num_splits[request + 1] = request + 1 + earlier_cuts + cuts;
        }
    }
    for (int32_t part = line.met_at[met - 1] + threadIdx.x; part <= params.parts; part += blockDim.x)
        line.starts[part] = {params.b, 0};
    __syncthreads();
}

__device__ PartitionRecord record_of(const Line& line, const ScheduleParams& params, int32_t part) {
    const Start begin = line.starts[part], end = line.starts[part + 1];
    PartitionRecord record = {};
    record.begin_req = begin.request, record.begin_block = begin.block;
    record.begin_split = (begin.block + line.share - 1) / line.share;
    record.end_req = end.request, record.end_block = end.block;
    if (end.block == 0) {
        const int32_t last = end.request - 1;
        const int32_t blocks = line.ends[last + 1] - line.ends[last] - params.overhead;
        record.end_req = last, record.end_block = params.dense && params.lengths[last] == 0 ? 0 : blocks;
    }
    const bool alone = record.begin_req == record.end_req;
    record.first_is_split = begin.block > 0 || (alone && end.block > 0);
    record.last_is_split = end.block > 0 || (alone && begin.block > 0);
    return record;
}

extern "C" __global__ void __launch_bounds__(1024) schedule(const __grid_constant__ ScheduleParams params) {
    extern __shared__ __align__(8) int32_t memory[];
    Line line(memory, params.b, params.parts);
    lay_out(line, params);
    find_leaps(line, params);
    cut(line, params, follow_leaps(line, params));
    for (int32_t part = threadIdx.x; part < params.parts; part += blockDim.x)
        params.records[part] = record_of(line, params, part);
    if (threadIdx.x == 0) params.num_splits[0] = 0;
}
