// Loads and stores that keep their place in the program: the compiler may not move them past each other.
#pragma once

#include "base.cuh"

namespace mla {

// 2, 4, 8 or 16 bytes that nobody writes while the kernel runs; `from` is a multiple of their number. Any
// thread. section: ld.global.nc; from sm_32
__device__ __forceinline__ uint32_t ld_global_nc_u16(const void* from) {
    uint16_t value;
    asm volatile("ld.global.nc.u16 %0, [%1];" : "=h"(value) : "l"(__cvta_generic_to_global(from)));
    return value;
}
__device__ __forceinline__ uint32_t ld_global_nc_u32(const void* from) {
    uint32_t value;
    asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(value) : "l"(__cvta_generic_to_global(from)));
    return value;
}
__device__ __forceinline__ uint2 ld_global_nc_v2_u32(const void* from) {
    uint2 value;
    asm volatile("ld.global.nc.v2.u32 {%0, %1}, [%2];"
                 : "=r"(value.x), "=r"(value.y)
                 : "l"(__cvta_generic_to_global(from)));
    return value;
}
__device__ __forceinline__ uint4 ld_global_nc_v4_u32(const void* from) {
    uint4 value;
    asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "l"(__cvta_generic_to_global(from)));
    return value;
}

// Store 16 bytes; `address` is that of smem_address, a multiple of 16. Any thread.
// section: st.shared; from sm_20
__device__ __forceinline__ void st_shared_v4_u32(uint32_t address, const uint4& value) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(value.x), "r"(value.y),
                 "r"(value.z), "r"(value.w)
                 : "memory");
}

}  // namespace mla
