// How asynchronous operations start and end: what every kind of them has in common.
#include <algorithm>
#include <cstring>

#include "check/monitor.hpp"
#include "exec/mbarrier.hpp"
#include "machine/machine.hpp"
#include "trace/log.hpp"

namespace emu {
namespace {

constexpr int kPoison = 0xff;  // NaN in every float format, −1 in every integer

bool overwrites(AsyncKind kind) {
    return kind != AsyncKind::bulk_reduce && kind != AsyncKind::tensor_reduce && kind != AsyncKind::red_async;
}

}  // namespace

Region Cluster::region(const std::byte* place, std::uint32_t bytes) const {
    for (const auto& cta : ctas_) {
        const auto offset =
            reinterpret_cast<std::uintptr_t>(place) - reinterpret_cast<std::uintptr_t>(cta->shared());
        if (offset < cta->shared_bytes()) return {Region::Where::shared, cta->rank, offset, bytes};
    }
    return {Region::Where::global, 0, reinterpret_cast<std::uintptr_t>(place), bytes};
}

std::byte* Cluster::host(const Region& region) const {
    return region.where == Region::Where::shared ? ctas_[region.rank]->shared() + region.address
                                                 : reinterpret_cast<std::byte*>(region.address);
}

std::uint32_t Cluster::parts(std::uint32_t most) {
    return queue_.policy() == Policy::eager ? 1 : 1 + random_.below(std::min(most, 4u));
}

bool Cluster::gives_up_waiting() {
    return queue_.policy() == Policy::seeded && impatience_.below(8) == 0;
}

Done Cluster::issue(Warp& warp, const Instruction& ins, std::uint32_t lanes, AsyncOp op) {
    op.issuer = &warp;
    op.ins = &ins;
    op.lanes = lanes;
    op.id = ++issued_;
    if (monitor_ != nullptr) monitor_->issued(op);
    if (queue_.policy() != Policy::eager && overwrites(op.kind))
        for (const Region& r : op.writes)
            std::memset(host(r), kPoison, r.bytes);
    if (log_ != nullptr) {
        if (op.done == nullptr) op.done = std::make_shared<bool>(false);
        log_->issue(*this, op);
    }
    return queue_.push(std::move(op));
}

void Cluster::landed(const AsyncOp& op, AsyncStage stage) {
    if (monitor_ != nullptr) monitor_->landed(op, stage);
    if (log_ != nullptr) log_->stage(op, stage);
    if (stage != AsyncStage::completed || !op.signal.any()) return;
    MbarrierRef barrier(*ctas_[op.signal.rank], op.signal.offset);
    if (op.signal.bytes != 0) barrier.info().land(*op.issuer, *op.ins, op.signal.bytes);
    if (op.signal.arrivals != 0) barrier.info().visit(barrier.info().arrivals, *op.issuer, *op.ins);
    if (op.signal.bytes != 0) barrier.complete_tx(static_cast<std::int32_t>(op.signal.bytes));
    if (op.signal.arrivals != 0) barrier.arrive(op.signal.arrivals);
}

}  // namespace emu
