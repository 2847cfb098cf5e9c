// The checks of one cluster: who may touch which byte of shared memory when (races, the proxy rule), what has
// been written at all, how mbarriers are used, and what is still going on when a CTA ends.
//
// Order is happens-before between warps. Each warp has a clock; releasing hands on what it knows, acquiring
// takes it over. An asynchronous operation becomes known through what it completes on: the phase of an
// mbarrier, or a group of copies. So a missing wait is found in every schedule, not only in those where it
// hurts.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "check/epoch.hpp"
#include "check/shadow.hpp"
#include "machine/machine.hpp"

namespace emu {

class Monitor {
  public:
    explicit Monitor(Cluster& cluster);
    [[nodiscard]] const Checks& checks() const { return checks_; }

    // accesses.cpp: generic loads, stores and atomics; at[lane] is what Warp::resolve gave.
    void access(Warp& w, const Instruction& ins, std::uint32_t mask, std::byte* const* at,
                std::uint32_t bytes, Warp::Access access, bool strong);

    // operations.cpp
    enum class Groups : std::uint8_t { cp_async, bulk, wgmma };
    static std::optional<Groups> groups_of(AsyncKind kind);
    void issued(const AsyncOp& op);
    void landed(const AsyncOp& op, AsyncStage stage);  // before its signal is given
    void committed(Warp& w, std::uint32_t lanes, Groups groups);
    void waited(Warp& w, std::uint32_t lanes, Groups groups, std::uint64_t open);

    // order.cpp: what releases and what acquires
    enum class Fence : std::uint8_t { none, memory, proxy, mbarrier_init };
    void fence(Warp& w, Fence kind);
    void barrier_arrived(Warp& w, std::uint32_t number);
    void barrier_completed(const Cta& cta, std::uint32_t number, bool everybody);
    void barrier_passed(Warp& w, std::uint32_t number);
    void cluster_arrived(Warp& w, bool relaxed);
    void cluster_completed();
    void cluster_passed(Warp& w);

    // mbarriers.cpp
    void mbarrier_init(Warp& w, const Instruction& ins, int lane, std::uint32_t offset);
    void mbarrier_inval(Warp& w, const Instruction& ins, int lane, std::uint32_t offset);
    void mbarrier_used(Warp& w, const Instruction& ins, int lane, Cta& cta, std::uint32_t offset);
    void mbarrier_arrived(Warp& w, const Cta& cta, std::uint32_t offset, bool relaxed);
    void mbarrier_completed(const Cta& cta, std::uint32_t offset);  // a phase
    void mbarrier_passed(Warp& w, const Cta& cta, std::uint32_t offset);

    // lifetime.cpp
    void exited(Warp& w);  // some of its lanes
    void turn_ended();
    void say_postponed();                        // throws a report that has been kept back, if there is one
    void add_postponed(KernelTrap& trap) const;  // tells it at the end of another
    void nothing_runs();  // throws where lanes wait at an .aligned instruction for others of their warp

  private:
    using Agent = check::Agent;
    using Time = check::Time;
    using Epoch = check::Epoch;
    using Knowledge = check::Knowledge;

    struct AgentInfo {
        enum class Kind : std::uint8_t { warp, cp_async, bulk, wgmma, mbarrier } kind;
        Warp* warp = nullptr;                // of a warp and its copy groups
        std::uint32_t rank = 0, offset = 0;  // of an mbarrier
        Epoch last = {};                     // the latest operation that completes on it
        Warp* last_issuer = nullptr;
        [[nodiscard]] bool generic() const { return kind == Kind::warp || kind == Kind::cp_async; }
    };
    struct GroupState {
        Agent agent = 0;
        std::array<Time, 32> committed{};
        std::uint32_t idle_waits = 0;  // lanes that waited without ever having committed
    };
    struct WarpState {
        Agent self = 0;
        Knowledge now, published;               // published: at the last fence
        std::shared_ptr<const Knowledge> copy;  // of `now`, while that is unchanged
        std::unique_ptr<GroupState> groups[3];
        std::uint32_t started = 0;  // ranks of CTAs that are known to have started
    };
    struct Sync {  // a barrier: what arrivals of this phase bring, and what waiters of earlier ones may take
        Knowledge coming, done;
    };
    struct Mbarrier {
        Sync sync;
        Agent agent = 0;
        Time phases = 0;  // completed, over all its lives
        Epoch init;
        bool live = false, init_fenced = false;
        check::Clock users;
    };
    struct Location {  // of strong accesses
        std::shared_ptr<const Knowledge> knowledge;
        Epoch by;
    };
    struct CtaState {
        check::Shadow shadow;
        std::array<Sync, 16> barriers;
        Knowledge exited;
        check::Clock touched;  // by agent: when a warp of another CTA was last here
        check::Clock sources;  // by agent: operations that read here and complete elsewhere
        check::Clock passed;   // arrivals at the cluster barrier that its warps have waited for
        bool ended = false;
    };
    struct Flight {
        Agent agent = 0;
        Time time = 0;
        Knowledge carried;  // cp.async.mbarrier.arrive: what it hands to the barrier
    };
    // One lane's access, or one region of an operation, for reports.
    struct Act {
        Warp& warp;
        const Instruction& ins;
        std::uint32_t lanes;
        bool writes;
        std::uint32_t bytes = 0;
        const AsyncOp* op = nullptr;
    };

    [[nodiscard]] std::size_t index(const Warp& w) const {
        return w.cta().rank * warps_per_cta_ + static_cast<std::size_t>(w.number());
    }
    WarpState& state(const Warp& w) { return warps_[index(w)]; }
    [[nodiscard]] const WarpState& state(const Warp& w) const { return warps_[index(w)]; }
    CtaState& state(const Cta& cta) { return ctas_[cta.rank]; }
    Epoch now(const WarpState& s, const Warp& w, const Instruction& ins) const {
        return Epoch::of(s.self, s.now.known[s.self],
                         static_cast<std::uint64_t>(&ins - w.kernel().code.data()));
    }
    void tick(WarpState& s) { s.now.known.raise(s.self, s.now.known[s.self] + 1), s.copy.reset(); }
    void acquire(WarpState& s, const Knowledge& k) { s.now.join(k), s.copy.reset(); }
    Agent new_agent(AgentInfo info);
    GroupState& groups(Warp& w, Groups kind);
    Mbarrier& mbarrier(const Cta& cta, std::uint32_t offset);

    // accesses.cpp
    enum class Clash : std::uint8_t { none, write, read, barrier };  // what the earlier access did
    struct Found {
        Clash clash = Clash::none;
        Epoch earlier;
        std::uint32_t offset = 0;  // of the first clash
        std::uint32_t cells = 0, unwritten = 0;
    };
    Found touch(WarpState& s, CtaState& cta, std::uint32_t offset, std::uint32_t bytes, bool reads,
                bool writes, bool strong, Epoch now);
    void touch_shared(Warp& w, const Instruction& ins, int lane, Cta& cta, std::uint32_t offset,
                      std::uint32_t bytes, Warp::Access access, bool strong);
    bool touch_row(Warp& w, const Instruction& ins, std::uint32_t mask, std::byte* const* at,
                   std::uint32_t bytes, Warp::Access access);
    bool touch_local(Warp& w, const Instruction& ins, std::uint32_t mask, std::byte* const* at,
                     std::uint32_t bytes, Warp::Access access);
    void touch_global(const Act& act, std::byte* at, std::uint32_t bytes, bool reads);
    void acquire_location(WarpState& s, const std::byte* at);
    void release_location(WarpState& s, const std::byte* at, Epoch now);
    // operations.cpp
    void signals(const AsyncOp& op);  // mbarriers.cpp: the barrier that an operation names
    void async_read(const AsyncOp& op, const Region& r);
    void async_write(const AsyncOp& op, const Region& r);
    // mbarriers.cpp
    void end_life(const Act& act, const Cta& cta, std::uint32_t offset);
    // lifetime.cpp
    void visits(Warp& w, const Instruction& ins, std::uint32_t lanes, Cta& cta);
    void ended(Warp& w, Cta& cta);

    // reports.cpp: each throws, unless its rule is switched off
    void clash(const Act& act, const Cta& cta, std::uint32_t offset, Epoch earlier, Clash what) const;
    void unfenced(const Act& act, const Cta& cta, std::uint32_t offset, Epoch earlier) const;
    void unwritten(const Act& act, const std::string& object, const std::string& where) const;
    void unwritten(const Act& act, const Cta& cta, std::uint32_t offset);
    // Adds to a report kept back who has written the place in the end.
    void write_comes(const Act& act, const Cta& cta, std::uint32_t offset, std::uint32_t bytes);
    void report(const char* rule, const Act& act, const std::string& sentence, const std::string& more,
                const std::string& object, Epoch earlier = {}, const Warp* other = nullptr) const;
    struct Earlier {
        const Warp* warp;
        std::string text;        // "warp 0", "a bulk copy of warp 0"
        std::string completion;  // of an operation: how to wait for it
    };
    [[nodiscard]] Earlier earlier(Epoch e) const;
    [[nodiscard]] std::string name(AsyncKind kind, const Warp& issuer) const;
    [[nodiscard]] std::string completion(AsyncKind kind, const Warp& issuer, const AgentInfo* agent,
                                         const AsyncOp* op) const;
    [[nodiscard]] std::string does(const Act& act) const;
    [[nodiscard]] const Instruction& instruction(Epoch e) const;

    Cluster& cluster_;
    const Checks checks_;
    std::uint32_t warps_per_cta_;
    std::vector<WarpState> warps_;
    std::vector<CtaState> ctas_;
    std::vector<AgentInfo> agents_;
    std::unordered_map<std::uint32_t, Mbarrier> mbarriers_;  // rank << 24 | offset
    std::vector<Mbarrier*> unfenced_;                        // initialised, no fence yet
    std::unordered_map<const std::byte*, Location> locations_;
    Sync cluster_barrier_;
    check::Clock cluster_arrivals_, cluster_arrived_;     // who arrived when, whatever it released
    std::unordered_map<Time, Flight> flights_;            // by the operation's number
    std::unordered_map<std::uint32_t, AsyncKind> kinds_;  // by instruction: what operations it issues
    std::unordered_map<const Warp*, std::vector<std::uint8_t>> local_written_;
    // Who reads too early what another warp will write has a race, not a missing write: so such a report
    // waits for a few rounds, in which the race may show.
    mutable std::optional<KernelTrap> postponed_;
    std::uint32_t turns_postponed_ = 0;
    std::optional<std::uint32_t> postponed_place_;  // rank << 24 | offset
};

}  // namespace emu
