// One launch. Clusters start one after the other; when the ones in flight do not finish within a good while
// (they may wait for each other through global memory), another one starts beside them.
#include <algorithm>
#include <exception>
#include <thread>

#include "machine/machine.hpp"
#include "trace/log.hpp"

namespace emu {
namespace {

constexpr std::uint32_t kTurnsBeforeCompany =
    4096;  // turns of a cluster before the next one starts beside it
constexpr std::size_t kMostInFlight = 132;

}  // namespace

Grid::Grid(const Kernel& kernel, const Launch& launch, GlobalMemory memory)
    : kernel(kernel), launch(launch), memory(std::move(memory)) {
    param_storage_.resize(launch.params.size() + 256);
    params = param_storage_.data() + (128 - reinterpret_cast<std::uintptr_t>(param_storage_.data()) % 128);
    std::ranges::copy(launch.params, params);
    if (launch.log != nullptr) {
        const std::uint32_t align = kernel.dynamic_shared_align;
        launch.log->begin(kernel, launch.block,
                          (kernel.static_shared_bytes + align - 1) / align * align + launch.smem_bytes);
    }
}

std::array<std::uint32_t, 3> Grid::clusters() const {
    return {launch.grid[0] / launch.cluster[0], launch.grid[1] / launch.cluster[1],
            launch.grid[2] / launch.cluster[2]};
}

void Grid::print(const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (statistics_.output.size() < (1u << 20))
        statistics_.output += text;  // as on a GPU, the buffer is finite
}

void Grid::spend(std::uint64_t instructions, const Warp& warp) {
    if (stop_) throw Interrupted();
    const std::uint64_t budget = launch.options.step_budget;
    if (spent_.fetch_add(instructions, std::memory_order_relaxed) + instructions <= budget || budget == 0)
        return;
    const Instruction& from = kernel.code[warp.loop_from];
    const Instruction& to = kernel.code[warp.loop_to];
    const auto place = [&](const Instruction& at) {
        const std::string line =
            at.source_line > 0 ? "line " + std::to_string(at.source_line) + ", " : std::string();
        return line + "PTX line " + std::to_string(at.ptx_line);
    };
    std::string text = "The kernel has used up its budget of " + std::to_string(budget) +
                       " warp instructions: " + describe(warp.where(from));
    if (warp.loop_from != warp.loop_to || warp.loop_from != 0)
        text += ".\nWarp " + std::to_string(warp.number()) +
                (warp.role().empty() ? std::string() : " (" + std::string(warp.role()) + ")") +
                " last went round the loop from " + place(to) + " to " + place(from) + ", " +
                std::to_string(warp.elapsed) + " instructions after its start";
    Runaway error(text, warp.where(from));
    for (std::size_t i = 0; i < 3; ++i)
        error.cta[i] = warp.cta().id[i];
    error.warp = warp.number();
    error.role = warp.role();
    error.rule = "runaway";
    throw error;
}

bool Grid::step(Crew& crew, std::uint32_t turns) {
    const auto count = clusters();
    if (crew.more && crew.flying.size() < kMostInFlight) {
        const std::uint32_t number = next_.fetch_add(1);
        crew.more = number < count[0] * count[1] * count[2];
        if (crew.more) crew.flying.push_back(std::make_unique<Cluster>(*this, number));
    }
    // Now and then everybody runs: the others may wait for one that stands still.
    const bool hold = holds_back && !dependents_may_start() && ++passes_ % 64 != 0;
    for (auto cluster = crew.flying.begin(); cluster != crew.flying.end();) {
        if ((hold && (*cluster)->lets_dependents_start()) || !(*cluster)->run(turns)) {
            ++cluster;
            continue;
        }
        const std::lock_guard lock(mutex_);
        statistics_.instructions += (*cluster)->statistics.instructions;
        statistics_.lane_instructions += (*cluster)->statistics.lane_instructions;
        ++statistics_.clusters;
        cluster = crew.flying.erase(cluster);
    }
    return !crew.more && crew.flying.empty();
}

bool Grid::advance(std::uint32_t turns) {
    return ended_ = step(crew_, turns);
}

bool Grid::dependents_may_start() const {
    return ended_ || ready_ctas_ == launch.grid[0] * launch.grid[1] * launch.grid[2];
}

bool Grid::stalled() const {
    return !may_go_on() && !crew_.flying.empty() && (!crew_.more || crew_.flying.size() >= kMostInFlight) &&
           std::ranges::all_of(crew_.flying, [](const auto& cluster) { return cluster->waits_for_grid(); });
}

void Grid::work(std::exception_ptr& error) try {
    Crew crew;
    while (!step(crew, kTurnsBeforeCompany)) {
    }
} catch (...) {
    const std::lock_guard lock(mutex_);
    if (error == nullptr) error = std::current_exception();
    stop_ = true;
}

Statistics Grid::run() {
    std::exception_ptr error;
    std::vector<std::thread> helpers;
    for (unsigned t = 1; t < launch.options.threads; ++t)
        helpers.emplace_back([&] { work(error); });
    work(error);
    for (std::thread& helper : helpers)
        helper.join();
    if (error) std::rethrow_exception(error);
    ended_ = true;
    return statistics_;
}

Grid::~Grid() = default;

}  // namespace emu
