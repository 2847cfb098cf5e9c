// Asynchronous operations: when one starts, when its sources are read, and when it is done.
#pragma once

#include <string_view>

#include "trace/costs.hpp"
#include "trace/resources.hpp"
#include "trace/timeline.hpp"

namespace emu {

// Fills in start, fetched and end. `at`: when it is issued; operations that it comes after have ended by then
// or by `at`, whichever is later. `part`: the issuing warp's sub-partition.
void time_operation(const Operation& o, std::string_view opcode, double at, Multiprocessor& sm,
                    SubPartition& part, Server& device_memory, const Costs& k, OperationTimes& t);

// The kind of group that a wait_group finds the operation in.
[[nodiscard]] Group group_of(AsyncKind kind);

}  // namespace emu
