// PTX types and modifiers as values. A modifier (.ftz, .v4, .shared::cta) is a Mod; the names come from the
// form table.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace emu {

enum class Mod : std::uint16_t {
    none,
#define X(name, text) name,
#include "mods.inc"
#undef X
};

enum class Type : std::uint8_t {
    none,
    pred,
    b8,
    u8,
    s8,
    b16,
    u16,
    s16,
    b32,
    u32,
    s32,
    b64,
    u64,
    s64,
    b128,
    f16,
    bf16,
    f32,
    f64,
    f16x2,
    bf16x2,
    u16x2,
    s16x2,
    tf32,
    e4m3x2,
    e5m2x2,
    u4,
    s4,
    u2,
    s2,
};

[[nodiscard]] std::string_view name_of(Mod mod);
[[nodiscard]] std::string_view name_of(Type type);
[[nodiscard]] Mod mod_named(std::string_view text);    // Mod::none where no form knows the word
[[nodiscard]] Type type_named(std::string_view text);  // Type::none where it is no type
[[nodiscard]] Type type_of(Mod mod);                   // Type::none where the modifier is no type
[[nodiscard]] int bits_of(Type type);  // 1 for pred; the register width a value of the type needs

[[nodiscard]] constexpr bool is_float(Type t) {
    return t == Type::f16 || t == Type::bf16 || t == Type::f32 || t == Type::f64;
}
[[nodiscard]] constexpr bool is_signed(Type t) {
    return t == Type::s8 || t == Type::s16 || t == Type::s32 || t == Type::s64;
}

enum class Space : std::uint8_t { generic, global, shared, shared_cluster, local, param, constant };
[[nodiscard]] std::string_view name_of(Space space);

}  // namespace emu
