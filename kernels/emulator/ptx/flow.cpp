// Branches, returns, and the calls that print.
#include "exec/select.hpp"
#include "ptx/lower.hpp"

namespace emu {

using ast::Statement;
using Kind = ast::Operand::Kind;

// The number of the table called `name`; branches of one scope share it.
std::uint32_t Lowering::branch_table(std::string_view name, const Statement& s) {
    for (std::size_t scope = scopes_.size(); scope-- > base_scope_;) {
        const auto found = scopes_[scope].tables.find(name);
        if (found == scopes_[scope].tables.end()) continue;
        auto& [table, number] = found->second;
        if (number == kNoLabel) {
            number = static_cast<std::uint32_t>(tables_.size());
            tables_.emplace_back();
            for (const std::string_view label : table->labels)
                tables_.back().push_back(find_label(label, s));
        }
        return number;
    }
    invalid("There is no table '" + std::string(name) + "' in reach", where(s));
}

void Lowering::branch(const Statement& s, const Form& form, const Choice& choice) {
    Draft d;
    set_guard(d, s);
    std::string why;
    if (s.name == "ret") {
        give_back(s);
        d.flow = body_.how == Return::jump ? Draft::Flow::branch : Draft::Flow::stop;
        d.ins.target = body_.end;
        d.ins.aux = static_cast<std::uint64_t>(body_.how);
        form.select(choice, d.ins);
        return emit(std::move(d), s);
    }
    const std::size_t wanted = s.name == "bra" ? 1 : 2;
    if (s.operands.size() != wanted || s.operands.back().kind != Kind::name)
        invalid("'" + spelled(s) + "' needs " + (wanted == 1 ? "a label" : "an index and a table of labels"),
                where(s));
    const std::string_view name = s.operands.back().text;
    if (wanted == 1) {
        d.flow = Draft::Flow::branch;
        d.ins.target = find_label(name, s);
    } else {
        if (!fit_value(Type::u32, false, false, s.operands[0], s, d, why))
            invalid("'" + spelled(s) + "': " + why, where(s));
        d.flow = Draft::Flow::table;
        d.ins.target = branch_table(name, s);
    }
    form.select(choice, d.ins);
    emit(std::move(d), s);
}

void Lowering::call_print(const Statement& s, const Form& form, const Choice& choice,
                          const ast::Operand* result, std::span<const ast::Operand> args) {
    Draft d;
    set_guard(d, s);
    d.ins.aux = args.size() == 2
                    ? 0
                    : 1;  // vprintf(format, values), or __assertfail(message, file, line, function, size)
    const auto add = [&](const ast::Operand& o) {
        const auto symbol = find_symbol(o.text);
        if (!symbol || symbol->kind != Symbol::Kind::local)
            unsupported("An argument that is no .param variable", where(s));
        d.ops.push_back(in_frame(*symbol));
        d.dest.push_back(false);
    };
    for (const ast::Operand& o : args)
        add(o);
    if (result != nullptr) add(*result);
    form.select(choice, d.ins);
    emit(std::move(d), s);
}

}  // namespace emu
