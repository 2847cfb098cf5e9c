// Collects the columns of a timeline: merges instructions into spans, accesses into intervals, and brings the
// events of a barrier into the order of time, with the barrier's state after each.
#pragma once

#include <vector>

#include "trace/log.hpp"
#include "trace/prepare.hpp"
#include "trace/timeline.hpp"

namespace emu {

struct Actor {
    std::uint32_t cta = 0, warp = 0, operation = 0, role = ~0u;  // operation: 0 where the warp itself acts
};

class Rows {
  public:
    Rows(const EventLog& log, const Prepared& all, Timeline& out) : log_(log), all_(all), out_(out) {}

    void span(const Actor& by, double t0, double t1, Kind kind, std::uint32_t pc, std::uint32_t instructions);
    void wait(const Actor& by, const PreparedCluster& c, const Event& e, double t0, double t1);
    void barrier(const Actor& by, const PreparedCluster& c, std::uint32_t event, double time);
    void access(const Actor& by, std::uint32_t buffer_cta, std::uint32_t buffer, bool write, double t0,
                double t1);
    void operation(const Actor& by, const PreparedCluster& c, const Operation& o, const OperationTimes& t);
    void finish();

  private:
    struct Open {
        bool any = false;
        Span span{};
        std::array<double, static_cast<std::size_t>(Kind::count)> cycles{};
    };
    void close(Open& open);
    [[nodiscard]] std::string object(const PreparedCluster& c, const Event& e) const;
    void barrier_states();

    const EventLog& log_;
    const Prepared& all_;
    Timeline& out_;
    std::vector<Open> runs_, merged_;  // by warp of the grid: instructions of one kind; runs that have joined
    std::vector<std::vector<BarrierRow>> lives_;
    std::uint32_t order_ = 0;
};

}  // namespace emu
