// What linear and tensor bulk copies have in common.
#pragma once

#include <vector>

#include "exec/mbarrier.hpp"

namespace emu {

// The mbarrier operand of a copy whose destination is `data`: it must lie in the same CTA.
[[nodiscard]] MbarrierRef barrier_beside(Warp& w, const Instruction& i, int lane, const Operand& data,
                                         const Operand& barrier);
// The CTAs that a copy goes to, as a mask of ranks: those of the mask operand, or the one of the destination.
// All of them are in the cluster and have not exited.
[[nodiscard]] u32 targets_of(Warp& w, const Instruction& i, int lane, u64 destination, const Operand* mask);
// Traps where the bytes that a copy will write hold an mbarrier in use.
void check_target(Warp& w, const Instruction& i, int lane, Cta& target, u32 offset, u32 bytes);
// Traps where the CTA has no mbarrier at the offset that a copy will signal.
void check_signalled(Warp& w, const Instruction& i, int lane, Cta& target, u32 barrier);
// A copy of `bytes` bytes cut into the parts that it comes in, at multiples of 16.
struct Slice {
    u32 begin, bytes;
};
[[nodiscard]] std::vector<Slice> slices(Cluster& cluster, u32 bytes);
// The positive multiple of 16 that a linear copy moves.
[[nodiscard]] u32 bulk_size(Warp& w, const Instruction& i, int lane, const Operand& o);

}  // namespace emu
