// setmaxnreg: move registers between the warpgroups of a CTA while it runs.
//
// A kernel starts with the same number of registers for each thread. A warpgroup that only starts copies
// gives most of its own away, so that those that multiply can hold larger tiles.
#pragma once

#include "base.cuh"

namespace mla {

// Give registers away: from now on this warpgroup's threads have kRegisters each. All four warps of the
// warpgroup; without both numbers in the kernel's __launch_bounds__(threads, 1) it has no effect.
// section: setmaxnreg; from sm_90a
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_dec() {
    static_assert(kRegisters >= 24 && kRegisters <= 256 && kRegisters % 8 == 0,
                  "kRegisters: a multiple of 8 from 24 to 256");
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Take registers: waits until other warpgroups have given enough away. All four warps of the warpgroup.
// section: setmaxnreg; from sm_90a
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_inc() {
    static_assert(kRegisters >= 24 && kRegisters <= 256 && kRegisters % 8 == 0,
                  "kRegisters: a multiple of 8 from 24 to 256");
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace mla
