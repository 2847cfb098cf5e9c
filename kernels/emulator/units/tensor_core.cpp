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

// The exponent of zero: so low that it never sets the alignment.
constexpr std::int32_t kZeroExponent = -1000;
// The alignment never goes below this exponent, even where all terms do.
constexpr std::int32_t kLeastAlignment = -133;
constexpr int kLanes = 64;  // outputs of one row computed side by side

const Format& format_of(Element type) {
    switch (type) {
        case Element::f16:
            return kF16;
        case Element::bf16:
            return kBF16;
        case Element::e4m3:
            return kE4M3;
        case Element::e5m2:
            return kE5M2;
        case Element::tf32:
        case Element::s8:
        case Element::u8:
            break;
    }
    return kTF32;
}

bool is_fp8(Element type) {
    return type == Element::e4m3 || type == Element::e5m2;
}

// Where the parts of `count` numbers go.
struct Parts {
    float* value;
    float* significand;      // ±[1, 2), below 1 for subnormal codes
    std::int32_t* exponent;  // the smallest normal one for subnormal codes, kZeroExponent for zero
    std::uint8_t* finite;
};

EMU_VECTOR void take_apart(const Format& format, const std::uint32_t* codes, int count, bool negate,
                           Parts out) {
    const int sign_shift = format.sign_shift(), mantissa_bits = format.mantissa_bits,
              unused = format.unused_bits;
    const int to_float = 23 - mantissa_bits, bias = format.bias();
    const std::uint32_t mask = (1U << sign_shift) - 1, mantissa_mask = (1U << mantissa_bits) - 1;
    const std::uint32_t last_finite = format.max >> unused, infinity = format.infinity >> unused;
    for (int i = 0; i < count; ++i) {
        const std::uint32_t sign =
            (codes[i] << (31 - sign_shift) & 0x8000'0000) ^ (std::uint32_t{negate} << 31);
        const std::uint32_t magnitude = (codes[i] & mask) >> unused;
        const std::uint32_t field = magnitude >> mantissa_bits;
        const std::uint32_t mantissa = (magnitude & mantissa_mask) << to_float;
        const float normal = std::bit_cast<float>(0x3F80'0000 | mantissa);
        const float size = normal - (field == 0 ? 1.0F : 0.0F);
        const std::int32_t exponent = static_cast<std::int32_t>(field == 0 ? 1 : field) - bias;
        const float scale = std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23);
        const bool finite = magnitude <= last_finite;
        const std::uint32_t special = magnitude == infinity ? kF32.infinity : kF32.nan;
        const std::uint32_t value = finite ? std::bit_cast<std::uint32_t>(size * scale) : special;
        out.value[i] = std::bit_cast<float>(value | sign);
        out.significand[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(size) | sign);
        out.exponent[i] = magnitude == 0 ? kZeroExponent : exponent;
        out.finite[i] = finite;
    }
}

// An output with an infinity or a NaN among its terms. A finite product never becomes infinite by itself.
std::uint32_t special_sum(const Factor& a, int i, const Factor& b, int j, float addend,
                          const Format& format) {
    bool nan = std::isnan(addend), up = addend > 0 && std::isinf(addend),
         down = addend < 0 && std::isinf(addend);
    for (int k = 0; k < a.depth(); ++k) {
        const float x = a.values(k)[i], y = b.values(k)[j];
        if (std::isfinite(x) && std::isfinite(y)) continue;
        const float product = x * y;
        nan |= std::isnan(product);
        up |= product > 0;
        down |= product < 0;
    }
    return nan || (up && down) ? format.nan : format.infinity | std::uint32_t{down} << format.sign_shift();
}

// Cut to `mantissa_bits`, toward zero; a zero is always +0. |x| carries at most 53 bits, far inside double's
// range.
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
    float addend[kLanes];
    float significand[kLanes];      // of the addend
    std::int32_t exponent[kLanes];  // of the addend
    std::uint8_t finite[kLanes];    // the addend
    std::int32_t largest[kLanes];   // exponent among all terms
    std::int32_t sum[kLanes];       // of the products, in units of 2^(largest - F)
    double total[kLanes];           // with the addend
};

// The sum of up to 16 products below 4 · 2^25, or of 32 with F = 13, stays below 2^31: an int32 holds it.
EMU_VECTOR void sum_products(const Factor& a, int i, const Factor& b, int j, int fraction_bits, Row& row) {
    for (int lane = 0; lane < kLanes; ++lane)
        row.largest[lane] = std::max(row.exponent[lane], kLeastAlignment);
    for (int k = 0; k < a.depth(); ++k) {
        const std::int32_t exponent = a.exponents(k)[i];
        const std::int32_t* other = b.exponents(k) + j;
        for (int lane = 0; lane < kLanes; ++lane)
            row.largest[lane] = std::max(row.largest[lane], exponent + other[lane]);
    }
    for (int lane = 0; lane < kLanes; ++lane)
        row.sum[lane] = 0;
    for (int k = 0; k < a.depth(); ++k) {
        const float significand = a.significands(k)[i];
        const std::int32_t exponent = a.exponents(k)[i] + 127 + fraction_bits;
        const float* other = b.significands(k) + j;
        const std::int32_t* other_exponent = b.exponents(k) + j;
        for (int lane = 0; lane < kLanes; ++lane) {
            // The product is exact in float and its scale a power of two; conversion to integer cuts toward
            // zero. An exponent field of 0 stands for every scale under which nothing is left.
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
        const auto addend =
            static_cast<std::int32_t>(row.significand[lane] * std::bit_cast<float>(field << 23));
        const auto sum = static_cast<double>(row.sum[lane]) + static_cast<double>(addend);
        const std::int64_t exponent = row.largest[lane] - fraction_bits + 1023;
        row.total[lane] = sum * std::bit_cast<double>(exponent << 52);
    }
}

EMU_VECTOR void finish_f32(int mantissa_bits, const Row& row, std::uint32_t* out) {
    for (int lane = 0; lane < kLanes; ++lane)
        out[lane] = cut_to_f32(row.total[lane], mantissa_bits);
}

EMU_VECTOR void finish_f16(const Row& row, std::uint32_t* out) {
    for (int lane = 0; lane < kLanes; ++lane) {
        const std::uint32_t code = narrow<kF16>(row.total[lane]);
        out[lane] = code == 0x8000 ? 0 : code;
    }
}

void plain_row(const Factor& a, int i, const Factor& b, int j, int count, const std::uint32_t* c,
               std::uint32_t* d, bool half) {
    float sum[kLanes];
    for (int lane = 0; lane < count; ++lane)
        sum[lane] = c == nullptr ? 0 : half ? widen<kF16>(c[lane]) : std::bit_cast<float>(c[lane]);
    for (int k = 0; k < a.depth(); ++k) {
        const float x = a.values(k)[i];
        const float* y = b.values(k) + j;
        for (int lane = 0; lane < count; ++lane)
            sum[lane] += x * y[lane];
    }
    for (int lane = 0; lane < count; ++lane)
        d[lane] = half ? narrow<kF16>(sum[lane]) : narrow<kF32>(sum[lane]);
}

// Every product and every sum of them is an integer below 2^24, exact in float.
void integer_row(const Factor& a, int i, const Factor& b, int j, int count, const std::uint32_t* c,
                 std::uint32_t* d, bool satfinite) {
    float sum[kLanes] = {};
    for (int k = 0; k < a.depth(); ++k) {
        const float x = a.values(k)[i];
        const float* y = b.values(k) + j;
        for (int lane = 0; lane < count; ++lane)
            sum[lane] += x * y[lane];
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
void for_each_strip(const Factor& a, const Factor& b, F&& strip) {
    for (int i = 0; i < a.lines(); ++i)
        for (int j = 0; j < b.lines(); j += kLanes)
            strip(i, j, std::min(kLanes, b.lines() - j));
}

void require_legal(const Factor& a, const Factor& b, Accumulator accumulator) {
    const bool alike = a.type() == b.type() || (is_fp8(a.type()) && is_fp8(b.type())) ||
                       (is_integer(a.type()) && is_integer(b.type()));
    const bool half = a.type() == Element::f16 || is_fp8(a.type());
    const bool fits = is_integer(a.type())
                          ? accumulator == Accumulator::s32
                          : accumulator == Accumulator::f32 || (accumulator == Accumulator::f16 && half);
    if (!alike || !fits)
        throw std::invalid_argument("multiply_add: no wgmma combines these operand and result types");
    if (a.depth() != b.depth()) throw std::invalid_argument("multiply_add: A and B must have the same depth");
}

}  // namespace

FusedRule hopper_rule(Element a) {
    return is_fp8(a) ? FusedRule{13, 13} : FusedRule{25, 23};
}

Factor::Factor(Element type, int lines, int depth)
    : type_(type),
      lines_(lines),
      depth_(depth),
      stride_(static_cast<std::size_t>((lines + kLanes - 1) / kLanes * kLanes)) {
    if (lines < 1 || depth < 1 || depth > (is_integer(type) ? 256 : 32))
        throw std::invalid_argument("Factor: needs lines >= 1 and depth 1 to 32, integers to 256");
    const std::size_t size = stride_ * static_cast<std::size_t>(depth);
    value_.resize(size);
    significand_.resize(size);
    exponent_.resize(size, kZeroExponent);
    finite_.resize(static_cast<std::size_t>(lines), 1);
}

template <typename Code>
void Factor::load(const Code* codes, int line_stride, int k_stride, bool negate) {
    std::vector<std::uint32_t> raw(value_.size());
    for (int k = 0; k < depth_; ++k)
        for (int line = 0; line < lines_; ++line)
            raw[at(k) + static_cast<std::size_t>(line)] = codes[line * line_stride + k * k_stride];
    if (is_integer(type_)) {
        for (std::size_t place = 0; place < raw.size(); ++place)
            value_[place] = type_ == Element::s8 ? static_cast<float>(static_cast<std::int8_t>(raw[place]))
                                                 : static_cast<float>(static_cast<std::uint8_t>(raw[place]));
        return;
    }
    std::vector<std::uint8_t> finite(raw.size());
    take_apart(format_of(type_), raw.data(), static_cast<int>(raw.size()), negate,
               {value_.data(), significand_.data(), exponent_.data(), finite.data()});
    for (int line = 0; line < lines_; ++line)
        finite_[static_cast<std::size_t>(line)] = 1;
    for (int k = 0; k < depth_; ++k)
        for (int line = 0; line < lines_; ++line)
            finite_[static_cast<std::size_t>(line)] &= finite[at(k) + static_cast<std::size_t>(line)];
}
template void Factor::load(const std::uint8_t*, int, int, bool);
template void Factor::load(const std::uint16_t*, int, int, bool);
template void Factor::load(const std::uint32_t*, int, int, bool);

void fused_multiply_add(const Factor& a, const Factor& b, const std::uint32_t* c, std::uint32_t* d,
                        Accumulator accumulator, FusedRule rule) {
    const bool half = accumulator == Accumulator::f16;
    const Format& format = half ? kF16 : kF32;
    for_each_strip(a, b, [&](int i, int j, int count) {
        const std::ptrdiff_t first = static_cast<std::ptrdiff_t>(i) * b.lines() + j;
        std::uint32_t codes[kLanes] = {}, out[kLanes];
        Row row;
        if (c != nullptr) std::copy_n(c + first, count, codes);
        take_apart(format, codes, kLanes, false, {row.addend, row.significand, row.exponent, row.finite});
        sum_products(a, i, b, j, rule.fraction_bits, row);
        add_addend(rule.fraction_bits, row);
        half ? finish_f16(row, out) : finish_f32(rule.mantissa_bits, row, out);
        for (int lane = 0; lane < count; ++lane) {
            const bool finite = a.finite(i) && b.finite(j + lane) && row.finite[lane] != 0;
            d[first + lane] = finite ? out[lane] : special_sum(a, i, b, j + lane, row.addend[lane], format);
        }
    });
}

void multiply_add(const Factor& a, const Factor& b, const std::uint32_t* c, std::uint32_t* d,
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
            plain_row(a, i, b, j, count, from, d + first, options.accumulator == Accumulator::f16);
    });
}

}  // namespace emu
