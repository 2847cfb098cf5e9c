// Special registers (%tid.x, %laneid, %clock64 …).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace emu {

class Warp;

struct Special {
    std::uint32_t number;
    std::uint8_t bits;
    bool changes;  // read at run time; all others are fixed while the warp lives
};
[[nodiscard]] std::optional<Special> find_special(std::string_view name);
[[nodiscard]] std::uint64_t special_value(std::uint32_t number, const Warp& warp, int lane);

}  // namespace emu
