// Merge the partial results of a request that several partitions worked on.
//
//   out_partial [slots, s_q, h_q, 512] float32 and lse_partial [slots, s_q, h_q] float32 (log2)
//     -> out [b, s_q, h_q, 512] bfloat16 and lse [b, s_q, h_q] float32 (natural log)
//
// A partial result is normalised by itself; its weight is 2^(its lse - the total lse). A sink joins the total
// of the output, not the lse. Requests with one slot were written by the decode kernel and are left alone;
// without records there was none, and every request is merged. Where decode found changed lengths its NaN
// stay.
//
// 128 threads take four columns each of one head. A CTA has several such groups, and they share the slots:
// with 4 groups and up to 32 slots each thread asks for all that it needs at once and waits for memory once.
//
// Launch: grid (CTAs for the heads of a query, s_q, b), block 128, 256 or 512. May be launched with
// programmatic serialisation: it waits for the decode kernel before it reads what that writes. One CTA waits
// even where it has nothing to do, so that this kernel never ends before the other one. After that a next
// kernel may start, which waits for this one.
#include "attention_tile.cuh"
#include "convert.cuh"
#include "griddepcontrol.cuh"
#include "sparse_decode_params.cuh"

using namespace mla;

constexpr int32_t kColumns = 128, kMaxGroups = 4;  // threads of a group
constexpr int32_t kBatch = 8;                      // slots that a thread reads at once

// What some slots come to, for four columns of a head: sum(2^(lse - top) * out), sum(2^(lse - top)), and the
// largest lse.
struct Merged {
    float4 out;
    float weights, top;

    // Take over a larger maximum: what has been summed up shrinks.
    __device__ void raise(float new_top) {
        const float factor = exp2f(top - new_top);
        out.x *= factor, out.y *= factor, out.z *= factor, out.w *= factor;
        weights *= factor, top = new_top;
    }
    __device__ void add(const float4& part, float part_weights, float factor) {
        out.x += factor * part.x, out.y += factor * part.y, out.z += factor * part.z,
            out.w += factor * part.w;
        weights += factor * part_weights;
    }
};

// The slots `first`, first + step, … of one head, whose rows are `stride` apart, by one thread. A batch of
// them is asked for before any is waited for.
__device__ Merged merge_slots(const float* lse, const float4* out, int32_t stride, int32_t first,
                              int32_t step, int32_t count) {
    Merged merged = {{}, 0.0f, kMinusHuge};
    for (int32_t start = first; start < count; start += kBatch * step) {
        float of_slot[kBatch];
        float4 part[kBatch];
        float top = merged.top;
#pragma unroll
        for (int32_t i = 0; i < kBatch; ++i) {
            const int32_t slot = start + i * step;
            of_slot[i] = -kInfinity, part[i] = {};  // weighs nothing
            if (slot >= count) continue;
            of_slot[i] = lse[slot * stride], part[i] = out[slot * stride * kColumns];
        }
#pragma unroll
        for (int32_t i = 0; i < kBatch; ++i)
            top = fmaxf(top, of_slot[i]);
        merged.raise(top);
#pragma unroll
        for (int32_t i = 0; i < kBatch; ++i)
            merged.add(part[i], 1.0f, exp2f(of_slot[i] - top));
    }
    return merged;
}

extern "C" __global__ void __launch_bounds__(kColumns* kMaxGroups, 2)
    combine(const __grid_constant__ SparseDecodeParams params) {
    __shared__ float4 out[kMaxGroups][kColumns];
    __shared__ float weights[kMaxGroups], tops[kMaxGroups];
    const int32_t request = blockIdx.z, query = blockIdx.y;
    const int32_t first = params.num_splits[request], count = params.num_splits[request + 1] - first;
    const bool split = count > (params.records ? 1 : 0);
    if (split || blockIdx.x + blockIdx.y + blockIdx.z == 0) griddepcontrol_wait();
    griddepcontrol_launch_dependents();
    if (!split) return;

    const int32_t column = threadIdx.x % kColumns;
    const int32_t group = threadIdx.x / kColumns, groups = blockDim.x / kColumns;
    if (params.verdict && *params.verdict != 0) return;
    for (int32_t head = blockIdx.x; head < params.h_q; head += gridDim.x) {
        const int64_t row = (static_cast<int64_t>(first) * params.s_q + query) * params.h_q + head;
        Merged merged =
            merge_slots(params.lse_partial + row,
                        reinterpret_cast<const float4*>(params.out_partial) + row * kColumns + column,
                        params.s_q * params.h_q, group, groups, count);
        out[group][column] = merged.out;
        if (column == 0) weights[group] = merged.weights, tops[group] = merged.top;
        __syncthreads();

        // The first group takes in the others, in their order, and writes.
        if (group == 0) {
            for (int32_t other = 1; other < groups; ++other) {
                merged.raise(fmaxf(merged.top, tops[other]));
                merged.add(out[other][column], weights[other], exp2f(tops[other] - merged.top));
            }
            const bool empty = merged.weights == 0.0f;  // every token is a hole
            const float sink = params.sink ? exp2f(params.sink[head] * kLog2E - merged.top) : 0.0f;
            const float norm = empty ? 0.0f : 1.0f / (merged.weights + sink);
            const int64_t place = (static_cast<int64_t>(request) * params.s_q + query) * params.h_q + head;
            reinterpret_cast<uint2*>(params.out)[place * kColumns + column] = {
                cvt_rn_bf16x2_f32(merged.out.x * norm, merged.out.y * norm),
                cvt_rn_bf16x2_f32(merged.out.z * norm, merged.out.w * norm)};
            if (column == 0)
                params.lse[place] = empty ? kInfinity : (merged.top + log2f(merged.weights)) * kLn2;
        }
        __syncthreads();  // the sums may be written again
    }
}
