// mbarriers: what their phases order, and whether they are used as what they are.
#include <cstring>

#include "check/monitor.hpp"
#include "check/story.hpp"
#include "units/mbarrier.hpp"

namespace emu {

using check::Cell;

namespace {

constexpr std::uint32_t kBarrierBytes = 8;

std::string name_of(const Cta& cta, std::uint32_t offset) {
    return "mbarrier " + cta.object_at(offset);
}

}  // namespace

// Its address stays, in an unordered_map.
Monitor::Mbarrier& Monitor::mbarrier(const Cta& cta, std::uint32_t offset) {
    const auto [at, fresh] = mbarriers_.try_emplace(cta.rank << kRankShift | offset);
    if (fresh) at->second.agent = new_agent({AgentInfo::Kind::mbarrier, nullptr, cta.rank, offset});
    return at->second;
}

// Ends a life of the barrier, for good or to begin another.
void Monitor::end_life(const Act& act, const Cta& cta, std::uint32_t offset) {
    Mbarrier& b = mbarrier(cta, offset);
    if (!b.live) return;
    const std::string object = cta.object_at(offset),
                      again = "The " + name_of(cta, offset) + " is " +
                              (act.writes ? "initialised again" : "invalidated");
    std::uint64_t word;
    std::memcpy(&word, cluster_.cta(cta.rank)->shared() + offset, 8);
    if (const auto tx = mbarrier::unpack(word).tx; tx != 0)
        report("barrier-reinit", act,
               again + " while " + std::to_string(tx) + " bytes are still owed to its phase",
               "Wait for the phase first.", object);
    for (const auto& warp : cta.warps)
        for (const Split& split : warp->splits())
            if (split.wait.kind == Wait::Kind::mbarrier && (split.wait.number & kOffsetMask) == offset)
                report("barrier-reinit", act, again + " while " + who(*warp) + " waits on it",
                       "Initialise it once, before its first use.", object);
    const check::Clock& known = state(act.warp).now.known;
    for (const WarpState& other : warps_)
        if (const Time used = b.users[other.self]; used > known[other.self])
            report("barrier-reinit", act,
                   again + " although nothing orders that after its last use by " +
                       who(*agents_[other.self].warp),
                   "Put a barrier among the threads between.", object);
    b.live = false;
}

void Monitor::mbarrier_init(Warp& w, const Instruction& ins, int lane, std::uint32_t offset) {
    WarpState& s = state(w);
    CtaState& cta = state(w.cta());
    const Act act{w, ins, 1u << lane, true, kBarrierBytes};
    end_life(act, w.cta(), offset);
    Mbarrier& b = mbarrier(w.cta(), offset);
    cta.shadow.each(offset, kBarrierBytes, [&](Cell& cell, std::uint32_t) {
        if (cell.write.agent() == check::kBarrier) cell.write = {};
        return true;
    });
    const Epoch moment = now(s, w, ins);
    const Found found = touch(s, cta, offset, kBarrierBytes, false, true, false, moment);
    if (found.clash != Clash::none) clash(act, w.cta(), found.offset, found.earlier, found.clash);
    cta.shadow.each(offset, kBarrierBytes, [&](Cell& cell, std::uint32_t) {
        cta.shadow.set_writer(cell, Epoch::of(check::kBarrier, 1, moment.pc()));
        return true;
    });
    b.live = true, b.init = moment, b.init_fenced = false;
    b.sync = {};
    b.users.clear();
    if (std::ranges::find(unfenced_, &b) == unfenced_.end()) unfenced_.push_back(&b);
}

void Monitor::mbarrier_inval(Warp& w, const Instruction& ins, int lane, std::uint32_t offset) {
    end_life({w, ins, 1u << lane, false, kBarrierBytes}, w.cta(), offset);
    check::Shadow& shadow = state(w.cta()).shadow;
    shadow.each(offset, kBarrierBytes, [&](Cell& cell, std::uint32_t) {
        shadow.set_writer(cell, {});
        return true;
    });
}

void Monitor::mbarrier_used(Warp& w, const Instruction& ins, int lane, Cta& cta, std::uint32_t offset) {
    WarpState& s = state(w);
    if (&cta != &w.cta()) visits(w, ins, 1u << lane, cta);
    Mbarrier& b = mbarrier(cta, offset);
    if (b.live && !s.now.known.knows(b.init))
        report("barrier-init", {w, ins, 1u << lane, false, kBarrierBytes},
               who(w) + " uses the " + name_of(cta, offset) +
                   ", and nothing orders that after its initialisation",
               &cta == &w.cta() ? "Put __syncthreads() between mbarrier.init and the first use."
                                : "Put fence.mbarrier_init and a barrier of the cluster between "
                                  "mbarrier.init and the first use.",
               cta.object_at(offset), b.init);
}

// A copy engine sees a barrier only after a fence by whoever initialised it.
void Monitor::signals(const AsyncOp& op) {
    Cta& cta = *cluster_.cta(op.signal.rank);
    Mbarrier& b = mbarrier(cta, op.signal.offset);
    const bool engine = op.kind == AsyncKind::bulk_load || op.kind == AsyncKind::tensor_load ||
                        op.kind == AsyncKind::bulk_reduce;
    if (!engine || !b.live) return;
    const Act act{*op.issuer, *op.ins, op.lanes, true, op.signal.bytes, &op};
    const WarpState& s = state(*op.issuer);
    if (cta.rank != op.issuer->cta().rank && !s.now.known.knows(b.init))
        report("barrier-init", act,
               who(*op.issuer) + " signals the " + name_of(cta, op.signal.offset) + " of CTA " +
                   std::to_string(cta.rank) + ", and nothing orders that after its initialisation",
               "Put fence.mbarrier_init and a barrier of the cluster between mbarrier.init and the copy.",
               cta.object_at(op.signal.offset), b.init);
    if (!b.init_fenced && !s.now.fenced.knows(b.init))
        report("proxy", act,
               "A copy signals the " + name_of(cta, op.signal.offset) +
                   ", which was initialised without a fence that lets the copy engine see it",
               "Put fence.mbarrier_init (or fence.proxy.async) after mbarrier.init, in the thread that "
               "executes it.",
               cta.object_at(op.signal.offset), b.init);
}

void Monitor::mbarrier_arrived(Warp& w, const Cta& cta, std::uint32_t offset, bool relaxed) {
    WarpState& s = state(w);
    Mbarrier& b = mbarrier(cta, offset);
    b.sync.coming.join(relaxed ? s.published : s.now);
    b.users.raise(s.self, s.now.known[s.self]);
    if (&cta != &w.cta() && !relaxed) state(cta).touched.raise(s.self, s.now.known[s.self]);
    tick(s);
}
void Monitor::mbarrier_completed(const Cta& cta, std::uint32_t offset) {
    Mbarrier& b = mbarrier(cta, offset);
    ++b.phases;
    b.sync.done.join(b.sync.coming);
    b.sync.done.known.raise(b.agent, b.phases);
    b.sync.coming.clear();
}
void Monitor::mbarrier_passed(Warp& w, const Cta& cta, std::uint32_t offset) {
    WarpState& s = state(w);
    Mbarrier& b = mbarrier(cta, offset);
    acquire(s, b.sync.done);
    b.users.raise(s.self, s.now.known[s.self]);
}

}  // namespace emu
