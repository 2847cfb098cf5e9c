#include "check/monitor.hpp"

namespace emu {

Monitor::Monitor(Cluster& cluster)
    : cluster_(cluster),
      checks_(cluster.grid().launch.options.checks),
      warps_per_cta_(static_cast<std::uint32_t>(cluster.ctas().front()->warps.size())) {
    for (const auto& cta : cluster.ctas()) {
        ctas_.push_back({.shadow = check::Shadow(cta->shared_bytes())});
        for (const auto& warp : cta->warps) {
            WarpState s;
            s.self = new_agent({AgentInfo::Kind::warp, warp.get()});
            // Time 1 is the start of the warp, which even a relaxed arrival hands on.
            s.published.known.raise(s.self, 1);
            s.now.known.raise(s.self, 2);
            warps_.push_back(std::move(s));
        }
    }
}

Monitor::Agent Monitor::new_agent(AgentInfo info) {
    if (agents_.size() >= check::kMostAgents)
        throw LaunchInvalid(
            "check: a cluster with more than " + std::to_string(check::kMostAgents) +
            " warps, mbarriers and copy queues cannot be checked; use check=() for this launch");
    agents_.push_back(info);
    return static_cast<Agent>(agents_.size() - 1);
}

}  // namespace emu
