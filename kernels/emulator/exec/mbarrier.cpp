// mbarrier instructions. The state machine itself is units/mbarrier.hpp.
#include "exec/mbarrier.hpp"

#include <cstdlib>
#include <cstring>

#include "check/monitor.hpp"
#include "trace/log.hpp"

namespace emu {

MbarrierRef MbarrierRef::named(Warp& w, const Instruction& i, int lane, Space space, const Operand& o) {
    const u64 address = w.address(o, lane);
    static_cast<void>(w.resolve(i, lane, space, address, 8, Warp::Access::both));
    const u32 offset = static_cast<u32>(address) & kOffsetMask;
    Cta* owner = w.cta().cluster().cta(static_cast<u32>(address) >> kRankShift);
    if (!owner->mbarriers.contains(offset))
        w.trap(i, 1u << lane,
               "'" + w.text(i) + "' on shared offset " + std::to_string(offset) + " (" +
                   owner->object_at(offset) + "), where no mbarrier has been initialised",
               address, owner->object_at(offset), "barrier-init");
    if (Monitor* const m = w.monitor()) m->mbarrier_used(w, i, lane, *owner, offset);
    return {*owner, offset};
}

u64 MbarrierRef::word() const {
    u64 bits;
    std::memcpy(&bits, cta_->shared() + offset_, 8);
    return bits;
}
template <class F>
void MbarrierRef::change(Event::Kind kind, u32 amount, F f) {
    mbarrier::State s = mbarrier::unpack(word());
    const u32 before = s.phase;
    f(s);
    MbarrierInfo& info = cta_->mbarriers[offset_];
    const u64 bits = mbarrier::pack(s);
    std::memcpy(cta_->shared() + offset_, &bits, 8);
    ClusterLog* const log = cta_->cluster().log();
    if (log != nullptr) log->mbarrier(kind, *cta_, offset_, amount, info.completed);
    if (s.phase == before) return;
    if (log != nullptr) log->mbarrier(Event::Kind::phase, *cta_, offset_, 0, info.completed);
    info.complete();
    if (Monitor* const m = cta_->cluster().monitor()) m->mbarrier_completed(*cta_, offset_);
}
void MbarrierRef::expect_tx(s32 bytes) {
    change(Event::Kind::expect_tx, static_cast<u32>(bytes), [=](auto& s) { s.tx += bytes; });
}
void MbarrierRef::complete_tx(s32 bytes) {
    change(Event::Kind::complete_tx, static_cast<u32>(bytes),
           [=](auto& s) { s.tx -= bytes, mbarrier::try_complete(s); });
}
void MbarrierRef::arrive(u32 count) {
    change(Event::Kind::arrive, count, [=](auto& s) { s.pending -= count, mbarrier::try_complete(s); });
}
void MbarrierRef::drop(u32 count) {
    change(Event::Kind::drop, count,
           [=](auto& s) { s.expected -= count, s.pending -= count, mbarrier::try_complete(s); });
}
void MbarrierRef::add_pending(u32 count) {
    change(Event::Kind::expect_arrive, count, [=](auto& s) { s.pending += count; });
}

namespace {

constexpr u64 kExpect = 1, kDrop = 2, kNoComplete = 4, kParity = 8, kTry = 16, kRelaxed = 32;

std::string place(const MbarrierRef& b) {
    return "the mbarrier at shared offset " + std::to_string(b.offset()) + " (" +
           b.cta().object_at(b.offset()) + ")";
}

void check_tx(Warp& w, const Instruction& i, int lane, const MbarrierRef& b, s64 change) {
    const s64 tx = mbarrier::unpack(b.word()).tx + change;
    if (std::llabs(tx) > mbarrier::kMaxTx)
        w.trap(i, 1u << lane,
               "'" + w.text(i) + "' makes " + place(b) + " owe " + std::to_string(tx) +
                   " bytes; the most is " + std::to_string(mbarrier::kMaxTx),
               0, b.cta().object_at(b.offset()), "tx-count");
}

Step init(Warp& w, const Instruction& i, u32 mask) {
    for (int l = 0; l < 32; ++l) {
        if ((mask >> l & 1) == 0) continue;
        const u64 address = w.address(i.op[0], l);
        std::byte* const p = w.resolve(i, l, i.space == Space::generic ? Space::generic : Space::shared,
                                       address, 8, Warp::Access::both);
        const u32 count = w.in<u32>(i.op[1])[l];
        if (count == 0 || count > mbarrier::kMaxCount)
            w.trap(i, 1u << l,
                   "'" + w.text(i) + "' with a count of " + std::to_string(count) + "; allowed are 1 to " +
                       std::to_string(mbarrier::kMaxCount),
                   address);
        if (Monitor* const m = w.monitor())
            m->mbarrier_init(w, i, l, static_cast<u32>(address) & kOffsetMask);
        const u64 bits = mbarrier::initial(count);
        std::memcpy(p, &bits, 8);
        const u32 offset = static_cast<u32>(address) & kOffsetMask;
        w.cta().mbarriers[offset] = {.init_line = i.ptx_line};
        if (ClusterLog* log = w.log()) log->mbarrier(Event::Kind::init, w.cta(), offset, count, 0);
    }
    return Step::next;
}
Step inval(Warp& w, const Instruction& i, u32 mask) {
    for (int l = 0; l < 32; ++l) {
        if ((mask >> l & 1) == 0) continue;
        const MbarrierRef b = MbarrierRef::named(w, i, l, i.space, i.op[0]);
        if (Monitor* const m = w.monitor()) m->mbarrier_inval(w, i, l, b.offset());
        if (ClusterLog* log = w.log()) log->mbarrier(Event::Kind::inval, b.cta(), b.offset(), 0, 0);
        b.cta().mbarriers.erase(b.offset());
        std::memset(b.cta().shared() + b.offset(), 0xff, 8);
    }
    return Step::next;
}
Step tx(Warp& w, const Instruction& i, u32 mask) {
    for (int l = 0; l < 32; ++l) {
        if ((mask >> l & 1) == 0) continue;
        MbarrierRef b = MbarrierRef::named(w, i, l, i.space, i.op[0]);
        const s64 bytes = w.in<u32>(i.op[1])[l];
        check_tx(w, i, l, b, i.aux != 0 ? bytes : -bytes);
        if (i.aux != 0) b.info().announce(w, i, bytes);
        i.aux != 0 ? b.expect_tx(static_cast<s32>(bytes)) : b.complete_tx(static_cast<s32>(bytes));
    }
    return Step::next;
}

Step arrive(Warp& w, const Instruction& i, u32 mask) {  // ops: state?, barrier, count or bytes?
    for (int l = 0; l < 32; ++l) {
        if ((mask >> l & 1) == 0) continue;
        MbarrierRef b = MbarrierRef::named(w, i, l, i.space, i.op[1]);
        const u64 before = b.word();
        const u32 number = i.op[2].absent ? 1 : w.in<u32>(i.op[2])[l];
        const u32 count = (i.aux & kExpect) != 0 ? 1 : number;
        if ((i.aux & kExpect) != 0) {
            check_tx(w, i, l, b, number);
            b.info().announce(w, i, number);
            b.expect_tx(static_cast<s32>(number));
        }
        const mbarrier::State s = mbarrier::unpack(before);
        if (count == 0 || count > s.pending)
            w.trap(i, 1u << l,
                   "'" + w.text(i) + "' arrives " + std::to_string(count) + " times at " + place(b) +
                       ", which waits for " + std::to_string(s.pending) + " of " +
                       std::to_string(s.expected) + " arrivals in this phase",
                   w.address(i.op[1], l), b.cta().object_at(b.offset()), "arrive-count");
        b.info().visit(b.info().arrivals, w, i);
        if (Monitor* const m = w.monitor())
            m->mbarrier_arrived(w, b.cta(), b.offset(), (i.aux & kRelaxed) != 0);
        if ((i.aux & kDrop) != 0)
            b.drop(count);
        else
            b.arrive(count);
        if ((i.aux & kNoComplete) != 0 && (b.word() >> 63) != (before >> 63))
            w.trap(i, 1u << l,
                   "'" + w.text(i) + "' completes the phase of " + place(b) +
                       ", which .noComplete promises not to do");
        if (!i.op[0].absent) w.out<u64>(i.op[0])[l] = before;
    }
    return Step::next;
}

Step wait(Warp& w, const Instruction& i, u32 mask) {  // ops: p, barrier, parity or state, hint?
    u32 passed = 0;
    bool same = true;
    const int first = std::countr_zero(mask);
    const u64 address = w.address(i.op[1], first);
    const auto parity_of = [&](int l) {
        return (i.aux & kParity) != 0 ? w.in<u32>(i.op[2])[l] & 1
                                      : static_cast<u32>(w.in<u64>(i.op[2])[l] >> 63);
    };
    const u32 parity = parity_of(first);
    MbarrierRef b = MbarrierRef::named(w, i, first, i.space, i.op[1]);
    for (int l = 0; l < 32; ++l) {
        if ((mask >> l & 1) == 0) continue;
        const bool other = w.address(i.op[1], l) != address;
        if (other) b = MbarrierRef::named(w, i, l, i.space, i.op[1]);
        same &= !other && parity_of(l) == parity;
        if (!mbarrier::passed(b.word(), parity_of(l))) continue;
        if (passed == 0 || other) {
            MbarrierInfo& info = b.info();
            info.visit(info.passes, w, i);
            if (Monitor* const m = w.monitor()) m->mbarrier_passed(w, b.cta(), b.offset());
            if (ClusterLog* log = w.log()) log->pass(Waited::mbarrier, b.offset(), u64{info.completed} - 1);
        }
        passed |= 1u << l;
    }
    // A failing try_wait sleeps instead of spinning, but may also give up: it belongs in a loop.
    if (passed == 0 && same && (i.aux & kTry) != 0 && !w.cta().cluster().gives_up_waiting())
        return w.park({.kind = Wait::Kind::mbarrier, .number = static_cast<u32>(address), .value = parity});
    w.set_pred(i.op[0], passed, mask);
    return passed == mask ? Step::next : Step::yield;
}

Step pending(Warp& w, const Instruction& i, u32 mask) {
    const u64* state = w.in<u64>(i.op[1]);
    each_lane(w.out<u32>(i.op[0]), mask, [=](int l) { return mbarrier::unpack(state[l]).pending; });
    return Step::next;
}

}  // namespace

void select_mbarrier_init(const Choice&, Instruction& i) {
    i.run = init;
}
void select_mbarrier_inval(const Choice&, Instruction& i) {
    i.run = inval;
}
void select_mbarrier_tx(const Choice& c, Instruction& i) {
    i.aux = c.has(Mod::expect_tx);
    i.run = tx;
}
void select_mbarrier_arrive(const Choice& c, Instruction& i) {
    i.aux = (c.has(Mod::expect_tx) ? kExpect : u64{0}) | (c.has(Mod::arrive_drop) ? kDrop : u64{0}) |
            (c.has(Mod::noComplete) ? kNoComplete : u64{0}) | (c.has(Mod::relaxed) ? kRelaxed : u64{0});
    i.run = arrive;
}
void select_mbarrier_wait(const Choice& c, Instruction& i) {
    i.aux = (c.has(Mod::parity) ? kParity : u64{0}) | (c.has(Mod::try_wait) ? kTry : u64{0});
    i.run = wait;
}
void select_mbarrier_pending(const Choice&, Instruction& i) {
    i.run = pending;
}

}  // namespace emu
