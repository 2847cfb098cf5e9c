#pragma once

#include "exec/lanes.hpp"

namespace emu {

// `ret` of a function that is not inlined.
Step return_from_call(Warp& w, const Instruction& i, u32 mask);

}  // namespace emu
