// Clusters: CTAs that run at the same time on neighbouring SMs and reach into each other's shared memory.
//
// A shared address names the CTA in its upper bits (its rank in the cluster) and the offset below, so the
// address of the same variable in another CTA differs in the rank alone; `mapa` replaces it.
#pragma once

#include "base.cuh"

namespace mla {

// This CTA's rank in its cluster, 0 up. Any thread.
// section: %cluster_ctarank; from sm_90
__device__ __forceinline__ uint32_t cluster_ctarank() {
    uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// CTAs in this cluster. Any thread.
// section: %cluster_nctarank; from sm_90
__device__ __forceinline__ uint32_t cluster_nctarank() {
    uint32_t count;
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(count));
    return count;
}

// Announce that this thread has reached the cluster's barrier; releases what it wrote. Every thread of the
// cluster, once a phase, whole warps together. Between arrive and wait a thread may do other work.
// section: barrier.cluster.arrive; from sm_90
__device__ __forceinline__ void barrier_cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

// As barrier_cluster_arrive without releasing: for arrivals that publish nothing, or after a fence.
__device__ __forceinline__ void barrier_cluster_arrive_relaxed() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

// Wait until every thread of the cluster has arrived; acquires what they released. Whole warps together.
// section: barrier.cluster.wait; from sm_90
__device__ __forceinline__ void barrier_cluster_wait() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Meet all threads of the cluster. Also needed before the first access to another CTA's shared memory (it may
// not have started) and after the last one (it may end, and its shared memory with it).
__device__ __forceinline__ void cluster_sync() {
    barrier_cluster_arrive();
    barrier_cluster_wait();
}

// The address of the same shared variable in the CTA of rank `rank`. Any thread.
// section: mapa; from sm_90
__device__ __forceinline__ uint32_t mapa(uint32_t address, uint32_t rank) {
    uint32_t there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}

// Load from the shared memory of any CTA in the cluster (address from mapa). Any thread.
// section: ld (.shared::cluster); from sm_90
__device__ __forceinline__ uint32_t ld_shared_cluster_u32(uint32_t address) {
    uint32_t value;
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
    return value;
}
__device__ __forceinline__ float ld_shared_cluster_f32(uint32_t address) {
    float value;
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
    return value;
}

// Store to the shared memory of any CTA in the cluster (address from mapa). Any thread.
// section: st (.shared::cluster); from sm_90
__device__ __forceinline__ void st_shared_cluster_u32(uint32_t address, uint32_t value) {
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}
__device__ __forceinline__ void st_shared_cluster_f32(uint32_t address, float value) {
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}

// Store without waiting; the bytes are counted at `barrier` when they have landed. Both addresses come from
// mapa and name the same CTA. Any thread.
// section: st.async; from sm_90
__device__ __forceinline__ void st_async_u32(uint32_t address, uint32_t value, uint32_t barrier) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(address),
                 "r"(value), "r"(barrier)
                 : "memory");
}
__device__ __forceinline__ void st_async_v4_u32(uint32_t address, const uint32_t (&value)[4],
                                                uint32_t barrier) {
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.u32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
            address),
        "r"(value[0]), "r"(value[1]), "r"(value[2]), "r"(value[3]), "r"(barrier)
        : "memory");
}

// Add to a 32-bit counter in another CTA without waiting; 4 bytes are counted at `barrier`. Any thread.
// section: red.async; from sm_90
__device__ __forceinline__ void red_async_add_u32(uint32_t address, uint32_t value, uint32_t barrier) {
    asm volatile(
        "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%0], %1, [%2];" ::
            "r"(address),
        "r"(value), "r"(barrier)
        : "memory");
}

}  // namespace mla
