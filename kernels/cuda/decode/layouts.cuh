// The two layouts of a token in the FP8 cache, as kernels read them: codes in column blocks of 64, scales,
// and 64 bfloat16 of the RoPE part.
#pragma once

#include "fp8_rows.cuh"
#include "memory.cuh"
#include "sparse_decode_params.cuh"

namespace mla {

// DeepSeek-V3.2: 512 codes, 4 float32 scales (one for 128 values), 64 bfloat16 that are keys only.
struct V32 {
    static constexpr uint32_t kNopeBlocks = 8, kRowBytes = 656, kRopeAt = 528;
    static constexpr uint32_t kStagedBytes = 656, kStagedScales = 512;  // of a row that is copied whole
    static constexpr bool kRopeIsValue = false, kScalesApart = false;
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
    static __device__ Scales read_scales(const uint8_t* at) { return {*reinterpret_cast<const float4*>(at)}; }
    // The scales as four lanes hold them: a quarter as it lies; ready for use, once it has come; and the one
    // of a column block, as bfloat16 in both halves, from the quarter block / 2.
    static __device__ uint32_t ask_quarter(const uint8_t* scales, uint32_t quarter) {
        return ld_global_nc_u32(scales + 4 * quarter);
    }
    static __device__ uint32_t prepare_quarter(uint32_t bits) {
        return both_halves_bf16(__uint_as_float(bits));
    }
    static __device__ uint32_t of_quarter(uint32_t prepared, uint32_t) { return prepared; }
};

// MODEL1: 448 codes, 64 bfloat16 that are keys and values; 7 scales of 8 bits (one for 64 values) after the
// page's rows.
struct Model1 {
    static constexpr uint32_t kNopeBlocks = 7, kRowBytes = 576, kRopeAt = 448;
    static constexpr uint32_t kStagedBytes = 592, kStagedScales = 576;  // the scales are put behind the row
    static constexpr bool kRopeIsValue = true, kScalesApart = true;
    struct Scales {
        uint2 of;
        __device__ uint32_t pair(uint32_t block) const {
            const uint32_t bits = bf16((block < 4 ? of.x : of.y) >> (8 * (block & 3)) & 0xFF);
            return bits << 16 | bits;
        }
    };
    // A scale, an exponent with bias 127, as bfloat16; 255 is NaN.
    static __device__ uint32_t bf16(uint32_t code) {
        return code == 0 ? 0x0040u : code == 255 ? 0x7FFFu : code << 7;
    }
    static __device__ const uint8_t* scales_at(const uint8_t* page, uint32_t page_size, uint32_t offset) {
        return page + page_size * kRowBytes + 8 * offset;
    }
    static __device__ Scales read_scales(const uint8_t* at) { return {*reinterpret_cast<const uint2*>(at)}; }
    static __device__ uint32_t ask_quarter(const uint8_t* scales, uint32_t quarter) {
        return ld_global_nc_u16(scales + 2 * quarter);
    }
    static __device__ uint32_t prepare_quarter(uint32_t bytes) {
        return bf16(bytes & 0xFF) | bf16(bytes >> 8) << 16;
    }
    static __device__ uint32_t of_quarter(uint32_t prepared, uint32_t block) {
        return __byte_perm(prepared, 0, block % 2 == 0 ? 0x1010 : 0x3232);
    }
};

}  // namespace mla
