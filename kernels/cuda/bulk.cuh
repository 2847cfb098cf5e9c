// Bulk copies: one thread starts the copy of a contiguous block, the copy engine does it.
//
// Addresses and sizes are multiples of 16 bytes; nothing is checked or clipped at the end of a tensor. Copies
// into shared memory report their bytes to an mbarrier; copies to global memory are collected in groups of
// the issuing thread, and only that thread can wait for them.
#pragma once

#include "base.cuh"
#include "mbarrier.cuh"

namespace mla {

// Global to shared memory of this CTA; `bytes` are counted at `barrier` as they land. One thread.
// section: cp.async.bulk; from sm_90
__device__ __forceinline__ void cp_async_bulk_shared_global(void* target, const void* source, uint32_t bytes,
                                                            Mbarrier* barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            smem_address(target)),
        "l"(__cvta_generic_to_global(source)), "r"(bytes), "r"(smem_address(barrier))
        : "memory");
}

// Global to shared memory at the same offset of every CTA whose bit is set in `cta_mask`; each of them
// counts all `bytes` at its own barrier at the same offset. One thread of the cluster.
// section: cp.async.bulk (.multicast::cluster); from sm_90
__device__ __forceinline__ void cp_async_bulk_shared_global_multicast(void* target, const void* source,
                                                                      uint32_t bytes, Mbarrier* barrier,
                                                                      uint16_t cta_mask) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1], %2, [%3], %4;" ::"r"(smem_address(target)),
        "l"(__cvta_generic_to_global(source)), "r"(bytes), "r"(smem_address(barrier)), "h"(cta_mask)
        : "memory");
}

// Shared memory of this CTA to that of another; `target` and `barrier` are addresses of mapa in the same
// CTA. The source was written by threads: they need fence_proxy_async_shared_cta() first. One thread.
// section: cp.async.bulk; from sm_90
__device__ __forceinline__ void cp_async_bulk_cluster_shared(uint32_t target, const void* source,
                                                             uint32_t bytes, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            target),
        "r"(smem_address(source)), "r"(bytes), "r"(barrier)
        : "memory");
}

// Shared to global memory, as part of this thread's next bulk group. One thread.
// section: cp.async.bulk (.bulk_group); from sm_90
__device__ __forceinline__ void cp_async_bulk_global_shared(void* target, const void* source,
                                                            uint32_t bytes) {
    asm volatile(
        "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(__cvta_generic_to_global(target)),
        "r"(smem_address(source)), "r"(bytes)
        : "memory");
}

// Add float32 values of shared memory to global memory; each element is one atomic add. One thread.
// section: cp.reduce.async.bulk; from sm_90
__device__ __forceinline__ void cp_reduce_async_bulk_add_f32(float* target, const float* source,
                                                             uint32_t bytes) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(
                     __cvta_generic_to_global(target)),
                 "r"(smem_address(source)), "r"(bytes)
                 : "memory");
}

// Ask for global memory to be brought into L2; has no other effect. One thread.
// section: cp.async.bulk.prefetch; from sm_90
__device__ __forceinline__ void cp_async_bulk_prefetch_l2(const void* source, uint32_t bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(__cvta_generic_to_global(source)),
                 "r"(bytes)
                 : "memory");
}

// Close this thread's bulk group: the copies since the last call are waited for together.
// section: cp.async.bulk.commit_group; from sm_90
__device__ __forceinline__ void cp_async_bulk_commit_group() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Wait until at most kPending of this thread's latest groups are unfinished: the others' writes are done.
// section: cp.async.bulk.wait_group; from sm_90
template <int kPending>
__device__ __forceinline__ void cp_async_bulk_wait_group() {
    static_assert(kPending >= 0, "kPending: 0 or more groups");
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}

// Wait until at most kPending of this thread's latest groups still read their source: the shared memory of
// the others may be written again. Says nothing about their writes.
// section: cp.async.bulk.wait_group (.read); from sm_90
template <int kPending>
__device__ __forceinline__ void cp_async_bulk_wait_group_read() {
    static_assert(kPending >= 0, "kPending: 0 or more groups");
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

}  // namespace mla
