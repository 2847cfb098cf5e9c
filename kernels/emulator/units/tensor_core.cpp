#include "units/tensor_core.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <stdexcept>

#include "units/formats.hpp"
#include "units/vector.hpp"

namespace emu {
namespace {

// The exponent of zero: so low that it never sets the alignment, and that sums of two stay in range.
constexpr std::int32_t kZeroExponent = -1000;
constexpr int kLanes = 64;  // outputs of one row computed side by side

// A number as sign and significand × 2^exponent; `finite` is false for infinity and NaN.
struct Parts {
    float significand;
    std::int32_t exponent;
    bool finite;
};

template <Format F>
Parts take_apart(std::uint32_t code) {
    const std::uint32_t magnitude = (code & ((1U << F.sign_shift()) - 1)) >> F.unused_bits;
    const std::uint32_t field = magnitude >> F.mantissa_bits;
    const std::uint32_t mantissa = magnitude & ((1U << F.mantissa_bits) - 1);
    const std::uint32_t last_finite = F.max >> F.unused_bits;
    constexpr float kUnit = 1.0F / static_cast<float>(1U << F.mantissa_bits);
    const float hidden = field == 0 ? 0.0F : 1.0F;
    const float size = hidden + static_cast<float>(mantissa) * kUnit;
    const std::int32_t exponent = static_cast<std::int32_t>(std::max(field, 1U)) - F.bias();
    return {(code >> F.sign_shift() & 1) != 0 ? -size : size, magnitude == 0 ? kZeroExponent : exponent,
            magnitude <= last_finite};
}

Parts take_apart(Element type, std::uint32_t code) {
    switch (type) {
        case Element::f16: return take_apart<kF16>(code);
        case Element::bf16: return take_apart<kBF16>(code);
        case Element::tf32: return take_apart<kTF32>(code & ~0x1FFFU);
        case Element::e4m3: return take_apart<kE4M3>(code);
        case Element::e5m2: return take_apart<kE5M2>(code);
        case Element::s8:
        case Element::u8: break;
    }
    return {0, kZeroExponent, true};
}

float value_of(Element type, std::uint32_t code) {
    switch (type) {
        case Element::f16: return widen<kF16>(code);
        case Element::bf16: return widen<kBF16>(code);
        case Element::tf32: return widen<kF32>(code & ~0x1FFFU);
        case Element::e4m3: return widen<kE4M3>(code);
        case Element::e5m2: return widen<kE5M2>(code);
        case Element::s8: return static_cast<std::int8_t>(code);
        case Element::u8: return static_cast<std::uint8_t>(code);
    }
    return 0;
}

float addend_value(Accumulator accumulator, std::uint32_t code) {
    return accumulator == Accumulator::f16 ? widen<kF16>(code) : std::bit_cast<float>(code);
}

std::uint32_t quiet_nan(Accumulator accumulator) { return accumulator == Accumulator::f16 ? kF16.nan : kF32.nan; }
std::uint32_t infinity(Accumulator accumulator, bool negative) {
    return accumulator == Accumulator::f16 ? kF16.infinity | std::uint32_t{negative} << 15
                                           : kF32.infinity | std::uint32_t{negative} << 31;
}

// An output with an infinity or a NaN among its terms.
std::uint32_t special_sum(const Operand& a, int i, const Operand& b, int j, float addend, Accumulator accumulator) {
    bool nan = std::isnan(addend), up = addend > 0 && std::isinf(addend), down = addend < 0 && std::isinf(addend);
    for (int k = 0; k < a.depth(); ++k) {
        const float x = a.values(k)[i], y = b.values(k)[j];
        if (std::isfinite(x) && std::isfinite(y)) continue;  // a finite product never becomes infinite by itself
        const float product = x * y;
        nan |= std::isnan(product);
        up |= product > 0;
        down |= product < 0;
    }
    return nan || (up && down) ? quiet_nan(accumulator) : infinity(accumulator, down);
}

// Cut to `mantissa_bits`, toward zero; a zero is always +0. |x| carries at most 53 bits, far inside double's range.
inline std::uint32_t cut_to_f32(double x, int mantissa_bits) {
    const auto bits = std::bit_cast<std::uint64_t>(x);
    const std::uint32_t sign = static_cast<std::uint32_t>(bits >> 32) & 0x8000'0000;
    const std::uint64_t magnitude = bits & ~(std::uint64_t{1} << 63);
    const int exponent = static_cast<int>(magnitude >> 52) - 1023;
    const int below = std::max(-126 - exponent, 0);  // places lost to a subnormal result
    const std::uint64_t significand = (magnitude & ((std::uint64_t{1} << 52) - 1)) | std::uint64_t{1} << 52;
    const int cut = std::min(52 - mantissa_bits + below, 63);
    const auto kept = static_cast<std::uint32_t>(significand >> cut << (23 - mantissa_bits));
    const std::uint32_t code = kept + (static_cast<std::uint32_t>(std::max(exponent, -126) + 126) << 23);
    const std::uint32_t bounded = exponent > 127 ? kF32.infinity : code;
    return bounded == 0 ? 0 : sign | bounded;
}

// kLanes outputs of one row, all of whose terms are finite.
struct Row {
    float significand[kLanes];      // of the addend
    std::int32_t exponent[kLanes];  // of the addend
    std::int32_t largest[kLanes];   // exponent among all terms
    std::int32_t sum[kLanes];       // of the products, in units of 2^(largest - F)
    double total[kLanes];           // with the addend
};

// The sum of up to 16 products below 4 · 2^25, or of 32 with F = 13, stays below 2^31: an int32 holds it.
EMU_VECTOR void sum_products(const Operand& a, int i, const Operand& b, int j, int fraction_bits, Row& row) {
    for (int lane = 0; lane < kLanes; ++lane) row.largest[lane] = row.exponent[lane];
    for (int k = 0; k < a.depth(); ++k) {
        const std::int32_t exponent = a.exponents(k)[i];
        const std::int32_t* other = b.exponents(k) + j;
        for (int lane = 0; lane < kLanes; ++lane)
            row.largest[lane] = std::max(row.largest[lane], exponent + other[lane]);
    }
    for (int lane = 0; lane < kLanes; ++lane) row.sum[lane] = 0;
    for (int k = 0; k < a.depth(); ++k) {
        const float significand = a.significands(k)[i];
        const std::int32_t exponent = a.exponents(k)[i] + 127 + fraction_bits;
        const float* other = b.significands(k) + j;
        const std::int32_t* other_exponent = b.exponents(k) + j;
        for (int lane = 0; lane < kLanes; ++lane) {
            // The product is exact in float and its scale a power of two; conversion to integer cuts toward zero. An
            // exponent field of 0 stands for every scale under which nothing is left.
            const std::int32_t field = std::max(exponent + other_exponent[lane] - row.largest[lane], 0);
            const float scale = std::bit_cast<float>(field << 23);
            row.sum[lane] += static_cast<std::int32_t>(significand * other[lane] * scale);
        }
    }
}

// The addend joins in double, where everything is still exact: at most 34 bits.
EMU_VECTOR void add_addend(int fraction_bits, Row& row) {
    for (int lane = 0; lane < kLanes; ++lane) {
        const std::int32_t field = std::max(row.exponent[lane] - row.largest[lane] + 127 + fraction_bits, 0);
        const auto addend = static_cast<std::int32_t>(row.significand[lane] * std::bit_cast<float>(field << 23));
        const auto sum = static_cast<double>(row.sum[lane]) + static_cast<double>(addend);
        // Where all terms are zero, `largest` is meaningless and far below.
        const std::int64_t exponent = std::max(row.largest[lane], -900) - fraction_bits + 1023;
        row.total[lane] = sum * std::bit_cast<double>(exponent << 52);
    }
}

EMU_VECTOR void finish_f32(int mantissa_bits, const Row& row, std::uint32_t* out) {
    for (int lane = 0; lane < kLanes; ++lane) out[lane] = cut_to_f32(row.total[lane], mantissa_bits);
}

EMU_VECTOR void finish_f16(const Row& row, std::uint32_t* out) {
    for (int lane = 0; lane < kLanes; ++lane) {
        const std::uint32_t code = narrow<kF16>(row.total[lane]);
        out[lane] = code == 0x8000 ? 0 : code;
    }
}

void plain_row(const Operand& a, int i, const Operand& b, int j, int count, const std::uint32_t* c, std::uint32_t* d,
               Accumulator accumulator) {
    float sum[kLanes];
    for (int lane = 0; lane < count; ++lane) sum[lane] = c == nullptr ? 0 : addend_value(accumulator, c[lane]);
    for (int k = 0; k < a.depth(); ++k) {
        const float x = a.values(k)[i];
        const float* y = b.values(k) + j;
        for (int lane = 0; lane < count; ++lane) sum[lane] += x * y[lane];
    }
    for (int lane = 0; lane < count; ++lane)
        d[lane] = accumulator == Accumulator::f16 ? narrow<kF16>(sum[lane]) : narrow<kF32>(sum[lane]);
}

// Every product and every sum of them is a small integer, exact in float.
void integer_row(const Operand& a, int i, const Operand& b, int j, int count, const std::uint32_t* c, std::uint32_t* d,
                 bool satfinite) {
    float sum[kLanes] = {};
    for (int k = 0; k < a.depth(); ++k) {
        const float x = a.values(k)[i];
        const float* y = b.values(k) + j;
        for (int lane = 0; lane < count; ++lane) sum[lane] += x * y[lane];
    }
    using Limits = std::numeric_limits<std::int32_t>;
    for (int lane = 0; lane < count; ++lane) {
        const std::int64_t addend = c == nullptr ? 0 : static_cast<std::int32_t>(c[lane]);
        std::int64_t total = static_cast<std::int64_t>(sum[lane]) + addend;
        if (satfinite) total = std::clamp<std::int64_t>(total, Limits::min(), Limits::max());
        d[lane] = static_cast<std::uint32_t>(total);
    }
}

template <typename F>
void for_each_strip(const Operand& a, const Operand& b, F&& strip) {
    for (int i = 0; i < a.lines(); ++i)
        for (int j = 0; j < b.lines(); j += kLanes) strip(i, j, std::min(kLanes, b.lines() - j));
}

bool is_fp8(Element type) { return type == Element::e4m3 || type == Element::e5m2; }

void require_legal(const Operand& a, const Operand& b, Accumulator accumulator) {
    const bool alike = a.type() == b.type() || (is_fp8(a.type()) && is_fp8(b.type())) ||
                       (is_integer(a.type()) && is_integer(b.type()));
    const bool half = a.type() == Element::f16 || is_fp8(a.type());
    const bool fits = is_integer(a.type()) ? accumulator == Accumulator::s32
                                           : accumulator == Accumulator::f32 || (accumulator == Accumulator::f16 && half);
    if (!alike || !fits) throw std::invalid_argument("multiply_add: no wgmma combines these operand and result types");
    if (a.depth() != b.depth()) throw std::invalid_argument("multiply_add: A and B must have the same depth");
}

}  // namespace

FusedRule hopper_rule(Element a) { return is_fp8(a) ? FusedRule{13, 13} : FusedRule{25, 23}; }

Operand::Operand(Element type, int lines, int depth)
    : type_(type), lines_(lines), depth_(depth), stride_(static_cast<std::size_t>((lines + kLanes - 1) / kLanes * kLanes)) {
    if (lines < 1 || depth < 1 || depth > 32) throw std::invalid_argument("Operand: needs lines >= 1 and depth 1 to 32");
    const std::size_t size = stride_ * static_cast<std::size_t>(depth);
    value_.resize(size);
    significand_.resize(size);
    exponent_.resize(size, kZeroExponent);
    finite_.resize(static_cast<std::size_t>(lines), 1);
}

template <typename Code>
void Operand::load(const Code* codes, int line_stride, int k_stride, bool negate) {
    std::fill(finite_.begin(), finite_.end(), std::uint8_t{1});
    all_finite_ = true;
    const float sign = negate ? -1.0F : 1.0F;
    for (int k = 0; k < depth_; ++k)
        for (int line = 0; line < lines_; ++line) {
            const std::uint32_t code = codes[line * line_stride + k * k_stride];
            const std::size_t place = at(k) + static_cast<std::size_t>(line);
            const Parts parts = take_apart(type_, code);
            value_[place] = sign * value_of(type_, code);
            significand_[place] = sign * parts.significand;
            exponent_[place] = parts.exponent;
            if (!parts.finite) finite_[static_cast<std::size_t>(line)] = 0, all_finite_ = false;
        }
}
template void Operand::load(const std::uint8_t*, int, int, bool);
template void Operand::load(const std::uint16_t*, int, int, bool);
template void Operand::load(const std::uint32_t*, int, int, bool);

void fused_multiply_add(const Operand& a, const Operand& b, const std::uint32_t* c, std::uint32_t* d,
                        Accumulator accumulator, FusedRule rule) {
    for_each_strip(a, b, [&](int i, int j, int count) {
        const std::ptrdiff_t first = static_cast<std::ptrdiff_t>(i) * b.lines() + j;
        Row row;
        float addend[kLanes] = {};
        std::uint32_t out[kLanes];
        for (int lane = 0; lane < kLanes; ++lane) {
            const std::uint32_t code = c == nullptr || lane >= count ? 0 : c[first + lane];
            addend[lane] = addend_value(accumulator, code);
            const Parts parts = accumulator == Accumulator::f16 ? take_apart<kF16>(code) : take_apart<kF32>(code);
            row.significand[lane] = parts.finite ? parts.significand : 0;
            row.exponent[lane] = parts.finite ? parts.exponent : kZeroExponent;
        }
        sum_products(a, i, b, j, rule.fraction_bits, row);
        add_addend(rule.fraction_bits, row);
        if (accumulator == Accumulator::f16)
            finish_f16(row, out);
        else
            finish_f32(rule.mantissa_bits, row, out);
        for (int lane = 0; lane < count; ++lane) {
            const bool finite = a.finite(i) && b.finite(j + lane) && std::isfinite(addend[lane]);
            d[first + lane] = finite ? out[lane] : special_sum(a, i, b, j + lane, addend[lane], accumulator);
        }
    });
}

void multiply_add(const Operand& a, const Operand& b, const std::uint32_t* c, std::uint32_t* d,
                  const MmaOptions& options) {
    require_legal(a, b, options.accumulator);
    if (!is_integer(a.type()) && options.arithmetic == Arithmetic::silicon)
        return fused_multiply_add(a, b, c, d, options.accumulator, hopper_rule(a.type()));
    for_each_strip(a, b, [&](int i, int j, int count) {
        const std::ptrdiff_t first = static_cast<std::ptrdiff_t>(i) * b.lines() + j;
        const std::uint32_t* from = c == nullptr ? nullptr : c + first;
        if (is_integer(a.type()))
            integer_row(a, i, b, j, count, from, d + first, options.satfinite);
        else
            plain_row(a, i, b, j, count, from, d + first, options.accumulator);
    });
}

}  // namespace emu
