#include "machine/sequence.hpp"

namespace emu {

void Sequence::add(std::unique_ptr<Launch> launch, const Kernel& kernel, GlobalMemory memory,
                   bool programmatic) {
    auto grid = std::make_unique<Grid>(kernel, *launch, std::move(memory));
    if (programmatic && !entries_.empty()) {
        Grid& before = *entries_.back().grid;
        grid->predecessor = &before;
        before.holds_back = launch->options.policy == Policy::eager;
    }
    entries_.push_back({std::move(launch), std::move(grid), programmatic});
}

bool Sequence::may_start(std::size_t number, std::size_t ended, Random& random) const {
    const Entry& entry = entries_[number];
    if (ended == number) return true;
    if (!entry.programmatic || !entries_[number - 1].grid->dependents_may_start()) return false;
    const Policy policy = entry.launch->options.policy;
    return policy == Policy::eager || (policy == Policy::seeded && random.below(8) == 0);
}

// Which of the grids [ended, started) moves next: the youngest that can, or any with a seed.
std::size_t Sequence::pick(std::size_t ended, std::size_t started, Random& random) const {
    const auto can = [&](std::size_t n) {
        return !entries_[n].grid->ended() && !entries_[n].grid->stalled();
    };
    if (entries_[started - 1].launch->options.policy == Policy::seeded)
        if (const std::size_t any = ended + random.below(static_cast<std::uint32_t>(started - ended));
            can(any))
            return any;
    for (std::size_t n = started; n-- > ended;)
        if (can(n)) return n;
    return ended;
}

std::vector<Statistics> Sequence::run() {
    if (entries_.empty()) return {};
    Random random(entries_.front().launch->options.seed + 1);
    std::size_t ended = 0, started = 0;
    while (ended < entries_.size()) {
        while (started < entries_.size() && may_start(started, ended, random))
            ++started;
        static_cast<void>(entries_[pick(ended, started, random)].grid->advance(1));
        while (ended < started && entries_[ended].grid->ended())
            ++ended;
    }
    std::vector<Statistics> statistics;
    for (const Entry& entry : entries_)
        statistics.push_back(entry.grid->statistics());
    return statistics;
}

void Sequence::stop() {
    for (const Entry& entry : entries_)
        entry.grid->stop();
}

}  // namespace emu
