// Quantise-and-pack, and unpack, over the pages of an FP8 cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "floats.hpp"

namespace mlacademy {

// One field of a token: the token at `offset` of a page has it at byte base + offset · step, `width` bytes
// long.
struct Field {
    std::ptrdiff_t base;
    std::ptrdiff_t step;
    std::ptrdiff_t width;
};

// Where the bytes of a token lie in a page of `page` tokens. The numbers come from Python's
// CacheLayout.columns.
struct PageMap {
    std::ptrdiff_t page;
    std::ptrdiff_t tile;  // quantised values per scale
    bool e8m0_scales;     // one byte per scale, else a float
    int min_power;        // the smallest scale is 2^min_power
    Field nope;
    Field scale;
    Field rope;
    Field pad;  // width 0 where a layout has no padding in its token

    [[nodiscard]] std::ptrdiff_t num_tiles() const { return nope.width / tile; }
    [[nodiscard]] std::ptrdiff_t d_rope() const { return rope.width / 2; }
    [[nodiscard]] std::ptrdiff_t page_bytes() const {
        return page * (nope.width + scale.width + rope.width + pad.width);
    }
};

// The bytes of all pages: page i starts at data + i · stride.
struct Pages {
    std::uint8_t* data;
    std::ptrdiff_t stride;
};

// Store tokens: nope is [n, nope.width], rope is [n, d_rope], both row-major; slots are inside the cache and
// distinct (the caller has checked). Returns false, having written nothing, when a value is not finite (for
// rope: in bfloat16).
template <typename Value>  // float or Bf16
[[nodiscard]] bool append(Pages pages, const PageMap& map, std::span<const std::int64_t> slots,
                          const Value* nope, const Value* rope);

extern template bool append(Pages, const PageMap&, std::span<const std::int64_t>, const float*, const float*);
extern template bool append(Pages, const PageMap&, std::span<const std::int64_t>, const Bf16*, const Bf16*);

// Read tokens to rows of nope.width + d_rope floats. A slot of -1 gives zeros; others are inside the cache.
void gather(Pages pages, const PageMap& map, std::span<const std::int64_t> slots, float* rows);

}  // namespace mlacademy
