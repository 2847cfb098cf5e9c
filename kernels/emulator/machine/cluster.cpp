// CTAs and clusters: barriers, and taking turns. Every warp gets a turn before any gets its second (fair);
// with a seed, the order of a round and the length of a turn are random, and reproducible.
#include <algorithm>
#include <bit>
#include <cstring>

#include "check/monitor.hpp"
#include "machine/machine.hpp"
#include "trace/log.hpp"

namespace emu {
namespace {

constexpr std::uint32_t kTurn = 128;  // instructions of a turn without a seed

}  // namespace

Cta::Cta(Cluster& cluster, std::array<std::uint32_t, 3> id, std::uint32_t rank)
    : id(id), rank(rank), cluster_(cluster) {
    const Kernel& kernel = cluster.grid().kernel;
    const Launch& launch = cluster.grid().launch;
    const std::uint32_t align = kernel.dynamic_shared_align;
    shared_bytes_ = (kernel.static_shared_bytes + align - 1) / align * align + launch.smem_bytes;
    storage_ = std::make_unique<std::byte[]>(shared_bytes_ + 1024);
    shared_ = storage_.get() + (1024 - reinterpret_cast<std::uintptr_t>(storage_.get()) % 1024);
    std::memset(shared_, 0xff,
                shared_bytes_);  // NaN in every float format: nobody may count on fresh shared memory
    dynamic_ = {"dynamic shared memory", shared_bytes_ - launch.smem_bytes, launch.smem_bytes};
    const std::uint32_t threads = launch.block[0] * launch.block[1] * launch.block[2];
    for (std::uint32_t first = 0; first < threads; first += 32) {
        const std::uint32_t count = std::min(threads - first, 32u);
        const std::uint32_t lanes = count == 32 ? ~0u : (1u << count) - 1;
        warps.push_back(std::make_unique<Warp>(*this, kernel, static_cast<int>(first / 32), lanes));
    }
    warpgroups.resize((warps.size() + 3) / 4);
}

std::uint32_t Cta::live_threads() const {
    std::uint32_t count = 0;
    for (const auto& warp : warps)
        count += static_cast<std::uint32_t>(std::popcount(warp->alive()));
    return count;
}

void Cta::finish_if_complete(NamedBarrier& b) {
    const bool everybody = b.expected == 0;
    const std::uint32_t needed = everybody ? live_threads() : b.expected;
    if (b.arrived == 0 || b.arrived < needed) return;
    b.result_any = b.any, b.result_all = b.all, b.result_votes = b.votes;
    b.any = false, b.all = true, b.votes = 0;
    b.arrived = b.expected = 0;
    if (ClusterLog* log = cluster_.log())
        log->named_barrier(Event::Kind::bar_phase, *this, static_cast<std::uint32_t>(&b - barriers.data()),
                           b.generation, 0);
    ++b.generation;
    if (Monitor* const m = cluster_.monitor())
        m->barrier_completed(*this, static_cast<std::uint32_t>(&b - barriers.data()), everybody);
}

void Cta::arrive(std::uint32_t number, std::uint32_t threads) {
    if (ClusterLog* log = cluster_.log())
        log->named_barrier(Event::Kind::bar_arrive, *this, number, barriers[number].generation, threads);
    barriers[number].arrived += threads;
    finish_if_complete(barriers[number]);
}

void Cta::thread_exited() {
    for (NamedBarrier& b : barriers)
        if (b.expected == 0) finish_if_complete(b);
    cluster_.thread_exited();
    if (live_threads() == 0) let_dependents_start();
}

void Cta::let_dependents_start() {
    if (!lets_dependents_start) cluster_.grid().cta_lets_dependents_start();
    lets_dependents_start = true;
}

void Cta::name_shared(const std::string& name, std::uint32_t offset, std::uint32_t bytes) {
    for (const SharedObject& o : named_)
        if (o.offset == offset && o.size == bytes && o.name == name) return;
    std::erase_if(named_, [&](const SharedObject& o) { return o.offset == offset && o.size == bytes; });
    named_.push_back({name, offset, bytes});
}

const SharedObject& Cta::shared_object(std::uint32_t offset) const {
    const auto holds = [=](const SharedObject& o) {
        return offset >= o.offset && offset - o.offset < o.size;
    };
    if (const auto found = std::ranges::find_if(named_.rbegin(), named_.rend(), holds);
        found != named_.rend())
        return *found;
    const auto& variables = cluster_.grid().kernel.shared_objects;
    const auto found = std::ranges::find_if(variables, holds);
    return found != variables.end() ? *found : dynamic_;
}

std::string Cta::object_at(std::uint32_t offset) const {
    const SharedObject& o = shared_object(offset);
    return offset > o.offset ? o.name + " + " + std::to_string(offset - o.offset) : o.name;
}

Cluster::Cluster(Grid& grid, std::uint32_t number)
    : number(number),
      grid_(grid),
      log_(grid.launch.log != nullptr ? &grid.launch.log->cluster(number) : nullptr),
      random_(grid.launch.options.seed * 0x9e3779b97f4a7c15ull + number),
      impatience_(grid.launch.options.seed * 0x9e3779b97f4a7c15ull + number + 1),
      queue_(grid.launch.options.policy, grid.launch.options.seed + number * 977u + 1,
             [this](const AsyncOp& op, AsyncStage stage) { landed(op, stage); }) {
    const auto& size = grid.launch.cluster;
    const auto count = grid.clusters();
    const std::array<std::uint32_t, 3> at{number % count[0], number / count[0] % count[1],
                                          number / (count[0] * count[1])};
    for (std::uint32_t rank = 0; rank < size[0] * size[1] * size[2]; ++rank) {
        const std::array<std::uint32_t, 3> id{at[0] * size[0] + rank % size[0],
                                              at[1] * size[1] + rank / size[0] % size[1],
                                              at[2] * size[2] + rank / (size[0] * size[1])};
        ctas_.push_back(nullptr);
        // Warps read the cluster's size for %cluster_nctarank, so all places must exist before the first CTA.
        ids_.push_back(id);
    }
    if (log_ != nullptr) log_->ctas = ids_;
    for (std::uint32_t rank = 0; rank < ctas_.size(); ++rank)
        ctas_[rank] = std::make_unique<Cta>(*this, ids_[rank], rank);
    if (grid.launch.options.checks.any()) monitor_ = std::make_unique<Monitor>(*this);
    for (const auto& cta : ctas_)
        for (const auto& warp : cta->warps) {
            warp->watch(monitor_.get());
            running_.push_back(warp.get());
        }
}

Cluster::~Cluster() = default;

std::uint32_t Cluster::live_threads() const {
    std::uint32_t count = 0;
    for (const auto& cta : ctas_)
        count += cta->live_threads();
    return count;
}

void Cluster::cluster_arrive(std::uint32_t threads) {
    if (log_ != nullptr && threads > 0)
        log_->cluster_barrier(Event::Kind::cluster_come, cluster_generation, threads);
    cluster_arrived += threads;
    if (cluster_arrived == 0 || cluster_arrived < live_threads()) return;
    if (log_ != nullptr) log_->cluster_barrier(Event::Kind::cluster_phase, cluster_generation, 0);
    cluster_arrived = 0, ++cluster_generation;
    if (monitor_ != nullptr) monitor_->cluster_completed();
}

void Cluster::thread_exited() {
    cluster_arrive(0);
}

void Cluster::collect(Warp& warp) {
    grid_.spend(warp.instructions, warp);
    statistics.instructions += warp.instructions;
    statistics.lane_instructions += warp.lane_instructions;
    warp.elapsed += warp.instructions;
    warp.instructions = warp.lane_instructions = 0;
}

bool Cluster::lets_dependents_start() const {
    return std::ranges::all_of(ctas_, [](const auto& cta) { return cta->lets_dependents_start; });
}

bool Cluster::waits_for_grid() const {
    const auto waits = [](const Split& s) { return s.wait.kind == Wait::Kind::grid; };
    return !grid_.may_go_on() && std::ranges::any_of(running_, [&](const Warp* warp) {
        return std::ranges::any_of(warp->splits(), waits);
    });
}

bool Cluster::run(std::uint32_t turns) try {
    if (stalled_ && !grid_.may_go_on()) return false;
    stalled_ = false;
    const bool shuffled = grid_.launch.options.seed != 0;
    for (std::uint32_t turn = 0; turn < turns && !running_.empty(); ++turn) {
        if (next_ >= running_.size()) {
            next_ = 0;
            if (shuffled)
                for (std::size_t i = running_.size(); i > 1; --i)
                    std::swap(running_[i - 1], running_[random_.below(static_cast<std::uint32_t>(i))]);
        }
        Warp& warp = *running_[next_];
        const std::uint32_t quantum = shuffled ? 1 + random_.below(200) : kTurn;
        const Warp::State state = warp.run(quantum);
        collect(warp);
        const bool landed = queue_.tick();
        if (monitor_ != nullptr) monitor_->turn_ended();
        if (log_ != nullptr && state == Warp::State::finished) log_->exit(warp);
        if (state == Warp::State::finished)
            running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(next_));
        else
            ++next_;
        idle_ = state == Warp::State::blocked && !landed ? idle_ + 1 : 0;
        // Rounds are shuffled: between two turns of a warp all others may have had two.
        if (idle_ > 2 * running_.size()) {
            if (!queue_.force_one()) {
                if (waits_for_grid()) return stalled_ = true, false;
                if (monitor_ != nullptr) monitor_->nothing_runs();
                throw deadlock_report(*this);
            }
            idle_ = 0;
        }
    }
    if (!running_.empty()) return false;
    while (queue_.force_one()) {  // what is still in flight lands before the grid ends
    }
    if (monitor_ != nullptr) monitor_->say_postponed();
    return true;
} catch (KernelTrap& trap) {
    if (monitor_ != nullptr) monitor_->add_postponed(trap);
    throw;
} catch (const RunError&) {
    if (monitor_ != nullptr) monitor_->say_postponed();
    throw;
}

}  // namespace emu
