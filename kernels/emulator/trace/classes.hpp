// What an instruction costs is a matter of its class: which unit it occupies, for how long, and when its
// result is there.
#pragma once

#include <cstdint>
#include <string_view>

namespace emu {

enum class Class : std::uint8_t {
    marker,    // gives a name; no instruction
    free,      // costs nothing in machine code: moves, widening, address space conversions
    integer,   // also comparisons, selections, bit operations
    multiply,  // integer multiply and multiply-add
    wide,      // 64-bit integer arithmetic: two instructions of 32 bits
    float32,
    half,  // packed 16-bit floats
    float64,
    convert,       // between number formats
    special,       // reciprocal, square root, exponential, logarithm, sine
    divide,        // of integers, and 64-bit products: a sequence of instructions
    float_divide,  // also square roots: a longer sequence
    clock,         // special registers that are read when asked for
    shuffle,       // shfl, vote, match, redux, elect: between the lanes of a warp
    branch,
    shared_load,
    shared_store,
    shared_atomic,
    global_load,
    global_store,
    global_atomic,
    local,
    matrix_load,  // ldmatrix, stmatrix
    mma,
    wgmma,
    wgmma_fence,
    commit,        // of a group
    group_wait,    // for a group
    copy,          // cp.async
    bulk,          // issue of a bulk or tensor copy into shared memory
    bulk_store,    // out of shared memory
    remote_store,  // st.async, red.async
    mbarrier_init,
    mbarrier_arrive,
    mbarrier_wait,
    barrier,
    barrier_arrive,
    cluster_arrive,
    cluster_wait,
    fence,       // within the CTA
    wide_fence,  // beyond
    proxy_fence,
    sleep,
    registers,  // setmaxnreg
    exit,
    count,
};

[[nodiscard]] Class class_of(std::string_view opcode);

// The word for people that spans are merged by: alu, memory, shared, mma, sync, async, control.
enum class Kind : std::uint8_t { alu, memory, shared, mma, sync, async, control, wait, count };
[[nodiscard]] Kind kind_of(Class c);
[[nodiscard]] std::string_view name_of(Kind k);

// Whether the log records which memory it touches. Instructions that start asynchronous operations say so
// themselves.
[[nodiscard]] bool touches_memory(Class c);

}  // namespace emu
