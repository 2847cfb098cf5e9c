// Register budgets of warpgroups.
#pragma once

#include "exec/lanes.hpp"

namespace emu {

// A warp is about to exit: traps where its warpgroup has executed a setmaxnreg that it has not.
void check_budgets(Warp& w, const Instruction& i);

}  // namespace emu
