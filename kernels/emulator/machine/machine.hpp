// The machine, inside out: Warp (32 lanes, registers as arrays), Cta (shared memory, named barriers), Cluster
// (CTAs that see each other's shared memory, the async queue), Grid (all clusters of one launch).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "ir/errors.hpp"
#include "ir/instruction.hpp"
#include "machine/call_stack.hpp"
#include "machine/map_patches.hpp"
#include "machine/mbarrier_info.hpp"
#include "machine/memory.hpp"
#include "machine/multiplies.hpp"
#include "units/async_queue.hpp"

namespace emu {

struct TakenApart;
class ClusterLog;
class Cta;
class Cluster;
class EventLog;
class Grid;
class Monitor;

// Why a split stands still.
struct Wait {
    enum class Kind : std::uint8_t {
        none,
        warp_sync,
        barrier,
        mbarrier,
        cluster,
        copies,
        multiplies,
        converge,
        registers,
        grid
    } kind = Kind::none;
    std::uint32_t number = 0;  // members of a warp-level sync; barrier number; shared address of an mbarrier
    std::uint64_t value = 0;   // barrier generation; parity; groups that may stay open or pending; registers
    bool reads_only = false;   // bulk groups: sources read is enough
    bool bulk = false;         // copies: bulk groups, not cp.async groups
};

// Lanes of a warp that run together. Splits of a warp are disjoint; together they are the lanes still alive.
struct Split {
    std::uint32_t pc = 0, mask = 0;
    Wait wait = {};
    bool resumed = false;  // the wait is over: the handler finishes its second half
    std::uint32_t spins = 0;
};

// Asynchronous copies of one thread, in groups. The last group is open.
struct CopyGroup {
    std::vector<Done> reads, writes;
};
struct ThreadCopies {
    std::vector<CopyGroup> committed;
    CopyGroup open;
};

class Warp {
  public:
    Warp(Cta& cta, const Kernel& kernel, int number, std::uint32_t lanes);

    enum class State : std::uint8_t { progressed, blocked, finished };
    State run(std::uint32_t quantum);

    // Registers. S is the stored form: uint32_t for up to 32 bits, uint64_t for 64, unsigned __int128 for
    // 128.
    template <class S>
    [[nodiscard]] const S* in(const Operand& o) const {
        return reinterpret_cast<const S*>(bank_[o.bank] + o.offset);
    }
    template <class S>
    [[nodiscard]] S* out(const Operand& o) {
        return reinterpret_cast<S*>(registers_ + o.offset);
    }
    [[nodiscard]] std::uint64_t value(const Operand& o,
                                      int lane) const;  // zero-extended, of a register up to 64 bits
    [[nodiscard]] std::uint32_t pred(const Operand& o) const {
        return o.negated ? ~predicates_[o.offset] : predicates_[o.offset];
    }
    void set_pred(const Operand& o, std::uint32_t bits, std::uint32_t mask) {
        predicates_[o.offset] = (predicates_[o.offset] & ~mask) | (bits & mask);
    }

    // Control.
    [[nodiscard]] Split& split() { return splits_[current_]; }
    [[nodiscard]] const std::vector<Split>& splits() const { return splits_; }
    [[nodiscard]] std::uint32_t alive() const { return alive_; }
    Step branch(std::uint32_t target, std::uint32_t mask);
    // Each lane of `mask` goes to its own instruction.
    Step scatter(const std::uint32_t* to, std::uint32_t mask);
    Step exit(std::uint32_t mask);
    Step park(Wait wait) { return split().wait = wait, Step::park; }
    // True when every live lane of `members` is in `mask`; otherwise parks until the others arrive (then
    // returns true).
    bool gather(const Instruction& ins, std::uint32_t mask, std::uint32_t members);
    // The same for an .aligned instruction, which all live lanes must execute together.
    bool converge(std::uint32_t mask) {
        if (mask == alive_ || split().resumed) return true;
        split().wait = {.kind = Wait::Kind::converge};
        return false;
    }

    // Memory. Checks bounds, alignment and write permission; throws KernelTrap.
    enum class Access : std::uint8_t { read, write, both };
    [[nodiscard]] std::byte* resolve(const Instruction& ins, int lane, Space space, std::uint64_t address,
                                     std::uint32_t bytes, Access access);
    [[nodiscard]] std::uint64_t address(const Operand& o, int lane) const;
    [[noreturn]] void trap(const Instruction& ins, std::uint32_t lanes, const std::string& text,
                           std::uint64_t address = 0, const std::string& object = {},
                           const char* rule = "trap") const;
    [[nodiscard]] Where where(const Instruction& ins) const;
    [[nodiscard]] std::string text(const Instruction& ins) const;
    [[nodiscard]] ThreadCopies& copies(int lane, bool bulk);
    [[nodiscard]] WarpMultiplies& multiplies();

    [[nodiscard]] Cta& cta() const { return cta_; }
    [[nodiscard]] const Kernel& kernel() const { return kernel_; }
    [[nodiscard]] int number() const { return number_; }
    // What the kernel calls this warp's part, such as "producer"; empty where it gives no name.
    [[nodiscard]] std::string_view role() const {
        return role_ < kernel_.names.size() ? std::string_view(kernel_.names[role_]) : std::string_view();
    }
    [[nodiscard]] Monitor* monitor() const { return monitor_; }  // null where nothing is checked
    void watch(Monitor* monitor) { monitor_ = monitor; }
    void take_role(std::uint32_t name) { role_ = name; }
    [[nodiscard]] ClusterLog* log() const { return log_; }
    [[nodiscard]] std::array<std::uint32_t, 3> thread(int lane) const;
    [[nodiscard]] std::byte* local(int lane) {
        return local_.get() + local_stride() * static_cast<std::size_t>(lane);
    }
    [[nodiscard]] std::size_t local_stride() const { return (kernel_.local_bytes + 15u) & ~15u; }
    // Of kernels with calls that are not inlined.
    [[nodiscard]] CallStack& stack() { return *stack_; }
    [[nodiscard]] std::uint64_t* frame() {
        return reinterpret_cast<std::uint64_t*>(registers_ + kernel_.frame_slot);
    }
    [[nodiscard]] std::vector<std::uint32_t>& predicates() { return predicates_; }
    // The generation of the cluster barrier that lanes of this warp have arrived at, and which lanes.
    std::uint64_t cluster_phase = ~std::uint64_t{0};
    std::uint32_t cluster_lanes = 0;
    std::uint32_t registers = 0;  // of a thread, once setmaxnreg has been executed
    std::uint32_t carry = 0;      // condition code of the add.cc family, one bit a lane
    std::uint64_t instructions = 0, lane_instructions = 0;  // since the last turn
    std::uint64_t elapsed = 0;                              // instructions of earlier turns
    std::uint32_t loop_from = 0, loop_to = 0;               // last branch backwards, for the runaway report
    [[nodiscard]] bool ready(const Split& split) const;     // the split's wait, if any, is over

  private:
    [[nodiscard]] std::byte* logged(std::byte* place, std::uint32_t bytes, Access access) const;
    bool pick();
    void merge();
    template <bool Traced>
    std::uint32_t run_split(std::uint32_t quantum);
    void fill_constants();

    Cta& cta_;
    const Kernel& kernel_;
    Monitor* monitor_ = nullptr;
    ClusterLog* const log_;  // null unless the launch is traced
    int number_;
    std::uint32_t role_ = ~0u;  // a number among the kernel's names
    std::uint32_t lanes_, alive_;
    std::vector<Split> splits_;
    std::size_t current_ = 0;
    std::unique_ptr<std::byte[]> storage_, local_;
    std::byte* registers_ = nullptr;
    const std::byte* bank_[2] = {nullptr, nullptr};
    std::vector<std::uint32_t> predicates_;
    std::unique_ptr<CallStack> stack_;
    std::unique_ptr<std::array<ThreadCopies, 32>> copies_[2];
    std::unique_ptr<WarpMultiplies> multiplies_;
};

// A named barrier: bar.sync 0 … 15.
struct NamedBarrier {
    std::uint32_t arrived = 0, expected = 0;  // threads; expected 0 = all that live
    std::uint64_t generation = 0;
    bool any = false, all = true;  // of bar.red
    std::uint32_t votes = 0;
    bool result_any = false, result_all = false;
    std::uint32_t result_votes = 0;
};

class Cta {
  public:
    Cta(Cluster& cluster, std::array<std::uint32_t, 3> id, std::uint32_t rank);

    [[nodiscard]] Cluster& cluster() const { return cluster_; }
    [[nodiscard]] std::byte* shared() { return shared_; }
    [[nodiscard]] std::uint32_t shared_bytes() const { return shared_bytes_; }
    [[nodiscard]] std::uint32_t live_threads() const;
    // Counts `threads` at a barrier; completes it when all are there.
    void arrive(std::uint32_t number, std::uint32_t threads);
    void thread_exited();
    void let_dependents_start();
    // The object that holds `offset`: the name given last, else the __shared__ variable. Never null.
    void name_shared(const std::string& name, std::uint32_t offset, std::uint32_t bytes);
    [[nodiscard]] const SharedObject& shared_object(std::uint32_t offset) const;
    // The same in words: "full[0]", or "stages[1] + 64".
    [[nodiscard]] std::string object_at(std::uint32_t offset) const;
    [[nodiscard]] const std::vector<SharedObject>& named() const { return named_; }

    const std::array<std::uint32_t, 3> id;
    const std::uint32_t rank;
    std::vector<std::unique_ptr<Warp>> warps;
    std::array<NamedBarrier, 16> barriers;
    std::vector<Warpgroup> warpgroups;                // one for four warps
    std::uint32_t free_registers = 0;                 // given away by setmaxnreg
    std::shared_ptr<TakenApart> latest_b;             // of a wgmma
    std::map<std::uint32_t, MbarrierInfo> mbarriers;  // by offset
    std::array<const Range*, 16> hints{};             // last global range by instruction
    AcquiredMaps acquired_maps;
    bool lets_dependents_start = false;

  private:
    void finish_if_complete(NamedBarrier& b);
    Cluster& cluster_;
    std::unique_ptr<std::byte[]> storage_;
    std::byte* shared_ = nullptr;
    std::uint32_t shared_bytes_;
    std::vector<SharedObject> named_;  // in the order in which the kernel gave the names
    SharedObject dynamic_;
};

struct Statistics {
    std::uint64_t instructions = 0, lane_instructions = 0, clusters = 0;
    std::string output;  // of printf
};

class Cluster {
  public:
    Cluster(Grid& grid, std::uint32_t number);
    ~Cluster();
    // Runs until finished or about `turns` turns of warps; true when finished. Throws RunError.
    bool run(std::uint32_t turns);
    // A warp waits for the grid before this one.
    [[nodiscard]] bool waits_for_grid() const;
    [[nodiscard]] bool lets_dependents_start() const;

    [[nodiscard]] Grid& grid() const { return grid_; }
    [[nodiscard]] Cta* cta(std::uint32_t rank) { return rank < ctas_.size() ? ctas_[rank].get() : nullptr; }
    [[nodiscard]] const std::vector<std::unique_ptr<Cta>>& ctas() const { return ctas_; }
    [[nodiscard]] Monitor* monitor() const { return monitor_.get(); }
    [[nodiscard]] const AsyncQueue& queue() const { return queue_; }
    // The only way to start an asynchronous operation (issue.cpp). Poisons what it will write.
    Done issue(Warp& warp, const Instruction& ins, std::uint32_t lanes, AsyncOp op);
    // How many parts a copy that could come in `most` parts comes in: random, one with the eager policy.
    [[nodiscard]] std::uint32_t parts(std::uint32_t most);
    // Whether a try_wait that would sleep answers "not yet" at once, as hardware may: now and then with the
    // seeded policy.
    [[nodiscard]] bool gives_up_waiting();
    // The region at a host address that Warp::resolve gave, and back.
    [[nodiscard]] Region region(const std::byte* place, std::uint32_t bytes) const;
    [[nodiscard]] std::byte* host(const Region& region) const;
    [[nodiscard]] ClusterLog* log() const { return log_; }
    // Cluster barrier: generation counts completed phases.
    void cluster_arrive(std::uint32_t threads);
    void thread_exited();
    std::uint64_t cluster_generation = 0;
    std::uint32_t cluster_arrived = 0;
    const std::uint32_t number;
    Statistics statistics;

  private:
    [[nodiscard]] std::uint32_t live_threads() const;
    void collect(Warp& warp);
    void landed(const AsyncOp& op, AsyncStage stage);

    Grid& grid_;
    ClusterLog* const log_;
    Random random_, impatience_;
    AsyncQueue queue_;
    std::vector<std::unique_ptr<Cta>> ctas_;
    std::vector<std::array<std::uint32_t, 3>> ids_;
    std::unique_ptr<Monitor> monitor_;
    std::vector<Warp*> running_;
    std::size_t next_ = 0;
    std::uint64_t issued_ = 0;
    std::uint32_t idle_ = 0;  // turns since anything moved
    bool stalled_ = false;    // until the grid before this one has ended
};

// What is looked for besides bounds and the registers of wgmma, which always are.
struct Checks {
    bool init = false, race = false, proxy = false, barrier = false;
    [[nodiscard]] bool any() const { return init || race || proxy || barrier; }
};
struct Options {
    std::uint64_t seed = 0;
    Policy policy = Policy::eager;
    std::uint64_t step_budget = 0;  // warp instructions; 0 = no limit
    unsigned threads = 1;
    Checks checks;
};
struct Launch {
    std::array<std::uint32_t, 3> grid{1, 1, 1}, block{1, 1, 1}, cluster{1, 1, 1};
    std::uint32_t smem_bytes = 0;
    std::vector<std::byte> params;
    Options options;
    EventLog* log = nullptr;  // of a traced launch
};
// The clusters of a grid that one host thread runs.
struct Crew {
    std::list<std::unique_ptr<Cluster>> flying;
    bool more = true;
};

class Grid {
  public:
    Grid(const Kernel& kernel, const Launch& launch, GlobalMemory memory);
    ~Grid();
    Statistics run();  // throws RunError; Interrupted after stop()
    // Starts a cluster where there is room and gives those in flight `turns` turns; true when all have ended.
    bool advance(std::uint32_t turns);
    [[nodiscard]] const Statistics& statistics() const { return statistics_; }
    void stop() { stop_ = true; }

    const Kernel& kernel;
    const Launch& launch;
    GlobalMemory memory;
    std::byte* params = nullptr;  // 128-aligned copy
    std::mutex wide_atomics;      // serialises 128-bit atomics
    MapPatches map_patches;
    void print(const std::string& text);
    void spend(std::uint64_t instructions, const Warp& warp);  // throws Runaway, Interrupted
    [[nodiscard]] std::array<std::uint32_t, 3> clusters() const;

    // The grid that `griddepcontrol.wait` waits for, where one launch may run beside another (sequence.hpp).
    const Grid* predecessor = nullptr;
    [[nodiscard]] bool ended() const { return ended_; }
    [[nodiscard]] bool may_go_on() const { return predecessor == nullptr || predecessor->ended(); }
    // A cluster whose CTAs have all let dependents start stands still until the others have: what a dependent
    // that starts as early as it may can miss.
    bool holds_back = false;
    void cta_lets_dependents_start() { ++ready_ctas_; }
    [[nodiscard]] bool dependents_may_start() const;
    [[nodiscard]] bool stalled() const;  // until the predecessor has ended

  private:
    bool step(Crew& crew, std::uint32_t turns);
    void work(std::exception_ptr& error);

    std::vector<std::byte> param_storage_;
    std::atomic<bool> stop_ = false;
    std::atomic<std::uint64_t> spent_ = 0;
    std::atomic<std::uint32_t> next_ = 0, ready_ctas_ = 0;
    bool ended_ = false;
    std::uint32_t passes_ = 0;
    Crew crew_;
    std::mutex mutex_;
    Statistics statistics_;
};

// check/deadlock.cpp: the report when nothing in the cluster can run.
[[nodiscard]] Deadlock deadlock_report(Cluster& cluster);

}  // namespace emu
