// One arrival at an mbarrier for a whole warp.
//
// One lane arrives. It speaks for the others where __syncwarp(), or a barrier that all of them come to,
// stands between what they read or wrote and the arrival.
//
// Racecheck of compute-sanitizer does not follow that: to it an arrival orders the thread that arrives.
// Compiled with -DRACECHECK_ARRIVALS=32 every lane arrives, and nothing else is different
// (benchmarks/gpu/sanitizer.py).
#pragma once

#include "cluster.cuh"
#include "mbarrier.cuh"

#ifndef RACECHECK_ARRIVALS
#define RACECHECK_ARRIVALS 1
#endif

namespace mla {

// Arrivals of a warp: mbarrier_init counts so many for each.
constexpr uint32_t kWarpArrivals = RACECHECK_ARRIVALS;
static_assert(kWarpArrivals == 1 || kWarpArrivals == 32, "RACECHECK_ARRIVALS: one lane or all");

// Arrive. Whole warps; `lane` is the caller's.
__device__ __forceinline__ void mbarrier_arrive_warp(Mbarrier* barrier, uint32_t lane) {
    if (lane < kWarpArrivals) mbarrier_arrive(barrier);
}

// Arrive at the same barrier in both CTAs of a cluster, as mbarrier_arrive_remote does. Whole warps.
__device__ __forceinline__ void mbarrier_arrive_warp_pair(Mbarrier* barrier, uint32_t lane) {
    if constexpr (kWarpArrivals == 1) {
        if (lane < 2) mbarrier_arrive_remote(mapa(smem_address(barrier), lane));
    } else {
        mbarrier_arrive_remote(mapa(smem_address(barrier), 0));
        mbarrier_arrive_remote(mapa(smem_address(barrier), 1));
    }
}

}  // namespace mla
