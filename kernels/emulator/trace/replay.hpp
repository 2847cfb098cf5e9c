// From a log to cycles: every warp goes through its own events again, in time, and competes with the others
// for what a multiprocessor has. The order of what depends on each other is the log's; how long it takes is
// the cost model's.
#pragma once

#include "trace/costs.hpp"
#include "trace/log.hpp"
#include "trace/timeline.hpp"

namespace emu {

// `resident`: how many CTAs fit on a multiprocessor.
[[nodiscard]] Timeline replay(const EventLog& log, const Costs& costs, std::uint32_t resident);

}  // namespace emu
