// Instructions of one warp: choosing a lane, and matrices of 8 x 8 between shared memory and registers.
#pragma once

#include "base.cuh"

namespace mla {

// True in one lane of the warp: the one that starts a copy for all. All 32 lanes together.
// section: elect.sync; from sm_90
__device__ __forceinline__ bool elect_sync() {
    uint32_t elected;
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "elect.sync _|p, 0xffffffff;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(elected)::"memory");
    return elected != 0;
}

// Load four 8 x 8 matrices of 16-bit values; lane 8 i + j gives the address of row j of matrix i, and gets
// from each matrix row lane / 4, columns 2 (lane % 4) and the next. All 32 lanes together.
// section: ldmatrix; from sm_75
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&registers)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
                 : "r"(smem_address(row))
                 : "memory");
}

// Store four 8 x 8 matrices of 16-bit values: the inverse of ldmatrix_x4. All 32 lanes together.
// section: stmatrix; from sm_90
__device__ __forceinline__ void stmatrix_x4(void* row, const uint32_t (&registers)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(smem_address(row)),
                 "r"(registers[0]), "r"(registers[1]), "r"(registers[2]), "r"(registers[3])
                 : "memory");
}

// The same, each matrix transposed: the registers' columns become rows in memory. All 32 lanes together.
// section: stmatrix (.trans); from sm_90
__device__ __forceinline__ void stmatrix_x4_trans(void* row, const uint32_t (&registers)[4]) {
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(smem_address(row)),
        "r"(registers[0]), "r"(registers[1]), "r"(registers[2]), "r"(registers[3])
        : "memory");
}

}  // namespace mla
