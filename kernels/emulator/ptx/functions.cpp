// Calls of device functions. Parameters are .param variables of the caller, which lie in the thread's local
// memory. Most functions are inlined at each call; those that cannot be have a frame of their own.
#include <algorithm>

#include "exec/select.hpp"
#include "ptx/lower.hpp"

namespace emu {

using ast::Statement;
using Kind = ast::Operand::Kind;

void Lowering::call(const Statement& s, const Form& form, const Choice& choice) {
    // call (results), name, (arguments), prototype;  every part but the name may be missing
    std::size_t at = 0;
    const auto list = [&]() -> std::span<const ast::Operand> {
        if (at >= s.operands.size() || s.operands[at].kind != Kind::list) return {};
        return s.operands[at++].items;
    };
    const std::span<const ast::Operand> results = list();
    if (at >= s.operands.size() || s.operands[at].kind != Kind::name)
        invalid("'call' needs the name of a function", where(s));
    const ast::Operand& target = s.operands[at++];
    const std::string name(target.text);
    const std::span<const ast::Operand> arguments = list();
    if (name == "vprintf" || name == "__assertfail")
        return call_print(s, form, choice, results.empty() ? nullptr : results.data(), arguments);
    const ast::Function* const callee = calls_.find(name);
    const ast::Signature* signature = callee;
    if (callee == nullptr && find_register(name)) {
        if (at >= s.operands.size()) invalid("A call through a register needs a prototype", where(s));
        signature = prototype(s.operands[at].text, s);
    }
    if (signature == nullptr || (callee != nullptr && callee->entry))
        unsupported("Call of '" + name + "', which has no body in this module", where(s));
    if (arguments.size() != signature->params.size() || results.size() != signature->returns.size())
        invalid("The call of '" + name + "' does not match its parameters", where(s));

    Bindings bindings;
    for (std::size_t i = 0; i < arguments.size(); ++i)
        bindings.emplace_back(signature->params[i].name, pass(arguments[i], signature->params[i], false, s));
    for (std::size_t i = 0; i < results.size(); ++i)
        bindings.emplace_back(signature->returns[i].name, pass(results[i], signature->returns[i], true, s));
    if (callee != nullptr && calls_.inlined(*callee))
        call_inlined(*callee, s, choice, bindings);
    else
        call_out_of_line(callee, target, s, bindings, arguments.size());
    for (std::size_t i = 0; i < results.size(); ++i)
        if (find_register(results[i].text))
            copy(true, results[i], bindings[arguments.size() + i].second, signature->returns[i], s);
}

// What a call through a register passes: `.callprototype` says it, or the first of `.calltargets`.
const ast::Signature* Lowering::prototype(std::string_view label, const Statement& s) const {
    for (std::size_t scope = scopes_.size(); scope-- > base_scope_;) {
        const auto found = scopes_[scope].tables.find(label);
        if (found == scopes_[scope].tables.end()) continue;
        const Statement& table = *found->second.first;
        if (table.prototype != nullptr) return table.prototype.get();
        if (!table.labels.empty()) return calls_.find(table.labels.front());
    }
    invalid("There is no prototype '" + std::string(label) + "' in reach", where(s));
}

// Where an argument or result lies in the caller's frame. Registers and numbers get a place of their own.
Symbol Lowering::pass(const ast::Operand& actual, const ast::Variable& formal, bool result,
                      const Statement& s) {
    if (actual.kind == Kind::name && !find_register(actual.text)) {
        const auto symbol = find_symbol(actual.text);
        if (symbol && symbol->kind == Symbol::Kind::local) {
            if (symbol->size < formal.bytes())
                invalid("'" + std::string(actual.text) + "' has " + std::to_string(symbol->size) +
                            " bytes, the function takes " + std::to_string(formal.bytes()),
                        where(s));
            return *symbol;
        }
    }
    const Symbol place{Symbol::Kind::local, local_offset(formal), formal.bytes()};
    if (!result) copy(false, actual, place, formal, s);
    return place;
}

// Between a register and a place in the frame, as `ld.local` and `st.local` do it.
void Lowering::copy(bool load, const ast::Operand& value, const Symbol& place, const ast::Variable& formal,
                    const Statement& s) {
    const int bits = bits_of(formal.type);
    if (formal.array || formal.vector != 1 || bits < 8)
        unsupported("An argument of type ." + std::string(name_of(formal.type)) + " in a register", where(s));
    const std::string_view name =
        hidden_names_.emplace_back("%place " + std::to_string(hidden_names_.size()));
    scopes_.back().symbols[name] = place;
    const std::string_view type = bits == 8    ? "b8"
                                  : bits == 16 ? "b16"
                                  : bits == 32 ? "b32"
                                  : bits == 64 ? "b64"
                                               : "b128";
    Statement move{.kind = Statement::Kind::instruction, .line = s.line, .loc = s.loc};
    move.name = load ? "ld" : "st";
    move.mods = {"local", type};
    const ast::Operand address{.kind = Kind::address, .text = name, .line = s.line};
    if (load) {
        move.operands = {value, address};
        move.guard = s.guard, move.guard_negated = s.guard_negated;
    } else {
        move.operands = {address, value};
    }
    instruction(move);
}

void Lowering::call_inlined(const ast::Function& callee, const Statement& s, const Choice& choice,
                            const Bindings& bindings) {
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
    body(callee, Return::jump, bindings);
    if (skip != kNoLabel) labels_[skip] = here();
}

void Lowering::call_out_of_line(const ast::Function* callee, const ast::Operand& target, const Statement& s,
                                const Bindings& bindings, std::size_t arguments) {
    CallSite site;
    for (std::size_t i = 0; i < bindings.size(); ++i) {
        const Symbol& place = bindings[i].second;
        (i < arguments ? site.arguments : site.results)
            .push_back({static_cast<std::uint32_t>(place.value), static_cast<std::uint32_t>(place.size)});
    }
    Draft d;
    std::string why;
    if (callee != nullptr)
        site.function = static_cast<std::int32_t>(function_number_.at(callee));
    else if (!fit_value(Type::u64, false, false, target, s, d, why))
        invalid("'" + spelled(s) + "': " + why, where(s));
    set_guard(d, s);
    d.ins.target = static_cast<std::uint32_t>(kernel_.call_sites.size());
    kernel_.call_sites.push_back(std::move(site));
    select_enter(Choice{}, d.ins);
    emit(std::move(d), s);
}

void Lowering::declare_functions() {
    const auto called = calls_.called_from(entry_);
    for (const ast::Function* f : called) {
        function_number_.emplace(f, static_cast<std::uint32_t>(kernel_.functions.size()));
        Function& function = kernel_.functions.emplace_back();
        function.name = f->name, function.address = calls_.address(*f);
    }
    for (std::size_t i = 0; i < called.size(); ++i)
        called_function(*called[i], kernel_.functions[i]);
}

void Lowering::called_function(const ast::Function& f, Function& function) {
    called_ = true;
    frame_bytes_ = 0, frame_align_ = 16;
    function.entry = here();
    Bindings bindings;
    const auto place = [&](const std::vector<ast::Variable>& formals, std::vector<Place>& places) {
        for (const ast::Variable& v : formals) {
            places.push_back({local_offset(v), static_cast<std::uint32_t>(v.bytes())});
            bindings.emplace_back(v.name, Symbol{Symbol::Kind::local, places.back().offset, v.bytes()});
        }
    };
    place(f.params, function.params);
    place(f.returns, function.returns);
    body(f, Return::pop, bindings);
    emit_return(Return::pop, f.line);
    function.frame_bytes = frame_bytes_, function.frame_align = frame_align_;
    function_end_.push_back(here());
    called_ = false;
    frame_bytes_ = 0;
}

// Parameters and results declared as `.reg` have a register in the body besides their place in the frame.
void Lowering::formals_in_registers(const std::vector<ast::Variable>& formals, bool load) {
    Names& names = scopes_.back();
    for (const ast::Variable& v : formals) {
        if (!v.in_register) continue;
        const auto number = static_cast<std::uint32_t>(registers_.size());
        registers_.push_back({static_cast<std::uint8_t>(std::max(bits_of(v.type), 16))});
        names.registers[v.name] = {number, 0};
        if (load)
            copy(true, {.text = v.name, .line = v.line}, names.symbols.at(v.name), v,
                 {.kind = Statement::Kind::instruction, .line = v.line});
    }
}

// Before a return: results that the body keeps in registers go to their places.
void Lowering::give_back(const Statement& s) {
    for (const ast::Variable& v : body_.function->returns) {
        if (!v.in_register) continue;
        Names& names = scopes_[base_scope_];
        const std::string_view hidden = hidden_names_.emplace_back("%result " + std::string(v.name));
        scopes_.back().registers[hidden] = names.registers.at(v.name);
        copy(false, {.text = hidden, .line = s.line}, names.symbols.at(v.name), v, s);
    }
}

void Lowering::count_registers() {
    for (std::size_t f = 0; f < kernel_.functions.size(); ++f) {
        Function& function = kernel_.functions[f];
        std::map<std::uint32_t, Operand> written;
        for (std::uint32_t i = function.entry; i < function_end_[f]; ++i) {
            const Draft& d = drafts_[i];
            for (std::size_t k = 0; k < d.ops.size(); ++k) {
                const Operand& o = d.ops[k];
                if (!d.dest[k] || o.bank != kBankRegisters) continue;
                if (o.bits == 1 && o.offset >= kFirstPred) function.predicates.push_back(o.offset);
                if (o.bits > 1 && o.offset >= kSinkBytes) written[o.offset] = o;
            }
        }
        for (const auto& [offset, operand] : written)
            function.registers.push_back(operand);
        std::ranges::sort(function.predicates);
        const auto twice = std::ranges::unique(function.predicates);
        function.predicates.erase(twice.begin(), twice.end());
    }
}

}  // namespace emu
