#include "ptx/forms.hpp"

#include <algorithm>
#include <cstdio>
#include <string>
#include <unordered_map>

namespace emu {

#include "selectors.inc"

namespace {

#include "table.inc"

bool match_in_order(std::span<const Slot> slots, std::span<const Mod> mods, Choice& choice) {
    if (slots.empty()) return mods.empty();
    const Slot& slot = slots.front();
    const std::size_t kept = choice.mods().size();
    if (!mods.empty() && std::ranges::find(slot.options, mods.front()) != slot.options.end()) {
        choice.add(mods.front());
        if (match_in_order(slots.subspan(1), mods.subspan(1), choice)) return true;
        Choice shorter;
        shorter.opcode = choice.opcode;
        for (std::size_t i = 0; i < kept; ++i)
            shorter.add(choice.mods()[i]);
        choice = shorter;
    }
    return slot.optional && match_in_order(slots.subspan(1), mods, choice);
}

// Each modifier takes the first free slot that has it; the options of a row's slots are disjoint or
// interchangeable.
bool match_any_order(std::span<const Slot> slots, std::span<const Mod> mods, Choice& choice) {
    std::array<bool, 24> taken{};
    for (const Mod mod : mods) {
        std::size_t i = 0;
        while (i < slots.size() &&
               (taken[i] || std::ranges::find(slots[i].options, mod) == slots[i].options.end()))
            ++i;
        if (i == slots.size()) return false;
        taken[i] = true;
        choice.add(mod);
    }
    for (std::size_t i = 0; i < slots.size(); ++i)
        if (!taken[i] && !slots[i].optional) return false;
    return true;
}

}  // namespace

bool Choice::has(Mod mod) const {
    return std::ranges::find(mods(), mod) != mods().end();
}

Mod Choice::one_of(std::initializer_list<Mod> candidates, Mod otherwise) const {
    for (const Mod mod : candidates)
        if (has(mod)) return mod;
    return otherwise;
}

Type Choice::type(int number) const {
    for (const Mod mod : mods())
        if (const Type type = type_of(mod); type != Type::none && number-- == 0) return type;
    return Type::none;
}

Type OperandSpec::type(const Choice& choice) const {
    switch (ref) {
        case TypeRef::first:
            return choice.type(0);
        case TypeRef::second:
            return choice.type(1);
        case TypeRef::fixed:
            return fixed;
        case TypeRef::wide:
            switch (choice.type(0)) {
                case Type::u16:
                    return Type::u32;
                case Type::s16:
                    return Type::s32;
                case Type::u32:
                    return Type::u64;
                default:
                    return Type::s64;
            }
        default:
            return Type::none;
    }
}

std::span<const Form> forms_of(std::string_view opcode) {
    static const auto index = [] {
        // Rows of one opcode may lie in several files: copy them side by side.
        std::unordered_map<std::string_view, std::vector<Form>> rows;
        for (const Form& form : kForms)
            rows[form.opcode].push_back(form);
        return rows;
    }();
    const auto found = index.find(opcode);
    return found == index.end() ? std::span<const Form>{} : std::span<const Form>(found->second);
}

bool match(const Form& form, std::span<const std::string_view> parts, Choice& choice) {
    std::array<Mod, 24> mods{};
    if (parts.size() > mods.size()) return false;
    for (std::size_t i = 0; i < parts.size(); ++i)
        if ((mods[i] = mod_named(parts[i])) == Mod::none) return false;
    choice.clear();
    choice.opcode = form.opcode;
    const std::span<const Mod> given(mods.data(), parts.size());
    return form.any_order ? match_any_order(form.slots, given, choice)
                          : match_in_order(form.slots, given, choice);
}

int vector_length(const Choice& choice) {
    switch (choice.one_of({Mod::v2, Mod::v4, Mod::v8, Mod::x1, Mod::x2, Mod::x4})) {
        case Mod::v2:
        case Mod::x2:
            return 2;
        case Mod::v4:
        case Mod::x4:
            return 4;
        case Mod::v8:
            return 8;
        default:
            return 1;
    }
}

int coordinates(const Choice& choice) {
    if (choice.has(Mod::tile_gather4) || choice.has(Mod::tile_scatter4)) return 5;
    constexpr Mod ranks[] = {Mod::n1d, Mod::n2d, Mod::n3d, Mod::n4d, Mod::n5d};
    return 1 + static_cast<int>(std::ranges::find_if(ranks, [&](Mod m) { return choice.has(m); }) - ranks);
}

Shape shape_of(const Choice& choice) {
    for (const Mod mod : choice.mods()) {
        Shape s;
        if (std::sscanf(std::string(name_of(mod)).c_str(), "m%dn%dk%d", &s.m, &s.n, &s.k) == 3) return s;
    }
    return {};
}

int accumulator_registers(const Choice& choice) {
    // 64 · n values over 128 threads; the first type is the result's, and two of f16 share a register.
    return shape_of(choice).n / (choice.type(0) == Type::f16 ? 4 : 2);
}

}  // namespace emu
