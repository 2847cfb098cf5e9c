#include "units/async_queue.hpp"

#include <algorithm>

namespace emu {
namespace {

bool may_run(const AsyncOp& op) {
    return std::ranges::all_of(op.after, [](const Done& d) { return *d; });
}

}  // namespace

Done AsyncQueue::push(AsyncOp op) {
    const Done done = op.done;
    ops_.push_back(std::move(op));
    if (policy_ == Policy::eager)
        while (force_one()) {
        }
    return done;
}

bool AsyncQueue::run(std::size_t index) {
    const AsyncOp op = std::move(ops_[index]);  // completing may push the operation's next stage
    ops_.erase(ops_.begin() + static_cast<std::ptrdiff_t>(index));
    *op.done = true;
    op.complete();
    return true;
}

bool AsyncQueue::tick() {
    if (policy_ != Policy::seeded || ops_.empty() || random_.below(4) != 0) return false;
    const std::size_t index = random_.below(static_cast<std::uint32_t>(ops_.size()));
    return may_run(ops_[index]) && run(index);
}

bool AsyncQueue::force_one() {
    for (std::size_t i = 0; i < ops_.size(); ++i)
        if (may_run(ops_[i])) return run(i);
    return false;
}

}  // namespace emu
