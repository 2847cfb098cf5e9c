// f16, bf16 and their packed pairs, and what is the same for all float formats: signs, minimum, maximum.
// Operands are codes; every result is rounded once from the exact value.
#include <cmath>

#include "exec/lanes.hpp"
#include "units/approx.hpp"
#include "units/arithmetic.hpp"

namespace emu {
namespace {

// Subnormal codes of F become zeros.
template <Format F>
u16 flushed(u32 code) {
    const u32 magnitude = code & ((1u << F.sign_shift()) - 1);
    return static_cast<u16>(magnitude >> F.mantissa_bits == 0 ? code & (1u << F.sign_shift()) : code);
}
// What .ftz, .sat and .relu do around an operation.
struct Around {
    bool ftz, sat, relu;
};
template <Format F>
u16 finish(double to_odd, Around how) {
    if (how.sat) to_odd = saturate_unit(to_odd);
    const u32 code = narrow<F>(to_odd, {.relu = how.relu});
    return how.ftz ? flushed<F>(code) : static_cast<u16>(code);
}
template <Format F>
float start(u16 code, Around how) {
    return widen<F>(how.ftz ? flushed<F>(code) : code);
}

enum class Op : u8 { add, sub, mul, fma };

template <Format F, Op O>
u16 one(const u16* x, Around how) {
    const float a = start<F>(x[0], how), b = start<F>(x[1], how);
    if constexpr (O == Op::add)
        return finish<F>(add_to_odd(a, b), how);
    else if constexpr (O == Op::sub)
        return finish<F>(add_to_odd(a, -static_cast<double>(b)), how);
    else if constexpr (O == Op::mul)
        return finish<F>(static_cast<double>(a) * b, how);
    else
        return finish<F>(add_to_odd(double{a} * double{b}, start<F>(x[2], how)), how);
}

// The two NaNs with which a tensor copy fills what lies outside of a tensor: .oob makes their products zero.
bool is_oob(u16 code) {
    return (code & 0x7fff) == 0x7ff7;
}
// aux: bit 0 ftz, 1 sat, 2 relu, 3 oob
Around around(u64 aux) {
    return {(aux & 1) != 0, (aux & 2) != 0, (aux & 4) != 0};
}

template <Format F, Op O, bool Pair>
Step arithmetic(Warp& w, const Instruction& i, u32 mask) {
    constexpr int n = O == Op::fma ? 3 : 2;
    const Around how = around(i.aux);
    const bool oob = (i.aux & 8) != 0;
    const u32* in[3] = {w.in<u32>(i.op[1]), w.in<u32>(i.op[2]), n == 3 ? w.in<u32>(i.op[3]) : nullptr};
    each_lane(w.out<u32>(i.op[0]), mask, [&](int l) {
        u16 low[3], high[3];
        for (int k = 0; k < n; ++k)
            low[k] = static_cast<u16>(in[k][l]), high[k] = static_cast<u16>(in[k][l] >> 16);
        const auto value = [&](const u16* x) {
            return oob && (is_oob(x[0]) || is_oob(x[1])) ? u16{0} : one<F, O>(x, how);
        };
        u32 r = value(low);
        if constexpr (Pair) r |= static_cast<u32>(value(high)) << 16;
        return r;
    });
    return Step::next;
}

template <Op O>
void choose(const Choice& c, Instruction& i) {
    i.aux = (c.has(Mod::ftz) ? 1u : 0u) | (c.has(Mod::sat) ? 2u : 0u) | (c.has(Mod::relu) ? 4u : 0u) |
            (c.has(Mod::oob) ? 8u : 0u);
    switch (c.type(0)) {
        case Type::f16:
            i.run = arithmetic<kF16, O, false>;
            break;
        case Type::f16x2:
            i.run = arithmetic<kF16, O, true>;
            break;
        case Type::bf16:
            i.run = arithmetic<kBF16, O, false>;
            break;
        default:
            i.run = arithmetic<kBF16, O, true>;
            break;
    }
}

// ---- ex2 and tanh: by way of f32, whose error is far below the format's
// ---------------------------------------------------------

template <Format F, float (*Function)(float)>
struct Via {
    static u16 apply(u16 a) { return static_cast<u16>(narrow<F>(Function(widen<F>(a)))); }
};
float ex2(float x) {
    return ex2_approx(x, false);
}
float ex2_ftz(float x) {
    return ex2_approx(x, true);
}
float tanh_of(float x) {
    return tanh_approx(x);
}

template <float (*Function)(float)>
Handler via(Type type) {
    switch (type) {
        case Type::f16:
            return unary<u16, u16, Via<kF16, Function>>;
        case Type::f16x2:
            return unary<u32, u32, Halves<Via<kF16, Function>>>;
        case Type::bf16:
            return unary<u16, u16, Via<kBF16, Function>>;
        default:
            return unary<u32, u32, Halves<Via<kBF16, Function>>>;
    }
}

// ---- signs
// ------------------------------------------------------------------------------------------------------------------

template <class T>
constexpr T kTop = static_cast<T>(T{1} << (8 * sizeof(T) - 1));

// Infinity of the format; magnitudes above it are NaN, which becomes the canonical one, except that f64 keeps
// its bits, quieted.
template <bool Negate, bool Ftz, u64 Infinity, u64 Smallest>  // Smallest: the smallest normal magnitude
struct Sign {
    template <class T>
    static T apply(T x) {
        const T magnitude = x & ~kTop<T>;
        if (magnitude > T(Infinity))
            return sizeof(T) == 8 ? static_cast<T>(x | u64{1} << 51) : static_cast<T>(kTop<T> - 1);
        if (Ftz && magnitude < T(Smallest)) x &= kTop<T>;
        return static_cast<T>(Negate ? x ^ kTop<T> : x & ~kTop<T>);
    }
};
template <bool Negate, bool Ftz>
Handler sign_of(Type type) {
    using Half = Sign<Negate, Ftz, 0x7c00, 0x0400>;
    using Brain = Sign<Negate, Ftz, 0x7f80, 0x0080>;
    switch (type) {
        case Type::f16:
            return unary<u16, u16, Half>;
        case Type::f16x2:
            return unary<u32, u32, Halves<Half>>;
        case Type::bf16:
            return unary<u16, u16, Brain>;
        case Type::bf16x2:
            return unary<u32, u32, Halves<Brain>>;
        case Type::f64:
            return unary<u64, u64, Sign<Negate, false, u64{0x7ff} << 52, 0>>;
        default:
            return unary<u32, u32, Sign<Negate, Ftz, 0x7f800000, 0x00800000>>;
    }
}

// ---- minimum and maximum
// ----------------------------------------------------------------------------------------------------

MinMaxRule rule_of(u64 aux) {
    return {(aux & 1) != 0, (aux & 2) != 0, (aux & 4) != 0};
}

template <Format F>
u32 extremum(u32 a, u32 b, u64 aux) {
    if ((aux & 8) != 0) {
        const auto flush_code = [](u32 x) {
            const u32 top = 1u << F.sign_shift();
            return (x & (top - 1)) >> F.mantissa_bits == 0 ? x & top : x;
        };
        a = flush_code(a), b = flush_code(b);
    }
    return min_max<F>(a, b, rule_of(aux));
}
template <Format F, bool Pair>
Step minmax(Warp& w, const Instruction& i, u32 mask) {
    const u32 *a = w.in<u32>(i.op[1]), *b = w.in<u32>(i.op[2]);
    each_lane(w.out<u32>(i.op[0]), mask, [&](int l) {
        if constexpr (!Pair) {
            constexpr u32 all = F.sign_shift() == 31 ? ~0u : (2u << F.sign_shift()) - 1;
            return extremum<F>(a[l] & all, b[l] & all, i.aux);
        } else {
            return extremum<F>(a[l] & 0xffff, b[l] & 0xffff, i.aux) |
                   extremum<F>(a[l] >> 16, b[l] >> 16, i.aux) << 16;
        }
    });
    return Step::next;
}
Step minmax64(Warp& w, const Instruction& i, u32 mask) {
    const u64 *a = w.in<u64>(i.op[1]), *b = w.in<u64>(i.op[2]);
    each_lane(w.out<u64>(i.op[0]), mask, [&](int l) {
        constexpr u64 magnitude = ~u64{0} >> 1, infinity = 0x7ffull << 52;
        const bool a_nan = (a[l] & magnitude) > infinity, b_nan = (b[l] & magnitude) > infinity;
        if (a_nan || b_nan) return a_nan && b_nan ? b[l] | u64{1} << 51 : a_nan ? b[l] : a[l];
        const auto key = [](u64 x) {
            return static_cast<s64>(x) < 0 ? static_cast<s64>(~x | u64{1} << 63) : static_cast<s64>(x);
        };
        return (key(a[l]) > key(b[l])) == ((i.aux & 1) != 0) ? a[l] : b[l];
    });
    return Step::next;
}

}  // namespace

void select_half_add(const Choice& c, Instruction& i) {
    c.opcode == "add" ? choose<Op::add>(c, i) : choose<Op::sub>(c, i);
}
void select_half_mul(const Choice& c, Instruction& i) {
    choose<Op::mul>(c, i);
}
void select_half_fma(const Choice& c, Instruction& i) {
    choose<Op::fma>(c, i);
}
void select_half_approx(const Choice& c, Instruction& i) {
    i.run = c.opcode == "tanh" ? via<tanh_of>(c.type(0))
            : c.has(Mod::ftz)  ? via<ex2_ftz>(c.type(0))
                               : via<ex2>(c.type(0));
}
void select_float_sign(const Choice& c, Instruction& i) {
    const bool ftz = c.has(Mod::ftz);
    if (c.opcode == "neg")
        i.run = ftz ? sign_of<true, true>(c.type(0)) : sign_of<true, false>(c.type(0));
    else
        i.run = ftz ? sign_of<false, true>(c.type(0)) : sign_of<false, false>(c.type(0));
}
void select_float_minmax(const Choice& c, Instruction& i) {
    i.aux = (c.opcode == "max" ? 1u : 0u) | (c.has(Mod::NaN) ? 2u : 0u) | (c.has(Mod::xorsign) ? 4u : 0u) |
            (c.has(Mod::ftz) ? 8u : 0u);
    switch (c.type(0)) {
        case Type::f16:
            i.run = minmax<kF16, false>;
            break;
        case Type::f16x2:
            i.run = minmax<kF16, true>;
            break;
        case Type::bf16:
            i.run = minmax<kBF16, false>;
            break;
        case Type::bf16x2:
            i.run = minmax<kBF16, true>;
            break;
        case Type::f64:
            i.run = minmax64;
            break;
        default:
            i.run = minmax<kF32, false>;
            break;
    }
}

}  // namespace emu
