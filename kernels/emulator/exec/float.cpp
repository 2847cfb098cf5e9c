// f32 and f64 arithmetic. Nearest-even f32 without .sat has a fast path on the host's own operators; every
// other rounding goes through units/arithmetic.hpp (f32) or units/exact.hpp (f64).
#include <cmath>

#include "exec/lanes.hpp"
#include "units/approx.hpp"
#include "units/arithmetic.hpp"
#include "units/exact.hpp"

namespace emu {
namespace {

Round rounding(const Choice& c) {
    switch (c.one_of({Mod::rz, Mod::rm, Mod::rp}, Mod::rn)) {
        case Mod::rz:
            return Round::zero;
        case Mod::rm:
            return Round::down;
        case Mod::rp:
            return Round::up;
        default:
            return Round::even;
    }
}
constexpr exact::Round exact_round(Round r) {
    return r == Round::zero   ? exact::Round::zero
           : r == Round::down ? exact::Round::down
           : r == Round::up   ? exact::Round::up
                              : exact::Round::nearest_even;
}
// FloatRule in aux: bits 0-2 rounding, 3 ftz, 4 sat; bit 5 subtracts.
u64 pack_rule(const Choice& c) {
    return static_cast<u64>(rounding(c)) | (c.has(Mod::ftz) ? 8u : 0u) | (c.has(Mod::sat) ? 16u : 0u) |
           (c.opcode == "sub" ? 32u : 0u);
}
FloatRule rule_of(u64 aux) {
    return {static_cast<Round>(aux & 7), (aux & 8) != 0, (aux & 16) != 0};
}

template <bool Ftz>
float fl(float x) {
    return flush(x, Ftz);
}
float canon(float x) {
    return x != x ? std::bit_cast<float>(0x7fffffffu) : x;
}

// f64 keeps NaN payloads, as the H200 was seen to do: one NaN operand, quieted, and 0xfff8… for an invalid
// operation. Of several NaNs, add and mul take the second, fma the second, then the third, div the first.
constexpr u64 kQuiet = u64{1} << 51, kInvalid64 = 0xfff8000000000000ull;
bool is_nan64(u64 x) {
    return (x & ~(u64{1} << 63)) > (u64{0x7ff} << 52);
}
template <class... Operands>
u64 nan64(Operands... operands) {
    u64 result = kInvalid64;
    for (const u64 x : {operands...})
        if (is_nan64(x)) result = x | kQuiet;
    return result;
}
template <class... Operands>
double canon64(double x, Operands... operands) {
    return x != x ? std::bit_cast<double>(nan64(std::bit_cast<u64>(operands)...)) : x;
}

template <bool Ftz>
struct FastAdd {
    static float apply(float a, float b) { return fl<Ftz>(canon(fl<Ftz>(a) + fl<Ftz>(b))); }
};
template <bool Ftz>
struct FastSub {
    static float apply(float a, float b) { return fl<Ftz>(canon(fl<Ftz>(a) - fl<Ftz>(b))); }
};
template <bool Ftz>
struct FastMul {
    static float apply(float a, float b) { return fl<Ftz>(canon(fl<Ftz>(a) * fl<Ftz>(b))); }
};
template <bool Ftz>
struct FastFma {  // the sum rounds to odd in double, so that the cast rounds once
    static float apply(float a, float b, float c) {
        return fl<Ftz>(
            canon(static_cast<float>(add_to_odd(double{fl<Ftz>(a)} * double{fl<Ftz>(b)}, fl<Ftz>(c)))));
    }
};
template <bool Ftz>
struct FastDiv {
    static float apply(float a, float b) { return fl<Ftz>(canon(fl<Ftz>(a) / fl<Ftz>(b))); }
};
template <bool Ftz>
struct FastRcp {
    static float apply(float a) { return FastDiv<Ftz>::apply(1.0f, a); }
};
template <bool Ftz>
struct FastSqrt {
    static float apply(float a) { return fl<Ftz>(canon(std::sqrt(fl<Ftz>(a)))); }
};
struct Add64 {
    static double apply(double a, double b) { return canon64(a + b, a, b); }
};
struct Sub64 {
    static double apply(double a, double b) { return canon64(a - b, a, b); }
};
struct Mul64 {
    static double apply(double a, double b) { return canon64(a * b, a, b); }
};
struct Fma64 {
    static double apply(double a, double b, double c) { return canon64(std::fma(a, b, c), a, c, b); }
};
struct Div64 {
    static double apply(double a, double b) { return canon64(a / b, b, a); }
};
struct Rcp64 {
    static double apply(double a) { return canon64(1.0 / a, a); }
};
struct Sqrt64 {
    static double apply(double a) { return canon64(std::sqrt(a), a); }
};

// ---- any rounding
// --------------------------------------------------------------------------------------------------------

enum class Op : u8 { add, mul, fma, div, rcp, sqrt };

template <Op O>
constexpr int kOperands = O == Op::fma                    ? 3
                          : O == Op::rcp || O == Op::sqrt ? 1
                                                          : 2;

template <Op O>
float in_f32(const float* x, FloatRule r) {
    if constexpr (O == Op::add)
        return add_f32(x[0], x[1], r);
    else if constexpr (O == Op::mul)
        return mul_f32(x[0], x[1], r);
    else if constexpr (O == Op::fma)
        return fma_f32(x[0], x[1], x[2], r);
    else if constexpr (O == Op::div)
        return div_f32(x[0], x[1], r);
    else if constexpr (O == Op::rcp)
        return div_f32(1.0f, x[0], r);
    else
        return sqrt_f32(x[0], r);
}

template <Op O>
u64 in_f64(const u64* x, exact::Round round) {
    using namespace exact;
    const Value a = decode(x[0], exact::kF64);
    const auto other = [&](int n) { return decode(x[n], exact::kF64); };
    Value r;
    if constexpr (O == Op::add)
        r = exact::add(a, other(1), round);
    else if constexpr (O == Op::mul)
        r = exact::mul(a, other(1));
    else if constexpr (O == Op::fma)
        r = exact::add(exact::mul(a, other(1)), other(2), round);
    else if constexpr (O == Op::div)
        r = exact::div(a, other(1));
    else if constexpr (O == Op::rcp)
        r = exact::div(from_integer(false, 1), a);
    else
        r = exact::sqrt(a);
    if (r.kind == Value::Kind::nan)
        return kOperands<O> == 3   ? nan64(x[0], x[2], x[1])
               : kOperands<O> == 2 ? (O == Op::div ? nan64(x[1], x[0]) : nan64(x[0], x[1]))
                                   : nan64(x[0]);
    return encode(r, exact::kF64, round);
}

template <Op O>
Step rounded_f32(Warp& w, const Instruction& i, u32 mask) {
    const FloatRule rule = rule_of(i.aux);
    const bool subtract = (i.aux & 32) != 0;
    each_lane(w.out<u32>(i.op[0]), mask, [&](int l) {
        float x[3];
        for (int k = 0; k < kOperands<O>; ++k)
            x[k] = std::bit_cast<float>(w.in<u32>(i.op[k + 1])[l]);
        if (subtract) x[1] = -x[1];
        if constexpr (O ==
                      Op::div)  // a quotient below the normal numbers is flushed before it is rounded away
            if (const FloatRule cut{Round::zero, true}; rule.ftz && in_f32<O>(x, cut) == 0)
                return std::bit_cast<u32>(in_f32<O>(x, cut));
        return std::bit_cast<u32>(in_f32<O>(x, rule));
    });
    return Step::next;
}
template <Op O>
Step rounded_f64(Warp& w, const Instruction& i, u32 mask) {
    const exact::Round round = exact_round(static_cast<Round>(i.aux & 7));
    const u64 flip = (i.aux & 32) != 0 ? u64{1} << 63 : 0;
    each_lane(w.out<u64>(i.op[0]), mask, [&](int l) {
        u64 x[3];
        for (int k = 0; k < kOperands<O>; ++k)
            x[k] = w.in<u64>(i.op[k + 1])[l];
        if (!is_nan64(x[1])) x[1] ^= flip;
        return in_f64<O>(x, round);
    });
    return Step::next;
}

// Fast where the host rounds as asked, else exact.
template <Op O>
void choose(const Choice& c, Instruction& i, Handler fast, Handler fast_ftz, Handler fast_64) {
    i.aux = pack_rule(c);
    const bool nearest = rounding(c) == Round::even && !c.has(Mod::sat);
    if (c.type(0) == Type::f64)
        i.run = nearest ? fast_64 : rounded_f64<O>;
    else
        i.run = !nearest ? rounded_f32<O> : c.has(Mod::ftz) ? fast_ftz : fast;
}

template <template <bool> class F>
Handler binary_32(bool ftz) {
    return ftz ? Handler{binary<float, float, float, F<true>>}
               : Handler{binary<float, float, float, F<false>>};
}

// ---- approximate functions
// --------------------------------------------------------------------------------------------------

template <float (*F)(float, bool), bool Ftz>
struct Approx {
    static float apply(float x) { return F(x, Ftz); }
};
template <float (*F)(float, bool)>
Handler approx_of(bool ftz) {
    return ftz ? Handler{unary<float, float, Approx<F, true>>}
               : Handler{unary<float, float, Approx<F, false>>};
}
struct Tanh {
    static float apply(float x) { return tanh_approx(x); }
};
// a · (1/b): for |b| above 2^126 the reciprocal underflows, and the quotient is ±0.
template <bool Ftz, bool Full>
struct ApproxDiv {
    static float apply(float a, float b) {
        a = fl<Ftz>(a), b = fl<Ftz>(b);
        const float magnitude = std::fabs(b);
        if (!Full && magnitude > 0x1p126f && magnitude < std::numeric_limits<float>::infinity())
            return std::isinf(a) ? canon(std::nanf("")) : canon(a * std::copysign(0.0f, b));
        return fl<Ftz>(canon(a / b));
    }
};
// The .ftz approximations of f64 read the upper 32 bits and give 20 mantissa bits; NaN gives
// 0x7fffffff00000000. Without .ftz, rsqrt is as exact as f64 division and square root make it.
double upper_word(double x) {
    const u64 bits = std::bit_cast<u64>(x) & 0xffffffff00000000ull;
    const bool subnormal = (bits << 1 >> 53) == 0;
    return std::bit_cast<double>(x != x ? 0x7fffffff00000000ull : subnormal ? bits & (u64{1} << 63) : bits);
}
struct Rcp64Approx {
    static double apply(double x) { return upper_word(1.0 / upper_word(x)); }
};
struct Rsqrt64Approx {
    static double apply(double x) { return upper_word(1.0 / std::sqrt(upper_word(x))); }
};
struct Rsqrt64 {
    static double apply(double x) { return canon64(1.0 / std::sqrt(x), x); }
};

// ---- signs and classes
// --------------------------------------------------------------------------------------------------------

struct Copysign {  // copysign d, a, b: the sign of a, the magnitude of b
    static u32 apply(u32 a, u32 b) { return (a & 0x80000000u) | (b & 0x7fffffffu); }
    static u64 apply(u64 a, u64 b) { return (a & (u64{1} << 63)) | (b & ~(u64{1} << 63)); }
};

template <class T>
Step testp(Warp& w, const Instruction& i, u32 mask) {
    const auto* a = w.in<Lane<T>>(i.op[1]);
    u32 bits = 0;
    for (int l = 0; l < 32; ++l) {
        const int kind = std::fpclassify(view<T>(a[l]));
        const bool answers[] = {
            kind != FP_INFINITE && kind != FP_NAN, kind == FP_INFINITE, kind != FP_NAN, kind == FP_NAN,
            kind == FP_NORMAL || kind == FP_ZERO,  kind == FP_SUBNORMAL};
        bits |= static_cast<u32>(answers[i.aux]) << l;
    }
    w.set_pred(i.op[0], bits, mask);
    return Step::next;
}

}  // namespace

void select_float_add(const Choice& c, Instruction& i) {
    if (c.opcode == "add")
        choose<Op::add>(c, i, binary_32<FastAdd>(false), binary_32<FastAdd>(true),
                        binary<double, double, double, Add64>);
    else
        choose<Op::add>(c, i, binary_32<FastSub>(false), binary_32<FastSub>(true),
                        binary<double, double, double, Sub64>);
}
void select_float_mul(const Choice& c, Instruction& i) {
    choose<Op::mul>(c, i, binary_32<FastMul>(false), binary_32<FastMul>(true),
                    binary<double, double, double, Mul64>);
}
void select_float_fma(const Choice& c, Instruction& i) {
    choose<Op::fma>(c, i, ternary<float, float, float, float, FastFma<false>>,
                    ternary<float, float, float, float, FastFma<true>>,
                    ternary<double, double, double, double, Fma64>);
}
void select_float_div(const Choice& c, Instruction& i) {
    choose<Op::div>(c, i, binary_32<FastDiv>(false), binary_32<FastDiv>(true),
                    binary<double, double, double, Div64>);
}
void select_float_rcp(const Choice& c, Instruction& i) {
    choose<Op::rcp>(c, i, unary<float, float, FastRcp<false>>, unary<float, float, FastRcp<true>>,
                    unary<double, double, Rcp64>);
}
void select_float_sqrt(const Choice& c, Instruction& i) {
    choose<Op::sqrt>(c, i, unary<float, float, FastSqrt<false>>, unary<float, float, FastSqrt<true>>,
                     unary<double, double, Sqrt64>);
}

void select_approx(const Choice& c, Instruction& i) {
    const bool ftz = c.has(Mod::ftz);
    i.run = c.opcode == "ex2"     ? approx_of<ex2_approx>(ftz)
            : c.opcode == "lg2"   ? approx_of<lg2_approx>(ftz)
            : c.opcode == "rcp"   ? approx_of<rcp_approx>(ftz)
            : c.opcode == "rsqrt" ? approx_of<rsqrt_approx>(ftz)
            : c.opcode == "sqrt"  ? approx_of<sqrt_approx>(ftz)
            : c.opcode == "sin"   ? approx_of<sin_approx>(ftz)
            : c.opcode == "cos"   ? approx_of<cos_approx>(ftz)
                                  : Handler{unary<float, float, Tanh>};
}
void select_approx_div(const Choice& c, Instruction& i) {
    const bool ftz = c.has(Mod::ftz);
    if (c.has(Mod::full))
        i.run = ftz ? Handler{binary<float, float, float, ApproxDiv<true, true>>}
                    : Handler{binary<float, float, float, ApproxDiv<false, true>>};
    else
        i.run = ftz ? Handler{binary<float, float, float, ApproxDiv<true, false>>}
                    : Handler{binary<float, float, float, ApproxDiv<false, false>>};
}
void select_approx64(const Choice& c, Instruction& i) {
    i.run = c.opcode == "rcp" ? Handler{unary<double, double, Rcp64Approx>}
            : c.has(Mod::ftz) ? Handler{unary<double, double, Rsqrt64Approx>}
                              : Handler{unary<double, double, Rsqrt64>};
}
void select_copysign(const Choice& c, Instruction& i) {
    i.run = c.type(0) == Type::f64 ? Handler{binary<u64, u64, u64, Copysign>}
                                   : Handler{binary<u32, u32, u32, Copysign>};
}
void select_testp(const Choice& c, Instruction& i) {
    const Mod classes[] = {Mod::finite,     Mod::infinite, Mod::number,
                           Mod::notanumber, Mod::normal,   Mod::subnormal};
    for (u64 k = 0; k < 6; ++k)
        if (c.has(classes[k])) i.aux = k;
    i.run = c.type(0) == Type::f64 ? testp<double> : testp<float>;
}

}  // namespace emu
