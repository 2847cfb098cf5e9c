// The event log of one launch. A cluster writes into its own ClusterLog, which it has only when a trace was
// asked for; nothing is logged otherwise.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "ir/instruction.hpp"
#include "trace/classes.hpp"
#include "trace/event.hpp"

namespace emu {

class Cluster;
class Cta;
class Warp;

class EventLog;

class ClusterLog {
  public:
    ClusterLog(EventLog& all, std::uint32_t number) : number(number), all_(all) {}

    // A warp's straight line of instructions: it starts at `pc`, comes to more, and stops before `end`.
    void start(const Warp& warp, std::uint32_t pc, std::uint32_t lanes);
    void at(std::uint32_t pc, std::uint32_t active);
    void stop(std::uint32_t end);
    // What the instruction does that the warp came to last.
    void access(const Cluster& cluster, const std::byte* place, std::uint32_t bytes, bool reads, bool writes);
    void wait(Waited what, std::uint32_t object, std::uint64_t value);
    void pass(Waited what, std::uint32_t object, std::uint64_t value);
    void mbarrier(Event::Kind kind, const Cta& owner, std::uint32_t offset, std::uint32_t amount,
                  std::uint32_t phase);
    void named_barrier(Event::Kind kind, const Cta& cta, std::uint32_t which, std::uint64_t generation,
                       std::uint32_t threads);
    void cluster_barrier(Event::Kind kind, std::uint64_t generation, std::uint32_t threads);
    void commit(Group group);
    void issue(const Cluster& cluster, const AsyncOp& op);
    void stage(const AsyncOp& op, AsyncStage stage);
    void role(std::uint32_t name);
    void exit(const Warp& warp);

    std::vector<Event> events;
    std::vector<Operation> operations;  // by id - 1
    std::vector<Buffer> buffers;
    std::vector<std::array<std::uint32_t, 3>> ctas;  // blockIdx by rank
    const std::uint32_t number;

  private:
    struct Lane {
        std::uint64_t place;  // shared: offset; global: host address
        std::uint32_t bytes;
    };
    void add(Event e);
    void note(Event e);  // cuts the straight line before the instruction that does it
    void flush();
    [[nodiscard]] std::uint32_t buffer_at(const Cta& cta, std::uint32_t offset);
    void stretches(const Cluster& cluster, const std::vector<Region>& regions, std::vector<Stretch>& to);

    EventLog& all_;
    std::uint16_t cta_ = 0, warp_ = kNoWarp;
    std::uint32_t first_ = 0, pc_ = 0, mask_ = 0, busy_ = 0, last_busy_ = 0;
    bool by_operation_ = false;
    // The memory instruction whose lanes come in one by one.
    std::vector<Lane> lanes_;
    Event pending_{};
    const Cta* pending_owner_ = nullptr;
    std::map<std::tuple<std::uint32_t, std::uint32_t, std::string>, std::uint32_t> buffer_index_;
    std::map<const bool*, std::uint32_t> done_;  // operations by the flag that says that they are done
};

class EventLog {
  public:
    explicit EventLog(std::uint64_t limit) : limit_(limit) {}
    // Called once, by the grid. The log outlives the program, so it keeps what it needs of the kernel.
    void begin(const Kernel& kernel, std::array<std::uint32_t, 3> block, std::uint32_t shared_bytes);
    [[nodiscard]] ClusterLog& cluster(std::uint32_t number);
    void spend();  // throws TraceFull

    struct Line {  // of the program
        std::string text;
        Class kind;
        std::int32_t ptx_line, source_file, source_line;
        std::uint16_t written;  // so many of the operands are destinations
        std::int32_t guard;     // predicate, or kNoGuard
        std::vector<Operand> operands;
    };
    std::vector<Line> code;
    std::vector<std::string> files, names;
    std::string kernel_name;
    std::uint32_t registers = 0, predicates = 0, threads = 0, shared_bytes = 0;
    std::map<std::uint32_t, ClusterLog> clusters;

  private:
    std::mutex mutex_;
    std::uint64_t limit_;
    std::atomic<std::uint64_t> count_ = 0;
};

}  // namespace emu
