// Exact arithmetic on small floats, rounded once. A value is sign · significand · 2^exponent with a 128-bit
// integer significand and a sticky bit for what was cut off below; `encode` rounds it to any format in any
// mode. No floating point of the host is used, so nothing depends on its rounding mode or flags. Pure
// functions; no machine state.
#pragma once

#include <bit>
#include <cstdint>

namespace emu::exact {

using u32 = std::uint32_t;
using u64 = std::uint64_t;
using u128 = unsigned __int128;

enum class Round : std::uint8_t {
    nearest_even,
    zero,
    down,
    up,
    nearest_away,
};

struct Format {
    int exponent_bits, mantissa_bits, bias;
    bool has_infinity;  // otherwise the top exponent holds numbers, and only the all-ones code is NaN
    u64 nan;            // the code a NaN result gets

    [[nodiscard]] constexpr u64 sign_bit() const { return u64{1} << (exponent_bits + mantissa_bits); }
    [[nodiscard]] constexpr u64 infinity() const { return ((u64{1} << exponent_bits) - 1) << mantissa_bits; }
    [[nodiscard]] constexpr u64 largest() const { return has_infinity ? infinity() - 1 : nan - 1; }
};

inline constexpr Format kF64{11, 52, 1023, true, 0x7fffffffffffffffull};
inline constexpr Format kF32{8, 23, 127, true, 0x7fffffff};
inline constexpr Format kTf32{8, 10, 127, true, 0x3ffff};  // the upper 19 bits of an f32
inline constexpr Format kF16{5, 10, 15, true, 0x7fff};
inline constexpr Format kBf16{8, 7, 127, true, 0x7fff};
inline constexpr Format kE5m2{5, 2, 15, true, 0x7f};
inline constexpr Format kE4m3{4, 3, 7, false, 0x7f};

struct Value {
    enum class Kind : std::uint8_t { finite, infinite, nan } kind = Kind::finite;
    bool negative = false, sticky = false;
    int exponent = 0;
    u128 significand = 0;

    [[nodiscard]] constexpr bool zero() const { return kind == Kind::finite && significand == 0 && !sticky; }
};

[[nodiscard]] constexpr int top_bit(u128 v) {  // position of the highest set bit; v != 0
    const auto high = static_cast<u64>(v >> 64);
    return high != 0 ? 127 - std::countl_zero(high) : 63 - std::countl_zero(static_cast<u64>(v));
}

[[nodiscard]] constexpr Value decode(u64 bits, const Format& f) {
    Value v;
    v.negative = (bits & f.sign_bit()) != 0;
    const u64 magnitude = bits & (f.sign_bit() - 1), mantissa = magnitude & ((u64{1} << f.mantissa_bits) - 1);
    const int biased = static_cast<int>(magnitude >> f.mantissa_bits);
    if (f.has_infinity && biased == (1 << f.exponent_bits) - 1) {
        v.kind = mantissa != 0 ? Value::Kind::nan : Value::Kind::infinite;
    } else if (!f.has_infinity && magnitude == f.nan) {
        v.kind = Value::Kind::nan;
    } else {
        v.significand = biased == 0 ? mantissa : mantissa | u64{1} << f.mantissa_bits;
        v.exponent = (biased == 0 ? 1 : biased) - f.bias - f.mantissa_bits;
    }
    return v;
}

[[nodiscard]] constexpr Value from_integer(bool negative, u64 magnitude) {
    Value v;
    v.negative = negative;
    v.significand = magnitude;
    return v;
}

// significand · 2^(exponent - lsb) as an integer: rounded where bits fall off. The result must fit 64 bits.
[[nodiscard]] constexpr u64 round_to_integer(const Value& v, int lsb, Round mode) {
    const int shift = lsb - v.exponent;
    u128 kept = 0;
    bool half = false, rest = v.sticky;
    if (shift <= 0) {
        kept = v.significand << -shift;
    } else if (shift > 128) {
        rest |= v.significand != 0;
    } else {
        kept = shift == 128 ? 0 : v.significand >> shift;
        const u128 cut = shift == 128 ? v.significand : v.significand & ((u128{1} << shift) - 1);
        half = (cut >> (shift - 1) & 1) != 0;
        rest |= (cut & ((u128{1} << (shift - 1)) - 1)) != 0;
    }
    const bool up = mode == Round::nearest_even   ? half && (rest || (kept & 1) != 0)
                    : mode == Round::nearest_away ? half
                    : mode == Round::up           ? !v.negative && (half || rest)
                    : mode == Round::down         ? v.negative && (half || rest)
                                                  : false;
    return static_cast<u64>(kept + (up ? 1 : 0));
}

// `saturate`: overflow and infinity become the largest finite number. Formats without infinity always do.
[[nodiscard]] constexpr u64 encode(const Value& v, const Format& f, Round mode, bool saturate = false) {
    const u64 sign = v.negative ? f.sign_bit() : 0;
    if (v.kind == Value::Kind::nan) return f.nan;
    saturate |= !f.has_infinity;
    if (v.kind == Value::Kind::infinite) return sign | (saturate ? f.largest() : f.infinity());
    if (v.significand == 0 && !v.sticky) return sign;
    const int lowest = 1 - f.bias - f.mantissa_bits;  // exponent of the last place of subnormals
    const int natural = v.significand == 0 ? lowest : top_bit(v.significand) + v.exponent - f.mantissa_bits;
    const int lsb = natural < lowest ? lowest : natural;
    const u64 infinite = f.has_infinity ? f.infinity() : f.nan;
    u64 code = infinite;
    if (lsb + f.mantissa_bits + f.bias <= (1 << f.exponent_bits)) {
        // Subnormals have exponent field 0 and the same last place as field 1; a carry out of the mantissa
        // lands in the exponent field, as it should.
        const u64 kept = round_to_integer(v, lsb, mode);
        const u64 field = static_cast<u64>(lsb - lowest);
        code = (field << f.mantissa_bits) + kept;
        if (code > infinite) code = infinite;
    }
    if (code < infinite) return sign | code;
    const bool toward_zero =
        mode == Round::zero || (mode == Round::up && v.negative) || (mode == Round::down && !v.negative);
    return sign | (saturate || toward_zero ? f.largest() : f.infinity());
}

// ---- arithmetic: exact but for the sticky bit
// ---------------------------------------------------------------------------

[[nodiscard]] constexpr Value nan() {
    return {.kind = Value::Kind::nan};
}

[[nodiscard]] constexpr Value negated(Value v) {
    v.negative = !v.negative;
    return v;
}

[[nodiscard]] constexpr Value mul(const Value& a, const Value& b) {
    using Kind = Value::Kind;
    Value r;
    r.negative = a.negative != b.negative;
    if (a.kind == Kind::nan || b.kind == Kind::nan) return nan();
    if (a.kind == Kind::infinite || b.kind == Kind::infinite) {
        if (a.zero() || b.zero()) return nan();
        r.kind = Kind::infinite;
        return r;
    }
    r.significand = a.significand * b.significand;
    r.exponent = a.exponent + b.exponent;
    return r;
}

// Moves the highest bit to position 125, so that two values can be added without overflow.
[[nodiscard]] constexpr Value raised(Value v) {
    const int shift = 125 - top_bit(v.significand);
    v.significand <<= shift;
    v.exponent -= shift;
    return v;
}

// Operands must have at most 106 significant bits and no sticky bit. What falls off the smaller one goes into
// the sticky bit; that happens only when the exponents lie so far apart that at most one leading bit can
// cancel.
[[nodiscard]] constexpr Value add(const Value& a, const Value& b, Round mode) {
    using Kind = Value::Kind;
    if (a.kind == Kind::nan || b.kind == Kind::nan) return nan();
    if (a.kind == Kind::infinite) return b.kind == Kind::infinite && a.negative != b.negative ? nan() : a;
    if (b.kind == Kind::infinite) return b;
    if (a.zero() && b.zero()) {
        Value r = a;
        if (a.negative != b.negative) r.negative = mode == Round::down;
        return r;
    }
    if (a.zero()) return b;
    if (b.zero()) return a;
    Value big = raised(a), small = raised(b);
    if (big.exponent < small.exponent ||
        (big.exponent == small.exponent && big.significand < small.significand)) {
        const Value t = big;
        big = small, small = t;
    }
    const int shift = big.exponent - small.exponent;
    const bool lost = shift >= 128 || (shift > 0 && (small.significand & ((u128{1} << shift) - 1)) != 0);
    const u128 moved = shift >= 128 ? 0 : small.significand >> shift;
    Value r = big;
    r.sticky = lost;
    if (a.negative == b.negative) {
        r.significand = big.significand + moved;
    } else {
        // big - (moved + something below one) = (big - moved - 1) + something below one
        r.significand = big.significand - moved - (lost ? 1 : 0);
        if (r.significand == 0 && !lost) r.negative = mode == Round::down, r.exponent = 0;
    }
    return r;
}

[[nodiscard]] constexpr Value div(const Value& a, const Value& b) {
    using Kind = Value::Kind;
    Value r;
    r.negative = a.negative != b.negative;
    if (a.kind == Kind::nan || b.kind == Kind::nan) return nan();
    if (a.kind == Kind::infinite) {
        if (b.kind == Kind::infinite) return nan();
        r.kind = Kind::infinite;
        return r;
    }
    if (b.kind == Kind::infinite) return r;
    if (b.zero()) {
        if (a.zero()) return nan();
        r.kind = Kind::infinite;
        return r;
    }
    if (a.zero()) return r;
    const Value n = raised(a);  // at least 125 - 53 quotient bits
    r.significand = n.significand / b.significand;
    r.sticky = n.significand % b.significand != 0;
    r.exponent = n.exponent - b.exponent;
    return r;
}

[[nodiscard]] constexpr Value sqrt(const Value& a) {
    using Kind = Value::Kind;
    if (a.kind == Kind::nan || a.zero()) return a;
    if (a.negative) return nan();
    if (a.kind == Kind::infinite) return a;
    Value n = raised(a);
    if ((n.exponent & 1) != 0) n.significand >>= 1, n.exponent += 1;  // raised significands have zeros below
    u128 root = 0, rest = n.significand;
    for (u128 bit = u128{1} << 124; bit != 0; bit >>= 2) {
        if (rest >= root + bit) {
            rest -= root + bit;
            root = (root >> 1) + bit;
        } else {
            root >>= 1;
        }
    }
    Value r;
    r.significand = root;
    r.sticky = rest != 0;
    r.exponent = n.exponent / 2;
    return r;
}

static_assert(encode(decode(0x3f800001, kF32), kBf16, Round::nearest_even) == 0x3f80);
static_assert(encode(decode(0x3f800001, kF32), kBf16, Round::up) == 0x3f81);
static_assert(encode(decode(0x43e80001, kF32), kE4m3, Round::nearest_even) == 0x7e,
              "464 and more saturate to 448");
static_assert(encode(decode(0x1, kF16), kF32, Round::nearest_even) == 0x33800000, "2^-24");
static_assert(encode(add(decode(0x3f800000, kF32), decode(0xbf800000, kF32), Round::down), kF32,
                     Round::down) == 0x80000000);
static_assert(encode(sqrt(decode(0x40000000, kF32)), kF32, Round::nearest_even) == 0x3fb504f3);
static_assert(encode(div(decode(0x3f800000, kF32), decode(0x40400000, kF32)), kF32, Round::nearest_even) ==
              0x3eaaaaab);

}  // namespace emu::exact
