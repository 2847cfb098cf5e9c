// Read-modify-write functions: new value from the old one and one or two operands, on raw bits.
#pragma once

#include "exec/lanes.hpp"

namespace emu {

template <class S>
using Rmw = S (*)(S old, S a, S b);

// The function for atom/red.OP.TYPE as bits of a function pointer for stored type u16, u32, u64 or u128 by
// the type's width. `flush`: f32 additions in global memory treat subnormals as zero.
[[nodiscard]] u64 rmw_function(Mod op, Type type, bool flush);
// The same for bulk reductions: an H200 keeps subnormals there, and the bits of an f64 NaN.
[[nodiscard]] u64 bulk_function(Mod op, Type type);
// Applies it to memory that other host threads may touch as well.
u16 rmw_at(std::byte* p, Rmw<u16> f, u16 a, u16 b);
u32 rmw_at(std::byte* p, Rmw<u32> f, u32 a, u32 b);
u64 rmw_at(std::byte* p, Rmw<u64> f, u64 a, u64 b);

}  // namespace emu
