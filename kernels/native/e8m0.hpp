// E8M0: eight exponent bits with bias 127 and nothing else, so powers of two from 2^-127 to 2^127; 0xFF is
// NaN.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "floats.hpp"

namespace mlacademy::e8m0 {

inline constexpr int kBias = 127;
inline constexpr std::uint8_t kNaN = 0xFF;

enum class Rounding { kUp, kNearest, kDown };

inline float decode(std::uint8_t code) {
    // Code 0 is 2^-127, a subnormal float: the upper mantissa bit.
    const std::uint32_t bits = code == 0 ? 0x0040'0000U : std::uint32_t{code} << 23;
    return std::bit_cast<float>(code == kNaN ? 0x7FC0'0000U : bits);
}

// The code of a positive finite value whose result exists (the caller has checked), or of NaN.
// The double of a float is always normal, so its exponent field is floor(log2 x) + 1023 without exception.
inline std::uint8_t encode(float x, Rounding rounding) {
    if (x != x) return kNaN;
    const auto bits = std::bit_cast<std::uint64_t>(static_cast<double>(x));
    const std::uint64_t mantissa = bits & ((std::uint64_t{1} << 52) - 1);
    const std::uint64_t half = std::uint64_t{1} << 51;
    const bool up =
        rounding == Rounding::kUp ? mantissa > 0 : rounding == Rounding::kNearest && mantissa >= half;
    const int power = static_cast<int>(bits >> 52) - 1023 + (up ? 1 : 0);
    return static_cast<std::uint8_t>(std::max(power, -kBias) + kBias);
}

// The exponent k of the smallest power of two with amax <= 448 · 2^k, and at least `min_power`.
// `magnitude`: the bits of the float amax, finite. 448 = 1.75 · 2^8, so only a mantissa above .75 needs one
// more.
inline int tile_power(std::uint32_t magnitude, int min_power) {
    const int exponent = static_cast<int>(magnitude >> 23) - 127;  // a subnormal amax is far below min_power
    const bool above = (magnitude & 0x7F'FFFF) > 0x60'0000;
    return std::max(exponent - 8 + (above ? 1 : 0), min_power);
}

// 2^power for a power whose float is normal.
inline float power_of_two(int power) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(power + 127) << 23);
}

}  // namespace mlacademy::e8m0
