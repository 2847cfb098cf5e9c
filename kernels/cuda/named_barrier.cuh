// Named barriers: sixteen barriers a CTA on which some of its warps meet while the others work on.
//
// Barrier 0 is __syncthreads(). A phase ends when `threads` threads have come; all that come to one phase
// must name the same number. Whole warps come together.
#pragma once

#include "base.cuh"

namespace mla {

// Come and wait; orders memory among the threads that meet. Whole warps.
// section: bar / barrier; from sm_20
__device__ __forceinline__ void bar_sync(uint32_t id, uint32_t threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Come without waiting: for producers, whose consumers bar_sync on the same barrier. Whole warps.
// section: bar / barrier; from sm_20
__device__ __forceinline__ void bar_arrive(uint32_t id, uint32_t threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// As bar_sync, for code in which the lanes of a warp may have taken different branches. Not mixed with it
// on one phase.
// section: bar / barrier; from sm_70
__device__ __forceinline__ void barrier_sync(uint32_t id, uint32_t threads) {
    asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

}  // namespace mla
