#include "ir/types.hpp"

#include <array>
#include <string>
#include <unordered_map>

namespace emu {
namespace {

constexpr std::string_view kModNames[] = {
    "",
#define X(name, text) text,
#include "mods.inc"
#undef X
};

struct TypeRow {
    std::string_view name;
    int bits;
};
constexpr TypeRow kTypes[] = {
    {"", 0},        {"pred", 1},    {"b8", 8},      {"u8", 8},     {"s8", 8},     {"b16", 16},
    {"u16", 16},    {"s16", 16},    {"b32", 32},    {"u32", 32},   {"s32", 32},   {"b64", 64},
    {"u64", 64},    {"s64", 64},    {"b128", 128},  {"f16", 16},   {"bf16", 16},  {"f32", 32},
    {"f64", 64},    {"f16x2", 32},  {"bf16x2", 32}, {"u16x2", 32}, {"s16x2", 32}, {"tf32", 32},
    {"e4m3x2", 16}, {"e5m2x2", 16}, {"u4", 4},      {"s4", 4},     {"u2", 2},     {"s2", 2},
};
static_assert(std::size(kTypes) == static_cast<int>(Type::s2) + 1, "one row a type, in the enum's order");

}  // namespace

std::string_view name_of(Mod mod) {
    return kModNames[static_cast<int>(mod)];
}
std::string_view name_of(Type type) {
    return kTypes[static_cast<int>(type)].name;
}
int bits_of(Type type) {
    return kTypes[static_cast<int>(type)].bits;
}

Mod mod_named(std::string_view text) {
    static const auto table = [] {
        std::unordered_map<std::string_view, Mod> names;
        for (std::size_t i = 1; i < std::size(kModNames); ++i)
            names.emplace(kModNames[i], static_cast<Mod>(i));
        return names;
    }();
    const auto found = table.find(text);
    return found == table.end() ? Mod::none : found->second;
}

Type type_named(std::string_view text) {
    for (std::size_t i = 1; i < std::size(kTypes); ++i)
        if (kTypes[i].name == text) return static_cast<Type>(i);
    return Type::none;
}

Type type_of(Mod mod) {
    static const auto table = [] {
        std::array<Type, std::size(kModNames)> types{};
        for (std::size_t i = 1; i < types.size(); ++i)
            types[i] = type_named(kModNames[i]);
        return types;
    }();
    return table[static_cast<std::size_t>(mod)];
}

std::string_view name_of(Space space) {
    constexpr std::string_view names[] = {"generic", "global", "shared", "shared::cluster",
                                          "local",   "param",  "const"};
    return names[static_cast<int>(space)];
}

}  // namespace emu
