// atom and red. Lanes go one after the other, lowest first; each is one atomic access to host memory.
#include "exec/atomic.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "exec/pointers.hpp"
#include "units/arithmetic.hpp"

namespace emu {
namespace {

template <class S>
S rmw_and(S old, S a, S) {
    return old & a;
}
template <class S>
S rmw_or(S old, S a, S) {
    return old | a;
}
template <class S>
S rmw_xor(S old, S a, S) {
    return old ^ a;
}
template <class S>
S rmw_exch(S, S a, S) {
    return a;
}
template <class S>
S rmw_cas(S old, S a, S b) {
    return old == a ? b : old;
}
template <class S>
S rmw_add(S old, S a, S) {
    return old + a;
}
u32 rmw_inc(u32 old, u32 a, u32) {
    return old >= a ? 0 : old + 1;
}
u32 rmw_dec(u32 old, u32 a, u32) {
    return old == 0 || old > a ? a : old - 1;
}
template <class T>
Lane<T> rmw_min(Lane<T> old, Lane<T> a, Lane<T>) {
    return static_cast<Lane<T>>(std::min(static_cast<T>(old), static_cast<T>(a)));
}
template <class T>
Lane<T> rmw_max(Lane<T> old, Lane<T> a, Lane<T>) {
    return static_cast<Lane<T>>(std::max(static_cast<T>(old), static_cast<T>(a)));
}
template <bool Flush>
u32 add_f32(u32 old, u32 a, u32) {
    return std::bit_cast<u32>(flush(
        canonical(flush(std::bit_cast<float>(old), Flush) + flush(std::bit_cast<float>(a), Flush)), Flush));
}
u64 add_f64(u64 old, u64 a, u64) {
    return std::bit_cast<u64>(std::bit_cast<double>(old) + std::bit_cast<double>(a));
}
u64 add_f64_keeping_nan(u64 old, u64 a, u64) {
    const double x = std::bit_cast<double>(old), y = std::bit_cast<double>(a);
    return y != y ? a : x != x ? old : std::bit_cast<u64>(x + y);
}
enum class HalfOp : u8 { add, min, max };
template <Format F, HalfOp O>
u16 half(u16 old, u16 a, u16) {
    if constexpr (O == HalfOp::add)
        return static_cast<u16>(narrow<F>(add_to_odd(widen<F>(old), widen<F>(a))));
    else
        return static_cast<u16>(min_max<F>(old, a, {.maximum = O == HalfOp::max}));
}
template <Format F, HalfOp O>
u32 halves(u32 old, u32 a, u32) {
    return half<F, O>(static_cast<u16>(old), static_cast<u16>(a), 0) |
           static_cast<u32>(half<F, O>(static_cast<u16>(old >> 16), static_cast<u16>(a >> 16), 0)) << 16;
}

template <class S>
u64 as_bits(Rmw<S> f) {
    return reinterpret_cast<u64>(f);
}

template <class S>
u64 plain_function(Mod op) {
    switch (op) {
        case Mod::and_:
            return as_bits<S>(rmw_and<S>);
        case Mod::or_:
            return as_bits<S>(rmw_or<S>);
        case Mod::xor_:
            return as_bits<S>(rmw_xor<S>);
        case Mod::exch:
            return as_bits<S>(rmw_exch<S>);
        case Mod::cas:
            return as_bits<S>(rmw_cas<S>);
        default:
            return as_bits<S>(rmw_add<S>);
    }
}
template <HalfOp O>
u64 half_function(Type type) {
    switch (type) {
        case Type::f16:
            return as_bits<u16>(half<kF16, O>);
        case Type::bf16:
            return as_bits<u16>(half<kBF16, O>);
        case Type::f16x2:
            return as_bits<u32>(halves<kF16, O>);
        default:
            return as_bits<u32>(halves<kBF16, O>);
    }
}

template <class S>
S atomic_rmw(std::byte* p, Rmw<S> f, S a, S b) {
    auto* cell = reinterpret_cast<S*>(p);
    S old = __atomic_load_n(cell, __ATOMIC_RELAXED);
    while (
        !__atomic_compare_exchange_n(cell, &old, f(old, a, b), false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
    }
    return old;
}

// ops: [destinations], address, operands a (one an element), b of cas; target: 1 with destinations; aux: the
// function.
template <class S>
Step atom(Warp& w, const Instruction& i, u32 mask) {
    const u32 n = i.vector, first = (i.target & 1) != 0 ? n : 0;
    const Operand* a = i.op + first + 1;
    const bool cas = (i.target & 2) != 0, two_functions = (i.target & 4) != 0;
    Pointers p;
    resolve_all(w, i, i.op[first], mask, static_cast<u32>(sizeof(S)) * n, Warp::Access::both, p);
    observe(w, i, mask, p.at, static_cast<u32>(sizeof(S)) * n, Warp::Access::both, true);
    for (int l = 0; l < 32; ++l) {
        if ((mask >> l & 1) == 0) continue;
        u64 function = i.aux;
        // f32 add flushes subnormals in global memory only; a generic address tells when it runs.
        if (two_functions && (i.space == Space::shared || i.space == Space::shared_cluster ||
                              (w.address(i.op[first], l) & kWindowMask) == kSharedWindow))
            function = rmw_function(Mod::add, Type::f32, false);
        for (u32 k = 0; k < n; ++k) {
            const S x = static_cast<S>(w.in<Lane<S>>(a[k])[l]),
                    y = cas ? static_cast<S>(w.in<Lane<S>>(a[1])[l]) : S{0};
            const S old = atomic_rmw<S>(p.at[l] + k * sizeof(S), reinterpret_cast<Rmw<S>>(function), x, y);
            if ((i.target & 1) != 0) w.out<Lane<S>>(i.op[k])[l] = old;
        }
    }
    return Step::next;
}

Step atom128(Warp& w, const Instruction& i, u32 mask) {
    const auto f = reinterpret_cast<Rmw<u128>>(i.aux);
    Pointers pointers;
    resolve_one_by_one(w, i, i.op[1], mask, 16, Warp::Access::both, pointers);
    observe(w, i, mask, pointers.at, 16, Warp::Access::both, true);
    for (int l = 0; l < 32; ++l) {
        if ((mask >> l & 1) == 0) continue;
        std::byte* const p = pointers.at[l];
        const std::lock_guard lock(w.cta().cluster().grid().wide_atomics);
        u128 old;
        std::memcpy(&old, p, 16);
        const u128 fresh = f(old, w.in<u128>(i.op[2])[l], (i.target & 2) != 0 ? w.in<u128>(i.op[3])[l] : 0);
        std::memcpy(p, &fresh, 16);
        w.out<u128>(i.op[0])[l] = old;
    }
    return Step::next;
}

void select(const Choice& c, Instruction& i, bool result) {
    const Type type = c.type(0);
    const Mod op = c.one_of({Mod::and_, Mod::or_, Mod::xor_, Mod::exch, Mod::cas, Mod::inc, Mod::dec,
                             Mod::add, Mod::min, Mod::max});
    i.aux = rmw_function(op, type, true);
    i.target = (result ? 1u : 0u) | (op == Mod::cas ? 2u : 0u) | (type == Type::f32 ? 4u : 0u);
    switch (bits_of(type)) {
        case 16:
            i.run = atom<u16>;
            break;
        case 32:
            i.run = atom<u32>;
            break;
        case 64:
            i.run = atom<u64>;
            break;
        default:
            i.run = atom128;
            break;
    }
}

}  // namespace

u64 rmw_function(Mod op, Type type, bool flush_subnormals) {
    const bool wide = bits_of(type) == 64;
    if (type == Type::f32)
        return flush_subnormals ? as_bits<u32>(add_f32<true>) : as_bits<u32>(add_f32<false>);
    if (type == Type::f64) return as_bits<u64>(add_f64);
    if (type == Type::f16 || type == Type::bf16 || type == Type::f16x2 || type == Type::bf16x2)
        return op == Mod::add   ? half_function<HalfOp::add>(type)
               : op == Mod::min ? half_function<HalfOp::min>(type)
                                : half_function<HalfOp::max>(type);
    if (op == Mod::inc) return as_bits<u32>(rmw_inc);
    if (op == Mod::dec) return as_bits<u32>(rmw_dec);
    if (op == Mod::min || op == Mod::max) {
        const bool least = op == Mod::min;
        switch (type) {
            case Type::u32:
                return least ? as_bits<u32>(rmw_min<u32>) : as_bits<u32>(rmw_max<u32>);
            case Type::s32:
                return least ? as_bits<u32>(rmw_min<s32>) : as_bits<u32>(rmw_max<s32>);
            case Type::u64:
                return least ? as_bits<u64>(rmw_min<u64>) : as_bits<u64>(rmw_max<u64>);
            default:
                return least ? as_bits<u64>(rmw_min<s64>) : as_bits<u64>(rmw_max<s64>);
        }
    }
    if (type == Type::b128) return plain_function<u128>(op);
    if (type == Type::b16) return plain_function<u16>(op);
    return wide ? plain_function<u64>(op) : plain_function<u32>(op);
}

u64 bulk_function(Mod op, Type type) {
    return type == Type::f64 ? as_bits<u64>(add_f64_keeping_nan) : rmw_function(op, type, false);
}

u16 rmw_at(std::byte* p, Rmw<u16> f, u16 a, u16 b) {
    return atomic_rmw<u16>(p, f, a, b);
}
u32 rmw_at(std::byte* p, Rmw<u32> f, u32 a, u32 b) {
    return atomic_rmw<u32>(p, f, a, b);
}
u64 rmw_at(std::byte* p, Rmw<u64> f, u64 a, u64 b) {
    return atomic_rmw<u64>(p, f, a, b);
}

void select_atom(const Choice& c, Instruction& i) {
    select(c, i, true);
}
void select_red(const Choice& c, Instruction& i) {
    select(c, i, false);
}

}  // namespace emu
