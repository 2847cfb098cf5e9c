// cvt between integers, floats and packed formats. units/formats.hpp rounds; here a register's bits become a
// value and back.
#include <algorithm>
#include <cmath>
#include <limits>

#include "exec/lanes.hpp"
#include "units/arithmetic.hpp"
#include "units/exact.hpp"
#include "units/formats.hpp"

namespace emu {
namespace {

Round rounding(const Choice& c) {
    switch (c.one_of({Mod::rz, Mod::rm, Mod::rp, Mod::rzi, Mod::rmi, Mod::rpi, Mod::rna}, Mod::rn)) {
        case Mod::rz:
        case Mod::rzi:
            return Round::zero;
        case Mod::rm:
        case Mod::rmi:
            return Round::down;
        case Mod::rp:
        case Mod::rpi:
            return Round::up;
        case Mod::rna:
            return Round::away;
        default:
            return Round::even;
    }
}
exact::Round exact_round(Round r) {
    constexpr exact::Round table[] = {exact::Round::nearest_even, exact::Round::zero, exact::Round::down,
                                      exact::Round::up, exact::Round::nearest_away};
    return table[static_cast<int>(r)];
}

// aux of the float conversions.
constexpr u64 kFtz = 8, kSat = 16, kSatfinite = 32, kRelu = 64, kRoundIntegral = 128;  // bits 0-2: Round
u64 pack(const Choice& c) {
    return static_cast<u64>(rounding(c)) | (c.has(Mod::ftz) ? kFtz : u64{0}) |
           (c.has(Mod::sat) ? kSat : u64{0}) | (c.has(Mod::satfinite) ? kSatfinite : u64{0}) |
           (c.has(Mod::relu) ? kRelu : u64{0}) |
           (c.one_of({Mod::rni, Mod::rzi, Mod::rmi, Mod::rpi}) != Mod::none ? kRoundIntegral : u64{0});
}
Round round_of(u64 aux) {
    return static_cast<Round>(aux & 7);
}
Narrowing narrowing(u64 aux) {
    return {round_of(aux), (aux & kSatfinite) != 0, (aux & kRelu) != 0};
}

// Stores `v` into a register of any width, sign- or zero-extended as it comes.
void put(Warp& w, const Operand& o, int lane, u64 v) {
    if (o.bits == 64)
        w.out<u64>(o)[lane] = v;
    else
        w.out<u32>(o)[lane] = static_cast<u32>(o.bits == 16 ? v & 0xffff : v);
}

// ---- integer to integer
// ------------------------------------------------------------------------------------------------------

// The source is extended by its own type, cut to the destination's width, and extended again to the
// register's.
template <class S, class SL, class DL>
Step int_to_int(Warp& w, const Instruction& i, u32 mask) {
    const SL* a = w.in<SL>(i.op[1]);
    const int cut = static_cast<int>(i.aux & 0xff);  // 64 - destination bits
    const DL keep = i.op[0].bits == 16 ? DL{0xffff} : ~DL{0};
    if ((i.aux & 0x100) != 0)
        each_lane(w.out<DL>(i.op[0]), mask, [=](int l) {
            return static_cast<DL>(static_cast<s64>(static_cast<u64>(static_cast<S>(a[l])) << cut) >> cut) &
                   keep;
        });
    else
        each_lane(w.out<DL>(i.op[0]), mask, [=](int l) {
            return static_cast<DL>((static_cast<u64>(static_cast<S>(a[l])) << cut) >> cut) & keep;
        });
    return Step::next;
}
template <class S>
Step int_to_int_sat(Warp& w, const Instruction& i, u32 mask) {
    const int bits = 64 - static_cast<int>(i.aux & 0xff);
    const bool sign = (i.aux & 0x100) != 0;
    const s128 low = sign ? -(s128{1} << (bits - 1)) : 0,
               high = sign ? (s128{1} << (bits - 1)) - 1 : (s128{1} << bits) - 1;
    for (int l = 0; l < 32; ++l)
        if (mask >> l & 1)
            put(w, i.op[0], l,
                static_cast<u64>(std::clamp<s128>(static_cast<S>(w.value(i.op[1], l)), low, high)));
    return Step::next;
}

// ---- values of any float type
// -------------------------------------------------------------------------------------------------

double read(Type type, u64 bits, bool ftz) {
    switch (type) {
        case Type::f16:
            return widen<kF16>(static_cast<u32>(bits) & 0xffff);
        case Type::bf16:
            return widen<kBF16>(static_cast<u32>(bits) & 0xffff);
        case Type::f32:
            return flush(std::bit_cast<float>(static_cast<u32>(bits)), ftz);
        default:
            return std::bit_cast<double>(bits);
    }
}
u64 write(Type type, double x, u64 aux) {
    if ((aux & kSat) != 0) x = saturate_unit(x);
    switch (type) {
        case Type::f16:
            return narrow<kF16>(x, narrowing(aux));
        case Type::bf16:
            return narrow<kBF16>(x, narrowing(aux));
        case Type::tf32:
            return narrow<kTF32>(x, narrowing(aux));
        case Type::f32:
            return std::bit_cast<u32>(
                flush(std::bit_cast<float>(narrow<kF32>(x, narrowing(aux))), (aux & kFtz) != 0));
        default:
            return x != x ? 0x7fffffffffffffffull : std::bit_cast<u64>(x);
    }
}

// Conversions from and to f64 keep a NaN's sign and the upper bits of its payload, quieted, as the H200 was
// seen to do.
constexpr int mantissa_bits(Type t) {
    return t == Type::f16 ? 10 : t == Type::bf16 ? 7 : t == Type::f32 ? 23 : 52;
}
constexpr int width_of(Type t) {
    return t == Type::f16 || t == Type::bf16 ? 16 : t == Type::f32 ? 32 : 64;
}
template <Type To, Type From>
u64 convert_nan(u64 bits) {
    constexpr int from = mantissa_bits(From), to = mantissa_bits(To);
    const u64 payload = bits & ((u64{1} << from) - 1);
    const u64 moved = to >= from ? payload << (to - from) : payload >> (from - to);
    const u64 exponent = ((u64{1} << (width_of(To) - 1)) - 1) & ~((u64{1} << to) - 1);
    return (bits >> (width_of(From) - 1) & 1) << (width_of(To) - 1) | exponent | u64{1} << (to - 1) | moved;
}

template <Type To, Type From>
Step float_to_float(Warp& w, const Instruction& i, u32 mask) {
    constexpr bool keeps_nan = To == Type::f64 || From == Type::f64;
    const bool ftz =
        (i.aux & kFtz) != 0 && To != Type::f16;  // subnormal sources count in f16's directed roundings
    for (int l = 0; l < 32; ++l) {
        if ((mask >> l & 1) == 0) continue;
        const u64 bits = w.value(i.op[1], l);
        double x = read(From, bits, ftz);
        if ((i.aux & kRoundIntegral) != 0) x = round_integral(x, round_of(i.aux));
        if (To == Type::tf32 && x != x && round_of(i.aux) == Round::away) {  // rna adds and cuts, even a NaN
            put(w, i.op[0], l, (bits & 0xffffe000) - ((i.aux & kSatfinite) != 0 ? 0x2000 : 0));
            continue;
        }
        const bool keep = keeps_nan && x != x && (i.aux & kSat) == 0;
        put(w, i.op[0], l, keep ? convert_nan<To, From>(bits) : write(To, x, i.aux));
    }
    return Step::next;
}
template <class S>
Step unchanged(Warp& w, const Instruction& i, u32 mask) {  // cvt.f32.f32 without a modifier is a move
    const S* a = w.in<S>(i.op[1]);
    each_lane(w.out<S>(i.op[0]), mask, [=](int l) { return a[l]; });
    return Step::next;
}
Step f32_from_bf16(Warp& w, const Instruction& i, u32 mask) {  // a shift, NaN and all
    const u32* a = w.in<u32>(i.op[1]);
    each_lane(w.out<u32>(i.op[0]), mask, [=](int l) { return a[l] << 16; });
    return Step::next;
}
template <Format From>  // f32 from 16 bits, the common widening
Step widening(Warp& w, const Instruction& i, u32 mask) {
    const u32* a = w.in<u32>(i.op[1]);
    each_lane(w.out<u32>(i.op[0]), mask,
              [=](int l) { return std::bit_cast<u32>(widen<From>(a[l] & 0xffff)); });
    return Step::next;
}
template <Format To>  // 16 bits from f32
Step narrowing_32(Warp& w, const Instruction& i, u32 mask) {
    const u32* a = w.in<u32>(i.op[1]);
    const Narrowing how = narrowing(i.aux);
    each_lane(w.out<u32>(i.op[0]), mask, [=](int l) { return narrow<To>(std::bit_cast<float>(a[l]), how); });
    return Step::next;
}

template <Type To>
Handler from_any(Type from) {
    switch (from) {
        case Type::f16:
            return float_to_float<To, Type::f16>;
        case Type::bf16:
            return float_to_float<To, Type::bf16>;
        case Type::f32:
            return float_to_float<To, Type::f32>;
        default:
            return float_to_float<To, Type::f64>;
    }
}
Handler any_to_any(Type to, Type from) {
    switch (to) {
        case Type::f16:
            return from_any<Type::f16>(from);
        case Type::bf16:
            return from_any<Type::bf16>(from);
        case Type::tf32:
            return from_any<Type::tf32>(from);
        case Type::f32:
            return from_any<Type::f32>(from);
        default:
            return from_any<Type::f64>(from);
    }
}

// ---- integers and floats
// --------------------------------------------------------------------------------------------------------

template <class S>
Step int_to_float(Warp& w, const Instruction& i, u32 mask) {
    const auto to = static_cast<Type>(i.target);
    const Round round = round_of(i.aux);
    for (int l = 0; l < 32; ++l) {
        if ((mask >> l & 1) == 0) continue;
        const S n = static_cast<S>(w.value(i.op[1], l));
        u64 bits = 0;
        switch (to) {
            case Type::f16:
                bits = from_integer<kF16>(n, round);
                break;
            case Type::bf16:
                bits = from_integer<kBF16>(n, round);
                break;
            case Type::f32:
                bits = from_integer<kF32>(n, round);
                break;
            default: {
                const bool negative = std::is_signed_v<S> && n < 0;
                const u64 magnitude = negative ? 0 - static_cast<u64>(n) : static_cast<u64>(n);
                bits =
                    exact::encode(exact::from_integer(negative, magnitude), exact::kF64, exact_round(round));
            }
        }
        if ((i.aux & kSat) != 0) bits = write(to, read(to, bits, false), i.aux);
        put(w, i.op[0], l, bits);
    }
    return Step::next;
}
template <class S, class D>  // nearest even, as the host converts
Step int_to_float_fast(Warp& w, const Instruction& i, u32 mask) {
    const auto* a = w.in<Lane<S>>(i.op[1]);
    each_lane(w.out<Lane<D>>(i.op[0]), mask,
              [=](int l) { return stored<D>(static_cast<D>(static_cast<S>(a[l]))); });
    return Step::next;
}

template <class D>
Step float_to_int(Warp& w, const Instruction& i, u32 mask) {
    const auto from = static_cast<Type>(i.target);
    for (int l = 0; l < 32; ++l) {
        if ((mask >> l & 1) == 0) continue;
        const u64 bits = w.value(i.op[1], l);
        const D n =
            from == Type::f64
                ? to_integer<D>(std::bit_cast<double>(bits), round_of(i.aux))
                : to_integer<D>(static_cast<float>(read(from, bits, (i.aux & kFtz) != 0)), round_of(i.aux));
        put(w, i.op[0], l, static_cast<u64>(n));
    }
    return Step::next;
}

// ---- packed formats
// ---------------------------------------------------------------------------------------------------------------

template <Format F, int Bits>  // two f32; the first goes to the high half
Step pair_from_f32(Warp& w, const Instruction& i, u32 mask) {
    const u32 *a = w.in<u32>(i.op[1]), *b = w.in<u32>(i.op[2]);
    const Narrowing how = narrowing(i.aux);
    each_lane(w.out<u32>(i.op[0]), mask, [=](int l) {
        return narrow<F>(std::bit_cast<float>(a[l]), how) << Bits |
               narrow<F>(std::bit_cast<float>(b[l]), how);
    });
    return Step::next;
}
// bf16 is the upper half of an f32: nearest even is an addition. NaN gives 0x7fff.
u32 upper_half(u32 bits) {
    const u32 rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (bits & 0x7fffffff) > 0x7f800000 ? 0x7fff : rounded;
}
Step bf16_pair(Warp& w, const Instruction& i, u32 mask) {
    const u32 *a = w.in<u32>(i.op[1]), *b = w.in<u32>(i.op[2]);
    each_lane(w.out<u32>(i.op[0]), mask, [=](int l) { return upper_half(a[l]) << 16 | upper_half(b[l]); });
    return Step::next;
}
template <Format F>
Step fp8_from_f16(Warp& w, const Instruction& i, u32 mask) {
    const u32* a = w.in<u32>(i.op[1]);
    const Narrowing how = narrowing(i.aux);
    each_lane(w.out<u32>(i.op[0]), mask, [=](int l) {
        return narrow<F>(widen<kF16>(a[l] >> 16), how) << 8 | narrow<F>(widen<kF16>(a[l] & 0xffff), how);
    });
    return Step::next;
}
template <Format F>
Step f16_from_fp8(Warp& w, const Instruction& i, u32 mask) {
    static const auto table = [] {
        std::array<u16, 256> t{};
        for (u32 code = 0; code < 256; ++code)
            t[code] = static_cast<u16>(fp8_to_f16<F>(code));
        return t;
    }();
    const u32* a = w.in<u32>(i.op[1]);
    const bool relu = (i.aux & kRelu) != 0;
    const auto half = [relu](u32 code) -> u32 {
        const u32 v = table[code & 0xff];
        return relu && v > 0x8000 && v <= 0xfc00 ? 0 : relu && v == 0x8000 ? 0 : v;
    };
    each_lane(w.out<u32>(i.op[0]), mask, [=](int l) { return half(a[l] >> 8) << 16 | half(a[l]); });
    return Step::next;
}

// cvt.pack: two s32 saturated and packed, above the low bits of c where the result has room left.
Step pack_ints(Warp& w, const Instruction& i, u32 mask) {
    const int bits = static_cast<int>(i.aux & 0xff);
    const bool sign = (i.aux & 0x100) != 0, shift_in = (i.aux & 0x200) != 0;
    const s64 low = sign ? -(1ll << (bits - 1)) : 0,
              high = sign ? (1ll << (bits - 1)) - 1 : (1ll << bits) - 1;
    const u32 *a = w.in<u32>(i.op[1]), *b = w.in<u32>(i.op[2]), *c = shift_in ? w.in<u32>(i.op[3]) : nullptr;
    const u32 field = (1u << bits) - 1;
    each_lane(w.out<u32>(i.op[0]), mask, [=](int l) {
        const u32 x = static_cast<u32>(std::clamp<s64>(static_cast<s32>(a[l]), low, high)) & field;
        const u32 y = static_cast<u32>(std::clamp<s64>(static_cast<s32>(b[l]), low, high)) & field;
        return x << bits | y | (shift_in ? c[l] << (2 * bits) : 0);
    });
    return Step::next;
}

}  // namespace

void select_cvt_int(const Choice& c, Instruction& i) {
    const Type to = c.type(0), from = c.type(1);
    i.aux = static_cast<u64>(64 - bits_of(to)) | (is_signed(to) ? 0x100u : 0u);
    // Saturation is legal only where it can happen.
    const bool covers = is_signed(from) ? is_signed(to) && bits_of(to) >= bits_of(from)
                                        : bits_of(to) - is_signed(to) >= bits_of(from);
    if (c.has(Mod::sat) && covers) throw SelectError(".sat where every value fits", true);
    const bool source64 = i.op[1].bits == 64, dest64 = i.op[0].bits == 64;
    i.run = for_integer(from, [&]<class S>() -> Handler {
        if (c.has(Mod::sat)) return int_to_int_sat<S>;
        return source64 ? (dest64 ? int_to_int<S, u64, u64> : int_to_int<S, u64, u32>)
                        : (dest64 ? int_to_int<S, u32, u64> : int_to_int<S, u32, u32>);
    });
}
void select_cvt_from_int(const Choice& c, Instruction& i) {
    const Type to = c.type(0), from = c.type(1);
    i.aux = pack(c);
    i.target = static_cast<u32>(to);
    const bool plain = round_of(i.aux) == Round::even && !c.has(Mod::sat) &&
                       (to == Type::f32 || to == Type::f64) && i.op[1].bits == bits_of(from);
    if (plain && from == Type::s32)
        i.run = to == Type::f32 ? Handler{int_to_float_fast<s32, float>}
                                : Handler{int_to_float_fast<s32, double>};
    else if (plain && from == Type::u32)
        i.run = to == Type::f32 ? Handler{int_to_float_fast<u32, float>}
                                : Handler{int_to_float_fast<u32, double>};
    else
        i.run = for_integer(from, []<class S>() -> Handler { return int_to_float<S>; });
}
void select_cvt_to_int(const Choice& c, Instruction& i) {
    i.aux = pack(c);
    i.target = static_cast<u32>(c.type(1));
    i.run = for_integer(c.type(0), []<class D>() -> Handler { return float_to_int<D>; });
}
void select_cvt_round(const Choice& c, Instruction& i) {
    const Type type = c.type(0);
    i.aux = pack(c);
    const bool plain =
        (i.aux & (kRoundIntegral | kSat | kFtz)) == 0 && type != Type::f16 && type != Type::bf16;
    i.run = !plain ? any_to_any(type, c.type(1)) : type == Type::f64 ? unchanged<u64> : unchanged<u32>;
}
void select_cvt_float(const Choice& c, Instruction& i) {
    const Type to = c.type(0), from = c.type(1);
    i.aux = pack(c);
    const bool plain = (i.aux & (kSat | kFtz)) == 0;
    if (plain && to == Type::f32 && from == Type::f16)
        i.run = widening<kF16>;
    else if (plain && to == Type::f32 && from == Type::bf16)
        i.run = f32_from_bf16;
    else if (plain && to == Type::f16 && from == Type::f32)
        i.run = narrowing_32<kF16>;
    else if (plain && to == Type::bf16 && from == Type::f32)
        i.run = narrowing_32<kBF16>;
    else
        i.run = any_to_any(to, from);
}
void select_cvt_pair(const Choice& c, Instruction& i) {
    i.aux = pack(c);
    const bool plain = i.aux == static_cast<u64>(Round::even);
    if (c.type(0) == Type::f16x2)
        i.run = pair_from_f32<kF16, 16>;
    else
        i.run = plain ? bf16_pair : pair_from_f32<kBF16, 16>;
}
void select_cvt_fp8(const Choice& c, Instruction& i) {
    i.aux = pack(c);
    const Type to = c.type(0), from = c.type(1);
    if (to == Type::f16x2)
        i.run = from == Type::e4m3x2 ? f16_from_fp8<kE4M3> : f16_from_fp8<kE5M2>;
    else if (from == Type::f32)
        i.run = to == Type::e4m3x2 ? pair_from_f32<kE4M3, 8> : pair_from_f32<kE5M2, 8>;
    else
        i.run = to == Type::e4m3x2 ? fp8_from_f16<kE4M3> : fp8_from_f16<kE5M2>;
}
void select_cvt_pack(const Choice& c, Instruction& i) {
    const Type to = c.type(0);
    const bool sign = is_signed(to) || to == Type::s4 || to == Type::s2;
    i.aux = static_cast<u64>(bits_of(to)) | (sign ? 0x100u : 0u) | (i.count == 4 ? 0x200u : 0u);
    i.run = pack_ints;
}

}  // namespace emu
