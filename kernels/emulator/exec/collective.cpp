// What lanes of a warp do together. All begin by gathering the lanes that the member mask names.
#include <algorithm>

#include "exec/lanes.hpp"

namespace emu {
namespace {

// The member mask as the lowest executing lane gives it; all must give the same.
u32 members(Warp& w, const Instruction& i, const Operand& o, u32 mask) {
    const u32* m = w.in<u32>(o);
    const u32 first = m[std::countr_zero(mask)];
    for (int l = 0; l < 32; ++l)
        if ((mask >> l & 1) != 0 && m[l] != first)
            w.trap(i, mask, "'" + w.text(i) + "' with different member masks in one warp");
    return first;
}

Step warp_sync(Warp& w, const Instruction& i, u32 mask) {
    // Lanes may come with different masks and at different instructions; each group that agrees is one
    // rendezvous.
    return w.gather(i, mask, members(w, i, i.op[0], mask)) ? Step::next : Step::park;
}

enum Mode : u64 { kUp, kDown, kBfly, kIdx };

Step shfl(Warp& w, const Instruction& i, u32 mask) {  // ops: d, p, a, b, c, members
    const u32 named = members(w, i, i.op[5], mask);
    if (!w.gather(i, mask, named)) return Step::park;
    u32 a[32];
    const u32 *source = w.in<u32>(i.op[2]), *b = w.in<u32>(i.op[3]), *c = w.in<u32>(i.op[4]);
    std::copy_n(source, 32, a);
    u32* d = w.out<u32>(i.op[0]);
    u32 from[32], ok_mask = 0;
    for (u32 l = 0; l < 32; ++l) {
        const u32 segment = c[l] >> 8 & 31, clamp = c[l] & 31, lane_b = b[l] & 31;
        const u32 low = l & segment, high = low | (clamp & ~segment);
        u32 j = 0;
        bool ok = false;
        switch (i.aux) {
            case kUp:
                j = l - lane_b, ok = static_cast<s32>(j) >= static_cast<s32>(high);
                break;
            case kDown:
                j = l + lane_b, ok = j <= high;
                break;
            case kBfly:
                j = l ^ lane_b, ok = j <= high;
                break;
            default:
                j = low | (lane_b & ~segment), ok = j <= high;
                break;
        }
        if (!ok) j = l;
        ok_mask |= static_cast<u32>(ok) << l;
        from[l] = j & 31;
        if ((mask >> l & 1) != 0 && (mask >> from[l] & 1) == 0)
            w.trap(
                i, 1u << l,
                "'" + w.text(i) + "' reads lane " + std::to_string(from[l]) + ", which does not take part");
    }
    each_lane(d, mask, [&](int l) { return a[from[l]]; });
    if (!i.op[1].absent) w.set_pred(i.op[1], ok_mask, mask);
    return Step::next;
}

enum Vote : u64 { kAll, kAny, kUni, kBallot };

Step vote(Warp& w, const Instruction& i, u32 mask) {
    if (!w.gather(i, mask, members(w, i, i.op[2], mask))) return Step::park;
    const u32 yes = w.pred(i.op[1]) & mask;
    if (i.aux == kBallot) {
        each_lane(w.out<u32>(i.op[0]), mask, [=](int) { return yes; });
        return Step::next;
    }
    const bool result = i.aux == kAll ? yes == mask : i.aux == kAny ? yes != 0 : yes == 0 || yes == mask;
    w.set_pred(i.op[0], result ? ~0u : 0u, mask);
    return Step::next;
}

template <class T>
Step match_any(Warp& w, const Instruction& i, u32 mask) {
    if (!w.gather(i, mask, members(w, i, i.op[2], mask))) return Step::park;
    T a[32];
    std::copy_n(w.in<T>(i.op[1]), 32, a);
    each_lane(w.out<u32>(i.op[0]), mask, [&](int l) {
        u32 same = 0;
        for (int k = 0; k < 32; ++k)
            same |= static_cast<u32>((mask >> k & 1) != 0 && a[k] == a[l]) << k;
        return same;
    });
    return Step::next;
}
template <class T>
Step match_all(Warp& w, const Instruction& i, u32 mask) {  // ops: d, p, a, members
    if (!w.gather(i, mask, members(w, i, i.op[3], mask))) return Step::park;
    const T* a = w.in<T>(i.op[2]);
    bool same = true;
    for (int l = 0; l < 32; ++l)
        same &= (mask >> l & 1) == 0 || a[l] == a[std::countr_zero(mask)];
    each_lane(w.out<u32>(i.op[0]), mask, [=](int) { return same ? mask : 0u; });
    if (!i.op[1].absent) w.set_pred(i.op[1], same ? ~0u : 0u, mask);
    return Step::next;
}

Step activemask(Warp& w, const Instruction& i, u32 mask) {
    each_lane(w.out<u32>(i.op[0]), mask, [=](int) { return mask; });
    return Step::next;
}
Step elect(Warp& w, const Instruction& i,
           u32 mask) {  // always the lowest lane: repeated elections must agree
    const u32 named = members(w, i, i.op[2], mask);
    if (!w.gather(i, mask, named)) return Step::park;
    const u32 leader = static_cast<u32>(std::countr_zero(named & mask));
    each_lane(w.out<u32>(i.op[0]), mask, [=](int) { return leader; });
    if (!i.op[1].absent) w.set_pred(i.op[1], 1u << leader, mask);
    return Step::next;
}

enum Reduce : u64 { kAdd, kMin, kMax, kMinSigned, kMaxSigned, kAnd, kOr, kXor };

u32 reduce(u64 op, u32 x, u32 y) {
    switch (op) {
        case kAdd:
            return x + y;
        case kMin:
            return std::min(x, y);
        case kMax:
            return std::max(x, y);
        case kMinSigned:
            return static_cast<u32>(std::min(static_cast<s32>(x), static_cast<s32>(y)));
        case kMaxSigned:
            return static_cast<u32>(std::max(static_cast<s32>(x), static_cast<s32>(y)));
        case kAnd:
            return x & y;
        case kOr:
            return x | y;
        default:
            return x ^ y;
    }
}
Step redux(Warp& w, const Instruction& i, u32 mask) {
    if (!w.gather(i, mask, members(w, i, i.op[2], mask))) return Step::park;
    const u32* a = w.in<u32>(i.op[1]);
    u32 r = a[std::countr_zero(mask)];
    for (int l = std::countr_zero(mask) + 1; l < 32; ++l)
        if (mask >> l & 1) r = reduce(i.aux, r, a[l]);
    each_lane(w.out<u32>(i.op[0]), mask, [=](int) { return r; });
    return Step::next;
}

}  // namespace

void select_warp_sync(const Choice&, Instruction& i) {
    i.aux = kMeetsElsewhere;
    i.run = warp_sync;
}
void select_shfl(const Choice& c, Instruction& i) {
    i.aux = c.has(Mod::up) ? kUp : c.has(Mod::down) ? kDown : c.has(Mod::bfly) ? kBfly : kIdx;
    i.run = shfl;
}
void select_vote(const Choice& c, Instruction& i) {
    i.aux = c.has(Mod::all) ? kAll : c.has(Mod::any) ? kAny : c.has(Mod::uni) ? kUni : kBallot;
    i.run = vote;
}
void select_match(const Choice& c, Instruction& i) {
    const bool wide = bits_of(c.type(0)) == 64;
    if (c.has(Mod::any))
        i.run = wide ? match_any<u64> : match_any<u32>;
    else
        i.run = wide ? match_all<u64> : match_all<u32>;
}
void select_activemask(const Choice&, Instruction& i) {
    i.run = activemask;
}
void select_elect(const Choice&, Instruction& i) {
    i.run = elect;
}
void select_redux(const Choice& c, Instruction& i) {
    const bool sign = c.type(0) == Type::s32;
    i.aux = c.has(Mod::add)    ? kAdd
            : c.has(Mod::min)  ? (sign ? kMinSigned : kMin)
            : c.has(Mod::max)  ? (sign ? kMaxSigned : kMax)
            : c.has(Mod::and_) ? kAnd
            : c.has(Mod::or_)  ? kOr
                               : kXor;
    i.run = redux;
}

}  // namespace emu
