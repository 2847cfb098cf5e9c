// Bit manipulation: counts, fields, shifts, logic, byte permutation, packed dot products.
#include <algorithm>

#include "exec/lanes.hpp"

namespace emu {
namespace {

struct Popc {
    template <class T>
    static u32 apply(T a) {
        return static_cast<u32>(std::popcount(a));
    }
};
struct Clz {
    template <class T>
    static u32 apply(T a) {
        return static_cast<u32>(std::countl_zero(a));
    }
};
// Position of the most significant bit that differs from the sign; 0xffffffff where there is none.
template <bool ShiftAmount>
struct Bfind {
    template <class T>
    static u32 apply(T a) {
        using U = std::make_unsigned_t<T>;
        const U bits = a < T{0} ? static_cast<U>(~static_cast<U>(a)) : static_cast<U>(a);
        if (bits == 0) return ~0u;
        const u32 top = 8 * sizeof(T) - 1, at = top - static_cast<u32>(std::countl_zero(bits));
        return ShiftAmount ? top - at : at;
    }
};
struct Brev {
    template <class T>
    static T apply(T a) {
        T r = 0;
        for (unsigned b = 0; b < 8 * sizeof(T); ++b)
            r = static_cast<T>(r << 1 | (a >> b & 1));
        return r;
    }
};
struct Not {
    template <class T>
    static T apply(T a) {
        return static_cast<T>(~a);
    }
};
struct Cnot {
    template <class T>
    static T apply(T a) {
        return a == 0;
    }
};
struct And {
    template <class T>
    static T apply(T a, T b) {
        return a & b;
    }
};
struct Or {
    template <class T>
    static T apply(T a, T b) {
        return a | b;
    }
};
struct Xor {
    template <class T>
    static T apply(T a, T b) {
        return a ^ b;
    }
};
struct Shl {
    template <class T>
    static T apply(T a, u32 n) {
        return n < 8 * sizeof(T) ? static_cast<T>(a << n) : T{0};
    }
};
struct Shr {  // arithmetic for signed T
    template <class T>
    static T apply(T a, u32 n) {
        constexpr u32 top = 8 * sizeof(T) - 1;
        if constexpr (std::is_signed_v<T>)
            return static_cast<T>(a >> std::min(n, top));
        else
            return n <= top ? static_cast<T>(a >> n) : T{0};
    }
};
template <bool Left, bool Wrap>
struct Funnel {
    static u32 apply(u32 a, u32 b, u32 c) {  // {b, a} shifted; the high or the low word
        const u32 n = Wrap ? c & 31 : std::min(c, 32u);
        const u64 both = static_cast<u64>(b) << 32 | a;
        return static_cast<u32>(Left ? (both << n) >> 32 : both >> n);
    }
};
struct Bfe {
    template <class T>
    static T apply(T a, u32 pos, u32 len) {
        constexpr u32 top = 8 * sizeof(T) - 1;
        using U = std::make_unsigned_t<T>;
        // The 32-bit form uses the low 8 bits; the 64-bit form, on silicon, all of them.
        if constexpr (sizeof(T) == 4)
            pos &= 0xff, len &= 0xff;
        else
            pos = std::min(pos, 255u), len = std::min(len, 255u);
        const bool sign =
            std::is_signed_v<T> && len != 0 && (static_cast<U>(a) >> std::min(pos + len - 1, top) & 1) != 0;
        U d = pos <= top ? static_cast<U>(a) >> pos : U{0};
        if (len <= top) {
            const U field = (U{1} << len) - 1;
            d = (d & field) | (sign ? ~field : U{0});
        }
        // Bits beyond the source's top are the sign as well.
        if (sign && pos > 0) d |= pos <= top ? ~(static_cast<U>(~U{0}) >> pos) : ~U{0};
        if (sign && len <= top) d |= ~((U{1} << len) - 1);
        return static_cast<T>(d);
    }
};
template <bool Wrap>
struct Bmsk {
    static u32 apply(u32 a, u32 b) {
        const u32 pos = Wrap ? a & 31 : std::min(a, 32u), len = Wrap ? b & 31 : std::min(b, 32u);
        if (pos >= 32 || len == 0) return 0;
        const u32 field = len >= 32 ? ~0u : (1u << len) - 1;
        return field << pos;
    }
};
template <bool Wrap>
struct Szext {
    template <class T>
    static T apply(T a, u32 n) {
        const u32 len = Wrap ? n & 31 : std::min(n, 32u);
        if (len == 0) return 0;
        if (len >= 32) return a;
        if constexpr (std::is_signed_v<T>)
            return static_cast<T>(static_cast<u32>(a) << (32 - len)) >> (32 - len);
        else
            return a & ((1u << len) - 1);
    }
};
struct Fns {  // position of the n-th set bit from `base`, upwards for n > 0, downwards for n < 0
    static u32 apply(u32 mask, u32 base, s32 n) {
        if (n == INT32_MIN) return 0;  // as an H200 does
        if (base > 31) return ~0u;
        if (n == 0) return mask >> base & 1 ? base : ~0u;
        const int step = n > 0 ? 1 : -1;
        s64 left = n > 0 ? n : -static_cast<s64>(n);
        for (int at = static_cast<int>(base); at >= 0 && at < 32; at += step)
            if ((mask >> at & 1) != 0 && --left == 0) return static_cast<u32>(at);
        return ~0u;
    }
};

template <class T>
Step bfi(Warp& w, const Instruction& i, u32 mask) {
    const T *a = w.in<T>(i.op[1]), *b = w.in<T>(i.op[2]);
    const u32 *c = w.in<u32>(i.op[3]), *n = w.in<u32>(i.op[4]);
    each_lane(w.out<T>(i.op[0]), mask, [=](int l) -> T {
        constexpr u32 top = 8 * sizeof(T);
        const u32 pos = top == 32 ? c[l] & 0xff : c[l], len = top == 32 ? n[l] & 0xff : n[l];
        if (pos >= top || len == 0) return b[l];
        const T field = (len >= top ? ~T{0} : (T{1} << len) - 1) << pos;
        return (b[l] & ~field) | ((a[l] << pos) & field);
    });
    return Step::next;
}

// lop3: the immediate is a truth table over (a, b, c) = (0xf0, 0xcc, 0xaa).
u32 truth(u32 a, u32 b, u32 c, u64 table) {
    u32 r = 0;
    for (int t = 0; t < 8; ++t)
        if (table >> t & 1) r |= (t & 4 ? a : ~a) & (t & 2 ? b : ~b) & (t & 1 ? c : ~c);
    return r;
}
Step lop3(Warp& w, const Instruction& i, u32 mask) {
    const bool with_pred = i.count > 5;
    const Operand* src = i.op + (with_pred ? 2 : 1);
    const u32 *a = w.in<u32>(src[0]), *b = w.in<u32>(src[1]), *c = w.in<u32>(src[2]);
    u32 t[32];
    for (int l = 0; l < 32; ++l)
        t[l] = truth(a[l], b[l], c[l], i.aux);
    if (with_pred) {
        u32 nonzero = 0;
        for (int l = 0; l < 32; ++l)
            nonzero |= static_cast<u32>(t[l] != 0) << l;
        const u32 q = w.pred(src[4]);
        w.set_pred(i.op[1], (i.aux >> 8) != 0 ? nonzero & q : nonzero | q, mask);
    }
    each_lane(w.out<u32>(i.op[0]), mask, [&](int l) { return t[l]; });
    return Step::next;
}

Step logic_pred(Warp& w, const Instruction& i, u32 mask) {
    const u32 a = w.pred(i.op[1]), b = i.count > 2 ? w.pred(i.op[2]) : 0;
    w.set_pred(i.op[0], i.aux == 0 ? a & b : i.aux == 1 ? a | b : i.aux == 2 ? a ^ b : ~a, mask);
    return Step::next;
}

// prmt: `selector(c)` gives four nibbles; bit 3 of a nibble replicates the byte's sign.
u32 permute(u32 a, u32 b, u32 nibbles) {
    const u64 bytes = static_cast<u64>(b) << 32 | a;
    u32 r = 0;
    for (int k = 0; k < 4; ++k) {
        const u32 n = nibbles >> (4 * k) & 15;
        u32 byte = static_cast<u32>(bytes >> (8 * (n & 7))) & 0xff;
        if ((n & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
        r |= byte << (8 * k);
    }
    return r;
}
// Selectors of the modes, by c & 3; f4e, b4e, rc8, ecl, ecr, rc16.
constexpr u16 kPermuteModes[6][4] = {{0x3210, 0x4321, 0x5432, 0x6543}, {0x5670, 0x6701, 0x7012, 0x0123},
                                     {0x0000, 0x1111, 0x2222, 0x3333}, {0x3210, 0x3211, 0x3222, 0x3333},
                                     {0x0000, 0x1110, 0x2210, 0x3210}, {0x1010, 0x3232, 0x1010, 0x3232}};
Step prmt(Warp& w, const Instruction& i, u32 mask) {
    const u32 *a = w.in<u32>(i.op[1]), *b = w.in<u32>(i.op[2]), *c = w.in<u32>(i.op[3]);
    each_lane(w.out<u32>(i.op[0]), mask, [=](int l) {
        return permute(a[l], b[l], i.aux == 0 ? c[l] : kPermuteModes[i.aux - 1][c[l] & 3]);
    });
    return Step::next;
}

s64 part(u32 word, int bits, int index, bool is_signed_part) {
    const u32 v = word >> (bits * index) & ((1u << bits) - 1);
    return is_signed_part && (v >> (bits - 1)) != 0 ? static_cast<s64>(v) - (1ll << bits)
                                                    : static_cast<s64>(v);
}
Step dot(Warp& w, const Instruction& i, u32 mask) {  // aux: bit 0 a signed, 1 b signed, 2 dp2a, 3 dp2a.hi
    const u32 *a = w.in<u32>(i.op[1]), *b = w.in<u32>(i.op[2]), *c = w.in<u32>(i.op[3]);
    each_lane(w.out<u32>(i.op[0]), mask, [=](int l) {
        s64 sum = c[l];
        const bool two = (i.aux & 4) != 0;
        for (int k = 0; k < (two ? 2 : 4); ++k)
            sum += part(a[l], two ? 16 : 8, k, (i.aux & 1) != 0) *
                   part(b[l], 8, two && (i.aux & 8) != 0 ? k + 2 : k, (i.aux & 2) != 0);
        return static_cast<u32>(sum);
    });
    return Step::next;
}

template <class Op>
Handler shift_of(Type type) {
    return for_arithmetic(type, []<class T>() -> Handler { return binary<T, T, u32, Op>; });
}

}  // namespace

void select_bit_count(const Choice& c, Instruction& i) {
    const bool wide = bits_of(c.type(0)) == 64;
    if (c.opcode == "popc")
        i.run = wide ? Handler{unary<u32, u64, Popc>} : Handler{unary<u32, u32, Popc>};
    else if (c.opcode == "clz")
        i.run = wide ? Handler{unary<u32, u64, Clz>} : Handler{unary<u32, u32, Clz>};
    else if (c.has(Mod::shiftamt))
        i.run = for_arithmetic(c.type(0), []<class T>() -> Handler { return unary<u32, T, Bfind<true>>; });
    else
        i.run = for_arithmetic(c.type(0), []<class T>() -> Handler { return unary<u32, T, Bfind<false>>; });
}
void select_bit_unary(const Choice& c, Instruction& i) {
    i.run = for_arithmetic(c.type(0), [&]<class T>() -> Handler {
        return c.opcode == "brev"  ? unary<T, T, Brev>
               : c.opcode == "not" ? unary<T, T, Not>
                                   : unary<T, T, Cnot>;
    });
}
void select_logic(const Choice& c, Instruction& i) {
    i.run = for_arithmetic(c.type(0), [&]<class T>() -> Handler {
        return c.opcode == "and"  ? binary<T, T, T, And>
               : c.opcode == "or" ? binary<T, T, T, Or>
                                  : binary<T, T, T, Xor>;
    });
}
void select_logic_pred(const Choice& c, Instruction& i) {
    i.aux = c.opcode == "and" ? 0 : c.opcode == "or" ? 1 : c.opcode == "xor" ? 2 : 3;
    i.run = logic_pred;
}
void select_shift(const Choice& c, Instruction& i) {
    i.run = c.opcode == "shl" ? shift_of<Shl>(c.type(0)) : shift_of<Shr>(c.type(0));
}
void select_shf(const Choice& c, Instruction& i) {
    const bool left = c.has(Mod::l), wrap = c.has(Mod::wrap);
    i.run = left ? (wrap ? Handler{ternary<u32, u32, u32, u32, Funnel<true, true>>}
                         : Handler{ternary<u32, u32, u32, u32, Funnel<true, false>>})
                 : (wrap ? Handler{ternary<u32, u32, u32, u32, Funnel<false, true>>}
                         : Handler{ternary<u32, u32, u32, u32, Funnel<false, false>>});
}
void select_bfe(const Choice& c, Instruction& i) {
    i.run = for_arithmetic(c.type(0), []<class T>() -> Handler {
        if constexpr (sizeof(T) >= 4)
            return ternary<T, T, u32, u32, Bfe>;
        else
            return nullptr;
    });
}
void select_bfi(const Choice& c, Instruction& i) {
    i.run = bits_of(c.type(0)) == 64 ? bfi<u64> : bfi<u32>;
}
void select_bmsk(const Choice& c, Instruction& i) {
    i.run = c.has(Mod::wrap) ? Handler{binary<u32, u32, u32, Bmsk<true>>}
                             : Handler{binary<u32, u32, u32, Bmsk<false>>};
}
void select_szext(const Choice& c, Instruction& i) {
    const bool wrap = c.has(Mod::wrap);
    if (c.type(0) == Type::u32)
        i.run =
            wrap ? Handler{binary<u32, u32, u32, Szext<true>>} : Handler{binary<u32, u32, u32, Szext<false>>};
    else
        i.run =
            wrap ? Handler{binary<s32, s32, u32, Szext<true>>} : Handler{binary<s32, s32, u32, Szext<false>>};
}
void select_fns(const Choice&, Instruction& i) {
    i.run = ternary<u32, u32, u32, s32, Fns>;
}
void select_dot(const Choice& c, Instruction& i) {
    i.aux = (c.type(0) == Type::s32 ? 1u : 0u) | (c.type(1) == Type::s32 ? 2u : 0u) |
            (c.opcode == "dp2a" ? 4u : 0u) | (c.has(Mod::hi) ? 8u : 0u);
    i.run = dot;
}
void select_lop3(const Choice& c, Instruction& i) {
    const Operand& table = i.op[i.count > 5 ? 5 : 4];
    if (table.imm < 0 || table.imm > 255) throw SelectError("the truth table must be 0 to 255", true);
    i.aux = static_cast<u64>(table.imm) | (c.has(Mod::and_) ? 256u : 0u);
    i.run = lop3;
}
void select_prmt(const Choice& c, Instruction& i) {
    const Mod modes[] = {Mod::f4e, Mod::b4e, Mod::rc8, Mod::ecl, Mod::ecr, Mod::rc16};
    for (u32 m = 0; m < 6; ++m)
        if (c.has(modes[m])) i.aux = m + 1;
    i.run = prmt;
}

}  // namespace emu
