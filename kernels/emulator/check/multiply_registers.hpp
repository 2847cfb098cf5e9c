// Registers that wgmma uses belong to it from its issue until a wait_group covers it. Instructions that touch
// such registers at other times are known when a kernel is loaded (ptx/watch.cpp), and only those are
// watched.
#pragma once

#include "exec/lanes.hpp"

namespace emu {

// A multiply is about to be issued with op[0 … accumulators) as D and `fragments` registers behind them as A:
// traps where one of them is in use, or where a wgmma.fence is missing.
void check_multiply(Warp& w, const Instruction& i, u32 accumulators, u32 fragments);
// It has been issued.
void note_multiply(Warp& w, const Instruction& i, u64 number, u32 accumulators, u32 fragments);
// Runs a watched instruction after checking it.
Step run_watched(Warp& w, const Instruction& i, u32 mask);

}  // namespace emu
