// Operations that complete on their own: bulk and tensor copies, cp.async, st.async, wgmma. The policy
// decides when.
//   eager   at once, when issued
//   lazy    only when nothing else can run, oldest first; also after many turns in which none completed,
//   since
//           a loop that polls a barrier can always run
//   seeded  at random moments, in random order
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace emu {

class Warp;
struct Instruction;

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

// A contiguous stretch of memory: an offset in the shared memory of a CTA, or a host address. A strided or
// swizzled box is a list of the longest contiguous runs.
struct Region {
    enum class Where : std::uint8_t { shared, global } where = Where::shared;
    std::uint32_t rank = 0;  // of the CTA in its cluster
    std::uint64_t address = 0;
    std::uint32_t bytes = 0;
};

enum class AsyncKind : std::uint8_t {
    cp_async,
    cp_async_arrive,
    bulk_load,
    bulk_store,
    bulk_reduce,
    tensor_load,
    tensor_store,
    tensor_reduce,
    st_async,
    red_async,
    wgmma,
};

// What an operation tells an mbarrier when it completes: bytes that have come, or an arrival.
struct Signal {
    std::uint32_t rank = 0, offset = 0, bytes = 0, arrivals = 0;
    [[nodiscard]] bool any() const { return bytes != 0 || arrivals != 0; }
};

// One operation in one or two steps: a store first fetches its source (what wait_group.read waits for), then
// writes. The signal is given after `complete`; whoever issues has to do neither that nor the poisoning of
// what will be written.
struct AsyncOp {
    AsyncKind kind = AsyncKind::bulk_load;
    std::function<void()> fetch;     // reads the sources; empty where `complete` does it all
    std::function<void()> complete;  // moves the data
    std::vector<Region> reads, writes;
    Signal signal;
    std::vector<Done> after;  // completes only after these
    Done fetched;             // set after `fetch`, where somebody waits for that
    Done done;
    // Filled in by Cluster::issue.
    Warp* issuer = nullptr;
    const Instruction* ins = nullptr;
    std::uint32_t lanes = 0;
    std::uint64_t id = 0;  // from 1, in the order of issue in a cluster
};

enum class AsyncStage : std::uint8_t { fetched, completed };

class AsyncQueue {
  public:
    // `landed` is called after each step of an operation.
    using Landed = std::function<void(const AsyncOp&, AsyncStage)>;
    AsyncQueue(Policy policy, std::uint64_t seed, Landed landed)
        : policy_(policy), random_(seed), landed_(std::move(landed)) {}

    // With the eager policy the operation has completed on return.
    Done push(AsyncOp op);
    // Called between turns of the warps: the seeded policy completes something now and then, the lazy one
    // when its patience ends. True where it did.
    bool tick();
    // Nothing can run: completes one operation. False where none is left that could.
    bool force_one();
    [[nodiscard]] std::size_t pending() const { return ops_.size(); }
    [[nodiscard]] Policy policy() const { return policy_; }
    [[nodiscard]] const std::deque<std::unique_ptr<AsyncOp>>& operations() const { return ops_; }

  private:
    void run(std::size_t index);
    void finish(AsyncOp& op);

    Policy policy_;
    Random random_;
    Landed landed_;
    std::deque<std::unique_ptr<AsyncOp>> ops_;  // thousands may be in flight: taking one out moves pointers
    std::uint32_t turns_ = 0;                   // since an operation completed while others were waiting
};

}  // namespace emu
