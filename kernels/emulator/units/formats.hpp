// Number formats below 64 bits as codes, and every rounding that PTX offers between them.
//
//   widen<kE4M3>(code)                       the value of a code, exact
//   narrow<kF16>(x, {.round = Round::zero})  the code of a float or double
//   to_integer<int32_t>(x, Round::zero)      cvt.rzi.s32
//   from_integer<kBF16>(n, Round::even)      cvt.rn.bf16.s64
//
// Pure functions without branches on data where a loop over lanes should become vector code. A code is
// returned in the low bits of a uint32_t. PTX ISA 9.0, section "Data movement and conversion: cvt".
#pragma once

#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace emu {

// .rn .rz .rm .rp .rna
enum class Round : std::uint8_t { even, zero, down, up, away };

struct Format {
    int exponent_bits, mantissa_bits;
    int unused_bits;         // zero bits below the mantissa (tf32 lives in a 32-bit register)
    std::uint32_t infinity;  // 0 where the format has none
    std::uint32_t max;       // the largest finite magnitude
    std::uint32_t nan;       // what a conversion gives for NaN

    [[nodiscard]] constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
    [[nodiscard]] constexpr int sign_shift() const { return exponent_bits + mantissa_bits + unused_bits; }
};

// Fields: exponent bits, mantissa bits, unused bits, infinity, largest finite, NaN.
inline constexpr Format kF32 = {8, 23, 0, 0x7F80'0000, 0x7F7F'FFFF, 0x7FFF'FFFF};
inline constexpr Format kTF32 = {8, 10, 13, 0x7F80'0000, 0x7F7F'E000, 0x7FFF'E000};
inline constexpr Format kBF16 = {8, 7, 0, 0x7F80, 0x7F7F, 0x7FFF};
inline constexpr Format kF16 = {5, 10, 0, 0x7C00, 0x7BFF, 0x7FFF};
inline constexpr Format kE5M2 = {5, 2, 0, 0x7C, 0x7B, 0x7F};
inline constexpr Format kE4M3 = {4, 3, 0, 0, 0x7E, 0x7F};

struct Narrowing {
    Round round = Round::even;
    bool satfinite = false;  // beyond the range, and infinity: ± the largest finite value
    bool relu = false;       // negative values: +0
};

// ---- the one rounding ----

// significand >> shift, rounded; `negative` matters to .rm and .rp alone. 0 <= shift < bits of Word.
template <std::unsigned_integral Word>
[[nodiscard]] constexpr Word shift_rounded(Word significand, int shift, bool negative, Round round) {
    const Word kept = significand >> shift;
    const Word rest = significand & ((Word{1} << shift) - 1);
    const Word half = (Word{1} << shift) >> 1;  // 0 where nothing is cut: then `rest` is 0 too
    bool up = false;
    switch (round) {
        case Round::even:
            up = rest > half || (rest == half && rest != 0 && (kept & 1) != 0);
            break;
        case Round::away:
            up = rest >= half && rest != 0;
            break;
        case Round::zero:
            break;
        case Round::down:
            up = negative && rest != 0;
            break;
        case Round::up:
            up = !negative && rest != 0;
            break;
    }
    return kept + static_cast<Word>(up);
}

// The magnitude code that a finite value beyond the range takes.
template <Format F>
[[nodiscard]] constexpr std::uint32_t overflow_code(bool negative, Narrowing how) {
    const bool stays = how.satfinite || F.infinity == 0 || how.round == Round::zero ||
                       (how.round == Round::down && !negative) || (how.round == Round::up && negative);
    return stays ? F.max : F.infinity;
}

// ± significand · 2^exponent with any significand: the path of integers and of values already taken apart.
template <Format F>
[[nodiscard]] constexpr std::uint32_t pack(bool negative, std::uint64_t significand, int exponent,
                                           Narrowing how) {
    const std::uint32_t sign = std::uint32_t{negative} << F.sign_shift();
    if (significand == 0) return sign;
    const int top = 63 - std::countl_zero(significand);  // the value is 1.xxx · 2^(top + exponent)
    const int field = top + exponent + F.bias();         // its exponent field, if normal
    const int lost = top - F.mantissa_bits + (field < 1 ? 1 - field : 0);
    std::uint64_t kept;
    if (lost <= 0) {
        kept = significand << -lost;
    } else {
        // Beyond 63 places only "something is there" survives; two places keep it below one half.
        kept = lost < 64 ? shift_rounded(significand, lost, negative, how.round)
                         : shift_rounded<std::uint64_t>(1, 2, negative, how.round);
    }
    if (field > 2 * F.bias() + 2) return sign | overflow_code<F>(negative, how);
    const std::uint64_t code = (kept + (std::uint64_t(field < 1 ? 0 : field - 1) << F.mantissa_bits))
                               << F.unused_bits;
    return sign | (code > F.max ? overflow_code<F>(negative, how) : static_cast<std::uint32_t>(code));
}

// ---- floating point to floating point ----

// The code of x. Infinity stays infinity unless .satfinite; NaN becomes F.nan whatever its sign and payload.
template <Format F, std::floating_point Source>
[[nodiscard]] constexpr std::uint32_t narrow(Source x, Narrowing how = {}) {
    using Word = std::conditional_t<sizeof(Source) == 4, std::uint32_t, std::uint64_t>;
    constexpr int kMantissa = std::numeric_limits<Source>::digits - 1;
    constexpr int kBias = std::numeric_limits<Source>::max_exponent - 1;
    constexpr int kDrop = kMantissa - F.mantissa_bits;
    static_assert(kDrop >= 0 && kBias >= F.bias(),
                  "narrow: the source must be at least as wide as the format");
    constexpr Word kInfinity = Word(2 * kBias + 1) << kMantissa;

    const Word bits = std::bit_cast<Word>(x);
    const Word magnitude = bits & (~Word{0} >> 1);
    const bool negative = bits != magnitude;
    const int biased = static_cast<int>(magnitude >> kMantissa);
    const int field = (biased == 0 ? 1 : biased) - kBias + F.bias();
    const Word significand = (magnitude & ((Word{1} << kMantissa) - 1)) | Word(biased == 0 ? 0 : 1)
                                                                              << kMantissa;
    const int under = field < 1 ? 1 - field : 0;
    // Past kMantissa + 2 places every value is below half of the smallest code, and stays so.
    const int shift = kDrop + under > kMantissa + 2 ? kMantissa + 2 : kDrop + under;
    const Word kept = shift_rounded(significand, shift, negative, how.round);
    const Word code = (kept + (Word(field < 1 ? 0 : field - 1) << F.mantissa_bits)) << F.unused_bits;

    std::uint32_t out = code > F.max ? overflow_code<F>(negative, how) : static_cast<std::uint32_t>(code);
    if (magnitude == kInfinity) out = how.satfinite || F.infinity == 0 ? F.max : F.infinity;
    out |= std::uint32_t{negative} << F.sign_shift();
    if (how.relu && negative) out = 0;
    return magnitude > kInfinity ? F.nan : out;
}

// cvt from f64: as `narrow`, but a NaN keeps its sign and the upper bits of its payload, and becomes quiet.
template <Format F>
[[nodiscard]] constexpr std::uint32_t narrow_f64(double x, Round round) {
    const auto bits = std::bit_cast<std::uint64_t>(x);
    const auto payload = static_cast<std::uint32_t>((bits & 0x000F'FFFF'FFFF'FFFF) >> (52 - F.mantissa_bits));
    const std::uint32_t quiet = F.infinity | 1U << (F.mantissa_bits - 1) | payload;
    const std::uint32_t sign = static_cast<std::uint32_t>(bits >> 63) << F.sign_shift();
    return x != x ? sign | quiet : narrow<F>(x, {.round = round});
}

// cvt.rna.tf32.f32 is integer arithmetic on an H200, and a NaN shows it: its lower bits are cut (so that it
// can turn into infinity), and .satfinite takes one tf32 unit off whatever is not finite then.
[[nodiscard]] constexpr std::uint32_t narrow_tf32_away(float x, bool satfinite) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const bool finite = (bits & 0x7FFF'FFFF) < kF32.infinity;
    const std::uint32_t cut = (finite ? bits + 0x1000 : bits) & 0xFFFF'E000;
    return satfinite && (cut & 0x7FFF'FFFF) >= kF32.infinity ? cut - 0x2000 : cut;
}

// cvt.f32.bf16: a shift, which keeps even the payload of a NaN.
[[nodiscard]] constexpr float widen_bf16(std::uint32_t code) {
    return std::bit_cast<float>(code << 16);
}

// The value of a code, exact. NaN gives the quiet NaN 0x7FFFFFFF, as arithmetic and cvt.f32.f16 do.
template <Format F>
[[nodiscard]] constexpr float widen(std::uint32_t code) {
    constexpr int kShift = 23 - F.mantissa_bits;
    constexpr std::uint32_t kMagnitudeMask = (1U << F.sign_shift()) - 1;
    const std::uint32_t sign = (code >> F.sign_shift() & 1) << 31;
    const std::uint32_t magnitude = (code & kMagnitudeMask) >> F.unused_bits;
    std::uint32_t bits = magnitude << kShift;
    if constexpr (F.bias() != kF32.bias()) {
        // Under the wrong bias a normal code is off by 2^(127 - bias), and so is a subnormal one once it
        // counts from the smallest normal: (1 + m) · 2^e - 2^e = m · 2^e.
        constexpr std::uint32_t kRebias = static_cast<std::uint32_t>(127 - F.bias()) << 23;
        constexpr float kSmallest = std::bit_cast<float>(kRebias + (1U << 23));
        const float subnormal = std::bit_cast<float>(bits + kRebias + (1U << 23)) - kSmallest;
        bits = magnitude >> F.mantissa_bits == 0 ? std::bit_cast<std::uint32_t>(subnormal) : bits + kRebias;
        if (F.infinity != 0 && magnitude == F.infinity) bits = kF32.infinity;
    }
    const bool nan = magnitude > (F.infinity != 0 ? F.infinity >> F.unused_bits : F.max);
    return std::bit_cast<float>(nan ? kF32.nan : bits | sign);
}

// Every 8-bit format fits into f16. NaN gives 0x7FFF.
template <Format F>
[[nodiscard]] constexpr std::uint32_t fp8_to_f16(std::uint32_t code, bool relu = false) {
    return narrow<kF16>(widen<F>(code), {.relu = relu});
}

// ---- ue8m0: a power of two from 2^-127 to 2^127, 0xFF = NaN; no sign, no zero ----

// 2^-127 is subnormal in both targets, and exact.
[[nodiscard]] constexpr float widen_ue8m0(std::uint32_t code) {
    return std::bit_cast<float>(code == 0xFF ? kF32.nan : code == 0 ? 0x0040'0000U : code << 23);
}

// .rz takes the exponent, .rp the next power of two. Negative values and NaN give NaN; zero and all below
// 2^-127 give 0.
[[nodiscard]] constexpr std::uint32_t narrow_ue8m0(float x, Round round, bool satfinite) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t magnitude = bits & 0x7FFF'FFFF;
    if (magnitude > kF32.infinity || (bits != magnitude && magnitude != 0)) return 0xFF;
    if (magnitude == kF32.infinity) return satfinite ? 0xFE : 0xFF;
    const std::uint32_t exponent = magnitude >> 23;
    const std::uint32_t mantissa = magnitude & 0x007F'FFFF;
    // Under exponent field 0 lie the values up to 2^-126; code 0 is 2^-127, which is mantissa 0x400000.
    const bool above = mantissa > (exponent == 0 ? 0x0040'0000U : 0U);
    const std::uint32_t code = exponent + (round == Round::up && above ? 1 : 0);
    return satfinite && code == 0xFF ? 0xFE : code;
}

// ---- integers ----

// x rounded to an integral value of its own type (cvt.rni.f32.f32 and so on). NaN and infinity pass through.
template <std::floating_point T>
[[nodiscard]] inline T round_integral(T x, Round round) {
    switch (round) {
        case Round::even:
            return std::nearbyint(x);  // the host keeps its default mode, nearest even
        case Round::zero:
            return std::trunc(x);
        case Round::down:
            return std::floor(x);
        case Round::up:
            return std::ceil(x);
        case Round::away:
            return std::round(x);
    }
    return x;
}

// Saturates to the range of Integer. NaN gives 0; with a 64-bit source or destination it gives the top bit
// alone.
template <std::integral Integer, std::floating_point Source>
[[nodiscard]] inline Integer to_integer(Source x, Round round) {
    using Limits = std::numeric_limits<Integer>;
    if (std::isnan(x)) {
        constexpr bool kWide = sizeof(Integer) == 8 || sizeof(Source) == 8;
        return kWide ? static_cast<Integer>(std::make_unsigned_t<Integer>{1} << (8 * sizeof(Integer) - 1))
                     : Integer{0};
    }
    const Source whole = round_integral(x, round);
    // 2^digits is exact in every Source, while the largest Integer need not be.
    const Source end = std::ldexp(Source{1}, Limits::digits);
    if (whole >= end) return Limits::max();
    if (whole <= (Limits::is_signed ? -end : Source{0})) return Limits::min();
    return static_cast<Integer>(whole);
}

template <Format F, std::integral Integer>
[[nodiscard]] constexpr std::uint32_t from_integer(Integer n, Round round) {
    const bool negative = std::is_signed_v<Integer> && n < 0;
    const auto magnitude = static_cast<std::uint64_t>(n);
    return pack<F>(negative, negative ? 0 - magnitude : magnitude, 0, {.round = round});
}

// ---- .sat ----

// Clamp to [0, 1]; NaN gives +0.
template <std::floating_point T>
[[nodiscard]] constexpr T saturate_unit(T x) {
    return x > T{0} ? (x < T{1} ? x : T{1}) : T{0};
}

}  // namespace emu
