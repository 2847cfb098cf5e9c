// What the replay of a log makes: columns of times in cycles. Numbers of CTAs count over the whole grid as
// the log saw them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "trace/classes.hpp"
#include "trace/event.hpp"

namespace emu {

struct Span {
    std::uint32_t cta, warp;
    double t0, t1;
    Kind kind;
    std::uint32_t pc, instructions;
    std::string object = {};   // of a wait
    std::uint32_t role = ~0u;  // number of a name
    std::uint32_t order = 0;
};

struct OperationTimes {
    std::uint32_t cluster, id;
    double issue = 0, start = 0, fetched = 0, end = 0;
    bool started = false;
};

struct BarrierRow {
    std::uint32_t cta, offset;
    double time;
    Event::Kind event;
    std::uint32_t pending, expected;
    std::int64_t tx;
    std::uint32_t phase, by_warp, by_operation, amount;  // by_warp: kNoWarp where an operation did it
    std::uint32_t by_cta, order, point, cluster;
};

struct AccessRow {
    std::uint32_t cta, buffer;
    double t0, t1;
    bool write;
    std::uint32_t by_warp, by_operation, by_cta;
};

struct CtaRow {
    std::uint32_t cluster, rank, sm;
    std::array<std::uint32_t, 3> block;
    double t0, t1;
};

struct Timeline {
    std::vector<Span> spans;
    std::vector<OperationTimes> operations;
    std::vector<BarrierRow> barriers;
    std::vector<AccessRow> accesses;
    std::vector<CtaRow> ctas;
    double cycles = 0;
};

}  // namespace emu
