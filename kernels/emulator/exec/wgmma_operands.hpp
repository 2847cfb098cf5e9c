// What a wgmma is given: descriptors and scale-d that all threads agree on, and where its operands lie.
#pragma once

#include <string>
#include <vector>

#include "exec/lanes.hpp"

namespace emu {

[[nodiscard]] std::string hex(u64 value);

// Trap where the threads of the warp disagree; `what` is A or B.
[[nodiscard]] u64 descriptor(Warp& w, const Instruction& i, const Operand& o, const char* what);
[[nodiscard]] bool accumulates(Warp& w, const Instruction& i, const Operand& o);

// The addresses of the pieces of `lines` lines from `first` on (units/matrix_descriptor.hpp). Traps where the
// descriptor sets bits that must be zero, or where a piece lies outside of the CTA's shared memory.
[[nodiscard]] std::vector<u32> pieces(Warp& w, const Instruction& i, u64 descriptor, bool k_major, u32 first,
                                      u32 lines, const char* what);

// Adds the longest runs of contiguous bytes among the pieces.
void add_regions(const Cta& cta, std::vector<u32> addresses, std::vector<Region>& regions);

}  // namespace emu
