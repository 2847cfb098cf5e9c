// One-lane arithmetic by PTX opcode: what tests call from Python and what a GPU is compared with.
#pragma once

#include <cstdint>
#include <span>

namespace emu {

struct ScalarOp {
    const char* opcode;
    int result_bits;
    int operand_bits[3];  // 0: no such operand
    std::uint64_t (*run)(std::uint64_t a, std::uint64_t b, std::uint64_t c);
};

[[nodiscard]] std::span<const ScalarOp> scalar_ops();

}  // namespace emu
