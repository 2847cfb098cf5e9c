// mma.sync and movmatrix: matrices in the registers of one warp. A row of A or a column of B has 16 or 32
// bytes whatever its type; register r of lane l holds four of them, and of f64 one element.
#include <algorithm>
#include <cstring>

#include "exec/wgmma.hpp"
#include "units/exact.hpp"
#include "units/formats.hpp"

namespace emu {
namespace {

enum class Input : u8 { f16, bf16, tf32, e4m3, e5m2, s8, u8, s4, u4, b1, f64 };

struct MmaForm {
    enum Flag : u8 { satfinite = 1, exclusive_or = 2, half_result = 4 };
    u16 k;
    u8 m;
    Input a, b;
    u8 flags;
    exact::Round round;
    u8 unused;

    [[nodiscard]] bool has(Flag flag) const { return (flags & flag) != 0; }
    void add(Flag flag) { flags = static_cast<u8>(flags | flag); }
};
static_assert(sizeof(MmaForm) == sizeof(Instruction::aux));

int bits_of_input(Input kind) {
    switch (kind) {
        case Input::f64:
            return 64;
        case Input::tf32:
            return 32;
        case Input::f16:
        case Input::bf16:
            return 16;
        case Input::s4:
        case Input::u4:
            return 4;
        case Input::b1:
            return 1;
        default:
            return 8;
    }
}
bool is_fp8(Input kind) {
    return kind == Input::e4m3 || kind == Input::e5m2;
}
Element element_of(Input kind) {
    switch (kind) {
        case Input::bf16:
            return Element::bf16;
        case Input::tf32:
            return Element::tf32;
        case Input::s8:
        case Input::s4:
            return Element::s8;
        case Input::u8:
        case Input::u4:
            return Element::u8;
        default:
            return Element::f16;  // FP8 too: the unit gets it widened
    }
}

// Rows of A, or columns of B, as their bytes.
struct Lines {
    u32 count, bytes;  // bytes of a line
    std::vector<u8> raw;

    // One register's four bytes for each lane. A of 16 lines alternates between the upper and the lower
    // eight.
    Lines(Warp& w, const Operand* registers, u32 count, u32 bytes)
        : count(count), bytes(bytes), raw(count * bytes) {
        const u32 halves = count / 8;
        for (u32 r = 0; r < halves * bytes / 16; ++r)
            for (u32 l = 0; l < 32; ++l)
                std::memcpy(&raw[(l / 4 + r % halves * 8) * bytes + l % 4 * 4 + r / halves * 16],
                            w.in<u32>(registers[r]) + l, 4);
    }
    [[nodiscard]] u32 code(u32 line, u32 k, int width) const {
        const u8* at = &raw[line * bytes];
        switch (width) {
            case 4:
                return at[k / 2] >> 4 * (k % 2) & 15;
            case 8:
                return at[k];
            case 16:
                return at[2 * k] | u32{at[2 * k + 1]} << 8;
            default: {
                u32 word;
                std::memcpy(&word, at + 4 * k, 4);
                return word;
            }
        }
    }
};

u32 widened(Input kind, u32 code) {
    switch (kind) {
        case Input::e4m3:
            return narrow<kF16>(widen<kE4M3>(code));
        case Input::e5m2:
            return narrow<kF16>(widen<kE5M2>(code));
        case Input::s4:
            return static_cast<u32>(static_cast<s32>(code << 28) >> 28);
        default:
            return code;
    }
}

// Elements k of every line for which `take(k)`.
template <class Take>
Factor factor(const Lines& lines, Input kind, u32 depth, Take take) {
    const int width = bits_of_input(kind);
    std::vector<u32> codes;
    for (u32 line = 0; line < lines.count; ++line)
        for (u32 k = 0; k < depth; ++k)
            if (take(k)) codes.push_back(widened(kind, lines.code(line, k, width)));
    const int taken = static_cast<int>(codes.size() / lines.count);
    Factor out(element_of(kind), static_cast<int>(lines.count), taken);
    out.load(codes.data(), taken, 1);
    return out;
}

// sm_90 has no FP8 mma.sync: ptxas widens to f16, multiplies the elements with k % 4 < 2, then the others,
// and adds C last.
void multiply_fp8(const MmaForm& f, const Lines& a, const Lines& b, const u32* c, u32* d) {
    const bool half = f.has(MmaForm::half_result);
    const MmaOptions options{half ? Accumulator::f16 : Accumulator::f32};
    std::vector<u32> sum(f.m * 8u);
    for (const u32 pass : {0u, 2u}) {
        const auto take = [=](u32 k) { return (k & 2) == pass; };
        multiply_add(factor(a, f.a, f.k, take), factor(b, f.b, f.k, take), pass == 0 ? nullptr : sum.data(),
                     sum.data(), options);
    }
    for (std::size_t n = 0; n < sum.size(); ++n) {
        if (half) {
            d[n] = narrow<kF16>(double{widen<kF16>(c[n])} + double{widen<kF16>(sum[n])});
        } else {
            const float total = std::bit_cast<float>(c[n]) + std::bit_cast<float>(sum[n]);
            d[n] = total != total ? kF32.nan : std::bit_cast<u32>(total);
        }
    }
}

void multiply_bits(const MmaForm& f, const Lines& a, const Lines& b, const u32* c, u32* d) {
    for (u32 row = 0; row < f.m; ++row)
        for (u32 column = 0; column < 8; ++column) {
            u32 count = 0;
            for (u32 n = 0; n < a.bytes; ++n) {
                const u8 x = a.raw[row * a.bytes + n], y = b.raw[column * b.bytes + n];
                count += static_cast<u32>(
                    std::popcount(static_cast<u8>(f.has(MmaForm::exclusive_or) ? x ^ y : x & y)));
            }
            d[row * 8 + column] = c[row * 8 + column] + count;
        }
}

// Calls f(row, column, register, lane, half) for every element of D.
template <class F>
void each_result(u32 m, bool half, F f) {
    for (u32 v = 0; v < m / 4; ++v)
        for (u32 l = 0; l < 32; ++l)
            f(l / 4 + v / 2 * 8, l % 4 * 2 + v % 2, half ? v / 2 : v, l, half ? v % 2 : 0);
}

Step mma(Warp& w, const Instruction& i, u32 mask) {  // ops: d…, a…, b…, c…
    if (!whole_warp(w, i, mask)) return Step::park;
    const auto f = std::bit_cast<MmaForm>(i.aux);
    const u32 bytes = f.k * static_cast<u32>(bits_of_input(f.a)) / 8;
    const bool half = f.has(MmaForm::half_result);
    const u32 results = half ? 2 : f.m / 4u, of_a = f.m / 8u * bytes / 16, of_b = bytes / 16;
    const Operand *const a_registers = i.op + results, *const b_registers = a_registers + of_a,
                         *const c_registers = b_registers + of_b;
    const Lines a(w, a_registers, f.m, bytes), b(w, b_registers, 8, bytes);
    std::vector<u32> tile(f.m * 8u);
    each_result(f.m, half, [&](u32 row, u32 column, u32 r, u32 l, u32 h) {
        const u32 word = w.in<u32>(c_registers[r])[l];
        tile[row * 8 + column] = half ? word >> 16 * h & 0xffff : word;
    });
    if (f.a == Input::b1) {
        multiply_bits(f, a, b, tile.data(), tile.data());
    } else if (is_fp8(f.a)) {
        multiply_fp8(f, a, b, tile.data(), tile.data());
    } else {
        const auto all = [](u32) { return true; };
        const Accumulator d = half                          ? Accumulator::f16
                              : is_integer(element_of(f.a)) ? Accumulator::s32
                                                            : Accumulator::f32;
        multiply_add(factor(a, f.a, f.k, all), factor(b, f.b, f.k, all), tile.data(), tile.data(),
                     {d, Arithmetic::silicon, f.has(MmaForm::satfinite)});
    }
    each_result(f.m, half, [&](u32 row, u32 column, u32 r, u32 l, u32 h) {
        u32& word = w.out<u32>(i.op[r])[l];
        const u32 value = tile[row * 8 + column];
        word = half ? (word & (h != 0 ? 0xffffu : 0xffff0000u)) | value << 16 * h : value;
    });
    return Step::next;
}

// f64 keeps a NaN's payload, quieted: of several the one of B, then of the sum so far, then of A, as fma
// does.
u64 multiply_add_f64(u64 x, u64 y, u64 sum, exact::Round round) {
    using namespace exact;
    const Value total = exact::add(mul(decode(x, kF64), decode(y, kF64)), decode(sum, kF64), round);
    if (total.kind != Value::Kind::nan) return encode(total, kF64, round);
    for (const u64 operand : {y, sum, x})
        if (decode(operand, kF64).kind == Value::Kind::nan) return operand | u64{1} << 51;
    return 0xfff8000000000000ull;
}

// f64: a chain of fused multiply-adds in the order of k.
Step mma_f64(Warp& w, const Instruction& i, u32 mask) {
    if (!whole_warp(w, i, mask)) return Step::park;
    const auto f = std::bit_cast<MmaForm>(i.aux);
    const u32 halves = f.m / 8u, results = 2 * halves;
    const Operand *const a = i.op + results, *const b = a + halves * f.k / 4, *const c = b + f.k / 4u;
    std::vector<u64> d(results * 32);
    each_result(f.m, false, [&](u32 row, u32 column, u32 r, u32 l, u32) {
        u64 sum = w.in<u64>(c[r])[l];
        for (u32 k = 0; k < f.k; ++k)
            sum = multiply_add_f64(w.in<u64>(a[row / 8 + halves * (k / 4)])[row % 8 * 4 + k % 4],
                                   w.in<u64>(b[k / 4])[column * 4 + k % 4], sum, f.round);
        d[r * 32 + l] = sum;
    });
    for (u32 r = 0; r < results; ++r)
        std::memcpy(w.out<u64>(i.op[r]), &d[r * 32], 256);
    return Step::next;
}

// movmatrix: an 8 x 8 matrix of 16-bit elements, transposed.
Step movmatrix(Warp& w, const Instruction& i, u32 mask) {
    if (!whole_warp(w, i, mask)) return Step::park;
    u32 from[32];
    std::memcpy(from, w.in<u32>(i.op[1]), sizeof from);
    const auto element = [&](u32 row, u32 column) {
        return from[row * 4 + column / 2] >> 16 * (column % 2) & 0xffff;
    };
    u32* const d = w.out<u32>(i.op[0]);
    for (u32 l = 0; l < 32; ++l)
        d[l] = element(l % 4 * 2, l / 4) | element(l % 4 * 2 + 1, l / 4) << 16;
    return Step::next;
}

exact::Round round_of(const Choice& c) {
    switch (c.one_of({Mod::rz, Mod::rm, Mod::rp}, Mod::rn)) {
        case Mod::rz:
            return exact::Round::zero;
        case Mod::rm:
            return exact::Round::down;
        case Mod::rp:
            return exact::Round::up;
        default:
            return exact::Round::nearest_even;
    }
}

}  // namespace

void select_mma(const Choice& c, Instruction& i) {
    static constexpr std::pair<Mod, Input> kKinds[] = {
        {Mod::f16, Input::f16},   {Mod::bf16, Input::bf16}, {Mod::tf32, Input::tf32},
        {Mod::e4m3, Input::e4m3}, {Mod::e5m2, Input::e5m2}, {Mod::s8, Input::s8},
        {Mod::u8, Input::u8},     {Mod::s4, Input::s4},     {Mod::u4, Input::u4},
        {Mod::b1, Input::b1},     {Mod::f64, Input::f64}};
    const Shape shape = shape_of(c);
    MmaForm f{};
    f.m = static_cast<u8>(shape.m), f.k = static_cast<u16>(shape.k), f.round = round_of(c);
    // The types stand in the order D, A, B, C.
    std::vector<Mod> types;
    for (const Mod mod : c.mods())
        if (mod == Mod::f32 || mod == Mod::s32 ||
            std::ranges::any_of(kKinds, [=](const auto& known) { return known.first == mod; }))
            types.push_back(mod);
    const auto kind = [&](Mod mod) {
        return std::ranges::find_if(kKinds, [=](const auto& known) { return known.first == mod; })->second;
    };
    f.a = kind(types[1]), f.b = kind(types[2]);
    if (c.has(Mod::satfinite)) f.add(MmaForm::satfinite);
    if (c.has(Mod::xor_)) f.add(MmaForm::exclusive_or);
    if (types[0] == Mod::f16) f.add(MmaForm::half_result);
    i.aux = std::bit_cast<u64>(f);
    i.run = f.a == Input::f64 ? mma_f64 : mma;
}
void select_movmatrix(const Choice&, Instruction& i) {
    i.run = movmatrix;
}

}  // namespace emu
