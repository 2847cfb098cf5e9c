// The log seen by warp: which events each warp goes through, and which events belong to one phase of a
// barrier.
#pragma once

#include <cstdint>
#include <vector>

#include "trace/log.hpp"
#include "trace/resources.hpp"

namespace emu {

constexpr std::uint32_t kNoPoint = ~0u;

struct PreparedCluster {
    const ClusterLog* log;
    std::uint32_t first_cta;                          // its number in the grid
    std::vector<std::uint32_t> point;                 // by event
    std::vector<std::uint32_t> life;                  // by event: which barrier object, counted from its init
    std::vector<std::vector<std::uint32_t>> streams;  // events by rank * warps + warp
    std::vector<std::vector<std::uint32_t>> effects;  // events by operation: its signal
};

struct Prepared {
    std::vector<PreparedCluster> clusters;
    std::vector<Point> points;
    std::uint32_t warps = 0, cluster_size = 1, lives = 0;
};

[[nodiscard]] Prepared prepare(const EventLog& log);

}  // namespace emu
