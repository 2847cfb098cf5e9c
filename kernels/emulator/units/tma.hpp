// Where the bytes of a box lie: the box at some coordinates of a tensor, as runs of bytes that are contiguous
// both in global and in shared memory. Pure: no machine state.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "units/tensor_map.hpp"

namespace emu::tma {

using tensor_map::Swizzle;
using tensor_map::TensorMap;
using Coordinates = std::array<std::int32_t, 5>;
using Offsets = std::array<std::uint16_t, 3>;

struct Run {
    std::uint64_t global;  // address; 0 outside of the tensor
    std::uint32_t shared;  // offset in the CTA's shared memory
    std::uint32_t bytes;
    [[nodiscard]] bool inside() const { return global != 0; }
};

struct Box {
    std::vector<Run> runs;    // in the order of the box; runs outside of the tensor are filled, or left out
    std::uint32_t bytes = 0;  // what an mbarrier is told: the data of the whole box, inside and outside
};

// The byte at offset `at` of a CTA's shared memory under a swizzle: bits of the line's number permute the
// 16-, 32- or 64-byte chunks of a 128-byte line (or of half or a quarter of one).
[[nodiscard]] constexpr std::uint32_t swizzled(Swizzle swizzle, std::uint32_t at) {
    switch (swizzle) {
        case Swizzle::b32:
            return at ^ (at >> 3 & 0x10);
        case Swizzle::b64:
            return at ^ (at >> 3 & 0x30);
        case Swizzle::b128:
            return at ^ (at >> 3 & 0x70);
        case Swizzle::b128_atom32:
            return at ^ (at >> 2 & 0x60);
        case Swizzle::b128_atom32_flip8:
            return at ^ (at >> 2 & 0x60) ^ (at >> 4 & 0x08);
        case Swizzle::b128_atom64:
            return at ^ (at >> 1 & 0x40);
        default:
            return at;
    }
}
static_assert(swizzled(Swizzle::b128, 0x390) == 0x3e0, "line 7: chunk 1 goes to chunk 6");
static_assert(swizzled(Swizzle::b32, 0x80) == 0x90 && swizzled(Swizzle::b64, 0x180) == 0x1b0);

// The box whose first element has coordinates `at`, copied from or to shared offset `shared`. A load is
// clipped at the last element of a row, a store at the 16 bytes that hold it: it writes up to there, as an
// H200 does.
enum class Clip : std::uint8_t { elements, units };
[[nodiscard]] Box box_at(const TensorMap& map, const Coordinates& at, std::uint32_t shared, Clip clip);
// The pixels of an im2col copy: they begin at `at` and go on along the innermost axis of space, within the
// bounding box, then along the next, and to the next image; `offsets` are added to each one's place.
[[nodiscard]] Box pixels_at(const TensorMap& map, const Coordinates& at, const Offsets& offsets,
                            std::uint32_t shared, Clip clip);
// Four rows of a two-dimensional tensor, one below the other: at = {column, row 0, …, row 3}.
[[nodiscard]] Box rows_at(const TensorMap& map, const Coordinates& at, std::uint32_t shared, Clip clip);
// Bytes from the box's first to its last in shared memory, gaps included.
[[nodiscard]] std::uint32_t extent(const TensorMap& map);
// A box in about equal parts, each at least one unit of 16 bytes.
[[nodiscard]] std::vector<Box> split(const Box& box, std::uint32_t parts);

}  // namespace emu::tma
