// The lowering of one kernel. lower.cpp resolves scopes, variables and calls; operands.cpp turns statements
// into instructions with the form table.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ir/errors.hpp"
#include "ptx/ast.hpp"
#include "ptx/draft.hpp"
#include "ptx/forms.hpp"

namespace emu {

struct GlobalObject;

struct Symbol {
    enum class Kind : std::uint8_t { param, global, shared, dynamic_shared, local } kind;
    std::uint64_t value;  // offset in its space; a global's address
};

class Lowering {
  public:
    Lowering(const ast::Module& module, const ast::Function& entry, const std::vector<GlobalObject>& globals);
    [[nodiscard]] Kernel run();

  private:
    struct Names {
        std::unordered_map<std::string_view, std::pair<std::uint32_t, std::uint64_t>>
            registers;  // first, count or 0
        std::unordered_map<std::string_view, Symbol> symbols;
        std::unordered_map<std::string_view, std::uint32_t> labels;
        std::unordered_map<std::string_view, const ast::Statement*> tables;
    };
    using Bindings = std::vector<std::pair<std::string_view, Symbol>>;
    static constexpr std::uint32_t kNoLabel = ~0u;

    [[nodiscard]] Where where(int line) const;
    [[nodiscard]] Where where(const ast::Statement& s) const;
    [[noreturn]] void invalid(const std::string& text, const Where& at) const;
    [[noreturn]] void unsupported(const std::string& text, const Where& at) const;

    // lower.cpp
    void directives();
    void parameters();
    std::uint32_t shared_offset(std::string_view name, const ast::Variable& v);
    std::uint32_t local_offset(const ast::Variable& v);
    Symbol variable(const ast::Variable& v);
    void open_scope(const ast::Function::Scope& declared, std::span<const ast::Statement> body,
                    std::size_t from);
    [[nodiscard]] std::optional<std::uint32_t> find_register(std::string_view name) const;
    [[nodiscard]] std::optional<Symbol> find_symbol(std::string_view name);
    [[nodiscard]] std::uint32_t find_label(std::string_view name, const ast::Statement& at) const;
    void function(const ast::Function& f, const ast::Statement* call, const Bindings& bindings);
    void finish();
    [[nodiscard]] std::uint32_t new_label() {
        return labels_.push_back(0), static_cast<std::uint32_t>(labels_.size() - 1);
    }
    [[nodiscard]] std::uint32_t here() const { return static_cast<std::uint32_t>(drafts_.size()); }

    // operands.cpp
    [[nodiscard]] static std::string spelled(const ast::Statement& s);
    void instruction(const ast::Statement& s);
    bool try_form(const Form& form, const ast::Statement& s, const Choice& choice, std::string& why);
    bool fit(const OperandSpec& spec, const Choice& choice, const ast::Operand& o, const ast::Statement& s,
             Draft& d, std::string& why);
    bool fit_value(Type type, bool dest, bool wide, const ast::Operand& o, const ast::Statement& s, Draft& d,
                   std::string& why);
    bool fit_address(const ast::Operand& o, const ast::Statement& s, Draft& d, std::string& why);
    bool fit_tensor(int coordinates, const ast::Operand& o, const ast::Statement& s, Draft& d,
                    std::string& why);
    static void note_part(Draft& d, const Choice& choice);
    bool pack_operands(const Form& form, const ast::Statement& s, const Choice& choice, std::string& why);
    // flow.cpp
    void branch(const ast::Statement& s, const Form& form, const Choice& choice);
    void call(const ast::Statement& s, const Form& form, const Choice& choice);
    void call_print(const ast::Statement& s, const Form& form, const Choice& choice,
                    const ast::Operand* result, std::span<const ast::Operand> args);
    // marker.cpp
    void marker(const ast::Statement& s);
    void emit(Draft d, const ast::Statement& s);
    void emit_return();
    void set_guard(Draft& d, const ast::Statement& s);
    [[nodiscard]] Operand constant(std::uint64_t value, int bits);
    [[nodiscard]] Operand address_of(const Symbol& symbol, std::int64_t displacement, int bits);
    [[nodiscard]] Operand warp_constant(WarpConstant::Kind kind, std::uint32_t number, std::uint8_t bits,
                                        bool dynamic = false);

    const ast::Module& module_;
    const std::vector<GlobalObject>& globals_;
    const ast::Function& entry_;
    Kernel kernel_;
    std::vector<Draft> drafts_;
    std::vector<VirtualRegister> registers_;
    std::vector<std::uint32_t> labels_;  // label → instruction
    std::vector<std::vector<std::uint32_t>> tables_;
    std::vector<Names> scopes_;
    std::size_t base_scope_ = 0;  // names of the caller are out of reach
    std::uint32_t return_label_ = kNoLabel;
    std::optional<std::uint32_t>
        changing_special_;  // %clock and its like, seen among the operands of this instruction
    int call_depth_ = 0;
    std::vector<std::string_view> call_stack_;
    std::map<std::string_view, std::uint32_t> shared_;
    std::map<std::pair<int, std::uint64_t>, std::uint32_t> constants_;
    std::map<std::tuple<int, std::uint32_t, int, bool>, std::uint32_t> warp_constant_index_;
    std::vector<std::size_t> dynamic_constants_;
    std::map<std::string, std::int32_t> text_index_;
};

}  // namespace emu
