// Integer arithmetic. Wraparound is done on unsigned values; saturation and high halves go through a wider
// type.
#include <algorithm>
#include <limits>

#include "exec/lanes.hpp"

namespace emu {
namespace {

template <class T>
using Unsigned = std::make_unsigned_t<T>;
template <class T>
using Wider =
    std::conditional_t<sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, s32, u32>,
                       std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, s64, u64>,
                                          std::conditional_t<std::is_signed_v<T>, s128, u128>>>;

// Promotion of u16 to int would overflow in a product, so arithmetic is done in at least 32 unsigned bits.
template <class T>
using Work = std::conditional_t<sizeof(T) == 8, u64, u32>;

struct Add {
    template <class T>
    static T apply(T a, T b) {
        return static_cast<T>(static_cast<Work<T>>(a) + static_cast<Work<T>>(b));
    }
};
struct Sub {
    template <class T>
    static T apply(T a, T b) {
        return static_cast<T>(static_cast<Work<T>>(a) - static_cast<Work<T>>(b));
    }
};
struct AddSat {
    static s32 apply(s32 a, s32 b) {
        return static_cast<s32>(std::clamp<s64>(s64{a} + b, INT32_MIN, INT32_MAX));
    }
};
struct SubSat {
    static s32 apply(s32 a, s32 b) {
        return static_cast<s32>(std::clamp<s64>(s64{a} - b, INT32_MIN, INT32_MAX));
    }
};
struct MulLo {
    template <class T>
    static T apply(T a, T b) {
        return static_cast<T>(static_cast<Work<T>>(a) * static_cast<Work<T>>(b));
    }
};
struct MulHi {
    template <class T>
    static T apply(T a, T b) {
        return static_cast<T>((static_cast<Wider<T>>(a) * static_cast<Wider<T>>(b)) >> (8 * sizeof(T)));
    }
};
struct MulWide {
    template <class T>
    static Wider<T> apply(T a, T b) {
        return static_cast<Wider<T>>(a) * static_cast<Wider<T>>(b);
    }
};
template <class Mul>
struct ThenAdd {
    template <class T, class C>
    static C apply(T a, T b, C c) {
        return Add::apply<C>(Mul::apply(a, b), c);
    }
};
struct MadHiSat {
    static s32 apply(s32 a, s32 b, s32 c) { return AddSat::apply(MulHi::apply(a, b), c); }
};
template <class T>
T low24(T v) {
    return static_cast<T>(static_cast<T>(static_cast<u32>(v) << 8) >> 8);
}
struct Mul24Lo {
    template <class T>
    static T apply(T a, T b) {
        return static_cast<T>(static_cast<Wider<T>>(low24(a)) * low24(b));
    }
};
struct Mul24Hi {
    template <class T>
    static T apply(T a, T b) {
        return static_cast<T>((static_cast<Wider<T>>(low24(a)) * low24(b)) >> 16);
    }
};
struct Mad24HiSat {
    static s32 apply(s32 a, s32 b, s32 c) { return AddSat::apply(Mul24Hi::apply(a, b), c); }
};
struct Sad {
    template <class T>
    static T apply(T a, T b, T c) {
        return Add::apply(c, a < b ? Sub::apply(b, a) : Sub::apply(a, b));
    }
};
// Division by zero is unspecified, no trap: quotient and remainder have all bits set, as on an H200.
struct Div {
    template <class T>
    static T apply(T a, T b) {
        if (b == 0) return static_cast<T>(-1);
        if constexpr (std::is_signed_v<T>)
            if (b == -1) return Sub::apply(T{0}, a);
        return static_cast<T>(a / b);
    }
};
struct Rem {
    template <class T>
    static T apply(T a, T b) {
        if (b == 0) return static_cast<T>(-1);
        if constexpr (std::is_signed_v<T>)
            if (b == -1) return 0;
        return static_cast<T>(a % b);
    }
};
struct Abs {
    template <class T>
    static T apply(T a) {
        return a < 0 ? Sub::apply(T{0}, a) : a;
    }
};
struct Neg {
    template <class T>
    static T apply(T a) {
        return Sub::apply(T{0}, a);
    }
};
template <bool Relu>
struct Min {
    template <class T>
    static T apply(T a, T b) {
        return Relu ? std::max<T>(std::min(a, b), 0) : std::min(a, b);
    }
};
template <bool Relu>
struct Max {
    template <class T>
    static T apply(T a, T b) {
        return Relu ? std::max<T>(std::max(a, b), 0) : std::max(a, b);
    }
};
// A packed pair of T from an operation on T.
template <class T, class Op>
struct Packed {
    static u16 apply(u16 a, u16 b) {
        return static_cast<u16>(Op::apply(static_cast<T>(a), static_cast<T>(b)));
    }
};

template <class Op>
Handler binary_of(Type type) {
    if (type == Type::u16x2) return binary<u32, u32, u32, Halves<Packed<u16, Op>>>;
    if (type == Type::s16x2) return binary<u32, u32, u32, Halves<Packed<s16, Op>>>;
    return for_arithmetic(type, []<class T>() -> Handler { return binary<T, T, T, Op>; });
}
template <class Op>
Handler unary_of(Type type) {
    return for_arithmetic(type, []<class T>() -> Handler { return unary<T, T, Op>; });
}
template <class Op>
Handler ternary_of(Type type) {
    return for_arithmetic(type, []<class T>() -> Handler { return ternary<T, T, T, T, Op>; });
}
template <class Op>
Handler on_32(Type type) {
    return type == Type::u32 ? Handler{ternary<u32, u32, u32, u32, Op>}
                             : Handler{ternary<s32, s32, s32, s32, Op>};
}
// Wide products: u16, s16, u32, s32 to the type of twice the width.
template <class F>
Handler for_wide(Type type, F f) {
    switch (type) {
        case Type::u16:
            return f.template operator()<u16>();
        case Type::s16:
            return f.template operator()<s16>();
        case Type::u32:
            return f.template operator()<u32>();
        default:
            return f.template operator()<s32>();
    }
}

// ---- carry chains: the condition code is one bit a lane, kept in the warp
// --------------------------------------------

constexpr u64 kSubtract = 1, kCarryIn = 2, kCarryOut = 4, kHigh = 8;

template <class T>
u32 one_carry(T& d, T a, T b, u32 carry, u64 flags) {
    const T in = (flags & kCarryIn) != 0 ? static_cast<T>(carry) : T{0};
    if ((flags & kSubtract) != 0) {  // CC holds the borrow
        d = a - b - in;
        return a < b || (a == b && in != 0);
    }
    d = a + b + in;
    return d < a || (d == a && in != 0);
}

template <class T>
Step carry_chain(Warp& w, const Instruction& i, u32 mask) {
    const bool mad = i.count == 4;
    const T *a = w.in<T>(i.op[1]), *b = w.in<T>(i.op[2]), *c = mad ? w.in<T>(i.op[3]) : nullptr;
    T* d = w.out<T>(i.op[0]);
    for (int l = 0; l < 32; ++l) {
        if ((mask >> l & 1) == 0) continue;
        T x = a[l], y = b[l];
        if (mad) {
            x = (i.aux & kHigh) == 0 ? MulLo::apply(x, y)
                : (i.aux >> 8) != 0  ? static_cast<T>(MulHi::apply(static_cast<std::make_signed_t<T>>(x),
                                                                   static_cast<std::make_signed_t<T>>(y)))
                                     : MulHi::apply(x, y);
            y = c[l];
        }
        const u32 out = one_carry(d[l], x, y, w.carry >> l & 1, i.aux);
        if ((i.aux & kCarryOut) != 0) w.carry = (w.carry & ~(1u << l)) | out << l;
    }
    return Step::next;
}

void carry(const Choice& c, Instruction& i, bool subtract, bool carry_in) {
    const Type type = c.type(0);
    i.aux = (subtract ? kSubtract : u64{0}) | (carry_in ? kCarryIn : u64{0}) |
            (c.has(Mod::cc) ? kCarryOut : u64{0}) | (c.has(Mod::hi) ? kHigh : u64{0}) |
            (is_signed(type) ? 256u : 0u);
    i.run = bits_of(type) == 64 ? carry_chain<u64> : carry_chain<u32>;
}

}  // namespace

void select_add(const Choice& c, Instruction& i) {
    i.run = c.has(Mod::sat) ? Handler{binary<s32, s32, s32, AddSat>} : binary_of<Add>(c.type(0));
}
void select_sub(const Choice& c, Instruction& i) {
    i.run = c.has(Mod::sat) ? Handler{binary<s32, s32, s32, SubSat>} : binary_of<Sub>(c.type(0));
}
void select_carry(const Choice& c, Instruction& i) {
    carry(c, i, c.opcode.starts_with("sub"), c.opcode.ends_with('c'));
}
void select_carry_mad(const Choice& c, Instruction& i) {
    carry(c, i, false, c.opcode == "madc");
}

void select_mul(const Choice& c, Instruction& i) {
    if (c.has(Mod::wide))
        i.run = for_wide(c.type(0), []<class T>() -> Handler { return binary<Wider<T>, T, T, MulWide>; });
    else
        i.run = c.has(Mod::lo) ? binary_of<MulLo>(c.type(0)) : binary_of<MulHi>(c.type(0));
}
void select_mad(const Choice& c, Instruction& i) {
    if (c.has(Mod::wide))
        i.run = for_wide(c.type(0), []<class T>() -> Handler {
            return ternary<Wider<T>, T, T, Wider<T>, ThenAdd<MulWide>>;
        });
    else if (c.has(Mod::sat))
        i.run = ternary<s32, s32, s32, s32, MadHiSat>;
    else
        i.run =
            c.has(Mod::lo) ? ternary_of<ThenAdd<MulLo>>(c.type(0)) : ternary_of<ThenAdd<MulHi>>(c.type(0));
}
void select_mul24(const Choice& c, Instruction& i) {
    const Type t = c.type(0);
    if (c.has(Mod::sat))
        i.run = ternary<s32, s32, s32, s32, Mad24HiSat>;
    else if (c.opcode == "mad24")
        i.run = c.has(Mod::lo) ? on_32<ThenAdd<Mul24Lo>>(t) : on_32<ThenAdd<Mul24Hi>>(t);
    else if (c.has(Mod::lo))
        i.run = t == Type::u32 ? Handler{binary<u32, u32, u32, Mul24Lo>}
                               : Handler{binary<s32, s32, s32, Mul24Lo>};
    else
        i.run = t == Type::u32 ? Handler{binary<u32, u32, u32, Mul24Hi>}
                               : Handler{binary<s32, s32, s32, Mul24Hi>};
}
void select_sad(const Choice& c, Instruction& i) {
    i.run = ternary_of<Sad>(c.type(0));
}
void select_int_div(const Choice& c, Instruction& i) {
    i.run = c.opcode == "div" ? binary_of<Div>(c.type(0)) : binary_of<Rem>(c.type(0));
}
void select_int_unary(const Choice& c, Instruction& i) {
    i.run = c.opcode == "abs" ? unary_of<Abs>(c.type(0)) : unary_of<Neg>(c.type(0));
}
void select_int_minmax(const Choice& c, Instruction& i) {
    if (c.opcode == "min")
        i.run = c.has(Mod::relu) ? binary_of<Min<true>>(c.type(0)) : binary_of<Min<false>>(c.type(0));
    else
        i.run = c.has(Mod::relu) ? binary_of<Max<true>>(c.type(0)) : binary_of<Max<false>>(c.type(0));
}

}  // namespace emu
