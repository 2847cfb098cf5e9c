#include "machine/multiplies.hpp"

#include <algorithm>

namespace emu {

bool WarpMultiplies::settled(std::uint64_t pending) const {
    return std::ranges::all_of(in_flight_,
                               [&](const Multiply& m) { return m.group + pending >= group_ || *m.done; });
}

std::uint64_t WarpMultiplies::awaited(std::uint64_t pending) const {
    std::uint64_t last = 0;
    for (const Multiply& m : in_flight_)
        if (m.group + pending < group_) last = m.number;
    return last;
}

void WarpMultiplies::retire(std::uint64_t pending) {
    fenced_ = false;
    const std::uint64_t last = awaited(pending);
    if (last == 0) return;
    for (RegisterNote& note : notes_)
        if (note.multiply <= last) note.use = RegisterNote::Use::none;
    while (!in_flight_.empty() && in_flight_.front().number <= last)
        in_flight_.pop_front();
}

Multiply& WarpMultiplies::add(const Instruction& ins) {
    return in_flight_.emplace_back(Multiply{.number = ++issued_, .group = group_, .ins = &ins});
}

Multiply* WarpMultiplies::find(std::uint64_t number) {
    if (in_flight_.empty() || number < in_flight_.front().number) return nullptr;
    return &in_flight_[static_cast<std::size_t>(number - in_flight_.front().number)];
}

const MultiplyCall* Warpgroup::enter(std::size_t warp, const MultiplyCall& call) {
    const std::uint64_t number = ++issued[warp];
    const auto at = static_cast<std::size_t>(number - first);
    if (at == calls.size()) {
        calls.push_back(call);
    } else if (calls[at] != call) {
        return &calls[at];
    }
    while (!calls.empty() && all_issued(first))
        calls.pop_front(), ++first;
    return nullptr;
}

bool Warpgroup::all_issued(std::uint64_t number) const {
    return std::ranges::all_of(issued, [&](std::uint64_t n) { return n >= number; });
}

}  // namespace emu
