// The form table in C++: which opcode spellings exist, what operands they take, who selects the code that
// runs them.
#pragma once

#include <array>
#include <initializer_list>
#include <span>
#include <string_view>

#include "ir/instruction.hpp"
#include "ir/types.hpp"

namespace emu {

// The modifiers of one instruction after matching.
class Choice {
  public:
    std::string_view opcode;

    void add(Mod mod) { picked_[count_++] = mod; }
    void clear() { count_ = 0; }
    [[nodiscard]] std::span<const Mod> mods() const { return {picked_.data(), count_}; }
    [[nodiscard]] bool has(Mod mod) const;
    [[nodiscard]] Mod one_of(std::initializer_list<Mod> mods, Mod otherwise = Mod::none) const;
    [[nodiscard]] Type type(int number) const;  // first, second … type among the modifiers

  private:
    std::array<Mod, 24> picked_{};
    std::size_t count_ = 0;
};

struct Slot {
    std::span<const Mod> options;
    bool optional;
};
enum class TypeRef : std::uint8_t { first, second, wide, fixed, address, tensor, immediate, special };
// An operand's count, where the modifiers say it.
constexpr int kByModifier = 0, kByShape = -1, kBySpace = -2;
struct OperandSpec {
    TypeRef ref;
    Type fixed;
    int count;
    bool dest, both, wide, second, optional;  // both: a destination that is read as well

    [[nodiscard]] Type type(const Choice& choice) const;
};
struct Form {
    std::string_view opcode;
    std::span<const Slot> slots;
    std::span<const OperandSpec> operands;
    void (*select)(const Choice&, Instruction&);  // nullptr: known, does not run yet
    bool any_order, pack, custom;
    int since;  // first architecture
    std::string_view where;
};

[[nodiscard]] std::span<const Form> forms_of(std::string_view opcode);  // empty: unknown opcode
[[nodiscard]] bool match(const Form& form, std::span<const std::string_view> parts, Choice& choice);
[[nodiscard]] int vector_length(const Choice& choice);
[[nodiscard]] int coordinates(
    const Choice& choice);  // of a tensor copy: 1 for .1d … 5 for .5d, or a column and four rows
// m, n and k of a modifier such as .m64n8k16; m is 0 where there is none.
struct Shape {
    int m = 0, n = 0, k = 0;
};
[[nodiscard]] Shape shape_of(const Choice& choice);
[[nodiscard]] int accumulator_registers(const Choice& choice);  // of a thread, for a wgmma

}  // namespace emu
