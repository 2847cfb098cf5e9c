// Branches and calls. A device function is inlined at each call: its parameters are the caller's .param
// variables, which lie in the thread's local memory, and `ret` becomes a branch behind the body.
#include <algorithm>

#include "exec/select.hpp"
#include "ptx/lower.hpp"

namespace emu {

using ast::Statement;
using Kind = ast::Operand::Kind;

// ----------------------------------------------------------------------------------------------------

void Lowering::branch(const Statement& s, const Form& form, const Choice& choice) {
    Draft d;
    set_guard(d, s);
    std::string why;
    if (s.name == "ret") {
        d.flow = return_label_ == kNoLabel ? Draft::Flow::stop : Draft::Flow::branch;
        d.ins.target = return_label_;
        d.ins.aux = return_label_ == kNoLabel;
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
        const Statement* table = nullptr;
        for (std::size_t scope = scopes_.size(); scope-- > base_scope_ && table == nullptr;)
            if (const auto found = scopes_[scope].tables.find(name); found != scopes_[scope].tables.end())
                table = found->second;
        if (table == nullptr) invalid("There is no table '" + std::string(name) + "' in reach", where(s));
        d.flow = Draft::Flow::table;
        d.ins.target = static_cast<std::uint32_t>(tables_.size());
        tables_.emplace_back();
        for (const std::string_view label : table->labels)
            tables_.back().push_back(find_label(label, s));
    }
    form.select(choice, d.ins);
    emit(std::move(d), s);
}

void Lowering::call(const Statement& s, const Form& form, const Choice& choice) {
    // call (result), name, (arguments);  every part but the name may be missing
    std::size_t at = 0;
    const auto list = [&]() -> const ast::Operand* {
        return at < s.operands.size() && s.operands[at].kind == Kind::list ? &s.operands[at++] : nullptr;
    };
    const ast::Operand* results = list();
    if (at >= s.operands.size() || s.operands[at].kind != Kind::name)
        invalid("'call' needs the name of a function", where(s));
    const std::string_view name = s.operands[at++].text;
    const ast::Operand* arguments = list();
    const std::span<const ast::Operand> none, given = arguments != nullptr ? arguments->items : none;
    const std::span<const ast::Operand> returned = results != nullptr ? results->items : none;
    if (name == "vprintf" || name == "__assertfail")
        return call_print(s, form, choice, returned.empty() ? nullptr : returned.data(), given);
    const ast::Function* callee = nullptr;
    for (const ast::Function& f : module_.functions)
        if (f.name == name && f.has_body) callee = &f;
    if (callee == nullptr)
        unsupported("Call of '" + std::string(name) + "', which has no body in this module", where(s));
    if (std::ranges::find(call_stack_, name) != call_stack_.end())
        unsupported("Recursion through '" + std::string(name) + "'", where(s));
    if (given.size() != callee->params.size() || returned.size() != callee->returns.size())
        invalid("The call of '" + std::string(name) + "' does not match its parameters", where(s));

    Bindings bindings;
    const auto bind = [&](const std::vector<ast::Variable>& formal, std::span<const ast::Operand> actual) {
        for (std::size_t i = 0; i < formal.size(); ++i) {
            const auto symbol = actual[i].kind == Kind::name ? find_symbol(actual[i].text) : std::nullopt;
            if (!symbol || symbol->kind != Symbol::Kind::local)
                unsupported("An argument of '" + std::string(name) + "' that is no .param variable",
                            where(s));
            bindings.emplace_back(formal[i].name, *symbol);
        }
    };
    bind(callee->params, given);
    bind(callee->returns, returned);
    std::uint32_t skip = kNoLabel;
    if (!s.guard.empty()) {  // @p call: lanes without p step around the body
        skip = new_label();
        Draft d;
        set_guard(d, s);
        d.ins.guard_negated = !d.ins.guard_negated;
        d.flow = Draft::Flow::branch;
        d.ins.target = skip;
        select_bra(choice, d.ins);
        emit(std::move(d), s);
    }
    call_stack_.push_back(name);
    ++call_depth_;
    function(*callee, &s, bindings);
    --call_depth_;
    call_stack_.pop_back();
    if (skip != kNoLabel) labels_[skip] = here();
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
        d.ops.push_back({.bits = 64, .imm = static_cast<std::int64_t>(symbol->value)});
        d.dest.push_back(false);
    };
    for (const ast::Operand& o : args)
        add(o);
    if (result != nullptr) add(*result);
    form.select(choice, d.ins);
    emit(std::move(d), s);
}

}  // namespace emu
