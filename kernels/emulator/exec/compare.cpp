// Comparisons and selection. A comparison gives a mask of lanes; combining with a predicate works on whole
// masks.
#include <cmath>

#include "exec/lanes.hpp"
#include "units/arithmetic.hpp"
#include "units/formats.hpp"

namespace emu {
namespace {

enum class Cmp : u8 { eq, ne, lt, le, gt, ge, equ, neu, ltu, leu, gtu, geu, num, nan };

Cmp comparison(const Choice& c) {
    constexpr std::pair<Mod, Cmp> names[] = {
        {Mod::eq, Cmp::eq},   {Mod::ne, Cmp::ne},   {Mod::lt, Cmp::lt},   {Mod::le, Cmp::le},
        {Mod::gt, Cmp::gt},   {Mod::ge, Cmp::ge},   {Mod::lo, Cmp::lt},   {Mod::ls, Cmp::le},
        {Mod::hi, Cmp::gt},   {Mod::hs, Cmp::ge},   {Mod::equ, Cmp::equ}, {Mod::neu, Cmp::neu},
        {Mod::ltu, Cmp::ltu}, {Mod::leu, Cmp::leu}, {Mod::gtu, Cmp::gtu}, {Mod::geu, Cmp::geu},
        {Mod::num, Cmp::num}, {Mod::nan, Cmp::nan}};
    for (const auto& [mod, cmp] : names)
        if (c.has(mod)) return cmp;
    throw SelectError("there is no comparison", true);
}

template <Cmp C, class T>
bool holds(T a, T b) {
    [[maybe_unused]] const bool unordered = a != a || b != b;
    if constexpr (C == Cmp::eq)
        return a == b;
    else if constexpr (C == Cmp::ne)
        return std::is_floating_point_v<T> ? !unordered && a != b : a != b;
    else if constexpr (C == Cmp::lt)
        return a < b;
    else if constexpr (C == Cmp::le)
        return a <= b;
    else if constexpr (C == Cmp::gt)
        return a > b;
    else if constexpr (C == Cmp::ge)
        return a >= b;
    else if constexpr (C == Cmp::equ)
        return unordered || a == b;
    else if constexpr (C == Cmp::neu)
        return unordered || a != b;
    else if constexpr (C == Cmp::ltu)
        return !(a >= b);
    else if constexpr (C == Cmp::leu)
        return !(a > b);
    else if constexpr (C == Cmp::gtu)
        return !(a <= b);
    else if constexpr (C == Cmp::geu)
        return !(a < b);
    else if constexpr (C == Cmp::num)
        return !unordered;
    else
        return unordered;
}

// How a register's bits become comparable values.
template <class T>
struct Plain {
    using Value = T;
    using Stored = Lane<T>;
    static T get(Lane<T> bits) { return view<T>(bits); }
};
struct Flushed {
    using Value = float;
    using Stored = u32;
    static float get(u32 bits) { return flush(std::bit_cast<float>(bits), true); }
};
template <Format F, bool Ftz, int Shift>
struct Half {
    using Value = float;
    using Stored = u32;
    static float get(u32 bits) {
        const u32 code = bits >> Shift & 0xffff;
        return widen<F>(Ftz && (code & 0x7fff) >> F.mantissa_bits == 0 ? code & 0x8000 : code);
    }
};

using Compare = u32 (*)(const void* a, const void* b);

template <Cmp C, class View>
u32 compare(const void* a, const void* b) {
    const auto* x = static_cast<const typename View::Stored*>(a);
    const auto* y = static_cast<const typename View::Stored*>(b);
    u8 bit[32];
    for (int l = 0; l < 32; ++l)
        bit[l] = holds<C>(View::get(x[l]), View::get(y[l]));
    u32 mask = 0;
    for (int byte = 0; byte < 4; ++byte) {  // eight 0/1 bytes to eight bits
        u64 eight;
        __builtin_memcpy(&eight, bit + 8 * byte, 8);
        mask |= static_cast<u32>((eight * 0x0102040810204080ull) >> 56) << (8 * byte);
    }
    return mask;
}

template <class View>
Compare comparer(Cmp c) {
    switch (c) {
        case Cmp::eq:
            return compare<Cmp::eq, View>;
        case Cmp::ne:
            return compare<Cmp::ne, View>;
        case Cmp::lt:
            return compare<Cmp::lt, View>;
        case Cmp::le:
            return compare<Cmp::le, View>;
        case Cmp::gt:
            return compare<Cmp::gt, View>;
        case Cmp::ge:
            return compare<Cmp::ge, View>;
        default:
            break;
    }
    if constexpr (std::is_floating_point_v<typename View::Value>) switch (c) {
            case Cmp::equ:
                return compare<Cmp::equ, View>;
            case Cmp::neu:
                return compare<Cmp::neu, View>;
            case Cmp::ltu:
                return compare<Cmp::ltu, View>;
            case Cmp::leu:
                return compare<Cmp::leu, View>;
            case Cmp::gtu:
                return compare<Cmp::gtu, View>;
            case Cmp::geu:
                return compare<Cmp::geu, View>;
            case Cmp::num:
                return compare<Cmp::num, View>;
            default:
                return compare<Cmp::nan, View>;
        }
    throw SelectError("the comparison does not suit the type", true);
}

// `high`: the upper half of a packed type.
Compare comparer(Cmp c, Type type, bool ftz, bool high = false) {
    switch (type) {
        case Type::b16:
        case Type::u16:
            return comparer<Plain<u16>>(c);
        case Type::s16:
            return comparer<Plain<s16>>(c);
        case Type::b32:
        case Type::u32:
            return comparer<Plain<u32>>(c);
        case Type::s32:
            return comparer<Plain<s32>>(c);
        case Type::b64:
        case Type::u64:
            return comparer<Plain<u64>>(c);
        case Type::s64:
            return comparer<Plain<s64>>(c);
        case Type::f32:
            return ftz ? comparer<Flushed>(c) : comparer<Plain<float>>(c);
        case Type::f64:
            return comparer<Plain<double>>(c);
        case Type::f16:
        case Type::f16x2:
            if (high) return ftz ? comparer<Half<kF16, true, 16>>(c) : comparer<Half<kF16, false, 16>>(c);
            return ftz ? comparer<Half<kF16, true, 0>>(c) : comparer<Half<kF16, false, 0>>(c);
        default:
            return high ? comparer<Half<kBF16, false, 16>>(c) : comparer<Half<kBF16, false, 0>>(c);
    }
}

// aux of all four handlers: the Compare function; target: 0 none, 1 and, 2 or, 3 xor with a predicate.
u32 combining(const Choice& c) {
    return c.has(Mod::and_) ? 1 : c.has(Mod::or_) ? 2 : c.has(Mod::xor_) ? 3 : 0;
}
u32 combine(u32 kind, u32 t, u32 p) {
    return kind == 1 ? t & p : kind == 2 ? t | p : kind == 3 ? t ^ p : t;
}
Compare function(u64 aux) {
    return reinterpret_cast<Compare>(aux);
}

Step setp(Warp& w, const Instruction& i, u32 mask) {  // ops: p, q, a, b, c?
    const u32 t = function(i.aux)(w.in<std::byte>(i.op[2]), w.in<std::byte>(i.op[3]));
    const u32 c = i.target != 0 ? w.pred(i.op[4]) : 0;
    w.set_pred(i.op[0], combine(i.target, t, c), mask);
    if (!i.op[1].absent) w.set_pred(i.op[1], combine(i.target, ~t, c), mask);
    return Step::next;
}
Step setp_half(Warp& w, const Instruction& i, u32 mask) {  // ops: p, a, b, c?
    const u32 t = function(i.aux)(w.in<std::byte>(i.op[1]), w.in<std::byte>(i.op[2]));
    w.set_pred(i.op[0], combine(i.target, t, i.target != 0 ? w.pred(i.op[3]) : 0), mask);
    return Step::next;
}
// Packed: p from the low halves, q from the high ones.
template <bool Bf16>
Step setp_pair(Warp& w, const Instruction& i, u32 mask) {
    const auto c = static_cast<Cmp>(i.aux & 0xff);
    const Type type = Bf16 ? Type::bf16x2 : Type::f16x2;
    const bool ftz = (i.aux & 0x100) != 0;
    const u32 other = i.target != 0 ? w.pred(i.op[4]) : 0;
    const std::byte *a = w.in<std::byte>(i.op[2]), *b = w.in<std::byte>(i.op[3]);
    const u32 low = comparer(c, type, ftz)(a, b), high = comparer(c, type, ftz, true)(a, b);
    w.set_pred(i.op[0], combine(i.target, low, other), mask);
    if (!i.op[1].absent) w.set_pred(i.op[1], combine(i.target, high, other), mask);
    return Step::next;
}
// True: all ones for integers, 1.0 for floats.
template <u32 True>
Step set(Warp& w, const Instruction& i, u32 mask) {
    const u32 t = function(i.aux)(w.in<std::byte>(i.op[1]), w.in<std::byte>(i.op[2]));
    const u32 r = combine(i.target, t, i.target != 0 ? w.pred(i.op[3]) : 0);
    each_lane(w.out<u32>(i.op[0]), mask, [=](int l) { return (r >> l & 1) != 0 ? True : 0u; });
    return Step::next;
}
Handler setter(Type to) {
    return to == Type::f32     ? set<0x3f800000>
           : to == Type::f16   ? set<0x3c00>
           : to == Type::bf16  ? set<0x3f80>
           : bits_of(to) == 16 ? set<0xffff>
                               : set<~0u>;
}
template <bool Bf16>
Step set_pair(Warp& w, const Instruction& i, u32 mask) {
    const auto c = static_cast<Cmp>(i.aux & 0xff);
    const Type type = Bf16 ? Type::bf16x2 : Type::f16x2;
    const bool ftz = (i.aux & 0x100) != 0;
    constexpr u32 one = Bf16 ? 0x3f80 : 0x3c00;
    const std::byte *a = w.in<std::byte>(i.op[1]), *b = w.in<std::byte>(i.op[2]);
    const u32 other = i.target != 0 ? w.pred(i.op[3]) : 0;
    const u32 low = combine(i.target, comparer(c, type, ftz)(a, b), other),
              high = combine(i.target, comparer(c, type, ftz, true)(a, b), other);
    each_lane(w.out<u32>(i.op[0]), mask,
              [=](int l) { return (low >> l & 1) * one | (high >> l & 1) * (one << 16); });
    return Step::next;
}

template <class T>
Step selp(Warp& w, const Instruction& i, u32 mask) {
    const T *a = w.in<T>(i.op[1]), *b = w.in<T>(i.op[2]);
    const u32 p = w.pred(i.op[3]);
    each_lane(w.out<T>(i.op[0]), mask, [=](int l) { return (p >> l & 1) != 0 ? a[l] : b[l]; });
    return Step::next;
}
template <class T, bool Float>
Step slct(Warp& w, const Instruction& i, u32 mask) {  // c >= 0 ? a : b; a NaN selects b
    const T *a = w.in<T>(i.op[1]), *b = w.in<T>(i.op[2]);
    const u32* c = w.in<u32>(i.op[3]);
    const bool ftz = i.aux != 0;
    each_lane(w.out<T>(i.op[0]), mask, [=](int l) {
        const bool first =
            Float ? flush(std::bit_cast<float>(c[l]), ftz) >= 0.0f : static_cast<s32>(c[l]) >= 0;
        return first ? a[l] : b[l];
    });
    return Step::next;
}

bool pair(Type t) {
    return t == Type::f16x2 || t == Type::bf16x2;
}
u64 pair_aux(const Choice& c) {
    return static_cast<u64>(comparison(c)) | (c.has(Mod::ftz) ? 0x100u : 0u);
}

}  // namespace

void select_setp(const Choice& c, Instruction& i) {
    i.target = combining(c);
    i.aux = reinterpret_cast<u64>(comparer(comparison(c), c.type(0), false));
    i.run = setp;
}
void select_setp_float(const Choice& c, Instruction& i) {
    i.target = combining(c);
    i.aux = reinterpret_cast<u64>(comparer(comparison(c), c.type(0), c.has(Mod::ftz)));
    i.run = setp;
}
void select_setp_half(const Choice& c, Instruction& i) {
    select_setp_float(c, i);
    i.run = setp_half;
}
void select_setp_pair(const Choice& c, Instruction& i) {
    i.target = combining(c);
    i.aux = pair_aux(c);
    i.run = c.type(0) == Type::f16x2 ? setp_pair<false> : setp_pair<true>;
}
void select_set(const Choice& c, Instruction& i) {
    i.target = combining(c);
    i.aux = reinterpret_cast<u64>(comparer(comparison(c), c.type(1), false));
    i.run = setter(c.type(0));
}
void select_set_float(const Choice& c, Instruction& i) {
    i.target = combining(c);
    const Type to = c.type(0);
    if (pair(to)) {
        i.aux = pair_aux(c);
        i.run = to == Type::f16x2 ? set_pair<false> : set_pair<true>;
        return;
    }
    i.aux = reinterpret_cast<u64>(comparer(comparison(c), c.type(1), c.has(Mod::ftz)));
    i.run = setter(to);
}
void select_selp(const Choice& c, Instruction& i) {
    i.run = bits_of(c.type(0)) == 64 ? selp<u64> : selp<u32>;
}
void select_slct(const Choice& c, Instruction& i) {
    i.aux = c.has(Mod::ftz);
    const bool wide = bits_of(c.type(0)) == 64, real = c.type(1) == Type::f32;
    if (wide)
        i.run = real ? slct<u64, true> : slct<u64, false>;
    else
        i.run = real ? slct<u32, true> : slct<u32, false>;
}

}  // namespace emu
