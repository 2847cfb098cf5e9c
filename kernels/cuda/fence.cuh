// Fences: the order of memory accesses, between threads and between proxies.
//
// A proxy is a way to memory. Loads and stores of threads go through the generic proxy; TMA, bulk copies and
// wgmma go through the async proxy; reads of tensor maps through the tensormap proxy. Barriers order accesses
// within a proxy, a proxy fence orders them across.
#pragma once

#include "base.cuh"

namespace mla {

// Make mbarrier_init of this thread visible to TMA and to the other CTAs of the cluster. Follow it with a
// barrier
// (__syncthreads, or a cluster barrier where other CTAs arrive). The thread that ran mbarrier_init.
// section: membar / fence (.mbarrier_init); from sm_90
__device__ __forceinline__ void fence_mbarrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Order this thread's ordinary accesses to shared memory before later accesses of the async proxy: needed
// between st.shared and a TMA store or wgmma that reads the bytes. Every thread that wrote, before the
// barrier.
// section: membar / fence (.proxy.async); from sm_90
__device__ __forceinline__ void fence_proxy_async_shared_cta() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// The same for global memory.
__device__ __forceinline__ void fence_proxy_async_global() {
    asm volatile("fence.proxy.async.global;" ::: "memory");
}

// The same for all memory.
__device__ __forceinline__ void fence_proxy_async() {
    asm volatile("fence.proxy.async;" ::: "memory");
}

// Publish a tensor map that this thread changed in global memory. The thread that wrote it.
// section: membar / fence (.proxy.tensormap); from sm_90
__device__ __forceinline__ void fence_proxy_tensormap_release_gpu() {
    asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory");
}

// See a tensor map that another thread changed; `map` is its address in global memory. Before the copies
// that use it.
// section: membar / fence (.proxy.tensormap); from sm_90
__device__ __forceinline__ void fence_proxy_tensormap_acquire_gpu(const void* map) {
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
}

// Order this thread's memory accesses for all threads of the CTA, the cluster, the GPU. Any thread.
// section: membar / fence (.acq_rel); from sm_70, .cluster from sm_90
__device__ __forceinline__ void fence_acq_rel_cta() {
    asm volatile("fence.acq_rel.cta;" ::: "memory");
}
__device__ __forceinline__ void fence_acq_rel_cluster() {
    asm volatile("fence.acq_rel.cluster;" ::: "memory");
}
__device__ __forceinline__ void fence_acq_rel_gpu() {
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
}

}  // namespace mla
