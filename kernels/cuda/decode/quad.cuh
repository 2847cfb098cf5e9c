// Four lanes side by side, a quad, share the rows of wgmma's accumulators: here they exchange what they hold.
#pragma once

#include "base.cuh"

namespace mla {

// Transposes 4 x 4 words: word j of the quad's lane i becomes word i of lane j. All 32 lanes together.
__device__ __forceinline__ void transpose_in_quad(uint32_t (&words)[4], uint32_t lane) {
    const auto exchange = [&](uint32_t& first, uint32_t& second, uint32_t distance) {
        const bool upper = (lane & distance) != 0;
        const uint32_t theirs = __shfl_xor_sync(0xFFFFFFFFu, upper ? first : second, distance);
        (upper ? first : second) = theirs;
    };
    exchange(words[0], words[1], 1), exchange(words[2], words[3], 1);
    exchange(words[0], words[2], 2), exchange(words[1], words[3], 2);
}

}  // namespace mla
