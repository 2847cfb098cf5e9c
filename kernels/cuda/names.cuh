// Names for people: what the emulator's reports, hang tables and timelines call warps and shared memory.
//
// Each is a comment in the PTX, which the assembler skips: the machine code is the same without it. Names are
// string literals; a name that says what something is for ("full[0]", "producer") serves best.
#pragma once

#include "base.cuh"

// The part that this warp plays from here on. Where the warp takes up its role.
#define name_role(role) asm volatile("// mla.role \"" role "\"")

// The name of `bytes` bytes of shared memory at `pointer`. One thread, before their first use. Names may lie
// inside others, and memory that is used anew may get a new name: the one given last holds.
#define name_shared(name, pointer, bytes)                                                  \
    asm volatile("// mla.buffer \"" name "\", %0, %1" ::"r"(::mla::smem_address(pointer)), \
                 "r"(static_cast<uint32_t>(bytes)))

// name[0], name[1], … for `count` pieces of `bytes_each` bytes, one behind the other. One thread.
#define name_shared_array(name, pointer, bytes_each, count)                                   \
    asm volatile("// mla.array \"" name "\", %0, %1, %2" ::"r"(::mla::smem_address(pointer)), \
                 "r"(static_cast<uint32_t>(bytes_each)), "r"(static_cast<uint32_t>(count)))

// name[index], for a piece whose place is known only where it is computed, as in a loop. One thread.
#define name_shared_element(name, index, pointer, bytes)                                        \
    asm volatile("// mla.element \"" name "\", %0, %1, %2" ::"r"(::mla::smem_address(pointer)), \
                 "r"(static_cast<uint32_t>(bytes)), "r"(static_cast<uint32_t>(index)))
