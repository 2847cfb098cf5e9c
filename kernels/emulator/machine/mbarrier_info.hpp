// What has happened at an mbarrier, besides its 64 bits: for reports.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace emu {

class Warp;
struct Instruction;

struct MbarrierInfo {
    struct Visit {
        const Warp* warp = nullptr;
        const Instruction* ins = nullptr;
        std::uint32_t phase = 0;  // as many had been completed then
    };
    std::int32_t init_line = 0;
    std::uint32_t completed = 0;             // phases
    std::vector<Visit> arrivals, passes;     // the latest of each warp; a pass is a wait that was over
    Visit announcement, copy;                // the latest expect_tx, and the latest copy that landed
    std::int64_t announced = 0, landed = 0;  // bytes of the current phase

    void visit(std::vector<Visit>& visits, const Warp& warp, const Instruction& ins) {
        const auto found = std::ranges::find(visits, &warp, &Visit::warp);
        if (found == visits.end())
            visits.push_back({&warp, &ins, completed});
        else
            *found = {&warp, &ins, completed};
    }
    void announce(const Warp& warp, const Instruction& ins, std::int64_t bytes) {
        announcement = {&warp, &ins, completed};
        announced += bytes;
    }
    void land(const Warp& issuer, const Instruction& ins, std::int64_t bytes) {
        copy = {&issuer, &ins, completed};
        landed += bytes;
    }
    void complete() { ++completed, announced = landed = 0; }
};

}  // namespace emu
