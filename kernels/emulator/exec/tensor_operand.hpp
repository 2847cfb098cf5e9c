// The operand [map, {coordinates}] of a tensor copy: a tensor map where it lies, and the place in its tensor.
#pragma once

#include "exec/lanes.hpp"
#include "units/tma.hpp"

namespace emu {

// The 128 bytes of a map at a lane's address, which must be in parameters, constants or global memory, hold a
// tensor map, and be acquired if the device has changed them.
[[nodiscard]] tensor_map::TensorMap map_at(Warp& w, const Instruction& i, int lane, u64 address);

// Operand `first` (the map) and the `count` coordinates after it.
struct TensorOperand {
    tensor_map::TensorMap map;
    tma::Coordinates at{};
    u32 extent = 0;  // bytes from the box's first to its last in shared memory
};
enum class TensorAccess : u8 { load, store };
// In `aux`: the instruction is of the im2col mode; it has a column and four rows of a two-dimensional map.
constexpr u64 kIm2col = u64{1} << 32, kFourRows = u64{1} << 33;
[[nodiscard]] TensorOperand tensor_operand(Warp& w, const Instruction& i, int lane, const Operand* first,
                                           u32 count, TensorAccess access);

}  // namespace emu
