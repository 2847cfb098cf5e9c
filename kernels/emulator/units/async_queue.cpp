#include "units/async_queue.hpp"

#include <algorithm>

namespace emu {
namespace {

constexpr std::uint32_t kPatience = 1000;  // turns of warps

bool may_run(const std::unique_ptr<AsyncOp>& op) {
    return std::ranges::all_of(op->after, [](const Done& d) { return *d; });
}

}  // namespace

Done AsyncQueue::push(AsyncOp op) {
    if (op.done == nullptr) op.done = std::make_shared<bool>(false);
    const Done done = op.done;
    if (policy_ == Policy::eager) {
        if (op.fetch) {
            op.fetch();
            if (op.fetched) *op.fetched = true;
            landed_(op, AsyncStage::fetched);
        }
        finish(op);
    } else {
        ops_.push_back(std::make_unique<AsyncOp>(std::move(op)));
    }
    return done;
}

void AsyncQueue::finish(AsyncOp& op) {
    *op.done = true;
    if (op.complete) op.complete();
    landed_(op, AsyncStage::completed);
}

void AsyncQueue::run(std::size_t index) {
    turns_ = 0;
    std::unique_ptr<AsyncOp> op = std::move(ops_[index]);
    ops_.erase(ops_.begin() + static_cast<std::ptrdiff_t>(index));
    if (!op->fetch) return finish(*op);
    op->fetch();
    op->fetch = nullptr;
    if (op->fetched) *op->fetched = true;
    landed_(*op, AsyncStage::fetched);
    ops_.push_back(std::move(op));  // it writes later than everything that is in flight now
}

bool AsyncQueue::tick() {
    if (policy_ == Policy::lazy && !ops_.empty() && ++turns_ > kPatience) return force_one();
    if (policy_ != Policy::seeded || ops_.empty() || random_.below(4) != 0) return false;
    const std::size_t index = random_.below(static_cast<std::uint32_t>(ops_.size()));
    if (!may_run(ops_[index])) return false;
    run(index);
    return true;
}

bool AsyncQueue::force_one() {
    const auto first = std::ranges::find_if(ops_, may_run);
    if (first == ops_.end()) return false;
    run(static_cast<std::size_t>(first - ops_.begin()));
    return true;
}

}  // namespace emu
