// Operations that complete on their own: bulk copies, cp.async, st.async. The policy decides when.
//   eager   at once, when issued
//   lazy    only when nothing else can run, oldest first
//   seeded  at random moments, in random order
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace emu {

enum class Policy : std::uint8_t { eager, lazy, seeded };

// Small, fast, reproducible (splitmix64).
class Random {
  public:
    explicit Random(std::uint64_t seed) : state_(seed) {}
    std::uint64_t next() {
        std::uint64_t z = state_ += 0x9e3779b97f4a7c15ull;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ z >> 27) * 0x94d049bb133111ebull;
        return z ^ z >> 31;
    }
    std::uint32_t below(std::uint32_t bound) {
        return static_cast<std::uint32_t>((next() >> 32) * bound >> 32);
    }

  private:
    std::uint64_t state_;
};

using Done = std::shared_ptr<bool>;  // set when an operation has completed

struct AsyncOp {
    std::function<void()> complete;
    std::vector<Done> after;  // completes only after these
    Done done = std::make_shared<bool>(false);
    std::string what;  // for reports: "cp.async.bulk, PTX line 40"
};

class AsyncQueue {
  public:
    AsyncQueue(Policy policy, std::uint64_t seed) : policy_(policy), random_(seed) {}

    Done push(AsyncOp op);
    // Called between turns of the warps: the seeded policy completes something now and then. True where it
    // did.
    bool tick();
    // Nothing can run: completes one operation. False where none is left that could.
    bool force_one();
    [[nodiscard]] std::size_t pending() const { return ops_.size(); }
    [[nodiscard]] Policy policy() const { return policy_; }
    [[nodiscard]] const std::vector<AsyncOp>& operations() const { return ops_; }

  private:
    bool run(std::size_t index);

    Policy policy_;
    Random random_;
    std::vector<AsyncOp> ops_;
};

}  // namespace emu
