// Ordinary loads and stores, ldmatrix and stmatrix, and what touches memory without effect here (hints,
// fences).
#include <cstring>

#include "exec/pointers.hpp"

namespace emu {

Space space_of(const Choice& c) {
    switch (c.one_of({Mod::shared_cluster, Mod::global, Mod::shared, Mod::shared_cta, Mod::local, Mod::param,
                      Mod::param_entry, Mod::param_func, Mod::const_})) {
        case Mod::global:
            return Space::global;
        case Mod::shared:
        case Mod::shared_cta:
            return Space::shared;
        case Mod::shared_cluster:
            return Space::shared_cluster;
        case Mod::local:
            return Space::local;
        case Mod::param:
        case Mod::param_entry:
        case Mod::param_func:
            return Space::param;
        case Mod::const_:
            return Space::constant;
        default:
            return Space::generic;
    }
}

namespace {

template <class T>
T read(const std::byte* p) {
    T v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

// Extended to a register of `S` lanes by the sign of T; a 16-bit register keeps 16 bits.
template <class T, class S>
void load_into(Warp& w, const Operand& o, u32 mask, const Pointers& p, std::size_t at) {
    S* d = w.out<S>(o);
    if constexpr (sizeof(T) < sizeof(S) && std::is_signed_v<T>) {
        const S keep = o.bits == 16 ? S{0xffff} : ~S{0};
        each_lane(d, mask, [&](int l) { return static_cast<S>(read<T>(p.at[l] + at)) & keep; });
    } else {
        each_lane(d, mask, [&](int l) { return static_cast<S>(read<T>(p.at[l] + at)); });
    }
}

template <class T>
Step ld(Warp& w, const Instruction& i, u32 mask) {
    Pointers p;
    const u32 n = i.vector;
    resolve_all(w, i, i.op[n], mask, static_cast<u32>(sizeof(T)) * n, Warp::Access::read, p);
    observe(w, i, mask, p.at, static_cast<u32>(sizeof(T)) * n, Warp::Access::read, i.aux != 0);
    for (u32 k = 0; k < n; ++k) {
        const Operand& o = i.op[k];
        if constexpr (sizeof(T) == 16)
            load_into<T, u128>(w, o, mask, p, 0);
        else if (o.bits == 64 || sizeof(T) == 8)
            load_into<T, u64>(w, o, mask, p, k * sizeof(T));
        else
            load_into<T, u32>(w, o, mask, p, k * sizeof(T));
    }
    return Step::next;
}

template <class T, class S>
void store_from(const Warp& w, const Operand& o, u32 mask, const Pointers& p, std::size_t at) {
    const S* s = w.in<S>(o);
    for (int l = 0; l < 32; ++l) {
        if ((mask >> l & 1) == 0) continue;
        const T v = static_cast<T>(s[l]);
        std::memcpy(p.at[l] + at, &v, sizeof v);
    }
}

template <class T>
Step st(Warp& w, const Instruction& i, u32 mask) {
    Pointers p;
    const u32 n = i.vector;
    resolve_all(w, i, i.op[0], mask, static_cast<u32>(sizeof(T)) * n, Warp::Access::write, p);
    observe(w, i, mask, p.at, static_cast<u32>(sizeof(T)) * n, Warp::Access::write, i.aux != 0);
    for (u32 k = 0; k < n; ++k) {
        const Operand& o = i.op[k + 1];
        if constexpr (sizeof(T) == 16)
            store_from<T, u128>(w, o, mask, p, 0);
        else if (o.bits == 64)
            store_from<T, u64>(w, o, mask, p, k * sizeof(T));
        else
            store_from<T, u32>(w, o, mask, p, k * sizeof(T));
    }
    return Step::next;
}

Handler load_handler(Type t) {
    switch (t) {
        case Type::b128:
            return ld<u128>;
        case Type::f64:
            return ld<u64>;
        case Type::f32:
            return ld<u32>;
        default:
            return for_integer(t, []<class T>() -> Handler { return ld<T>; });
    }
}
Handler store_handler(Type t) {
    switch (bits_of(t)) {
        case 8:
            return st<u8>;
        case 16:
            return st<u16>;
        case 32:
            return st<u32>;
        case 64:
            return st<u64>;
        default:
            return st<u128>;
    }
}

// ---- ldmatrix, stmatrix: lane 8m + r names row r of matrix m, 16 bytes
// --------------------------------------------------------

void need_whole_warp(Warp& w, const Instruction& i, u32 mask) {
    if (mask != w.alive() || mask != ~0u)
        w.trap(i, mask, "'" + w.text(i) + "' must be executed by all 32 lanes together");
}

// Where lane `l` finds element `half` of its register in an 8x8 matrix: row and column.
std::pair<int, int> place(int l, int half, bool trans) {
    const int row = l / 4, col = 2 * (l % 4) + half;
    return trans ? std::pair{col, row} : std::pair{row, col};
}

u32 rows_named(int matrices) {  // the lanes whose addresses count
    return matrices == 4 ? ~0u : (1u << 8 * matrices) - 1;
}

Step ldmatrix(Warp& w, const Instruction& i, u32 mask) {
    need_whole_warp(w, i, mask);
    const int n = i.vector;
    std::byte* rows[32];
    for (int l = 0; l < 8 * n; ++l)
        rows[l] = w.resolve(i, l, i.space, w.address(i.op[n], l), 16, Warp::Access::read);
    observe(w, i, rows_named(n), rows, 16, Warp::Access::read);
    u32 result[4][32];
    for (int m = 0; m < n; ++m)
        for (int l = 0; l < 32; ++l) {
            result[m][l] = 0;
            for (int half = 0; half < 2; ++half) {
                const auto [row, col] = place(l, half, i.aux != 0);
                result[m][l] |= static_cast<u32>(read<u16>(rows[8 * m + row] + 2 * col)) << (16 * half);
            }
        }
    for (int m = 0; m < n; ++m)
        std::memcpy(w.out<u32>(i.op[m]), result[m], sizeof result[m]);
    return Step::next;
}
Step stmatrix(Warp& w, const Instruction& i, u32 mask) {
    need_whole_warp(w, i, mask);
    const int n = i.vector;
    std::byte* rows[32];
    for (int l = 0; l < 8 * n; ++l)
        rows[l] = w.resolve(i, l, i.space, w.address(i.op[0], l), 16, Warp::Access::write);
    observe(w, i, rows_named(n), rows, 16, Warp::Access::write);
    for (int m = 0; m < n; ++m) {
        const u32* source = w.in<u32>(i.op[m + 1]);
        for (int l = 0; l < 32; ++l)
            for (int half = 0; half < 2; ++half) {
                const auto [row, col] = place(l, half, i.aux != 0);
                const u16 v = static_cast<u16>(source[l] >> (16 * half));
                std::memcpy(rows[8 * m + row] + 2 * col, &v, 2);
            }
    }
    return Step::next;
}

// Memory is sequentially consistent here; fences matter to the checks alone.
Step fence(Warp& w, const Instruction& i, u32) {
    if (Monitor* const m = w.monitor()) m->fence(w, static_cast<Monitor::Fence>(i.aux));
    return Step::next;
}
// Volatile, relaxed, acquire and release accesses, which may order warps.
bool is_strong(const Choice& c) {
    return c.one_of({Mod::volatile_, Mod::relaxed, Mod::acquire, Mod::release}) != Mod::none;
}
Step nothing(Warp&, const Instruction&, u32) {
    return Step::next;
}
Step policy(Warp& w, const Instruction& i, u32 mask) {  // cache policies have no effect: any constant will do
    each_lane(w.out<u64>(i.op[0]), mask, [](int) { return u64{0x12f0000000000000}; });
    return Step::next;
}

}  // namespace

void select_ld(const Choice& c, Instruction& i) {
    i.aux = is_strong(c);
    i.run = load_handler(c.type(0));
}
void select_st(const Choice& c, Instruction& i) {
    i.aux = is_strong(c);
    i.run = store_handler(c.type(0));
}
void select_multimem_load(const Choice& c, Instruction& i) {
    const int bits = bits_of(c.type(0));
    i.run = bits == 16 ? ld<u16> : bits == 32 ? ld<u32> : ld<u64>;
}
void select_ldmatrix(const Choice& c, Instruction& i) {
    i.aux = c.has(Mod::trans);
    i.run = ldmatrix;
}
void select_stmatrix(const Choice& c, Instruction& i) {
    i.aux = c.has(Mod::trans);
    i.run = stmatrix;
}
void select_touch(const Choice&, Instruction& i) {
    i.run = nothing;
}
void select_fence(const Choice& c, Instruction& i) {
    using Fence = Monitor::Fence;
    const bool proxy = c.has(Mod::proxy);
    const bool async = proxy && (c.has(Mod::async) || c.has(Mod::async_generic));
    const Fence kind = c.has(Mod::mbarrier_init) ? Fence::mbarrier_init
                       : async                   ? c.has(Mod::global) ? Fence::none : Fence::proxy
                       : proxy                   ? Fence::none
                                                 : Fence::memory;
    i.aux = static_cast<u64>(kind);
    i.run = fence;
}
void select_nothing(const Choice&, Instruction& i) {
    i.run = nothing;
}
void select_policy(const Choice&, Instruction& i) {
    i.run = policy;
}

}  // namespace emu
