// The operand [map, {coordinates}] of a tensor copy: a tensor map where it lies, and the place in its tensor.
#pragma once

#include "exec/lanes.hpp"
#include "units/tma.hpp"

namespace emu {

// The 128 bytes of a map at a lane's address, which must be in parameters, constants or global memory, hold a
// tensor map, and be acquired if the device has changed them.
[[nodiscard]] tensor_map::TensorMap map_at(Warp& w, const Instruction& i, int lane, u64 address);

// Operands `first` (the map) to first + rank (coordinates).
struct TensorOperand {
    tensor_map::TensorMap map;
    tma::Coordinates at{};
};
enum class TensorAccess : u8 { load, store };
constexpr u64 kIm2col = u64{1} << 32;  // in `aux`: the instruction is of the im2col mode
[[nodiscard]] TensorOperand tensor_operand(Warp& w, const Instruction& i, int lane, const Operand* first,
                                           u32 rank, TensorAccess access);

}  // namespace emu
