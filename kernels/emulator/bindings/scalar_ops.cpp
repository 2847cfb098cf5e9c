#include "bindings/scalar_ops.hpp"

#include <bit>
#include <cstdint>

#include "units/approx.hpp"
#include "units/arithmetic.hpp"
#include "units/formats.hpp"

namespace emu {
namespace {

using U = std::uint64_t;

float f(U bits) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
}
double g(U bits) {
    return std::bit_cast<double>(bits);
}
U w(float x) {
    return std::bit_cast<std::uint32_t>(x);
}

// An integer result as a 32- or 64-bit register holds it: extended by its own sign.
template <typename Integer>
U reg(Integer n) {
    if constexpr (sizeof(Integer) == 8) return static_cast<U>(n);
    return static_cast<std::uint32_t>(static_cast<std::int32_t>(n));
}

constexpr Round kRn = Round::even, kRz = Round::zero, kRm = Round::down, kRp = Round::up;

#define UNARY(text, to, from, ...) {text, to, {from, 0, 0}, [](U a, U, U) -> U { return __VA_ARGS__; }}
#define BINARY(text, bits, ...) {text, bits, {bits, bits, 0}, [](U a, U b, U) -> U { return __VA_ARGS__; }}
#define TERNARY(text, bits, ...) \
    {text, bits, {bits, bits, bits}, [](U a, U b, U c) -> U { return __VA_ARGS__; }}
#define EACH_ROUNDING(M) M("rn", kRn), M("rz", kRz), M("rm", kRm), M("rp", kRp)

// Two f32 to a pair of 8-bit codes: the first operand takes the high byte.
#define FP8_PAIR(text, F, relu_)                                           \
    {text, 16, {32, 32, 0}, [](U a, U b, U) -> U {                         \
         return narrow<F>(f(a), {.satfinite = true, .relu = relu_}) << 8 | \
                narrow<F>(f(b), {.satfinite = true, .relu = relu_});       \
     }}
#define FP8_FROM_HALVES(text, F, relu_)                                                       \
    UNARY(text, 16, 32,                                                                       \
          narrow<F>(widen<kF16>(a >> 16 & 0xFFFF), {.satfinite = true, .relu = relu_}) << 8 | \
              narrow<F>(widen<kF16>(a & 0xFFFF), {.satfinite = true, .relu = relu_}))
#define FP8_TO_HALVES(text, F, relu_) \
    UNARY(text, 32, 16, fp8_to_f16<F>(a >> 8 & 0xFF, relu_) << 16 | fp8_to_f16<F>(a & 0xFF, relu_))

#define TO_INTEGER(type, Integer, from, bits, x)                                \
    UNARY("cvt.rni." type "." from, (sizeof(Integer) == 8 ? 64 : 32), bits,     \
          reg(to_integer<Integer>(x, kRn))),                                    \
        UNARY("cvt.rzi." type "." from, (sizeof(Integer) == 8 ? 64 : 32), bits, \
              reg(to_integer<Integer>(x, kRz))),                                \
        UNARY("cvt.rmi." type "." from, (sizeof(Integer) == 8 ? 64 : 32), bits, \
              reg(to_integer<Integer>(x, kRm))),                                \
        UNARY("cvt.rpi." type "." from, (sizeof(Integer) == 8 ? 64 : 32), bits, \
              reg(to_integer<Integer>(x, kRp)))
#define FROM_INTEGER(to, F, to_bits, type, Integer, bits)                                           \
    UNARY("cvt.rn." to "." type, to_bits, bits, from_integer<F>(static_cast<Integer>(a), kRn)),     \
        UNARY("cvt.rz." to "." type, to_bits, bits, from_integer<F>(static_cast<Integer>(a), kRz)), \
        UNARY("cvt.rm." to "." type, to_bits, bits, from_integer<F>(static_cast<Integer>(a), kRm)), \
        UNARY("cvt.rp." to "." type, to_bits, bits, from_integer<F>(static_cast<Integer>(a), kRp))

#define TO_NARROW(name, mode)                                                                   \
    UNARY("cvt." name ".f16.f32", 16, 32, narrow<kF16>(f(a), {.round = mode})),                 \
        UNARY("cvt." name ".ftz.f16.f32", 16, 32, narrow<kF16>(f(a), {.round = mode})),         \
        UNARY("cvt." name ".bf16.f32", 16, 32, narrow<kBF16>(f(a), {.round = mode})),           \
        UNARY("cvt." name ".f16.bf16", 16, 16, narrow<kF16>(widen<kBF16>(a), {.round = mode})), \
        UNARY("cvt." name ".bf16.f16", 16, 16, narrow<kBF16>(widen<kF16>(a), {.round = mode})), \
        UNARY("cvt." name ".f32.f64", 32, 64, narrow_f64<kF32>(g(a), mode)),                    \
        UNARY("cvt." name ".f16.f64", 16, 64, narrow_f64<kF16>(g(a), mode)),                    \
        UNARY("cvt." name ".bf16.f64", 16, 64, narrow_f64<kBF16>(g(a), mode))
#define ROUND_F32(name, mode)                                                         \
    UNARY("cvt." name "i.f32.f32", 32, 32, w(canonical(round_integral(f(a), mode)))), \
        UNARY("cvt." name "i.ftz.f32.f32", 32, 32, w(canonical(round_integral(flush(f(a), true), mode))))
#define ARITHMETIC(name, mode)                                                                           \
    BINARY("add." name ".f32", 32, w(add_f32(f(a), f(b), {.round = mode}))),                             \
        BINARY("add." name ".ftz.f32", 32, w(add_f32(f(a), f(b), {.round = mode, .ftz = true}))),        \
        BINARY("mul." name ".f32", 32, w(mul_f32(f(a), f(b), {.round = mode}))),                         \
        BINARY("mul." name ".ftz.f32", 32, w(mul_f32(f(a), f(b), {.round = mode, .ftz = true}))),        \
        BINARY("div." name ".f32", 32, w(div_f32(f(a), f(b), {.round = mode}))),                         \
        BINARY("div." name ".ftz.f32", 32, w(div_f32(f(a), f(b), {.round = mode, .ftz = true}))),        \
        TERNARY("fma." name ".f32", 32, w(fma_f32(f(a), f(b), f(c), {.round = mode}))),                  \
        TERNARY("fma." name ".ftz.f32", 32, w(fma_f32(f(a), f(b), f(c), {.round = mode, .ftz = true}))), \
        TERNARY("fma." name ".sat.f32", 32, w(fma_f32(f(a), f(b), f(c), {.round = mode, .sat = true}))), \
        UNARY("sqrt." name ".f32", 32, 32, w(sqrt_f32(f(a), {.round = mode}))),                          \
        UNARY("sqrt." name ".ftz.f32", 32, 32, w(sqrt_f32(f(a), {.round = mode, .ftz = true}))),         \
        UNARY("rcp." name ".f32", 32, 32, w(div_f32(1.0F, f(a), {.round = mode}))),                      \
        UNARY("rcp." name ".ftz.f32", 32, 32, w(div_f32(1.0F, f(a), {.round = mode, .ftz = true})))
#define MIN_MAX(name, maximum_)                                                                           \
    BINARY(name ".f32", 32, min_max<kF32>(a, b, {.maximum = maximum_})),                                  \
        BINARY(name ".NaN.f32", 32, min_max<kF32>(a, b, {.maximum = maximum_, .propagate_nan = true})),   \
        BINARY(name ".ftz.f32", 32,                                                                       \
               min_max<kF32>(w(flush(f(a), true)), w(flush(f(b), true)), {.maximum = maximum_})),         \
        BINARY(name ".xorsign.abs.f32", 32,                                                               \
               min_max<kF32>(a, b, {.maximum = maximum_, .xorsign_abs = true})),                          \
        BINARY(name ".NaN.xorsign.abs.f32", 32,                                                           \
               min_max<kF32>(a, b, {.maximum = maximum_, .propagate_nan = true, .xorsign_abs = true})),   \
        BINARY(name ".f16", 16, min_max<kF16>(a, b, {.maximum = maximum_})),                              \
        BINARY(name ".NaN.f16", 16, min_max<kF16>(a, b, {.maximum = maximum_, .propagate_nan = true})),   \
        BINARY(name ".xorsign.abs.f16", 16,                                                               \
               min_max<kF16>(a, b, {.maximum = maximum_, .xorsign_abs = true})),                          \
        BINARY(name ".bf16", 16, min_max<kBF16>(a, b, {.maximum = maximum_})),                            \
        BINARY(name ".NaN.bf16", 16, min_max<kBF16>(a, b, {.maximum = maximum_, .propagate_nan = true})), \
        BINARY(name ".xorsign.abs.bf16", 16,                                                              \
               min_max<kBF16>(a, b, {.maximum = maximum_, .xorsign_abs = true}))
#define APPROX(name, function)                                   \
    UNARY(name ".approx.f32", 32, 32, w(function(f(a), false))), \
        UNARY(name ".approx.ftz.f32", 32, 32, w(function(f(a), true)))

constexpr ScalarOp kOps[] = {
    EACH_ROUNDING(TO_NARROW),
    UNARY("cvt.rn.satfinite.f16.f32", 16, 32, narrow<kF16>(f(a), {.satfinite = true})),
    UNARY("cvt.rz.satfinite.f16.f32", 16, 32, narrow<kF16>(f(a), {.round = kRz, .satfinite = true})),
    UNARY("cvt.rn.relu.f16.f32", 16, 32, narrow<kF16>(f(a), {.relu = true})),
    UNARY("cvt.rn.relu.satfinite.f16.f32", 16, 32, narrow<kF16>(f(a), {.satfinite = true, .relu = true})),
    UNARY("cvt.rn.satfinite.bf16.f32", 16, 32, narrow<kBF16>(f(a), {.satfinite = true})),
    UNARY("cvt.rz.satfinite.bf16.f32", 16, 32, narrow<kBF16>(f(a), {.round = kRz, .satfinite = true})),
    UNARY("cvt.rn.relu.bf16.f32", 16, 32, narrow<kBF16>(f(a), {.relu = true})),
    UNARY("cvt.rz.relu.bf16.f32", 16, 32, narrow<kBF16>(f(a), {.round = kRz, .relu = true})),
    UNARY("cvt.rn.sat.f16.f32", 16, 32, narrow<kF16>(saturate_unit(f(a)))),
    UNARY("cvt.rna.tf32.f32", 32, 32, narrow_tf32_away(f(a), false)),
    UNARY("cvt.rna.satfinite.tf32.f32", 32, 32, narrow_tf32_away(f(a), true)),
    UNARY("cvt.rn.tf32.f32", 32, 32, narrow<kTF32>(f(a))),
    UNARY("cvt.rz.tf32.f32", 32, 32, narrow<kTF32>(f(a), {.round = kRz})),
    UNARY("cvt.rn.relu.tf32.f32", 32, 32, narrow<kTF32>(f(a), {.relu = true})),
    UNARY("cvt.rz.relu.tf32.f32", 32, 32, narrow<kTF32>(f(a), {.round = kRz, .relu = true})),
    FP8_PAIR("cvt.rn.satfinite.e4m3x2.f32", kE4M3, false),
    FP8_PAIR("cvt.rn.satfinite.e5m2x2.f32", kE5M2, false),
    FP8_PAIR("cvt.rn.satfinite.relu.e4m3x2.f32", kE4M3, true),
    FP8_PAIR("cvt.rn.satfinite.relu.e5m2x2.f32", kE5M2, true),
    FP8_FROM_HALVES("cvt.rn.satfinite.e4m3x2.f16x2", kE4M3, false),
    FP8_FROM_HALVES("cvt.rn.satfinite.e5m2x2.f16x2", kE5M2, false),
    FP8_FROM_HALVES("cvt.rn.satfinite.relu.e4m3x2.f16x2", kE4M3, true),
    FP8_FROM_HALVES("cvt.rn.satfinite.relu.e5m2x2.f16x2", kE5M2, true),
    FP8_TO_HALVES("cvt.rn.f16x2.e4m3x2", kE4M3, false),
    FP8_TO_HALVES("cvt.rn.f16x2.e5m2x2", kE5M2, false),
    FP8_TO_HALVES("cvt.rn.relu.f16x2.e4m3x2", kE4M3, true),
    FP8_TO_HALVES("cvt.rn.relu.f16x2.e5m2x2", kE5M2, true),
    UNARY("cvt.f32.f16", 32, 16, w(widen<kF16>(a))),
    UNARY("cvt.f32.bf16", 32, 16, w(widen_bf16(a))),
    EACH_ROUNDING(ROUND_F32),
    TO_INTEGER("s32", std::int32_t, "f32", 32, f(a)),
    TO_INTEGER("u32", std::uint32_t, "f32", 32, f(a)),
    TO_INTEGER("s64", std::int64_t, "f32", 32, f(a)),
    TO_INTEGER("u64", std::uint64_t, "f32", 32, f(a)),
    TO_INTEGER("s16", std::int16_t, "f32", 32, f(a)),
    TO_INTEGER("u16", std::uint16_t, "f32", 32, f(a)),
    TO_INTEGER("s8", std::int8_t, "f32", 32, f(a)),
    TO_INTEGER("u8", std::uint8_t, "f32", 32, f(a)),
    TO_INTEGER("s32", std::int32_t, "f16", 16, widen<kF16>(a)),
    TO_INTEGER("u8", std::uint8_t, "f16", 16, widen<kF16>(a)),
    TO_INTEGER("s64", std::int64_t, "f16", 16, widen<kF16>(a)),
    TO_INTEGER("s32", std::int32_t, "bf16", 16, widen<kBF16>(a)),
    TO_INTEGER("u64", std::uint64_t, "bf16", 16, widen<kBF16>(a)),
    TO_INTEGER("s32", std::int32_t, "f64", 64, g(a)),
    TO_INTEGER("u32", std::uint32_t, "f64", 64, g(a)),
    TO_INTEGER("s64", std::int64_t, "f64", 64, g(a)),
    TO_INTEGER("u64", std::uint64_t, "f64", 64, g(a)),
    FROM_INTEGER("f32", kF32, 32, "s32", std::int32_t, 32),
    FROM_INTEGER("f32", kF32, 32, "u32", std::uint32_t, 32),
    FROM_INTEGER("f32", kF32, 32, "s64", std::int64_t, 64),
    FROM_INTEGER("f32", kF32, 32, "u64", std::uint64_t, 64),
    FROM_INTEGER("f16", kF16, 16, "s32", std::int32_t, 32),
    FROM_INTEGER("f16", kF16, 16, "u64", std::uint64_t, 64),
    FROM_INTEGER("bf16", kBF16, 16, "s32", std::int32_t, 32),
    FROM_INTEGER("bf16", kBF16, 16, "u64", std::uint64_t, 64),
    EACH_ROUNDING(ARITHMETIC),
    TERNARY("fma.rn.f16", 16, fma_narrow<kF16>(a, b, c)),
    TERNARY("fma.rn.relu.f16", 16, fma_narrow<kF16>(a, b, c, true)),
    TERNARY("fma.rn.bf16", 16, fma_narrow<kBF16>(a, b, c)),
    TERNARY("fma.rn.relu.bf16", 16, fma_narrow<kBF16>(a, b, c, true)),
    BINARY("add.rn.f16", 16, narrow<kF16>(add_to_odd(widen<kF16>(a), widen<kF16>(b)))),
    BINARY("mul.rn.f16", 16, narrow<kF16>(widen<kF16>(a) * widen<kF16>(b))),
    BINARY("add.rn.bf16", 16, narrow<kBF16>(add_to_odd(widen<kBF16>(a), widen<kBF16>(b)))),
    BINARY("mul.rn.bf16", 16, narrow<kBF16>(static_cast<double>(widen<kBF16>(a)) * widen<kBF16>(b))),
    MIN_MAX("min", false),
    MIN_MAX("max", true),
    APPROX("ex2", ex2_approx),
    APPROX("lg2", lg2_approx),
    APPROX("rcp", rcp_approx),
    APPROX("rsqrt", rsqrt_approx),
    APPROX("sqrt", sqrt_approx),
    APPROX("sin", sin_approx),
    APPROX("cos", cos_approx),
    UNARY("tanh.approx.f32", 32, 32, w(tanh_approx(f(a)))),
    BINARY("div.approx.f32", 32, w(div_approx(f(a), f(b), false, false))),
    BINARY("div.approx.ftz.f32", 32, w(div_approx(f(a), f(b), false, true))),
    BINARY("div.full.f32", 32, w(div_approx(f(a), f(b), true, false))),
    BINARY("div.full.ftz.f32", 32, w(div_approx(f(a), f(b), true, true))),
    UNARY("ex2.approx.f16", 16, 16, ex2_approx_narrow<kF16>(a)),
    UNARY("ex2.approx.ftz.bf16", 16, 16, ex2_approx_narrow<kBF16>(a)),
    UNARY("tanh.approx.f16", 16, 16, tanh_approx_narrow<kF16>(a)),
    UNARY("tanh.approx.bf16", 16, 16, tanh_approx_narrow<kBF16>(a)),
};

}  // namespace

std::span<const ScalarOp> scalar_ops() {
    return kOps;
}

}  // namespace emu
