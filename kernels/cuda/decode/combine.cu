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
// Launch: grid (CTAs for the heads of a query, s_q, b), block 128; four values a thread. May be launched with
// programmatic serialisation: it waits for the decode kernel before it reads.
#include "convert.cuh"
#include "griddepcontrol.cuh"
#include "sparse_decode_params.cuh"

using namespace mla;

constexpr float kInfinity = __builtin_bit_cast(float, 0x7F800000u);
constexpr float kLn2 = 0.69314718055994531f, kLog2E = 1.4426950408889634f;

extern "C" __global__ void __launch_bounds__(128) combine(const __grid_constant__ SparseDecodeParams params) {
    const int32_t request = blockIdx.z, query = blockIdx.y;
    const int32_t first = params.num_splits[request], count = params.num_splits[request + 1] - first;
    if (count <= (params.records ? 1 : 0)) return;
    griddepcontrol_wait();
    if (params.verdict && *params.verdict != 0) return;
    for (int32_t head = blockIdx.x; head < params.h_q; head += gridDim.x) {
        const int64_t row = (static_cast<int64_t>(first) * params.s_q + query) * params.h_q + head;
        const int64_t stride = static_cast<int64_t>(params.s_q) * params.h_q;  // from slot to slot

        float top = -kInfinity;
        for (int32_t i = 0; i < count; ++i)
            top = fmaxf(top, params.lse_partial[row + i * stride]);
        float4 sum = {};
        float weights = 0.0f;
        if (top != -kInfinity) {
#pragma unroll 8
            for (int32_t i = 0; i < count; ++i) {
                const float weight = exp2f(params.lse_partial[row + i * stride] - top);
                const float4 part = reinterpret_cast<const float4*>(
                    params.out_partial)[(row + i * stride) * 128 + threadIdx.x];
                weights += weight;
                sum.x += weight * part.x, sum.y += weight * part.y;
                sum.z += weight * part.z, sum.w += weight * part.w;
            }
        }
        const float lse = top + log2f(weights);  // log2; top is -inf where every token is a hole
        const float total = params.sink ? weights + exp2f(params.sink[head] * kLog2E - top) : weights;
        const float norm = weights == 0.0f ? 0.0f : 1.0f / total;
        const int64_t place = (static_cast<int64_t>(request) * params.s_q + query) * params.h_q + head;
        reinterpret_cast<uint2*>(params.out)[place * 128 + threadIdx.x] = {
            cvt_rn_bf16x2_f32(sum.x * norm, sum.y * norm), cvt_rn_bf16x2_f32(sum.z * norm, sum.w * norm)};
        if (threadIdx.x == 0) params.lse[place] = weights == 0.0f ? kInfinity : lse * kLn2;
    }
}
