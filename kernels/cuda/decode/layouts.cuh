// The two layouts of a token in the FP8 cache, as kernels read them: codes in column blocks of 64, scales,
// and 64 bfloat16 of the RoPE part.
#pragma once

#include "fp8_rows.cuh"
#include "sparse_decode_params.cuh"

namespace mla {

// DeepSeek-V3.2: 512 codes, 4 float32 scales (one for 128 values), 64 bfloat16 that are keys only.
struct V32 {
    static constexpr uint32_t kNopeBlocks = 8, kRowBytes = 656, kRopeAt = 528;
    struct Scales {
        float4 of;
        // Of a column block, as bfloat16 in both halves.
        __device__ uint32_t pair(uint32_t block) const {
            return both_halves_bf16(block < 2 ? of.x : block < 4 ? of.y : block < 6 ? of.z : of.w);
        }
    };
    static __device__ const uint8_t* scales_at(const uint8_t* page, uint32_t, uint32_t offset) {
        return page + offset * kRowBytes + 512;
    }
    static __device__ Scales read_scales(const uint8_t* at) {
        return {__ldg(reinterpret_cast<const float4*>(at))};
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
    static __device__ const uint8_t* scales_at(const uint8_t* page, uint32_t page_size, uint32_t offset) {
        return page + page_size * kRowBytes + 8 * offset;
    }
    static __device__ Scales read_scales(const uint8_t* at) {
        return {__ldg(reinterpret_cast<const uint2*>(at))};
    }
};

}  // namespace mla
