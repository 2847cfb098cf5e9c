// Logical time. An agent is whatever can touch memory on its own: a warp, the asynchronous copies that
// complete on one mbarrier, the copy groups of one warp. Each has a clock of its own; what an agent knows of
// the others is a vector of their times.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace emu::check {

using Agent = std::uint32_t;
using Time = std::uint32_t;

constexpr int kPcBits = 20, kTimeBits = 31;
constexpr std::uint64_t kTimeMask = (std::uint64_t{1} << kTimeBits) - 1;
constexpr Agent kMostAgents = 8180;  // the numbers above have meanings of their own
constexpr Agent kManyReaders = 8191, kInFlight = 8190, kBarrier = 8189, kSplit = 8188;

// Who did something, when by its own clock, and at which instruction. All zero: nobody, never.
struct Epoch {
    std::uint64_t bits = 0;

    static Epoch of(Agent agent, Time time, std::uint64_t pc) {
        return {static_cast<std::uint64_t>(agent) << (kPcBits + kTimeBits) |
                static_cast<std::uint64_t>(time) << kPcBits |
                std::min<std::uint64_t>(pc, (1u << kPcBits) - 1)};
    }
    [[nodiscard]] bool none() const { return bits == 0; }
    [[nodiscard]] Agent agent() const { return static_cast<Agent>(bits >> (kPcBits + kTimeBits)); }
    [[nodiscard]] Time time() const { return static_cast<Time>(bits >> kPcBits) & ((1u << kTimeBits) - 1); }
    [[nodiscard]] std::uint32_t pc() const {
        return static_cast<std::uint32_t>(bits) & ((1u << kPcBits) - 1);
    }
    [[nodiscard]] bool same_moment(Epoch other) const { return ((bits ^ other.bits) >> kPcBits) == 0; }
};

class Clock {
  public:
    [[nodiscard]] Time operator[](Agent agent) const { return agent < at_.size() ? at_[agent] : 0; }
    // True where the epoch lies in the past of whoever knows this.
    [[nodiscard]] bool knows(Epoch e) const { return (*this)[e.agent()] >= e.time(); }
    void raise(Agent agent, Time time) {
        if (agent >= at_.size()) at_.resize(agent + 1, 0);
        at_[agent] = std::max(at_[agent], time);
    }
    void join(const Clock& other) {
        if (other.at_.size() > at_.size()) at_.resize(other.at_.size(), 0);
        for (std::size_t i = 0; i < other.at_.size(); ++i)
            at_[i] = std::max(at_[i], other.at_[i]);
    }
    [[nodiscard]] std::size_t size() const { return at_.size(); }
    void clear() { at_.clear(); }

  private:
    std::vector<Time> at_;
};

// What an agent knows, and which generic writes it knows to be visible to the async proxy.
struct Knowledge {
    Clock known, fenced;
    void join(const Knowledge& other) { known.join(other.known), fenced.join(other.fenced); }
    void clear() { known.clear(), fenced.clear(); }
};

}  // namespace emu::check
