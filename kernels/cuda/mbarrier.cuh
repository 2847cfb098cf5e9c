// mbarrier: a barrier in shared memory that counts arrivals of threads and bytes of asynchronous copies.
//
// A phase ends when as many arrivals as `mbarrier_init` asked for have come and every expected byte has
// landed. Phases alternate in parity, 0 first. `mbarrier_wait_parity(barrier, p)` returns once the phase of
// parity p is over: on a fresh barrier it returns at once for p = 1 and waits for p = 0.
#pragma once

#include "base.cuh"

namespace mla {

// The opaque 64 bits. Nothing but the functions below may touch them between init and inval.
struct alignas(8) Mbarrier {
    uint64_t opaque;
};
static_assert(sizeof(Mbarrier) == 8, "the hardware's object is 8 bytes");

// Start a barrier that waits for `arrivals` arrivals a phase (1 to 2^20 - 1). One thread, once; the others
// may use it after a barrier among the threads, TMA and other CTAs also need fence_mbarrier_init()
// (fence.cuh) in this thread.
// section: mbarrier.init; from sm_80
__device__ __forceinline__ void mbarrier_init(Mbarrier* barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_address(barrier)), "r"(arrivals)
                 : "memory");
}

// End the barrier's life, so that its bytes may be used for something else. One thread, when nobody waits
// on it.
// section: mbarrier.inval; from sm_80
__device__ __forceinline__ void mbarrier_inval(Mbarrier* barrier) {
    asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(smem_address(barrier)) : "memory");
}

// Arrive once. What this thread wrote before is visible to whoever waits for the phase (release). Any thread.
// section: mbarrier.arrive; from sm_80
__device__ __forceinline__ void mbarrier_arrive(Mbarrier* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(smem_address(barrier)) : "memory");
}

// Arrive `count` times at once. Any thread.
// section: mbarrier.arrive; `count` with `_` from sm_90
__device__ __forceinline__ void mbarrier_arrive(Mbarrier* barrier, uint32_t count) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(smem_address(barrier)), "r"(count)
                 : "memory");
}

// Arrive, and never be counted again: later phases wait for one arrival fewer. Any thread.
// section: mbarrier.arrive_drop; from sm_90 with `_`
__device__ __forceinline__ void mbarrier_arrive_drop(Mbarrier* barrier) {
    asm volatile("mbarrier.arrive_drop.shared::cta.b64 _, [%0];" ::"r"(smem_address(barrier)) : "memory");
}

// Expect `bytes` more in this phase, then arrive once. The thread that issues the copies, before or after
// them.
// section: mbarrier.arrive (.expect_tx); from sm_90
__device__ __forceinline__ void mbarrier_arrive_expect_tx(Mbarrier* barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_address(barrier)),
                 "r"(bytes)
                 : "memory");
}

// Expect `bytes` more in this phase without arriving. Any thread.
// section: mbarrier.expect_tx; from sm_90
__device__ __forceinline__ void mbarrier_expect_tx(Mbarrier* barrier, uint32_t bytes) {
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(smem_address(barrier)),
                 "r"(bytes)
                 : "memory");
}

// Count `bytes` as landed, as a copy would; for copies that are skipped. `barrier` is an address of
// smem_address or mapa, so it may lie in another CTA of the cluster. Any thread.
// section: mbarrier.complete_tx; from sm_90
__device__ __forceinline__ void mbarrier_complete_tx(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%0], %1;" ::"r"(barrier),
                 "r"(bytes)
                 : "memory");
}

// Arrive once at a barrier of any CTA in the cluster (address from mapa); releases at cluster scope. Any
// thread.
// section: mbarrier.arrive; from sm_90
__device__ __forceinline__ void mbarrier_arrive_cluster(uint32_t barrier) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrive once at a barrier of any CTA in the cluster (address from mapa), releasing no further than this CTA:
// for arrivals that only say that reading has ended. Costs none of the fence that mbarrier_arrive_cluster
// brings. Any thread. section: mbarrier.arrive; from sm_90
__device__ __forceinline__ void mbarrier_arrive_remote(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Expect `bytes` at a barrier of any CTA in the cluster, then arrive there once. Any thread.
// section: mbarrier.arrive (.expect_tx); from sm_90
__device__ __forceinline__ void mbarrier_arrive_expect_tx_cluster(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%0], %1;" ::"r"(barrier),
                 "r"(bytes)
                 : "memory");
}

// Whether the phase of this parity is over, now. When true, what was released by the arrivals and what the
// copies wrote is visible to this thread (acquire). Any thread.
// section: mbarrier.test_wait; from sm_80, .parity sm_80
__device__ __forceinline__ bool mbarrier_test_wait_parity(Mbarrier* barrier, uint32_t parity) {
    uint32_t done;
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(done)
        : "r"(smem_address(barrier)), "r"(parity)
        : "memory");
    return done != 0;
}

// As mbarrier_test_wait_parity, but the hardware may let the thread sleep for a while first; it can return
// false.
// section: mbarrier.try_wait; from sm_90
__device__ __forceinline__ bool mbarrier_try_wait_parity(Mbarrier* barrier, uint32_t parity) {
    uint32_t done;
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(done)
        : "r"(smem_address(barrier)), "r"(parity)
        : "memory");
    return done != 0;
}

// As mbarrier_try_wait_parity, acquiring at cluster scope: for barriers at which other CTAs arrive.
// section: mbarrier.try_wait; from sm_90
__device__ __forceinline__ bool mbarrier_try_wait_parity_cluster(Mbarrier* barrier, uint32_t parity) {
    uint32_t done;
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(done)
        : "r"(smem_address(barrier)), "r"(parity)
        : "memory");
    return done != 0;
}

// Wait until the phase of this parity is over. Any thread; every thread that reads what was copied must wait
// itself or meet a thread that has.
__device__ __forceinline__ void mbarrier_wait_parity(Mbarrier* barrier, uint32_t parity) {
    while (!mbarrier_try_wait_parity(barrier, parity)) {
    }
}

// As mbarrier_wait_parity, for barriers at which other CTAs of the cluster arrive.
__device__ __forceinline__ void mbarrier_wait_parity_cluster(Mbarrier* barrier, uint32_t parity) {
    while (!mbarrier_try_wait_parity_cluster(barrier, parity)) {
    }
}

// Arrive once when all cp.async of this thread so far have landed; counted among the arrivals of
// mbarrier_init.
// section: cp.async.mbarrier.arrive; from sm_80
__device__ __forceinline__ void cp_async_mbarrier_arrive_noinc(Mbarrier* barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(smem_address(barrier))
                 : "memory");
}

}  // namespace mla
