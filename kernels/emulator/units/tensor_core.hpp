// What one tensor-core instruction computes: D = A·B + C for a tile, with the arithmetic of the silicon.
//
// Each output is one fused dot product over the whole K of the instruction and the addend C:
//   1. every product is exact: significands multiply, exponents add; nothing is normalised;
//   2. all terms are aligned to the largest exponent among them (at least -133) and cut, toward zero, after F
//   bits;
//   3. the cut terms add without further loss, so the order of the terms does not matter;
//   4. the sum is normalised and cut to the result's mantissa (f32), or rounded to nearest even (f16); a zero
//   is +0.
// F and the result's mantissa depend on the input type: `hopper_rule`. Measured on an H200: docs/numerics.md.
//
// A factor is taken apart once and may be used in many instructions. A b1 product with `.and` is one of u8
// with depth 256. Left out on purpose: sparsity.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace emu {

enum class Element : std::uint8_t { f16, bf16, tf32, e4m3, e5m2, s8, u8 };
enum class Accumulator : std::uint8_t { f32, f16, s32 };
enum class Arithmetic : std::uint8_t {
    silicon,  // as described above
    plain,    // float products and sums in the order of k: quicker to reason about, and not what a GPU gives
};

struct FusedRule {
    int fraction_bits;  // F, counted below the largest exponent
    int mantissa_bits;  // of an f32 result: 23, or fewer where the silicon delivers fewer
};
[[nodiscard]] FusedRule hopper_rule(Element a);

[[nodiscard]] constexpr bool is_integer(Element type) {
    return type == Element::s8 || type == Element::u8;
}

// One input matrix, taken apart: `lines` rows of A or columns of B, `depth` elements each. Arrays are
// [k][line].
class Factor {
  public:
    Factor(Element type, int lines, int depth);

    // Element (line, k) is codes[line * line_stride + k * k_stride]; the low bits of Code hold it (tf32: 32
    // bits, of which the low 13 are ignored). `negate` is the instruction's imm-scale of -1.
    template <typename Code>
    void load(const Code* codes, int line_stride, int k_stride, bool negate = false);

    [[nodiscard]] Element type() const { return type_; }
    [[nodiscard]] int lines() const { return lines_; }
    [[nodiscard]] int depth() const { return depth_; }
    [[nodiscard]] const float* values(int k) const { return &value_[at(k)]; }
    [[nodiscard]] const float* significands(int k) const { return &significand_[at(k)]; }
    [[nodiscard]] const std::int32_t* exponents(int k) const { return &exponent_[at(k)]; }
    [[nodiscard]] bool finite(int line) const { return finite_[static_cast<std::size_t>(line)] != 0; }

  private:
    [[nodiscard]] std::size_t at(int k) const { return static_cast<std::size_t>(k) * stride_; }

    Element type_;
    int lines_, depth_;
    std::size_t stride_;              // lines, and zeros up to a multiple of the vector loops' width
    std::vector<float> value_;        // the number itself; integers too (all are exact)
    std::vector<float> significand_;  // ±[1, 2), below 1 for subnormal codes, ±0 for zero
    std::vector<std::int32_t>
        exponent_;  // the smallest normal exponent for subnormal codes, kZeroExponent for zero
    std::vector<std::uint8_t> finite_;  // per line
};

struct MmaOptions {
    Accumulator accumulator = Accumulator::f32;
    Arithmetic arithmetic = Arithmetic::silicon;
    bool satfinite = false;  // integers: clamp the sum to s32 instead of wrapping
};

// d[i * n + j] = sum over k of A(i, k) · B(j, k) + c[i * n + j] for m = a.lines(), n = b.lines(). Entries are
// f32 bits, an f16 code in the low half, or an s32. c == nullptr means that the instruction reads no addend
// (scale-d is false); c may be d. Throws std::invalid_argument for operands that no `wgmma` combines.
void multiply_add(const Factor& a, const Factor& b, const std::uint32_t* c, std::uint32_t* d,
                  const MmaOptions& options);

// The fused sum under another rule: other machines, and experiments. fraction_bits + log2(4 · depth) <= 31.
void fused_multiply_add(const Factor& a, const Factor& b, const std::uint32_t* c, std::uint32_t* d,
                        Accumulator accumulator, FusedRule rule);

}  // namespace emu
