// TMA: copies of boxes of a tensor of one to five axes, described by a tensor map.
//
// WARNING: two things end the kernel as an illegal instruction on an H200. c0 times the element's size must
// be a multiple of 16 bytes, for loads too. Coordinates of a store or a reduction must not be negative; those
// of a load may be, and all may lie beyond the end. (Measured with float32 boxes of a two-dimensional
// tensor.)
//
// The map is a kernel parameter, `const __grid_constant__ CUtensorMap map`, made on the host. Coordinates are
// elements and may lie outside the tensor: a load fills what is outside, a store leaves it out. c0 is the
// innermost axis. The address in shared memory is a multiple of 128 bytes; with a swizzle, align it to the
// pattern's repeat (1024 bytes for 128B). Loads report the bytes of the whole box to the mbarrier, the filled
// part included.
#pragma once

#include "base.cuh"
#include "mbarrier.cuh"

#ifdef __CUDACC_RTC__
// What <cuda.h> calls the 128 opaque bytes of a tensor map; NVRTC cannot read that header.
struct alignas(64) CUtensorMap {
    unsigned long long opaque[16];
};
#else
#include <cuda.h>
#endif

namespace mla {

// Bring the map into the cache of the copy engine; has no other effect. One thread, at the start of the
// kernel.
// section: prefetch (.tensormap); from sm_90
__device__ __forceinline__ void prefetch_tensormap(const CUtensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Load the box at (c0, …) into shared memory of this CTA. One thread, which has expected the box's bytes at
// `barrier`.
// section: cp.async.bulk.tensor; from sm_90
__device__ __forceinline__ void cp_async_bulk_tensor_1d_shared_global(void* target, const CUtensorMap* map,
                                                                      int32_t c0, Mbarrier* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3}], [%2];" ::"r"(smem_address(target)),
        "l"(map), "r"(smem_address(barrier)), "r"(c0)
        : "memory");
}
__device__ __forceinline__ void cp_async_bulk_tensor_2d_shared_global(void* target, const CUtensorMap* map,
                                                                      int32_t c0, int32_t c1,
                                                                      Mbarrier* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4}], [%2];" ::"r"(smem_address(target)),
        "l"(map), "r"(smem_address(barrier)), "r"(c0), "r"(c1)
        : "memory");
}
__device__ __forceinline__ void cp_async_bulk_tensor_3d_shared_global(void* target, const CUtensorMap* map,
                                                                      int32_t c0, int32_t c1, int32_t c2,
                                                                      Mbarrier* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(smem_address(target)),
        "l"(map), "r"(smem_address(barrier)), "r"(c0), "r"(c1), "r"(c2)
        : "memory");
}
__device__ __forceinline__ void cp_async_bulk_tensor_4d_shared_global(void* target, const CUtensorMap* map,
                                                                      int32_t c0, int32_t c1, int32_t c2,
                                                                      int32_t c3, Mbarrier* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(smem_address(target)),
        "l"(map), "r"(smem_address(barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
        : "memory");
}
__device__ __forceinline__ void cp_async_bulk_tensor_5d_shared_global(void* target, const CUtensorMap* map,
                                                                      int32_t c0, int32_t c1, int32_t c2,
                                                                      int32_t c3, int32_t c4,
                                                                      Mbarrier* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(smem_address(target)),
        "l"(map), "r"(smem_address(barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
        : "memory");
}

// The same into the same offset of every CTA whose bit is set in `cta_mask`; each counts the whole box at
// its own barrier at the same offset. One thread of the cluster.
// section: cp.async.bulk.tensor (.multicast::cluster); from sm_90
__device__ __forceinline__ void cp_async_bulk_tensor_2d_shared_global_multicast(
    void* target, const CUtensorMap* map, int32_t c0, int32_t c1, Mbarrier* barrier, uint16_t cta_mask) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%4, %5}], [%2], %3;" ::"r"(smem_address(target)),
        "l"(map), "r"(smem_address(barrier)), "h"(cta_mask), "r"(c0), "r"(c1)
        : "memory");
}
__device__ __forceinline__ void cp_async_bulk_tensor_3d_shared_global_multicast(void* target,
                                                                                const CUtensorMap* map,
                                                                                int32_t c0, int32_t c1,
                                                                                int32_t c2, Mbarrier* barrier,
                                                                                uint16_t cta_mask) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%4, %5, %6}], [%2], %3;" ::"r"(smem_address(target)),
        "l"(map), "r"(smem_address(barrier)), "h"(cta_mask), "r"(c0), "r"(c1), "r"(c2)
        : "memory");
}

// Store the box at `source` to (c0, …), as part of this thread's next bulk group (bulk.cuh: commit and
// wait). The bytes were written by threads: they need fence_proxy_async_shared_cta() first. One thread.
// section: cp.async.bulk.tensor (.bulk_group); from sm_90
__device__ __forceinline__ void cp_async_bulk_tensor_1d_global_shared(const CUtensorMap* map, int32_t c0,
                                                                      const void* source) {
    asm volatile("cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%0, {%2}], [%1];" ::"l"(map),
                 "r"(smem_address(source)), "r"(c0)
                 : "memory");
}
__device__ __forceinline__ void cp_async_bulk_tensor_2d_global_shared(const CUtensorMap* map, int32_t c0,
                                                                      int32_t c1, const void* source) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
                 "r"(smem_address(source)), "r"(c0), "r"(c1)
                 : "memory");
}
__device__ __forceinline__ void cp_async_bulk_tensor_3d_global_shared(const CUtensorMap* map, int32_t c0,
                                                                      int32_t c1, int32_t c2,
                                                                      const void* source) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
                 "r"(smem_address(source)), "r"(c0), "r"(c1), "r"(c2)
                 : "memory");
}
__device__ __forceinline__ void cp_async_bulk_tensor_4d_global_shared(const CUtensorMap* map, int32_t c0,
                                                                      int32_t c1, int32_t c2, int32_t c3,
                                                                      const void* source) {
    asm volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
        "r"(smem_address(source)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
        : "memory");
}
__device__ __forceinline__ void cp_async_bulk_tensor_5d_global_shared(const CUtensorMap* map, int32_t c0,
                                                                      int32_t c1, int32_t c2, int32_t c3,
                                                                      int32_t c4, const void* source) {
    asm volatile(
        "cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(map),
        "r"(smem_address(source)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
        : "memory");
}

// Add the box at `source` to the tensor, element by element and each atomically. Otherwise as the store.
// One thread.
// section: cp.reduce.async.bulk.tensor; from sm_90
__device__ __forceinline__ void cp_reduce_async_bulk_tensor_2d_add(const CUtensorMap* map, int32_t c0,
                                                                   int32_t c1, const void* source) {
    asm volatile(
        "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
        "r"(smem_address(source)), "r"(c0), "r"(c1)
        : "memory");
}

}  // namespace mla
