// Where the token of a slot lies in a paged cache.
#pragma once

#include "sparse_decode_params.cuh"

namespace mla {

// What divide() needs of `by`, at least 1.
__device__ __forceinline__ uint32_t reciprocal_of(uint32_t by) {
    return 0xFFFFFFFFu / by;
}

// Quotient and rest of a division by a page size that is not known when compiling, by one multiply. `value`
// is below 2^31.
__device__ __forceinline__ uint32_t divide(uint32_t value, uint32_t by, uint32_t reciprocal, uint32_t& rest) {
    const uint32_t low = __umulhi(value, reciprocal);  // the quotient, or one less
    rest = value - low * by;
    if (rest < by) return low;
    rest -= by;
    return low + 1;
}

// Where a token's bytes lie, in 16 bytes from the start of the cache, and its scales, in 8 bytes. -1 and
// every index out of range are holes: they read slot 0, and count as zeros.
struct Place {
    uint32_t row, scales;
    bool there;
};

template <class Layout>
__device__ __forceinline__ Place place_of(const CacheView& view, uint32_t reciprocal, int32_t index) {
    const bool there = static_cast<uint32_t>(index) < static_cast<uint32_t>(view.slots);
    uint32_t offset;
    const uint32_t page = divide(there ? index : 0, view.page, reciprocal, offset);
    const uint8_t* const start = view.kv + page * view.page_stride;
    const uint64_t row = start + offset * Layout::kRowBytes - view.kv;
    const uint64_t scales = Layout::scales_at(start, view.page, offset) - view.kv;
    return {static_cast<uint32_t>(row / 16), static_cast<uint32_t>(scales / 8), there};
}

}  // namespace mla
