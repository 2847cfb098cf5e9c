// Asynchronous operations: they touch memory at any moment between their issue and what they complete on.
#include <bit>
#include <optional>
#include <ranges>

#include "check/monitor.hpp"

namespace emu {

using check::Cell;
using check::kInFlight;

namespace {

bool reduces(AsyncKind kind) {
    return kind == AsyncKind::bulk_reduce || kind == AsyncKind::tensor_reduce || kind == AsyncKind::red_async;
}
check::Time number(const AsyncOp& op) {
    return static_cast<check::Time>(op.id & check::kTimeMask);
}
std::uint64_t pc(const AsyncOp& op) {
    return static_cast<std::uint64_t>(op.ins - op.issuer->kernel().code.data());
}

}  // namespace

std::optional<Monitor::Groups> Monitor::groups_of(AsyncKind kind) {
    switch (kind) {
        case AsyncKind::cp_async:
            return Groups::cp_async;
        case AsyncKind::bulk_store:
        case AsyncKind::tensor_store:
        case AsyncKind::bulk_reduce:
        case AsyncKind::tensor_reduce:
            return Groups::bulk;
        case AsyncKind::wgmma:
            return Groups::wgmma;
        default:
            return std::nullopt;
    }
}

// The warps of a warpgroup share the agent of their wgmmas: they issue them together.
Monitor::GroupState& Monitor::groups(Warp& w, Groups kind) {
    auto& mine = state(w).groups[static_cast<std::size_t>(kind)];
    if (mine != nullptr) return *mine;
    mine = std::make_unique<GroupState>();
    using Kind = AgentInfo::Kind;
    if (kind == Groups::wgmma && w.number() % 4 != 0) {
        mine->agent = groups(*w.cta().warps[static_cast<std::size_t>(w.number() / 4 * 4)], kind).agent;
    } else {
        mine->agent = new_agent({kind == Groups::cp_async ? Kind::cp_async
                                 : kind == Groups::bulk   ? Kind::bulk
                                                          : Kind::wgmma,
                                 &w});
    }
    return *mine;
}

void Monitor::committed(Warp& w, std::uint32_t lanes, Groups kind) {
    GroupState& g = groups(w, kind);
    for (std::uint32_t left = lanes; left != 0; left &= left - 1)
        ++g.committed[static_cast<std::size_t>(std::countr_zero(left))];
}

void Monitor::waited(Warp& w, std::uint32_t lanes, Groups kind, std::uint64_t open) {
    GroupState& g = groups(w, kind);
    Time done = 0;
    for (std::uint32_t left = lanes; left != 0; left &= left - 1) {
        const int l = std::countr_zero(left);
        const Time groups = g.committed[static_cast<std::size_t>(l)];
        if (groups == 0) g.idle_waits |= 1u << l;
        if (groups > open) done = std::max(done, groups - static_cast<Time>(open));
    }
    WarpState& s = state(w);
    if (done <= s.now.known[g.agent]) return;
    s.now.known.raise(g.agent, done);
    s.copy.reset();
}

void Monitor::async_read(const AsyncOp& op, const Region& r) {
    const Act act{*op.issuer, *op.ins, op.lanes, false, r.bytes, &op};
    if (r.where == Region::Where::global)
        return touch_global(act, reinterpret_cast<std::byte*>(r.address), r.bytes, true);
    Cta& cta = *cluster_.cta(r.rank);
    if (&cta != &op.issuer->cta()) visits(*op.issuer, *op.ins, op.lanes, cta);
    const Knowledge& now = state(*op.issuer).now;
    check::Shadow& shadow = state(cta).shadow;
    shadow.each(static_cast<std::uint32_t>(r.address), r.bytes, [&](Cell& cell, std::uint32_t at) {
        const Epoch w = cell.write;
        if (w.none())
            unwritten(act, cta, at);
        else if (w.agent() != check::kBarrier && !now.known.knows(w))
            clash(act, cta, at, w, Clash::write);
        else if (w.agent() < agents_.size() && agents_[w.agent()].generic() && !now.fenced.knows(w))
            unfenced(act, cta, at, w);
        shadow.add_reader(cell, Epoch::of(kInFlight, number(op), pc(op)), now.known);
        return true;
    });
}

void Monitor::async_write(const AsyncOp& op, const Region& r) {
    const Act act{*op.issuer, *op.ins, op.lanes, true, r.bytes, &op};
    if (r.where == Region::Where::global)
        return touch_global(act, reinterpret_cast<std::byte*>(r.address), r.bytes, reduces(op.kind));
    Cta& cta = *cluster_.cta(r.rank);
    if (&cta != &op.issuer->cta()) visits(*op.issuer, *op.ins, op.lanes, cta);
    const check::Clock& known = state(*op.issuer).now.known;
    check::Shadow& shadow = state(cta).shadow;
    if (postponed_) write_comes(act, cta, static_cast<std::uint32_t>(r.address), r.bytes);
    const bool reducing = reduces(op.kind);  // reductions may overlap each other
    const auto reduced_before = [&](Epoch e) {
        const auto kind = kinds_.find(e.pc());
        return reducing && kind != kinds_.end() && reduces(kind->second);
    };
    shadow.each(static_cast<std::uint32_t>(r.address), r.bytes, [&](Cell& cell, std::uint32_t at) {
        const Epoch w = cell.write;
        if (w.agent() == check::kBarrier) {
            clash(act, cta, at, w, Clash::barrier);
            return true;
        }
        if (w.none() && reducing)
            unwritten(act, cta, at);
        else if (!w.none() && !known.knows(w) && !reduced_before(w))
            clash(act, cta, at, w, Clash::write);
        shadow.each_reader(cell, [&](Epoch reader) {
            if (!known.knows(reader)) clash(act, cta, at, reader, Clash::read);
        });
        shadow.set_writer(cell, Epoch::of(kInFlight, number(op), pc(op)));
        return true;
    });
}

void Monitor::issued(const AsyncOp& op) {
    WarpState& s = state(*op.issuer);
    Flight flight;
    kinds_.try_emplace(Epoch::of(0, 0, pc(op)).pc(), op.kind);
    const auto kind = groups_of(op.kind);
    if (kind && !op.signal.any()) {
        const GroupState& g = groups(*op.issuer, *kind);
        flight.agent = g.agent;
        flight.time = g.committed[static_cast<std::size_t>(std::countr_zero(op.lanes))] + 1;
        AgentInfo& agent = agents_[g.agent];
        agent.last = Epoch::of(g.agent, std::max(flight.time, agent.last.time()), pc(op));
        agent.last_issuer = op.issuer;
    }
    if (op.kind == AsyncKind::cp_async_arrive) {
        flight.carried = s.now;
        const GroupState& g = groups(*op.issuer, Groups::cp_async);
        for (std::uint32_t left = op.lanes; left != 0; left &= left - 1)
            flight.carried.known.raise(g.agent,
                                       g.committed[static_cast<std::size_t>(std::countr_zero(left))] + 1);
        tick(s);
    }
    flights_[number(op)] = std::move(flight);
    if (op.signal.any()) signals(op);
    for (const Region& r : op.reads)
        async_read(op, r);
    for (const Region& r : op.writes)
        async_write(op, r);
}

void Monitor::landed(const AsyncOp& op, AsyncStage stage) {
    const auto found = flights_.find(number(op));
    if (found == flights_.end()) return;
    Flight& flight = found->second;
    if (op.signal.any()) {
        Mbarrier& b = mbarrier(*cluster_.cta(op.signal.rank), op.signal.offset);
        flight.agent = b.agent, flight.time = b.phases + 1;
        if (op.signal.bytes != 0) {
            agents_[b.agent].last = Epoch::of(b.agent, flight.time, pc(op));
            agents_[b.agent].last_issuer = op.issuer;
        }
        b.sync.coming.join(flight.carried);
    }
    const Epoch done = Epoch::of(flight.agent, flight.time, pc(op));
    const Time id = number(op);
    const auto shared = [](const Region& r) { return r.where == Region::Where::shared; };
    for (const Region& r : op.reads | std::views::filter(shared)) {
        check::Shadow& shadow = ctas_[r.rank].shadow;
        ctas_[r.rank].sources.raise(flight.agent, flight.time);
        shadow.each(static_cast<std::uint32_t>(r.address), r.bytes, [&](Cell& cell, std::uint32_t) {
            shadow.replace_reader(cell, id, done);
            return true;
        });
    }
    if (stage == AsyncStage::fetched) return;
    for (const Region& r : op.writes | std::views::filter(shared))
        ctas_[r.rank].shadow.each(static_cast<std::uint32_t>(r.address), r.bytes,
                                  [&](Cell& cell, std::uint32_t) {
                                      if (cell.write.agent() == kInFlight && cell.write.time() == id)
                                          cell.write = done;
                                      return true;
                                  });
    flights_.erase(found);
}

}  // namespace emu
