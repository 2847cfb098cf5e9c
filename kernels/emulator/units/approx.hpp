// The .approx functions, as the multi-function unit (MUFU) of an H200 computes them.
//
// The unit looks up a segment by the upper bits of its operand and evaluates a quadratic in the remaining
// bits r with integers: (c0 + c1 · r + 2 · c2 · S(r)) >> 17. S is a squarer that leaves out the partial
// products below a column, and the last shift cuts. PTX puts a few instructions around the unit, which scale
// subnormal operands without .ftz and bring angles to turns. How close each function comes to the silicon is
// measured: docs/numerics.md.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "units/approx_tables.hpp"
#include "units/arithmetic.hpp"

namespace emu {
namespace mufu {

inline constexpr float kNaN = std::bit_cast<float>(kF32.nan);
inline constexpr float kInfinity = std::bit_cast<float>(kF32.infinity);

struct Bits {
    bool negative;
    std::int32_t
        exponent;  // of 1.mantissa · 2^exponent; -127 for zero and subnormal, 128 for infinity and NaN
    std::uint32_t mantissa;  // 23 bits
};

[[nodiscard]] inline Bits split(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    return {bits >> 31 != 0, static_cast<std::int32_t>(bits >> 23 & 0xFF) - 127, bits & 0x007F'FFFF};
}

// sign · (2^23 + mantissa) · 2^(exponent - 23); subnormal results are flushed.
[[nodiscard]] inline float join(bool negative, std::int32_t exponent, std::uint32_t mantissa) {
    const std::uint32_t sign = std::uint32_t{negative} << 31;
    if (exponent < -126) return std::bit_cast<float>(sign);
    if (exponent > 127) return std::bit_cast<float>(sign | kF32.infinity);
    return std::bit_cast<float>(sign | static_cast<std::uint32_t>(exponent + 127) << 23 | mantissa);
}

// r² in units of 2^19, from the partial products of weight 2^19 and more alone.
[[nodiscard]] inline std::int64_t square(std::uint32_t r) {
    std::uint32_t sum = 0;
    for (std::uint32_t i = 10; i < 17; ++i) {
        const std::uint32_t row = ((r & ((1U << i) - 1)) >> (18 - i)) + (1U << (2 * i - 19));
        sum += (r >> i & 1) != 0 ? row : 0;
    }
    return sum;
}

// Units of 2^-17 of the table's last place.
[[nodiscard]] inline std::int64_t evaluate(const Segment& segment, std::uint32_t r) {
    return segment.c0 + std::int64_t{segment.c1} * r + 2 * std::int64_t{segment.c2} * square(r);
}

// value · unit, cut to a float.
[[nodiscard]] inline float cut(std::int64_t value, double unit) {
    return std::bit_cast<float>(narrow<kF32>(static_cast<double>(value) * unit, {.round = Round::zero}));
}

// ---- the unit's functions; subnormal operands count as zero, subnormal results become zero ----

[[nodiscard]] inline float rcp(float x) {
    const Bits b = split(x);
    if (b.exponent == 128) return b.mantissa != 0 ? kNaN : std::copysign(0.0F, x);
    if (b.exponent == -127) return std::copysign(kInfinity, x);
    const std::int64_t y =
        evaluate(kReciprocal[b.mantissa >> 16], (b.mantissa & 0xFFFF) << 1) >> 17;  // in 2^-24
    return y >> 24 != 0 ? join(b.negative, -b.exponent, 0)
                        : join(b.negative, -b.exponent - 1, static_cast<std::uint32_t>(y) & 0x007F'FFFF);
}

[[nodiscard]] inline float rsqrt(float x) {
    const Bits b = split(x);
    if (b.exponent == -127) return std::copysign(kInfinity, x);
    if (b.negative || (b.exponent == 128 && b.mantissa != 0)) return kNaN;
    if (b.exponent == 128) return 0.0F;
    const std::int32_t odd = b.exponent & 1, half = (b.exponent - odd) / 2;
    if (odd == 0 && b.mantissa == 0) return join(false, -half, 0);
    const Segment& segment = kReciprocalRoot[odd << 6 | static_cast<std::int32_t>(b.mantissa >> 17)];
    return join(false, -half - 1,
                static_cast<std::uint32_t>(evaluate(segment, b.mantissa & 0x1FFFF) >> 17) & 0x007F'FFFF);
}

[[nodiscard]] inline float sqrt(float x) {
    const Bits b = split(x);
    if (b.exponent == -127) return std::copysign(0.0F, x);
    if (b.negative || (b.exponent == 128 && b.mantissa != 0)) return kNaN;
    if (b.exponent == 128) return kInfinity;
    const std::int32_t odd = b.exponent & 1, half = (b.exponent - odd) / 2;
    const Segment& segment = kRoot[odd << 6 | static_cast<std::int32_t>(b.mantissa >> 17)];
    return join(false, half,
                static_cast<std::uint32_t>(evaluate(segment, b.mantissa & 0x1FFFF) >> 17) & 0x007F'FFFF);
}

// The operand in fixed point, cut toward zero to 23 fraction bits. A negative fraction is complemented, not
// negated.
[[nodiscard]] inline float ex2(float x) {
    const Bits b = split(x);
    if (b.exponent == 128 && b.mantissa != 0) return kNaN;
    if (b.exponent >= 8) return b.negative ? 0.0F : kInfinity;
    const std::int32_t size = b.exponent < -23 ? 0
                              : b.exponent < 0
                                  ? static_cast<std::int32_t>((b.mantissa | 0x0080'0000) >> -b.exponent)
                                  : static_cast<std::int32_t>((b.mantissa | 0x0080'0000) << b.exponent);
    const bool whole = (size & 0x007F'FFFF) == 0;
    const std::int32_t fixed = !b.negative ? size : whole ? -size : ~size;
    const std::uint32_t fraction = static_cast<std::uint32_t>(fixed) & 0x007F'FFFF;
    const std::int64_t y = evaluate(kPower[fraction >> 17], fraction & 0x1FFFF) >> 17;
    return join(false, fixed >> 23, static_cast<std::uint32_t>(y) & 0x007F'FFFF);
}

[[nodiscard]] inline float lg2(float x) {
    const Bits b = split(x);
    if (b.exponent == -127) return -kInfinity;
    if (b.negative || (b.exponent == 128 && b.mantissa != 0)) return kNaN;
    if (b.exponent == 128) return kInfinity;
    if (b.exponent == 0 && b.mantissa == 0) return 0.0F;
    // The sum is cut to 2^-36; where it is negative it is complemented, not negated.
    const std::int64_t fraction = evaluate(kLogarithm[b.mantissa >> 17], b.mantissa & 0x1FFFF) >> 4;
    const std::int64_t sum = std::int64_t{b.exponent} * (std::int64_t{1} << 36) + fraction;
    return sum < 0 ? -cut(~sum, 0x1p-36) : cut(sum, 0x1p-36);
}

// sin(2π · turns), in the quadrant `shift` further on: 1 for the cosine. 25 bits of the turn are kept.
[[nodiscard]] inline float sine(float turns, std::uint32_t shift) {
    const Bits b = split(turns);
    if (b.exponent == 128) return kNaN;
    const std::uint64_t significand = b.mantissa | 0x0080'0000;
    const std::uint64_t place = b.exponent >= 23   ? 0
                                : b.exponent >= -2 ? significand << (b.exponent + 2)
                                : b.exponent < -25 ? 0
                                                   : significand >> (-b.exponent - 2);
    const auto quadrant = static_cast<std::uint32_t>(place >> 23) + shift;
    const auto along = static_cast<std::uint32_t>(place) & 0x007F'FFFF;
    const std::uint32_t at = (quadrant & 1) != 0 ? ~along & 0x007F'FFFF : along;  // backwards: the complement
    const float size = cut(evaluate(kSine[at >> 17], at & 0x1FFFF), 0x1p-40);
    const bool negative = ((quadrant & 2) != 0) != (b.negative && shift == 0);
    return negative ? -size : size;
}

}  // namespace mufu

// ---- the PTX instructions ----

[[nodiscard]] inline float rcp_approx(float x, bool ftz) {
    if (ftz) return mufu::rcp(x);
    const float size = std::fabs(x);
    const float scale = size < 0x1p-126F ? 0x1p24F : size > 0x1p126F ? 0.25F : 1.0F;
    return canonical(mufu::rcp(x * scale) * scale);
}

[[nodiscard]] inline float rsqrt_approx(float x, bool ftz) {
    const bool small = !ftz && std::fabs(x) < 0x1p-126F;
    return small ? canonical(mufu::rsqrt(x * 0x1p24F) * 0x1p12F) : mufu::rsqrt(x);
}

[[nodiscard]] inline float sqrt_approx(float x, bool ftz) {
    const bool small = !ftz && std::fabs(x) < 0x1p-126F;
    return small ? canonical(mufu::sqrt(x * 0x1p24F) * 0x1p-12F) : mufu::sqrt(x);
}

[[nodiscard]] inline float ex2_approx(float x, bool ftz) {
    if (ftz || !(x < -126.0F)) return mufu::ex2(x);
    const float half = mufu::ex2(x * 0.5F);
    return half * half;
}

[[nodiscard]] inline float lg2_approx(float x, bool ftz) {
    const bool small = !ftz && std::fabs(x) < 0x1p-126F;
    return small ? canonical(mufu::lg2(x * 0x1p24F) - 24.0F) : mufu::lg2(x);
}

// x / 2π, cut toward zero.
[[nodiscard]] inline float turns(float x, bool ftz) {
    return mul_f32(x, std::bit_cast<float>(0x3E22'F983U), {.round = Round::zero, .ftz = ftz});
}

[[nodiscard]] inline float sin_approx(float x, bool ftz) {
    return mufu::sine(turns(x, ftz), 0);
}
[[nodiscard]] inline float cos_approx(float x, bool ftz) {
    return mufu::sine(turns(x, ftz), 1);
}

// a / b through the reciprocal. .full scales both where b's reciprocal would leave the range; .approx gives
// zero there.
[[nodiscard]] inline float div_approx(float a, float b, bool full, bool ftz) {
    const float size = std::fabs(b);
    const float scale = size < 0x1p-126F && !ftz ? 0x1p24F : full && size > 0x1p126F ? 0.25F : 1.0F;
    const FloatRule rule{.ftz = ftz};
    return mul_f32(mufu::rcp(mul_f32(b, scale, rule)), mul_f32(a, scale, rule), rule);
}

// Close, but not the unit's bits between 2^-8 and 8: its table for tanh is not known. Below, it returns x
// (near 2^-8 without the last 6 bits); above, ±1.
[[nodiscard]] inline float tanh_approx(float x) {
    const float size = std::fabs(x);
    if (size < 0x1p-8F) return x;
    if (size < 0x1.02p-8F) return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & ~63U);
    if (size >= 8.0F) return std::copysign(1.0F, x);
    return canonical(static_cast<float>(std::tanh(static_cast<double>(x))));
}

// The 16-bit forms: the f32 result, cut; from the power of two past the largest value on, infinity.
template <Format F>
[[nodiscard]] inline std::uint32_t ex2_approx_narrow(std::uint32_t x) {
    const float y = mufu::ex2(widen<F>(x));
    const bool over = y >= 2.0F * std::bit_cast<float>(static_cast<std::uint32_t>(F.bias() + 127) << 23);
    return over ? F.infinity : narrow<F>(y, {.round = Round::zero});
}
template <Format F>
[[nodiscard]] inline std::uint32_t tanh_approx_narrow(std::uint32_t x) {
    return narrow<F>(tanh_approx(widen<F>(x)), {.round = Round::zero});
}

}  // namespace emu
