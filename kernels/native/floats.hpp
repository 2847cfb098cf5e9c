// Bit views of the ordinary floating-point formats, shared by the codecs.
#pragma once

#include <bit>
#include <cstdint>

namespace mlacademy {

// The magnitude bits of a float that is infinity; anything above is NaN, anything below is finite.
inline constexpr std::uint32_t kFloatInfinity = 0x7F80'0000;

// A bfloat16 is the upper half of a float: 1 sign, 8 exponent and 7 mantissa bits.
struct Bf16 {
    std::uint16_t bits;
};

inline std::uint32_t magnitude_bits(float x) {
    return std::bit_cast<std::uint32_t>(x) & 0x7FFF'FFFF;
}

inline float to_float(float x) {
    return x;
}
inline float to_float(Bf16 x) {
    return std::bit_cast<float>(std::uint32_t{x.bits} << 16);
}

// Round to nearest, ties to even (RNE). The input must be finite; a value beyond the largest bfloat16 gives
// infinity.
inline Bf16 to_bf16(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t last_kept_bit = (bits >> 16) & 1;
    return {static_cast<std::uint16_t>((bits + 0x7FFF + last_kept_bit) >> 16)};
}
inline Bf16 to_bf16(Bf16 x) {
    return x;
}

inline bool is_finite(Bf16 x) {
    return (x.bits & 0x7FFF) < 0x7F80;
}

}  // namespace mlacademy
