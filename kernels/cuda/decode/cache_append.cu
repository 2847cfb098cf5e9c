// Quantise the latents of new tokens and store them into their slots of the paged FP8 cache.
//
//   nope [n, 512] (V3.2) or [n, 448] (MODEL1) bfloat16, rope [n, 64] bfloat16, slots [n] -> bytes in the
//   cache
//
// A warp takes a token, a lane 16 values of it. Neighbouring lanes find the largest magnitude of their tile,
// which gives the scale, a power of two; each lane then turns its values into 16 codes. The bytes are those
// of `mlacademy.cache.append`.
//
// Left out on purpose: two equal slots are not noticed, and one of the tokens wins. A tile with an infinity
// or a NaN, which `mlacademy.cache.append` refuses, gets a NaN scale and NaN codes, so that a reader sees it.
//
// Launch: grid ceil(n / 8), block 256.
#include "convert.cuh"

using namespace mla;

constexpr int32_t kTokens = 8;                            // of a CTA
constexpr uint32_t kSmallestScale = 114;                  // 2^-13, with float32's bias of 127
constexpr uint32_t kInfinity = 0x7F80, kNotFinite = 255;  // bits of a bfloat16, an exponent

// Strides in bytes. Rows of nope and rope, pages, and the cache lie at multiples of 16 bytes.
struct AppendParams {
    uint8_t* kv;
    const uint8_t *nope, *rope;
    const uint8_t* slots;  // int32 or int64; -1 and everything beyond the cache is left out
    uint32_t* problems;    // or null; counts [0] slots beyond the cache, [1] tokens with NaN or infinity
    int64_t page_stride, nope_stride, rope_stride, slot_stride;
    int32_t page, capacity, n, slot_bytes;
};
static_assert(sizeof(AppendParams) == 88, "five pointers, four strides, four numbers");

// A slot as its lowest and its highest 32 bits, which are the same ones in an int32. Neither is looked at
// where it is read, so nothing waits there.
struct Slot {
    uint32_t low, high;

    static __device__ Slot read(const AppendParams& params, int32_t token) {
        const uint8_t* const at = params.slots + token * params.slot_stride;
        return {__ldg(reinterpret_cast<const uint32_t*>(at)),
                __ldg(reinterpret_cast<const uint32_t*>(at + params.slot_bytes - 4))};
    }
    __device__ bool in(const AppendParams& params) const {
        return low < static_cast<uint32_t>(params.capacity) && (params.slot_bytes == 4 || high == 0);
    }
    __device__ bool hole() const { return (low & high) == 0xFFFFFFFFu; }
};

// DeepSeek-V3.2: 512 codes, 4 float32 scales, 64 bfloat16.
struct V32 {
    static constexpr uint32_t kNope = 512, kTile = 128, kRowBytes = 656, kRopeAt = 528;

    static __device__ void store_scale(uint8_t*, uint8_t* row, uint32_t, uint32_t, uint32_t tile,
                                       uint32_t exponent) {
        const uint32_t nan = exponent == kNotFinite ? 1u << 22 : 0;
        reinterpret_cast<uint32_t*>(row + kNope)[tile] = exponent << 23 | nan;
    }
};
// MODEL1: 448 codes, 64 bfloat16; 7 scales of one byte and a zero after the page's rows.
struct Model1 {
    static constexpr uint32_t kNope = 448, kTile = 64, kRowBytes = 576, kRopeAt = 448;

    static __device__ void store_scale(uint8_t* page_start, uint8_t*, uint32_t page, uint32_t offset,
                                       uint32_t tile, uint32_t exponent) {
        const bool padding = tile == kNope / kTile;  // the last lanes, which have no values
        page_start[page * kRowBytes + 8 * offset + tile] = padding ? 0 : static_cast<uint8_t>(exponent);
    }
};

// Magnitudes of bfloat16 order like their bits, NaN above infinity. Two at a time: the larger one of a and of
// b.
__device__ __forceinline__ uint32_t larger_magnitudes(uint32_t a, uint32_t b) {
    return __vmaxu2(a & 0x7FFF7FFFu, b & 0x7FFF7FFFu);
}
__device__ __forceinline__ uint32_t largest_magnitude(uint4 low, uint4 high) {
    const uint32_t x = larger_magnitudes(low.x, high.x), y = larger_magnitudes(low.y, high.y);
    const uint32_t z = larger_magnitudes(low.z, high.z), w = larger_magnitudes(low.w, high.w);
    const uint32_t both = larger_magnitudes(larger_magnitudes(x, y), larger_magnitudes(z, w));
    return max(both & 0xFFFF, both >> 16);
}

// The biased exponent of the smallest power of two s with largest <= 448 s; 448 is 1.75 * 2^8, so a mantissa
// above .75 needs one more.
__device__ __forceinline__ uint32_t scale_exponent(uint32_t largest) {
    if (largest >= kInfinity) return kNotFinite;
    const uint32_t above = (largest & 0x7F) > 0x60;
    return max((largest >> 7) + above, kSmallestScale + 8) - 8;
}

// Four codes of two pairs of bfloat16.
__device__ __forceinline__ uint32_t encode(uint32_t low, uint32_t high, float factor) {
    const auto pair = [factor](uint32_t both) {
        return static_cast<uint32_t>(cvt_rn_satfinite_e4m3x2_f32(
            __uint_as_float(both << 16) * factor, __uint_as_float(both & 0xFFFF0000u) * factor));
    };
    return pair(low) | pair(high) << 16;
}

template <class Layout>
__device__ void cache_append(const AppendParams& params) {
    constexpr uint32_t kLanesOfTile = Layout::kTile / 16;
    const uint32_t lane = threadIdx.x % 32;
    const int32_t token = blockIdx.x * kTokens + threadIdx.x / 32;
    if (token >= params.n) return;

    // Ask for everything before waiting for anything.
    const Slot slot = Slot::read(params, token);
    uint4 low = {}, high = {}, rope = {};
    const bool has_values = 16 * lane < Layout::kNope, has_rope = lane < 8;
    if (has_rope)
        rope = __ldg(reinterpret_cast<const uint4*>(params.rope + token * params.rope_stride) + lane);
    if (has_values) {
        const auto* const values =
            reinterpret_cast<const uint4*>(params.nope + token * params.nope_stride) + 2 * lane;
        low = __ldg(values), high = __ldg(values + 1);
    }

    uint32_t largest = largest_magnitude(low, high);
#pragma unroll
    for (uint32_t step = 1; step < kLanesOfTile; step *= 2)
        largest = max(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, step));

    if (!slot.in(params)) {
        if (params.problems && lane == 0 && !slot.hole()) atomicAdd(&params.problems[0], 1);
        return;
    }
    const uint32_t exponent = scale_exponent(largest);
    const float factor = __uint_as_float(exponent == kNotFinite ? 0x7FC00000u : (254 - exponent) << 23);
    const uint32_t page = static_cast<uint32_t>(params.page), offset = slot.low % page;
    uint8_t* const page_start = params.kv + slot.low / page * params.page_stride;
    uint8_t* const row = page_start + offset * Layout::kRowBytes;
    if (has_values)
        reinterpret_cast<uint4*>(row)[lane] = {encode(low.x, low.y, factor), encode(low.z, low.w, factor),
                                               encode(high.x, high.y, factor),
                                               encode(high.z, high.w, factor)};
    if (has_rope) reinterpret_cast<uint4*>(row + Layout::kRopeAt)[lane] = rope;
    if (lane % kLanesOfTile == 0)
        Layout::store_scale(page_start, row, page, offset, lane / kLanesOfTile, exponent);

    if (params.problems) {
        const bool bad = max(largest, largest_magnitude(rope, {})) >= kInfinity;
        if (__any_sync(0xFFFFFFFFu, bad) && lane == 0) atomicAdd(&params.problems[1], 1);
    }
}

extern "C" __global__ void __launch_bounds__(32 * kTokens)
    cache_append_v32(const __grid_constant__ AppendParams params) {
    cache_append<V32>(params);
}
extern "C" __global__ void __launch_bounds__(32 * kTokens)
    cache_append_model1(const __grid_constant__ AppendParams params) {
    cache_append<Model1>(params);
}
