// The box of a tensor copy in both memories: found, checked, and told as regions.
#pragma once

#include <vector>

#include "exec/tensor_operand.hpp"
#include "units/async_queue.hpp"

namespace emu {

// The bytes that a copy moves; `offsets`: operands of an im2col load, or null.
[[nodiscard]] tma::Box box_of(Warp& w, const Instruction& i, int lane, const TensorOperand& t,
                              const Operand* offsets, u32 shared, tma::Clip clip);
// Resolves the box's place in shared memory; gives its offset in its CTA.
[[nodiscard]] u32 shared_place(Warp& w, const Instruction& i, int lane, Space space, u64 address,
                               const TensorOperand& t, Warp::Access access);
// Traps where the part inside the tensor is not in a buffer, or is to be written and may not be.
void check_global(Warp& w, const Instruction& i, int lane, const tma::Box& box, bool write);
// The longest contiguous stretches; of shared memory with the filled ones, or without.
[[nodiscard]] std::vector<Region> global_regions(const tma::Box& box);
[[nodiscard]] std::vector<Region> shared_regions(const tma::Box& box, u32 rank, bool outside_too);

}  // namespace emu
