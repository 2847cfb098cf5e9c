// The cost of one instruction: which unit it takes, for how long, and how long its result is on the way.
#pragma once

#include "trace/costs.hpp"
#include "trace/log.hpp"
#include "trace/resources.hpp"

namespace emu {

struct Charge {
    double slots = 1;  // of the sub-partition's issue port
    Pipe pipe = Pipe::count;
    double occupancy = 0;  // of the pipe
    double latency = 0;    // from the start to the result
    double hold = 0;       // from the start until the warp goes on
};

[[nodiscard]] Charge charge_of(Class c, const Costs& k);

// When a memory instruction starts at the earliest, and when its result is there. `access` is null where no
// lane was active.
struct MemoryTimes {
    double start, result;
};
[[nodiscard]] MemoryTimes memory_times(Class c, const Event* access, double at, Multiprocessor& sm,
                                       Server& dram, const Costs& k);

// Multiply-adds of one wgmma or mma instruction, in units of 16-bit ones:
// "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16".
[[nodiscard]] double macs_of(std::string_view opcode);

}  // namespace emu
