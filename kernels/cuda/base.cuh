// Integer types and the one conversion that every other header needs.
//
// These headers compile with NVRTC alone (no host headers) and with nvcc. Each wrapper is one PTX instruction
// and is named after it; `section` names the page of the PTX ISA that specifies it, `from` the first
// architecture that has it.
#pragma once

#ifdef __CUDACC_RTC__
using int32_t = int;
using int64_t = long long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long long;
#else
#include <cstdint>
#endif

namespace mla {

// The address that instructions on shared memory take: 32 bits, the CTA's rank in its cluster above an
// offset. `pointer` must point to shared memory of this CTA. Any thread.
// section: cvta; from sm_20
__device__ __forceinline__ uint32_t smem_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

}  // namespace mla
