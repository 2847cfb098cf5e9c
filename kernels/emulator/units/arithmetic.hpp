// Scalar arithmetic whose result a host's operators do not give: directed rounding, one rounding for f16 and
// bf16, and PTX's minimum and maximum. NaN results are the canonical 0x7FFFFFFF (0x7FFF for 16 bits).
//
// Directed rounding goes through round-to-odd: the exact result is cut to a double whose last bit says
// whether anything was cut, and such a value rounds to any narrower format as the exact one would (two spare
// bits are enough).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "units/formats.hpp"

namespace emu {

[[nodiscard]] constexpr float flush(float x, bool ftz) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    return ftz && (bits & kF32.infinity) == 0 ? std::bit_cast<float>(bits & 0x8000'0000) : x;
}

[[nodiscard]] constexpr float canonical(float x) {
    return x != x ? std::bit_cast<float>(kF32.nan) : x;
}

// `nearest` is the rounded value of an exact result, `error` has the sign of exact - nearest (0: nothing was
// lost).
[[nodiscard]] inline double round_to_odd(double nearest, double error) {
    if (error == 0 || !std::isfinite(nearest)) return nearest;
    const auto bits = std::bit_cast<std::uint64_t>(nearest);
    if ((bits & 1) != 0) return nearest;
    // An even last bit: step to the odd neighbour on the side of the exact result.
    const bool outward = (error > 0) == (nearest > 0);
    return std::bit_cast<double>(outward ? bits + 1 : bits - 1);
}

// x + y. The error of a sum is itself a double (Knuth's two-sum, valid for any order of magnitude).
[[nodiscard]] inline double add_to_odd(double x, double y) {
    const double sum = x + y;
    const double y_part = sum - x;
    return round_to_odd(sum, (x - (sum - y_part)) + (y - y_part));
}

[[nodiscard]] inline double divide_to_odd(float x, float y) {
    const double quotient = static_cast<double>(x) / static_cast<double>(y);
    if (!std::isfinite(quotient) || std::isinf(y)) return quotient;
    const double rest = std::fma(-quotient, static_cast<double>(y), static_cast<double>(x));
    return round_to_odd(quotient, y < 0 ? -rest : rest);
}

[[nodiscard]] inline double sqrt_to_odd(float x) {
    const double root = std::sqrt(static_cast<double>(x));
    return round_to_odd(root, std::isfinite(root) ? std::fma(-root, root, static_cast<double>(x)) : 0.0);
}

struct FloatRule {
    Round round = Round::even;
    bool ftz = false, sat = false;
};

[[nodiscard]] inline float round_f32(double to_odd, FloatRule rule) {
    const auto code = narrow<kF32>(to_odd, {.round = rule.round});
    const float result = flush(std::bit_cast<float>(code), rule.ftz);
    return rule.sat ? saturate_unit(result) : result;
}

// x + y rounded. Terms that cancel give +0, but -0 under .rm.
[[nodiscard]] inline float round_sum(double x, double y, FloatRule rule) {
    const double sum = add_to_odd(x, y);
    const bool cancelled = sum == 0 && std::signbit(x) != std::signbit(y);
    return round_f32(cancelled && rule.round == Round::down ? -0.0 : sum, rule);
}

[[nodiscard]] inline float add_f32(float x, float y, FloatRule rule) {
    return round_sum(flush(x, rule.ftz), flush(y, rule.ftz), rule);
}

[[nodiscard]] inline float mul_f32(float x, float y, FloatRule rule) {
    return round_f32(static_cast<double>(flush(x, rule.ftz)) * static_cast<double>(flush(y, rule.ftz)), rule);
}

[[nodiscard]] inline float fma_f32(float x, float y, float z, FloatRule rule) {
    const double product = static_cast<double>(flush(x, rule.ftz)) * static_cast<double>(flush(y, rule.ftz));
    return round_sum(product, flush(z, rule.ftz), rule);
}

[[nodiscard]] inline float div_f32(float x, float y, FloatRule rule) {
    return round_f32(divide_to_odd(flush(x, rule.ftz), flush(y, rule.ftz)), rule);
}

[[nodiscard]] inline float sqrt_f32(float x, FloatRule rule) {
    return round_f32(sqrt_to_odd(flush(x, rule.ftz)), rule);
}

// f16 and bf16: the operands are codes, one rounding from the exact result (nearest even).
template <Format F>
[[nodiscard]] inline std::uint32_t fma_narrow(std::uint32_t x, std::uint32_t y, std::uint32_t z,
                                              bool relu = false) {
    // The product is exact in double: at most 22 bits.
    const double product = static_cast<double>(widen<F>(x)) * static_cast<double>(widen<F>(y));
    return narrow<F>(add_to_odd(product, widen<F>(z)), {.relu = relu});
}

// ---- minimum and maximum: a NaN operand is ignored unless .NaN; -0 < +0 ----

struct MinMaxRule {
    bool maximum = false;
    bool propagate_nan = false;  // .NaN
    bool xorsign_abs = false;    // of the magnitudes; the result's sign is the xor of the operands' signs
};

// On codes of format F, which keep their payload bits except for NaN results.
template <Format F>
[[nodiscard]] constexpr std::uint32_t min_max(std::uint32_t x, std::uint32_t y, MinMaxRule rule) {
    constexpr std::uint32_t kSign = 1U << F.sign_shift();
    const std::uint32_t sign = rule.xorsign_abs ? (x ^ y) & kSign : 0;
    if (rule.xorsign_abs) x &= kSign - 1, y &= kSign - 1;
    const bool x_nan = (x & (kSign - 1)) > F.infinity, y_nan = (y & (kSign - 1)) > F.infinity;
    if (rule.propagate_nan ? x_nan || y_nan : x_nan && y_nan) return F.nan;
    if (x_nan || y_nan) return sign | (x_nan ? y : x);
    // As integers, magnitudes order codes; a set sign turns the order around.
    const auto key = [](std::uint32_t code) {
        return (code & kSign) != 0 ? -static_cast<std::int64_t>(code & (kSign - 1)) - 1 : std::int64_t{code};
    };
    const bool first = (key(x) > key(y)) == rule.maximum;
    return sign | (first ? x : y);
}

}  // namespace emu
