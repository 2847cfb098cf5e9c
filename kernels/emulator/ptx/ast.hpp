// What a PTX file says, before names are resolved. Views point into the text.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ir/types.hpp"
#include "ptx/lexer.hpp"

namespace emu::ast {

struct Operand {
    enum class Kind : std::uint8_t { name, number, vector, address, sink, list } kind = Kind::name;
    std::string_view text = {};       // name; base of an address (empty: absolute)
    Number number = {};               // literal; displacement of an address in number.integer
    bool negated = false;             // !p
    std::string_view second = {};     // d|p
    std::vector<Operand> items = {};  // of a vector; coordinates of a tensor address
    int line = 0;
};

// A place in the source. Code that the compiler inlined from another file belongs to the line that called it
// in the kernel's own file; where it really stands is `inner`.
struct Loc {
    int file = 0, line = 0, inner_file = 0, inner_line = 0;
};

struct Signature;

struct Statement {
    enum class Kind : std::uint8_t { instruction, label, open, close, table, marker } kind;
    int line = 0;
    Loc loc = {};
    std::string_view name = {};  // opcode, or the label
    std::vector<std::string_view> mods = {};
    std::vector<Operand> operands = {};
    std::string_view guard = {};
    bool guard_negated = false;
    std::vector<std::string_view> labels =
        {};  // of .branchtargets, .calltargets; the name that a marker gives
    std::shared_ptr<const Signature> prototype = {};  // of .callprototype
};

// A variable or a range of registers (%r<10> has count 10).
struct Variable {
    Space space = Space::global;
    Type type = Type::b8;
    std::string_view name;
    std::uint64_t count = 1;                                     // elements; 0 for name[]
    bool array = false, is_extern = false, in_register = false;  // in_register: a function's parameter
    std::uint32_t align = 0, vector = 1;
    std::vector<Operand> init;  // numbers, strings (kind name with quotes gone) and symbols
    int line = 0;

    [[nodiscard]] std::uint64_t bytes() const {
        return count * vector * static_cast<std::uint64_t>(bits_of(type)) / 8;
    }
    [[nodiscard]] std::uint32_t alignment() const {
        const auto natural = static_cast<std::uint32_t>(bits_of(type) / 8) * vector;
        return align != 0 ? align : natural == 0 ? 1 : natural;
    }
};
struct Registers {
    Type type;
    std::string_view name;
    std::uint64_t count = 0;  // 0: one register of that name; else name0 … name(count-1)
};

struct Signature {
    std::vector<Variable> params, returns;
};

struct Function : Signature {
    std::string_view name;
    bool entry = false, has_body = false;
    int line = 0;
    std::vector<Statement> body;  // `open` and `close` bracket nested scopes
    // Declarations in the order of the scopes: declarations[k] belongs to the k-th `open` (0 = the body
    // itself).
    struct Scope {
        std::vector<Registers> registers;
        std::vector<Variable> variables;
    };
    std::vector<Scope> scopes;
    std::map<std::string_view, std::array<std::uint32_t, 3>> directives;  // maxntid, reqntid …
};

struct Module {
    std::string version, target;
    std::vector<Variable> variables;
    std::vector<Function> functions;
    std::map<int, std::string> files;
    std::vector<std::pair<std::string_view, std::string_view>> aliases;  // a name, and the function it means
};

}  // namespace emu::ast

namespace emu {
[[nodiscard]] ast::Module parse(std::string_view text);  // Throws PtxSyntaxError.
}
