// Lane-wise handlers: how a function of scalars becomes a loop over 32 lanes. Registers are stored as bits:
// up to 32 bits in a uint32_t lane (narrower values zero-extended), 64 bits in a uint64_t lane; a handler
// chooses the view.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "exec/select.hpp"
#include "machine/machine.hpp"

namespace emu {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s8 = std::int8_t;
using s16 = std::int16_t;
using s32 = std::int32_t;
using s64 = std::int64_t;
using u128 = unsigned __int128;
using s128 = __int128;

template <class T>
using Lane = std::conditional_t<sizeof(T) <= 4, u32, std::conditional_t<sizeof(T) == 8, u64, u128>>;

template <class T>
[[nodiscard]] inline T view(Lane<T> bits) {
    if constexpr (std::is_floating_point_v<T>)
        return std::bit_cast<T>(bits);
    else
        return static_cast<T>(bits);
}
template <class T>
[[nodiscard]] inline Lane<T> stored(T value) {
    if constexpr (std::is_floating_point_v<T>)
        return std::bit_cast<Lane<T>>(value);
    else if constexpr (sizeof(T) < 4)
        return static_cast<std::make_unsigned_t<T>>(value);
    else
        return static_cast<Lane<T>>(value);
}

// d[l] = f(l) for the lanes of `mask`. Registers alias only lane by lane, so lanes may be computed in any
// order.
template <class S, class F>
inline void each_lane(S* d, u32 mask, F f) {
    if (mask == ~0u) {
#pragma GCC ivdep
        for (int l = 0; l < 32; ++l)
            d[l] = f(l);
    } else {
        for (int l = 0; l < 32; ++l)
            if (mask >> l & 1) d[l] = f(l);
    }
}

// Handlers for D = Op(A, …). Op::apply is a pure function of scalars.
template <class D, class A, class Op>
Step unary(Warp& w, const Instruction& i, u32 mask) {
    const auto* a = w.in<Lane<A>>(i.op[1]);
    each_lane(w.out<Lane<D>>(i.op[0]), mask, [=](int l) { return stored<D>(Op::apply(view<A>(a[l]))); });
    return Step::next;
}
template <class D, class A, class B, class Op>
Step binary(Warp& w, const Instruction& i, u32 mask) {
    const auto* a = w.in<Lane<A>>(i.op[1]);
    const auto* b = w.in<Lane<B>>(i.op[2]);
    each_lane(w.out<Lane<D>>(i.op[0]), mask,
              [=](int l) { return stored<D>(Op::apply(view<A>(a[l]), view<B>(b[l]))); });
    return Step::next;
}
template <class D, class A, class B, class C, class Op>
Step ternary(Warp& w, const Instruction& i, u32 mask) {
    const auto* a = w.in<Lane<A>>(i.op[1]);
    const auto* b = w.in<Lane<B>>(i.op[2]);
    const auto* c = w.in<Lane<C>>(i.op[3]);
    each_lane(w.out<Lane<D>>(i.op[0]), mask,
              [=](int l) { return stored<D>(Op::apply(view<A>(a[l]), view<B>(b[l]), view<C>(c[l]))); });
    return Step::next;
}

// Calls f with the C++ type that `type` is stored as: f.template operator()<u16>() and so on.
template <class F>
Handler for_integer(Type type, F f) {
    switch (type) {
        case Type::b8:
        case Type::u8:
            return f.template operator()<u8>();
        case Type::s8:
            return f.template operator()<s8>();
        case Type::b16:
        case Type::u16:
            return f.template operator()<u16>();
        case Type::s16:
            return f.template operator()<s16>();
        case Type::b32:
        case Type::u32:
            return f.template operator()<u32>();
        case Type::s32:
            return f.template operator()<s32>();
        case Type::b64:
        case Type::u64:
            return f.template operator()<u64>();
        case Type::s64:
            return f.template operator()<s64>();
        default:
            throw SelectError("the type is no integer", true);
    }
}
// The same without 8-bit types, which only conversions and memory accesses have.
template <class F>
Handler for_arithmetic(Type type, F f) {
    switch (type) {
        case Type::b16:
        case Type::u16:
            return f.template operator()<u16>();
        case Type::s16:
            return f.template operator()<s16>();
        case Type::b32:
        case Type::u32:
            return f.template operator()<u32>();
        case Type::s32:
            return f.template operator()<s32>();
        case Type::b64:
        case Type::u64:
            return f.template operator()<u64>();
        case Type::s64:
            return f.template operator()<s64>();
        default:
            throw SelectError("the type is no integer of 16, 32 or 64 bits", true);
    }
}

// Operations on packed halves of a 32-bit register from an operation on 16-bit parts.
template <class Op>
struct Halves {
    static u32 apply(u32 a) {
        return Op::apply(static_cast<u16>(a)) | static_cast<u32>(Op::apply(static_cast<u16>(a >> 16))) << 16;
    }
    static u32 apply(u32 a, u32 b) {
        return Op::apply(static_cast<u16>(a), static_cast<u16>(b)) |
               static_cast<u32>(Op::apply(static_cast<u16>(a >> 16), static_cast<u16>(b >> 16))) << 16;
    }
    static u32 apply(u32 a, u32 b, u32 c) {
        return Op::apply(static_cast<u16>(a), static_cast<u16>(b), static_cast<u16>(c)) |
               static_cast<u32>(
                   Op::apply(static_cast<u16>(a >> 16), static_cast<u16>(b >> 16), static_cast<u16>(c >> 16)))
                   << 16;
    }
};

}  // namespace emu
