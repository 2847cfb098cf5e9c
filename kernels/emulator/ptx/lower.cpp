// Names to numbers: one entry function, with the device functions it calls inlined or in front of it, becomes
// a flat list of instructions.
#include "ptx/lower.hpp"

#include <algorithm>

#include "ir/errors.hpp"
#include "machine/special.hpp"
#include "ptx/program.hpp"

namespace emu {

using ast::Statement;

constexpr std::uint32_t kMostRegisterBytes = 65536 * 128;  // of a warp

namespace {

// `shared` for `_ZZ9bulk_copyE6shared`, a variable inside a function: what the source calls it.
std::string plain_name(std::string_view symbol) {
    if (!symbol.starts_with("_ZZ")) return std::string(symbol);
    for (std::size_t at = symbol.rfind('E'); at != std::string_view::npos && at > 0;
         at = symbol.rfind('E', at - 1)) {
        std::size_t length = 0, digit = at + 1;
        for (; digit < symbol.size() && symbol[digit] >= '0' && symbol[digit] <= '9' && length < 4096;
             ++digit)
            length = length * 10 + static_cast<std::size_t>(symbol[digit] - '0');
        if (length > 0 && digit + length <= symbol.size()) return std::string(symbol.substr(digit, length));
    }
    return std::string(symbol);
}

}  // namespace

Lowering::Lowering(const ast::Module& module, const CallGraph& calls, const ast::Function& entry,
                   const std::vector<GlobalObject>& globals)
    : module_(module), calls_(calls), globals_(globals), entry_(entry) {
    kernel_.name = std::string(entry.name);
}

Kernel Lowering::run() {
    for (const auto& [number, name] : module_.files) {
        if (static_cast<std::size_t>(number) >= kernel_.files.size())
            kernel_.files.resize(static_cast<std::size_t>(std::clamp(number, 0, 100000)) + 1);
        if (number >= 0 && number < 100000) kernel_.files[static_cast<std::size_t>(number)] = name;
    }
    directives();
    parameters();
    // Called functions come first: lanes inside a call then run before those that go on, and meet them again.
    declare_functions();
    kernel_.entry = here();
    body(entry_, Return::exit, {});
    emit_return(Return::exit, entry_.line);
    kernel_.frame_bytes = frame_bytes_;
    finish();
    return std::move(kernel_);
}

Where Lowering::where(int line) const {
    return {std::string(entry_.name), line, {}, 0};
}

Where Lowering::where(const Statement& s) const {
    Where w = where(s.line);
    if (s.loc.line > 0 && s.loc.file > 0 && static_cast<std::size_t>(s.loc.file) < kernel_.files.size()) {
        w.source_file = kernel_.files[static_cast<std::size_t>(s.loc.file)];
        w.source_line = s.loc.line;
    }
    return w;
}

void Lowering::invalid(const std::string& text, const Where& at) const {
    throw PtxInvalid(text + ": " + describe(at), at);
}
void Lowering::unsupported(const std::string& text, const Where& at) const {
    throw PtxUnsupported(text + ": " + describe(at), at);
}

void Lowering::directives() {
    for (const auto& [name, value] : entry_.directives) {
        if (name == "maxntid")
            kernel_.maxntid = value;
        else if (name == "reqntid")
            kernel_.reqntid = value;
        else if (name == "reqnctapercluster")
            kernel_.reqnctapercluster = value;
        else if (name == "minnctapersm")
            kernel_.minnctapersm = value[0];
        else if (name == "maxclusterrank")
            kernel_.maxclusterrank = value[0];
        else if (name == "maxnreg")
            kernel_.maxnreg = value[0];
        else if (name != "maxnctapersm" && name != "noreturn" && name != "explicitcluster")
            unsupported("The directive '." + std::string(name) + "' is not supported", where(entry_.line));
    }
}

void Lowering::parameters() {
    std::uint32_t at = 0;
    for (const ast::Variable& v : entry_.params) {
        if (v.in_register)
            invalid("Parameter '" + std::string(v.name) + "' of a kernel is in a register", where(v.line));
        const std::uint32_t align = v.alignment();
        if (v.bytes() > 32768 || align > 128)
            invalid("Parameter '" + std::string(v.name) + "' is too large", where(v.line));
        at = (at + align - 1) / align * align;
        kernel_.params.push_back(
            {std::string(v.name), at, static_cast<std::uint32_t>(v.bytes()), align, v.type, v.array});
        at += static_cast<std::uint32_t>(v.bytes());
        if (at > 32768) invalid("The parameters are larger than 32768 bytes", where(v.line));
    }
    kernel_.param_bytes = at;
}

// ---- scopes
// ----------------------------------------------------------------------------------------------------------

std::uint32_t Lowering::shared_offset(const ast::Variable& v) {
    const auto known = shared_.find(&v);
    if (known != shared_.end()) return known->second;
    const std::uint32_t align = v.alignment();
    const std::uint32_t offset = (kernel_.static_shared_bytes + align - 1) / align * align;
    if (v.bytes() > (1u << 24) || offset + v.bytes() > (1u << 24))
        invalid("Shared variable '" + std::string(v.name) + "' does not fit", where(v.line));
    kernel_.static_shared_bytes = offset + static_cast<std::uint32_t>(v.bytes());
    kernel_.shared_objects.push_back({plain_name(v.name), offset, static_cast<std::uint32_t>(v.bytes())});
    shared_.emplace(&v, offset);
    return offset;
}

std::uint32_t Lowering::local_offset(const ast::Variable& v) {
    const std::uint32_t align = std::max(v.alignment(), 1u);
    const std::uint32_t offset = (frame_bytes_ + align - 1) / align * align;
    if (v.bytes() > (1u << 20) || offset + v.bytes() > (1u << 20))
        unsupported("Local memory beyond 1 MiB a thread ('" + std::string(v.name) + "')", where(v.line));
    frame_align_ = std::max(frame_align_, align);
    frame_bytes_ = offset + static_cast<std::uint32_t>(v.bytes());
    return offset;
}

Symbol Lowering::variable(const ast::Variable& v) {
    switch (v.space) {
        case Space::shared:
            if (v.is_extern || (v.array && v.count == 0)) {
                kernel_.uses_dynamic_shared = true;
                kernel_.dynamic_shared_align = std::max(kernel_.dynamic_shared_align, v.alignment());
                return {Symbol::Kind::dynamic_shared, 0};
            }
            return {Symbol::Kind::shared, shared_offset(v)};
        case Space::local:
        case Space::param:
            return {Symbol::Kind::local, local_offset(v), v.bytes()};
        default:
            unsupported("A variable in space ." + std::string(name_of(v.space)) + " inside a function",
                        where(v.line));
    }
}

void Lowering::open_scope(const ast::Function::Scope& declared, std::span<const Statement> body,
                          std::size_t from) {
    Names names;
    for (const ast::Registers& r : declared.registers) {
        const auto bits = static_cast<std::uint8_t>(std::max(bits_of(r.type), r.type == Type::pred ? 1 : 16));
        const auto first = static_cast<std::uint32_t>(registers_.size());
        const std::uint64_t count = std::max<std::uint64_t>(r.count, 1);
        if (registers_.size() + count > (1u << 22))
            unsupported("More than 4 million registers", where(entry_.line));
        registers_.resize(registers_.size() + count, {bits});
        names.registers[r.name] = {first, r.count};
    }
    for (const ast::Variable& v : declared.variables)
        names.symbols[v.name] = variable(v);
    // Labels of this scope, not of the scopes inside it.
    int depth = 0;
    for (std::size_t i = from; i < body.size() && depth >= 0; ++i) {
        const Statement& s = body[i];
        if (s.kind == Statement::Kind::open) ++depth;
        if (s.kind == Statement::Kind::close) --depth;
        if (depth != 0) continue;
        if (s.kind == Statement::Kind::label) {
            if (names.labels.contains(s.name))
                invalid("The label '" + std::string(s.name) + "' stands twice in one scope", where(s));
            names.labels[s.name] = new_label();
        }
        if (s.kind == Statement::Kind::table) names.tables[s.name] = {&s, kNoLabel};
    }
    scopes_.push_back(std::move(names));
}

std::optional<std::uint32_t> Lowering::find_register(std::string_view name) const {
    for (std::size_t s = scopes_.size(); s-- > base_scope_;) {
        const Names& scope = scopes_[s];
        if (const auto found = scope.registers.find(name);
            found != scope.registers.end() && found->second.second == 0)
            return found->second.first;
        std::size_t digits = name.size();
        while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9')
            --digits;
        // %r12 may belong to %r<20>, %r1<5> …: try every split of the trailing digits.
        for (std::size_t cut = std::max(digits, name.size() - std::min<std::size_t>(name.size(), 8));
             cut < name.size(); ++cut) {
            const auto found = scope.registers.find(name.substr(0, cut));
            if (found == scope.registers.end() || found->second.second == 0) continue;
            std::uint64_t number = 0;
            for (const char c : name.substr(cut))
                number = number * 10 + static_cast<std::uint64_t>(c - '0');
            if (number < found->second.second)
                return found->second.first + static_cast<std::uint32_t>(number);
        }
    }
    return std::nullopt;
}

std::optional<Symbol> Lowering::find_symbol(std::string_view name) {
    for (std::size_t s = scopes_.size(); s-- > base_scope_;)
        if (const auto found = scopes_[s].symbols.find(name); found != scopes_[s].symbols.end())
            return found->second;
    for (std::size_t p = 0; p < entry_.params.size(); ++p)
        if (entry_.params[p].name == name && body_.how == Return::exit)
            return Symbol{Symbol::Kind::param, kernel_.params[p].offset};
    for (const GlobalObject& g : globals_)
        if (g.name == name) return Symbol{Symbol::Kind::global, g.address};
    for (const ast::Variable& v : module_.variables)
        if (v.name == name && v.space == Space::shared) return variable(v);
    if (const ast::Function* f = calls_.find(name); f != nullptr && !f->entry)
        return Symbol{Symbol::Kind::global, calls_.address(*f)};
    return std::nullopt;
}

std::uint32_t Lowering::find_label(std::string_view name, const Statement& at) const {
    for (std::size_t s = scopes_.size(); s-- > base_scope_;)
        if (const auto found = scopes_[s].labels.find(name); found != scopes_[s].labels.end())
            return found->second;
    invalid("There is no label '" + std::string(name) + "' in reach", where(at));
}

// ---- functions
// -------------------------------------------------------------------------------------------------------

// The statements of one function. Its caller's names are out of reach.
void Lowering::body(const ast::Function& f, Return how, const Bindings& bindings) {
    if (drafts_.size() > (1u << 22))
        unsupported("More than 4 million instructions after inlining", where(f.line));
    const std::size_t outer_base = base_scope_;
    base_scope_ = scopes_.size();
    const Body outer = body_;
    body_ = {&f, how, how == Return::jump ? new_label() : kNoLabel};

    std::size_t next_scope = 0;
    open_scope(f.scopes[next_scope++], f.body, 0);
    for (const auto& [name, symbol] : bindings)
        scopes_.back().symbols[name] = symbol;
    formals_in_registers(f.params, true);
    formals_in_registers(f.returns, false);
    for (std::size_t i = 0; i < f.body.size(); ++i) {
        const Statement& s = f.body[i];
        switch (s.kind) {
            case Statement::Kind::open:
                open_scope(f.scopes[next_scope++], f.body, i + 1);
                break;
            case Statement::Kind::close:
                scopes_.pop_back();
                break;
            case Statement::Kind::label:
                labels_[scopes_.back().labels.at(s.name)] = here();
                break;
            case Statement::Kind::table:
                break;
            case Statement::Kind::instruction:
                instruction(s);
                break;
            case Statement::Kind::marker:
                marker(s);
                break;
        }
    }
    give_back({.kind = Statement::Kind::instruction, .line = f.line});
    if (how == Return::jump) labels_[body_.end] = here();
    scopes_.resize(base_scope_);
    base_scope_ = outer_base;
    body_ = outer;
}

void Lowering::finish() {
    const std::uint32_t align = kernel_.dynamic_shared_align;
    const std::uint32_t dynamic = (kernel_.static_shared_bytes + align - 1) / align * align;
    for (const std::size_t c : dynamic_constants_)
        kernel_.warp_constants[c].number += dynamic;
    kernel_.local_bytes = kernel_.frame_bytes;
    Operand frame;
    if (uses_stack_ || !kernel_.functions.empty()) {
        kernel_.local_bytes = (kernel_.frame_bytes + 127) / 128 * 128 + kStackBytes;
        frame = warp_constant(WarpConstant::Kind::frame, 0, 64);
    }
    watch_multiplies(kernel_, drafts_, registers_.size());
    number_registers(kernel_, drafts_, registers_, labels_, tables_);
    if (kernel_.register_bytes > kMostRegisterBytes)
        unsupported("More than 65536 registers alive at once", where(entry_.line));
    count_registers();
    if (frame.bits != 0) kernel_.frame_slot = kernel_.warp_constants[frame.offset].slot;
    kernel_.code.reserve(drafts_.size());
    for (Draft& d : drafts_) {
        Instruction ins = d.ins;
        if (d.flow == Draft::Flow::branch) ins.target = labels_[ins.target];
        auto ops = std::make_unique<Operand[]>(d.ops.size() + 1);
        std::ranges::copy(d.ops, ops.get());
        ins.op = ops.get();
        ins.count = static_cast<std::uint16_t>(d.ops.size());
        ins.written = static_cast<std::uint16_t>(std::ranges::find(d.dest, false) - d.dest.begin());
        kernel_.operand_store.push_back(std::move(ops));
        kernel_.code.push_back(ins);
    }
    for (const auto& table : tables_) {
        kernel_.branch_tables.emplace_back();
        for (const std::uint32_t label : table)
            kernel_.branch_tables.back().push_back(labels_[label]);
    }
}

Kernel lower(const ast::Module& module, const CallGraph& calls, const ast::Function& entry,
             const std::vector<GlobalObject>& globals) {
    return Lowering(module, calls, entry, globals).run();
}

}  // namespace emu
