// E4M3: 1 sign, 4 exponent (bias 7) and 3 mantissa bits; no infinity; NaN is s.1111.111; ±448 at most.
// Both functions are free of branches and tables, so that a loop over them becomes vector code.
#pragma once

#include <bit>
#include <cstdint>

#include "floats.hpp"

namespace mlacademy::e4m3 {

inline constexpr std::uint32_t kMax = 0x7E;  // 448
inline constexpr std::uint32_t kNaN = 0x7F;

// The value of a code. Moving eeee.mmm under a float's exponent leaves the bias to correct: 127 - 7 = 120.
inline float decode(std::uint8_t code) {
    const std::uint32_t magnitude = code & 0x7F;
    const auto normal = std::bit_cast<float>((magnitude << 20) + (120U << 23));
    // With eeee = 0 that is 2^-7 · (1 + m/8), but a subnormal is m · 2^-9.
    const float subnormal = 2.0F * normal - 0x1p-6F;
    const float value = magnitude < 0x08 ? subnormal : normal;
    const auto bits = magnitude == kNaN ? 0x7FC0'0000U : std::bit_cast<std::uint32_t>(value);
    return std::bit_cast<float>(bits | (std::uint32_t{code} & 0x80) << 24);
}

// The code of a value, RNE. What rounds beyond 448 becomes `overflow`: kMax or kNaN, and so does infinity.
// NaN becomes 0x7F whatever its sign.
inline std::uint8_t encode(float x, std::uint32_t overflow) {
    const std::uint32_t magnitude = magnitude_bits(x);
    // Normal results: add half of the last kept bit (bit 20), minus one when that bit is 0, and cut.
    const std::uint32_t normal = ((magnitude + 0x7'FFFF + ((magnitude >> 20) & 1)) >> 20) - (120U << 3);
    // Below 2^-6 the step is 2^-9, which is the unit in the last place of 2^14: the addition rounds.
    const float shifted = std::bit_cast<float>(magnitude) + 0x1p14F;
    const std::uint32_t subnormal =
        std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(0x1p14F);
    const std::uint32_t rounded = magnitude < std::bit_cast<std::uint32_t>(0x1p-6F) ? subnormal : normal;
    const std::uint32_t bounded = rounded > kMax ? overflow : rounded;
    const std::uint32_t sign = (std::bit_cast<std::uint32_t>(x) >> 24) & 0x80;
    return static_cast<std::uint8_t>(magnitude > kFloatInfinity ? kNaN : bounded | sign);
}

}  // namespace mlacademy::e4m3
