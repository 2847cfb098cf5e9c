// Instructions on their way from names to numbers: operands refer to virtual registers, branches to labels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/instruction.hpp"

namespace emu {

// Banks of an operand before registers are numbered.
constexpr std::uint8_t kBankRegisters = 0, kBankConstants = 1, kBankVirtual = 2, kBankWarpConstant = 3;

struct Draft {
    Instruction ins = {};
    std::vector<Operand> ops = {};
    std::vector<bool> dest = {};  // which operands are written
    Operand guard = {};           // bank kBankVirtual, or absent
    enum class Flow : std::uint8_t {
        none,
        branch,
        table,
        stop
    } flow = Flow::none;  // `target` is a label / a table
    // Its part in wgmma. Operands 0 … held - 1 of a multiply belong to it until a wait; those below `both`
    // are read as well as written. A move copies one 32-bit register to another.
    enum class Part : std::uint8_t { none, multiply, wait_for_all, move } part = Part::none;
    std::uint32_t held = 0, both = 0;
};

struct VirtualRegister {
    std::uint8_t bits;
};

// Marks the instructions that touch registers of wgmma, so that these are checked.
void watch_multiplies(Kernel& kernel, std::vector<Draft>& drafts, std::size_t registers);

// Numbers registers by liveness, so that a warp's registers stay in the cache: nvcc names thousands, few live
// at a time. `labels[l]` is the instruction that label l stands before. Fills offsets in `drafts`, and the
// kernel's register sizes.
void number_registers(Kernel& kernel, std::vector<Draft>& drafts,
                      const std::vector<VirtualRegister>& registers, const std::vector<std::uint32_t>& labels,
                      const std::vector<std::vector<std::uint32_t>>& tables);

}  // namespace emu
