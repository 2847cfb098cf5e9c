// The lowering of one kernel. lower.cpp resolves scopes, variables and calls; operands.cpp turns statements
// into instructions with the form table.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ir/errors.hpp"
#include "ptx/ast.hpp"
#include "ptx/calls.hpp"
#include "ptx/draft.hpp"
#include "ptx/forms.hpp"

namespace emu {

struct GlobalObject;

struct Symbol {
    enum class Kind : std::uint8_t { param, global, shared, dynamic_shared, local } kind;
    std::uint64_t value;     // offset in its space or, of local ones, in the frame; a global's address
    std::uint64_t size = 0;  // of local ones, in bytes
};

class Lowering {
  public:
    Lowering(const ast::Module& module, const CallGraph& calls, const ast::Function& entry,
             const std::vector<GlobalObject>& globals);
    [[nodiscard]] Kernel run();

  private:
    struct Names {
        std::unordered_map<std::string_view, std::pair<std::uint32_t, std::uint64_t>>
            registers;  // first, count or 0
        std::unordered_map<std::string_view, Symbol> symbols;
        std::unordered_map<std::string_view, std::uint32_t> labels;
        std::unordered_map<std::string_view, std::pair<const ast::Statement*, std::uint32_t>>
            tables;  // and the number in tables_, once a branch uses it
    };
    using Bindings = std::vector<std::pair<std::string_view, Symbol>>;
    static constexpr std::uint32_t kNoLabel = ~0u;
    struct Body {
        const ast::Function* function;
        Return how;
        std::uint32_t end = kNoLabel;  // where an inlined body ends
    };

    [[nodiscard]] Where where(int line) const;
    [[nodiscard]] Where where(const ast::Statement& s) const;
    [[noreturn]] void invalid(const std::string& text, const Where& at) const;
    [[noreturn]] void unsupported(const std::string& text, const Where& at) const;

    // lower.cpp
    void directives();
    void parameters();
    std::uint32_t shared_offset(const ast::Variable& v);
    std::uint32_t local_offset(const ast::Variable& v);
    Symbol variable(const ast::Variable& v);
    void open_scope(const ast::Function::Scope& declared, std::span<const ast::Statement> body,
                    std::size_t from);
    [[nodiscard]] std::optional<std::uint32_t> find_register(std::string_view name) const;
    [[nodiscard]] std::optional<Symbol> find_symbol(std::string_view name);
    [[nodiscard]] std::uint32_t find_label(std::string_view name, const ast::Statement& at) const;
    void body(const ast::Function& f, Return how, const Bindings& bindings);
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
    [[nodiscard]] std::uint32_t branch_table(std::string_view name, const ast::Statement& s);
    void branch(const ast::Statement& s, const Form& form, const Choice& choice);
    void call_print(const ast::Statement& s, const Form& form, const Choice& choice,
                    const ast::Operand* result, std::span<const ast::Operand> args);
    // marker.cpp
    void marker(const ast::Statement& s);
    // functions.cpp
    void call(const ast::Statement& s, const Form& form, const Choice& choice);
    void call_inlined(const ast::Function& callee, const ast::Statement& s, const Choice& choice,
                      const Bindings& bindings);
    void call_out_of_line(const ast::Function* callee, const ast::Operand& target, const ast::Statement& s,
                          const Bindings& bindings, std::size_t arguments);
    [[nodiscard]] const ast::Signature* prototype(std::string_view label, const ast::Statement& s) const;
    Symbol pass(const ast::Operand& actual, const ast::Variable& formal, bool result,
                const ast::Statement& s);
    void copy(bool load, const ast::Operand& value, const Symbol& place, const ast::Variable& formal,
              const ast::Statement& s);
    void declare_functions();
    void called_function(const ast::Function& f, Function& function);
    void formals_in_registers(const std::vector<ast::Variable>& formals, bool load);
    void give_back(const ast::Statement& s);
    void count_registers();

    void emit(Draft d, const ast::Statement& s);
    void emit_return(Return how, int line);
    void set_guard(Draft& d, const ast::Statement& s);
    [[nodiscard]] Operand constant(std::uint64_t value, int bits);
    [[nodiscard]] Operand address_of(const Symbol& symbol, std::int64_t displacement, int bits,
                                     const ast::Statement& s);
    [[nodiscard]] Operand in_frame(const Symbol& symbol);
    [[nodiscard]] Operand warp_constant(WarpConstant::Kind kind, std::uint32_t number, std::uint8_t bits,
                                        bool dynamic = false);

    const ast::Module& module_;
    const CallGraph& calls_;
    const std::vector<GlobalObject>& globals_;
    const ast::Function& entry_;
    Kernel kernel_;
    std::vector<Draft> drafts_;
    std::vector<VirtualRegister> registers_;
    std::vector<std::uint32_t> labels_;  // label → instruction
    std::vector<std::vector<std::uint32_t>> tables_;
    std::vector<Names> scopes_;
    std::size_t base_scope_ = 0;  // names of the caller are out of reach
    Body body_{};
    bool called_ = false;  // a called function is being lowered: its frame moves
    bool uses_stack_ = false;
    std::uint32_t frame_bytes_ = 0, frame_align_ = 16;
    std::map<const ast::Function*, std::uint32_t> function_number_;
    std::vector<std::uint32_t> function_end_;  // behind the last instruction of each called function
    std::deque<std::string> hidden_names_;     // of places that the text does not name
    std::optional<std::uint32_t>
        changing_special_;  // %clock and its like, seen among the operands of this instruction
    std::map<const ast::Variable*, std::uint32_t> shared_;
    std::map<std::pair<int, std::uint64_t>, std::uint32_t> constants_;
    std::map<std::tuple<int, std::uint32_t, int, bool>, std::uint32_t> warp_constant_index_;
    std::vector<std::size_t> dynamic_constants_;
    std::map<std::string, std::int32_t> text_index_;
};

}  // namespace emu
