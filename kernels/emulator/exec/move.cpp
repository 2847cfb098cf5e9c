// mov in all its forms, and conversions between address spaces.
#include <cstring>

#include "exec/lanes.hpp"
#include "machine/special.hpp"

namespace emu {
namespace {

template <class S>
Step move(Warp& w, const Instruction& i, u32 mask) {
    const S* a = w.in<S>(i.op[1]);
    each_lane(w.out<S>(i.op[0]), mask, [=](int l) { return a[l]; });
    return Step::next;
}
// A special register that changes while the warp runs (%clock64 …). aux: its number.
Step move_special(Warp& w, const Instruction& i, u32 mask) {
    const u64 v = special_value(static_cast<u32>(i.aux), w, 0);
    if (i.op[0].bits == 64)
        each_lane(w.out<u64>(i.op[0]), mask, [=](int) { return v; });
    else
        each_lane(w.out<u32>(i.op[0]), mask, [=](int) { return static_cast<u32>(v); });
    return Step::next;
}
Step move_pred(Warp& w, const Instruction& i, u32 mask) {
    w.set_pred(i.op[0], w.pred(i.op[1]), mask);
    return Step::next;
}

std::byte* lane_bytes(Warp& w, const Operand& o, int lane) {
    const std::size_t stride = o.bits <= 32 ? 4 : o.bits / 8;
    return w.out<std::byte>(o) + stride * static_cast<std::size_t>(lane);
}
const std::byte* lane_bytes_in(const Warp& w, const Operand& o, int lane) {
    const std::size_t stride = o.bits <= 32 ? 4 : o.bits / 8;
    return w.in<std::byte>(o) + stride * static_cast<std::size_t>(lane);
}

// {a, b, …} → d: the first element takes the low bits. `target`: bytes of an element.
Step pack(Warp& w, const Instruction& i, u32 mask) {
    const std::size_t each = i.target;
    for (int l = 0; l < 32; ++l) {
        if ((mask >> l & 1) == 0) continue;
        std::byte whole[16] = {};
        for (std::size_t k = 0; k < i.vector; ++k)
            std::memcpy(whole + k * each, lane_bytes_in(w, i.op[k + 1], l), each);
        const std::size_t size = i.op[0].bits <= 32 ? 4 : i.op[0].bits / 8;
        std::memcpy(lane_bytes(w, i.op[0], l), whole, size);
    }
    return Step::next;
}
Step unpack(Warp& w, const Instruction& i, u32 mask) {
    const std::size_t each = i.target;
    for (int l = 0; l < 32; ++l) {
        if ((mask >> l & 1) == 0) continue;
        std::byte whole[16];
        std::memcpy(whole, lane_bytes_in(w, i.op[i.vector], l), each * i.vector);
        for (std::size_t k = 0; k < i.vector; ++k) {
            std::byte part[16] = {};
            std::memcpy(part, whole + k * each, each);
            std::memcpy(lane_bytes(w, i.op[k], l), part, i.op[k].bits <= 32 ? 4 : i.op[k].bits / 8);
        }
    }
    return Step::next;
}
// The common case: two 32-bit halves of a 64-bit register.
Step pack_words(Warp& w, const Instruction& i, u32 mask) {
    const u32 *low = w.in<u32>(i.op[1]), *high = w.in<u32>(i.op[2]);
    each_lane(w.out<u64>(i.op[0]), mask, [=](int l) { return static_cast<u64>(high[l]) << 32 | low[l]; });
    return Step::next;
}
Step unpack_words(Warp& w, const Instruction& i, u32 mask) {
    const u64* a = w.in<u64>(i.op[2]);
    each_lane(w.out<u32>(i.op[0]), mask, [=](int l) { return static_cast<u32>(a[l]); });
    each_lane(w.out<u32>(i.op[1]), mask, [=](int l) { return static_cast<u32>(a[l] >> 32); });
    return Step::next;
}

// And two 16-bit halves of a 32-bit register.
Step pack_halves(Warp& w, const Instruction& i, u32 mask) {
    const u32 *low = w.in<u32>(i.op[1]), *high = w.in<u32>(i.op[2]);
    each_lane(w.out<u32>(i.op[0]), mask, [=](int l) { return high[l] << 16 | (low[l] & 0xffff); });
    return Step::next;
}
Step unpack_halves(Warp& w, const Instruction& i, u32 mask) {
    const u32* a = w.in<u32>(i.op[2]);
    each_lane(w.out<u32>(i.op[0]), mask, [=](int l) { return a[l] & 0xffff; });
    each_lane(w.out<u32>(i.op[1]), mask, [=](int l) { return a[l] >> 16; });
    return Step::next;
}

u64 window(Mod space) {
    switch (space) {
        case Mod::shared:
        case Mod::shared_cta:
        case Mod::shared_cluster:
            return kSharedWindow;
        case Mod::local:
            return kLocalWindow;
        case Mod::param:
        case Mod::param_entry:
            return kParamWindow;
        default:
            return 0;
    }
}
Mod space_mod(const Choice& c) {
    return c.one_of({Mod::global, Mod::local, Mod::shared, Mod::const_, Mod::param, Mod::param_entry,
                     Mod::shared_cta, Mod::shared_cluster});
}

Step add_window(Warp& w, const Instruction& i, u32 mask) {
    const u64* a = w.in<u64>(i.op[1]);
    const u64 base = i.aux;
    each_lane(w.out<u64>(i.op[0]), mask, [=](int l) { return a[l] + base; });
    return Step::next;
}
Step drop_window(Warp& w, const Instruction& i, u32 mask) {
    const u64* a = w.in<u64>(i.op[1]);
    const u64 keep = i.aux;
    each_lane(w.out<u64>(i.op[0]), mask, [=](int l) { return a[l] & keep; });
    return Step::next;
}
Step isspacep(Warp& w, const Instruction& i, u32 mask) {
    const u64* a = w.in<u64>(i.op[1]);
    u32 bits = 0;
    for (int l = 0; l < 32; ++l) {
        bool in = (a[l] & kWindowMask) == i.aux;
        if (i.target == 1)
            in = in &&
                 (static_cast<u32>(a[l]) >> kRankShift) == w.cta().rank;  // .shared::cta: only the own CTA
        if (i.target == 2) in = false;                                    // .const has no window of its own
        bits |= static_cast<u32>(in) << l;
    }
    w.set_pred(i.op[0], bits, mask);
    return Step::next;
}

}  // namespace

void select_mov(const Choice& c, Instruction& i) {
    const int bits = bits_of(c.type(0));
    if (i.aux == 1 || i.aux == 2) {  // a vector on one side
        i.target = static_cast<u32>(bits / 8 / i.vector);
        const auto narrow = [&](int k) { return i.op[k].bits <= 32; };  // a sink may be wider
        i.run = i.aux == 1 ? pack : unpack;
        if (i.vector == 2 && bits == 64) {
            if (i.aux == 1)
                i.run = pack_words;
            else if (narrow(0) && narrow(1))
                i.run = unpack_words;
        } else if (i.vector == 2 && bits == 32) {
            i.run = i.aux == 1 ? pack_halves : unpack_halves;
        }
        return;
    }
    i.run = bits == 128 ? move<u128> : bits == 64 ? move<u64> : move<u32>;
}
void select_mov_special(const Choice&, Instruction& i) {
    i.run = move_special;
}
void select_mov_pred(const Choice&, Instruction& i) {
    i.run = move_pred;
}
void select_cvta(const Choice& c, Instruction& i) {
    const u64 base = window(space_mod(c));
    const bool to = c.has(Mod::to);
    i.aux = !to ? base : base == 0 ? ~u64{0} : 0xffffffffull;
    i.run = to ? drop_window : add_window;
}
void select_isspacep(const Choice& c, Instruction& i) {
    const Mod space = space_mod(c);
    i.aux = window(space);
    i.target = space == Mod::shared || space == Mod::shared_cta ? 1 : space == Mod::const_ ? 2 : 0;
    i.run = isspacep;
}

}  // namespace emu
