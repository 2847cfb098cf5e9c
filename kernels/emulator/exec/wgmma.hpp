// A wgmma's form, as its Instruction keeps it.
#pragma once

#include <memory>
#include <tuple>
#include <vector>

#include "exec/lanes.hpp"
#include "units/matrix_descriptor.hpp"
#include "units/tensor_core.hpp"

namespace emu {

struct WgmmaForm {
    enum Flag : u8 {
        a_in_registers = 1,
        transpose_a = 2,
        transpose_b = 4,
        negate_a = 8,
        negate_b = 16,
        satfinite = 32,
        single_bits = 64,
    };
    u16 n;
    Element a, b;
    Accumulator d;
    u8 flags;
    u8 unused[2];

    [[nodiscard]] bool has(Flag flag) const { return (flags & flag) != 0; }
    void add(Flag flag) { flags = static_cast<u8>(flags | flag); }
    [[nodiscard]] u32 registers() const { return d == Accumulator::f16 ? n / 4u : n / 2u; }  // of D, a thread
};
static_assert(sizeof(WgmmaForm) == sizeof(Instruction::aux));

[[nodiscard]] u32 element_bytes(Element type);

// The lanes of a warp come to a matrix instruction together: false where some are still under way, for which
// the split then waits. Traps where the warp is not whole.
[[nodiscard]] bool whole_warp(Warp& w, const Instruction& i, u32 mask);

// The B that a multiply of this CTA took apart last.
struct TakenApart {
    using Key = std::tuple<Element, u16, bool, bool, bool>;
    Key key;
    std::vector<std::byte> raw;
    std::unique_ptr<Factor> factor;
};

}  // namespace emu
