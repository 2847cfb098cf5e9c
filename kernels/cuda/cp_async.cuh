// cp.async: copies from global to shared memory of which each thread asks for a few bytes at a time, without
// holding a register until they come.
//
// Their end is an arrival at an mbarrier: cp_async_mbarrier_arrive_noinc (mbarrier.cuh). They write like
// ordinary stores: readers of the async proxy need fence_proxy_async_shared_cta() after the wait.
#pragma once

#include "base.cuh"

namespace mla {

// Copy 16 bytes past the L1 cache, or store zeros where `there` is false; `source` is not read then. Both
// addresses are multiples of 16. Any thread.
// section: cp.async (.cg, src-size); from sm_80
__device__ __forceinline__ void cp_async_cg_16(void* target, const void* source, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(smem_address(target)),
                 "l"(__cvta_generic_to_global(source)), "r"(there ? 16 : 0)
                 : "memory");
}

}  // namespace mla
